//! Kinds, policies and webhook configurations: there, and as this version renders them.

use kube::api::{Api, DynamicObject};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, Error};
use serde_json::Value;

use super::compare::{difference, exempt_accounts};
use super::finding::Finding;
use super::{Site, text, unreadable};
use crate::api::names::{USER_DAEMON_SET_CONTROLLER, VERSION, VISIBILITY_GROUP};
use crate::manifests::{self, Values};

const APPLY: &str = "apply the chart of this version again: helm upgrade";

/// One object as rendered, and what was found under its name.
pub struct Part {
    rendered: Value,
    stored: Result<Option<Value>, Error>,
}

/// Everything that is installed beside the programs.
pub struct Installation {
    kinds: Vec<Part>,
    guard: Vec<Part>,
    queue_webhook: Part,
    gate_webhook: Part,
    gate_policy: Vec<Part>,
    api_service: Part,
}

/// What adds the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// Nothing that could be found.
    Nothing,
    /// The mutating webhook.
    Webhook,
    /// The mutating policy.
    Policy,
    /// Both.
    Both,
}

impl Gate {
    /// Whether the mutating policy is there.
    pub fn uses_policy(self) -> bool {
        matches!(self, Self::Policy | Self::Both)
    }
}

/// Reads all of it.
pub async fn read(site: &Site) -> Installation {
    let (client, values) = (&site.client, Values::new(&site.namespace, &[]));
    let service = serde_json::json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": {"name": format!("{VERSION}.{VISIBILITY_GROUP}")},
        "spec": {
            "group": VISIBILITY_GROUP, "version": VERSION,
            "groupPriorityMinimum": 100, "versionPriority": 100,
            "service": {"name": manifests::VISIBILITY_SERVICE, "namespace": site.namespace},
        },
    });
    let mut queue_webhook = part(client, manifests::validating(&values)).await;
    let gate_policy = parts(client, manifests::gate_policy(&values)).await;
    // Where a policy gates, the chart may let the webhook hold pods back as well.
    let with_pods = manifests::validating_with_pods(&values);
    if gate_policy.iter().any(Part::is_there) && queue_webhook.count() == count(&with_pods) {
        queue_webhook.rendered = with_pods;
    }
    Installation {
        // Only the name is needed where a kind cannot be made into JSON, which no build ships.
        kinds: parts(client, manifests::crds().unwrap_or_default()).await,
        guard: parts(client, manifests::guard(&values)).await,
        queue_webhook,
        gate_webhook: part(client, manifests::mutating(&values)).await,
        gate_policy,
        api_service: part(client, service).await,
    }
}

async fn parts(client: &Client, rendered: Vec<Value>) -> Vec<Part> {
    let mut parts = Vec::new();
    for rendered in rendered {
        parts.push(part(client, rendered).await);
    }
    parts
}

async fn part(client: &Client, rendered: Value) -> Part {
    let (group, version) = text(&rendered, "/apiVersion")
        .split_once('/')
        .unwrap_or(("", text(&rendered, "/apiVersion")));
    let kind = GroupVersionKind::gvk(group, version, text(&rendered, "/kind"));
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&kind));
    let stored = api.get_opt(text(&rendered, "/metadata/name")).await;
    let stored = stored.map(|found| found.and_then(|object| serde_json::to_value(object).ok()));
    Part { rendered, stored }
}

/// Webhooks of a configuration.
fn count(configuration: &Value) -> usize {
    configuration.pointer("/webhooks").and_then(Value::as_array).map_or(0, Vec::len)
}

impl Part {
    fn count(&self) -> usize {
        self.stored.as_ref().ok().and_then(Option::as_ref).map_or(0, count)
    }

    fn is_there(&self) -> bool {
        matches!(self.stored, Ok(Some(_)))
    }

    fn name(&self) -> String {
        format!("{} {}", text(&self.rendered, "/kind"), text(&self.rendered, "/metadata/name"))
    }

    /// What is wrong with it.
    fn fault(&self, check: &'static str) -> Option<Finding> {
        let name = self.name();
        match &self.stored {
            Err(error) => Some(unreadable(check, &name, error)),
            Ok(None) => Some(Finding::fail(check, format!("{name} is missing"), APPLY)),
            Ok(Some(stored)) => difference(&self.rendered, stored)
                .map(|what| Finding::fail(check, format!("{name}: {what}"), APPLY)),
        }
    }

    /// The bundles in it, one for each place.
    fn bundles(&self) -> Vec<String> {
        let Ok(Some(stored)) = &self.stored else { return Vec::new() };
        let webhooks = stored.pointer("/webhooks").and_then(Value::as_array);
        let configs = webhooks.into_iter().flatten().filter_map(|one| one.get("clientConfig"));
        let spec = stored.pointer("/spec").filter(|spec| spec.get("service").is_some());
        configs.chain(spec).map(|place| text(place, "/caBundle").to_owned()).collect()
    }
}

/// One finding for all that is well, or one for each that is not.
fn sum_up(check: &'static str, well: String, parts: &[&Part]) -> Vec<Finding> {
    let faults: Vec<_> = parts.iter().filter_map(|part| part.fault(check)).collect();
    if faults.is_empty() { vec![Finding::ok(check, well)] } else { faults }
}

impl Installation {
    /// What adds the gate.
    pub fn gate(&self) -> Gate {
        match (self.gate_webhook.is_there(), self.gate_policy.iter().any(Part::is_there)) {
            (false, false) => Gate::Nothing,
            (true, false) => Gate::Webhook,
            (false, true) => Gate::Policy,
            (true, true) => Gate::Both,
        }
    }

    /// Whether the controller makes certificates and fills bundles, and not cert-manager.
    pub fn own_certificates(&self) -> bool {
        let Ok(Some(stored)) = &self.queue_webhook.stored else { return true };
        let annotations = stored.pointer("/metadata/annotations");
        annotations.and_then(|all| all.get("cert-manager.io/inject-ca-from")).is_none()
    }

    /// Objects that carry a bundle, by name, with the bundles in them in base64.
    pub fn bundles(&self) -> Vec<(String, String)> {
        let parts = [&self.queue_webhook, &self.gate_webhook, &self.api_service];
        let named = |part: &&Part| {
            let name = part.name();
            part.bundles().into_iter().map(move |bundle| (name.clone(), bundle))
        };
        parts.iter().flat_map(named).collect()
    }

    /// Whether all of it is there and as rendered.
    pub fn findings(&self, site: &Site) -> Vec<Finding> {
        let mut findings =
            sum_up("kinds", self.said_of_kinds(), &self.kinds.iter().collect::<Vec<_>>());
        findings.extend(self.said_of_gate());
        let guard: Vec<_> = self.guard.iter().collect();
        let well = format!("{} policies and bindings as rendered{}", guard.len(), self.exempt());
        findings.extend(sum_up("guard", well, &guard));
        let well = "webhook configuration as rendered".to_owned();
        findings.extend(sum_up("queue checks", well, &[&self.queue_webhook]));
        let well =
            format!("APIService leads to {}/{}", site.namespace, manifests::VISIBILITY_SERVICE);
        findings.extend(sum_up("APIService", well, &[&self.api_service]));
        findings
    }

    fn said_of_kinds(&self) -> String {
        let names = self.kinds.iter().map(|part| text(&part.rendered, "/metadata/name"));
        format!("{} {VERSION} as rendered", names.collect::<Vec<_>>().join(", "))
    }

    fn said_of_gate(&self) -> Vec<Finding> {
        let check = "gate";
        let policy: Vec<_> = self.gate_policy.iter().collect();
        let unread = [&self.gate_webhook].into_iter().chain(policy.iter().copied());
        let unread = unread.filter(|part| part.stored.is_err());
        match self.gate() {
            Gate::Webhook => sum_up(check, "a webhook adds it".to_owned(), &[&self.gate_webhook]),
            Gate::Policy => sum_up(check, "a policy adds it".to_owned(), &policy),
            Gate::Both => vec![Finding::warn(
                check,
                "webhook and policy both add it",
                "keep one: helm upgrade with the admission.gateBy you want",
            )],
            Gate::Nothing => {
                let unread: Vec<_> = unread.filter_map(|part| part.fault(check)).collect();
                let nothing = "nothing adds it: new pods in opted-in namespaces are refused";
                if unread.is_empty() { vec![Finding::fail(check, nothing, APPLY)] } else { unread }
            }
        }
    }

    fn exempt(&self) -> String {
        let stored = self.guard.iter().filter_map(|part| part.stored.as_ref().ok()?.as_ref());
        let mut accounts: Vec<_> = stored.flat_map(exempt_accounts).collect();
        accounts.retain(|account| account != USER_DAEMON_SET_CONTROLLER);
        accounts.sort_unstable();
        accounts.dedup();
        match accounts.as_slice() {
            [] => String::new(),
            some => format!("; exempt accounts: {}", some.join(", ")),
        }
    }
}

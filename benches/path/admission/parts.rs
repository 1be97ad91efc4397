//! Each part of admission by itself.

use anyhow::{Context as _, Result};
use k8s_openapi::{
    api::{
        admissionregistration::v1::{
            MutatingWebhookConfiguration, ValidatingAdmissionPolicyBinding,
            ValidatingWebhookConfiguration,
        },
        core::v1::Pod,
    },
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tidegate::api::names;

use crate::path::{pods, watch::has_gate};
use crate::support::{
    lab::Lab,
    tidegate::{Install, RELEASE, Tidegate},
    wait,
};

/// Label of a namespace.
type Label = (&'static str, &'static str);

/// Opted in.
pub const MANAGED: Label = (names::LABEL_MANAGED, "true");
/// The webhook adds the gate.
pub const WEBHOOK: Label = ("bench.example.com/adder", "webhook");
/// The policy adds the gate.
pub const POLICY: Label = ("bench.example.com/adder", "policy");
/// The webhook is asked whether the queue's backlog is full, as it is beside the policy.
pub const BACKLOG: Label = ("bench.example.com/backlog", "true");
/// The guard looks.
pub const GUARD: Label = ("bench.example.com/guard", "true");

/// What is in the way of a pod's creation.
pub struct Arm {
    /// As in figures.
    pub name: &'static str,
    /// Of its namespace.
    pub labels: &'static [Label],
    /// Part of the creates without anything in the way that is wanted.
    pub least: Option<f64>,
}

impl Arm {
    /// A namespace of its own.
    pub fn namespace(&self) -> String {
        self.name.replace('_', "-")
    }
}

/// Lets each part work only where a namespace's label asks for it, and waits until it is so.
pub async fn separate(tidegate: &'static Tidegate, queue: &str, arms: &[Arm]) -> Result<()> {
    let client = tidegate.cluster().client().await?;
    let lab = Lab { client, namespace: queue.to_owned(), tidegate };
    lab.queue(queue, json!({})).await?;
    add_policy(&lab).await?;
    narrow_webhook(&lab.client).await?;
    narrow_guard(&lab.client).await?;
    for arm in arms {
        let of_queue = arm.labels.contains(&MANAGED).then_some((names::LABEL_QUEUE, queue));
        let labels: Vec<_> = arm.labels.iter().copied().chain(of_queue).collect();
        pods::namespace(&lab.client, &arm.namespace(), &labels).await?;
        settled(&lab.client, arm).await?;
    }
    Ok(())
}

/// A condition on the labels of namespaces.
fn only((key, value): Label) -> Value {
    json!({"key": key, "operator": "In", "values": [value]})
}

/// The chart holds the policy or the webhook, never both.
async fn add_policy(lab: &Lab) -> Result<()> {
    let install = Install { values: vec!["admission.gateBy=policy".to_owned()] };
    let text = lab.tidegate.helm(&["template", "--kube-version=1.36.0"], &install).await?;
    for mut object in serde_yaml::from_multiple::<Value>(&text)? {
        match object["kind"].as_str() {
            Some("MutatingAdmissionPolicyBinding") => {
                let selector = json!({"matchExpressions": [only(POLICY)]});
                object["spec"]["matchResources"] = json!({"namespaceSelector": selector});
                lab.create(object).await?;
            }
            Some("MutatingAdmissionPolicy") => {
                lab.create(object).await?;
            }
            Some("ValidatingWebhookConfiguration") => {
                add_backlogs(&lab.client, serde_json::from_value(object)?).await?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// What the chart's validating webhooks have more beside the policy.
async fn add_backlogs(client: &Client, beside: ValidatingWebhookConfiguration) -> Result<()> {
    let all: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    let mut configuration = all.get(RELEASE).await?;
    let webhooks = configuration.webhooks.get_or_insert_default();
    let bundle = webhooks.first().and_then(|webhook| webhook.client_config.ca_bundle.clone());
    for mut webhook in beside.webhooks.into_iter().flatten() {
        let known = webhooks.iter().any(|other| other.name == webhook.name);
        if let Some(selector) = webhook.namespace_selector.as_mut().filter(|_| !known) {
            narrow(selector, BACKLOG)?;
            webhook.client_config.ca_bundle.clone_from(&bundle);
            webhooks.push(webhook);
        }
    }
    all.replace(RELEASE, &PostParams::default(), &configuration).await?;
    Ok(())
}

fn narrow(selector: &mut LabelSelector, label: Label) -> Result<()> {
    let expressions = selector.match_expressions.get_or_insert_default();
    expressions.push(serde_json::from_value(only(label))?);
    Ok(())
}

async fn narrow_webhook(client: &Client) -> Result<()> {
    let all: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    let mut configuration = all.get(RELEASE).await?;
    for webhook in configuration.webhooks.iter_mut().flatten() {
        let selector = webhook.namespace_selector.as_mut().context("a webhook for everything")?;
        narrow(selector, WEBHOOK)?;
    }
    all.replace(RELEASE, &PostParams::default(), &configuration).await?;
    Ok(())
}

async fn narrow_guard(client: &Client) -> Result<()> {
    let all: Api<ValidatingAdmissionPolicyBinding> = Api::all(client.clone());
    let selector = json!({"matchExpressions": [only(GUARD)]});
    let narrower = json!({"spec": {"matchResources": {"namespaceSelector": selector}}});
    for binding in all.list(&kube::api::ListParams::default()).await? {
        let patch = Patch::Merge(&narrower);
        all.patch(&binding.name_any(), &PatchParams::default(), &patch).await?;
    }
    Ok(())
}

/// Waits until the apiserver has treated pods as the arm says for half a second. Without
/// opt-in the guard refuses a gate that nobody would open; with it, a pod without one.
async fn settled(client: &Client, arm: &Arm) -> Result<()> {
    let api: Api<Pod> = Api::namespaced(client.clone(), &arm.namespace());
    let gates: &[&str] = if arm.is_managed() { &[] } else { &[names::GATE] };
    let probe = pods::pod("probe", gates, &[])?;
    let refused = arm.labels.contains(&GUARD) && (arm.brings_gate() || !arm.is_managed());
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    let mut in_a_row = 0;
    wait::until(&format!("admission is {}", arm.name), wait::SOON, async || {
        let as_wanted = match api.create(&dry_run, &probe).await {
            Ok(pod) => !refused && has_gate(&pod, names::GATE),
            Err(kube::Error::Api(status)) if status.code == 403 => refused,
            Err(error) => return Err(error.into()),
        };
        in_a_row = if as_wanted { in_a_row + 1 } else { 0 };
        Ok(in_a_row == 10)
    })
    .await
}

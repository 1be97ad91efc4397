//! Each rule of our roles is taken away once: what it is for fails, and works again when the
//! rule is back.

use std::fmt::Debug;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::{
    NamespaceResourceScope,
    api::{
        admissionregistration::v1::MutatingWebhookConfiguration,
        authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
        coordination::v1::Lease,
        core::v1::{ConfigMap, Pod, Secret},
    },
    kube_aggregator::pkg::apis::apiregistration::v1::APIService,
};
use kube::{
    Api, Client, Resource, ResourceExt as _,
    api::{
        ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams,
    },
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tidegate::api::names::LABEL_QUEUE;

use super::{crowded, leaf_is_good, spoil_the_leaf, urgent_class};
use crate::support::{
    audit::Reader,
    lab::{Lab, bare_pod, is_gated},
    tidegate::{NAMESPACE, RELEASE, Tidegate, judges_queues},
    wait,
};

/// The queue that owners name; what their pods are charged when nobody can read that is another.
const NAMED: &str = "removed-named";
/// A kind of an operator whose API groups are granted whole.
const OPERATOR: (&str, &str) = ("workload.codeflare.dev", "appwrappers");

/// What makes the aggregated API known.
const AGGREGATED: &str = "v1alpha1.visibility.tidegate.dev";

/// Kinds of objects in our namespace.
trait AtHome:
    Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Debug
{
}

impl AtHome for ConfigMap {}
impl AtHome for Lease {}
impl AtHome for Secret {}

/// What a rule is for.
#[derive(Clone, Copy, Debug)]
enum Work {
    /// Pods are let go.
    LetGo,
    /// One makes room for another.
    TakenBack,
    /// An Event tells that one waits.
    Told,
    /// The status of the queue counts it.
    Counted,
    /// Somebody who may see groups sees them.
    Shown,
    /// An owner of this kind names the queue.
    Owned(&'static str),
    /// A bundle that was emptied comes back to the webhook configurations.
    Trusted,
    /// The same of the aggregated API.
    Aggregated,
    /// The number that fences leaders off comes back.
    Fenced,
    /// A leaf that is no certificate is replaced.
    Renewed,
    /// The Secret of the certificates comes back.
    Kept,
    /// A controller that starts reads the cluster.
    Read,
    /// A controller that starts leads.
    Led,
    /// The same without a Lease.
    LedAnew,
    /// A webhook that starts judges queues.
    Judged,
}

/// A role of the chart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Role {
    Webhook,
    Controller,
    ControllerAtHome,
    Owners,
}

/// A verb and a resource.
type Ask = (&'static str, &'static str);

struct Case {
    role: Role,
    /// What only this rule grants.
    rule: Ask,
    /// What is refused without it.
    refused: Ask,
    work: Work,
}

const fn case(of: Role, rule: Ask, work: Work) -> Case {
    Case { role: of, rule, refused: rule, work }
}

/// Every rule, by one of the requests that it allows.
const CASES: [Case; 21] = {
    use Role::{Controller, ControllerAtHome, Owners, Webhook};
    [
        case(Controller, ("patch", "pods"), Work::LetGo),
        Case { refused: ("patch", "pods"), ..case(Controller, ("release", "queues"), Work::LetGo) },
        case(Controller, ("create", "pods/eviction"), Work::TakenBack),
        case(Controller, ("create", "events"), Work::Told),
        case(Controller, ("patch", "queues/status"), Work::Counted),
        case(Controller, ("create", "subjectaccessreviews"), Work::Shown),
        case(Owners, ("get", "replicationcontrollers"), Work::Owned("ReplicationController")),
        case(Owners, ("get", "replicasets"), Work::Owned("ReplicaSet")),
        case(Owners, ("get", "jobs"), Work::Owned("Job")),
        Case {
            refused: ("get", OPERATOR.1),
            ..case(Owners, ("get", "*"), Work::Owned("AppWrapper"))
        },
        case(Controller, ("patch", "mutatingwebhookconfigurations"), Work::Trusted),
        case(Controller, ("patch", "apiservices"), Work::Aggregated),
        case(ControllerAtHome, ("create", "configmaps"), Work::Fenced),
        case(Controller, ("list", "nodes"), Work::Read),
        case(Controller, ("list", "queues"), Work::Read),
        case(ControllerAtHome, ("get", "configmaps"), Work::Led),
        case(ControllerAtHome, ("get", "leases"), Work::Led),
        case(ControllerAtHome, ("create", "leases"), Work::LedAnew),
        case(ControllerAtHome, ("get", "secrets"), Work::Renewed),
        case(ControllerAtHome, ("create", "secrets"), Work::Kept),
        case(Webhook, ("list", "queues"), Work::Judged),
    ]
};

impl Role {
    const ALL: [Self; 4] = [Self::Webhook, Self::Controller, Self::ControllerAtHome, Self::Owners];

    fn api(self, client: &Client) -> Api<DynamicObject> {
        let of = |kind| {
            ApiResource::from_gvk(&GroupVersionKind::gvk("rbac.authorization.k8s.io", "v1", kind))
        };
        match self {
            Self::ControllerAtHome => Api::namespaced_with(client.clone(), NAMESPACE, &of("Role")),
            _ => Api::all_with(client.clone(), &of("ClusterRole")),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Webhook => "tidegate-webhook",
            Self::Controller | Self::ControllerAtHome => "tidegate-controller",
            Self::Owners => "tidegate-known-owners",
        }
    }

    fn account(self) -> String {
        let name = if self == Self::Owners { Self::Controller.name() } else { self.name() };
        format!("system:serviceaccount:{NAMESPACE}:{name}")
    }

    async fn rules(self, client: &Client) -> Result<Vec<Value>> {
        let role = self.api(client).get(self.name()).await?;
        Ok(role.data["rules"].as_array().context("no rules")?.clone())
    }

    /// In Helm's name: a role with a second owner would stop later upgrades of the chart.
    async fn set(self, client: &Client, rules: &[Value]) -> Result<()> {
        let mut role = self.api(client).get(self.name()).await?;
        role.metadata.managed_fields = None;
        role.data["rules"] = json!(rules);
        let params = PatchParams::apply("helm").force();
        self.api(client).patch(self.name(), &params, &Patch::Apply(&role)).await?;
        Ok(())
    }

    /// Waits until the authorizer knows whether the account may do what a rule grants.
    async fn may(
        self,
        client: &Client,
        rule: &Value,
        (verb, resource): Ask,
        yes: bool,
    ) -> Result<()> {
        let (resource, subresource) = match resource.split_once('/') {
            Some((resource, subresource)) => (resource, Some(subresource.to_owned())),
            None => (resource, None),
        };
        let attributes = ResourceAttributes {
            group: rule["apiGroups"][0].as_str().map(str::to_owned),
            resource: Some(resource.to_owned()),
            subresource,
            name: rule["resourceNames"][0].as_str().map(str::to_owned),
            namespace: (self == Self::ControllerAtHome).then(|| NAMESPACE.to_owned()),
            verb: Some(verb.to_owned()),
            ..ResourceAttributes::default()
        };
        let spec = SubjectAccessReviewSpec {
            user: Some(self.account()),
            resource_attributes: Some(attributes),
            ..SubjectAccessReviewSpec::default()
        };
        let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
        let reviews: Api<SubjectAccessReview> = Api::all(client.clone());
        wait::until(&format!("{self:?} may {verb} {resource}: {yes}"), wait::SOON, async || {
            let answer = reviews.create(&PostParams::default(), &review).await?;
            Ok(answer.status.is_some_and(|status| status.allowed) == yes)
        })
        .await
    }
}

fn has(list: &Value, text: &str) -> bool {
    list.as_array().is_some_and(|items| items.iter().any(|item| item == text))
}

impl Case {
    fn is(&self, rule: &Value) -> bool {
        has(&rule["verbs"], self.rule.0) && has(&rule["resources"], self.rule.1)
    }
}

/// An installation, and what was tried on it so far.
struct Bench {
    lab: Lab,
    tried: usize,
}

impl Bench {
    async fn start(tidegate: &'static Tidegate) -> Result<Self> {
        let lab = Lab::on(tidegate, "removed", json!({})).await?;
        lab.queue(NAMED, json!({"stop": "Hold"})).await?;
        urgent_class(&lab).await?;
        lab.create(json!({"apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{}.{}", OPERATOR.1, OPERATOR.0)},
            "spec": {"group": OPERATOR.0, "scope": "Namespaced",
                "names": {"kind": "AppWrapper", "plural": OPERATOR.1, "singular": "appwrapper"},
                "versions": [{"name": "v1beta2", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object"}}}]}}))
            .await?;
        Ok(Self { lab, tried: 0 })
    }

    fn client(&self) -> Client {
        self.lab.client.clone()
    }

    /// The name of what was tried last.
    fn name(&self) -> String {
        format!("try-{}", self.tried)
    }

    /// Gives a reason to do what a rule is for.
    async fn attempt(&mut self, work: Work) -> Result<()> {
        self.tried += 1;
        match work {
            Work::LetGo | Work::Counted => self.lab.pod(&self.name(), "10m").await.map(drop),
            Work::TakenBack => crowded(&self.lab, &self.name()).await,
            Work::Told => {
                let mut pod = bare_pod(&self.name(), "10m");
                pod["metadata"]["labels"] = json!({"tidegate.dev/queue": NAMED});
                self.lab.create(pod).await.map(drop)
            }
            Work::Shown => {
                self.lab.editor(&self.name()).await?;
                self.works(work).await.map(drop)
            }
            Work::Owned(kind) => self.owned(kind).await,
            Work::Trusted => self.empty_bundles().await,
            Work::Aggregated => {
                let api: Api<APIService> = Api::all(self.client());
                let empty = Patch::Merge(json!({"spec": {"caBundle": null}}));
                api.patch(AGGREGATED, &PatchParams::default(), &empty).await?;
                Ok(())
            }
            Work::Fenced => self.delete::<ConfigMap>("tidegate-epoch").await,
            Work::Kept => self.delete::<Secret>("tidegate-tls").await,
            Work::Renewed => spoil_the_leaf(&self.lab.client).await,
            Work::Read | Work::Led => {
                self.lab.tidegate.stop_controller("TERM")?;
                self.lab.tidegate.start_controller().await
            }
            Work::LedAnew => {
                self.lab.tidegate.stop_controller("TERM")?;
                self.delete::<Lease>("tidegate-controller").await?;
                self.lab.tidegate.start_controller().await
            }
            Work::Judged => {
                self.lab.tidegate.stop_webhook("KILL")?;
                self.lab.tidegate.start_webhook().await
            }
        }
    }

    /// Whether it was done.
    async fn works(&self, work: Work) -> Result<bool> {
        let lab = &self.lab;
        Ok(match work {
            Work::LetGo => !is_gated(&lab.pod_api().get(&self.name()).await?),
            Work::TakenBack => {
                let urgent = lab.pod_api().get(&format!("{}-urgent", self.name())).await?;
                !is_gated(&urgent)
            }
            Work::Told => lab
                .events()
                .await?
                .iter()
                .any(|event| event.involved_object.name.as_ref() == Some(&self.name())),
            Work::Counted => {
                let elsewhere = |pod: &Pod| pod.labels().contains_key(LABEL_QUEUE);
                let pods = lab.pods().await?.into_iter().filter(|pod| !elsewhere(pod));
                let open = pods.filter(|pod| !is_gated(pod)).count();
                let status = lab.get_queue(&lab.namespace).await?.status.unwrap_or_default();
                usize::try_from(status.running.pods)? == open
            }
            Work::Shown => {
                let mut config = lab.config(&self.name()).await?;
                config.default_retry = false;
                let client = Client::try_from(config)?;
                let theirs = Lab { client, namespace: lab.namespace.clone(), ..*lab };
                theirs.groups().await.is_ok()
            }
            Work::Owned(_) => lab
                .groups()
                .await?
                .iter()
                .any(|group| group["root"]["name"] == self.name() && group["queue"] == NAMED),
            Work::Trusted => {
                let api: Api<MutatingWebhookConfiguration> = Api::all(self.client());
                let webhooks = api.get(RELEASE).await?.webhooks.unwrap_or_default();
                webhooks.iter().all(|webhook| webhook.client_config.ca_bundle.is_some())
            }
            Work::Aggregated => {
                let api: Api<APIService> = Api::all(self.client());
                let spec = api.get(AGGREGATED).await?.spec.context("no spec")?;
                spec.ca_bundle.is_some()
            }
            Work::Fenced => self.is_there::<ConfigMap>("tidegate-epoch").await?,
            Work::Kept => self.is_there::<Secret>("tidegate-tls").await?,
            Work::Renewed => leaf_is_good(&lab.client).await?,
            Work::Read => matches!(lab.tidegate.get("/readyz").await, Ok((200, _))),
            Work::Led | Work::LedAnew => {
                let metrics = lab.tidegate.get("/metrics").await;
                metrics.is_ok_and(|(_, text)| text.contains("\ntidegate_leader 1.0\n"))
            }
            Work::Judged => judges_queues(&lab.client).await?,
        })
    }

    /// An object of this kind that names the queue and makes no pods, and a pod of it.
    async fn owned(&self, kind: &str) -> Result<()> {
        let name = self.name();
        let template = json!({"metadata": {"labels": {"app": name}},
            "spec": bare_pod(&name, "10m")["spec"]});
        let (api_version, spec) = match kind {
            "Job" => {
                let mut template = template;
                template["spec"]["restartPolicy"] = json!("Never");
                ("batch/v1", json!({"suspend": true, "template": template}))
            }
            "ReplicaSet" => {
                let selector = json!({"matchLabels": {"app": name}});
                ("apps/v1", json!({"replicas": 0, "selector": selector, "template": template}))
            }
            "ReplicationController" => ("v1", json!({"replicas": 0, "template": template})),
            _ => ("workload.codeflare.dev/v1beta2", json!(null)),
        };
        let labels = json!({"tidegate.dev/queue": NAMED});
        let object = json!({"apiVersion": api_version, "kind": kind, "spec": spec,
            "metadata": {"name": name, "labels": labels}});
        let owner = wait::for_some("the kind is served", wait::SOON, async || {
            Ok(Some(self.lab.create(object.clone()).await?))
        })
        .await?;
        let mut pod = bare_pod(&name, "10m");
        pod["metadata"]["ownerReferences"] = json!([
            {"apiVersion": api_version, "kind": kind, "name": name, "uid": owner.uid()}]);
        self.lab.create(pod).await.map(drop)
    }

    async fn empty_bundles(&self) -> Result<()> {
        let api: Api<MutatingWebhookConfiguration> = Api::all(self.client());
        let mut stored = api.get(RELEASE).await?;
        for webhook in stored.webhooks.iter_mut().flatten() {
            webhook.client_config.ca_bundle = None;
        }
        api.replace(RELEASE, &PostParams::default(), &stored).await?;
        Ok(())
    }

    /// Deletes what may be gone already.
    async fn delete<K: AtHome>(&self, name: &str) -> Result<()> {
        let api: Api<K> = Api::namespaced(self.client(), NAMESPACE);
        match api.delete(name, &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            done => Ok(done.map(drop)?),
        }
    }

    async fn is_there<K: AtHome>(&self, name: &str) -> Result<bool> {
        let api: Api<K> = Api::namespaced(self.client(), NAMESPACE);
        Ok(api.get_opt(name).await?.is_some())
    }

    /// Without its rule it fails, and the request for it is refused.
    async fn fails(&mut self, case: &Case) -> Result<()> {
        let cluster = self.lab.tidegate.cluster();
        let mut audit = Reader::default();
        audit.requests(cluster, &case.role.account())?;
        self.attempt(case.work).await?;
        wait::until("the request is refused", wait::SOON, async || {
            let seen = audit.requests(cluster, &case.role.account())?;
            Ok(seen.iter().any(|it| !it.allowed && (&*it.verb, &*it.resource) == case.refused))
        })
        .await?;
        wait::until("it fails", wait::SOON, async || Ok(!self.works(case.work).await?)).await
    }

    async fn works_again(&mut self, case: &Case) -> Result<()> {
        self.attempt(case.work).await?;
        wait::until("it works again", wait::START, async || self.works(case.work).await).await
    }

    async fn run(&mut self, case: &Case) -> Result<()> {
        let (client, role) = (self.client(), case.role);
        let rules = role.rules(&client).await?;
        let (taken, left): (Vec<_>, Vec<_>) = rules.iter().cloned().partition(|rule| case.is(rule));
        ensure!(taken.len() == 1, "{} rules", taken.len());
        role.set(&client, &left).await?;
        role.may(&client, &taken[0], case.rule, false).await?;
        let failed = self.fails(case).await;
        role.set(&client, &rules).await?;
        role.may(&client, &taken[0], case.rule, true).await?;
        failed?;
        self.works_again(case).await
    }
}

#[tokio::test]
async fn each_rule_that_is_taken_away_breaks_what_it_is_for_until_it_is_back() -> Result<()> {
    let tidegate = Tidegate::exclusive().await?;
    let mut bench = Bench::start(&tidegate).await?;
    for role in Role::ALL {
        for rule in role.rules(&bench.client()).await? {
            let cases = CASES.iter().filter(|case| case.role == role && case.is(&rule)).count();
            ensure!(cases == 1, "{cases} cases take this rule of {role:?} away: {rule}");
        }
    }
    for case in &CASES {
        let named = || format!("{:?}, without {:?} of {:?}", case.work, case.rule, case.role);
        bench.run(case).await.with_context(named)?;
    }
    tidegate.ready().await
}

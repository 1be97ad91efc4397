//! What `clusters` tells of a real control plane, with nothing else of Tidegate running.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams,
};
use kube::core::GroupVersionKind;
use kube::{Api, Client, Config, CustomResourceExt as _, ResourceExt as _};
use serde_json::{Value, json};
use tidegate::api::{released::Released, v1alpha1::Queue};
use tidegate::clusters;
use tidegate::engine::event::{Event, GroupConfig, GroupName, Input, Name, PodConfig};
use tidegate::engine::{Assignment, ClusterId, GroupId, NodeId, PodId, PodState, QueueId, Vector};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::support::cluster::{Cluster, Component, Options};
use crate::support::proxy::Proxy;

const NAMESPACE: &str = "clusters";
/// Longest wait for one thing to become known.
const SOON: Duration = Duration::from_mins(2);

/// What has been told so far, kept as the engine and the view keep it.
#[derive(Default)]
struct Told {
    queues: BTreeMap<QueueId, String>,
    group_names: BTreeMap<GroupId, Arc<GroupName>>,
    groups: BTreeMap<GroupId, GroupConfig>,
    pod_names: BTreeMap<PodId, String>,
    pods: BTreeMap<PodId, PodConfig>,
    nodes: usize,
    foreign: BTreeMap<NodeId, Vector>,
    synced: bool,
}

impl Told {
    fn take(&mut self, input: Input) {
        match input {
            Input::Name(Name::Queue(id, name)) => {
                drop(self.queues.insert(id, name.name.to_string()));
            }
            Input::Name(Name::Group(id, name)) => drop(self.group_names.insert(id, name)),
            Input::Name(Name::GroupGone(id)) => {
                self.groups.remove(&id);
                self.group_names.remove(&id);
            }
            Input::Name(Name::Pod(id, at, _)) => {
                drop(self.pod_names.insert(id, at.name.to_string()));
            }
            Input::Event(Event::GroupChanged(id, config)) => drop(self.groups.insert(id, config)),
            Input::Event(Event::PodChanged(id, config)) => drop(self.pods.insert(id, config)),
            Input::Event(Event::PodRemoved(id)) => drop(self.pods.remove(&id)),
            Input::Event(Event::NodeChanged(..)) => self.nodes += 1,
            Input::Event(Event::ForeignChanged(id, load)) => drop(self.foreign.insert(id, load)),
            Input::Event(Event::Synced(_)) => self.synced = true,
            _ => {}
        }
    }

    /// `ROOT QUEUE STATE` of every pod whose name begins so.
    fn pods(&self, prefix: &str) -> Vec<String> {
        let named = self.pods.iter().filter(|(id, _)| self.pod_names[id].starts_with(prefix));
        let mut lines: Vec<String> = named.map(|(_, pod)| self.line(pod)).collect();
        lines.sort();
        lines
    }

    fn line(&self, pod: &PodConfig) -> String {
        let root = &self.group_names[&pod.group].root;
        let queue = match self.groups[&pod.group].queue {
            Assignment::Queue(id) => self.queues[&id].as_str(),
            Assignment::Forbidden(..) => "forbidden",
            Assignment::Unnamed => "unnamed",
            Assignment::Unresolved => "unresolved",
        };
        let state = match pod.state {
            PodState::Gated => "gated",
            PodState::Released { .. } => "released",
            PodState::Bound { .. } => "bound",
            PodState::Ended => "ended",
            PodState::Dropped => "dropped",
        };
        format!("{}/{} {queue} {state}", root.kind, root.address.name)
    }
}

/// A cluster that is followed.
struct Followed {
    client: Client,
    inbox: mpsc::Receiver<Input>,
    told: Told,
    cancel: CancellationToken,
    task: JoinHandle<Result<(), clusters::ClusterError>>,
    cluster: Cluster,
    proxy: Option<Proxy>,
}

impl Followed {
    /// Follows a new cluster, as its administrator or as this user.
    async fn start(user: Option<&str>) -> Result<Self> {
        Self::follow(user, false).await
    }

    /// Follows a new cluster through a proxy; silence for three seconds ends a connection.
    async fn behind_proxy() -> Result<Self> {
        Self::follow(None, true).await
    }

    async fn follow(user: Option<&str>, proxied: bool) -> Result<Self> {
        let cluster = tokio::task::spawn_blocking(|| Cluster::start(&Options::default())).await??;
        let client = cluster.client().await?;
        let kind = kind("apiextensions.k8s.io/v1", "CustomResourceDefinition");
        let crds: Api<DynamicObject> = Api::all_with(client.clone(), &kind);
        crds.create(&PostParams::default(), &serde_json::from_value(json!(Queue::crd()))?).await?;
        let mut config = cluster.config().await?;
        config.auth_info.impersonate = user.map(str::to_owned);
        let proxy = if proxied { Some(Proxy::for_admin(&cluster).await?) } else { None };
        if let Some(proxy) = &proxy {
            config = Config::new(proxy.url().parse()?);
            config.read_timeout = Some(Duration::from_secs(3));
        }
        let (sender, inbox) = mpsc::channel(1_000);
        let cancel = CancellationToken::new();
        let (client_of, never) = (Client::try_from(config)?, std::future::pending());
        let following = clusters::run(client_of, ClusterId(0), sender, never, cancel.clone());
        let task = tokio::spawn(following);
        let mut followed =
            Self { client, inbox, told: Told::default(), cancel, task, cluster, proxy };
        followed.create(namespace(true)).await?;
        if let Some(user) = user {
            followed.allow(user, "watcher", &["pods", "nodes", "namespaces", "queues"]).await?;
        }
        followed.until("synced", |told| told.synced).await?;
        Ok(followed)
    }

    /// Lets a user read these resources of any group.
    async fn allow(&self, user: &str, name: &str, resources: &[&str]) -> Result<()> {
        let api = "rbac.authorization.k8s.io";
        self.create(json!({
            "apiVersion": format!("{api}/v1"), "kind": "ClusterRole", "metadata": {"name": name},
            "rules": [{"apiGroups": ["*"], "resources": resources, "verbs": ["get", "list", "watch"]}],
        }))
        .await?;
        self.create(json!({
            "apiVersion": format!("{api}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": name},
            "roleRef": {"apiGroup": api, "kind": "ClusterRole", "name": name},
            "subjects": [{"apiGroup": api, "kind": "User", "name": user}],
        }))
        .await?;
        Ok(())
    }

    /// Takes inputs until the condition holds.
    async fn until(&mut self, what: &str, holds: impl Fn(&Told) -> bool) -> Result<()> {
        let end = tokio::time::Instant::now() + SOON;
        while !holds(&self.told) {
            match tokio::time::timeout_at(end, self.inbox.recv()).await {
                Ok(Some(input)) => self.told.take(input),
                Ok(None) => bail!("the follower ended while waiting for {what}"),
                Err(_) => bail!("waited in vain for {what}; pods: {:#?}", self.told.pods("")),
            }
        }
        Ok(())
    }

    async fn until_pods(&mut self, prefix: &str, lines: &[&str]) -> Result<()> {
        self.until(&format!("{prefix}: {lines:?}"), |told| told.pods(prefix) == lines).await
    }

    async fn create(&self, object: Value) -> Result<DynamicObject> {
        let text = |key: &str| object[key].as_str().unwrap_or_default().to_owned();
        let kind = kind(&text("apiVersion"), &text("kind"));
        let api: Api<DynamicObject> = match object["metadata"]["namespace"].as_str() {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &kind),
            None => Api::all_with(self.client.clone(), &kind),
        };
        let made = api.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
        Ok(made)
    }

    fn api(&self, api_version: &str, name: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), NAMESPACE, &kind(api_version, name))
    }

    async fn merge(&self, api: &Api<DynamicObject>, name: &str, patch: Value) -> Result<()> {
        api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    async fn stop(self) -> Result<()> {
        self.cancel.cancel();
        Ok(self.task.await??)
    }
}

fn kind(api_version: &str, kind: &str) -> ApiResource {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
}

/// What admission makes of a pod's template.
fn template(name: &str, restart: &str) -> Value {
    json!({
        "metadata": {"labels": {"app": name, "tidegate.dev/managed": "true"}},
        "spec": {
            "restartPolicy": restart,
            "schedulingGates": [{"name": "tidegate.dev/queue"}],
            "containers": [{"name": "c", "image": "pause", "resources": {"requests": {"cpu": "100m"}}}],
        },
    })
}

fn object(api_version: &str, kind: &str, name: &str, queue: Option<&str>, spec: &Value) -> Value {
    let mut metadata = json!({"name": name, "namespace": NAMESPACE});
    if let Some(queue) = queue {
        metadata["labels"] = json!({"tidegate.dev/queue": queue});
    }
    json!({"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec})
}

fn served(kind: &str, name: &str, queue: Option<&str>) -> Value {
    let spec = json!({
        "replicas": 2, "serviceName": name, "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": {"app": name}}, "template": template(name, "Always"),
    });
    let mut object = object("apps/v1", kind, name, queue, &spec);
    if kind == "Deployment" {
        let spec = object["spec"].as_object_mut().into_iter();
        spec.for_each(|spec| {
            spec.retain(|key, _| key != "serviceName" && key != "podManagementPolicy");
        });
    }
    object
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn built_in_kinds_of_a_real_control_plane_become_groups_with_queues() -> Result<()> {
    let mut followed = Followed::start(None).await?;
    deployments_and_sets(&mut followed).await?;
    scheduled_and_manual_jobs(&mut followed).await?;
    a_relabelled_job(&mut followed).await?;
    a_kind_made_up_later(&mut followed).await?;
    running_pods(&mut followed).await?;
    followed.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_right_is_named_and_used_as_soon_as_it_is_granted() -> Result<()> {
    let mut followed = Followed::start(Some("limited")).await?;
    let spec = json!({"template": template("secret", "Never")});
    followed.create(object("batch/v1", "Job", "secret", Some("a"), &spec)).await?;
    followed.until_pods("secret-", &["Job/secret house gated"]).await?;
    let rule = r#"{apiGroups: ["batch"], resources: ["jobs"], verbs: ["get"]}"#;
    let evidence = followed.told.group_names.values().flat_map(|name| &name.origin.evidence);
    assert_eq!(evidence.filter(|sentence| sentence.contains(rule)).count(), 1);
    followed.allow("limited", "jobs", &["jobs"]).await?;
    followed.until_pods("secret-", &["Job/secret a gated"]).await?;
    followed.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_apiserver_that_goes_away_or_falls_silent_is_followed_again() -> Result<()> {
    let mut followed = Followed::behind_proxy().await?;
    let spec = json!({"template": template("j", "Never")});
    followed.create(object("batch/v1", "Job", "before", Some("a"), &spec)).await?;
    followed.until_pods("before-", &["Job/before a gated"]).await?;
    followed.cluster.kill(Component::ApiServer).await?;
    followed.cluster.start_component(Component::ApiServer).await?;
    let jobs = followed.api("batch/v1", "Job");
    jobs.delete("before", &DeleteParams::foreground()).await?;
    followed.create(object("batch/v1", "Job", "after", Some("b"), &spec)).await?;
    followed.until_pods("after-", &["Job/after b gated"]).await?;
    followed.until_pods("before-", &[]).await?;
    // A router forgets the connections: nothing comes on them any more, and no end either.
    followed.proxy.as_ref().context("no proxy")?.freeze();
    followed.create(object("batch/v1", "Job", "silent", Some("b"), &spec)).await?;
    followed.until_pods("silent-", &["Job/silent b gated"]).await?;
    followed.stop().await
}

fn namespace(managed: bool) -> Value {
    let managed = managed.to_string();
    json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": NAMESPACE, "labels": {"tidegate.dev/managed": managed, "tidegate.dev/queue": "house"}},
    })
}

async fn deployments_and_sets(followed: &mut Followed) -> Result<()> {
    followed.create(served("Deployment", "web", Some("a"))).await?;
    followed.create(served("StatefulSet", "db", None)).await?;
    followed.until_pods("web-", &["Deployment/web a gated"; 2]).await?;
    followed.until_pods("db-", &["StatefulSet/db house gated"; 2]).await?;
    let api = followed.api("apps/v1", "Deployment");
    api.delete("web", &DeleteParams::background()).await?;
    followed.until_pods("web-", &[]).await?;
    followed
        .until("group of web gone", |told| {
            told.group_names.values().all(|name| &*name.root.address.name != "web")
        })
        .await
}

/// Case 023: both runs are paid by the queue on the `CronJob`, each a group of its own.
async fn scheduled_and_manual_jobs(followed: &mut Followed) -> Result<()> {
    let jobs = json!({"spec": {"template": template("report", "Never")}});
    let spec = json!({"schedule": "0 3 * * *", "suspend": true, "jobTemplate": jobs});
    let cron =
        followed.create(object("batch/v1", "CronJob", "report", Some("nightly"), &spec)).await?;
    for (name, controller) in [("by-hand", None), ("scheduled", Some(true))] {
        let spec = json!({"template": template("report", "Never")});
        let mut job = object("batch/v1", "Job", name, None, &spec);
        job["metadata"]["ownerReferences"] = json!([{
            "apiVersion": "batch/v1", "kind": "CronJob", "name": "report",
            "uid": cron.uid().context("uid")?, "controller": controller,
        }]);
        followed.create(job).await?;
    }
    followed.until_pods("by-hand-", &["Job/by-hand nightly gated"]).await?;
    followed.until_pods("scheduled-", &["Job/scheduled nightly gated"]).await
}

async fn a_relabelled_job(followed: &mut Followed) -> Result<()> {
    let spec = json!({"template": template("j", "Never"), "parallelism": 3, "completions": 3});
    followed.create(object("batch/v1", "Job", "moves", Some("a"), &spec)).await?;
    followed.until_pods("moves-", &["Job/moves a gated"; 3]).await?;
    let label = json!({"metadata": {"labels": {"tidegate.dev/queue": "b"}}});
    followed.merge(&followed.api("batch/v1", "Job"), "moves", label).await?;
    followed.until_pods("moves-", &["Job/moves b gated"; 3]).await
}

/// A pod is there before the kind of its owner is served to us.
async fn a_kind_made_up_later(followed: &mut Followed) -> Result<()> {
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "gadgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"kind": "Gadget", "plural": "gadgets"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema":
                {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
        },
    });
    followed.create(crd).await?;
    let gadget = json!({
        "apiVersion": "example.com/v1", "kind": "Gadget",
        "metadata": {"name": "g", "namespace": NAMESPACE,
            "labels": {"tidegate.dev/queue": "gadgets"}},
    });
    let gadget = crate::support::wait::for_some("gadgets served", SOON, async || {
        Ok(followed.create(gadget.clone()).await.ok())
    })
    .await?;
    let mut pod = template("gadget", "Never");
    pod["apiVersion"] = "v1".into();
    pod["kind"] = "Pod".into();
    pod["metadata"]["name"] = "gadget-0".into();
    pod["metadata"]["namespace"] = NAMESPACE.into();
    pod["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "example.com/v1", "kind": "Gadget", "name": "g",
        "uid": gadget.uid().context("uid")?, "controller": true,
    }]);
    followed.create(pod).await?;
    followed.until_pods("gadget-", &["Gadget/g gadgets gated"]).await
}

/// A gate that is opened, a pod that was never gated, and an opt-in that is taken back.
async fn running_pods(followed: &mut Followed) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(followed.client.clone(), NAMESPACE);
    for pod in pods.list(&ListParams::default().labels("app=db")).await? {
        let record = Released {
            pod: pod.uid().context("uid")?,
            queue: "house".to_owned(),
            group: "StatefulSet/db".to_owned(),
            root: pod.owner_references()[0].uid.clone(),
            size: 1,
            ..Released::default()
        };
        let open = json!({
            "metadata": {"annotations": {"tidegate.dev/released": serde_json::to_string(&record)?}},
            "spec": {"schedulingGates": [{"$patch": "delete", "name": "tidegate.dev/queue"}]},
        });
        pods.patch(&pod.name_any(), &PatchParams::default(), &Patch::Strategic(&open)).await?;
    }
    followed.until_pods("db-", &["StatefulSet/db house bound"; 2]).await?;
    let plain = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "plain", "namespace": NAMESPACE},
        "spec": {"containers": [{"name": "c", "image": "pause"}]},
    });
    followed.create(plain).await?;
    followed.until_pods("plain", &["Pod/plain house bound"]).await?;
    let namespaces: Api<DynamicObject> =
        Api::all_with(followed.client.clone(), &kind("v1", "Namespace"));
    followed.merge(&namespaces, NAMESPACE, namespace(false)).await?;
    followed.until_pods("plain", &[]).await?;
    followed
        .until("plain is foreign", |told| told.foreign.values().any(|load| !load.is_empty()))
        .await?;
    // What was let go by us is still the queue's.
    followed.until_pods("db-", &["StatefulSet/db house bound"; 2]).await
}

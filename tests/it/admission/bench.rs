//! A control plane for the rules of admission alone: no controller runs here.

use std::sync::OnceLock;

use anyhow::{Context as _, Result, anyhow, bail};
use http::{HeaderName, HeaderValue};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};

use crate::support::cluster::{Cluster, Options};
use crate::support::wait;

/// Somebody who sends requests.
#[derive(Clone, Debug, Default)]
pub struct Who {
    user: &'static str,
    groups: Vec<&'static str>,
    extra: Vec<(&'static str, &'static str)>,
}

/// May write pods and jobs, use queue `a`, and nothing else.
pub fn ann() -> Who {
    Who { user: "ann", ..Who::default() }
}

/// As ann, and may release.
pub fn releaser() -> Who {
    Who { user: "releaser", ..Who::default() }
}

/// An account with any right but the ones that RBAC gives by name.
pub fn account(user: &'static str, groups: &[&'static str]) -> Who {
    Who { user, groups: groups.to_vec(), ..Who::default() }
}

impl Who {
    /// With the token of this pod.
    pub fn of_pod(mut self, uid: &'static str, name: &'static str) -> Self {
        self.extra = vec![
            ("impersonate-extra-authentication.kubernetes.io%2fpod-uid", uid),
            ("impersonate-extra-authentication.kubernetes.io%2fpod-name", name),
        ];
        self
    }
}

/// The cluster of these tests.
pub fn cluster() -> Result<&'static Cluster> {
    static CLUSTER: OnceLock<Result<Cluster, String>> = OnceLock::new();
    CLUSTER
        .get_or_init(|| {
            Cluster::start(&Options { nodes: 1, ..Options::default() })
                .map_err(|error| format!("{error:#}"))
        })
        .as_ref()
        .map_err(|error| anyhow!("no cluster: {error}"))
}

/// A client of somebody.
pub async fn client(who: &Who) -> Result<Client> {
    let mut config = cluster()?.config().await?;
    config.auth_info.impersonate = Some(who.user.to_owned());
    let groups = who.groups.iter().map(|&group| group.to_owned()).collect();
    config.auth_info.impersonate_groups = Some(groups);
    for (name, value) in &who.extra {
        config.headers.push((HeaderName::from_static(name), HeaderValue::from_static(value)));
    }
    Ok(Client::try_from(config)?)
}

/// Creates or changes objects as the administrator.
pub async fn apply(objects: &[Value]) -> Result<()> {
    let client = cluster()?.client().await?;
    for object in objects {
        let (api, name) = api(&client, object)?;
        let params = PatchParams::apply("test").force();
        wait::for_some("the kind is served", wait::SOON, async || {
            Ok(Some(api.patch(&name, &params, &Patch::Apply(object)).await?))
        })
        .await?;
    }
    Ok(())
}

/// Deletes objects as the administrator.
pub async fn delete(objects: &[Value]) -> Result<()> {
    let client = cluster()?.client().await?;
    for object in objects {
        let (api, name) = api(&client, object)?;
        api.delete(&name, &kube::api::DeleteParams::default()).await?;
    }
    Ok(())
}

/// Where an object goes, by what it says of itself.
pub fn api(client: &Client, object: &Value) -> Result<(Api<DynamicObject>, String)> {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
    let (group, version) = text("/apiVersion")
        .context("no apiVersion")?
        .split_once('/')
        .unwrap_or(("", text("/apiVersion").unwrap_or_default()));
    let kind = text("/kind").context("no kind")?;
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    let name = text("/metadata/name").unwrap_or_default().to_owned();
    let api = match text("/metadata/namespace") {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    Ok((api, name))
}

/// What everybody in these tests may.
pub fn rights() -> Vec<Value> {
    let role = |name: &str, rules: Value| {
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": name}, "rules": rules})
    };
    let binding = |role: &str, users: &[&str]| {
        let subject =
            |user| json!({"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"});
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": format!("test-{role}")},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": users.iter().map(|user| subject(*user)).collect::<Vec<_>>()})
    };
    let all = ["*"];
    let work = json!([
        {"apiGroups": [""], "resources": ["pods", "pods/status", "pods/resize"], "verbs": all},
        {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": all},
    ]);
    let queues = |verb: &str, names: &[&str]| json!([{"apiGroups": ["tidegate.dev"], "resources": ["queues"], "resourceNames": names, "verbs": [verb]}]);
    vec![
        role("worker", work),
        role("use-a", queues("use", &["a"])),
        role("release", queues("release", &[])),
        binding("worker", &["ann", "releaser", "system:node:n1", DAEMON_SETS, BACKUP]),
        binding("use-a", &["ann"]),
        binding("release", &["releaser"]),
    ]
}

/// The account of the `DaemonSet` controller.
pub const DAEMON_SETS: &str = "system:serviceaccount:kube-system:daemon-set-controller";
/// An account that the installation exempts.
pub const BACKUP: &str = "system:serviceaccount:backup:backup";

/// A namespace with these labels.
pub async fn namespace(name: &str, managed: bool) -> Result<()> {
    let labels = if managed { json!({"tidegate.dev/managed": "true"}) } else { json!({}) };
    apply(&[json!({"apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": name, "labels": labels}})])
    .await?;
    let client = cluster()?.client().await?;
    let accounts: Api<k8s_openapi::api::core::v1::ServiceAccount> = Api::namespaced(client, name);
    wait::until("the namespace has its account", wait::SOON, async || {
        Ok(accounts.get_opt("default").await?.is_some())
    })
    .await
}

/// Opts a namespace in or out.
pub async fn opt(name: &str, managed: bool) -> Result<()> {
    let namespaces: Api<Namespace> = Api::all(cluster()?.client().await?);
    let value = managed.then_some("true");
    let patch = json!({"metadata": {"labels": {"tidegate.dev/managed": value}}});
    namespaces.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
    Ok(())
}

/// Pods of a namespace as somebody sees them.
pub struct Pods(pub Api<Pod>);

impl Pods {
    pub async fn of(who: &Who, namespace: &str) -> Result<Self> {
        Ok(Self(Api::namespaced(client(who).await?, namespace)))
    }

    pub async fn create(&self, pod: Value) -> kube::Result<Pod> {
        let pod = serde_json::from_value(pod).map_err(kube::Error::SerdeError)?;
        self.0.create(&PostParams::default(), &pod).await
    }

    pub async fn merge(&self, name: &str, patch: Value) -> kube::Result<Pod> {
        self.0.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await
    }

    pub async fn strategic(&self, name: &str, patch: Value) -> kube::Result<Pod> {
        self.0.patch(name, &PatchParams::default(), &Patch::Strategic(patch)).await
    }

    pub async fn subresource(&self, sub: &str, name: &str, patch: Value) -> kube::Result<Pod> {
        let params = PatchParams::default();
        self.0.patch_subresource(sub, name, &params, &Patch::Strategic(patch)).await
    }
}

/// A pod with these extra fields merged in.
pub fn pod(name: &str, extra: &Value) -> Value {
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {
        "containers": [{"name": "c", "image": "pause", "resources": {"requests": {"cpu": "100m"}}}],
    }});
    json_patch::merge(&mut pod, extra);
    pod
}

/// Takes our gate off and nothing else.
pub fn open() -> Value {
    json!({"spec": {"schedulingGates": [{"$patch": "delete", "name": "tidegate.dev/queue"}]}})
}

/// Names of a pod's gates.
pub fn gates(pod: &Pod) -> Vec<String> {
    let gates = pod.spec.as_ref().and_then(|spec| spec.scheduling_gates.clone());
    gates.unwrap_or_default().into_iter().map(|gate| gate.name).collect()
}

/// Fails unless the pod is gated and labelled by us.
pub fn assert_gated(pod: &Pod) {
    assert!(gates(pod).contains(&"tidegate.dev/queue".to_owned()), "{:?}", gates(pod));
    assert_eq!(pod.labels().get("tidegate.dev/managed").map(String::as_str), Some("true"));
}

/// The text of a refusal.
pub fn refusal<T>(outcome: kube::Result<T>) -> Result<String> {
    match outcome {
        Ok(_) => bail!("it was allowed"),
        Err(kube::Error::Api(status)) if matches!(status.code, 403 | 422) => {
            Ok(status.message.clone())
        }
        Err(error) => Err(error.into()),
    }
}

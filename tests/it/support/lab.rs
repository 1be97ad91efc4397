//! A namespace and queues of one test on the shared cluster.

use std::{collections::BTreeMap, path::PathBuf};

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, Namespace, Pod};
use kube::{
    Api, Client, Config, ResourceExt as _,
    api::{
        ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams,
        PostParams,
    },
    config::{KubeConfigOptions, Kubeconfig},
    discovery,
};
use serde_json::{Value, json};
use tidegate::api::{names, v1alpha1::Queue};

use super::{audit, tidegate::Tidegate, wait};

/// One test's own corner.
pub struct Lab {
    /// Administrator's client.
    pub client: Client,
    /// Opted-in namespace; its default queue has the same name.
    pub namespace: String,
    /// The installation.
    pub tidegate: &'static Tidegate,
}

impl Lab {
    /// A namespace `name` whose default queue is `name` with this spec.
    pub async fn new(name: &str, queue: Value) -> Result<Self> {
        let tidegate = Tidegate::shared()?;
        tidegate.check()?;
        Self::on(tidegate, name, queue).await
    }

    /// The same on an installation of the test's own.
    pub async fn on(tidegate: &'static Tidegate, name: &str, queue: Value) -> Result<Self> {
        let client = tidegate.cluster().client().await?;
        let lab = Self { client, namespace: name.to_owned(), tidegate };
        lab.queue(name, queue).await?;
        lab.opt_in(name, Some(name)).await?;
        Ok(lab)
    }

    /// A lab without a namespace of its own.
    pub async fn shared_client() -> Result<Self> {
        let tidegate = Tidegate::shared()?;
        let client = tidegate.cluster().client().await?;
        Ok(Self { client, namespace: "default".to_owned(), tidegate })
    }

    /// Makes a queue.
    pub async fn queue(&self, name: &str, spec: Value) -> Result<()> {
        let queue = json!({
            "apiVersion": "tidegate.dev/v1alpha1", "kind": "Queue",
            "metadata": {"name": name}, "spec": spec,
        });
        let api: Api<Queue> = Api::all(self.client.clone());
        api.create(&PostParams::default(), &serde_json::from_value(queue)?).await?;
        Ok(())
    }

    /// Merges into a queue's spec.
    pub async fn set_queue(&self, name: &str, spec: Value) -> Result<()> {
        let api: Api<Queue> = Api::all(self.client.clone());
        api.patch(name, &PatchParams::default(), &Patch::Merge(json!({"spec": spec}))).await?;
        Ok(())
    }

    /// A queue as stored.
    pub async fn get_queue(&self, name: &str) -> Result<Queue> {
        Ok(Api::<Queue>::all(self.client.clone()).get(name).await?)
    }

    /// Makes an opted-in namespace.
    pub async fn opt_in(&self, name: &str, queue: Option<&str>) -> Result<()> {
        let mut labels = BTreeMap::from([(names::LABEL_MANAGED.to_owned(), "true".to_owned())]);
        if let Some(queue) = queue {
            labels.insert(names::LABEL_QUEUE.to_owned(), queue.to_owned());
        }
        self.namespace(name, labels).await
    }

    /// Makes a namespace and waits for what pods need in it.
    pub async fn namespace(&self, name: &str, labels: BTreeMap<String, String>) -> Result<()> {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let namespace = json!({"metadata": {"name": name, "labels": labels}});
        namespaces.create(&PostParams::default(), &serde_json::from_value(namespace)?).await?;
        let accounts: Api<k8s_openapi::api::core::v1::ServiceAccount> =
            Api::namespaced(self.client.clone(), name);
        wait::until("the default ServiceAccount", wait::SOON, async || {
            Ok(accounts.get_opt("default").await?.is_some())
        })
        .await
    }

    /// Creates any object; its namespace, if the kind has one, is this lab's unless it says otherwise.
    pub async fn create(&self, object: Value) -> Result<DynamicObject> {
        self.create_with(object, &PostParams::default()).await
    }

    /// Creates as `kubectl create --validate=strict` does: unknown fields are refused.
    pub async fn create_strict(&self, object: Value) -> Result<DynamicObject> {
        let object: DynamicObject = serde_json::from_value(object)?;
        let (resource, _) = self.kind(&object).await?;
        let path =
            format!("/apis/{}/{}?fieldValidation=Strict", resource.api_version, resource.plural);
        let request = http::Request::post(path)
            .header("Content-Type", "application/json")
            .body(serde_json::to_vec(&object)?)?;
        Ok(self.client.request(request).await?)
    }

    async fn create_with(&self, object: Value, params: &PostParams) -> Result<DynamicObject> {
        let (api, object) = self.place(object).await?;
        api.create(params, &object).await.with_context(|| {
            let kind = object.types.as_ref().map_or("", |types| &types.kind);
            format!("creating {kind} {:?}", object.metadata.name)
        })
    }

    /// An object as it is stored and as it would be if this were applied to it.
    pub async fn apply_dry(&self, object: Value) -> Result<(DynamicObject, DynamicObject)> {
        let (api, object) = self.place(object).await?;
        let name = object.name_any();
        let params = PatchParams::apply("gitops").force().dry_run();
        let applied = api.patch(&name, &params, &Patch::Apply(&object)).await;
        Ok((api.get(&name).await?, applied.with_context(|| name)?))
    }

    /// Where an object goes: its namespace, if the kind has one, is this lab's unless it says
    /// otherwise.
    async fn place(&self, object: Value) -> Result<(Api<DynamicObject>, DynamicObject)> {
        let mut object: DynamicObject = serde_json::from_value(object)?;
        let (resource, namespaced) = self.kind(&object).await?;
        if !namespaced {
            return Ok((Api::all_with(self.client.clone(), &resource), object));
        }
        let namespace = object.namespace().unwrap_or_else(|| self.namespace.clone());
        let api = Api::namespaced_with(self.client.clone(), &namespace, &resource);
        object.metadata.namespace = Some(namespace);
        Ok((api, object))
    }

    async fn kind(&self, object: &DynamicObject) -> Result<(ApiResource, bool)> {
        let types = object.types.as_ref().context("an object without kind")?;
        let gvk = GroupVersionKind::try_from(types)?;
        let (resource, capabilities) = discovery::pinned_kind(&self.client, &gvk).await?;
        Ok((resource, capabilities.scope == discovery::Scope::Namespaced))
    }

    /// Reads one object of the namespace.
    pub async fn read(&self, api_version: &str, kind: &str, name: &str) -> Result<Value> {
        let gvk = GroupVersionKind::try_from(&kube::api::TypeMeta {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
        })?;
        let (resource, _) = discovery::pinned_kind(&self.client, &gvk).await?;
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), &self.namespace, &resource);
        Ok(serde_json::to_value(api.get(name).await?)?)
    }

    /// A client of a ServiceAccount with the role `edit` in this namespace.
    pub async fn editor(&self, account: &str) -> Result<Client> {
        self.create(json!({"apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": account}}))
            .await?;
        self.create(json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": format!("{account}-edit")},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": self.namespace}]}))
            .await?;
        self.account(account).await
    }

    /// A client with the token of a ServiceAccount of this namespace.
    pub async fn account(&self, account: &str) -> Result<Client> {
        Ok(Client::try_from(self.config(account).await?)?)
    }

    /// What [`Self::account`] is made from; change it to act as somebody else.
    pub async fn config(&self, account: &str) -> Result<Config> {
        let kubeconfig = Kubeconfig::read_from(self.kubeconfig(account).await?)?;
        let options = KubeConfigOptions::default();
        Ok(Config::from_custom_kubeconfig(kubeconfig, &options).await?)
    }

    /// A kubeconfig of a ServiceAccount of this namespace.
    pub async fn kubeconfig(&self, account: &str) -> Result<PathBuf> {
        self.tidegate.account_kubeconfig(&self.namespace, account).await
    }

    /// Lets a ServiceAccount of this namespace put a queue's label on objects.
    pub async fn allow_use(&self, account: &str, queue: &str) -> Result<()> {
        let name = format!("use-{queue}-{account}");
        self.create(json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": name}, "rules": [{"apiGroups": ["tidegate.dev"],
                "resources": ["queues"], "verbs": ["use"], "resourceNames": [queue]}]}))
            .await?;
        self.create(json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": self.namespace}]}))
            .await?;
        Ok(())
    }

    /// Makes a bare pod.
    pub async fn pod(&self, name: &str, cpu: &str) -> Result<Pod> {
        let object = self.create(bare_pod(name, cpu)).await?;
        Ok(object.try_parse()?)
    }

    /// All pods of the namespace.
    pub async fn pods(&self) -> Result<Vec<Pod>> {
        Ok(self.pod_api().list(&ListParams::default()).await?.items)
    }

    /// The pods' API.
    pub fn pod_api(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Waits until exactly these pods, by name, have their gate open (or are gone).
    pub async fn released(&self, names: &[&str]) -> Result<()> {
        let mut wanted: Vec<&str> = names.to_vec();
        wanted.sort_unstable();
        wait::until(&format!("{wanted:?} are released"), wait::SOON, async || {
            let pods = self.pods().await?;
            let mut open: Vec<&str> = pods
                .iter()
                .filter(|pod| !is_gated(pod))
                .filter_map(|p| p.metadata.name.as_deref())
                .collect();
            open.sort_unstable();
            ensure!(open == wanted, "open are {open:?}");
            Ok(true)
        })
        .await
    }

    /// Waits until this pod's gate is open.
    pub async fn released_at_least(&self, name: &str) -> Result<()> {
        wait::until(&format!("{name} is released"), wait::SOON, async || {
            Ok(!is_gated(&self.pod_api().get(name).await?))
        })
        .await
    }

    /// Waits until the status of the lab's queue shows this usage; `0` is not listed.
    pub async fn usage_is(&self, resource: &str, amount: &str) -> Result<()> {
        wait::until(&format!("usage of {resource} is {amount}"), wait::SOON, async || {
            let status = self.get_queue(&self.namespace).await?.status.unwrap_or_default();
            let usage = status.usage.get(resource).map_or("0", String::as_str);
            ensure!(usage == amount, "it is {usage}");
            Ok(true)
        })
        .await
    }

    /// Waits until this many pods exist, all of them gated.
    pub async fn all_gated(&self, count: usize) -> Result<Vec<Pod>> {
        wait::for_some(&format!("{count} gated pods"), wait::SOON, async || {
            let pods = self.pods().await?;
            ensure!(pods.iter().all(is_gated), "a pod is not gated");
            ensure!(pods.len() == count, "there are {} pods", pods.len());
            Ok(Some(pods))
        })
        .await
    }

    /// What `tidegate why KIND/NAME` prints once the controller knows the object.
    pub async fn why(&self, object: &str) -> Result<String> {
        wait::for_some(&format!("why {object}"), wait::SOON, async || {
            let output = self.tidegate.cli(&["why", object, "-n", &self.namespace]).await?;
            ensure!(output.code == 0, "{}{}", output.stdout, output.stderr);
            Ok(Some(output.stdout))
        })
        .await
    }

    /// Waits until `why` says something.
    pub async fn why_says(&self, object: &str, text: &str) -> Result<()> {
        wait::until(&format!("why {object} says {text:?}"), wait::SOON, async || {
            let said = self.why(object).await?;
            ensure!(said.contains(text), "it says:\n{said}");
            Ok(true)
        })
        .await
    }

    /// Groups of this namespace as the visibility API shows them.
    pub async fn groups(&self) -> Result<Vec<Value>> {
        self.list_groups(&format!("namespaces/{}/", self.namespace)).await
    }

    /// Groups of all namespaces.
    pub async fn all_groups(&self) -> Result<Vec<Value>> {
        self.list_groups("").await
    }

    async fn list_groups(&self, scope: &str) -> Result<Vec<Value>> {
        let path = format!("/apis/visibility.tidegate.dev/v1alpha1/{scope}groups");
        let request = http::Request::get(path).body(Vec::new())?;
        let list: Value = self.client.request(request).await?;
        Ok(list["items"].as_array().cloned().unwrap_or_default())
    }

    /// Kubernetes Events of the namespace that we reported.
    pub async fn events(&self) -> Result<Vec<Event>> {
        let events: Api<Event> = Api::namespaced(self.client.clone(), &self.namespace);
        let ours = |event: &Event| event.reporting_component.as_deref() == Some("tidegate");
        Ok(events.list(&ListParams::default()).await?.into_iter().filter(ours).collect())
    }

    /// Merges into an object of this namespace.
    pub async fn merge(
        &self,
        api_version: &str,
        kind: &str,
        name: &str,
        patch: Value,
    ) -> Result<()> {
        let types =
            kube::api::TypeMeta { api_version: api_version.to_owned(), kind: kind.to_owned() };
        let (resource, _) =
            discovery::pinned_kind(&self.client, &GroupVersionKind::try_from(&types)?).await?;
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), &self.namespace, &resource);
        api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    /// Names another queue on an object of this namespace.
    pub async fn relabel(
        &self,
        api_version: &str,
        kind: &str,
        name: &str,
        queue: &str,
    ) -> Result<()> {
        let label = json!({"metadata": {"labels": {names::LABEL_QUEUE: queue}}});
        self.merge(api_version, kind, name, label).await
    }

    /// Waits until a Job of this namespace is complete.
    pub async fn completes(&self, job: &str) -> Result<()> {
        wait::until(&format!("job {job} completes"), wait::START, async || {
            let status = self.read("batch/v1", "Job", job).await?["status"].clone();
            let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
            ensure!(
                conditions.iter().any(|c| c["type"] == "Complete" && c["status"] == "True"),
                "its status is {status}"
            );
            Ok(true)
        })
        .await
    }

    /// Deletes a pod at once.
    pub async fn delete_pod(&self, name: &str) -> Result<()> {
        self.pod_api().delete(name, &DeleteParams::default().grace_period(0)).await?;
        Ok(())
    }

    /// Fails when a pod of the namespace saw two PATCHes of ours. One whose sender was killed
    /// before the answer may have worked and not be in the audit log.
    pub fn no_patch_twice(&self) -> Result<()> {
        let counts = self.patches()?;
        ensure!(!counts.is_empty(), "no PATCH at all");
        ensure!(counts.values().all(|&count| count == 1), "{counts:?}");
        Ok(())
    }

    fn patches(&self) -> Result<BTreeMap<String, usize>> {
        audit::releases(self.tidegate.cluster(), |namespace| namespace == self.namespace)
    }

    /// Fails unless each released pod of the namespace saw exactly one PATCH of ours.
    pub async fn one_patch_each(&self) -> Result<()> {
        let counts = self.patches()?;
        for pod in self.pods().await?.iter().filter(|pod| !is_gated(pod)) {
            let uid = pod.uid().unwrap_or_default();
            ensure!(
                counts.get(&uid) == Some(&1),
                "pod {} saw {:?}",
                pod.name_any(),
                counts.get(&uid)
            );
        }
        ensure!(counts.values().all(|&count| count == 1), "{counts:?}");
        Ok(())
    }
}

/// Whether our gate is there.
pub fn is_gated(pod: &Pod) -> bool {
    let gates = pod.spec.as_ref().and_then(|spec| spec.scheduling_gates.as_ref());
    gates.is_some_and(|gates| gates.iter().any(|gate| gate.name == names::GATE))
}

/// A Job that runs so many pods at once, each asking CPU and ending after this time.
pub fn job(name: &str, pods: usize, cpu: &str, duration: &str) -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
        "spec": {"parallelism": pods, "completions": pods, "backoffLimit": 0, "template": {
            "metadata": {"annotations": {"fake.tidegate.dev/duration": duration}},
            "spec": {"restartPolicy": "Never", "containers": [{"name": "app", "image": "pause",
                "resources": {"requests": {"cpu": cpu}}}]}}},
    })
}

/// A Deployment of so many pods that run until they are deleted.
pub fn deployment(name: &str, replicas: usize, cpu: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": {
            "metadata": {"labels": {"app": name}},
            "spec": {"containers": [{"name": "app", "image": "pause",
                "resources": {"requests": {"cpu": cpu}}}]}}},
    })
}

/// A pod of nobody that asks CPU and runs until it is deleted.
pub fn bare_pod(name: &str, cpu: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"containers": [{"name": "app", "image": "pause",
            "resources": {"requests": {"cpu": cpu}}}]},
    })
}

/// Ages are whole seconds: waits until a pod made now is younger than this one.
pub async fn older(pod: &Pod) -> Result<()> {
    let created = pod.creation_timestamp().context("no creation time")?.0.as_second();
    wait::until("the next second", wait::SOON, async || Ok(Timestamp::now().as_second() > created))
        .await
}

//! Pods as the apiserver sends them, as far as they are read here.
//!
//! Most of a pod, such as volumes, environments, probes and the record of who manages
//! which field, is passed over while it is read: to keep it until [`super::strip`] would be
//! most of the work there is with a pod.

use std::borrow::Cow;
use std::collections::BTreeMap;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use kube::Resource;
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};

use crate::api::names::GRACE_SECONDS;

type Amounts = Option<BTreeMap<String, Quantity>>;

/// A pod. Fields are called as in Kubernetes.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "these are fields of Kubernetes")]
pub struct Pod {
    #[serde(deserialize_with = "metadata")]
    pub metadata: ObjectMeta,
    pub spec: Option<PodSpec>,
    pub status: Option<PodStatus>,
}

/// Without whatever is not read here.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[allow(missing_docs, reason = "these are fields of Kubernetes")]
pub struct PodSpec {
    pub node_name: Option<String>,
    pub scheduling_gates: Option<Vec<SchedulingGate>>,
    pub priority: Option<i32>,
    pub priority_class_name: Option<String>,
    /// Whether others may be evicted for it.
    pub preemption_policy: Option<String>,
    pub affinity: Option<Affinity>,
    pub termination_grace_period_seconds: Option<i64>,
    pub containers: Option<Vec<Container>>,
    pub init_containers: Option<Vec<Container>>,
    pub overhead: Amounts,
    pub resources: Option<ResourceRequirements>,
}

impl Pod {
    /// Whether it asks for longer to end than whoever is evicted gets.
    pub(super) fn ends_slowly(&self) -> bool {
        let spec = self.spec.as_ref();
        is_long(spec.and_then(|spec| spec.termination_grace_period_seconds)) || self.lingers()
    }

    /// Whether it was deleted and has longer to end than whoever is evicted gets: it runs on.
    pub(super) fn lingers(&self) -> bool {
        is_long(self.metadata.deletion_grace_period_seconds)
    }
}

fn is_long(seconds: Option<i64>) -> bool {
    seconds.is_some_and(|seconds| seconds > i64::from(GRACE_SECONDS))
}

impl PodSpec {
    /// Whether it says which nodes it would rather have.
    pub(super) fn prefers_nodes(&self) -> bool {
        let node = self.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
        node.is_some_and(|node| !node.preferred.is_empty())
    }
}

/// Without whatever is not read here.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[allow(missing_docs, reason = "these are fields of Kubernetes")]
pub struct Affinity {
    pub node_affinity: Option<NodeAffinity>,
}

/// Without whatever is not read here.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "these are fields of Kubernetes")]
pub struct NodeAffinity {
    #[serde(rename = "preferredDuringSchedulingIgnoredDuringExecution")]
    pub preferred: Vec<IgnoredAny>,
}

/// Without whatever is not read here.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[allow(missing_docs, reason = "these are fields of Kubernetes")]
pub struct PodStatus {
    pub phase: Option<String>,
    pub conditions: Option<Vec<PodCondition>>,
    pub container_statuses: Option<Vec<ContainerStatus>>,
    pub init_container_statuses: Option<Vec<ContainerStatus>>,
    pub resources: Option<ResourceRequirements>,
    pub allocated_resources: Amounts,
    pub node_allocatable_resource_claim_statuses: Option<Vec<ClaimStatus>>,
}

/// A gate.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "these are fields of Kubernetes")]
pub struct SchedulingGate {
    pub name: String,
}

/// Without whatever is not read here.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[allow(missing_docs, reason = "these are fields of Kubernetes")]
pub struct Container {
    pub name: String,
    pub restart_policy: Option<String>,
    pub resources: Option<ResourceRequirements>,
}

/// Without whatever is not read here.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[allow(missing_docs, reason = "these are fields of Kubernetes")]
pub struct ContainerStatus {
    pub name: String,
    pub resources: Option<ResourceRequirements>,
    pub allocated_resources: Amounts,
}

/// Without limits, which are never counted.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "these are fields of Kubernetes")]
pub struct ResourceRequirements {
    pub requests: Amounts,
}

/// Without whatever is not read here.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "these are fields of Kubernetes")]
pub struct PodCondition {
    #[serde(rename = "type")]
    pub type_: String,
    pub status: String,
    pub reason: Option<String>,
    pub message: Option<String>,
}

/// Without whatever is not read here.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "these are fields of Kubernetes")]
pub struct ClaimStatus {
    pub resources: Amounts,
}

/// What is kept of the metadata, and what a watch goes by.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Metadata {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
    deletion_grace_period_seconds: Option<i64>,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
    owner_references: Option<Vec<OwnerReference>>,
}

fn metadata<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    let read = Option::<Metadata>::deserialize(deserializer)?.unwrap_or_default();
    Ok(ObjectMeta {
        name: read.name,
        namespace: read.namespace,
        uid: read.uid,
        resource_version: read.resource_version,
        creation_timestamp: read.creation_timestamp,
        deletion_timestamp: read.deletion_timestamp,
        deletion_grace_period_seconds: read.deletion_grace_period_seconds,
        labels: read.labels,
        annotations: read.annotations,
        owner_references: read.owner_references,
        ..ObjectMeta::default()
    })
}

impl Resource for Pod {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        "Pod".into()
    }

    fn group((): &()) -> Cow<'_, str> {
        "".into()
    }

    fn version((): &()) -> Cow<'_, str> {
        "v1".into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        "pods".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_pod_of_a_later_version_or_with_nothing_in_it_is_read_as_far_as_it_goes() {
        let odd = json!({
            "metadata": {"name": "p", "resourceVersion": "7", "managedFields": "none of ours"},
            "spec": {"containers": [{"name": "c", "env": 3, "resources": {"requests": {"cpu": 1}}}], "new": {}},
            "status": null,
        });
        let pod: Pod = serde_json::from_value(odd).unwrap();
        assert_eq!(pod.meta().resource_version.as_deref(), Some("7"));
        let containers = pod.spec.unwrap().containers.unwrap();
        let requests = containers[0].resources.as_ref().unwrap().requests.as_ref().unwrap();
        assert_eq!(requests["cpu"].0, "1");
        let nothing = json!({"metadata": null, "spec": {"containers": null}});
        assert!(serde_json::from_value::<Pod>(nothing).is_ok());
    }
}

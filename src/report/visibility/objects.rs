//! The kinds this API serves, as they travel.
//!
//! One definition for the server, for the schema that `kubectl explain` shows and
//! for the command line that reads them back.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::names::{VERSION, VISIBILITY_GROUP};

/// Kind of one group.
pub const GROUP_KIND: &str = "Group";
/// Kind of many groups.
pub const GROUP_LIST_KIND: &str = "GroupList";
/// Kind of one explanation.
pub const EXPLANATION_KIND: &str = "Explanation";

/// `visibility.tidegate.dev/v1alpha1`.
#[must_use]
pub fn api_version() -> String {
    format!("{VISIBILITY_GROUP}/{VERSION}")
}

/// Kubernetes quantities by resource name.
pub type Quantities = BTreeMap<String, String>;

/// Pods that belong together, as Tidegate sees them.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Group {
    /// `visibility.tidegate.dev/v1alpha1`.
    pub api_version: String,
    /// `Group`.
    pub kind: String,
    /// Name, namespace and since when.
    pub metadata: Metadata,
    /// What is known of it.
    #[serde(flatten)]
    pub work: Work,
}

/// Some groups, by namespace and name.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct GroupList {
    /// `visibility.tidegate.dev/v1alpha1`.
    pub api_version: String,
    /// `GroupList`.
    pub kind: String,
    /// Revision, and where to go on.
    pub metadata: ListMetadata,
    /// The groups.
    pub items: Vec<Group>,
}

/// Why a group is where it is.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// `visibility.tidegate.dev/v1alpha1`.
    pub api_version: String,
    /// `Explanation`.
    pub kind: String,
    /// Name and namespace of the group.
    pub metadata: Metadata,
    /// What is known of the group.
    #[serde(flatten)]
    pub work: Work,
    /// The group's queue and every queue above it, lowest first.
    #[serde(default)]
    pub queue_path: Vec<QueueStep>,
    /// What all queues share: allocatable of usable nodes less foreign requests.
    #[serde(default)]
    pub capacity: Quantities,
    /// Its pods in order of release, at most 200.
    #[serde(default)]
    pub pods: Vec<Pod>,
    /// Pods beyond those.
    #[serde(default)]
    pub pods_not_shown: u64,
    /// Where queue and size came from, and what could not be read.
    #[serde(default)]
    pub evidence: Vec<String>,
    /// When the controller last saw all this (RFC 3339).
    pub observed_at: String,
}

/// The little metadata these objects have: nothing of them is stored.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Metadata {
    /// Unique in the namespace.
    pub name: String,
    /// The namespace of the pods.
    pub namespace: String,
    /// Creation of the pod that has waited longest, else of the oldest pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub creation_timestamp: Option<String>,
}

/// Metadata of a list.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ListMetadata {
    /// Grows with every change the controller publishes; not a point to watch from.
    #[serde(default)]
    pub resource_version: String,
    /// Token for the next page; absent on the last.
    #[serde(default, rename = "continue", skip_serializing_if = "Option::is_none")]
    pub continue_: Option<String>,
}

/// What is known of a group.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Work {
    /// The object at the top of the owner chain.
    pub root: Root,
    /// Different owner chains of its pods, top first, as `Kind/name`. They hold the root and
    /// what starts such roots above it; without a common top they were joined by annotation.
    #[serde(default)]
    pub chains: Vec<Vec<String>>,
    /// The queue that pays; absent while none is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// `Waiting`, `PartlyReleased` (of a gang `Growing`), `WaitingForOtherGate`, `Released`,
    /// `Running` or `Ended`.
    pub state: String,
    /// How many pods start together; 0 when each is on its own.
    #[serde(default)]
    pub min_count: u32,
    /// Priority of its first waiting pod.
    #[serde(default)]
    pub priority: i32,
    /// What its first waiting pod, or its gang, asks.
    #[serde(default)]
    pub asks: Quantities,
    /// What its queue is charged for it now.
    #[serde(default)]
    pub charged: Quantities,
    /// Its pods by where they stand.
    #[serde(default)]
    pub counts: Counts,
    /// Why its next pods wait; absent when none does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<Wait>,
    /// Why pods that were let go have no node; absent when all have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<Held>,
    /// Why pods that were to be evicted were not; absent when none was spared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spared: Option<Held>,
    /// What somebody wrote that means nothing and is ignored.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// The object at the top of an owner chain.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Root {
    /// Its API group and version.
    pub api_version: String,
    /// Its kind.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
}

/// Pods by where they stand.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Counts {
    /// Tidegate's gate is there.
    pub waiting: u64,
    /// Let go, and no node yet.
    pub released: u64,
    /// On a node.
    pub running: u64,
    /// Succeeded or failed, object still there.
    pub ended: u64,
}

impl Counts {
    /// All pods whose objects exist.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.waiting + self.released + self.running + self.ended
    }
}

/// Why a group waits.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Wait {
    /// One word from a closed list.
    pub reason: String,
    /// A sentence with the numbers.
    pub message: String,
    /// What would end it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
    /// Somebody must act before it can end.
    #[serde(default)]
    pub needs_action: bool,
    /// Groups of the same queue that go first.
    #[serde(default)]
    pub groups_ahead: u64,
    /// Pods of those groups.
    #[serde(default)]
    pub pods_ahead: u64,
}

/// Why pods that were let go have no node, or some that were to be evicted were not: what is
/// known of the first of them.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// `OtherGate`, `Unschedulable`, or `Scheduling` while no scheduler said anything; of
    /// evictions `EvictionRefused`.
    pub reason: String,
    /// The pod, and the gates of others, the message of its condition `PodScheduled`, or why
    /// its eviction was refused.
    pub message: String,
}

/// One queue between a group and the top of the tree.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct QueueStep {
    /// Its name.
    pub name: String,
    /// Whether the `Queue` object exists.
    pub exists: bool,
    /// How much it counts beside its siblings.
    #[serde(default)]
    pub weight: u32,
    /// What is its own.
    #[serde(default)]
    pub guaranteed: Quantities,
    /// What it may use; an unlisted resource is not limited here.
    #[serde(default)]
    pub limit: Quantities,
    /// What it is charged, with those below.
    #[serde(default)]
    pub usage: Quantities,
    /// Dominant share of the capacity in percent, such as `12.5%`.
    #[serde(default)]
    pub share: String,
    /// Why nothing of it may start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<Problem>,
}

/// What is wrong with a queue.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
pub struct Problem {
    /// One word from a closed list.
    pub reason: String,
    /// A sentence.
    pub message: String,
}

/// One pod of a group.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Pod {
    /// Its name.
    pub name: String,
    /// `Waiting`, `Released`, `HeldByOtherGate`, `Running`, `Terminating` or `Ended`.
    pub state: String,
    /// Its creation time (RFC 3339).
    pub created: String,
    /// What keeps it from a node, if it was let go and somebody said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hindrance: Option<String>,
}

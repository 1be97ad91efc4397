//! What is kept of the objects of a cluster, and what may be observed there.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::api::released::Released;
use crate::api::v1alpha1::LabelSelector;
use crate::engine::event::{MaxRunning, Preemption};
use crate::engine::{Growth, Millis, Order, Placement, PodId};
use crate::grouping::{Lookup, Metadata, ObjectKey};

/// The lists that are watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Watch {
    /// All namespaces.
    Namespaces,
    /// All nodes.
    Nodes,
    /// All queues.
    Queues,
    /// Pods with our label, in any state.
    ManagedPods,
    /// Pods without our label that are on a node and have not ended.
    OtherPods,
}

impl Watch {
    /// Every list.
    pub const ALL: [Self; 5] =
        [Self::Namespaces, Self::Nodes, Self::Queues, Self::ManagedPods, Self::OtherPods];

    /// For logs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Namespaces => "namespaces",
            Self::Nodes => "nodes",
            Self::Queues => "queues",
            Self::ManagedPods => "managed pods",
            Self::OtherPods => "other pods",
        }
    }
}

/// One thing that was seen.
#[derive(Clone, Debug)]
pub enum Observation {
    /// A list begins again: what it does not mention until it is done is gone.
    ListStarted(Watch),
    /// A list is complete.
    ListDone(Watch),
    /// A namespace is there.
    Namespace(NamespaceFacts),
    /// A namespace of that name is gone.
    NamespaceGone(Arc<str>),
    /// A node is there.
    Node(NodeFacts),
    /// A node of that name is gone.
    NodeGone(Arc<str>),
    /// A queue is there.
    Queue(QueueFacts),
    /// A queue of that name is gone.
    QueueGone(Arc<str>),
    /// A pod is in the list of [`Watch::ManagedPods`].
    ManagedPod(SeenPod),
    /// A pod is no longer in that list.
    ManagedPodGone(PodId),
    /// A pod is in the list of [`Watch::OtherPods`].
    OtherPod(SeenPod),
    /// A pod is no longer in that list.
    OtherPodGone(PodId),
    /// What became of a look-up; [`Lookup::Pending`] says that it failed and may be repeated.
    Owner(ObjectKey, Lookup),
}

/// A namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamespaceFacts {
    /// Its name.
    pub name: Arc<str>,
    /// Its labels, for selectors of queues.
    pub labels: BTreeMap<String, String>,
}

/// A node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeFacts {
    /// Its name.
    pub name: Arc<str>,
    /// Allocatable amounts in the engine's units.
    pub allocatable: BTreeMap<String, i128>,
    /// Condition Ready is True.
    pub ready: bool,
    /// Not cordoned.
    pub schedulable: bool,
    /// Its labels that tell which nodes are near it.
    pub domains: BTreeMap<Arc<str>, Arc<str>>,
}

/// A queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueFacts {
    /// Its name.
    pub name: Arc<str>,
    /// Its uid.
    pub uid: Arc<str>,
    /// Generation of its spec.
    pub generation: i64,
    /// The queue above.
    pub parent: Option<Arc<str>>,
    /// At least 1.
    pub weight: u32,
    /// Its own, in the engine's units.
    pub guaranteed: BTreeMap<String, i128>,
    /// What of that it lends, in the engine's units.
    pub lendable: BTreeMap<String, i128>,
    /// Its most, in the engine's units.
    pub limit: BTreeMap<String, i128>,
    /// Strict or best effort.
    pub order: Order,
    /// Whether gangs that run grow before others begin.
    pub growth: Growth,
    /// How long it takes until what the queues directly below used counts half as much.
    pub half_life: Option<Millis>,
    /// Nothing may start.
    pub hold: bool,
    /// What runs is evicted.
    pub drain: bool,
    /// Pods that may wait.
    pub max_pending: Option<u64>,
    /// How much may run.
    pub max_running: MaxRunning,
    /// What may be evicted.
    pub preemption: Preemption,
    /// Whether nodes are looked for.
    pub placement: Placement,
    /// Why something written has no meaning to this version.
    pub malformed: Option<Arc<str>>,
    /// Whose work may use it.
    pub access: Access,
    /// What it used before, as far as somebody wrote that down.
    pub past: Option<PastFacts>,
}

/// What a queue used on average, in millionths of the engine's units.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PastFacts {
    /// Until when.
    pub at: Millis,
    /// Here and below.
    pub whole: BTreeMap<String, i128>,
    /// By its own groups.
    pub own: BTreeMap<String, i128>,
}

/// Whose work may use a queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Namespaces; `None`: any.
    pub namespaces: Option<LabelSelector>,
    /// Names of priority classes; empty: any.
    pub priority_classes: Arc<[String]>,
}

/// A pod as it was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenPod {
    /// Its uid as the engine knows it.
    pub id: PodId,
    /// Where it is.
    pub key: ObjectKey,
    /// Effective request in the engine's units.
    pub cost: BTreeMap<String, i128>,
    /// The rest.
    pub facts: PodFacts,
}

/// What is kept of a pod as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is one thing that is so or not")]
pub struct PodFacts {
    /// Its marks and owner.
    pub metadata: Arc<Metadata>,
    /// `metadata.creationTimestamp`.
    pub created: Millis,
    /// `spec.priority`.
    pub priority: i32,
    /// `spec.preemptionPolicy` is `Never`.
    pub never_preempts: bool,
    /// It prefers some nodes itself.
    pub prefers_nodes: bool,
    /// `spec.priorityClassName`.
    pub priority_class: Option<Arc<str>>,
    /// Where it stands.
    pub stage: Stage,
    /// Our gate is not there.
    pub open: bool,
    /// A mirror pod or a daemon's: no queue ever pays for it.
    pub exempt: bool,
    /// What was written with its release, if its gate is open.
    pub released: Option<Box<Released>>,
}

/// Where a pod stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Our gate is there.
    Gated,
    /// Our gate is not there, and no node.
    Released {
        /// Somebody else's gate is.
        held: bool,
        /// What keeps it from a node, where somebody says so.
        hindrance: Option<Arc<str>>,
    },
    /// On a node.
    Bound {
        /// The node's name.
        node: Arc<str>,
        /// Deletion was asked for, within the time that whoever is evicted gets.
        terminating: bool,
        /// It asks for longer to end than whoever is evicted gets.
        ends_slowly: bool,
    },
    /// It runs no more, or never will.
    Ended,
}

impl Stage {
    /// Whether it asks, on a node, for longer to end than whoever is evicted gets.
    #[must_use]
    pub fn ends_slowly(&self) -> bool {
        matches!(self, Self::Bound { ends_slowly: true, .. })
    }

    /// What keeps the pod from a node, where our gate is open and somebody says so.
    #[must_use]
    pub fn hindrance(&self) -> Option<&Arc<str>> {
        match self {
            Self::Released { hindrance, .. } => hindrance.as_ref(),
            _ => None,
        }
    }
}

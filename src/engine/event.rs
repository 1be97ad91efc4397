//! All that can happen, and the names that travel beside it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::model::{
    Assignment, ClusterId, DomainId, Gang, GroupId, Growth, Millis, NodeId, Order, Placement,
    PodId, PodState, QueueId, Reclaim, ResourceId, SingletonId, TopologyId, Uid, Vector,
    WithinQueue,
};

/// One thing for the control loop's inbox.
#[derive(Clone, Debug)]
pub enum Input {
    /// A change of the world, for the engine.
    Event(Event),
    /// Who an id stands for, for people. The engine never sees it.
    Name(Name),
    /// Why a pod's release was refused, for people. The engine never sees it.
    Refusal(PodId, Arc<str>),
    /// Why a pod was not evicted, for people. The engine never sees it.
    Spared(PodId, Spared),
    /// This process leads and all of a cluster was listed again since: from now on it is
    /// decided on. Comes once.
    Lead(ClusterId),
}

/// Everything the engine can be told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// A queue was made or changed.
    QueueChanged(QueueId, QueueConfig),
    /// A queue is gone; what it ran stays charged to its name.
    QueueRemoved(QueueId),
    /// A node was made or changed.
    NodeChanged(NodeId, NodeConfig),
    /// A node object is gone.
    NodeRemoved(NodeId),
    /// Sum of requests on a node that no queue pays for.
    ForeignChanged(NodeId, Vector),
    /// A group was found or changed.
    GroupChanged(GroupId, GroupConfig),
    /// A pod was found or changed. Its group has been announced before.
    PodChanged(PodId, PodConfig),
    /// A pod object is gone.
    PodRemoved(PodId),
    /// What became of a decision.
    Outcome(PodId, Outcome),
    /// All first lists of a cluster are in: it may be decided on.
    Synced(ClusterId),
    /// The writer stopped opening gates in a cluster: nothing more is decided there.
    Paused(ClusterId, Pause),
    /// The writer takes releases of a cluster again.
    Resumed(ClusterId),
    /// What a queue used before anybody looked.
    UsedBefore(QueueId, Used),
}

/// What a queue used on average until a time, later use counting more: see
/// [`QueueConfig::half_life`] of the queue above, and its own for its own line. In millionths:
/// little use of long ago adds up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Used {
    /// Until when.
    pub at: Millis,
    /// By it and all below, if the queue above counts that.
    pub whole: Vector,
    /// By its own groups, if it counts that itself.
    pub own: Vector,
}

/// Since when and why no gate is opened in a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Pause {
    /// When it began.
    pub since: Millis,
    /// What the apiserver suffers from.
    pub cause: Trouble,
}

/// What an apiserver, or the store behind it, suffers from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Trouble {
    /// It asks for less: 429, 503, 504.
    Overloaded,
    /// It does not answer: cut, refused or out of time.
    NoAnswer,
    /// It answers with errors of its own: 401, 5xx.
    Failing,
    /// It answers, but each answer takes seconds.
    Slow,
    /// Its store is full and takes no write.
    StoreFull,
}

/// A queue's configuration; unlisted resources are not limited.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueConfig {
    /// The queue above, by name; absent: the root.
    pub parent: Option<QueueId>,
    /// At least 1.
    pub weight: u32,
    /// What is this queue's own.
    pub guaranteed: Vector,
    /// What of its own others may use while it does not; all of a resource that is not listed.
    pub lendable: Vector,
    /// What it and those below may use.
    pub limit: Vector,
    /// Strict or best effort.
    pub order: Order,
    /// Whether gangs of its own that run grow before others begin.
    pub growth: Growth,
    /// Above what is guaranteed, turns of those directly below go by what they used before
    /// too, half as much after each half-life; absent: by what they use alone.
    pub half_life: Option<Millis>,
    /// Nothing may start.
    pub hold: bool,
    /// What runs is evicted, here and below.
    pub drain: bool,
    /// Something written has no meaning: the queue stays closed.
    pub malformed: bool,
    /// Pods that may wait here and below before the backlog is full, at least 1.
    pub max_pending: Option<u64>,
    /// How much may run here and below at a time.
    pub max_running: MaxRunning,
    /// What may be evicted for it, and of it.
    pub preemption: Preemption,
    /// Whether a node is looked for.
    pub placement: Placement,
}

/// What may be evicted for a queue's waiting work, and when what it runs may be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Preemption {
    /// Of other queues.
    pub reclaim: Reclaim,
    /// Of its own.
    pub within_queue: WithinQueue,
    /// What runs here and below is let run for so long; absent: as the queue above says, and
    /// ten minutes where none says anything.
    pub min_runtime: Option<Millis>,
}

/// How much may run at a time; absent: any amount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MaxRunning {
    /// Groups with a pod that was let go.
    pub groups: Option<u64>,
    /// Pods that were let go.
    pub pods: Option<u64>,
}

/// A node as far as shares and fit go.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeConfig {
    /// Its cluster.
    pub cluster: ClusterId,
    /// Allocatable amounts.
    pub allocatable: Vector,
    /// Condition Ready is True.
    pub ready: bool,
    /// Not cordoned.
    pub schedulable: bool,
    /// The domains that it is in, one of a topology, sorted.
    pub domains: Vec<(TopologyId, DomainId)>,
}

/// A group of pods that belong together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupConfig {
    /// Its cluster; a group never spans two.
    pub cluster: ClusterId,
    /// Uid of its root, the last tie-break of order.
    pub root: Uid,
    /// Which queue pays.
    pub queue: Assignment,
    /// What must start together.
    pub gang: Gang,
    /// While another group of this key runs in the same queue, it waits.
    pub singleton: Option<SingletonId>,
    /// It may not be preempted later: it starts only within what is guaranteed.
    pub non_preemptible: bool,
    /// All of it runs in one domain of this, where its queue looks for nodes.
    pub topology: Option<TopologyId>,
}

/// A pod of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodConfig {
    /// Its group.
    pub group: GroupId,
    /// Effective request, `pods: 1` included.
    pub cost: Vector,
    /// `spec.priority`.
    pub priority: i32,
    /// `metadata.creationTimestamp`.
    pub created: Millis,
    /// When it was let go, as its record says.
    pub started: Option<Millis>,
    /// Nothing is evicted for it: `spec.preemptionPolicy: Never`.
    pub never_preempts: bool,
    /// Where it stands.
    pub state: PodState,
}

impl NodeConfig {
    /// The domain of a topology that it is in.
    pub(super) fn domain(&self, topology: TopologyId) -> Option<DomainId> {
        self.domains.iter().find(|(of, _)| *of == topology).map(|&(_, domain)| domain)
    }
}

impl PodConfig {
    /// The node it is on.
    pub(super) fn node(&self) -> Option<NodeId> {
        match self.state {
            PodState::Bound { node, .. } => Some(node),
            _ => None,
        }
    }
}

/// What became of a release or of an eviction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// The gate is open.
    Released,
    /// The pod is gone, or another one has its name.
    Gone,
    /// Somebody's admission or the apiserver refused for now: try again after this time.
    Refused {
        /// Not before this time.
        retry_at: Millis,
    },
    /// The pod could not be evicted: it is let run until then.
    NotEvicted {
        /// Not before this time.
        retry_at: Millis,
    },
}

/// Why a pod was not evicted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spared {
    /// A `PodDisruptionBudget` did not let it go.
    pub by_budget: bool,
    /// A sentence.
    pub why: Arc<str>,
    /// It may be decided again then.
    pub until: Millis,
}

/// Who an id stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Name {
    /// A resource's name.
    Resource(ResourceId, Arc<str>),
    /// A queue's name and, while it exists, its identity.
    Queue(QueueId, QueueName),
    /// A node's name.
    Node(NodeId, Arc<str>),
    /// A group's identity.
    Group(GroupId, Arc<GroupName>),
    /// A group is forgotten.
    GroupGone(GroupId),
    /// A pod's address and maker. Both are forgotten with [`Event::PodRemoved`].
    Pod(PodId, Arc<Address>, Maker),
    /// The pod says itself which nodes it would rather have.
    PrefersNodes(PodId),
    /// The pod asks for longer to end than whoever is evicted gets.
    EndsSlowly(PodId),
    /// A domain's label key and value; none when it is forgotten.
    Domain(DomainId, Option<(Arc<str>, Arc<str>)>),
    /// What keeps a pod that was let go from a node, as far as anybody said so.
    Hindrance(PodId, Option<Arc<str>>),
}

/// By what admission can tell, of a pod that is being made, where it will wait.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Maker {
    /// The owner that its references lead to, by uid.
    Owner(Arc<str>),
    /// Nobody owns it, and it names its queue by a label of its own.
    Label,
    /// Nobody owns it, and its namespace names the queue.
    Namespace,
}

/// A queue's name and, while its object exists, uid and generation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueName {
    /// `metadata.name`.
    pub name: Arc<str>,
    /// `metadata.uid` and `metadata.generation` of the object.
    pub object: Option<(Arc<str>, i64)>,
}

/// How people know a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupName {
    /// Where its pods are; a root may be cluster-scoped.
    pub namespace: Arc<str>,
    /// The name by which trees joined, where they did.
    pub joined: Option<Arc<str>>,
    /// The object at the top: what the user made.
    pub root: ObjectRef,
    /// Mostly the same for many groups.
    pub origin: Arc<Origin>,
}

/// Where a group comes from, in words.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Origin {
    /// Different owner chains of its pods, top first, as `Kind/name`. They hold the root,
    /// what starts such roots above it, and what is between it and the pods. None of a pod
    /// that is its own root.
    pub chains: Vec<Vec<Arc<str>>>,
    /// Where the queue's name was found, what sized the group, what could not be read: one sentence each.
    pub evidence: Vec<Arc<str>>,
    /// What somebody wrote that means nothing: one sentence each.
    pub warnings: Vec<Arc<str>>,
    /// The key of which one group runs at a time in its queue.
    pub singleton: Option<Arc<str>>,
    /// The label of nodes that the nodes of its pods agree in.
    pub topology: Option<Arc<str>>,
}

/// An object as an Event or a person refers to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectRef {
    /// Where it is.
    pub address: Address,
    /// Its `apiVersion`.
    pub api_version: Arc<str>,
    /// Its `kind`.
    pub kind: Arc<str>,
}

/// Where an object is: enough to change it and nothing else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// Its cluster.
    pub cluster: ClusterId,
    /// Its namespace; empty when cluster-scoped.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
    /// Its uid, a precondition of every write.
    pub uid: Arc<str>,
}

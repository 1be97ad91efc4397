//! What the control loop asks the one writer to do.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::event::{Address, ObjectRef};
use super::model::{Millis, PodId};

/// One write. Safe to repeat; carries the uid it is meant for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Open a pod's gate.
    Release(Release),
    /// Take a pod back.
    Evict(Evict),
    /// Tell people, at most three times a group.
    Notice(Notice),
    /// Publish a queue's numbers.
    QueueStatus(Box<QueueStatus>),
}

/// Open one pod's gate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    /// The pod as the engine knows it, for the outcome.
    pub pod: PodId,
    /// Where it is.
    pub address: Address,
    /// Kept on the pod: the queue that pays.
    pub queue: Arc<str>,
    /// Kept on the pod: the group, as `Kind/name` of its root.
    pub group: Arc<str>,
    /// Kept on the pod: uid of the group's root.
    pub root: Arc<str>,
    /// Kept on the pod: how many pods were let go together with it.
    pub size: u32,
    /// Kept on the pod: what its group began with.
    pub terms: Box<Terms>,
    /// Kept on the pod: when it was decided.
    pub time: Millis,
    /// Kept on the pod: number of the decision.
    pub decision: u64,
    /// What was found for it, where its queue looks for that.
    pub place: Option<Box<Place>>,
}

/// What a group began with; it keeps that until nothing is left of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// The name by which its pods joined, where they did.
    pub joined: Option<Arc<str>>,
    /// How many of it must start together; none where each pod starts on its own.
    pub min_count: Option<u32>,
    /// It may be evicted.
    pub preemptible: bool,
    /// The key of which one group runs at a time in its queue.
    pub singleton: Option<Arc<str>>,
    /// The label of nodes that the nodes of its pods agree in.
    pub topology: Option<Arc<str>>,
}

/// Where a pod is to run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The node that it would best run on.
    pub node: Option<Arc<str>>,
    /// The label, key and value, that its node has to have.
    pub domain: Option<(Arc<str>, Arc<str>)>,
}

/// Evict one pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evict {
    /// The pod as the engine knows it, for the outcome.
    pub pod: PodId,
    /// Where it is.
    pub address: Address,
    /// It asks for longer to end than whoever is evicted gets.
    pub ends_slowly: bool,
}

/// One Kubernetes Event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Whom it concerns.
    pub about: ObjectRef,
    /// Something a person should look at.
    pub warning: bool,
    /// One word.
    pub reason: &'static str,
    /// A sentence.
    pub message: String,
}

/// Numbers of one queue, amounts still in the engine's units.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueStatus {
    /// The queue's name.
    pub name: Arc<str>,
    /// The object it is meant for.
    pub uid: Arc<str>,
    /// Generation of the spec it speaks of.
    pub generation: i64,
    /// Groups and pods that wait, here and below.
    pub pending: (u64, u64),
    /// Groups and pods let go and not ended, here and below.
    pub running: (u64, u64),
    /// Charged amounts by resource name, here and below.
    pub usage: BTreeMap<Arc<str>, i128>,
    /// Amounts that it and those below are entitled to, by resource name.
    pub entitlement: BTreeMap<Arc<str>, i128>,
    /// What it used before, where that counts.
    pub past: Option<PastUsage>,
    /// Dominant share in thousandths of the fleet.
    pub share: u64,
    /// Earliest creation of a waiting pod.
    pub oldest: Option<Millis>,
    /// `Err` says in a sentence why nothing may start.
    pub ready: Result<(), (&'static str, String)>,
    /// `Err` says in a word and a sentence why no gate is opened for what waits.
    pub releasing: Result<(), (&'static str, &'static str)>,
    /// A sentence when more is charged than the limit allows.
    pub over_limit: Option<String>,
    /// A sentence when more is guaranteed than there is.
    pub beyond_capacity: Option<String>,
    /// Pods that may wait, here and below.
    pub max_pending: Option<u64>,
    /// What admission is to know while so many wait.
    pub full: Option<Full>,
    /// Admission should know it before the queue's turn comes.
    pub urgent: bool,
}

/// What a queue used on average until a time, in millionths by resource name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PastUsage {
    /// Until when.
    pub at: Millis,
    /// Here and below.
    pub whole: BTreeMap<Arc<str>, i128>,
    /// By its own groups.
    pub own: BTreeMap<Arc<str>, i128>,
}

/// Whose new pods are to be refused while a queue's backlog is full.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Full {
    /// Pods that wait, here and below.
    pub pods: u64,
    /// When it was last found to be so.
    pub renewed: Millis,
    /// Uids of those who own most of the waiting pods, in their order.
    pub owners: Vec<Arc<str>>,
    /// Namespaces of waiting pods that nobody owns and no label of theirs sends here.
    pub namespaces: Vec<Arc<str>>,
}

//! What the control loop publishes: one immutable snapshot, swapped whole.
//!
//! Readers (webhook, metrics, visibility API, command line) see nothing else and
//! can never slow the loop. Names meet ids here and amounts become quantities.

mod build;
mod spared;
#[cfg(test)]
mod tests;
mod text;

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::engine::Millis;
use crate::engine::event::GroupName;

pub use text::Names;

/// Readers' handle on the newest view.
pub type Published = Arc<ArcSwap<View>>;

/// A handle with an empty view, for the loop to write to.
#[must_use]
pub fn published() -> Published {
    Arc::new(ArcSwap::from_pointee(View::default()))
}

/// Amounts as Kubernetes quantities, by resource name.
pub type Amounts = BTreeMap<Arc<str>, String>;

/// All that is known at one moment.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// Grows with every publication.
    pub revision: u64,
    /// When it was made.
    pub time: Millis,
    /// All first lists are in: what is missing here does not exist.
    pub synced: bool,
    /// This process decides; otherwise it only looks on.
    pub leads: bool,
    /// Every queue that exists or is named by work, by name.
    pub queues: BTreeMap<Arc<str>, QueueRow>,
    /// Every group with a pod that has not ended, by namespace and name.
    pub groups: BTreeMap<(Arc<str>, Arc<str>), Arc<GroupRow>>,
    /// What may be shared out: allocatable of usable nodes less foreign requests.
    pub capacity: Amounts,
    /// Things that happened since the start.
    pub totals: Totals,
}

/// What the loop counts since the start of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// What the core is told is written down.
    pub recording: bool,
    /// Pods decided to start.
    pub decided: u64,
    /// Releases the apiserver accepted.
    pub released: u64,
    /// Releases refused and to be tried again.
    pub refused: u64,
    /// Pods that were gone when their release came.
    pub gone: u64,
    /// Gates seen open, while this process led, that it had not opened: by an earlier
    /// leader's last writes, or by hand.
    pub opened_by_others: u64,
    /// Inputs taken from the inbox.
    pub inputs: u64,
    /// Rounds of the loop.
    pub rounds: u64,
}

/// One queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueRow {
    /// Its name.
    pub name: Arc<str>,
    /// The `Queue` object exists.
    pub exists: bool,
    /// The queue above.
    pub parent: Option<Arc<str>>,
    /// Its weight.
    pub weight: u32,
    /// What is its own.
    pub guaranteed: Amounts,
    /// What it may use.
    pub limit: Amounts,
    /// What it is charged, with those below.
    pub usage: Amounts,
    /// Dominant share in thousandths of the fleet.
    pub share_per_mille: u64,
    /// Groups and pods that wait, with those below.
    pub pending: (u64, u64),
    /// Pods that may wait, with those below.
    pub max_pending: Option<u64>,
    /// So many wait that new ones are refused.
    pub full: bool,
    /// Groups and pods let go and not ended, with those below.
    pub running: (u64, u64),
    /// Earliest creation of a waiting pod.
    pub oldest: Option<Millis>,
    /// Why nothing of it may start: a code and a sentence.
    pub problem: Option<(&'static str, String)>,
    /// Why no gate is opened for work that waits here or below: a code and a sentence.
    pub paused: Option<(&'static str, &'static str)>,
}

/// One group of pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupRow {
    /// Unique in its namespace: kind and name of the root and a few digits of its uid.
    pub name: Arc<str>,
    /// Its root, owner chains, evidence and warnings.
    pub who: Arc<GroupName>,
    /// The queue that pays, if one is named.
    pub queue: Option<Arc<str>>,
    /// Where it stands.
    pub state: GroupState,
    /// Why its next pods wait.
    pub wait: Option<Wait>,
    /// Why pods that were let go have no node.
    pub held: Option<Box<Held>>,
    /// Why pods that were to be evicted were not.
    pub spared: Option<Box<Held>>,
    /// How many pods must start together; 0 when each is on its own.
    pub min_count: u32,
    /// Priority of its first waiting pod.
    pub priority: i32,
    /// What its first waiting pod, or its gang, asks.
    pub asks: Arc<Amounts>,
    /// What it is charged now.
    pub charged: Arc<Amounts>,
    /// Earliest creation of a waiting pod, else of any.
    pub since: Millis,
    /// Earliest creation of any pod.
    pub begun: Millis,
    /// Its pods in order of release; long groups are cut at [`PODS_SHOWN`].
    pub pods: Vec<PodRow>,
    /// Pods waiting, released without a node, on a node.
    pub counts: Counts,
}

/// Pods of a group that a view lists by name.
pub const PODS_SHOWN: usize = 200;

/// Pods of a group by where they stand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Our gate is there.
    pub waiting: u64,
    /// Decided or open, and no node yet.
    pub released: u64,
    /// On a node.
    pub running: u64,
    /// Succeeded or failed, object still there.
    pub ended: u64,
}

/// Where a group stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum GroupState {
    /// No pod of it was let go.
    Waiting,
    /// Some pods were let go, some wait; each starts on its own.
    PartlyReleased,
    /// Some pods of a gang were let go, some wait.
    Growing,
    /// All were let go; another owner's gate holds one.
    WaitingForOtherGate,
    /// All were let go, not all have a node.
    Released,
    /// All are on nodes.
    Running,
    /// All have ended.
    Ended,
}

impl GroupState {
    /// As printed.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "Waiting",
            Self::PartlyReleased => "PartlyReleased",
            Self::Growing => "Growing",
            Self::WaitingForOtherGate => "WaitingForOtherGate",
            Self::Released => "Released",
            Self::Running => "Running",
            Self::Ended => "Ended",
        }
    }
}

/// Why a group waits, and behind whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// The same for all that wait for the same.
    pub why: Arc<Why>,
    /// Groups of the same queue that go first.
    pub groups_ahead: u64,
    /// Pods of those groups.
    pub pods_ahead: u64,
}

/// Why a group waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Why {
    /// One word from the closed list.
    pub code: &'static str,
    /// A sentence with the numbers.
    pub message: String,
    /// What would end it.
    pub remedy: Option<String>,
    /// Somebody must act before it can end.
    pub needs_action: bool,
    /// Looked at in full: not on its way to being decided or resolved.
    pub settled: bool,
}

/// Why pods that were let go have no node, or some that were to be evicted were not: what is
/// known of the first of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// `OtherGate`, `Unschedulable`, or `Scheduling` while nobody said anything; of evictions
    /// `EvictionRefused`.
    pub code: &'static str,
    /// A sentence.
    pub message: String,
}

/// One pod of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodRow {
    /// Its name.
    pub name: Arc<str>,
    /// `Waiting`, `Released`, `HeldByOtherGate`, `Running`, `Terminating`, `Ended`.
    pub state: &'static str,
    /// Creation time.
    pub created: Millis,
    /// What keeps it from a node, if it was let go and somebody said so.
    pub hindrance: Option<Arc<str>>,
}

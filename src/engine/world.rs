//! The state, and how events change it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::backlog::{Backlogs, Waiting};
use super::books::{Books, Charge};
use super::event::{Event, GroupConfig, NodeConfig, Outcome, Pause, PodConfig, QueueConfig};
use super::model::{
    Assignment, ClusterId, Gang, GroupId, Millis, NodeId, PodId, PodState, QueueId, Uid, Vector,
};
use super::reason::Reason;
use super::tree::Tree;

/// How long arrivals of a group must be quiet before "all that have arrived" is known.
pub(super) const SETTLE: Millis = 2_000;

/// Place in a queue's line: gangs cut in two first, then priority, age of the oldest
/// waiting pod, uid of the root.
pub(super) type Place = (Reverse<bool>, Reverse<i32>, Millis, Uid, GroupId);

/// Place of a waiting pod in its group: priority, age, uid.
pub(super) type Turn = (Reverse<i32>, Millis, PodId);

/// The decision core.
#[derive(Debug, Default)]
pub struct Engine {
    pub(super) now: Millis,
    pub(super) queues: BTreeMap<QueueId, QueueConfig>,
    pub(super) tree: Tree,
    pub(super) nodes: BTreeMap<NodeId, Node>,
    pub(super) groups: BTreeMap<GroupId, Group>,
    pub(super) pods: BTreeMap<PodId, Pod>,
    pub(super) lines: BTreeMap<QueueId, BTreeSet<Place>>,
    pub(super) books: Books,
    pub(super) backlogs: Backlogs,
    pub(super) synced: BTreeSet<ClusterId>,
    pub(super) paused: BTreeMap<ClusterId, Pause>,
    pub(super) decided: u64,
    pub(super) dirty: bool,
    pub(super) wake: Option<Millis>,
    /// Strict queues that a group closed in the last round.
    pub(super) heads: BTreeMap<QueueId, GroupId>,
    /// Whether a node is large enough, by cost; forgotten when a node changes.
    pub(super) widest: BTreeMap<Vector, Option<Reason>>,
}

#[derive(Debug, Default)]
pub(super) struct Node {
    pub(super) config: NodeConfig,
    foreign: Vector,
    pods: BTreeSet<PodId>,
    pub(super) known: bool,
    /// Its object was there and is not any more.
    gone: bool,
}

#[derive(Debug)]
pub(super) struct Group {
    pub(super) config: GroupConfig,
    pub(super) waiting: BTreeSet<Turn>,
    pub(super) ages: BTreeSet<(Millis, PodId)>,
    pub(super) pods: BTreeSet<PodId>,
    /// Pods that were let go, as far as they are still there.
    pub(super) started: BTreeSet<PodId>,
    pub(super) arrived: Millis,
    pub(super) refusal: Option<Reason>,
    pub(super) place: Option<(QueueId, Place)>,
    /// What of it counts as its queue's backlog.
    counted: Option<Waiting>,
    /// What the first of its waiting pods to come asks.
    usual: Vector,
    /// Waiting pods that ask something else.
    unusual: usize,
}

#[derive(Debug)]
pub(super) struct Pod {
    pub(super) config: PodConfig,
    pub(super) release: ReleaseState,
    pub(super) retry_at: Option<Millis>,
    pub(super) charge: Option<Charge>,
}

/// How far our own release of a pod has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReleaseState {
    /// Not decided.
    None,
    /// Decided; the write is under way.
    Sent,
    /// The apiserver said yes: whatever an older watch event says, its gate is open.
    Done,
    /// There was no such pod any more: its deletion is on its way from the watch.
    Gone,
}

impl Group {
    fn new(config: GroupConfig) -> Self {
        Self {
            config,
            waiting: BTreeSet::new(),
            ages: BTreeSet::new(),
            pods: BTreeSet::new(),
            started: BTreeSet::new(),
            arrived: 0,
            refusal: None,
            place: None,
            counted: None,
            usual: Vector::default(),
            unusual: 0,
        }
    }

    /// Every waiting pod asks the same: what is refused to one is refused to all.
    pub(super) fn is_uniform(&self) -> bool {
        self.unusual == 0
    }

    /// A gang that was decided on and of which, by a restart or a refusal, not all that
    /// start together were let go: it holds room and may be unable to work.
    pub(super) fn is_cut(&self) -> bool {
        let Gang::AtLeast(need) = self.config.gang else { return false };
        !self.started.is_empty() && usize::try_from(need).is_ok_and(|n| self.started.len() < n)
    }

    /// A gang of which fewer pods are here than start together, though so many may wait.
    pub(super) fn lacks_members(&self, most: u64) -> bool {
        let Gang::AtLeast(need) = self.config.gang else { return false };
        let here = self.waiting.len() + self.started.len();
        u64::from(need) <= most && usize::try_from(need).is_ok_and(|need| here < need)
    }

    /// Its waiting pods and the queue in which they wait, if there are any.
    fn waits_in(&self) -> Option<Waiting> {
        let Assignment::Queue(queue) = self.config.queue else { return None };
        let pods = u64::try_from(self.waiting.len()).unwrap_or(u64::MAX);
        (pods > 0).then_some((queue, pods))
    }

    fn unannounced() -> Self {
        Self::new(GroupConfig {
            cluster: ClusterId::default(),
            root: Uid::default(),
            queue: Assignment::Unresolved,
            gang: Gang::Units,
        })
    }
}

impl Node {
    fn usable(&self) -> bool {
        self.known && self.config.ready && self.config.schedulable
    }

    /// What this node adds to the capacity: never negative, however much is foreign.
    fn offer(&self) -> Vector {
        if !self.usable() {
            return Vector::default();
        }
        let foreign = |resource| self.foreign.get(resource);
        self.config
            .allocatable
            .iter()
            .map(|(r, amount)| (r, (amount - foreign(r)).max(0)))
            .collect()
    }
}

impl Pod {
    pub(super) fn waits(&self) -> bool {
        self.config.state == PodState::Gated && self.release == ReleaseState::None
    }

    /// Decided, and whether its gate is open is not known yet.
    pub(super) fn is_being_written(&self) -> bool {
        self.config.state == PodState::Gated && self.release == ReleaseState::Sent
    }

    /// Whether we let it go, or somebody else did.
    fn has_started(&self) -> bool {
        matches!(self.release, ReleaseState::Sent | ReleaseState::Done)
    }

    fn node(&self) -> Option<NodeId> {
        self.config.node()
    }
}

impl Engine {
    /// Changes the state by one event that happened at `now`.
    pub fn apply(&mut self, now: Millis, event: Event) {
        self.now = self.now.max(now);
        self.dirty = true;
        match event {
            Event::QueueChanged(id, config) => {
                self.queues.insert(id, config);
                self.rebuild_tree();
            }
            Event::QueueRemoved(id) => {
                self.queues.remove(&id);
                self.rebuild_tree();
            }
            Event::NodeChanged(id, config) => {
                self.widest.clear();
                self.change_node(id, |node| {
                    node.config = config;
                    (node.known, node.gone) = (true, false);
                });
            }
            Event::NodeRemoved(id) => self.remove_node(id),
            Event::ForeignChanged(id, usage) => self.change_node(id, |node| node.foreign = usage),
            Event::GroupChanged(id, config) => self.change_group(id, config),
            Event::PodChanged(id, config) => self.change_pod(id, config),
            Event::PodRemoved(id) => self.remove_pod(id),
            Event::Outcome(id, outcome) => self.outcome(id, &outcome),
            Event::Synced(cluster) => {
                self.synced.insert(cluster);
            }
            Event::Paused(cluster, pause) => drop(self.paused.insert(cluster, pause)),
            Event::Resumed(cluster) => drop(self.paused.remove(&cluster)),
        }
    }

    /// Moves time on; true when something may start that could not before.
    pub fn tick(&mut self, now: Millis) -> bool {
        self.now = self.now.max(now);
        self.dirty |= self.wake.is_some_and(|wake| wake <= self.now);
        self.dirty
    }

    /// Decisions so far.
    #[must_use]
    pub fn decided(&self) -> u64 {
        self.decided
    }

    /// What may be shared out.
    #[must_use]
    pub fn capacity(&self) -> &Vector {
        &self.books.capacity
    }

    fn rebuild_tree(&mut self) {
        self.tree = Tree::build(&self.queues);
        self.books.sum_up(&self.tree);
        self.backlogs.sum_up(&self.tree, &self.queues);
    }

    fn change_node(&mut self, id: NodeId, change: impl FnOnce(&mut Node)) {
        let node = self.nodes.entry(id).or_default();
        self.books.capacity.sub(&node.offer());
        self.books.nodes -= u32::from(node.known);
        self.books.usable -= u32::from(node.usable());
        change(node);
        self.books.capacity.add(&node.offer());
        self.books.nodes += u32::from(node.known);
        self.books.usable += u32::from(node.usable());
        let pods: Vec<PodId> = node.pods.iter().copied().collect();
        for pod in pods {
            self.recharge(pod);
        }
    }

    fn remove_node(&mut self, id: NodeId) {
        self.widest.clear();
        self.change_node(id, |node| {
            (node.known, node.gone) = (false, true);
            node.foreign = Vector::default();
        });
        if self.nodes.get(&id).is_some_and(|node| node.pods.is_empty()) {
            self.nodes.remove(&id);
        }
    }

    fn change_group(&mut self, id: GroupId, config: GroupConfig) {
        let group = self.groups.entry(id).or_insert_with(|| Group::new(config.clone()));
        // A group's root changes with its oldest pod; only its queue changes who pays.
        let others_pay = group.config.queue != config.queue;
        group.config = config;
        group.refusal = None;
        if others_pay {
            let pods: Vec<PodId> = group.pods.iter().copied().collect();
            for pod in pods {
                self.recharge(pod);
            }
        }
        self.line_up(id);
    }

    fn change_pod(&mut self, id: PodId, config: PodConfig) {
        let group = config.group;
        match self.pods.get(&id).map(|pod| pod.config.group) {
            Some(before) if before != group => self.leave_group(id, before),
            Some(_) => self.dequeue(id),
            None => {}
        }
        self.change_place(id, &config);
        let pod = self.pods.entry(id).or_insert_with(|| Pod {
            config: config.clone(),
            release: ReleaseState::None,
            retry_at: None,
            charge: None,
        });
        pod.config = config;
        if !matches!(pod.config.state, PodState::Gated | PodState::Dropped) {
            pod.release = ReleaseState::Done;
        }
        self.enter_group(id);
        self.recharge(id);
    }

    pub(super) fn enter_group(&mut self, id: PodId) {
        let Some(pod) = self.pods.get(&id) else { return };
        // A pod told before its group waits for it; it is never lost.
        let group = self.groups.entry(pod.config.group).or_insert_with(Group::unannounced);
        if group.pods.insert(id) {
            group.arrived = group.arrived.max(self.now);
        }
        if pod.has_started() {
            group.started.insert(id);
        }
        if pod.waits() {
            if group.waiting.is_empty() {
                group.usual.clone_from(&pod.config.cost);
            }
            let turn = (Reverse(pod.config.priority), pod.config.created, id);
            if group.waiting.insert(turn) && pod.config.cost != group.usual {
                group.unusual += 1;
            }
            group.ages.insert((pod.config.created, id));
        }
        let group = pod.config.group;
        self.line_up(group);
    }

    /// Takes a pod out of its group's waiting and started pods; what changes where it
    /// stands ends with [`Self::enter_group`].
    pub(super) fn dequeue(&mut self, id: PodId) {
        let Some(pod) = self.pods.get(&id) else { return };
        let Some(group) = self.groups.get_mut(&pod.config.group) else { return };
        group.started.remove(&id);
        let turn = (Reverse(pod.config.priority), pod.config.created, id);
        if group.waiting.remove(&turn) && pod.config.cost != group.usual {
            group.unusual -= 1;
        }
        group.ages.remove(&(pod.config.created, id));
        let group = pod.config.group;
        self.line_up(group);
    }

    fn leave_group(&mut self, id: PodId, group: GroupId) {
        self.dequeue(id);
        if let Some(left) = self.groups.get_mut(&group) {
            left.pods.remove(&id);
            if left.pods.is_empty() {
                self.groups.remove(&group);
            }
        }
    }

    fn change_place(&mut self, id: PodId, config: &PodConfig) {
        let (before, after) = (self.pods.get(&id).and_then(Pod::node), config.node());
        if before != after {
            self.leave_node(id);
        }
        if let Some(node) = after {
            self.nodes.entry(node).or_default().pods.insert(id);
        }
    }

    fn leave_node(&mut self, id: PodId) {
        let Some(node) = self.pods.get(&id).and_then(Pod::node) else { return };
        let Some(on) = self.nodes.get_mut(&node) else { return };
        on.pods.remove(&id);
        if !on.known && on.pods.is_empty() {
            self.nodes.remove(&node);
        }
    }

    fn remove_pod(&mut self, id: PodId) {
        let Some(group) = self.pods.get(&id).map(|pod| pod.config.group) else { return };
        self.leave_node(id);
        self.settle_charge(id, None);
        self.leave_group(id, group);
        self.pods.remove(&id);
    }

    fn outcome(&mut self, id: PodId, outcome: &Outcome) {
        self.dequeue(id);
        if let Some(pod) = self.pods.get_mut(&id) {
            match outcome {
                Outcome::Released => pod.release = ReleaseState::Done,
                Outcome::Gone => pod.release = ReleaseState::Gone,
                Outcome::Refused { retry_at } if pod.release == ReleaseState::Sent => {
                    pod.release = ReleaseState::None;
                    pod.retry_at = Some(*retry_at);
                }
                Outcome::Refused { .. } => {}
            }
        }
        self.enter_group(id);
        self.recharge(id);
    }

    /// Puts a group where it belongs in its queue's line, or takes it out.
    fn line_up(&mut self, id: GroupId) {
        let Some(group) = self.groups.get_mut(&id) else { return };
        let waits = group.waits_in();
        if group.counted != waits {
            let before = std::mem::replace(&mut group.counted, waits);
            self.backlogs.moved(&self.tree, &self.queues, before, waits);
        }
        let place = match (group.config.queue, group.waiting.first(), group.ages.first()) {
            (Assignment::Queue(queue), Some(&(priority, ..)), Some(&(oldest, _))) => {
                let cut = Reverse(group.is_cut());
                Some((queue, (cut, priority, oldest, group.config.root, id)))
            }
            _ => None,
        };
        if place == group.place {
            return;
        }
        let before = std::mem::replace(&mut group.place, place);
        if let Some((queue, place)) = before
            && let Some(line) = self.lines.get_mut(&queue)
        {
            line.remove(&place);
            if line.is_empty() {
                self.lines.remove(&queue);
            }
        }
        if let Some((queue, place)) = place {
            self.lines.entry(queue).or_default().insert(place);
        }
    }

    /// Brings a pod's charge in line with where it stands.
    pub(super) fn recharge(&mut self, id: PodId) {
        let charge = self.pods.get(&id).and_then(|pod| self.due(pod));
        self.settle_charge(id, charge);
    }

    /// What a pod should be charged: from the decision until it has ended, is
    /// gone, or its node is gone; a pod that is being deleted on a node that
    /// does not answer costs nothing, since that node's capacity is not there either.
    fn due(&self, pod: &Pod) -> Option<Charge> {
        let takes_capacity = match pod.config.state {
            _ if !pod.has_started() => return None,
            PodState::Ended | PodState::Dropped => return None,
            PodState::Gated | PodState::Released { .. } => true,
            PodState::Bound { node, terminating } => {
                let node = self.nodes.get(&node).filter(|node| !node.gone)?;
                if terminating && node.known && !node.config.ready {
                    return None;
                }
                node.usable()
            }
        };
        let queue = match self.groups.get(&pod.config.group)?.config.queue {
            Assignment::Queue(queue) | Assignment::Forbidden(queue, _) => Some(queue),
            Assignment::Unresolved | Assignment::Unnamed => None,
        };
        Some(Charge { queue, takes_capacity, cost: pod.config.cost.clone() })
    }

    fn settle_charge(&mut self, id: PodId, charge: Option<Charge>) {
        let Some(pod) = self.pods.get_mut(&id) else { return };
        if pod.charge == charge {
            return;
        }
        if let Some(before) = std::mem::replace(&mut pod.charge, charge.clone()) {
            self.books.enter(&self.tree, &before, Vector::sub);
        }
        if let Some(charge) = charge {
            self.books.enter(&self.tree, &charge, Vector::add);
        }
    }
}

#[cfg(test)]
mod tests;

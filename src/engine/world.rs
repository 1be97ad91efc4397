//! The state, and how events change it.

use std::collections::{BTreeMap, BTreeSet};

use super::amounts::{Amounts, Axes};
use super::claim::Claims;
use super::directory::Directory;
use super::event::{Event, NodeConfig, Outcome, Pause, PodConfig, QueueConfig};
use super::explain::Rehearsal;
use super::fleet::Fleet;
use super::group::Group;
use super::line::{Line, halves};
use super::mask::Mask;
use super::model::{ClusterId, GroupId, Millis, NodeId, PodId, PodState, QueueId, Vector};
use super::pod::{Pod, ReleaseState};
use super::pools::Pools;
use super::reserve::Reservation;
use super::shapes::{Classes, ShapeId, Shapes};
use super::slab::{NONE, Slab};
use super::tree::{self, Tree};

/// Any later time counts as this.
const LATEST: Millis = Millis::MAX / 2;

/// The decision core.
#[derive(Debug, Default)]
pub struct Engine {
    pub(super) now: Millis,
    pub(super) axes: Axes,
    pub(super) shapes: Shapes,
    pub(super) classes: Classes,
    pub(super) queues: BTreeMap<QueueId, QueueConfig>,
    pub(super) fleet: Fleet,
    /// What is free on nodes, while any queue looks for them.
    pub(super) pools: Option<Pools>,
    pub(super) pods: Slab<Pod>,
    pub(super) pod_slots: Directory<[u64; 2]>,
    pub(super) groups: Slab<Group>,
    pub(super) group_slots: Directory<GroupId>,
    pub(super) lines: Slab<Line>,
    pub(super) line_of: BTreeMap<QueueId, u32>,
    pub(super) tree: Tree,
    /// Queues that take no more pods.
    pub(super) full: BTreeSet<QueueId>,
    pub(super) synced: BTreeSet<ClusterId>,
    pub(super) paused: BTreeMap<ClusterId, Pause>,
    /// When the refused releases of waiting pods are tried again.
    pub(super) retries: BTreeMap<PodId, Millis>,
    /// Groups to look at again when their time has come.
    pub(super) alarms: BTreeSet<(Millis, u32)>,
    /// Charged amounts that take from the capacity.
    pub(super) load: Amounts,
    /// What of the load no valid queue pays.
    pub(super) stray: Amounts,
    /// Classes that may fit what is free.
    pub(super) fitting: Mask,
    pub(super) claims: Claims,
    /// In the order in which they were made.
    pub(super) reserved: Vec<Reservation>,
    pub(super) decided: u64,
    pub(super) rehearsal: Rehearsal,
    pub(super) todo: Todo,
}

/// What has to be brought up to date before anything is decided.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is one thing to do or not")]
pub(super) struct Todo {
    /// Something may start that could not before.
    pub(super) decide: bool,
    /// A queue was changed.
    pub(super) tree: bool,
    /// A resource was named for the first time.
    pub(super) axes: bool,
    /// The capacity is another.
    pub(super) capacity: bool,
    /// More is free than before.
    pub(super) freed: bool,
    /// Slots of groups whose place may be another.
    pub(super) groups: Vec<u32>,
    /// Queues whose backlog has changed.
    pub(super) backlogs: Vec<QueueId>,
    /// Slots of lines of which the tree does not know everything.
    pub(super) lines: Vec<u32>,
}

impl Engine {
    /// Changes the state by one event that happened at `now`.
    pub fn apply(&mut self, now: Millis, event: Event) {
        self.go_on(now);
        self.todo.decide = true;
        self.claims.is_rehearsed = false;
        self.give_up_told(&event);
        match event {
            Event::QueueChanged(id, config) => {
                self.todo.axes |= self.axes.learn(tree::resources(&config));
                self.end_histories(id, Some(&config));
                self.queues.insert(id, config);
                self.todo.tree = true;
            }
            Event::QueueRemoved(id) => {
                self.end_histories(id, None);
                self.queues.remove(&id);
                self.todo.tree = true;
            }
            Event::NodeChanged(id, config) => self.change_node(id, Some(config)),
            Event::NodeRemoved(id) => self.change_node(id, None),
            Event::ForeignChanged(id, foreign) => {
                let before = self.free_without_ours(id);
                self.fleet.set_foreign(&self.axes, id, foreign);
                let after = self.free_without_ours(id);
                if let Some(pools) = &mut self.pools {
                    pools.change(id, |free| {
                        free.add_all(&after);
                        free.sub_all(&before);
                    });
                }
                self.capacity_changed();
            }
            Event::GroupChanged(id, config) => self.change_group(id, config),
            Event::PodChanged(id, config) => self.change_pod(id, &config),
            Event::PodRemoved(id) => self.remove_pod(id),
            Event::Outcome(id, outcome) => self.outcome(id, &outcome),
            Event::Synced(cluster) => {
                self.synced.insert(cluster);
                self.look_at_cluster(cluster);
            }
            Event::Paused(cluster, pause) => {
                self.paused.insert(cluster, pause);
                self.look_at_cluster(cluster);
            }
            Event::Resumed(cluster) => {
                self.paused.remove(&cluster);
                self.look_at_cluster(cluster);
            }
            Event::UsedBefore(id, used) => self.used_before(id, &used),
        }
    }

    /// Moves time on; true when something may start that could not before.
    pub fn tick(&mut self, now: Millis) -> bool {
        self.go_on(now);
        self.wake();
        self.todo.decide || self.claims_are_due()
    }

    /// Time never goes back, and ends where there is still a later time to look again at.
    fn go_on(&mut self, now: Millis) {
        let now = now.min(LATEST);
        if now > self.now {
            self.use_until_now();
            self.now = now;
            self.tree.histories.now = now;
        }
    }

    /// Has those looked at again whose time has come.
    pub(super) fn wake(&mut self) {
        while let Some(&(at, group)) = self.alarms.first()
            && at <= self.now
        {
            self.alarms.pop_first();
            self.look_at(group);
            self.todo.decide = true;
        }
    }

    /// Decisions so far.
    #[must_use]
    pub fn decided(&self) -> u64 {
        self.decided
    }

    /// What may be shared out.
    #[must_use]
    pub fn capacity(&self) -> Vector {
        self.axes.vector(&self.fleet.capacity)
    }

    fn capacity_changed(&mut self) {
        self.todo.capacity = true;
        self.todo.freed = true;
    }

    fn free_without_ours(&self, id: NodeId) -> Amounts {
        self.fleet.get(id).map(|node| node.free(&self.axes)).unwrap_or_default()
    }

    fn change_node(&mut self, id: NodeId, config: Option<NodeConfig>) {
        self.pools = None;
        match config {
            Some(config) => {
                let resources = config.allocatable.iter().map(|(resource, _)| resource);
                self.todo.axes |= self.axes.learn(resources);
                self.fleet.learn(&self.axes, id, config);
            }
            None => self.fleet.lose(&self.axes, id),
        }
        let pods: Vec<u32> =
            self.fleet.get(id).into_iter().flat_map(|node| node.pods.iter().copied()).collect();
        for pod in pods {
            self.recharge(pod);
        }
        self.fleet.tidy(id);
        self.capacity_changed();
    }

    fn look_at_cluster(&mut self, cluster: ClusterId) {
        let there =
            |(slot, group): (u32, &Group)| (group.config.cluster == cluster).then_some(slot);
        let groups: Vec<u32> = self.groups.iter().filter_map(there).collect();
        for group in groups {
            self.look_at(group);
        }
    }

    /// Has a group's place looked at before the next decision.
    pub(super) fn look_at(&mut self, slot: u32) {
        let Some(group) = self.groups.get(slot) else { return };
        if !group.is_stale {
            self.groups[slot].is_stale = true;
            self.todo.groups.push(slot);
        }
    }

    /// Tells the tree of a line before the next decision.
    pub(super) fn touch(&mut self, slot: u32) {
        if let Some(line) = self.lines.get(slot)
            && !line.is_touched
        {
            self.lines[slot].is_touched = true;
            self.todo.lines.push(slot);
        }
    }

    pub(super) fn slot_of(&self, id: PodId) -> Option<u32> {
        self.pod_slots.get(&halves(id))
    }

    fn change_pod(&mut self, id: PodId, config: &PodConfig) {
        let group = self.group_slot(config.group);
        let left = self.slot_of(id).map_or(group, |slot| self.pods[slot].group);
        let shape = self.shapes.hold(&self.axes, &config.cost);
        let slot = self.seat(id, group, shape);
        self.move_pod(slot, config.node());
        let pod = &mut self.pods[slot];
        let before = std::mem::replace(&mut pod.shape, shape);
        (pod.created, pod.priority, pod.state) = (config.created, config.priority, config.state);
        pod.started = config.started.unwrap_or(pod.started);
        pod.never_preempts = config.never_preempts;
        if !matches!(pod.state, PodState::Gated | PodState::Released { .. }) {
            pod.planned = NONE;
        }
        if !matches!(pod.state, PodState::Gated | PodState::Dropped) {
            pod.release = ReleaseState::Done;
        }
        self.shapes.release(before);
        self.enqueue(slot);
        self.recharge(slot);
        self.arrive(left);
        self.arrive(group);
    }

    /// The slot of a pod, out of its group's queue and in the right group.
    fn seat(&mut self, id: PodId, group: u32, shape: ShapeId) -> u32 {
        let Some(slot) = self.slot_of(id) else {
            let slot = self.pods.insert(Pod::new(id, group, shape));
            self.shapes.hold_again(shape);
            self.pod_slots.insert(halves(id), slot);
            self.join_group(slot, group);
            return slot;
        };
        self.dequeue(slot);
        let before = self.pods[slot].group;
        if before != group {
            self.leave_group(slot);
            self.join_group(slot, group);
        }
        slot
    }

    /// Puts a pod where its state says: among its group's waiting pods or those let go.
    pub(super) fn enqueue(&mut self, slot: u32) {
        let pod = &self.pods[slot];
        let group = &mut self.groups[pod.group];
        group.started += u32::from(pod.has_started());
        group.unseen += u32::from(pod.is_unseen());
        if pod.waits() {
            group.waiting.insert(pod.turn(slot));
            group.refused += u32::from(self.retries.contains_key(&pod.id()));
            self.ask_for(slot, Amounts::add);
        }
        let group = self.pods[slot].group;
        self.look_at(group);
    }

    /// Takes a pod out of its group's waiting and started pods; what changes where it
    /// stands ends with [`Self::enqueue`].
    pub(super) fn dequeue(&mut self, slot: u32) {
        let pod = &self.pods[slot];
        let group = &mut self.groups[pod.group];
        group.started -= u32::from(pod.has_started());
        group.unseen -= u32::from(pod.is_unseen());
        if pod.waits() {
            group.waiting.remove(&pod.turn(slot));
            group.refused -= u32::from(self.retries.contains_key(&pod.id()));
            self.ask_for(slot, Amounts::sub);
        }
        let group = self.pods[slot].group;
        self.look_at(group);
    }

    fn move_pod(&mut self, slot: u32, to: Option<NodeId>) {
        let from = match self.pods[slot].state {
            PodState::Bound { node, .. } => Some(node),
            _ => None,
        };
        if from != to {
            if let Some(node) = from {
                self.fleet.take(node, slot);
            }
            if let Some(node) = to {
                self.fleet.put(node, slot);
            }
        }
    }

    fn remove_pod(&mut self, id: PodId) {
        let Some(slot) = self.slot_of(id) else { return };
        let group = self.pods[slot].group;
        self.dequeue(slot);
        self.move_pod(slot, None);
        self.leave_group(slot);
        self.arrive(group);
        self.retries.remove(&id);
        self.forget_claims_of(id);
        self.pod_slots.remove(&halves(id));
        if let Some(pod) = self.pods.remove(slot) {
            self.shapes.release(pod.shape);
        }
    }

    fn outcome(&mut self, id: PodId, outcome: &Outcome) {
        let Some(slot) = self.slot_of(id) else { return };
        self.dequeue(slot);
        let pod = &mut self.pods[slot];
        match outcome {
            Outcome::Released => pod.release = ReleaseState::Done,
            Outcome::Gone => pod.release = ReleaseState::Gone,
            Outcome::Refused { retry_at } if pod.release == ReleaseState::Sent => {
                (pod.release, pod.planned) = (ReleaseState::None, NONE);
                self.retries.insert(id, *retry_at);
            }
            Outcome::NotEvicted { retry_at } => self.spare(slot, *retry_at),
            Outcome::Refused { .. } => {}
        }
        let group = self.pods[slot].group;
        self.enqueue(slot);
        self.recharge(slot);
        self.arrive(group);
    }
}

#[cfg(test)]
mod tests;

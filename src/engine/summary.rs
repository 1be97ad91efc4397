//! What the core knows, for those who only read.

use super::claim::Claimed;
use super::event::{GroupConfig, QueueConfig};
use super::group::Group;
use super::model::{Assignment, Gang, GroupId, Millis, PodId, PodState, QueueId, Vector};
use super::pod::{Pod, ReleaseState};
use super::reason::Reason;
use super::share;
use super::world::Engine;

/// What is known of a group, for the view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupSummary {
    /// Its id.
    pub id: GroupId,
    /// Its queue.
    pub queue: Assignment,
    /// Its gang rule.
    pub gang: Gang,
    /// Why its next pods wait; `None` when none waits.
    pub reason: Option<Reason>,
    /// What becomes free is reserved for it.
    pub reserved: bool,
    /// Waiting pods in order of release.
    pub waiting: Vec<PodId>,
    /// Pods decided or open that have no node; true when somebody else's gate holds it.
    pub released: Vec<(PodId, bool)>,
    /// Pods on nodes; true when terminating.
    pub running: Vec<(PodId, bool)>,
    /// Pods that have ended.
    pub ended: Vec<PodId>,
    /// What its pods are charged.
    pub charged: Vector,
    /// What its next pod or gang asks.
    pub asks: Vector,
    /// Priority of its next pod.
    pub priority: i32,
    /// Earliest creation of a waiting pod, else of any.
    pub since: Millis,
    /// Earliest creation of any pod.
    pub begun: Millis,
}

/// What is known of a queue, for the view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueSummary {
    /// Its id.
    pub id: QueueId,
    /// Its configuration while it exists.
    pub config: Option<QueueConfig>,
    /// Why nothing may start.
    pub problem: Option<Reason>,
    /// Charged amounts, with the queues below.
    pub usage: Vector,
    /// What it and those below are entitled to, as of the last [`Engine::entitle`].
    pub entitled: Vector,
    /// Dominant share before weight, in thousandths.
    pub share_per_mille: u64,
    /// Groups that wait, in order, without the queues below.
    pub line: Vec<GroupId>,
}

impl Engine {
    /// Every group, by id.
    pub fn groups(&self) -> impl Iterator<Item = GroupSummary> + '_ {
        let mut ids: Vec<(GroupId, u32)> =
            self.groups.iter().map(|(slot, group)| (group.id, slot)).collect();
        ids.sort_unstable();
        ids.into_iter().map(|(_, slot)| self.summarise(slot, &self.groups[slot]))
    }

    fn summarise(&self, slot: u32, group: &Group) -> GroupSummary {
        let waiting = self.waiting(slot);
        let oldest = waiting.iter().map(|turn| turn.created).min();
        let mut summary = GroupSummary {
            id: group.id,
            queue: group.config.queue,
            gang: group.config.gang,
            reason: self.reason_of(group),
            reserved: self.has_reservation(group.id),
            waiting: waiting.iter().map(|turn| self.pods[turn.pod].id()).collect(),
            released: Vec::new(),
            running: Vec::new(),
            ended: Vec::new(),
            charged: Vector::default(),
            asks: self.asks(slot),
            priority: waiting.first().map_or(0, |turn| turn.priority.0),
            since: oldest.unwrap_or(Millis::MAX),
            begun: Millis::MAX,
        };
        let mut pods: Vec<&Pod> = self.pods_of(slot).map(|pod| &self.pods[pod]).collect();
        pods.sort_unstable_by_key(|pod| pod.id());
        for pod in pods {
            let id = pod.id();
            match pod.state {
                PodState::Gated if pod.waits() || pod.release == ReleaseState::Claimed => {}
                PodState::Gated if pod.release == ReleaseState::Gone => summary.ended.push(id),
                PodState::Gated => summary.released.push((id, false)),
                PodState::Released { held } => summary.released.push((id, held)),
                PodState::Bound { terminating, .. } => summary.running.push((id, terminating)),
                PodState::Ended | PodState::Dropped => summary.ended.push(id),
            }
            if let Some(charge) = pod.charge.filter(|_| pod.has_started()) {
                summary.charged.add(&self.shapes.get(charge.shape).cost);
            }
            summary.begun = summary.begun.min(pod.created);
        }
        if oldest.is_none() {
            summary.since = summary.begun;
        }
        summary
    }

    /// Brings up to date what every queue is entitled to, for whoever reads it.
    pub fn entitle(&mut self) {
        self.settle();
        self.tree.divide_everything();
    }

    /// Every queue that exists or is named by a group.
    #[must_use]
    pub fn queues(&self) -> Vec<QueueSummary> {
        let claimed = self.claimed();
        let lines = self.line_of.iter();
        lines.map(|(&id, &line)| self.summarise_queue(id, line, &claimed)).collect()
    }

    fn summarise_queue(&self, id: QueueId, line: u32, claimed: &Claimed) -> QueueSummary {
        let line = &self.lines[line];
        let node = self.tree.of_queue(id);
        let mut usage = node.map_or(&line.usage, |node| &node.usage).clone();
        if let Some(claimed) = self.tree.at(id).and_then(|at| claimed.get(&at)) {
            usage.sub_all(claimed);
        }
        QueueSummary {
            id,
            config: self.queues.get(&id).cloned(),
            problem: self.tree.problem(id),
            usage: self.axes.vector(&usage),
            entitled: node.map_or_else(Vector::default, |node| {
                let entitled = node.entitled().iter();
                entitled.map(|(axis, most)| (self.axes.resource(axis), most)).collect()
            }),
            share_per_mille: share::per_mille(share::dominant(&usage, &self.fleet.capacity, 1)),
            line: line.places().into_iter().map(|place| place.group).collect(),
        }
    }

    /// The queue itself first, then those above it.
    #[must_use]
    pub fn path(&self, queue: QueueId) -> Vec<QueueId> {
        self.tree.path(queue).map(|node| node.queue).collect()
    }

    /// Whether a pod's gate is there and nothing of ours is on its way to open it.
    #[must_use]
    pub fn waits(&self, pod: PodId) -> bool {
        self.slot_of(pod).map(|slot| &self.pods[slot]).is_some_and(|pod| {
            pod.waits() || (pod.state == PodState::Gated && pod.release == ReleaseState::Claimed)
        })
    }

    /// How a group is treated, if there is one of that id.
    #[must_use]
    pub fn group(&self, id: GroupId) -> Option<&GroupConfig> {
        Some(&self.groups[self.group_slots.get(&id)?].config)
    }

    /// The group of a pod.
    #[must_use]
    pub fn group_of(&self, pod: PodId) -> Option<GroupId> {
        let group = self.pods[self.slot_of(pod)?].group;
        Some(self.groups[group].id)
    }

    /// Creation time of a pod.
    #[must_use]
    pub fn created(&self, pod: PodId) -> Option<Millis> {
        Some(self.pods[self.slot_of(pod)?].created)
    }
}

//! What the core knows, for those who only read.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use super::event::QueueConfig;
use super::model::{Assignment, Gang, GroupId, Millis, PodId, PodState, QueueId, Vector};
use super::reason::Reason;
use super::world::{Engine, Group, Pod, ReleaseState};

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
    /// Dominant share before weight, in thousandths.
    pub share_per_mille: u64,
    /// Groups that wait, in order, without the queues below.
    pub line: Vec<GroupId>,
}

impl Engine {
    /// Every group with a pod.
    pub fn groups(&self) -> impl Iterator<Item = GroupSummary> + '_ {
        self.groups.iter().map(|(&id, group)| self.summarise(id, group))
    }

    fn summarise(&self, id: GroupId, group: &Group) -> GroupSummary {
        let mut summary = GroupSummary {
            id,
            queue: group.config.queue,
            gang: group.config.gang,
            reason: self.reason(group),
            waiting: group.waiting.iter().map(|&(.., pod)| pod).collect(),
            released: Vec::new(),
            running: Vec::new(),
            ended: Vec::new(),
            charged: Vector::default(),
            asks: self.asks(group),
            priority: group.waiting.first().map_or(0, |&(Reverse(priority), ..)| priority),
            since: group.ages.first().map_or(Millis::MAX, |&(oldest, _)| oldest),
            begun: Millis::MAX,
        };
        for (&pod_id, pod) in group.pods.iter().filter_map(|pod| self.pods.get_key_value(pod)) {
            match pod.config.state {
                PodState::Gated if pod.waits() => {}
                PodState::Gated if pod.release == ReleaseState::Gone => summary.ended.push(pod_id),
                PodState::Gated => summary.released.push((pod_id, false)),
                PodState::Released { held } => summary.released.push((pod_id, held)),
                PodState::Bound { terminating, .. } => summary.running.push((pod_id, terminating)),
                PodState::Ended | PodState::Dropped => summary.ended.push(pod_id),
            }
            if let Some(charge) = &pod.charge {
                summary.charged.add(&charge.cost);
            }
            summary.begun = summary.begun.min(pod.config.created);
        }
        if group.ages.is_empty() {
            summary.since = summary.begun;
        }
        summary
    }

    /// Every queue that exists or is named by waiting or charged work.
    #[must_use]
    pub fn queues(&self) -> Vec<QueueSummary> {
        let mut ids: BTreeSet<QueueId> = self.queues.keys().copied().collect();
        ids.extend(self.lines.keys());
        ids.into_iter()
            .map(|id| QueueSummary {
                id,
                config: self.queues.get(&id).cloned(),
                problem: self.tree.problem(id),
                usage: self.books.usage.get(&id).cloned().unwrap_or_default(),
                share_per_mille: self
                    .books
                    .dominant_share(self.books.usage.get(&id), 1)
                    .per_mille(),
                line: self.lines.get(&id).into_iter().flatten().map(|&(.., id)| id).collect(),
            })
            .collect()
    }

    /// The queue itself first, then those above it.
    #[must_use]
    pub fn path(&self, queue: QueueId) -> &[QueueId] {
        self.tree.path(queue)
    }

    /// Whether a pod's gate is there and nothing of ours is on its way to open it.
    #[must_use]
    pub fn waits(&self, pod: PodId) -> bool {
        self.pods.get(&pod).is_some_and(Pod::waits)
    }

    /// The group of a pod.
    #[must_use]
    pub fn group_of(&self, pod: PodId) -> Option<GroupId> {
        self.pods.get(&pod).map(|pod| pod.config.group)
    }

    /// Creation time of a pod.
    #[must_use]
    pub fn created(&self, pod: PodId) -> Option<Millis> {
        self.pods.get(&pod).map(|pod| pod.config.created)
    }
}

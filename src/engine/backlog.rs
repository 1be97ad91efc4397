//! How many pods wait in each queue, and which queues take no more.
//!
//! Counted as pods come and go, a step for each queue above, never by going through them.

use std::collections::{BTreeMap, BTreeSet};

use super::event::QueueConfig;
use super::line::Line;
use super::model::{PodId, QueueId};
use super::tree::Tree;
use super::world::Engine;

/// Pods of one group that wait in a queue.
pub(super) type Waiting = (QueueId, u64);

/// Pods that wait, by queue.
#[derive(Debug, Default)]
pub(super) struct Backlogs {
    /// Without the queues below.
    direct: BTreeMap<QueueId, u64>,
    /// With the queues below.
    sums: BTreeMap<QueueId, u64>,
    /// Queues that are full: at `max_pending` they become so, and they stay so until a
    /// tenth has gone, or admission would be told something else with every pod.
    full: BTreeSet<QueueId>,
}

impl Backlogs {
    /// Takes in that a group's waiting pods are others than before.
    pub(super) fn moved(
        &mut self,
        tree: &Tree,
        queues: &BTreeMap<QueueId, QueueConfig>,
        before: Option<Waiting>,
        after: Option<Waiting>,
    ) {
        // First all that comes, then all that goes: nothing looks empty for a moment.
        if let Some((queue, pods)) = after {
            self.enter(tree, queue, |sum| sum + pods);
        }
        if let Some((queue, pods)) = before {
            self.enter(tree, queue, |sum| sum.saturating_sub(pods));
        }
        for (queue, _) in before.into_iter().chain(after) {
            for above in tree.path(queue) {
                self.judge(queues, above.queue);
            }
        }
    }

    fn enter(&mut self, tree: &Tree, queue: QueueId, change: impl Fn(u64) -> u64) {
        set(&mut self.direct, queue, &change);
        for above in tree.path(queue) {
            set(&mut self.sums, above.queue, &change);
        }
    }

    /// Sums up again after the tree or a queue's configuration has changed.
    pub(super) fn sum_up(&mut self, tree: &Tree, queues: &BTreeMap<QueueId, QueueConfig>) {
        self.sums.clear();
        for (&queue, &pods) in &self.direct {
            for above in tree.path(queue) {
                set(&mut self.sums, above.queue, |sum| sum + pods);
            }
        }
        self.full.retain(|queue| queues.contains_key(queue));
        for &queue in queues.keys() {
            self.judge(queues, queue);
        }
    }

    fn judge(&mut self, queues: &BTreeMap<QueueId, QueueConfig>, queue: QueueId) {
        let pods = self.pods(queue);
        match queues.get(&queue).and_then(|queue| queue.max_pending) {
            Some(most) if pods >= most => drop(self.full.insert(queue)),
            Some(most) if pods > reopens_at(most) => {}
            _ => drop(self.full.remove(&queue)),
        }
    }

    fn pods(&self, queue: QueueId) -> u64 {
        self.sums.get(&queue).copied().unwrap_or(0)
    }
}

/// Changes a count; zeros are not kept.
fn set(counts: &mut BTreeMap<QueueId, u64>, queue: QueueId, change: impl Fn(u64) -> u64) {
    match change(counts.get(&queue).copied().unwrap_or(0)) {
        0 => drop(counts.remove(&queue)),
        pods => drop(counts.insert(queue, pods)),
    }
}

/// How many pods may wait in a queue that was full and is full no more: nine tenths.
pub(super) fn reopens_at(most: u64) -> u64 {
    most - most.div_ceil(10)
}

impl Engine {
    /// Queues in which, with those below, as many pods wait as may.
    #[must_use]
    pub fn full(&self) -> &BTreeSet<QueueId> {
        &self.backlogs.full
    }

    /// Pods that wait in a queue and below it.
    #[must_use]
    pub fn pending(&self, queue: QueueId) -> u64 {
        self.backlogs.pods(queue)
    }

    /// The nearest queue, this one or one above it, in which so many pods never wait together,
    /// and how many may.
    #[must_use]
    pub fn too_few_may_wait(&self, queue: QueueId, pods: u32) -> Option<(QueueId, u64)> {
        self.tree.path(queue).find_map(|above| {
            let most = self.queues.get(&above.queue)?.max_pending?;
            (most < u64::from(pods)).then_some((above.queue, most))
        })
    }

    /// The pods that wait in a queue and below it, without those of a gang that still
    /// lacks members and can have them all: if they were refused it would wait for ever.
    pub fn backlog(&self, queue: QueueId) -> impl Iterator<Item = PodId> + '_ {
        let most = self.queues.get(&queue).and_then(|queue| queue.max_pending).unwrap_or(u64::MAX);
        let below = move |line: &Line| self.tree.path(line.queue).any(|at| at.queue == queue);
        let lines = self.line_of.values().map(|&line| &self.lines[line]);
        lines
            .filter(move |line| below(line))
            .flat_map(Line::places)
            .filter_map(|place| Some(&self.groups[self.group_slots.get(&place.group)?]))
            .filter(move |group| !group.lacks_members(most))
            .flat_map(|group| group.waiting.iter().map(|turn| self.pods[turn.pod].id()))
    }
}

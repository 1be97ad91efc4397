//! How many pods wait in each queue, and which queues take no more.
//!
//! Counted as pods come and go, a step for each queue above, never by going through them.
//! Queues become full at `max_pending` and stay so until a tenth has gone, or admission
//! would be told something else with every pod.

use std::collections::BTreeSet;

use super::line::Line;
use super::model::{Assignment, PodId, QueueId};
use super::slab::NONE;
use super::world::Engine;

/// How many pods may wait in a queue that was full and is full no more: nine tenths.
pub(super) fn reopens_at(most: u64) -> u64 {
    most - most.div_ceil(10)
}

impl Engine {
    /// Counts the waiting pods of a group where they wait.
    pub(super) fn count_backlog(&mut self, slot: u32) {
        let group = &self.groups[slot];
        let counted = match group.config.queue {
            Assignment::Queue(_) => (group.line, group.have() + group.claimed),
            _ => (NONE, 0),
        };
        self.recount(slot, counted);
    }

    /// What of a group counts as the backlog of which line is something else than before.
    pub(super) fn recount(&mut self, slot: u32, counted: (u32, u32)) {
        let before = std::mem::replace(&mut self.groups[slot].counted, counted);
        if before != counted {
            self.pend(counted.0, |pods| pods + u64::from(counted.1));
            self.pend(before.0, |pods| pods - u64::from(before.1));
        }
    }

    fn pend(&mut self, line: u32, change: impl Fn(u64) -> u64) {
        if line == NONE {
            return;
        }
        let line = &mut self.lines[line];
        line.pending = change(line.pending);
        self.todo.backlogs.push(line.queue);
        if line.node != NONE {
            self.tree.pend(line.node, change);
        }
    }

    /// Finds out which of the queues whose backlog has changed, and of those above, are full.
    /// Not before all of it is counted, so that nothing looks empty for a moment.
    pub(super) fn judge_backlogs(&mut self) {
        while let Some(queue) = self.todo.backlogs.pop() {
            for node in self.tree.path(queue) {
                match self.queues.get(&node.queue).and_then(|queue| queue.max_pending) {
                    Some(most) if node.pending >= most => drop(self.full.insert(node.queue)),
                    Some(most) if node.pending > reopens_at(most) => {}
                    _ => drop(self.full.remove(&node.queue)),
                }
            }
        }
    }

    /// After a change of the tree every queue may be full or be so no more.
    pub(super) fn judge_all_backlogs(&mut self) {
        self.full.retain(|&queue| self.tree.of_queue(queue).is_some());
        self.todo.backlogs.extend(self.queues.keys());
    }

    /// Queues in which, with those below, as many pods wait as may.
    #[must_use]
    pub fn full(&self) -> &BTreeSet<QueueId> {
        &self.full
    }

    /// Pods that wait in a queue and below it.
    #[must_use]
    pub fn pending(&self, queue: QueueId) -> u64 {
        self.tree.of_queue(queue).map_or(0, |node| node.pending)
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

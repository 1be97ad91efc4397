//! Time passes, and with it what is used becomes history.

use std::collections::BTreeMap;

use super::amounts::Amounts;
use super::event::QueueConfig;
use super::history::{FULL, History};
use super::model::{QueueId, Vector};
use super::tree::Histories;
use super::world::Engine;

impl Engine {
    /// Before time moves on: finds out what is used until then, where it will count.
    pub(super) fn use_until_now(&mut self) {
        let remembers = || self.queues.values().any(|queue| queue.half_life.is_some());
        if (self.todo.tree || self.todo.axes) && remembers() {
            self.settle();
        }
    }

    /// A history ends with the half-life that it was measured by, and when its owner comes below
    /// another queue.
    pub(super) fn end_histories(&mut self, id: QueueId, config: Option<&QueueConfig>) {
        let before = self.queues.get(&id);
        let of = &mut self.tree.histories.of;
        if before.map(|queue| queue.parent) != config.map(|queue| queue.parent) {
            of.remove(&(id, false));
        }
        if before.map(|queue| queue.half_life) != config.map(|queue| queue.half_life) {
            of.remove(&(id, true));
            let queues = &self.queues;
            of.retain(|(below, own), _| {
                *own || queues.get(below).is_none_or(|queue| queue.parent != Some(id))
            });
        }
    }

    /// What each queue, or each own line, used until now.
    pub(super) fn histories(&self) -> Vec<(QueueId, bool, Vector)> {
        let until_now = |(&(queue, own), history): (&(QueueId, bool), &History)| {
            let mut history = history.clone();
            history.pass(self.now);
            (queue, own, self.axes.vector(history.sum()))
        };
        self.tree.histories.of.iter().map(until_now).collect()
    }

    /// Takes in what was used until now. What is used now the tree has to say.
    pub(super) fn recall_histories(&mut self, told: Vec<(QueueId, bool, Vector)>) {
        let mut of = BTreeMap::new();
        for (queue, own, used) in told {
            let config = self.queues.get(&queue);
            let above = if own { config } else { config.and_then(|c| self.queues.get(&c.parent?)) };
            let Some(half_life) = above.and_then(|above| above.half_life) else { continue };
            let mut sum = Amounts::default();
            for (axis, amount) in self.axes.project(&used) {
                *sum.at(axis) = amount.clamp(0, FULL);
            }
            of.insert((queue, own), History::new(half_life, self.now, sum));
        }
        self.tree.histories = Histories { now: self.now, of };
        self.todo.tree = true;
    }
}

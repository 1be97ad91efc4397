//! Time passes, and with it what is used becomes history.

use std::collections::BTreeMap;

use super::amounts::Amounts;
use super::event::{QueueConfig, Used};
use super::history::{FULL, History, Moment, sum_of};
use super::model::{Millis, QueueId, Vector};
use super::slab::NONE;
use super::tree::{Histories, Place};
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
        self.tree.histories = Histories { now: self.now, of: BTreeMap::new() };
        self.todo.tree = true;
        for (queue, own, used) in told {
            let Some(half_life) = self.half_life((queue, own)) else { continue };
            let sum = self.sums(&used, |sum| sum.clamp(0, FULL));
            let history = History::new(half_life, self.now, sum);
            self.tree.histories.of.insert((queue, own), history);
        }
    }

    /// Takes in what somebody remembers; since then it used what it uses now.
    pub(super) fn used_before(&mut self, id: QueueId, used: &Used) {
        self.settle();
        let at = used.at.min(self.now);
        for (place, average) in [((id, false), &used.whole), ((id, true), &used.own)] {
            let Some(half_life) = self.half_life(place) else { continue };
            let weight = Moment::new(at, half_life).weight;
            let sum = self.sums(average, |average| sum_of(average, weight));
            let mut history = History::new(half_life, at, sum);
            let node = self.node_of(place).map(|at| self.tree.node(at));
            history.uses(at, &node.map(|node| node.usage.clone()).unwrap_or_default());
            history.pass(self.now);
            self.tree.histories.of.insert(place, history);
            if let Some(at) = self.node_of(place) {
                self.tree.sort_again(at);
            }
        }
    }

    /// By what a history is measured, if there is one.
    fn half_life(&self, (queue, own): Place) -> Option<Millis> {
        let config = self.queues.get(&queue)?;
        let above = if own { config } else { self.queues.get(&config.parent?)? };
        above.half_life
    }

    fn node_of(&self, (queue, own): Place) -> Option<u32> {
        let line = self.line_of.get(&queue).map(|&line| self.lines[line].node);
        let at = if own { line } else { self.tree.at(queue) };
        at.filter(|&at| at != NONE)
    }

    fn sums(&self, amounts: &Vector, sum: impl Fn(i128) -> i128) -> Amounts {
        let mut sums = Amounts::default();
        for (axis, amount) in self.axes.project(amounts) {
            *sums.at(axis) = sum(amount);
        }
        sums
    }

    /// How many queues, and own lines of queues, have a history.
    #[must_use]
    pub fn remembered(&self) -> usize {
        self.tree.histories.of.len()
    }

    /// What each queue with a history, and its own line, used on average until now, in millionths.
    #[must_use]
    pub fn used(&self) -> BTreeMap<QueueId, Used> {
        let mut all = BTreeMap::<QueueId, Used>::new();
        for (&(queue, own), history) in &self.tree.histories.of {
            let mut history = history.clone();
            history.pass(self.now);
            let used = all.entry(queue).or_default();
            let average = self.axes.vector(&history.average());
            used.at = self.now;
            *(if own { &mut used.own } else { &mut used.whole }) = average;
        }
        all
    }
}

//! What waits and may start some day: what counts as demand.

use std::collections::BTreeMap;

use super::amounts::{Amounts, Need};
use super::group::Group;
use super::model::Gang;
use super::shapes::ShapeId;
use super::slab::NONE;
use super::world::Engine;

impl Engine {
    /// Changes what waits in earnest in a line and, while it may start, above it.
    pub(super) fn ask(&mut self, line: u32, change: impl Fn(&mut Amounts)) {
        if line == NONE {
            return;
        }
        let line = &mut self.lines[line];
        change(&mut line.waiting);
        if line.node != NONE && !line.stopped {
            self.tree.ask(line.node, change);
        }
    }

    /// Changes that by one waiting pod, if it counts.
    pub(super) fn ask_for(&mut self, slot: u32, change: fn(&mut Amounts, &Need)) {
        let pod = &self.pods[slot];
        let group = &self.groups[pod.group];
        let line = group.asks_in();
        if group.in_earnest && line != NONE && self.may_ever(line, pod.shape) {
            let need = self.shapes.need(pod.shape).clone();
            self.ask(line, |waiting| change(waiting, &need));
        }
    }

    /// What the waiting pods of a group ask together, as far as they count.
    pub(super) fn asked_by(&self, slot: u32) -> Amounts {
        let mut asked = Amounts::default();
        let group = &self.groups[slot];
        let line = group.asks_in();
        if !group.in_earnest || line == NONE {
            return asked;
        }
        for (shape, count) in group.waiting.counts().filter(|&(s, _)| self.may_ever(line, s)) {
            let count = i128::try_from(count).unwrap_or(i128::MAX);
            asked.add(&Need::sum([(self.shapes.need(shape), count)].into_iter()));
        }
        asked
    }

    /// Takes in whether a group waits in earnest.
    pub(super) fn judge_earnest(&mut self, slot: u32) {
        let group = &self.groups[slot];
        let (line, was) = (group.asks_in(), group.in_earnest);
        let is = line != NONE && self.is_in_earnest(group);
        if is == was {
            return;
        }
        let before = self.asked_by(slot);
        self.groups[slot].in_earnest = is;
        let after = self.asked_by(slot);
        self.ask(line, |waiting| {
            waiting.add_all(&after);
            waiting.sub_all(&before);
        });
    }

    /// Whether what starts together of a group is there and may start some day.
    fn is_in_earnest(&self, group: &Group) -> bool {
        if group.started > 0 || group.claimed > 0 {
            return true;
        }
        let Ok(together) = group.together(self.now) else { return false };
        if together <= 1 {
            return true;
        }
        let parts = group.first(together);
        let needs = parts.iter().map(|(shape, count)| (self.shapes.need(shape), count.into()));
        parts.iter().all(|(shape, _)| self.holds(shape))
            && self.is_within_limits(group.line, &Need::sum(needs))
    }

    /// Whether a pod of that cost may start some day.
    fn may_ever(&self, line: u32, shape: ShapeId) -> bool {
        self.holds(shape) && self.is_within_limits(line, self.shapes.need(shape))
    }

    /// Whether some node, usable or not, is large enough.
    pub(super) fn holds(&self, shape: ShapeId) -> bool {
        !self.shapes.get(shape).alien && self.fleet.holds(&self.shapes, shape)
    }

    pub(super) fn is_within_limits(&self, line: u32, need: &Need) -> bool {
        self.tree.up(self.lines[line].node).all(|(_, node)| node.limit.hold(need))
    }

    /// Adds up again what waits in earnest, after nodes or limits have changed.
    pub(super) fn weigh_waiting(&mut self) {
        let mut sums = BTreeMap::<u32, Amounts>::new();
        for (slot, group) in self.groups.iter().filter(|(_, group)| group.asks_in() != NONE) {
            sums.entry(group.asks_in()).or_default().add_all(&self.asked_by(slot));
        }
        let lines: Vec<u32> = self.lines.iter().map(|(slot, _)| slot).collect();
        for line in lines {
            let after = sums.remove(&line).unwrap_or_default();
            let before = self.lines[line].waiting.clone();
            if before != after {
                self.ask(line, |waiting| {
                    waiting.add_all(&after);
                    waiting.sub_all(&before);
                });
            }
        }
    }

    /// Has gangs looked at that may be too large now, or not any more.
    pub(super) fn look_at_gangs(&mut self) {
        let may = |group: &Group| group.config.gang != Gang::Units && group.started == 0;
        let gangs: Vec<u32> =
            self.groups.iter().filter(|(_, group)| may(group)).map(|(slot, _)| slot).collect();
        for slot in gangs {
            self.look_at(slot);
        }
    }
}

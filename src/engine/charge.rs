//! What pods are charged, and who pays.

use super::amounts::Amounts;
use super::model::{PodState, SingletonId};
use super::pod::{Charge, Pod, ReleaseState};
use super::slab::NONE;
use super::world::Engine;

impl Engine {
    /// Brings a pod's charge in line with where it stands.
    pub(super) fn recharge(&mut self, slot: u32) {
        let charge = self.due(&self.pods[slot]);
        self.settle_charge(slot, charge);
    }

    /// What a pod should be charged: from the decision until it has ended, is
    /// gone, or its node is gone; a pod that is being deleted on a node that
    /// does not answer costs nothing, since that node's capacity is not there either.
    pub(super) fn due(&self, pod: &Pod) -> Option<Charge> {
        let takes_capacity = match pod.state {
            _ if !pod.has_started() && pod.release != ReleaseState::Claimed => return None,
            PodState::Ended | PodState::Dropped => return None,
            PodState::Gated | PodState::Released { .. } => true,
            PodState::Bound { node, terminating } => {
                let node = self.fleet.get(node).filter(|node| !node.gone)?;
                if terminating && node.known && !node.config.ready {
                    return None;
                }
                node.usable()
            }
        };
        let node = match pod.state {
            PodState::Bound { node, .. } => node.0,
            _ => pod.planned,
        };
        let line = self.groups[pod.group].line;
        Some(Charge { line, shape: pod.shape, node, takes_capacity })
    }

    pub(super) fn settle_charge(&mut self, slot: u32, charge: Option<Charge>) {
        self.mark_leaving(slot, charge);
        let pod = &mut self.pods[slot];
        if pod.charge == charge {
            return;
        }
        let (group, before) = (pod.group, std::mem::replace(&mut pod.charge, charge));
        if let Some(charge) = charge {
            self.shapes.hold_again(charge.shape);
            self.enter(group, charge);
        }
        if let Some(charge) = before {
            self.give_back(group, charge);
            self.shapes.release(charge.shape);
        }
    }

    fn enter(&mut self, slot: u32, charge: Charge) {
        let group = &mut self.groups[slot];
        group.charged += 1;
        let first = group.charged == 1;
        let key = group.config.singleton.filter(|_| first);
        if first {
            self.look_at(slot);
        }
        let cost = self.shapes.need(charge.shape).clone();
        self.fill(charge, |free| free.sub(&cost));
        self.take_capacity(charge, |amounts| amounts.add(&cost));
        let need = if first { cost.with_group() } else { cost };
        if let Some(node) = self.pay(charge.line, |usage| usage.add(&need)) {
            self.tree.charge(node, &need);
        }
        // What is used without taking from the capacity is held no more, and still free.
        self.todo.freed |= self.tree.keeps();
        self.hold_key(charge.line, key, 1);
    }

    fn give_back(&mut self, slot: u32, charge: Charge) {
        let group = &mut self.groups[slot];
        group.charged -= 1;
        let last = group.charged == 0;
        let key = group.config.singleton.filter(|_| last);
        if last {
            self.look_at(slot);
        }
        let cost = self.shapes.need(charge.shape).clone();
        self.fill(charge, |free| free.add(&cost));
        self.take_capacity(charge, |amounts| amounts.sub(&cost));
        self.todo.freed = true;
        let need = if last { cost.with_group() } else { cost };
        if let Some(node) = self.pay(charge.line, |usage| usage.sub(&need)) {
            self.tree.give_back(node, &need);
        }
        self.hold_key(charge.line, key, -1);
    }

    /// Changes what is free on the node that a charge takes from.
    pub(super) fn fill(&mut self, charge: Charge, book: impl Fn(&mut Amounts)) {
        if let (Some(pools), Some(node)) = (&mut self.pools, charge.node()) {
            pools.change(node, book);
        }
    }

    fn take_capacity(&mut self, charge: Charge, book: impl Fn(&mut Amounts)) {
        if !charge.takes_capacity {
            return;
        }
        book(&mut self.load);
        match self.lines.get(charge.line) {
            Some(line) if line.node != NONE => {}
            _ => book(&mut self.stray),
        }
        if charge.line != NONE {
            book(&mut self.lines[charge.line].load);
        }
    }

    /// Changes what a line is charged; its node in the tree, if it has one.
    fn pay(&mut self, line: u32, change: impl Fn(&mut Amounts)) -> Option<u32> {
        if line == NONE {
            return None;
        }
        change(&mut self.lines[line].usage);
        self.touch(line);
        Some(self.lines[line].node).filter(|&node| node != NONE)
    }

    /// Counts one group more or less of a key that runs in a line; those of the same key
    /// that wait are looked at again.
    pub(super) fn hold_key(&mut self, line: u32, key: Option<SingletonId>, change: i32) {
        let Some(key) = key.filter(|_| line != NONE) else { return };
        let held = self.lines[line].keys.entry(key).or_default();
        held.charged = held.charged.saturating_add_signed(change);
        let waiting: Vec<u32> = held.waiting.iter().copied().collect();
        if held.charged == 0 && waiting.is_empty() {
            self.lines[line].keys.remove(&key);
        }
        for group in waiting {
            self.look_at(group);
        }
    }
}

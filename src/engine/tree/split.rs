//! What everybody is entitled to, from the root down.

use super::super::amounts::{Amounts, Axis};
use super::super::entitle::{Claim, divide};
use super::super::slab::NONE;
use super::{Band, Node, ROOT, Tree};

impl Tree {
    /// Computes again what may have changed. `whole` is what there is for all queues;
    /// what there is none of nobody is entitled to, and nobody is held to it.
    pub(in super::super) fn divide(&mut self, whole: &Amounts) {
        if !std::mem::take(&mut self.divided) {
            return;
        }
        let mut any = false;
        // Parents come before their children.
        for at in 0..self.nodes.len() {
            let at = u32::try_from(at).unwrap_or(NONE);
            if std::mem::take(&mut self.node_mut(at).is_divided) && !self.node(at).is_line() {
                any |= self.divide_at(at, whole);
            }
        }
        if any {
            self.look_again();
        }
    }

    fn divide_at(&mut self, at: u32, whole: &Amounts) -> bool {
        let children = std::mem::take(&mut self.node_mut(at).children);
        let mut changed = false;
        for (axis, all) in whole.iter().filter(|&(axis, all)| all > 0 && Node::is_shared(axis)) {
            let mine = if at == ROOT { all } else { self.node(at).entitled.get(axis) };
            changed |= self.divide_axis(&children, axis, mine);
        }
        self.node_mut(at).children = children;
        if changed {
            self.unclose_entitled(at);
        }
        changed
    }

    fn divide_axis(&mut self, children: &[u32], axis: Axis, mine: i128) -> bool {
        let claims: Vec<Claim> =
            children.iter().map(|&child| self.node(child).claim(axis)).collect();
        let level = divide(mine, &claims);
        let mut changed = false;
        for (&child, claim) in children.iter().zip(claims) {
            let gets = level.gives(claim);
            let node = self.node_mut(child);
            if node.entitled.get(axis) != gets {
                node.entitled.set(axis, gets);
                node.is_divided = true;
                node.closed[Band::Entitled as usize].clear();
                changed = true;
            }
        }
        changed
    }

    fn unclose_entitled(&mut self, from: u32) {
        let mut at = from;
        while at != NONE {
            let node = self.node_mut(at);
            node.closed[Band::Entitled as usize].clear();
            at = node.parent;
        }
    }

    /// Nothing of what was said of entitlements holds when a resource has come or gone.
    pub(in super::super) fn divide_all(&mut self) {
        self.divided = true;
        for node in &mut self.nodes {
            node.is_divided = true;
            node.entitled = super::Bounds::default();
            node.closed[Band::Entitled as usize].clear();
        }
        self.look_again();
    }
}

impl Node {
    fn claim(&self, axis: Axis) -> Claim {
        let demand = (self.usage.get(axis) + self.waiting.get(axis)).max(0);
        let cap = demand.min(self.limit.get(axis)).max(0);
        let given = if self.given.has(axis) { self.given.get(axis) } else { 0 };
        Claim { weight: self.weight.max(1), floor: cap.min(given), cap }
    }
}

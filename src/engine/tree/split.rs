//! What everybody is entitled to: computed from the root down, where and when a search
//! comes by.

use super::super::amounts::{Amounts, Axis, Bounds};
use super::super::entitle::{Claim, Level, divide};
use super::{Band, Node, ROOT, Tree};

/// What is between floor and cap is a whole multiple of a power of two, at most 2⁻²⁰ of what
/// there is, so that not each pod that comes or goes changes everybody's by a trifle.
fn grain(whole: i128) -> i128 {
    1 << whole.checked_ilog2().unwrap_or(0).saturating_sub(20)
}

/// A part rounded down to whole grains, unless it is all that is claimed or split, and never
/// across the floor: what is little for the fleet may be all that a queue has.
fn rounded(part: i128, whole: i128, claim: Claim, grain: i128) -> i128 {
    let down = part & -grain;
    if part == claim.cap || part == whole {
        part
    } else if part < claim.floor {
        down
    } else {
        down.max(claim.floor)
    }
}

/// What is known of a division.
#[derive(Debug, Default)]
pub(super) enum Division {
    /// All of it.
    Known,
    /// One child may claim something else.
    But(u32),
    /// Nothing.
    #[default]
    Unknown,
}

/// Who claimed what of one resource, and what became of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    axis: Axis,
    /// What was divided.
    whole: i128,
    level: Level,
    /// As last time: who claims the same gets the same.
    same: bool,
}

impl Tree {
    /// Takes in what there is for all queues. What there is none of nobody is entitled to,
    /// and nobody is held to it.
    pub(in super::super) fn set_whole(&mut self, whole: Amounts) {
        if whole == self.whole {
            return;
        }
        let grains = |amounts: &Amounts| {
            amounts.iter().map(|(_, all)| (all > 0, grain(all))).collect::<Vec<_>>()
        };
        if grains(&whole) != grains(&self.whole) {
            for node in &mut self.nodes {
                node.entitled = Bounds::default();
                node.claims.clear();
                node.undivide(Division::Unknown);
            }
        }
        self.whole = whole;
        self.node_mut(ROOT).undivide(Division::Unknown);
        self.look_again();
    }

    /// Computes what everybody is entitled to, as far as that is not known.
    pub(in super::super) fn divide_everything(&mut self) {
        // Children come after their parents.
        for at in (0..).take(self.nodes.len()) {
            if !self.node(at).is_line() {
                self.divide(at);
            }
        }
    }

    /// Computes what the children of a node are entitled to, unless that is known.
    pub(super) fn divide(&mut self, at: u32) {
        let node = self.node_mut(at);
        match std::mem::replace(&mut node.division, Division::Known) {
            Division::Known => {}
            Division::But(child) if self.adjust(at, child) => {}
            _ => self.divide_all(at),
        }
    }

    /// Lets one child claim something else, if nobody else gets anything else by that.
    fn adjust(&mut self, at: u32, child: u32) -> bool {
        let mut parts = std::mem::take(&mut self.node_mut(at).parts);
        let node = self.node(child);
        let same = parts.iter_mut().enumerate().all(|(index, part)| {
            let before = node.claims.get(index).copied().unwrap_or_default();
            let kept = part.level.keeps(before, node.claim(part.axis));
            part.level = kept.unwrap_or(part.level);
            kept.is_some()
        });
        if same {
            for (index, part) in parts.iter().enumerate() {
                let claim = self.node(child).claim(part.axis);
                self.entitle(child, index, *part, claim);
            }
        }
        self.node_mut(at).parts = parts;
        same
    }

    fn divide_all(&mut self, at: u32) {
        let children = std::mem::take(&mut self.node_mut(at).children);
        let before = std::mem::take(&mut self.node_mut(at).parts);
        let axes = self.whole.iter().filter(|&(axis, all)| all > 0 && Node::is_shared(axis));
        let axes: Vec<(Axis, i128)> = axes.collect();
        let mut parts = Vec::with_capacity(axes.len());
        let mut claims = Vec::with_capacity(children.len());
        for (index, (axis, all)) in axes.into_iter().enumerate() {
            let mine = if at == ROOT { all } else { self.node(at).entitled.get(axis) };
            claims.clear();
            claims.extend(children.iter().map(|&child| self.node(child).claim(axis)));
            let last = before.get(index).map(|part| part.level);
            let level = divide(mine, &claims, last);
            let same =
                before.get(index).is_some_and(|last| (last.level, last.whole) == (level, mine));
            let part = Part { axis, whole: mine, level, same };
            for (&child, &claim) in children.iter().zip(&claims) {
                self.entitle(child, index, part, claim);
            }
            parts.push(part);
        }
        let node = self.node_mut(at);
        (node.parts, node.children) = (parts, children);
    }

    fn entitle(&mut self, child: u32, index: usize, part: Part, claim: Claim) {
        if self.node(child).claims.get(index) == Some(&claim) && part.same {
            return;
        }
        let all = self.whole.get(part.axis);
        let gets = rounded(part.level.gives(claim), part.whole, claim, grain(all));
        let node = self.node_mut(child);
        if index >= node.claims.len() {
            node.claims.resize(index + 1, Claim::default());
        }
        node.claims[index] = claim;
        if node.entitled.get(part.axis) != gets {
            node.entitled.set(part.axis, gets);
            node.undivide(Division::Unknown);
        }
    }
}

impl Node {
    fn claim(&self, axis: Axis) -> Claim {
        let cap = self.demand(axis).max(0).min(self.limit.get(axis)).max(0);
        let given = if self.given.has(axis) { self.given.get(axis) } else { 0 };
        let kept = self.kept(axis);
        Claim { weight: self.weight.max(1), floor: cap.min(given).max(kept), cap: cap.max(kept) }
    }

    /// What is asked here and below and no limit below keeps out.
    fn demand(&self, axis: Axis) -> i128 {
        self.usage.get(axis) + self.waiting.get(axis) - self.vain.get(axis)
    }

    /// What is demanded in vain for whoever is above: by limits below and by its own.
    pub(super) fn all_vain(&self) -> Amounts {
        let mut vain = self.vain.clone();
        for (axis, most) in self.limit.iter().filter(|&(axis, _)| Self::is_shared(axis)) {
            *vain.at(axis) += (self.demand(axis) - most).max(0);
        }
        vain
    }

    /// What its children are entitled to may be more than it was.
    pub(super) fn undivide(&mut self, known: Division) {
        self.division = match (&self.division, known) {
            (Division::Known, known) => known,
            (&Division::But(one), Division::But(other)) if one == other => Division::But(one),
            _ => Division::Unknown,
        };
        self.closed[Band::Entitled as usize].clear();
    }
}

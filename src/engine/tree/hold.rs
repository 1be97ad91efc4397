//! What queues do not lend: room that is free and nobody else may use.

use super::super::amounts::{Amounts, Axis, GROUPS, Need};
use super::{Mask, Node, ROOT, Tree};

impl Node {
    /// What it holds now of a resource, when it uses so much.
    fn holds(&self, axis: Axis, used: i128, below: i128) -> i128 {
        let kept = self.keep.get(axis);
        let own = if kept > 0 { kept - used } else { 0 };
        own.max(below).max(0)
    }

    fn held(&self, axis: Axis) -> i128 {
        self.holds(axis, self.usage.get(axis), self.held_below.get(axis))
    }

    /// What it claims at least, though it may not ask for it.
    pub(super) fn kept(&self, axis: Axis) -> i128 {
        self.kept.get(axis)
    }
}

impl Tree {
    /// Whether any queue keeps anything to itself.
    pub(in super::super) fn keeps(&self) -> bool {
        self.keeps
    }

    /// Works out anew what is kept and held everywhere, before anything is used.
    pub(super) fn keep(&mut self) {
        self.keeps = self.nodes.iter().any(|node| !node.keep.is_zero());
        if !self.keeps {
            return;
        }
        // Children come after their parents.
        for at in (1..self.nodes.len()).rev() {
            let node = &mut self.nodes[at];
            let axes = node.keep.iter().chain(node.held_below.iter()).map(|(axis, _)| axis);
            let axes: Vec<Axis> = axes.collect();
            for axis in axes {
                *node.kept.at(axis) = node.holds(axis, 0, node.held_below.get(axis));
            }
            let (kept, parent) = (node.kept.clone(), node.parent);
            self.node_mut(parent).held_below.add_all(&kept);
        }
    }

    /// Takes in that what is used at a node and above has changed.
    pub(super) fn hold_again(&mut self, from: u32) {
        if !self.keeps {
            return;
        }
        let mut at = from;
        while at != ROOT {
            let parent = self.node(at).parent;
            let mut below = Amounts::default();
            for &child in &self.node(parent).children {
                for (axis, _) in self.node(child).kept.iter() {
                    *below.at(axis) += self.node(child).held(axis);
                }
            }
            self.node_mut(parent).held_below = below;
            at = parent;
        }
    }

    /// What siblings of a line and of the queues above it hold of a resource.
    pub(in super::super) fn withheld(&self, line: u32, axis: Axis) -> i128 {
        if !self.keeps || axis == GROUPS {
            return 0;
        }
        let others =
            |(_, node): (u32, &Node)| self.node(node.parent).held_below.get(axis) - node.held(axis);
        self.up(line).map(others).sum()
    }

    /// The same, when so much is used.
    pub(in super::super) fn withheld_when(
        &self,
        line: u32,
        axis: Axis,
        used: &impl Fn(u32, &Node) -> i128,
    ) -> i128 {
        if !self.keeps || axis == GROUPS {
            return 0;
        }
        let mut sum = 0;
        for (at, node) in self.up(line) {
            let siblings = self.node(node.parent).children.iter().filter(|&&child| child != at);
            sum += siblings.map(|&child| self.held_when(child, axis, used)).sum::<i128>();
        }
        sum
    }

    fn held_when(&self, at: u32, axis: Axis, used: &impl Fn(u32, &Node) -> i128) -> i128 {
        let node = self.node(at);
        let below = node.children.iter().map(|&child| self.held_when(child, axis, used)).sum();
        node.holds(axis, used(at, node), below)
    }

    /// Whether so much is there for a line without what others hold.
    pub(super) fn lets(&self, line: u32, need: &Need, free: &Amounts) -> bool {
        !self.keeps
            || need.iter().all(|(axis, amount)| {
                axis == GROUPS || amount <= free.get(axis) - self.withheld(line, axis)
            })
    }

    /// What was refused because others hold room may fit when there is more.
    pub(in super::super) fn open_all(&mut self) {
        if self.keeps {
            for node in &mut self.nodes {
                node.closed.iter_mut().for_each(Mask::clear);
            }
            self.look_again();
        }
    }
}

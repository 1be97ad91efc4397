//! From the queues' configuration to nodes.

use std::collections::{BTreeMap, BTreeSet};

use super::super::amounts::{Amounts, Axes, Bounds};
use super::super::event::QueueConfig;
use super::super::line::Line;
use super::super::model::QueueId;
use super::super::reason::Reason;
use super::super::slab::{NONE, Slab};
use super::{Node, ROOT, Tree, limits};

type Configs = BTreeMap<QueueId, QueueConfig>;

impl Tree {
    /// Makes the tree anew. Every queue has a line; each line is told its node.
    pub(in super::super) fn build(
        axes: &Axes,
        queues: &Configs,
        lines: &mut Slab<Line>,
        line_of: &BTreeMap<QueueId, u32>,
    ) -> Self {
        let mut tree = Self::default();
        for (_, line) in lines.iter_mut() {
            line.node = NONE;
        }
        tree.place(axes, queues);
        tree.keep();
        for (&queue, config) in queues {
            if !tree.by_queue.contains_key(&queue) {
                tree.problems.insert(queue, what_is_wrong(queues, queue));
            } else if let Some(&slot) = line_of.get(&queue) {
                tree.add_line(queue, config, slot, lines);
            }
        }
        tree.give();
        tree
    }

    /// Valid queues from the top down.
    fn place(&mut self, axes: &Axes, queues: &Configs) {
        let mut below = BTreeMap::<Option<QueueId>, Vec<QueueId>>::new();
        for (&queue, config) in queues.iter().filter(|(_, config)| !config.malformed) {
            below.entry(config.parent).or_default().push(queue);
        }
        let mut next = vec![(ROOT, None)];
        while let Some((parent, above)) = next.pop() {
            for &queue in below.get(&above).into_iter().flatten() {
                let Some(config) = queues.get(&queue) else { continue };
                let node = self.add(parent, queue, config, axes);
                next.push((node, Some(queue)));
            }
        }
    }

    fn add(&mut self, parent: u32, queue: QueueId, config: &QueueConfig, axes: &Axes) -> u32 {
        let mut node = Node { queue, line: NONE, parent, weight: config.weight, ..Node::default() };
        node.half_life = config.half_life;
        node.later = config.half_life.map(|_| Box::default());
        for (resource, most) in limits(config) {
            axes.of(resource).into_iter().for_each(|axis| node.limit.lower(axis, most));
        }
        for (axis, own) in axes.project(&config.guaranteed) {
            node.given.set(axis, own);
        }
        for (axis, lent) in axes.project(&config.lendable) {
            let own = if node.given.has(axis) { node.given.get(axis) } else { 0 };
            *node.keep.at(axis) = (own - lent).max(0);
        }
        let above = self.by_queue.get(&self.node(parent).queue).filter(|_| parent != ROOT);
        let stopped = above.and_then(|_| self.problems.get(&self.node(parent).queue)).copied();
        let stopped = if config.hold { Some(Reason::QueueStopped(queue)) } else { stopped };
        stopped.map(|reason| self.problems.insert(queue, reason));
        let at = self.push(node);
        self.by_queue.insert(queue, at);
        at
    }

    fn push(&mut self, node: Node) -> u32 {
        let at = u32::try_from(self.nodes.len()).unwrap_or(NONE);
        let parent = node.parent;
        self.nodes.push(node);
        self.node_mut(parent).children.push(at);
        at
    }

    /// A queue's own line is one more child; where there is no other, the queue itself.
    fn add_line(
        &mut self,
        queue: QueueId,
        config: &QueueConfig,
        slot: u32,
        lines: &mut Slab<Line>,
    ) {
        let Some(&at) = self.by_queue.get(&queue) else { return };
        let line = &mut lines[slot];
        line.node = if self.node(at).children.is_empty() {
            at
        } else {
            self.push(Node { queue, parent: at, weight: 1, is_own: true, ..Node::default() })
        };
        self.node_mut(line.node).line = slot;
        (line.order, line.placement) = (config.order, config.placement);
        line.stopped = self.problems.contains_key(&queue);
        let (node, usage, pending) = (line.node, line.usage.clone(), line.pending);
        let waiting = if line.stopped { Amounts::default() } else { line.waiting.clone() };
        self.climb(node, |node| {
            node.usage.add_all(&usage);
            node.waiting.add_all(&waiting);
            node.pending += pending;
        });
    }

    /// What was said of nobody's own is what was said of those below; what of a queue's own
    /// those below were not given is its line's. Children come after their parents.
    fn give(&mut self) {
        for at in (0..self.nodes.len()).rev() {
            let at = u32::try_from(at).unwrap_or(NONE);
            let below = self.given_below(at);
            let node = self.node_mut(at);
            for (axis, sum) in below.iter() {
                if !node.given.has(axis) {
                    node.given.set(axis, sum);
                }
            }
            let mut rest = Bounds::default();
            for (axis, own) in node.given.iter() {
                let taken = if below.has(axis) { below.get(axis) } else { 0 };
                rest.set(axis, (own - taken).max(0));
            }
            let children = &self.nodes[at as usize].children;
            let line = children.iter().copied().find(|&child| self.node(child).is_own);
            if let Some(line) = line {
                self.node_mut(line).given = rest;
            }
        }
        self.node_mut(ROOT).given = Bounds::default();
    }

    /// The sum of what the queues below were given.
    fn given_below(&self, at: u32) -> Bounds {
        let mut sum = Bounds::default();
        for &child in &self.node(at).children {
            let child = self.node(child);
            for (axis, own) in child.given.iter().filter(|_| !child.is_own) {
                let before = if sum.has(axis) { sum.get(axis) } else { 0 };
                sum.set(axis, before + own);
            }
        }
        sum
    }
}

/// Why a queue's path does not lead to the root: the queue at which it goes wrong.
fn what_is_wrong(queues: &Configs, from: QueueId) -> Reason {
    let (mut seen, mut at) = (BTreeSet::new(), from);
    loop {
        let Some(config) = queues.get(&at) else { return Reason::QueueInvalid(from) };
        if !seen.insert(at) || config.malformed {
            return Reason::QueueInvalid(at);
        }
        match config.parent {
            Some(parent) if queues.contains_key(&parent) => at = parent,
            _ => return Reason::QueueInvalid(at),
        }
    }
}

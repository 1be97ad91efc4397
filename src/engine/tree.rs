//! The queue tree: paths to the root, and what is wrong with them.

use std::collections::{BTreeMap, BTreeSet};

use super::event::QueueConfig;
use super::model::QueueId;
use super::reason::Reason;

/// Derived from the queues' configuration, rebuilt when one changes.
#[derive(Debug, Default)]
pub(super) struct Tree {
    nodes: BTreeMap<QueueId, Node>,
    tops: Vec<QueueId>,
}

#[derive(Debug, Default)]
struct Node {
    path: Vec<QueueId>,
    children: Vec<QueueId>,
    problem: Option<Reason>,
}

impl Tree {
    pub(super) fn build(queues: &BTreeMap<QueueId, QueueConfig>) -> Self {
        let mut tree = Self::default();
        for &id in queues.keys() {
            let (path, problem) = walk(queues, id);
            let node = tree.nodes.entry(id).or_default();
            node.path = path;
            node.problem = problem;
            let usable = !matches!(node.problem, Some(Reason::QueueInvalid(_)));
            match queues.get(&id).and_then(|queue| queue.parent) {
                _ if !usable => {}
                None => tree.tops.push(id),
                Some(parent) => tree.nodes.entry(parent).or_default().children.push(id),
            }
        }
        tree
    }

    /// The queue itself first, then those above; empty for an unknown queue.
    pub(super) fn path(&self, queue: QueueId) -> &[QueueId] {
        self.nodes.get(&queue).map_or(&[], |node| &node.path)
    }

    /// Queues directly below, or directly below the root.
    pub(super) fn children(&self, queue: Option<QueueId>) -> &[QueueId] {
        match queue {
            None => &self.tops,
            Some(queue) => self.nodes.get(&queue).map_or(&[], |node| &node.children),
        }
    }

    /// Why nothing of a queue may start, whatever is free.
    pub(super) fn problem(&self, queue: QueueId) -> Option<Reason> {
        match self.nodes.get(&queue) {
            None => Some(Reason::UnknownQueue(queue)),
            Some(node) => node.problem,
        }
    }
}

/// Walks up from a queue. A path that is invalid ends where it goes wrong.
fn walk(queues: &BTreeMap<QueueId, QueueConfig>, from: QueueId) -> (Vec<QueueId>, Option<Reason>) {
    let mut path = Vec::new();
    let mut seen = BTreeSet::new();
    let mut stopped = None;
    let mut next = Some(from);
    while let Some(id) = next {
        let Some(queue) = queues.get(&id) else {
            let below = path.last().copied().unwrap_or(from);
            return (path, Some(Reason::QueueInvalid(below)));
        };
        if !seen.insert(id) || queue.malformed {
            return (path, Some(Reason::QueueInvalid(id)));
        }
        if queue.hold && stopped.is_none() {
            stopped = Some(Reason::QueueStopped(id));
        }
        path.push(id);
        next = queue.parent;
    }
    (path, stopped)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queues(parents: &[(u32, Option<u32>)]) -> BTreeMap<QueueId, QueueConfig> {
        parents
            .iter()
            .map(|&(id, parent)| {
                let parent = parent.map(QueueId);
                (QueueId(id), QueueConfig { parent, weight: 1, ..QueueConfig::default() })
            })
            .collect()
    }

    #[test]
    fn a_path_leads_from_the_queue_to_the_top() {
        let tree = Tree::build(&queues(&[(1, None), (2, Some(1)), (3, Some(2))]));
        assert_eq!(tree.path(QueueId(3)), [QueueId(3), QueueId(2), QueueId(1)]);
        assert_eq!(tree.children(Some(QueueId(1))), [QueueId(2)]);
        assert_eq!(tree.children(None), [QueueId(1)]);
    }

    #[test]
    fn a_cycle_closes_every_queue_that_leads_into_it_and_no_other() {
        let tree = Tree::build(&queues(&[(1, Some(2)), (2, Some(1)), (3, Some(1)), (4, None)]));
        for id in 1..=3 {
            assert!(matches!(tree.problem(QueueId(id)), Some(Reason::QueueInvalid(_))), "{id}");
        }
        assert_eq!(tree.problem(QueueId(4)), None);
        assert_eq!(tree.children(None), [QueueId(4)]);
    }

    #[test]
    fn an_unknown_parent_names_the_queue_that_asks_for_it() {
        let tree = Tree::build(&queues(&[(1, Some(9)), (2, Some(1))]));
        assert_eq!(tree.problem(QueueId(2)), Some(Reason::QueueInvalid(QueueId(1))));
    }

    #[test]
    fn a_stopped_queue_stops_those_below() {
        let mut all = queues(&[(1, None), (2, Some(1))]);
        all.get_mut(&QueueId(1)).unwrap().hold = true;
        let tree = Tree::build(&all);
        assert_eq!(tree.problem(QueueId(2)), Some(Reason::QueueStopped(QueueId(1))));
    }
}

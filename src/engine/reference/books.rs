//! What is charged to whom.

use std::collections::{BTreeMap, BTreeSet};

use super::super::event::NodeConfig;
use super::super::model::{
    Assignment, GroupId, NodeId, PodId, PodState, QueueId, ResourceId, Vector,
};
use super::{Amounts, Pod, Reference, Release, Spot};

/// What there is, and what of it is charged.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct Books {
    pub(in super::super) capacity: Vector,
    /// Charges that take from the capacity.
    pub(in super::super) load: Vector,
    /// Those of the load that no queue of the tree pays for.
    pub(in super::super) stray: Vector,
    pub(in super::super) usage: Amounts,
    /// Of the usage, without `groups`, what is leaving.
    leaving: Amounts,
    /// Of the load, what is leaving.
    leaving_load: Vector,
    /// What is charged to pods on a node or planned on it.
    pub(in super::super) on_nodes: BTreeMap<NodeId, Vector>,
}

impl Books {
    pub(super) fn used(&self, spot: Spot, resource: ResourceId) -> i128 {
        self.usage.get(&spot).map_or(0, |usage| usage.get(resource))
    }

    /// Usage less what is leaving.
    pub(super) fn net(&self, spot: Spot, resource: ResourceId) -> i128 {
        let leaving = self.leaving.get(&spot).map_or(0, |leaving| leaving.get(resource));
        self.used(spot, resource) - leaving
    }

    /// What is free, and what will be when all that is leaving has left.
    pub(super) fn coming(&self, resource: ResourceId) -> i128 {
        self.capacity.get(resource) - self.load.get(resource) + self.leaving_load.get(resource)
    }

    /// Takes in that a charged pod is leaving that takes from the capacity.
    pub(super) fn leave(&mut self, spots: Vec<Spot>, cost: &Vector) {
        self.leaving_load.add(cost);
        for spot in spots {
            self.leaving.entry(spot).or_default().add(cost);
        }
    }

    pub(super) fn uses_anything(&self, spot: Spot) -> bool {
        self.usage.get(&spot).is_some_and(|usage| usage.iter().any(|(_, used)| used != 0))
    }
}

impl Reference {
    pub(in super::super) fn books(&self) -> Books {
        let mut books = Books { capacity: self.capacity(), ..Books::default() };
        for (id, pod) in self.pods.iter().filter(|(_, pod)| self.is_charged(pod)) {
            let spots = self.payers(pod.config.group);
            if self.is_leaving(id) {
                if self.takes_capacity(pod) {
                    books.leaving_load.add(&pod.config.cost);
                }
                for &spot in &spots {
                    books.leaving.entry(spot).or_default().add(&pod.config.cost);
                }
            }
            if let Some(node) = pod.config.node().or(pod.planned) {
                books.on_nodes.entry(node).or_default().add(&pod.config.cost);
            }
            if self.takes_capacity(pod) {
                books.load.add(&pod.config.cost);
                if spots.is_empty() {
                    books.stray.add(&pod.config.cost);
                }
            }
            for spot in spots {
                books.usage.entry(spot).or_default().add(&pod.config.cost);
            }
        }
        let one = [(ResourceId::GROUPS, 1)].into_iter().collect();
        for group in self.charged_groups() {
            for spot in self.payers(group) {
                books.usage.entry(spot).or_default().add(&one);
            }
        }
        books
    }

    fn capacity(&self) -> Vector {
        let mut capacity = Vector::default();
        for (id, node) in self.nodes.iter().filter(|(_, node)| is_usable(node)) {
            let foreign = self.foreign.get(id).cloned().unwrap_or_default();
            let left = |(r, amount): (_, i128)| (r, (amount - foreign.get(r)).max(0));
            capacity.add(&node.allocatable.iter().map(left).collect());
        }
        capacity
    }

    /// Whether a pod costs anything now.
    pub(in super::super) fn is_charged(&self, pod: &Pod) -> bool {
        match pod.config.state {
            _ if !pod.has_started() && pod.release != Release::Claimed => false,
            PodState::Ended | PodState::Dropped => false,
            PodState::Gated | PodState::Released { .. } => true,
            PodState::Bound { node, terminating } => {
                let is_dead = self.nodes.get(&node).is_some_and(|node| !node.ready);
                !self.gone.contains(&node) && (!terminating || !is_dead)
            }
        }
    }

    /// Whether a pod is on its way out, if it is charged.
    pub(in super::super) fn is_leaving(&self, id: &PodId) -> bool {
        let is_deleted =
            matches!(self.pods[id].config.state, PodState::Bound { terminating: true, .. });
        is_deleted || self.evicting.contains(id)
    }

    pub(super) fn takes_capacity(&self, pod: &Pod) -> bool {
        pod.config.node().is_none_or(|node| self.nodes.get(&node).is_some_and(is_usable))
    }

    pub(in super::super) fn charged_groups(&self) -> BTreeSet<GroupId> {
        self.pods.values().filter(|pod| self.is_charged(pod)).map(|pod| pod.config.group).collect()
    }

    /// The queue that a group's charges go to, be it in the tree or not.
    pub(super) fn payer(&self, group: GroupId) -> Option<QueueId> {
        match self.groups.get(&group)?.config.queue {
            Assignment::Queue(queue) | Assignment::Forbidden(queue, _) => Some(queue),
            Assignment::Unresolved | Assignment::Unnamed => None,
        }
    }

    /// All places that a group's charges count at; none where its queue is not in the tree.
    pub(super) fn payers(&self, group: GroupId) -> Vec<Spot> {
        self.payer(group).map_or(Vec::new(), |queue| self.spots(queue))
    }

    /// The line of a queue, the queue itself, and those above it; none out of the tree.
    pub(super) fn spots(&self, queue: QueueId) -> Vec<Spot> {
        let Some(path) = self.path(queue) else { return Vec::new() };
        [Spot::Line(queue)].into_iter().chain(path.into_iter().map(Spot::Queue)).collect()
    }

    /// The queue itself and those above it, up to the root; none out of the tree.
    pub(in super::super) fn path(&self, queue: QueueId) -> Option<Vec<QueueId>> {
        let mut path = Vec::new();
        let mut next = Some(queue);
        while let Some(id) = next {
            let config = self.queues.get(&id).filter(|config| !config.malformed)?;
            if path.contains(&id) {
                return None;
            }
            path.push(id);
            next = config.parent;
        }
        Some(path)
    }

    /// Whether a queue is in the tree and not stopped.
    pub(in super::super) fn is_open(&self, queue: QueueId) -> bool {
        self.path(queue).is_some_and(|path| path.iter().all(|id| !self.queues[id].hold))
    }

    /// The children of a queue, or those of the root.
    pub(super) fn children(&self, above: Option<QueueId>) -> Vec<Spot> {
        let line = above.map(Spot::Line);
        let below = self.queues.iter().filter(|(_, queue)| queue.parent == above);
        let below = below.filter(|&(&id, _)| self.path(id).is_some());
        line.into_iter().chain(below.map(|(&id, _)| Spot::Queue(id))).collect()
    }
}

pub(super) fn is_usable(node: &NodeConfig) -> bool {
    node.ready && node.schedulable
}

//! Nodes: what they add to the capacity, and whether any is large enough for a pod.

use std::collections::{BTreeMap, BTreeSet};

use super::amounts::{Amounts, Axes};
use super::event::NodeConfig;
use super::model::{NodeId, Vector};
use super::reason::Shortage;
use super::shapes::{ShapeId, Shapes};

/// Every node that is there, or is named by a pod or by foreign load.
#[derive(Debug, Default)]
pub(super) struct Fleet {
    nodes: BTreeMap<NodeId, Node>,
    /// How many known nodes have exactly this.
    profiles: BTreeMap<Vector, u32>,
    /// Profiles of which no other has at least as much of everything; built when asked for.
    largest: Option<Vec<Vector>>,
    /// Nodes that exist.
    pub(super) known: u32,
    /// Nodes that are ready and schedulable.
    pub(super) usable: u32,
    /// Allocatable of usable nodes less foreign requests.
    pub(super) capacity: Amounts,
}

#[derive(Debug, Default)]
pub(super) struct Node {
    pub(super) config: NodeConfig,
    pub(super) foreign: Vector,
    /// Slots of the pods on it.
    pub(super) pods: BTreeSet<u32>,
    pub(super) known: bool,
    /// Its object was there and is not any more.
    pub(super) gone: bool,
}

impl Node {
    pub(super) fn usable(&self) -> bool {
        self.known && self.config.ready && self.config.schedulable
    }

    /// What is free on it if none of our pods are there.
    pub(super) fn free(&self, axes: &Axes) -> Amounts {
        let mut free = Amounts::default();
        for (axis, amount) in axes.project(&self.offer()) {
            *free.at(axis) = amount;
        }
        free
    }

    /// What this node adds to the capacity: never negative, however much is foreign.
    fn offer(&self) -> Vector {
        if !self.usable() {
            return Vector::default();
        }
        let allocatable = self.config.allocatable.iter();
        allocatable.map(|(r, amount)| (r, (amount - self.foreign.get(r)).max(0))).collect()
    }
}

impl Fleet {
    pub(super) fn get(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(&id)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        self.nodes.iter().map(|(&id, node)| (id, node))
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Takes a node's object in. The axes know its resources already.
    pub(super) fn learn(&mut self, axes: &Axes, id: NodeId, config: NodeConfig) {
        self.change(axes, id, |node| {
            node.config = config;
            (node.known, node.gone) = (true, false);
        });
    }

    pub(super) fn set_foreign(&mut self, axes: &Axes, id: NodeId, foreign: Vector) {
        self.change(axes, id, |node| node.foreign = foreign);
    }

    pub(super) fn lose(&mut self, axes: &Axes, id: NodeId) {
        self.change(axes, id, |node| {
            (node.known, node.gone) = (false, true);
            node.foreign = Vector::default();
        });
    }

    /// Forgets a node that is neither known nor needed.
    pub(super) fn tidy(&mut self, id: NodeId) {
        if self.nodes.get(&id).is_some_and(|node| !node.known && node.pods.is_empty()) {
            self.nodes.remove(&id);
        }
    }

    pub(super) fn put(&mut self, id: NodeId, pod: u32) {
        self.nodes.entry(id).or_default().pods.insert(pod);
    }

    pub(super) fn take(&mut self, id: NodeId, pod: u32) {
        if let Some(node) = self.nodes.get_mut(&id) {
            node.pods.remove(&pod);
        }
        self.tidy(id);
    }

    fn change(&mut self, axes: &Axes, id: NodeId, change: impl FnOnce(&mut Node)) {
        let node = self.nodes.entry(id).or_default();
        let before = (node.offer(), node.known, node.usable());
        let profile = node.known.then(|| node.config.allocatable.clone());
        change(node);
        let after = (node.offer(), node.known, node.usable());
        let new_profile = node.known.then(|| node.config.allocatable.clone());
        for (axis, amount) in axes.project(&before.0) {
            *self.capacity.at(axis) -= amount;
        }
        for (axis, amount) in axes.project(&after.0) {
            *self.capacity.at(axis) += amount;
        }
        self.known = self.known - u32::from(before.1) + u32::from(after.1);
        self.usable = self.usable - u32::from(before.2) + u32::from(after.2);
        if profile != new_profile {
            self.count(profile, new_profile);
        }
    }

    fn count(&mut self, before: Option<Vector>, after: Option<Vector>) {
        if let Some(profile) = before
            && let Some(nodes) = self.profiles.get_mut(&profile)
        {
            *nodes -= 1;
            if *nodes == 0 {
                self.profiles.remove(&profile);
                self.largest = None;
            }
        }
        if let Some(profile) = after {
            let nodes = self.profiles.entry(profile).or_default();
            *nodes += 1;
            if *nodes == 1 {
                self.largest = None;
            }
        }
    }

    /// Adds the capacity up again after an axis was added.
    pub(super) fn project(&mut self, axes: &Axes) {
        self.capacity.clear();
        for node in self.nodes.values() {
            for (axis, amount) in axes.project(&node.offer()) {
                *self.capacity.at(axis) += amount;
            }
        }
    }

    /// Whether what is the largest may have changed since it was last asked for.
    pub(super) fn is_resized(&self) -> bool {
        self.largest.is_none()
    }

    /// Finds the largest profiles again.
    pub(super) fn resize(&mut self) {
        let mut largest: Vec<Vector> = Vec::new();
        for profile in self.profiles.keys().rev() {
            if !largest.iter().any(|larger| covers(larger, profile)) {
                largest.retain(|smaller| !covers(profile, smaller));
                largest.push(profile.clone());
            }
        }
        self.largest = Some(largest);
    }

    /// Whether some node, be it cordoned or not ready now, is large enough.
    pub(super) fn holds(&self, shapes: &Shapes, shape: ShapeId) -> bool {
        let cost = &shapes.get(shape).cost;
        self.known == 0 || self.largest.iter().flatten().any(|profile| cost.fits(profile))
    }

    /// What the node that comes nearest lacks for a pod, if none is large enough.
    pub(super) fn nearest_miss(&self, cost: &Vector) -> Option<Shortage> {
        let mut nearest: Option<(usize, Shortage)> = None;
        for node in self.nodes.values().filter(|node| node.known) {
            let room = &node.config.allocatable;
            let mut misses = cost.iter().filter(|&(r, need)| need > 0 && need > room.get(r));
            let (resource, need) = misses.next()?;
            let most = room.get(resource);
            let count = 1 + misses.count();
            if nearest.is_none_or(|(least, _)| count < least) {
                nearest = Some((count, Shortage { resource, need, used: 0, most }));
            }
        }
        nearest.map(|(_, shortage)| shortage)
    }
}

/// Whether one has at least as much of everything as the other.
fn covers(larger: &Vector, smaller: &Vector) -> bool {
    smaller.iter().all(|(resource, amount)| amount <= larger.get(resource))
}

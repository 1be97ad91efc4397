//! Nodes, and what pods on them take that no queue pays for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::engine::event::{Event, Input, Name, NodeConfig};
use crate::engine::{ClusterId, NodeId, TopologyId, Vector};

use super::super::facts::NodeFacts;
use super::domains::Domains;
use super::intern::Resources;

/// Every node that exists or that a pod names.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    ids: BTreeMap<Arc<str>, NodeId>,
    table: BTreeMap<NodeId, Node>,
    domains: Domains,
    next: u32,
    /// Nodes whose foreign sum may have changed.
    dirty: BTreeSet<NodeId>,
}

#[derive(Debug, Default)]
struct Node {
    name: Arc<str>,
    /// As last told; `None` while there is no such object.
    config: Option<NodeConfig>,
    /// Pods that name it.
    users: usize,
    foreign: Vector,
    foreign_told: Vector,
}

impl Nodes {
    pub fn applied(
        &mut self,
        cluster: ClusterId,
        facts: &NodeFacts,
        resources: &mut Resources,
        out: &mut Vec<Input>,
    ) {
        let id = self.id(&facts.name, out);
        let config = NodeConfig {
            cluster,
            allocatable: resources.vector(&facts.allocatable, out),
            ready: facts.ready,
            schedulable: facts.schedulable,
            domains: self.domains.enter(&facts.domains, out),
        };
        let Some(node) = self.table.get_mut(&id) else { return };
        let before = node.config.as_ref().map(|config| config.domains.clone());
        self.domains.leave(&before.unwrap_or_default(), out);
        if node.config.as_ref() != Some(&config) {
            node.config = Some(config.clone());
            self.dirty.insert(id);
            out.push(Input::Event(Event::NodeChanged(id, config)));
        }
    }

    pub fn gone(&mut self, name: &str, out: &mut Vec<Input>) {
        let Some(&id) = self.ids.get(name) else { return };
        let Some(node) = self.table.get_mut(&id) else { return };
        if let Some(config) = node.config.take() {
            self.domains.leave(&config.domains, out);
            // The engine forgets foreign requests with the node.
            node.foreign_told = Vector::default();
            out.push(Input::Event(Event::NodeRemoved(id)));
        }
        self.forget_unused(id);
    }

    /// The number of a label key by which nodes are near each other.
    pub fn topology(&mut self, key: &Arc<str>) -> TopologyId {
        self.domains.topology(key)
    }

    /// Names of the nodes that exist.
    pub fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.table.values().filter(|node| node.config.is_some()).map(|node| &node.name)
    }

    /// The number of the node that a pod is on; the pod must [`Self::leave`] it.
    pub fn enter(&mut self, name: &Arc<str>, out: &mut Vec<Input>) -> NodeId {
        let id = self.id(name, out);
        if let Some(node) = self.table.get_mut(&id) {
            node.users += 1;
        }
        id
    }

    pub fn leave(&mut self, id: NodeId) {
        if let Some(node) = self.table.get_mut(&id) {
            node.users = node.users.saturating_sub(1);
        }
        self.forget_unused(id);
    }

    pub fn add_foreign(&mut self, id: NodeId, cost: &Vector) {
        self.change_foreign(id, |foreign| foreign.add(cost));
    }

    pub fn sub_foreign(&mut self, id: NodeId, cost: &Vector) {
        self.change_foreign(id, |foreign| foreign.sub(cost));
    }

    fn change_foreign(&mut self, id: NodeId, change: impl FnOnce(&mut Vector)) {
        let Some(node) = self.table.get_mut(&id) else { return };
        change(&mut node.foreign);
        node.foreign = node.foreign.iter().filter(|&(_, amount)| amount != 0).collect();
        self.dirty.insert(id);
    }

    /// Tells the foreign sums that changed.
    pub fn tell_foreign(&mut self, out: &mut Vec<Input>) {
        for id in std::mem::take(&mut self.dirty) {
            let Some(node) = self.table.get_mut(&id) else { continue };
            if node.config.is_some() && node.foreign != node.foreign_told {
                node.foreign_told = node.foreign.clone();
                out.push(Input::Event(Event::ForeignChanged(id, node.foreign.clone())));
            }
        }
    }

    fn id(&mut self, name: &Arc<str>, out: &mut Vec<Input>) -> NodeId {
        if let Some(&id) = self.ids.get(name) {
            return id;
        }
        self.next += 1;
        let id = NodeId(self.next);
        self.ids.insert(Arc::clone(name), id);
        self.table.insert(id, Node { name: Arc::clone(name), ..Node::default() });
        out.push(Input::Name(Name::Node(id, Arc::clone(name))));
        id
    }

    fn forget_unused(&mut self, id: NodeId) {
        let unused = |node: &&Node| node.users == 0 && node.config.is_none();
        if let Some(node) = self.table.get(&id).filter(unused) {
            self.ids.remove(&node.name);
            self.table.remove(&id);
        }
    }
}

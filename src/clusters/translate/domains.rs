//! Labels of nodes that tell which are near each other, by number.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::engine::event::{Input, Name};
use crate::engine::{DomainId, TopologyId};

/// Label keys that get a number of their own. Anybody may name one that no node has.
const MOST_TOPOLOGIES: usize = 1_000;

/// Stands for the keys beyond: no node has them.
const OTHER: TopologyId = TopologyId(u16::MAX);

/// The values that nodes have. Numbers are never used again for another value.
#[derive(Debug, Default)]
pub(super) struct Domains {
    topologies: BTreeMap<Arc<str>, TopologyId>,
    /// With how many nodes have it.
    ids: BTreeMap<(TopologyId, Arc<str>), (DomainId, usize)>,
    values: BTreeMap<DomainId, Arc<str>>,
    next: u32,
}

impl Domains {
    /// The number of a label key.
    pub fn topology(&mut self, key: &Arc<str>) -> TopologyId {
        let next = self.topologies.len();
        if let Some(&id) = self.topologies.get(key) {
            return id;
        }
        let Some(id) = u16::try_from(next).ok().filter(|_| next < MOST_TOPOLOGIES) else {
            return OTHER;
        };
        self.topologies.insert(Arc::clone(key), TopologyId(id));
        TopologyId(id)
    }

    /// The domains of a node that has these labels, sorted. It must [`Self::leave`] them.
    pub fn enter(
        &mut self,
        labels: &BTreeMap<Arc<str>, Arc<str>>,
        out: &mut Vec<Input>,
    ) -> Vec<(TopologyId, DomainId)> {
        let mut domains = Vec::new();
        for (key, value) in labels {
            let topology = self.topology(key);
            if topology != OTHER {
                domains.push((topology, self.enter_one(topology, key, value, out)));
            }
        }
        domains.sort_unstable();
        domains
    }

    fn enter_one(
        &mut self,
        topology: TopologyId,
        key: &Arc<str>,
        value: &Arc<str>,
        out: &mut Vec<Input>,
    ) -> DomainId {
        let named = (topology, Arc::clone(value));
        if let Some((id, nodes)) = self.ids.get_mut(&named) {
            *nodes += 1;
            return *id;
        }
        self.next += 1;
        let id = DomainId(self.next);
        self.ids.insert(named, (id, 1));
        self.values.insert(id, Arc::clone(value));
        out.push(Input::Name(Name::Domain(id, Some((Arc::clone(key), Arc::clone(value))))));
        id
    }

    /// Forgets the domains that the last node left.
    pub fn leave(&mut self, domains: &[(TopologyId, DomainId)], out: &mut Vec<Input>) {
        for &(topology, id) in domains {
            let Some(value) = self.values.get(&id).map(Arc::clone) else { continue };
            let named = (topology, value);
            let Some((_, nodes)) = self.ids.get_mut(&named) else { continue };
            *nodes -= 1;
            if *nodes == 0 {
                self.ids.remove(&named);
                self.values.remove(&id);
                out.push(Input::Name(Name::Domain(id, None)));
            }
        }
    }
}

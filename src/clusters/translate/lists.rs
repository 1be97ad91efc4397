//! Which lists are complete, and what a new list no longer mentions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::engine::PodId;

use super::super::facts::{Observation, Watch};

/// What identifies an object in its list.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Mention {
    Name(Arc<str>),
    Pod(PodId),
}

/// Progress of all lists.
#[derive(Debug, Default)]
pub(super) struct Lists {
    running: BTreeMap<Watch, BTreeSet<Mention>>,
    complete: BTreeSet<Watch>,
}

impl Lists {
    pub fn start(&mut self, watch: Watch) {
        self.running.insert(watch, BTreeSet::new());
    }

    /// Notes what an observation mentions, if its list is running.
    pub fn note(&mut self, observation: &Observation) {
        let (watch, mention) = match observation {
            Observation::Namespace(it) => (Watch::Namespaces, Mention::Name(it.name.clone())),
            Observation::Node(it) => (Watch::Nodes, Mention::Name(it.name.clone())),
            Observation::Queue(it) => (Watch::Queues, Mention::Name(it.name.clone())),
            Observation::ManagedPod(it) => (Watch::ManagedPods, Mention::Pod(it.id)),
            Observation::OtherPod(it) => (Watch::OtherPods, Mention::Pod(it.id)),
            _ => return,
        };
        if let Some(mentioned) = self.running.get_mut(&watch) {
            mentioned.insert(mention);
        }
    }

    /// Ends a list; what it mentioned.
    pub fn finish(&mut self, watch: Watch) -> BTreeSet<Mention> {
        self.complete.insert(watch);
        self.running.remove(&watch).unwrap_or_default()
    }

    /// Every list was complete once.
    pub fn all_complete(&self) -> bool {
        self.complete.len() == Watch::ALL.len()
    }
}

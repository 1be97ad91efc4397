//! Queues: their configuration for the engine, and whose work may use them.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::engine::event::{Event, Input, Name, QueueConfig, QueueName};
use crate::engine::{Forbidden, QueueId};

use super::super::facts::{Access, QueueFacts};
use super::intern::{QueueNames, Resources};
use super::tally::Tally;

/// Every queue that exists, and the numbers of all that are named.
#[derive(Debug, Default)]
pub(super) struct Queues {
    names: QueueNames,
    table: BTreeMap<Arc<str>, QueueFacts>,
}

impl Queues {
    /// Tells a queue's identity and configuration; false when neither changed.
    pub fn applied(
        &mut self,
        facts: QueueFacts,
        resources: &mut Resources,
        out: &mut Vec<Input>,
    ) -> bool {
        if self.table.get(&facts.name) == Some(&facts) {
            return false;
        }
        if let Some(why) = &facts.malformed {
            tracing::warn!(queue = %facts.name, why = %why, "queue_unreadable");
        }
        let id = self.names.id(&facts.name, true, out);
        let object = Some((Arc::clone(&facts.uid), facts.generation));
        let name = QueueName { name: Arc::clone(&facts.name), object };
        out.push(Input::Name(Name::Queue(id, name)));
        let config = QueueConfig {
            parent: facts.parent.as_ref().map(|parent| self.id(parent, out)),
            weight: facts.weight,
            guaranteed: resources.vector(&facts.guaranteed, out),
            lendable: resources.vector(&facts.lendable, out),
            limit: resources.vector(&facts.limit, out),
            order: facts.order,
            growth: facts.growth,
            half_life: facts.half_life,
            hold: facts.hold,
            drain: facts.drain,
            malformed: facts.malformed.is_some(),
            max_pending: facts.max_pending,
            max_running: facts.max_running,
            preemption: facts.preemption,
            placement: facts.placement,
        };
        out.push(Input::Event(Event::QueueChanged(id, config)));
        self.table.insert(Arc::clone(&facts.name), facts);
        true
    }

    /// Tells that a queue is gone; false when it was not there.
    pub fn gone(&mut self, name: &Arc<str>, out: &mut Vec<Input>) -> bool {
        if self.table.remove(name).is_none() {
            return false;
        }
        let id = self.names.id(name, true, out);
        out.push(Input::Event(Event::QueueRemoved(id)));
        let name = QueueName { name: Arc::clone(name), object: None };
        out.push(Input::Name(Name::Queue(id, name)));
        true
    }

    /// The number of a queue that may or may not exist.
    pub fn id(&mut self, name: &Arc<str>, out: &mut Vec<Input>) -> QueueId {
        let exists = self.table.contains_key(name);
        self.names.id(name, exists, out)
    }

    /// Names of the queues that exist.
    pub fn existing(&self) -> impl Iterator<Item = &Arc<str>> {
        self.table.keys()
    }

    /// Why work of these classes from a namespace with these labels may not use a queue.
    pub fn forbids(
        &self,
        name: &str,
        labels: &BTreeMap<String, String>,
        classes: &Tally<Option<Arc<str>>>,
    ) -> Option<Forbidden> {
        let Access { namespaces, priority_classes } = &self.table.get(name)?.access;
        if namespaces.as_ref().is_some_and(|selector| !selector.matches(labels)) {
            return Some(Forbidden::Namespace);
        }
        let allowed = |class: &Option<Arc<str>>| {
            class
                .as_ref()
                .is_some_and(|class| priority_classes.iter().any(|name| **name == **class))
        };
        let restricted = !priority_classes.is_empty();
        (restricted && !classes.kinds().all(allowed)).then_some(Forbidden::PriorityClass)
    }
}

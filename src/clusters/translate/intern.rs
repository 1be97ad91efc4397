//! Names to the engine's numbers. Numbers are never used again for another name.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::engine::event::{Input, Name, QueueName};
use crate::engine::{QueueId, ResourceId, Vector};

/// Resource names that get a number of their own. Anybody may invent resource
/// names; those beyond share one number.
const MOST_RESOURCES: u16 = 1_000;
/// What the resources beyond are called.
const OTHER_RESOURCES: &str = "other resources";
/// Queue names without a `Queue` object that get a number of their own. Anybody
/// may invent queue names in labels; those beyond share one number.
const MOST_UNKNOWN_QUEUES: u32 = 100_000;

/// Numbers of resources.
#[derive(Debug)]
pub(super) struct Resources {
    ids: BTreeMap<Arc<str>, ResourceId>,
    most: u16,
}

impl Default for Resources {
    fn default() -> Self {
        Self { ids: BTreeMap::new(), most: MOST_RESOURCES }
    }
}

impl Resources {
    /// An amount of each resource by number; says the names it meets first to `out`.
    pub fn vector(&mut self, amounts: &BTreeMap<String, i128>, out: &mut Vec<Input>) -> Vector {
        amounts.iter().map(|(name, &amount)| (self.id(name, out), amount)).collect()
    }

    fn id(&mut self, name: &str, out: &mut Vec<Input>) -> ResourceId {
        if self.ids.is_empty() {
            let known = [ResourceId::CPU, ResourceId::MEMORY, ResourceId::PODS, ResourceId::GROUPS];
            for (name, id) in ["cpu", "memory", "pods", "groups"].into_iter().zip(known) {
                self.number(name, id, out);
            }
        }
        if let Some(&id) = self.ids.get(name) {
            return id;
        }
        match u16::try_from(self.ids.len()) {
            Ok(next) if next < self.most => self.number(name, ResourceId(next), out),
            _ if self.ids.contains_key(OTHER_RESOURCES) => ResourceId(self.most),
            _ => self.number(OTHER_RESOURCES, ResourceId(self.most), out),
        }
    }

    fn number(&mut self, name: &str, id: ResourceId, out: &mut Vec<Input>) -> ResourceId {
        let name: Arc<str> = name.into();
        out.push(Input::Name(Name::Resource(id, Arc::clone(&name))));
        self.ids.insert(name, id);
        id
    }
}

/// Numbers of queue names.
#[derive(Debug, Default)]
pub(super) struct QueueNames {
    ids: BTreeMap<Arc<str>, QueueId>,
    crowd: Option<QueueId>,
}

impl QueueNames {
    /// The number of a name, said to `out` when it is new. `exists` when there is such a queue.
    pub fn id(&mut self, name: &Arc<str>, exists: bool, out: &mut Vec<Input>) -> QueueId {
        if let Some(&id) = self.ids.get(name) {
            return id;
        }
        let next = u32::try_from(self.ids.len()).unwrap_or(u32::MAX).saturating_add(1);
        if next > MOST_UNKNOWN_QUEUES && !exists {
            return *self.crowd.get_or_insert_with(|| {
                out.push(named(QueueId(0), "a queue that does not exist".into()));
                QueueId(0)
            });
        }
        self.ids.insert(Arc::clone(name), QueueId(next));
        out.push(named(QueueId(next), Arc::clone(name)));
        QueueId(next)
    }
}

fn named(id: QueueId, name: Arc<str>) -> Input {
    Input::Name(Name::Queue(id, QueueName { name, object: None }))
}

//! Queue statuses: written when they differ from what was last written.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::engine::action::{Action, QueueStatus};
use crate::engine::{Engine, QueueSummary, Vector};
use crate::view::{Names, View};

/// What was last handed to the writer, by queue.
#[derive(Debug, Default)]
pub(super) struct Statuses {
    last: BTreeMap<Arc<str>, QueueStatus>,
}

impl Statuses {
    pub(super) fn changed(&mut self, view: &View, engine: &Engine, names: &Names) -> Vec<Action> {
        self.last.retain(|name, _| view.queues.get(name).is_some_and(|row| row.exists));
        let mut actions = Vec::new();
        for queue in engine.queues() {
            let Some(status) = status(view, engine, names, &queue) else { continue };
            if self.last.get(&status.name) != Some(&status) {
                self.last.insert(status.name.clone(), status.clone());
                actions.push(Action::QueueStatus(status));
            }
        }
        actions
    }
}

fn status(
    view: &View,
    engine: &Engine,
    names: &Names,
    queue: &QueueSummary,
) -> Option<QueueStatus> {
    let known = names.queue(queue.id);
    let (uid, generation) = known.object?;
    let row = view.queues.get(&known.name)?;
    Some(QueueStatus {
        name: known.name,
        uid,
        generation,
        pending: row.pending,
        running: row.running,
        usage: by_name(names, &queue.usage),
        share: row.share_per_mille,
        oldest: row.oldest,
        ready: row.problem.clone().map_or(Ok(()), Err),
        releasing: row.paused.map_or(Ok(()), Err),
        over_limit: over_limit(queue, names),
        beyond_capacity: beyond_capacity(queue, engine, names),
    })
}

fn by_name(names: &Names, vector: &Vector) -> BTreeMap<Arc<str>, i128> {
    vector
        .iter()
        .filter(|&(_, units)| units != 0)
        .map(|(id, units)| (names.resource(id), units))
        .collect()
}

/// A sentence when more is charged than a limit, lowered since, allows.
fn over_limit(queue: &QueueSummary, names: &Names) -> Option<String> {
    let config = queue.config.as_ref()?;
    let parts = above(&queue.usage, &config.limit, names);
    (!parts.is_empty()).then(|| format!("in use: {parts}"))
}

/// A sentence when more is guaranteed than there is to share out.
fn beyond_capacity(queue: &QueueSummary, engine: &Engine, names: &Names) -> Option<String> {
    let config = queue.config.as_ref()?;
    let there_is = |(id, _)| (id, engine.capacity().get(id));
    let parts = above(&config.guaranteed, &config.guaranteed.iter().map(there_is).collect(), names);
    (!parts.is_empty()).then(|| format!("guaranteed, of what all queues can share now: {parts}"))
}

/// `3 of 2 cpu, ...`: the resources of which `asked` is more than a `most` that mentions them.
fn above(asked: &Vector, most: &Vector, names: &Names) -> String {
    let parts: Vec<String> = most
        .iter()
        .filter(|&(id, most)| asked.get(id) > most)
        .map(|(id, most)| names.part(id, asked.get(id), most))
        .collect();
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::event::{Event, Name, NodeConfig, QueueConfig};
    use crate::engine::{ClusterId, NodeId, QueueId, ResourceId};

    const GPU: ResourceId = ResourceId(7);

    fn names() -> Names {
        let mut names = Names::default();
        for (id, name) in [(ResourceId::CPU, "cpu"), (GPU, "nvidia.com/gpu")] {
            names.learn(Name::Resource(id, name.into()));
        }
        names
    }

    fn amounts(cpu: i128, gpu: i128) -> Vector {
        [(ResourceId::CPU, cpu), (GPU, gpu)].into_iter().collect()
    }

    fn queue(guaranteed: Vector, limit: Vector, usage: Vector) -> QueueSummary {
        QueueSummary {
            id: QueueId(1),
            config: Some(QueueConfig { guaranteed, limit, ..QueueConfig::default() }),
            problem: None,
            usage,
            share_per_mille: 0,
            line: vec![],
        }
    }

    #[test]
    fn what_is_over_a_limit_is_told_in_one_unit() {
        let queue = queue(Vector::default(), amounts(2_000, 4), amounts(2_500, 4));
        let said = over_limit(&queue, &names());
        assert_eq!(said.as_deref(), Some("in use: 2500m of 2000m cpu"));
        let within = QueueSummary { usage: amounts(2_000, 4), ..queue };
        assert_eq!(over_limit(&within, &names()), None);
    }

    #[test]
    fn more_guaranteed_than_there_is_is_told_until_there_is_enough() {
        let mut engine = Engine::default();
        let queue = queue(amounts(4_000, 8), Vector::default(), Vector::default());
        let said = |engine: &Engine| beyond_capacity(&queue, engine, &names());
        let nothing =
            "guaranteed, of what all queues can share now: 4 of 0 cpu, 8 of 0 nvidia.com/gpu";
        assert_eq!(said(&engine).as_deref(), Some(nothing));
        let allocatable = amounts(4_000, 8);
        let node =
            NodeConfig { cluster: ClusterId(0), allocatable, ready: true, schedulable: true };
        engine.apply(0, Event::NodeChanged(NodeId(1), node));
        assert_eq!(said(&engine), None);
    }
}

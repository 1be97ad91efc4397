//! What both schedulers show of their books.

use std::collections::{BTreeMap, BTreeSet};

use super::super::model::{Assignment, GroupId, QueueId, ResourceId, Vector};
use super::super::reference::{Reference, Spot};
use super::super::{Engine, GroupSummary, QueueSummary};

/// Without what is zero or empty.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in super::super) struct Seen {
    capacity: Vector,
    /// Of queues in the tree.
    usage: BTreeMap<QueueId, Vector>,
    /// Groups of which something waits, in order.
    lines: BTreeMap<QueueId, Vec<GroupId>>,
    /// Groups that have nothing to say of why they wait.
    silent: Vec<GroupId>,
    /// Where everything is shown: groups, and why they wait; queues; which are full.
    everything: Option<(Vec<GroupSummary>, Vec<QueueSummary>, BTreeSet<QueueId>)>,
}

impl Seen {
    pub(super) fn of_reference(reference: &Reference) -> Self {
        let books = reference.without_claims().books();
        let usage = books.usage.iter().filter_map(|(&spot, usage)| match spot {
            Spot::Queue(queue) => Some((queue, usage.clone())),
            Spot::Line(_) => None,
        });
        let mut lines = BTreeMap::<_, Vec<GroupId>>::new();
        for (&id, group) in &reference.groups {
            if let Assignment::Queue(queue) = group.config.queue
                && !reference.waiting(id).is_empty()
            {
                lines.entry(queue).or_default().push(id);
            }
        }
        for line in lines.values_mut() {
            line.sort_by_key(|&id| reference.place(id));
        }
        let usage = used(usage, &books.capacity);
        Self { capacity: without_zeros(&books.capacity), usage, lines, ..Self::default() }
    }

    pub(super) fn of_engine(engine: &Engine) -> Self {
        let queues = engine.queues();
        let in_tree = queues.iter().filter(|queue| !engine.path(queue.id).is_empty());
        let usage = in_tree.map(|queue| (queue.id, queue.usage.clone()));
        let line = |queue: &QueueSummary| (queue.id, queue.line.clone());
        let lines = queues.iter().map(line).filter(|(_, line)| !line.is_empty());
        let silent = engine
            .groups()
            .filter(|group| !group.waiting.is_empty() && group.reason.is_none())
            .map(|group| group.id);
        Self {
            usage: used(usage, &engine.capacity()),
            capacity: without_zeros(&engine.capacity()),
            lines: lines.collect(),
            silent: silent.collect(),
            everything: None,
        }
    }

    pub(super) fn everything_of(engine: &Engine) -> Self {
        let everything = (engine.groups().collect(), engine.queues(), engine.full().clone());
        Self { everything: Some(everything), ..Self::of_engine(engine) }
    }
}

/// Usage of what there is: who uses nothing is left out.
fn used(
    usage: impl Iterator<Item = (QueueId, Vector)>,
    capacity: &Vector,
) -> BTreeMap<QueueId, Vector> {
    let there_is = |&(r, amount): &(ResourceId, i128)| amount != 0 && capacity.get(r) > 0;
    let usage = usage.map(|(queue, usage)| (queue, usage.iter().filter(there_is).collect()));
    usage.filter(|(_, usage): &(_, Vector)| !usage.is_empty()).collect()
}

fn without_zeros(amounts: &Vector) -> Vector {
    amounts.iter().filter(|&(_, amount)| amount != 0).collect()
}

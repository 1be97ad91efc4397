//! Queue statuses: written when they differ from what was last written.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::engine::action::{Action, QueueStatus};
use crate::engine::{Engine, QueueSummary, Vector};
use crate::view::{Names, QueueRow, View};

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
            let Some(status) = status(view, names, &queue) else { continue };
            if self.last.get(&status.name) != Some(&status) {
                self.last.insert(status.name.clone(), status.clone());
                actions.push(Action::QueueStatus(status));
            }
        }
        actions
    }
}

fn status(view: &View, names: &Names, queue: &QueueSummary) -> Option<QueueStatus> {
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
        over_limit: over_limit(row, queue, names),
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
fn over_limit(row: &QueueRow, queue: &QueueSummary, names: &Names) -> Option<String> {
    let config = queue.config.as_ref()?;
    let over = config.limit.iter().filter(|&(id, limit)| queue.usage.get(id) > limit);
    let parts: Vec<String> = over
        .map(|(id, _)| {
            let name = names.resource(id);
            let amount = |amounts: &crate::view::Amounts| {
                amounts.get(&name).cloned().unwrap_or_else(|| "0".to_owned())
            };
            format!("{} of {} {name}", amount(&row.usage), amount(&row.limit))
        })
        .collect();
    (!parts.is_empty()).then(|| format!("in use: {}", parts.join(", ")))
}

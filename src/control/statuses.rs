//! Queue statuses: written when they differ from what was last written.
//!
//! What admission goes by, whose new pods to refuse while a backlog is full, is written
//! without waiting for a second to pass and told again while it holds: admission stops
//! refusing when it hears nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::engine::action::{Action, Full, PastUsage, QueueStatus};
use crate::engine::event::Used;
use crate::engine::{Engine, Millis, QueueId, QueueSummary, Vector};
use crate::view::{Names, View};

use super::backlog;

/// Shortest time between two looks at all queues.
const EVERY: Millis = 1_000;
/// The same when a backlog is full, or has just become so or ceased to be.
const EVERY_FULL: Millis = 100;
/// Shortest time between two times at which it is said what was used before: that changes all
/// the time.
const PAST_EVERY: Millis = 30_000;
/// What it is at least for each queue of which it is said: five writes a second.
const PAST_A_QUEUE: Millis = 200;
/// Waiting pods that can be gone through in a millisecond without anybody noticing.
const PODS_A_MILLI: u64 = 100;

/// What was last handed to the writer, by queue.
#[derive(Debug, Default)]
pub(super) struct Statuses {
    last: BTreeMap<Arc<str>, QueueStatus>,
    /// Queues that were full when last looked at.
    full: BTreeSet<QueueId>,
    due: bool,
    looked: Option<Millis>,
    /// When it was last said what was used before.
    remembered: Option<Millis>,
}

impl Statuses {
    /// Something has changed.
    pub(super) fn due(&mut self) {
        self.due = true;
    }

    /// The statuses to be written now, if it is time.
    pub(super) fn write(
        &mut self,
        now: Millis,
        view: &View,
        engine: &Engine,
        names: &Names,
    ) -> Vec<Action> {
        let turned = *engine.full() != self.full;
        let due = self.due || turned || !self.full.is_empty() || self.is_past_due(now, engine);
        let next = self.looked.map_or(now, |looked| looked + self.pause(turned, engine));
        if !view.leads || !due || now < next {
            return Vec::new();
        }
        self.due = false;
        self.looked = Some(now);
        self.full.clone_from(engine.full());
        self.changed(now, view, engine, names)
    }

    /// Whether what was used before is to be said again.
    fn is_past_due(&self, now: Millis, engine: &Engine) -> bool {
        let queues = i64::try_from(engine.remembered()).unwrap_or(i64::MAX);
        let every = PAST_EVERY.max(queues.saturating_mul(PAST_A_QUEUE));
        queues > 0 && self.remembered.is_none_or(|last| now >= last.saturating_add(every))
    }

    fn pause(&self, turned: bool, engine: &Engine) -> Millis {
        if turned {
            return EVERY_FULL;
        }
        if self.full.is_empty() {
            return EVERY;
        }
        let pods: u64 = self.full.iter().map(|&queue| engine.pending(queue)).sum();
        EVERY_FULL + i64::try_from(pods / PODS_A_MILLI).unwrap_or(EVERY)
    }

    fn changed(&mut self, now: Millis, view: &View, engine: &Engine, names: &Names) -> Vec<Action> {
        self.last.retain(|name, _| view.queues.get(name).is_some_and(|row| row.exists));
        let mut actions = Vec::new();
        let mut used = BTreeMap::new();
        let says_past = self.is_past_due(now, engine);
        if says_past {
            (used, self.remembered) = (engine.used(), Some(now));
        }
        for queue in engine.queues() {
            let full = self.full.contains(&queue.id);
            let full = full.then(|| backlog::full(now, engine, names, queue.id));
            let Some(mut status) = status(view, engine, names, &queue, full) else { continue };
            let last = self.last.get(&status.name);
            status.past = if says_past {
                used.remove(&queue.id).map(|used| past(names, &used))
            } else {
                last.and_then(|last| last.past.clone())
            };
            if last != Some(&status) {
                let known = last.and_then(|last| last.full.as_ref());
                let urgent = backlog::is_news(status.full.as_ref(), known);
                self.last.insert(status.name.clone(), status.clone());
                let status = Box::new(QueueStatus { urgent, ..status });
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
    full: Option<Full>,
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
        entitlement: by_name(names, &queue.entitled),
        past: None,
        share: row.share_per_mille,
        oldest: row.oldest,
        ready: row.problem.clone().map_or(Ok(()), Err),
        releasing: row.paused.map_or(Ok(()), Err),
        over_limit: over_limit(queue, names),
        beyond_capacity: beyond_capacity(queue, engine, names),
        max_pending: queue.config.as_ref().and_then(|config| config.max_pending),
        full,
        urgent: false,
    })
}

fn past(names: &Names, used: &Used) -> PastUsage {
    let [whole, own] = [&used.whole, &used.own].map(|amounts| by_name(names, amounts));
    PastUsage { at: used.at, whole, own }
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
mod tests;

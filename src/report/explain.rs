//! Rows of the view as the objects that the visibility API serves.
//!
//! A rendering: every number and sentence was published by the control loop. What
//! is said of queues is numbers only, so an explanation never names an object of
//! another namespace.

use std::sync::Arc;

use crate::view::{Amounts, GroupRow, PodRow, QueueRow, View};

use super::age::rfc3339;
use super::visibility::objects::{
    self, Counts, EXPLANATION_KIND, Explanation, GROUP_KIND, Group, Held, Metadata, Pod, Problem,
    Quantities, QueueStep, Root, Wait, Work,
};

/// Queues shown between a group and the top of the tree.
const DEPTH: usize = 32;

/// A group as the API lists it. `namespace` is that of its pods.
#[must_use]
pub fn group(namespace: &str, row: &GroupRow) -> Group {
    Group {
        api_version: objects::api_version(),
        kind: GROUP_KIND.to_owned(),
        metadata: metadata(namespace, row),
        work: work(row),
    }
}

/// Why a group is where it is.
#[must_use]
pub fn explanation(view: &View, namespace: &str, row: &GroupRow) -> Explanation {
    Explanation {
        api_version: objects::api_version(),
        kind: EXPLANATION_KIND.to_owned(),
        metadata: metadata(namespace, row),
        work: work(row),
        queue_path: queue_path(view, row.queue.as_ref()),
        capacity: quantities(&view.capacity),
        pods: row.pods.iter().map(pod).collect(),
        pods_not_shown: pods_not_shown(row),
        evidence: texts(&row.who.origin.evidence),
        observed_at: rfc3339(view.time),
    }
}

fn metadata(namespace: &str, row: &GroupRow) -> Metadata {
    Metadata {
        name: row.name.to_string(),
        namespace: namespace.to_owned(),
        creation_timestamp: Some(rfc3339(row.since)),
    }
}

fn work(row: &GroupRow) -> Work {
    Work {
        root: root(row),
        chains: chains(row),
        queue: row.queue.as_deref().map(str::to_owned),
        state: row.state.as_str().to_owned(),
        min_count: row.min_count,
        priority: row.priority,
        asks: quantities(&row.asks),
        charged: quantities(&row.charged),
        counts: counts(row),
        wait: row.wait.as_ref().map(wait),
        held: row.held.as_deref().map(held),
        spared: row.spared.as_deref().map(held),
        warnings: texts(&row.who.origin.warnings),
    }
}

fn held(held: &crate::view::Held) -> Held {
    Held { reason: held.code.to_owned(), message: held.message.clone() }
}

/// With the root at least.
fn chains(row: &GroupRow) -> Vec<Vec<String>> {
    match &row.who.origin.chains[..] {
        [] => vec![vec![format!("{}/{}", row.who.root.kind, row.who.root.address.name)]],
        chains => chains.iter().map(|chain| texts(chain)).collect(),
    }
}

fn texts(lines: &[Arc<str>]) -> Vec<String> {
    lines.iter().map(ToString::to_string).collect()
}

fn pods_not_shown(row: &GroupRow) -> u64 {
    counts(row).total().saturating_sub(u64::try_from(row.pods.len()).unwrap_or(u64::MAX))
}

fn root(row: &GroupRow) -> Root {
    let root = &row.who.root;
    Root {
        api_version: root.api_version.to_string(),
        kind: root.kind.to_string(),
        name: root.address.name.to_string(),
        uid: root.address.uid.to_string(),
    }
}

fn counts(row: &GroupRow) -> Counts {
    let counts = row.counts;
    Counts {
        waiting: counts.waiting,
        released: counts.released,
        running: counts.running,
        ended: counts.ended,
    }
}

fn wait(wait: &crate::view::Wait) -> Wait {
    let why = &wait.why;
    Wait {
        reason: why.code.to_owned(),
        message: why.message.clone(),
        remedy: why.remedy.clone(),
        needs_action: why.needs_action,
        groups_ahead: wait.groups_ahead,
        pods_ahead: wait.pods_ahead,
    }
}

fn queue_path(view: &View, lowest: Option<&Arc<str>>) -> Vec<QueueStep> {
    let mut path: Vec<QueueStep> = Vec::new();
    let mut next = lowest;
    while let Some(name) = next {
        if path.len() == DEPTH || path.iter().any(|step| *step.name == **name) {
            break;
        }
        let Some(row) = view.queues.get(name) else {
            path.push(QueueStep { name: name.to_string(), ..QueueStep::default() });
            break;
        };
        path.push(queue_step(row));
        next = row.parent.as_ref();
    }
    path
}

fn queue_step(row: &QueueRow) -> QueueStep {
    QueueStep {
        name: row.name.to_string(),
        exists: row.exists,
        weight: row.weight,
        guaranteed: quantities(&row.guaranteed),
        limit: quantities(&row.limit),
        usage: quantities(&row.usage),
        share: percent(row.share_per_mille),
        problem: row.problem.as_ref().map(|(reason, message)| Problem {
            reason: (*reason).to_owned(),
            message: message.clone(),
        }),
    }
}

fn pod(row: &PodRow) -> Pod {
    Pod {
        name: row.name.to_string(),
        state: row.state.to_owned(),
        created: rfc3339(row.created),
        hindrance: row.hindrance.as_deref().map(str::to_owned),
    }
}

fn quantities(amounts: &Amounts) -> Quantities {
    amounts.iter().map(|(resource, amount)| (resource.to_string(), amount.clone())).collect()
}

/// Thousandths as percent with one digit after the point.
fn percent(per_mille: u64) -> String {
    format!("{}.{}%", per_mille / 10, per_mille % 10)
}

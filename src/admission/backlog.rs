//! Whose new pods are refused because too many of theirs wait already.
//!
//! Goes by the status of queues, which the controller keeps: a full queue's names direct
//! owners and namespaces. It may be late and it cuts long lists, so this is a brake and
//! no limit. What a refused pod loses is time: its controller tries again.
//!
//! A status that nobody renews is believed for [`LAPSE`] of this process's own clock, so
//! neither a dead controller nor a wrong clock refuses anybody for long.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;

use super::mutate::pods::Pod;
use crate::api::v1alpha1::{Backlog, Queue};
use crate::grouping::Above;

/// How long a status is believed after its `renewed` was seen to change: three renewals.
pub const LAPSE: Duration = Duration::from_secs(30);

/// The newest view of full backlogs. Cheap to clone; readers never wait.
#[derive(Clone, Debug, Default)]
pub struct Backlogs(Arc<ArcSwap<Known>>);

#[derive(Debug, Default)]
struct Known {
    /// By queue.
    full: BTreeMap<String, Arc<Full>>,
    /// Whose pods are refused, by uid of the owner.
    owners: BTreeMap<String, Arc<Full>>,
    /// Whose pods that nobody owns are refused, if they name no queue.
    namespaces: BTreeMap<String, Arc<Full>>,
    /// The same for the queue that such a pod names: it or one above it is full.
    queues: BTreeMap<String, Arc<Full>>,
}

#[derive(Debug)]
struct Full {
    renewed: String,
    /// When `renewed` was first seen to say that.
    seen: Instant,
    refusal: String,
}

impl Backlogs {
    /// Takes in all queues as they are stored at `now`. One caller at a time.
    pub fn observe<'a>(&self, queues: impl Iterator<Item = &'a Queue> + Clone, now: Instant) {
        let before = self.0.load();
        let mut known = Known::default();
        for (queue, name, backlog) in queues.clone().filter_map(full) {
            let full = Arc::new(before.full(queue, name, backlog, now));
            keep_fresher(&mut known.owners, &backlog.owners, &full);
            keep_fresher(&mut known.namespaces, &backlog.namespaces, &full);
            known.full.insert(name.to_owned(), full);
        }
        if !known.full.is_empty() {
            known.queues = below(queues, &known.full);
        }
        self.0.store(Arc::new(known));
    }

    /// Why a new pod is refused at `now`, as a sentence for its controller.
    pub(super) fn refuse(&self, pod: &Pod, namespace: &str, now: Instant) -> Option<String> {
        let known = self.0.load();
        let full = match (Above::from(pod.owners()), pod.queue()) {
            _ if known.full.is_empty() => None,
            (Above::Controller(owner) | Above::Only(owner), _) => known.owners.get(&*owner.uid),
            (Above::Nobody | Above::Several(_), Some(queue)) => known.queues.get(queue),
            (Above::Nobody | Above::Several(_), None) => known.namespaces.get(namespace),
        }?;
        (now.saturating_duration_since(full.seen) < LAPSE).then(|| full.refusal.clone())
    }
}

impl Known {
    fn full(&self, queue: &Queue, name: &str, backlog: &Backlog, now: Instant) -> Full {
        let before = self.full.get(name).filter(|full| full.renewed == backlog.renewed);
        let most = queue.spec.max_pending.map_or(0, |most| most.pods);
        Full {
            renewed: backlog.renewed.clone(),
            seen: before.map_or(now, |before| before.seen),
            refusal: format!(
                "the backlog of queue {name:?} is full: {} pods wait and spec.maxPending.pods is \
                 {most}; nothing is lost, try again when some of them have started",
                backlog.pods
            ),
        }
    }
}

/// A queue that says it is full. One that has no most any more is not, whatever its
/// status still says.
fn full(queue: &Queue) -> Option<(&Queue, &str, &Backlog)> {
    queue.spec.max_pending?;
    let backlog = queue.status.as_ref()?.backlog.as_ref()?;
    Some((queue, queue.metadata.name.as_deref()?, backlog))
}

/// Of two full queues that name the same, the one that was renewed last counts.
fn keep_fresher(of: &mut BTreeMap<String, Arc<Full>>, names: &[String], full: &Arc<Full>) {
    for name in names {
        let known = of.entry(name.clone()).or_insert_with(|| Arc::clone(full));
        if known.seen < full.seen {
            *known = Arc::clone(full);
        }
    }
}

/// All queues that are full or below one that is, with the freshest word of it.
fn below<'a>(
    queues: impl Iterator<Item = &'a Queue>,
    full: &BTreeMap<String, Arc<Full>>,
) -> BTreeMap<String, Arc<Full>> {
    let parents: BTreeMap<&str, Option<&str>> = queues
        .filter_map(|queue| Some((queue.metadata.name.as_deref()?, queue.spec.parent.as_deref())))
        .collect();
    let mut found = BTreeMap::new();
    for &queue in parents.keys() {
        let mut path = BTreeSet::new();
        let mut next = Some(queue);
        while let Some(above) = next.filter(|&above| path.insert(above)) {
            if let Some(full) = full.get(above) {
                keep_fresher(&mut found, &[queue.to_owned()], full);
            }
            next = parents.get(above).copied().flatten();
        }
    }
    found
}

#[cfg(test)]
mod tests;

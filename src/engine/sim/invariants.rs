//! What holds whatever happens, judged by plain sums.

use std::collections::{BTreeMap, BTreeSet};

use super::super::Decision;
use super::super::model::{Assignment, Gang, GroupId, Order, QueueId, ResourceId};
use super::super::reference::{Pod, Reference, Spot};
use super::{Log, Step, is_promised};

/// Tells the reference a log and panics when a decision breaks a promise.
pub(super) fn hold(log: &Log) {
    let mut reference = Reference::default();
    let mut nodes = BTreeSet::new();
    for (now, step) in log {
        match step {
            Step::Apply(event) if is_promised(&mut nodes, event) => {
                reference.apply(*now, event.clone());
            }
            Step::Apply(_) | Step::Rehearse(_) => {}
            Step::Tick => drop(reference.tick(*now)),
            Step::Decide(budget) => {
                let before = reference.clone();
                let decisions = reference.decide(*budget).started;
                judge(&before, &reference, &decisions);
                if *budget == usize::MAX {
                    nothing_that_fits_is_left(&reference);
                }
            }
        }
    }
}

fn judge(before: &Reference, after: &Reference, decisions: &[Decision]) {
    let mut seen = BTreeSet::new();
    let mut groups = BTreeMap::<GroupId, Vec<Decision>>::new();
    for decision in decisions {
        let pod = &before.pods[&decision.pod];
        assert!(pod.waits() && seen.insert(decision.pod), "decided twice: {decision:?}");
        assert!(pod.retry_at.is_none_or(|at| at <= before.now), "too early: {decision:?}");
        let group = &before.groups[&decision.group].config;
        assert_eq!(
            (pod.config.group, group.queue),
            (decision.group, Assignment::Queue(decision.queue))
        );
        assert!(before.is_open(decision.queue), "its queue is closed: {decision:?}");
        assert!(before.synced.contains(&group.cluster), "not synced: {decision:?}");
        assert!(!before.paused.contains(&group.cluster), "paused: {decision:?}");
        groups.entry(decision.group).or_default().push(*decision);
    }
    for (group, decisions) in groups {
        starts_whole(before, group, &decisions);
        is_alone(after, group);
    }
    limits_hold(before, after, decisions);
}

/// A gang that begins starts with at least as many as must start together.
fn starts_whole(before: &Reference, group: GroupId, decisions: &[Decision]) {
    let together = match before.groups[&group].config.gang {
        _ if before.has_begun(group) => 1,
        Gang::Units => 1,
        Gang::AtLeast(need) => usize::try_from(need).unwrap().max(1),
        Gang::All => before.waiting(group).len(),
    };
    let size = usize::try_from(decisions[0].size).unwrap();
    assert_eq!((size, decisions.len().min(size)), (together, together), "{decisions:?}");
    for (decision, number) in decisions.iter().zip(decisions[0].number..).take(together) {
        assert_eq!(decision.number, number, "something else came between: {decisions:?}");
    }
}

fn is_alone(after: &Reference, group: GroupId) {
    let config = &after.groups[&group].config;
    for other in after.charged_groups().iter().filter(|&other| *other != group) {
        let other = &after.groups[other].config;
        assert!(
            config.singleton.is_none()
                || config.singleton != other.singleton
                || config.queue != other.queue,
            "two of one singleton key: {config:?} {other:?}"
        );
    }
}

/// No decision exceeds a limit on its path or what there is.
fn limits_hold(before: &Reference, after: &Reference, decisions: &[Decision]) {
    let books = after.books();
    let charged = before.charged_groups();
    for decision in decisions {
        let mut asks = before.pods[&decision.pod].config.cost.clone();
        if !charged.contains(&decision.group) {
            asks.set(ResourceId::GROUPS, 1);
        }
        for (resource, _) in asks.iter().filter(|&(_, amount)| amount > 0) {
            let (load, capacity) = (books.load.get(resource), books.capacity.get(resource));
            assert!(resource == ResourceId::GROUPS || load <= capacity, "{resource:?}: {load}");
            for queue in after.path(decision.queue).unwrap() {
                let used = books.usage[&Spot::Queue(queue)].get(resource);
                let most = after.limit(Spot::Queue(queue)).mentioned(resource);
                assert!(most.is_none_or(|most| used <= most), "{queue:?}: {resource:?} {used}");
            }
        }
    }
}

/// Plain work that nothing forbids was not left waiting while there is room for it.
fn nothing_that_fits_is_left(after: &Reference) {
    let books = after.books();
    let charged = after.charged_groups();
    for (id, pod) in after.pods.iter().filter(|(_, pod)| pod.waits()) {
        let Some(queue) = plain(after, pod) else { continue };
        let mut asks = pod.config.cost.clone();
        if !charged.contains(&pod.config.group) {
            asks.set(ResourceId::GROUPS, 1);
        }
        let path = after.path(queue).unwrap();
        let is_short = asks.iter().filter(|&(_, ask)| ask > 0).any(|(r, ask)| {
            let over = |&queue: &QueueId| {
                let used = books.usage.get(&Spot::Queue(queue)).map_or(0, |usage| usage.get(r));
                after.limit(Spot::Queue(queue)).mentioned(r).is_some_and(|most| used + ask > most)
            };
            let is_taken = books.load.get(r) + ask > books.capacity.get(r);
            (r != ResourceId::GROUPS && is_taken) || path.iter().any(over)
        });
        let mut nodes = after.nodes.values();
        let is_wide = !nodes.any(|node| pod.config.cost.fits(&node.allocatable));
        assert!(is_short || is_wide, "there is room for {id:?}: {pod:?}");
    }
}

/// The queue of a pod that starts on its own whenever there is room.
fn plain(after: &Reference, pod: &Pod) -> Option<QueueId> {
    let group = &after.groups[&pod.config.group].config;
    let Assignment::Queue(queue) = group.queue else { return None };
    let is_plain = group.gang == Gang::Units
        && group.singleton.is_none()
        && !group.non_preemptible
        && pod.retry_at.is_none_or(|at| at <= after.now)
        && after.synced.contains(&group.cluster)
        && !after.paused.contains(&group.cluster)
        && after.is_open(queue)
        && after.queues[&queue].order == Order::BestEffort;
    is_plain.then_some(queue)
}

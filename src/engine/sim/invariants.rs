//! What holds whatever happens, judged by plain sums.

use std::collections::{BTreeMap, BTreeSet};

use super::super::event::{Event, PodConfig};
use super::super::group::COSTS_OFFERED;
use super::super::model::{
    Assignment, Gang, GroupId, Order, PodId, PodState, QueueId, Reclaim, ResourceId, Uid,
    WithinQueue,
};
use super::super::reference::{Pod, Reference, Spot};
use super::super::{Cause, Decided, Decision, Engine, Eviction};
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
                let before = reference.without_claims();
                let Decided { started, evicted } = reference.decide(*budget);
                judge(&before, &reference, &started);
                is_due(&before, &reference, &evicted);
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
    nodes_hold(after, decisions);
}

/// No node is planned to be more than full, and a group is planned into one domain.
fn nodes_hold(after: &Reference, decisions: &[Decision]) {
    let books = after.without_claims().books();
    let mut domains = BTreeMap::new();
    for decision in decisions {
        let pod = &after.pods[&decision.pod];
        let Some(id) = pod.planned else { continue };
        let foreign = after.foreign.get(&id).cloned().unwrap_or_default();
        let asked = pod.config.cost.iter().filter(|&(_, amount)| amount > 0);
        for (resource, _) in asked {
            let there = (after.nodes[&id].allocatable.get(resource) - foreign.get(resource)).max(0);
            let load = books.on_nodes[&id].get(resource);
            assert!(load <= there, "{id:?} is too full: {resource:?} {load} of {there}");
        }
        let domain = *domains.entry(decision.group).or_insert(decision.domain);
        assert_eq!(domain, decision.domain, "a group is in two domains: {decision:?}");
    }
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
    let books = after.without_claims().books();
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
    let reserved = after.reserved_offers(&after.lines());
    for (id, pod) in after.pods.iter().filter(|(_, pod)| pod.waits()) {
        let Some(queue) = plain(after, pod) else { continue };
        let mut asks = pod.config.cost.clone();
        if !charged.contains(&pod.config.group) {
            asks.set(ResourceId::GROUPS, 1);
        }
        let path = after.path(queue).unwrap();
        // What is reserved for its own group is no other offer's.
        let others = || {
            let leave = reserved.iter().filter(|(_, reach)| reach.has(&path));
            leave.map(|(offer, _)| offer).filter(|offer| !offer.pods.contains(id))
        };
        let is_short = asks.iter().filter(|&(_, ask)| ask > 0).any(|(r, ask)| {
            let over = |&queue: &QueueId| {
                let used = books.usage.get(&Spot::Queue(queue)).map_or(0, |usage| usage.get(r));
                let below = others().filter(|o| after.path(o.queue).unwrap().contains(&queue));
                let used = used + below.map(|offer| offer.need.get(r)).sum::<i128>();
                after.limit(Spot::Queue(queue)).mentioned(r).is_some_and(|most| used + ask > most)
            };
            let used = |spot| books.usage.get(&spot).map_or(0, |usage| usage.get(r));
            let held = after.withheld(queue, r, &used);
            let held = held + others().map(|offer| offer.need.get(r)).sum::<i128>();
            let is_taken = books.load.get(r) + ask > books.capacity.get(r) - held;
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
        && offers_every_cost(after, pod.config.group)
        && !after.plans(queue)
        && pod.retry_at.is_none_or(|at| at <= after.now)
        && after.synced.contains(&group.cluster)
        && !after.paused.contains(&group.cluster)
        && after.is_open(queue)
        && after.queues[&queue].order == Order::BestEffort;
    is_plain.then_some(queue)
}

/// Of a group of more different costs some have to wait for others.
fn offers_every_cost(after: &Reference, group: GroupId) -> bool {
    let waiting = after.waiting(group);
    let costs: BTreeSet<_> = waiting.iter().map(|turn| &after.pods[&turn.2].config.cost).collect();
    costs.len() <= COSTS_OFFERED
}

/// Only what may be taken is, for somebody who may take it, and no gang is cut by that.
fn is_due(before: &Reference, after: &Reference, evictions: &[Eviction]) {
    let mut groups = BTreeSet::new();
    for eviction in evictions {
        let pod = &before.pods[&eviction.pod];
        let group = &before.groups[&eviction.group].config;
        assert!(pod.has_started() && before.is_charged(pod), "nothing to take: {eviction:?}");
        assert!(!before.is_leaving(&eviction.pod), "taken twice: {eviction:?}");
        assert!(!group.non_preemptible, "not preemptible: {eviction:?}");
        assert_eq!(pod.config.group, eviction.group);
        let Cause::Claim { by, queue } = eviction.cause else {
            let path = before.path(eviction.queue).unwrap();
            assert!(path.iter().any(|queue| before.queues[queue].drain), "{eviction:?}");
            continue;
        };
        let least = before.min_runtime(eviction.group);
        let started = pod.started.expect("let go by us");
        assert!(started + least <= before.now, "taken too early: {eviction:?}");
        assert_ne!(eviction.group, by);
        let taker = before.queues[&queue].preemption;
        if eviction.queue == queue {
            assert_eq!(taker.within_queue, WithinQueue::LowerPriority, "{eviction:?}");
            let first = before.waiting(by)[0].0.0;
            assert!(pod.config.priority < first, "not of lower priority: {eviction:?}");
        } else {
            assert_ne!(taker.reclaim, Reclaim::Never, "{eviction:?}");
        }
        groups.insert(eviction.group);
    }
    for group in groups {
        let stays = after.pods.iter().filter(|(id, pod)| {
            let is_charged = pod.has_started() && after.is_charged(pod);
            pod.config.group == group && is_charged && !after.is_leaving(id)
        });
        let left = stays.count();
        let least = match before.groups[&group].config.gang {
            Gang::Units | Gang::AtLeast(0 | 1) => 0,
            Gang::AtLeast(need) => usize::try_from(need).unwrap(),
            Gang::All => usize::MAX,
        };
        assert!(left == 0 || left >= least, "{left} are left of a gang of {least}");
    }
}

/// Plays on after a log: what is evicted goes and comes back to wait, nothing else happens.
/// Returns how many pods were evicted in each of so many seconds.
pub(super) fn evicted_each_second(log: &Log, seconds: usize) -> Vec<usize> {
    let mut engine = Engine::default();
    let mut told = BTreeMap::<PodId, PodConfig>::new();
    let mut nodes = BTreeSet::new();
    let mut now = 0;
    for (at, step) in log {
        now = now.max(*at);
        let Step::Apply(event) = step else { continue };
        if is_promised(&mut nodes, event) {
            match event {
                Event::PodChanged(id, config) => drop(told.insert(*id, config.clone())),
                Event::PodRemoved(id) => drop(told.remove(id)),
                _ => {}
            }
            engine.apply(*at, event.clone());
        }
    }
    let mut next = 1_000_000;
    let mut evicted = Vec::new();
    for _ in 0..seconds {
        now += 1_000;
        engine.tick(now);
        let decided = engine.decide(usize::MAX);
        for decision in &decided.started {
            let Some(config) = told.get_mut(&decision.pod) else { continue };
            config.state = PodState::Released { held: false };
            config.started = Some(now);
            engine.apply(now, Event::PodChanged(decision.pod, config.clone()));
        }
        for eviction in &decided.evicted {
            let Some(config) = told.remove(&eviction.pod) else { continue };
            next += 1;
            let again = PodConfig { state: PodState::Gated, started: None, ..config };
            engine.apply(now, Event::PodChanged(Uid(next), again.clone()));
            told.insert(Uid(next), again);
            engine.apply(now, Event::PodRemoved(eviction.pod));
        }
        evicted.push(decided.evicted.len());
    }
    evicted
}

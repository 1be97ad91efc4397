//! What queues are entitled to, and what they get, beside answers that were worked out by others:
//! `./dev oracle` makes them by linear programming and exact fractions.

use serde::Deserialize;

use super::super::reference::{Reference, Spot};
use super::*;

mod packing;
mod shares;

#[derive(Deserialize)]
struct Case {
    capacity: i128,
    queues: Vec<Answer>,
}

#[derive(Deserialize)]
struct Answer {
    parent: Option<u32>,
    weight: u32,
    guaranteed: Option<i128>,
    limit: Option<i128>,
    /// What the queue's own groups ask, in pods of one unit.
    demand: u32,
    entitled: i128,
}

fn cases() -> Vec<Case> {
    serde_json::from_str(include_str!("../../../tests/oracle/entitlements.json")).unwrap()
}

/// Everything that is told of a case: all of it waits.
fn events(case: &Case) -> Vec<Event> {
    let mut events = vec![Event::Synced(HERE)];
    let allocatable = [(CPU, case.capacity), (PODS, 1_000_000)].into_iter().collect();
    let config = usable(allocatable);
    events.push(Event::NodeChanged(NodeId(1), config));
    for (index, queue) in (0..).zip(&case.queues) {
        let amount = |units: Option<i128>| units.map_or_else(Vector::default, cpu);
        let config = QueueConfig {
            parent: queue.parent.map(QueueId),
            weight: queue.weight,
            guaranteed: amount(queue.guaranteed),
            limit: amount(queue.limit),
            ..QueueConfig::default()
        };
        events.push(Event::QueueChanged(QueueId(index), config));
    }
    for (index, queue) in (0..).zip(&case.queues) {
        events.extend(units(index, queue.demand, &cost(1)));
    }
    events
}

/// So many pods of one group, which wait in the queue of its number.
fn units(number: u32, pods: u32, cost: &Vector) -> Vec<Event> {
    let group = GroupId(u64::from(number));
    let config = GroupConfig {
        cluster: HERE,
        root: Uid(u128::from(number)),
        queue: Assignment::Queue(QueueId(number)),
        gang: Gang::Units,
        singleton: None,
        non_preemptible: false,
        topology: None,
    };
    let pod = |at: u32| {
        let config = PodConfig {
            group,
            cost: cost.clone(),
            priority: 0,
            created: i64::from(at),
            started: None,
            never_preempts: false,
            state: PodState::Gated,
        };
        Event::PodChanged(Uid(u128::from(number) << 32 | u128::from(at)), config)
    };
    [Event::GroupChanged(group, config)].into_iter().chain((0..pods).map(pod)).collect()
}

#[test]
fn everybody_is_entitled_to_what_linear_programming_says() {
    for (number, case) in cases().iter().enumerate() {
        let (mut engine, mut reference) = (Engine::default(), Reference::default());
        for event in events(case) {
            engine.apply(0, event.clone());
            reference.apply(0, event);
        }
        engine.entitle();
        let (queues, plain) = (engine.queues(), reference.entitled());
        for (index, queue) in (0..).zip(&case.queues) {
            let id = QueueId(index);
            let found = queues.iter().find(|found| found.id == id).unwrap();
            let plain = &plain[&Spot::Queue(id)];
            assert_eq!(
                (found.entitled.get(CPU), plain.get(CPU)),
                (queue.entitled, queue.entitled),
                "case {number}, queue {index}"
            );
        }
    }
}

/// Without more guarantees than there is, what everybody gets in pods of one is what it is entitled
/// to, within a pod for each queue on the way up; and nothing is left that is asked for.
#[test]
fn in_pods_of_one_everybody_gets_what_it_is_entitled_to_within_one() {
    let mut judged = 0;
    for (number, case) in cases().iter().enumerate() {
        let given: i128 = case.queues.iter().filter_map(|queue| queue.guaranteed).sum();
        if given > case.capacity {
            continue;
        }
        judged += 1;
        let mut engine = Engine::default();
        for event in events(case) {
            engine.apply(0, event);
        }
        let started = engine.decide(usize::MAX).started.len();
        let mut depths = Vec::<i128>::new();
        let mut most = vec![0; case.queues.len()];
        for (found, queue) in engine.queues().iter().zip(&case.queues) {
            let depth = queue.parent.map_or(1, |parent| depths[parent as usize] + 1);
            depths.push(depth);
            let used = found.usage.get(CPU);
            let off = (used - queue.entitled).abs();
            assert!(off <= depth, "case {number}, {:?}: {used} of {}", found.id, queue.entitled);
        }
        // Parents come before children, so sums go up from the last.
        for (index, queue) in case.queues.iter().enumerate().rev() {
            let asked = most[index] + i128::from(queue.demand);
            most[index] = asked.min(queue.limit.unwrap_or(i128::MAX));
            if let Some(parent) = queue.parent {
                most[parent as usize] += most[index];
            }
        }
        let top = case.queues.iter().zip(&most).filter(|(queue, _)| queue.parent.is_none());
        let usable: i128 = top.map(|(_, most)| most).sum();
        assert_eq!(i128::try_from(started).unwrap(), usable.min(case.capacity), "case {number}");
    }
    assert!(judged > 25, "{judged} have guarantees that can be kept");
}

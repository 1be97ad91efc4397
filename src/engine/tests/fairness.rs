//! The examples of docs/fairness.md.

use super::*;

const GIB: i128 = 1 << 30;

pub(super) fn cpus(count: i128) -> Vector {
    cpu(count * 1000)
}

fn pods_of(world: &mut World, queue: QueueId, count: usize, cpus: i128) {
    for _ in 0..count {
        world.single(queue, |pod| pod.cost = cost(cpus * 1000));
    }
}

/// What queues use in the end, in CPUs.
fn ends_with<const N: usize>(world: &mut World, queues: [QueueId; N]) -> [i128; N] {
    world.decide();
    queues.map(|queue| world.usage(queue) / 1000)
}

/// One node with so many CPUs and room for any number of pods.
pub(super) fn cluster(cpus: i128) -> World {
    let mut world = World::new(0);
    let allocatable = [(CPU, cpus * 1000), (PODS, 1000)].into_iter().collect();
    let config = usable(allocatable);
    world.apply(Event::NodeChanged(NodeId(1), config));
    world
}

#[test]
fn weights_divide_what_everybody_wants() {
    let mut world = cluster(12);
    let (heavy, light) = (world.queue(1, |q| q.weight = 3), world.queue(2, |_| {}));
    pods_of(&mut world, light, 12, 1);
    pods_of(&mut world, heavy, 12, 1);
    assert_eq!(ends_with(&mut world, [heavy, light]), [9, 3]);
}

#[test]
fn two_resources_end_with_equal_dominant_shares() {
    let mut world = World::new(0);
    let allocatable = [(CPU, 9000), (MEMORY, 18 * GIB), (PODS, 1000)].into_iter().collect();
    let config = usable(allocatable);
    world.apply(Event::NodeChanged(NodeId(1), config));
    let (memory, compute) = (world.queue(1, |_| {}), world.queue(2, |_| {}));
    let asks = |cpus: i128, gib: i128| -> Vector {
        [(CPU, cpus * 1000), (MEMORY, gib * GIB), (PODS, 1)].into_iter().collect()
    };
    for _ in 0..10 {
        world.single(memory, |pod| pod.cost = asks(1, 4));
        world.single(compute, |pod| pod.cost = asks(3, 1));
    }
    assert_eq!(ends_with(&mut world, [memory, compute]), [3, 6]);
}

#[test]
fn a_guarantee_goes_before_any_weight() {
    let mut world = cluster(8);
    let own = world.queue(1, |q| q.guaranteed = cpus(6));
    let borrower = world.queue(2, |q| q.weight = 1_000_000);
    pods_of(&mut world, borrower, 8, 1);
    pods_of(&mut world, own, 8, 1);
    assert_eq!(ends_with(&mut world, [own, borrower]), [6, 2]);
}

#[test]
fn what_is_not_asked_for_is_lent() {
    let mut world = cluster(8);
    let own = world.queue(1, |q| q.guaranteed = cpus(6));
    let borrower = world.queue(2, |_| {});
    pods_of(&mut world, own, 1, 1);
    pods_of(&mut world, borrower, 8, 1);
    assert_eq!(ends_with(&mut world, [own, borrower]), [1, 7]);
}

#[test]
fn what_is_not_lent_stays_free() {
    let mut world = cluster(8);
    let own = world.queue(1, |q| (q.guaranteed, q.lendable) = (cpus(6), cpus(2)));
    let borrower = world.queue(2, |_| {});
    pods_of(&mut world, borrower, 8, 1);
    assert_eq!(ends_with(&mut world, [own, borrower]), [0, 4]);
    let waits = world.single(borrower, |_| {});
    assert_eq!(world.code(waits), "Capacity");
    pods_of(&mut world, own, 1, 1);
    assert_eq!(ends_with(&mut world, [own, borrower]), [1, 4]);
    pods_of(&mut world, own, 8, 1);
    assert_eq!(ends_with(&mut world, [own, borrower]), [4, 4], "and no more is free");
}

#[test]
fn what_one_cannot_use_goes_to_the_others_by_weight() {
    let mut world = cluster(100);
    let [a, b] = [1, 2].map(|id| world.queue(id, |_| {}));
    let c = world.queue(3, |q| q.weight = 2);
    for (queue, count) in [(a, 10), (b, 100), (c, 100)] {
        pods_of(&mut world, queue, count, 1);
    }
    assert_eq!(ends_with(&mut world, [a, b, c]), [10, 30, 60]);
}

#[test]
fn each_resource_is_shared_for_itself() {
    let mut world = cluster(0);
    let allocatable = [(CPU, 12_000), (MEMORY, 24 * GIB), (PODS, 1000)].into_iter().collect();
    let config = usable(allocatable);
    world.apply(Event::NodeChanged(NodeId(2), config));
    let (a, b) = (world.queue(1, |_| {}), world.queue(2, |_| {}));
    pods_of(&mut world, a, 12, 1);
    for _ in 0..12 {
        let amounts = [(CPU, 1000), (MEMORY, 4 * GIB), (PODS, 1)];
        world.single(b, |pod| pod.cost = amounts.into_iter().collect());
    }
    assert_eq!(ends_with(&mut world, [a, b]), [6, 6]);
}

#[test]
fn a_floor_is_filled_first() {
    let mut world = cluster(100);
    let (a, b) = (world.queue(1, |q| q.guaranteed = cpus(70)), world.queue(2, |_| {}));
    pods_of(&mut world, a, 100, 1);
    pods_of(&mut world, b, 100, 1);
    assert_eq!(ends_with(&mut world, [a, b]), [70, 30]);
}

#[test]
fn guarantees_beyond_capacity_go_by_turns() {
    for (weight, end) in [(1, [50, 50]), (3, [75, 25])] {
        let mut world = cluster(100);
        let a = world.queue(1, |q| (q.weight, q.guaranteed) = (weight, cpus(150)));
        let b = world.queue(2, |q| q.guaranteed = cpus(50));
        pods_of(&mut world, a, 150, 1);
        pods_of(&mut world, b, 150, 1);
        assert_eq!(ends_with(&mut world, [a, b]), end);
    }
}

#[test]
fn the_first_gang_of_an_idle_queue_has_a_turn() {
    let mut world = cluster(10);
    let (small, large) = (world.queue(1, |_| {}), world.queue(2, |_| {}));
    pods_of(&mut world, small, 20, 1);
    world.engine.decide(4);
    let gang = world.group(9, Assignment::Queue(large), Gang::AtLeast(6));
    for _ in 0..6 {
        world.pod(gang, |_| {});
    }
    assert_eq!(ends_with(&mut world, [small, large]), [4, 6]);
}

#[test]
fn nobody_borrows_while_another_is_below_its_due() {
    let mut world = cluster(10);
    let (a, b) = (world.queue(1, |_| {}), world.queue(2, |_| {}));
    pods_of(&mut world, a, 3, 4);
    pods_of(&mut world, b, 10, 1);
    assert_eq!(ends_with(&mut world, [a, b]), [4, 6]);
}

#[test]
fn strict_waits_for_the_first() {
    for (order, used) in [(Order::BestEffort, 2), (Order::Strict, 1)] {
        let mut world = cluster(2);
        let queue = world.queue(1, |q| q.order = order);
        pods_of(&mut world, queue, 1, 1);
        world.decide();
        pods_of(&mut world, queue, 1, 2);
        pods_of(&mut world, queue, 1, 1);
        assert_eq!(ends_with(&mut world, [queue]), [used]);
    }
}

/// A gang of at least two that runs two pods of one CPU.
fn gang_that_runs(world: &mut World, queue: QueueId) -> GroupId {
    let gang = world.group(1, Assignment::Queue(queue), Gang::AtLeast(2));
    let pods = [world.pod(gang, |_| {}), world.pod(gang, |_| {})];
    assert_eq!(world.decide(), pods);
    gang
}

pub(super) fn more(world: &mut World, group: GroupId, count: usize) {
    for _ in 0..count {
        world.pod(group, |_| {});
    }
}

/// The groups of what is decided, and how many pods of each in a row.
fn turns(world: &mut World) -> Vec<(GroupId, usize)> {
    let mut turns: Vec<(GroupId, usize)> = Vec::new();
    for decision in world.engine.decide(BUDGET).started {
        match turns.last_mut() {
            Some((group, count)) if *group == decision.group => *count += 1,
            _ => turns.push((decision.group, 1)),
        }
    }
    turns
}

#[test]
fn a_gang_that_runs_grows_first_within_what_is_due_and_in_turn_beyond() {
    for growth in [Growth::First, Growth::Fair] {
        let mut world = cluster(12);
        let (team, other) = (world.queue(1, |q| q.growth = growth), world.queue(2, |_| {}));
        let runs = gang_that_runs(&mut world, team);
        let waits = world.group(2, Assignment::Queue(other), Gang::AtLeast(11));
        let next = world.group(3, Assignment::Queue(team), Gang::AtLeast(4));
        for (group, count) in [(waits, 11), (next, 4), (runs, 8)] {
            more(&mut world, group, count);
        }
        let expected = match growth {
            Growth::First => vec![(runs, 4), (next, 4), (runs, 2)],
            Growth::Fair => vec![(next, 4), (runs, 6)],
        };
        assert_eq!(turns(&mut world), expected);
    }
}

#[test]
fn growth_goes_before_what_has_waited_for_less_than_five_minutes_more() {
    const MINUTE: Millis = 60_000;
    for (waited, expected) in [(4, [1, 2]), (6, [2, 1])] {
        let mut world = cluster(4);
        let queue = world.queue(1, |_| {});
        let runs = gang_that_runs(&mut world, queue);
        let waits = world.group(2, Assignment::Queue(queue), Gang::Units);
        world.engine.tick(10 * MINUTE);
        world.pod(waits, |pod| pod.created = (10 - waited) * MINUTE);
        world.pod(runs, |pod| pod.created = 10 * MINUTE);
        let groups: Vec<u64> = turns(&mut world).into_iter().map(|(group, _)| group.0).collect();
        assert_eq!(groups, expected);
    }
}

#[test]
fn what_has_a_higher_priority_begins_before_a_gang_grows() {
    let mut world = cluster(4);
    let queue = world.queue(1, |_| {});
    let runs = gang_that_runs(&mut world, queue);
    more(&mut world, runs, 2);
    let urgent = world.single(queue, |pod| pod.priority = 1);
    let urgent = world.engine.group_of(urgent).unwrap();
    assert_eq!(turns(&mut world), [(urgent, 1), (runs, 1)]);
}

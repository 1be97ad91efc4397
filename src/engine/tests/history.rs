//! What queues used before: who goes first, and what it never changes. The examples of
//! docs/fairness.md, and case 053.

use super::fairness::{cluster, cpus};
use super::*;

const HOUR: Millis = 3_600_000;

/// Two queues below one with a half-life.
fn two(world: &mut World, half_life: Option<Millis>) -> [QueueId; 2] {
    world.queue(1, |q| q.half_life = half_life);
    [2, 3].map(|id| world.queue(id, |q| q.parent = Some(QueueId(1))))
}

fn pods(world: &mut World, queue: QueueId, count: usize, cpus: i128) -> Vec<PodId> {
    (0..count).map(|_| world.single(queue, |pod| pod.cost = cost(cpus * 1000))).collect()
}

/// The pods run for an hour and end.
fn run_for_an_hour(world: &mut World, pods: &[PodId]) {
    assert_eq!(world.decide(), pods);
    let now = world.engine.now;
    world.engine.tick(now + HOUR);
    for &pod in pods {
        world.see(pod, PodState::Ended);
    }
}

/// The queues of what is decided next.
fn turns(world: &mut World, count: usize) -> Vec<QueueId> {
    world.engine.decide(count).started.into_iter().map(|decision| decision.queue).collect()
}

#[test]
fn work_that_needs_all_takes_turns_by_what_was_used_before() {
    for half_life in [None, Some(168 * HOUR)] {
        let mut world = cluster(8);
        let [a, b] = two(&mut world, half_life);
        pods(&mut world, a, 3, 8);
        pods(&mut world, b, 1, 8);
        let mut seen = Vec::new();
        for _ in 0..4 {
            let started = world.engine.decide(BUDGET).started;
            let [decision] = started[..] else { panic!("one at a time: {started:?}") };
            seen.push(decision.queue);
            let now = world.engine.now;
            world.engine.tick(now + HOUR);
            world.see(decision.pod, PodState::Ended);
        }
        let expected = if half_life.is_some() { [a, b, a, a] } else { [a, a, a, b] };
        assert_eq!(seen, expected);
    }
}

#[test]
fn what_was_used_counts_half_after_a_half_life() {
    let mut world = cluster(8);
    let [a, b] = two(&mut world, Some(HOUR));
    for queue in [a, b] {
        let all = pods(&mut world, queue, 8, 1);
        run_for_an_hour(&mut world, &all);
    }
    pods(&mut world, a, 8, 1);
    pods(&mut world, b, 8, 1);
    assert_eq!(turns(&mut world, 4), [a, a, a, b]);
    world.decide();
    assert_eq!([a, b].map(|queue| world.usage(queue)), [4000, 4000], "as they are entitled to");
}

#[test]
fn a_guarantee_goes_first_whatever_was_used_before() {
    let mut world = cluster(8);
    let [own, other] = two(&mut world, Some(HOUR));
    let parent = Some(QueueId(1));
    world.queue(2, |q| (q.parent, q.guaranteed) = (parent, cpus(4)));
    let all = pods(&mut world, own, 8, 1);
    run_for_an_hour(&mut world, &all);
    pods(&mut world, other, 8, 1);
    pods(&mut world, own, 8, 1);
    assert_eq!(turns(&mut world, 8), [own, own, own, own, other, other, other, other]);
}

#[test]
fn what_runs_in_a_queue_that_is_held_is_history_all_the_same() {
    let mut world = cluster(8);
    let [open, held] = two(&mut world, Some(168 * HOUR));
    let runs = [open, held].map(|queue| pods(&mut world, queue, 1, 1)).concat();
    assert_eq!(world.decide(), runs);
    world.queue(3, |q| (q.parent, q.hold) = (Some(QueueId(1)), true));
    world.engine.tick(180_000);
    for pod in runs {
        world.see(pod, PodState::Ended);
    }
    let used = |world: &World, queue, own| {
        let all = world.engine.histories();
        all.into_iter().find(|&(of, line, _)| (of, line) == (queue, own)).map(|(.., used)| used)
    };
    let after = used(&world, open, false).unwrap();
    assert!(after.get(CPU) > 0);
    assert_eq!(used(&world, held, false), Some(after));
    assert_eq!(used(&world, QueueId(1), true), Some(Vector::default()), "the line of its own");
}

#[test]
fn a_thousandth_of_a_cpu_for_one_half_life_is_history_that_grows() {
    let mut world = cluster(8);
    let [tiny, _] = two(&mut world, Some(60_000));
    world.single(tiny, |pod| pod.cost = cost(1));
    world.decide();
    let mut used = |now| {
        world.engine.tick(now);
        world.engine.histories()[1].2.get(CPU)
    };
    assert!(0 < used(60_000) && used(60_000) < used(120_000));
}

#[test]
fn a_history_ends_with_its_half_life_and_goes_on_with_any_other_change() {
    let mut world = cluster(8);
    let [a, _] = two(&mut world, Some(HOUR));
    let all = pods(&mut world, a, 8, 1);
    run_for_an_hour(&mut world, &all);
    let used = |world: &World| {
        world.engine.histories().iter().map(|(.., used)| used.get(CPU)).max().unwrap_or(0)
    };
    let before = used(&world);
    assert!(before > 0);
    world.queue(1, |q| (q.half_life, q.weight) = (Some(HOUR), 7));
    world.queue(2, |q| (q.parent, q.limit) = (Some(QueueId(1)), cpus(5)));
    assert_eq!(used(&world), before);
    world.queue(1, |q| q.half_life = Some(HOUR + 1));
    assert_eq!(used(&world), 0);
    world.queue(1, |_| {});
    assert!(world.engine.histories().is_empty(), "nothing is kept that does not count");
}

#[test]
fn absurd_half_lives_and_times_stop_nobody() {
    for half_life in [Millis::MIN, 0, 1, Millis::MAX] {
        let mut world = cluster(8);
        let [a, b] = two(&mut world, Some(half_life));
        pods(&mut world, a, 4, 1);
        for now in [Millis::MIN, 1, HOUR, Millis::MAX] {
            world.engine.tick(now);
            pods(&mut world, b, 1, 1);
            world.decide();
        }
        assert_eq!([a, b].map(|queue| world.usage(queue)), [4000, 4000], "{half_life}");
    }
}

/// What is known of past use, told to a world that was never there.
fn remembered(world: &World, mut other: World) -> World {
    let now = world.engine.now;
    other.engine.tick(now);
    for (queue, used) in world.engine.used() {
        other.apply(Event::UsedBefore(queue, used));
    }
    other
}

#[test]
fn what_somebody_remembers_counts_as_if_it_had_been_seen() {
    let mut lived_on = cluster(8);
    let [a, b] = two(&mut lived_on, Some(168 * HOUR));
    let mut begins = cluster(8);
    two(&mut begins, Some(168 * HOUR));
    let all = pods(&mut lived_on, a, 8, 1);
    run_for_an_hour(&mut lived_on, &all);
    let mut remembers = remembered(&lived_on, begins);
    let used = |world: &World| world.engine.used()[&a].whole.get(CPU);
    let missing = used(&lived_on) - used(&remembers);
    assert!((0..=1).contains(&missing), "{missing} millionths");
    for world in [&mut lived_on, &mut remembers] {
        pods(world, a, 1, 8);
        pods(world, b, 1, 8);
        assert_eq!(turns(world, 1), [b], "it used nothing");
    }
}

#[test]
fn what_is_remembered_fades_from_the_time_that_it_is_of() {
    let mut world = cluster(8);
    let [a, _] = two(&mut world, Some(HOUR));
    world.engine.tick(3 * HOUR);
    let told = |at| Used { at, whole: cpus(4_000_000), own: cpus(2_000_000) };
    let used = |world: &World| world.engine.used()[&a].whole.get(CPU);
    world.apply(Event::UsedBefore(a, told(2 * HOUR)));
    assert_eq!(used(&world), 2_000_000_000);
    assert_eq!(world.engine.used()[&a].own, Vector::default(), "its own queue counts nothing");
    world.apply(Event::UsedBefore(a, told(9 * HOUR)));
    assert_eq!(used(&world), 4_000_000_000, "a time to come is now");
    world.engine.tick(4 * HOUR);
    assert_eq!(used(&world), 2_000_000_000);
    world.apply(Event::UsedBefore(QueueId(1), told(0)));
    world.apply(Event::UsedBefore(QueueId(77), told(0)));
    assert_eq!(world.engine.used()[&QueueId(1)].whole, Vector::default());
    assert!(!world.engine.used().contains_key(&QueueId(77)));
}

#[test]
fn absurd_memories_stop_nobody() {
    for amount in [i128::MIN, i128::MAX] {
        for at in [Millis::MIN, 0, Millis::MAX] {
            let mut world = cluster(8);
            let [a, b] = two(&mut world, Some(HOUR));
            let whole = cpu(amount);
            world.apply(Event::UsedBefore(a, Used { at, own: whole.clone(), whole }));
            for queue in [a, b] {
                pods(&mut world, queue, 8, 1);
            }
            world.decide();
            world.engine.tick(Millis::MAX);
            assert_eq!([a, b].map(|queue| world.usage(queue)), [4000, 4000], "{amount} {at}");
        }
    }
}

/// Two queues of which the first runs a pod of one CPU and a thousandth.
fn running(state: PodState) -> World {
    let mut world = cluster(8);
    let [a, _] = two(&mut world, Some(HOUR));
    world.single(a, |pod| (pod.cost, pod.state) = (cost(1001), state));
    world
}

#[test]
fn who_dies_every_twenty_seconds_forgets_no_use_of_what_still_runs() {
    let state = PodState::Bound { node: NodeId(1), terminating: false };
    let (mut lives_on, mut dies) = (running(state), running(state));
    let used = |world: &World| world.engine.used()[&QueueId(2)].whole.get(CPU);
    for second in (20..=1_200).step_by(20) {
        lives_on.engine.tick(second * 1_000);
        // What was written down when it last began is all that is left.
        let written = dies.engine.used();
        dies = running(state);
        dies.engine.tick(second * 1_000);
        for (queue, used) in written {
            dies.apply(Event::UsedBefore(queue, used));
        }
        let missing = used(&lives_on) - used(&dies);
        assert!((0..=i128::from(second) / 20).contains(&missing), "{second} s: {missing}");
    }
    assert!(used(&lives_on) > 200_000_000);
}

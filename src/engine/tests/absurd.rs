//! Absurd input: nothing panics or overflows, and nobody else is held up.

use super::*;

/// The largest amount that a quantity comes to, in thousandths.
const HUGE: i128 = 10_i128.pow(30);

fn drained(world: &mut World) -> usize {
    std::iter::from_fn(|| Some(world.decide().len()).filter(|&count| count > 0)).sum()
}

#[test]
fn a_tree_of_ten_thousand_queues_side_by_side_shares_what_there_is() {
    let mut world = World::new(100_000);
    for id in 0..10_000 {
        let config = QueueConfig { weight: 1, ..QueueConfig::default() };
        world.engine.apply(0, Event::QueueChanged(QueueId(id), config));
    }
    world.engine.settle();
    let pods: Vec<PodId> = (0..200).map(|id| world.single(QueueId(id * 50), |_| {})).collect();
    assert_eq!(world.decide(), pods[..100]);
}

#[test]
fn a_limit_sixty_four_queues_above_holds() {
    let mut world = World::new(100_000);
    world.queue(0, |q| q.limit = cpu(3_000));
    for id in 1..64 {
        world.queue(id, |q| q.parent = Some(QueueId(id - 1)));
    }
    let pods: Vec<PodId> = (0..5).map(|_| world.single(QueueId(63), |_| {})).collect();
    assert_eq!(world.decide(), pods[..3]);
    assert_eq!(world.code(pods[4]), "QueueLimit");
}

#[test]
fn a_weight_of_zero_counts_as_one_and_the_largest_takes_all_but_a_turn() {
    let mut world = World::new(30_000);
    let [none, one, most] = [(1, 0), (2, 1), (3, u32::MAX)]
        .map(|(id, weight)| world.queue(id, |queue| queue.weight = weight));
    for queue in [none, one, most] {
        for _ in 0..40 {
            world.single(queue, |_| {});
        }
    }
    drained(&mut world);
    assert_eq!([none, one, most].map(|queue| world.usage(queue)), [1_000, 1_000, 28_000]);
}

#[test]
fn guarantees_far_beyond_the_capacity_go_by_turns() {
    let mut world = World::new(10_000);
    let queues = [1, 2].map(|id| world.queue(id, |queue| queue.guaranteed = cpu(HUGE)));
    for queue in queues {
        for _ in 0..20 {
            world.single(queue, |_| {});
        }
    }
    drained(&mut world);
    assert_eq!(queues.map(|queue| world.usage(queue)), [5_000, 5_000]);
}

#[test]
fn a_gang_of_more_pods_than_there_can_be_and_a_cost_beyond_all_wait_and_delay_nobody() {
    let mut world = World::new(10_000);
    let (odd, plain) = (world.queue(1, |_| {}), world.queue(2, |_| {}));
    let gang = world.group(1, Assignment::Queue(odd), Gang::AtLeast(u32::MAX));
    let member = world.pod(gang, |_| {});
    let huge: Vec<PodId> =
        (0..50).map(|_| world.single(odd, |pod| pod.cost = cost(HUGE))).collect();
    let free = world.single(odd, |pod| pod.cost = Vector::default());
    let small = world.single(plain, |_| {});
    let mut started = world.decide();
    started.sort_unstable();
    assert_eq!(started, [free, small]);
    assert_eq!(world.code(member), "WaitingForMembers");
    assert!(huge.iter().all(|&pod| world.reason(pod).is_some()));
}

#[test]
fn many_gangs_that_cannot_start_delay_nobody_even_in_their_queue() {
    let mut world = World::new(10_000);
    let queue = world.queue(1, |_| {});
    for id in 0..1_000 {
        let gang = world.group(id, Assignment::Queue(queue), Gang::AtLeast(2));
        for _ in 0..2 {
            world.pod(gang, |pod| pod.cost = cost(6_000));
        }
    }
    let small = world.single(queue, |_| {});
    let first = world.engine.decide(1).started;
    assert_eq!(first.iter().map(|decision| decision.pod).collect::<Vec<_>>(), [small]);
}

#[test]
fn when_all_capacity_goes_nothing_starts_and_when_it_comes_back_work_goes_on() {
    let mut world = World::new(10_000);
    let queue = world.queue(1, |queue| queue.guaranteed = cpu(5_000));
    let pods: Vec<PodId> = (0..15).map(|_| world.single(queue, |_| {})).collect();
    assert_eq!(world.decide(), pods[..10]);
    world.node(1, 0);
    world.see(pods[0], PodState::Ended);
    assert_eq!(drained(&mut world), 0);
    assert!(world.reason(pods[14]).is_some());
    world.node(1, 10_000);
    assert_eq!(world.decide(), pods[10..11]);
}

#[test]
fn a_clock_that_goes_backwards_stands_still() {
    let mut world = World::new(10_000);
    let queue = world.queue(1, |_| {});
    let pod = world.single(queue, |_| {});
    world.engine.apply(9_000, Event::Synced(HERE));
    world.engine.apply(-5, Event::Synced(HERE));
    assert!(world.engine.tick(i64::MIN));
    assert_eq!(world.decide(), [pod]);
    world.engine.apply(0, Event::Outcome(pod, Outcome::Refused { retry_at: 9_001 }));
    world.engine.tick(0);
    assert_eq!(world.decide(), []);
    world.engine.tick(9_001);
    assert_eq!(world.decide(), [pod]);
}

/// Numbers at both ends, and some between.
fn amount() -> impl Strategy<Value = i128> {
    prop::sample::select(vec![0, 1, 999, 1_000, 10_000, HUGE - 1, HUGE])
}

fn time() -> impl Strategy<Value = Millis> {
    prop::sample::select(vec![i64::MIN, -1, 0, 1, 400_000, i64::MAX - 1, i64::MAX])
}

fn queue() -> impl Strategy<Value = Event> {
    let small = || prop::option::of(prop::sample::select(vec![0, 1, u64::MAX]));
    let weight = prop::sample::select(vec![0, 1, u32::MAX]);
    let amounts = [amount(), amount(), amount()];
    let rest = (small(), small(), small(), prop::option::of(time()), any::<[bool; 4]>());
    (0_u32..4, prop::option::of(0_u32..4), weight, amounts, rest).prop_map(
        |(id, parent, weight, [guaranteed, lendable, limit], rest)| {
            let (pending, groups, pods, min_runtime, [limited, lends, strict, reclaims]) = rest;
            let mut config = QueueConfig {
                parent: parent.map(QueueId),
                weight,
                guaranteed: cpu(guaranteed),
                max_pending: pending,
                ..QueueConfig::default()
            };
            config.limit = if limited { cpu(limit) } else { Vector::default() };
            config.lendable = if lends { cpu(lendable) } else { Vector::default() };
            config.order = if strict { Order::Strict } else { Order::BestEffort };
            (config.max_running.groups, config.max_running.pods) = (groups, pods);
            config.preemption.min_runtime = min_runtime;
            config.preemption.reclaim =
                if reclaims { Reclaim::Entitled } else { Reclaim::Guaranteed };
            Event::QueueChanged(QueueId(id), config)
        },
    )
}

fn group() -> impl Strategy<Value = Event> {
    let gang = prop_oneof![
        Just(Gang::Units),
        Just(Gang::All),
        prop::sample::select(vec![0, 1, 2, u32::MAX]).prop_map(Gang::AtLeast),
    ];
    (0_u64..6, 0_u32..4, gang, any::<bool>()).prop_map(|(id, queue, gang, non_preemptible)| {
        let config = GroupConfig {
            cluster: HERE,
            root: Uid(u128::from(id)),
            queue: Assignment::Queue(QueueId(queue)),
            gang,
            singleton: None,
            non_preemptible,
            topology: None,
        };
        Event::GroupChanged(GroupId(id), config)
    })
}

fn pod() -> impl Strategy<Value = Event> {
    let state = prop_oneof![
        3 => Just(PodState::Gated),
        1 => Just(PodState::Released { held: false }),
        1 => any::<bool>().prop_map(|terminating| PodState::Bound { node: NodeId(0), terminating }),
        1 => Just(PodState::Ended),
    ];
    let times = (time(), prop::option::of(time()));
    let priority = prop::sample::select(vec![i32::MIN, 0, i32::MAX]);
    (0_u128..12, 0_u64..6, amount(), priority, times, state).prop_map(
        |(id, group, amount, priority, (created, started), state)| {
            let (group, cost) = (GroupId(group), cost(amount));
            let config =
                PodConfig { group, cost, priority, created, started, never_preempts: false, state };
            Event::PodChanged(Uid(id), config)
        },
    )
}

fn node() -> impl Strategy<Value = Event> {
    (0_u32..3, amount(), any::<[bool; 2]>()).prop_map(|(id, amount, [ready, schedulable])| {
        let allocatable = [(CPU, amount), (PODS, HUGE)].into_iter().collect();
        let rest = NodeConfig::default();
        let config = NodeConfig { cluster: HERE, allocatable, ready, schedulable, ..rest };
        Event::NodeChanged(NodeId(id), config)
    })
}

fn event() -> impl Strategy<Value = Event> {
    let foreign = (0_u32..3, amount())
        .prop_map(|(id, amount)| Event::ForeignChanged(NodeId(id), cost(amount)));
    let refused =
        (0_u128..12, time()).prop_map(|(id, retry_at)| (Uid(id), Outcome::Refused { retry_at }));
    prop_oneof![
        4 => pod(),
        2 => group(),
        2 => queue(),
        1 => node(),
        1 => foreign,
        1 => refused.prop_map(|(id, outcome)| Event::Outcome(id, outcome)),
        1 => (0_u32..3).prop_map(|id| Event::NodeRemoved(NodeId(id))),
        1 => (0_u128..12).prop_map(|id| Event::PodRemoved(Uid(id))),
    ]
}

proptest! {
    #[test]
    fn the_largest_and_smallest_numbers_and_times_in_any_order_break_nothing(
        events in prop::collection::vec((time(), event()), 1..60)
    ) {
        let mut engine = Engine::default();
        engine.apply(0, Event::Synced(HERE));
        for (now, event) in events {
            engine.apply(now, event.clone());
            engine.apply(now, event);
            engine.tick(now);
            engine.rehearse(20);
            let decided = engine.decide(20);
            prop_assert!(decided.started.len() + decided.evicted.len() <= 40);
            let explained = (0..6).map(GroupId).filter_map(|group| engine.reason(group)).count();
            prop_assert!(explained <= 6 && engine.queues().len() <= 4);
        }
        let restored = engine.restored();
        prop_assert_eq!(restored.decided(), engine.decided());
    }
}

//! Whatever is told in whatever order, what the engine keeps agrees with itself.

use std::collections::BTreeSet;

use std::num::NonZeroU64;

use proptest::prelude::*;

use super::*;
use crate::engine::amounts::Amounts;
use crate::engine::backlog::reopens_at;
use crate::engine::event::GroupConfig;
use crate::engine::group::Standing;
use crate::engine::{Assignment, Gang, ResourceId, SingletonId, Uid};

const HERE: ClusterId = ClusterId(0);

fn amount(cpu: i128) -> Vector {
    [(ResourceId::CPU, cpu), (ResourceId::PODS, 1)].into_iter().collect()
}

fn state() -> impl Strategy<Value = PodState> {
    let bound = (1u32..4, any::<bool>())
        .prop_map(|(node, terminating)| PodState::Bound { node: NodeId(node), terminating });
    prop_oneof![
        4 => Just(PodState::Gated),
        1 => any::<bool>().prop_map(|held| PodState::Released { held }),
        3 => bound,
        1 => Just(PodState::Ended),
        1 => Just(PodState::Dropped),
    ]
}

fn assignment() -> impl Strategy<Value = Assignment> {
    prop_oneof![
        4 => (1u32..4).prop_map(|queue| Assignment::Queue(QueueId(queue))),
        1 => Just(Assignment::Unresolved),
        1 => Just(Assignment::Unnamed),
    ]
}

fn outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        Just(Outcome::Released),
        Just(Outcome::Gone),
        (0i64..20).prop_map(|retry_at| Outcome::Refused { retry_at }),
    ]
}

/// `None` decides, after a rehearsal.
fn step() -> impl Strategy<Value = Option<Event>> {
    let pod = || (1u128..8).prop_map(Uid);
    let queue = (1u32..4, prop::option::of(1u32..4), 0i128..4_000, prop::option::of(1u64..5))
        .prop_map(|(id, parent, limit, max_pending)| {
            let (parent, limit) = (parent.map(QueueId), amount(limit));
            let queue = QueueConfig { parent, limit, max_pending, ..QueueConfig::default() };
            Event::QueueChanged(QueueId(id), QueueConfig { weight: 1, ..queue })
        });
    let group = (1u64..4, assignment(), 0u32..4, prop::option::of(1u64..3)).prop_map(
        |(id, queue, gang, singleton)| {
            let gang = if gang == 0 { Gang::Units } else { Gang::AtLeast(gang) };
            let singleton = singleton.and_then(NonZeroU64::new).map(SingletonId);
            let (root, cluster) = (Uid(u128::from(id)), HERE);
            let config = GroupConfig {
                cluster,
                root,
                queue,
                gang,
                singleton,
                non_preemptible: false,
                topology: None,
            };
            Event::GroupChanged(GroupId(id), config)
        },
    );
    let told = (pod(), 1u64..4, state(), 0i128..2_000, 0i64..5).prop_map(
        |(id, group, state, cpu, created)| {
            let group = GroupId(group);
            Event::PodChanged(
                id,
                PodConfig {
                    group,
                    cost: amount(cpu),
                    priority: 0,
                    created,
                    started: None,
                    never_preempts: false,
                    state,
                },
            )
        },
    );
    let node = (1u32..4, any::<bool>(), any::<bool>(), 0i128..8_000).prop_map(
        |(id, ready, schedulable, cpu)| {
            let allocatable = [(ResourceId::CPU, cpu), (ResourceId::PODS, 9)].into_iter().collect();
            Event::NodeChanged(
                NodeId(id),
                NodeConfig {
                    cluster: HERE,
                    allocatable,
                    ready,
                    schedulable,
                    ..NodeConfig::default()
                },
            )
        },
    );
    prop_oneof![
        6 => told.prop_map(Some),
        4 => Just(None),
        2 => (pod(), outcome()).prop_map(|(id, outcome)| Some(Event::Outcome(id, outcome))),
        2 => pod().prop_map(|id| Some(Event::PodRemoved(id))),
        2 => group.prop_map(Some),
        1 => queue.prop_map(Some),
        1 => (1u32..4).prop_map(|id| Some(Event::QueueRemoved(QueueId(id)))),
        2 => node.prop_map(Some),
        1 => (1u32..4).prop_map(|id| Some(Event::NodeRemoved(NodeId(id)))),
    ]
}

/// Every sum, added up again.
fn check_sums(engine: &Engine) {
    let mut load = Amounts::default();
    for (slot, pod) in engine.pods.iter() {
        assert_eq!(pod.charge, engine.due(pod), "a charge is out of date: {pod:?}");
        if let Some(charge) = pod.charge.filter(|charge| charge.takes_capacity) {
            load.add(engine.shapes.need(charge.shape));
        }
        let node = match pod.state {
            PodState::Bound { node, .. } => Some(node),
            _ => None,
        };
        let there = engine.fleet.iter().filter(|(_, node)| node.pods.contains(&slot));
        assert_eq!(there.map(|(id, _)| id).collect::<Vec<_>>(), Vec::from_iter(node));
    }
    assert_eq!(engine.axes.vector(&engine.load), engine.axes.vector(&load));
    for (_, node) in engine.fleet.iter() {
        assert!(node.known || !node.pods.is_empty(), "a node that nobody needs is kept");
    }
    for (slot, group) in engine.groups.iter() {
        let pods: Vec<&Pod> = engine.pods_of(slot).map(|pod| &engine.pods[pod]).collect();
        let count = |is: fn(&Pod) -> bool| {
            u32::try_from(pods.iter().filter(|pod| is(pod)).count()).unwrap()
        };
        assert!(pods.iter().all(|pod| pod.group == slot));
        assert_eq!(group.started, count(Pod::has_started));
        assert_eq!(group.unseen, count(Pod::is_unseen));
        assert_eq!(group.have(), count(Pod::waits));
        assert_eq!(group.charged, count(|pod| pod.charge.is_some()));
    }
}

/// What waits in earnest, added up again.
fn check_demand(engine: &Engine) {
    for (slot, line) in engine.lines.iter() {
        let mut asked = Amounts::default();
        for (group, _) in engine.groups.iter().filter(|(_, group)| group.asks_in() == slot) {
            asked.add_all(&engine.asked_by(group));
        }
        assert_eq!(engine.axes.vector(&line.waiting), engine.axes.vector(&asked));
    }
}

/// Every waiting group is in its line once, where its standing says, and nobody else is.
fn check_lines(engine: &Engine) {
    let mut placed = BTreeSet::new();
    for (_, group) in engine.groups.iter() {
        let (Standing::Parked(place) | Standing::Offers(place, _)) = &group.standing else {
            continue;
        };
        assert_eq!(Some(*place), group.place(engine.lines[group.line].growth));
        assert!(placed.insert((group.line, *place)));
    }
    let lines = engine.lines.iter();
    let found = lines.flat_map(|(slot, line)| line.places().into_iter().map(move |at| (slot, at)));
    assert_eq!(found.collect::<BTreeSet<_>>(), placed);
}

fn check_backlogs(engine: &Engine) {
    for id in (1..4).map(QueueId) {
        let below = |group: &&Group| match group.config.queue {
            Assignment::Queue(queue) => engine.path(queue).contains(&id),
            _ => false,
        };
        let groups = || engine.groups.iter().map(|(_, group)| group).filter(below);
        let waiting: usize = groups().map(|group| group.waiting.len()).sum();
        assert_eq!(engine.pending(id), u64::try_from(waiting).unwrap());
        match engine.queues.get(&id).and_then(|queue| queue.max_pending) {
            Some(most) if engine.pending(id) >= most => assert!(engine.full().contains(&id)),
            Some(most) if engine.pending(id) > reopens_at(most) => {}
            _ => assert!(!engine.full().contains(&id)),
        }
        let mut named: Vec<_> = engine.backlog(id).collect();
        named.sort_unstable();
        named.dedup();
        assert!(named.iter().all(|&pod| engine.waits(pod)));
        assert!(named.len() <= waiting);
    }
}

proptest! {
    #[test]
    fn sums_lines_and_sets_agree_whatever_is_told_and_nothing_is_kept_of_what_is_gone(
        steps in prop::collection::vec(step(), 1..80)
    ) {
        let mut engine = Engine::default();
        engine.apply(0, Event::Synced(HERE));
        for (now, step) in (0..).zip(steps) {
            match step {
                None => {
                    engine.rehearse(10);
                    check_sums(&engine);
                    engine.decide(10);
                }
                Some(event) => engine.apply(now, event),
            }
            engine.settle();
            check_sums(&engine);
            check_demand(&engine);
            check_lines(&engine);
            check_backlogs(&engine);
        }
        for pod in (1..8).map(Uid) {
            engine.apply(100, Event::PodRemoved(pod));
        }
        engine.settle();
        check_sums(&engine);
        prop_assert!(engine.load.is_zero());
        prop_assert_eq!(engine.pods.len() + engine.shapes.len() + engine.classes.len(), 0);
        prop_assert!(engine.retries.is_empty());
        prop_assert!(engine.lines.iter().all(|(_, line)| line.keys.is_empty()));
    }
}

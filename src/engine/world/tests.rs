//! Whatever is told in whatever order, what the engine keeps agrees with itself.

use proptest::prelude::*;

use super::*;
use crate::engine::backlog::reopens_at;
use crate::engine::{Gang, ResourceId};

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
    let group = (1u64..4, assignment(), 0u32..4).prop_map(|(id, queue, gang)| {
        let gang = if gang == 0 { Gang::Units } else { Gang::AtLeast(gang) };
        let root = Uid(u128::from(id));
        Event::GroupChanged(GroupId(id), GroupConfig { cluster: HERE, root, queue, gang, singleton: None, non_preemptible: false })
    });
    let told = (pod(), 1u64..4, state(), 0i128..2_000, 0i64..5).prop_map(
        |(id, group, state, cpu, created)| {
            let group = GroupId(group);
            Event::PodChanged(
                id,
                PodConfig { group, cost: amount(cpu), priority: 0, created, state },
            )
        },
    );
    let node = (1u32..4, any::<bool>(), any::<bool>(), 0i128..8_000).prop_map(
        |(id, ready, schedulable, cpu)| {
            let allocatable = [(ResourceId::CPU, cpu), (ResourceId::PODS, 9)].into_iter().collect();
            Event::NodeChanged(
                NodeId(id),
                NodeConfig { cluster: HERE, allocatable, ready, schedulable },
            )
        },
    );
    let foreign = (1u32..4, 0i128..9_000)
        .prop_map(|(id, cpu)| Event::ForeignChanged(NodeId(id), amount(cpu)));
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
        1 => foreign.prop_map(Some),
    ]
}

/// A group is announced before its pods, as those who tell promise.
fn announce(engine: &mut Engine, group: GroupId) {
    if !engine.groups.contains_key(&group) {
        let (root, queue) = (Uid(u128::from(group.0)), Assignment::Queue(QueueId(1)));
        engine.apply(
            0,
            Event::GroupChanged(
                group,
                GroupConfig { cluster: HERE, root, queue, gang: Gang::Units, singleton: None, non_preemptible: false },
            ),
        );
    }
}

/// Nobody tells of load on a node that is not there.
fn is_promised(engine: &Engine, event: &Event) -> bool {
    let known = |id| engine.nodes.get(id).is_some_and(|node| node.known);
    !matches!(event, Event::ForeignChanged(id, _) if !known(id))
}

fn without_zeros(vector: &Vector) -> Vector {
    vector.iter().filter(|&(_, amount)| amount != 0).collect()
}

fn check_charges(engine: &Engine) {
    let mut books = Books::default();
    for pod in engine.pods.values() {
        assert_eq!(pod.charge, engine.due(pod), "a charge is out of date: {pod:?}");
        if let Some(charge) = &pod.charge {
            books.enter(&engine.tree, charge, Vector::add);
        }
    }
    assert_eq!(without_zeros(&engine.books.load), without_zeros(&books.load));
    for id in (1..4).map(QueueId) {
        let sum =
            |of: &BTreeMap<QueueId, Vector>| of.get(&id).map(without_zeros).unwrap_or_default();
        assert_eq!(sum(&engine.books.direct), sum(&books.direct));
        assert_eq!(sum(&engine.books.usage), sum(&books.usage));
    }
    let mut capacity = Vector::default();
    engine.nodes.values().for_each(|node| capacity.add(&node.offer()));
    assert_eq!(without_zeros(&engine.books.capacity), without_zeros(&capacity));
}

fn check_places(engine: &Engine) {
    for (id, pod) in &engine.pods {
        let group = &engine.groups[&pod.config.group];
        assert!(group.pods.contains(id));
        assert_eq!(group.waiting.iter().any(|(.., waits)| waits == id), pod.waits());
        assert_eq!(group.ages.iter().any(|(_, waits)| waits == id), pod.waits());
        assert_eq!(group.started.contains(id), pod.has_started());
        let there =
            engine.nodes.iter().filter(|(_, node)| node.pods.contains(id)).map(|(&node, _)| node);
        assert_eq!(there.collect::<Vec<_>>(), Vec::from_iter(pod.node()));
    }
    for node in engine.nodes.values() {
        assert!(node.known || !node.pods.is_empty(), "a node that nobody needs is kept");
        assert!(node.pods.iter().all(|pod| engine.pods.contains_key(pod)));
    }
    for group in engine.groups.values() {
        let asks = |pod: &PodId| &engine.pods[pod].config.cost;
        let unusual = group.waiting.iter().filter(|(.., pod)| *asks(pod) != group.usual);
        assert_eq!(unusual.count(), group.unusual);
    }
    let placed: BTreeSet<_> = engine.groups.values().filter_map(|group| group.place).collect();
    let lined = engine
        .lines
        .iter()
        .flat_map(|(&queue, line)| line.iter().map(move |&place| (queue, place)));
    assert_eq!(lined.collect::<BTreeSet<_>>(), placed);
}

fn check_backlogs(engine: &Engine) {
    for id in (1..4).map(QueueId) {
        let below = |group: &&Group| match group.config.queue {
            Assignment::Queue(queue) => engine.tree.path(queue).contains(&id),
            _ => false,
        };
        let waiting: usize = engine.groups.values().filter(below).map(|g| g.waiting.len()).sum();
        assert_eq!(engine.pending(id), u64::try_from(waiting).unwrap());
        let most = engine.queues.get(&id).and_then(|queue| queue.max_pending);
        match most {
            Some(most) if engine.pending(id) >= most => assert!(engine.full().contains(&id)),
            Some(most) if engine.pending(id) > reopens_at(most) => {}
            _ => assert!(!engine.full().contains(&id)),
        }
        let mut named: Vec<_> = engine.backlog(id).collect();
        named.sort_unstable();
        named.dedup();
        assert!(named.iter().all(|pod| engine.pods[pod].waits()));
        assert!(named.len() <= waiting);
    }
}

proptest! {
    #[test]
    fn charges_lines_and_sets_agree_whatever_is_told(steps in prop::collection::vec(step(), 1..80)) {
        let mut engine = Engine::default();
        engine.apply(0, Event::Synced(HERE));
        for (now, step) in (0..).zip(steps) {
            match step {
                None => {
                    engine.rehearse(10);
                    check_charges(&engine);
                    check_places(&engine);
                    engine.decide(10);
                }
                Some(event) => {
                    if let Event::PodChanged(_, config) = &event {
                        announce(&mut engine, config.group);
                    }
                    if is_promised(&engine, &event) {
                        engine.apply(now, event);
                    }
                }
            }
            check_charges(&engine);
            check_places(&engine);
            check_backlogs(&engine);
        }
    }
}

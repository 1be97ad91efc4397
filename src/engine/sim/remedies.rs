//! What is said to be missing is what is missing: given to a group, it starts.

use super::super::event::{Event, NodeConfig, QueueConfig};
use super::super::model::{GroupId, NodeId, PodId, QueueId, ResourceId, Vector};
use super::super::{Engine, Reason, Shortage};
use super::{Log, Step, is_promised};

/// No chain of reasons is longer: each of some resources at each of some queues, and nodes.
const STEPS: usize = 60;

/// Plays a log, and then gives each group that waits what its reason says, reason after reason.
/// Panics when a reason stays as it was. Returns how many groups started by that.
pub(super) fn end_waits(log: &Log) -> usize {
    let engine = played(log);
    let waits = |id: &GroupId| engine.reason(*id).is_some();
    let groups: Vec<GroupId> = engine.groups().map(|group| group.id).filter(waits).collect();
    groups.into_iter().filter(|&group| ends(&engine, group)).count()
}

fn played(log: &Log) -> Engine {
    let mut engine = Engine::default();
    let mut nodes = std::collections::BTreeSet::new();
    for (now, step) in log {
        match step {
            Step::Apply(event) if is_promised(&mut nodes, event) => {
                engine.apply(*now, event.clone());
            }
            Step::Apply(_) | Step::Rehearse(_) => {}
            Step::Tick => drop(engine.tick(*now)),
            Step::Decide(budget) => drop(engine.decide(*budget)),
        }
    }
    engine.decide(usize::MAX);
    engine
}

/// Whether a group starts once it has what its reasons ask for and nobody else takes it.
fn ends(played: &Engine, group: GroupId) -> bool {
    let mut engine = alone(played, group);
    let mut before = None;
    for _ in 0..STEPS {
        let waiting = waiting(&engine, group).len();
        let Some(reason) = engine.reason(group) else { return true };
        // Another cost of a gang may lack as much on another node.
        let again = before == Some(reason) && !matches!(reason, Reason::LargerThanAnyNode(_));
        assert!(!again, "what was said to be missing was not: {group:?} {reason:?}");
        before = Some(reason);
        if !give(&mut engine, group, &reason) {
            return false;
        }
        engine.decide(usize::MAX);
        if self::waiting(&engine, group).len() < waiting {
            return true;
        }
    }
    panic!("{group:?} waits for ever: {before:?}");
}

/// The same, but that nothing else waits.
fn alone(played: &Engine, group: GroupId) -> Engine {
    let mut engine = played.restored();
    let now = engine.now;
    let others: Vec<PodId> =
        engine.groups().filter(|other| other.id != group).flat_map(|other| other.waiting).collect();
    for pod in others {
        engine.apply(now, Event::PodRemoved(pod));
    }
    engine.decide(usize::MAX);
    engine
}

fn waiting(engine: &Engine, group: GroupId) -> Vec<PodId> {
    engine.groups().find(|other| other.id == group).map_or(Vec::new(), |group| group.waiting)
}

/// Gives what a reason asks for; false when it asks for no amount.
fn give(engine: &mut Engine, group: GroupId, reason: &Reason) -> bool {
    match *reason {
        Reason::QueueLimit(short, queue) | Reason::LargerThanQueue(short, queue) => {
            change_queue(engine, queue, |config| raise_limit(config, &short));
        }
        // No queue is accepted under which more is guaranteed than it has.
        Reason::BeyondGuarantee(short, queue) if is_promised_away(engine, queue, &short) => {
            return false;
        }
        Reason::BeyondGuarantee(short, queue) => {
            let more = given(engine, queue, short.resource) + short.missing();
            change_queue(engine, queue, |config| config.guaranteed.set(short.resource, more));
        }
        Reason::Capacity(short) => add_node(engine, group, more(&short)),
        Reason::LargerThanAnyNode(short) => enlarge_nodes(engine, &short),
        Reason::NoUsableNode(_) => add_node(engine, group, Vector::default()),
        _ => return false,
    }
    true
}

/// What a queue is guaranteed; where it lists nothing, what those below are.
fn given(engine: &Engine, queue: QueueId, resource: ResourceId) -> i128 {
    let (Some(node), Some(axis)) = (engine.tree.of_queue(queue), engine.axes.of(resource)) else {
        return 0;
    };
    if node.given.has(axis) { node.given.get(axis) } else { 0 }
}

fn is_promised_away(engine: &Engine, queue: QueueId, short: &Shortage) -> bool {
    let below = engine.queues.iter().filter(|(_, config)| config.parent == Some(queue));
    let below = below.map(|(&id, _)| given(engine, id, short.resource)).sum::<i128>();
    below > given(engine, queue, short.resource)
}

fn change_queue(engine: &mut Engine, id: QueueId, change: impl FnOnce(&mut QueueConfig)) {
    let mut config = engine.queues[&id].clone();
    change(&mut config);
    engine.apply(engine.now, Event::QueueChanged(id, config));
}

fn raise_limit(config: &mut QueueConfig, short: &Shortage) {
    let (resource, more) = (short.resource, short.missing());
    if let Some(most) = config.limit.mentioned(resource) {
        config.limit.set(resource, most + more);
    }
    let running = match resource {
        ResourceId::GROUPS => &mut config.max_running.groups,
        ResourceId::PODS => &mut config.max_running.pods,
        _ => return,
    };
    *running = running.map(|most| most + u64::try_from(more).unwrap());
}

fn more(short: &Shortage) -> Vector {
    [(short.resource, short.missing())].into_iter().collect()
}

fn add_node(engine: &mut Engine, group: GroupId, allocatable: Vector) {
    let slot = engine.group_slots.get(&group).unwrap();
    let cluster = engine.groups[slot].config.cluster;
    let id = NodeId(1_000 + engine.fleet.known);
    let node = NodeConfig {
        cluster,
        allocatable,
        ready: true,
        schedulable: true,
        ..NodeConfig::default()
    };
    engine.apply(engine.now, Event::NodeChanged(id, node));
}

/// As each node is, but that it has so much more.
fn enlarge_nodes(engine: &mut Engine, short: &Shortage) {
    let enlarged = |config: &NodeConfig| {
        let mut config = config.clone();
        let amount = config.allocatable.get(short.resource) + short.missing();
        config.allocatable.set(short.resource, amount);
        config
    };
    let known = engine.fleet.iter().filter(|(_, node)| node.known);
    let nodes: Vec<_> = known.map(|(id, node)| (id, enlarged(&node.config))).collect();
    for (id, node) in nodes {
        engine.apply(engine.now, Event::NodeChanged(id, node));
    }
}

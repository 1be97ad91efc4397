//! What is written of a queue, and when.

use super::*;
use crate::engine::event::{
    Address, Event, GroupConfig, Maker, Name, NodeConfig, PodConfig, QueueConfig, QueueName,
};
use crate::engine::{
    Assignment, ClusterId, Gang, GroupId, NodeId, PodId, PodState, ResourceId, Uid,
};
use crate::view::Totals;

const QUEUE: QueueId = QueueId(1);
const BELOW: QueueId = QueueId(2);

/// A queue of which ten may wait, and one below it.
struct World {
    engine: Engine,
    names: Names,
    statuses: Statuses,
    next: u128,
}

impl World {
    fn new() -> Self {
        let (engine, names) = (Engine::default(), Names::default());
        let mut world = Self { engine, names, statuses: Statuses::default(), next: 0 };
        world.queue(QUEUE, QueueConfig { max_pending: Some(10), ..QueueConfig::default() });
        world.queue(BELOW, QueueConfig { parent: Some(QUEUE), ..QueueConfig::default() });
        world
    }

    fn queue(&mut self, id: QueueId, config: QueueConfig) {
        let name = QueueName { name: format!("q{}", id.0).into(), object: Some(("u".into(), 1)) };
        self.names.learn(Name::Queue(id, name));
        self.engine.apply(0, Event::QueueChanged(id, config));
        let (group, root) = (GroupId(u64::from(id.0)), Uid(u128::from(id.0)));
        let (cluster, queue) = (ClusterId(0), Assignment::Queue(id));
        let config = GroupConfig {
            cluster,
            root,
            queue,
            gang: Gang::Units,
            singleton: None,
            non_preemptible: false,
            topology: None,
        };
        self.engine.apply(0, Event::GroupChanged(group, config));
    }

    /// Pods of this maker begin to wait.
    fn wait(&mut self, pods: usize, queue: QueueId, maker: &Maker) -> Vec<PodId> {
        let add = |_| {
            self.next += 1;
            let (id, group) = (Uid(self.next), GroupId(u64::from(queue.0)));
            let address = Address {
                cluster: ClusterId(0),
                namespace: "lab".into(),
                name: format!("pod-{}", self.next).into(),
                uid: "u".into(),
            };
            self.names.learn(Name::Pod(id, Arc::new(address), maker.clone()));
            let (cost, state) = (Vector::default(), PodState::Gated);
            let config = PodConfig {
                group,
                cost,
                priority: 0,
                created: 1,
                started: None,
                never_preempts: false,
                state,
            };
            self.engine.apply(0, Event::PodChanged(id, config));
            id
        };
        (0..pods).map(add).collect()
    }

    /// What is written of the upper queue.
    fn written(&mut self, now: Millis) -> Option<QueueStatus> {
        self.statuses.due();
        self.written_by(true, now)
    }

    /// What is written of it by who leads or only follows, though nothing else has changed.
    fn written_by(&mut self, leads: bool, now: Millis) -> Option<QueueStatus> {
        self.engine.settle();
        let mut view = View::of(&self.engine, &self.names, now, Totals::default());
        (view.synced, view.leads) = (true, leads);
        let actions = self.statuses.write(now, &view, &self.engine, &self.names);
        actions.into_iter().find_map(|action| match action {
            Action::QueueStatus(status) if &*status.name == "q1" => Some(*status),
            _ => None,
        })
    }
}

fn owner(uid: &str) -> Maker {
    Maker::Owner(uid.into())
}

fn texts(names: &[Arc<str>]) -> Vec<&str> {
    names.iter().map(|name| &**name).collect()
}

#[test]
fn a_backlog_that_becomes_full_is_told_at_once_and_so_is_its_end() {
    let mut world = World::new();
    let mut pods = world.wait(9, BELOW, &owner("b"));
    let open = world.written(0).unwrap();
    assert_eq!((open.full, open.max_pending, open.urgent), (None, Some(10), false));
    pods.extend(world.wait(1, QUEUE, &owner("a")));
    assert_eq!(world.written(EVERY_FULL - 1), None);
    let status = world.written(EVERY_FULL).unwrap();
    let full = status.full.unwrap();
    assert!(status.urgent);
    assert_eq!((full.pods, texts(&full.owners)), (10, vec!["a", "b"]), "those below count too");
    world.engine.apply(0, Event::PodRemoved(pods[0]));
    let status = world.written(2 * EVERY_FULL).unwrap();
    assert_eq!((status.full, status.urgent), (None, true));
}

#[test]
fn who_begins_to_wait_meanwhile_is_news_and_who_has_more_pods_is_not() {
    let mut world = World::new();
    world.wait(10, QUEUE, &owner("a"));
    assert!(world.written(0).unwrap().urgent);
    world.wait(1, QUEUE, &owner("a"));
    let status = world.written(100).unwrap();
    assert_eq!((status.full.unwrap().pods, status.urgent), (11, false));
    world.wait(1, QUEUE, &owner("c"));
    assert!(world.written(200).unwrap().urgent);
    world.wait(1, QUEUE, &Maker::Namespace);
    let status = world.written(300).unwrap();
    assert_eq!((texts(&status.full.unwrap().namespaces), status.urgent), (vec!["lab"], true));
    world.wait(1, QUEUE, &Maker::Label);
    assert!(!world.written(400).unwrap().urgent, "admission reads the label");
}

#[test]
fn a_full_backlog_is_told_again_every_ten_seconds_though_nothing_changes() {
    let mut world = World::new();
    world.wait(10, QUEUE, &owner("a"));
    let times = (0..=30_000).step_by(100);
    let written = times.filter(|&now| world.written(now).is_some()).count();
    assert_eq!(written, 4);
}

#[test]
fn of_many_owners_those_with_most_pods_are_named() {
    let mut world = World::new();
    for number in 0..100 {
        let pods = if number % 2 == 0 { 2 } else { 1 };
        world.wait(pods, QUEUE, &owner(&format!("{number:02}")));
    }
    let full = world.written(0).unwrap().full.unwrap();
    let (double, single): (Vec<&str>, Vec<&str>) = texts(&full.owners)
        .into_iter()
        .partition(|uid| uid.parse::<u32>().unwrap().is_multiple_of(2));
    assert_eq!((double.len(), single.len()), (50, 14));
    assert!(full.owners.is_sorted());
}

#[test]
fn long_lines_are_gone_through_less_often() {
    let mut world = World::new();
    world.wait(1_000, QUEUE, &owner("a"));
    world.written(0).unwrap();
    world.wait(1, QUEUE, &owner("b"));
    assert_eq!(world.written(EVERY_FULL), None);
    assert!(world.written(EVERY_FULL + 10).unwrap().urgent);
}

const GPU: ResourceId = ResourceId(7);

fn names() -> Names {
    let mut names = Names::default();
    for (id, name) in [(ResourceId::CPU, "cpu"), (GPU, "nvidia.com/gpu")] {
        names.learn(Name::Resource(id, name.into()));
    }
    names
}

fn amounts(cpu: i128, gpu: i128) -> Vector {
    [(ResourceId::CPU, cpu), (GPU, gpu)].into_iter().collect()
}

fn summary(guaranteed: Vector, limit: Vector, usage: Vector) -> QueueSummary {
    QueueSummary {
        id: QueueId(1),
        config: Some(QueueConfig { guaranteed, limit, ..QueueConfig::default() }),
        problem: None,
        usage,
        entitled: Vector::default(),
        share_per_mille: 0,
        line: vec![],
    }
}

#[test]
fn what_is_over_a_limit_is_told_in_one_unit() {
    let queue = summary(Vector::default(), amounts(2_000, 4), amounts(2_500, 4));
    let said = over_limit(&queue, &names());
    assert_eq!(said.as_deref(), Some("in use: 2500m of 2000m cpu"));
    let within = QueueSummary { usage: amounts(2_000, 4), ..queue };
    assert_eq!(over_limit(&within, &names()), None);
}

#[test]
fn more_guaranteed_than_there_is_is_told_until_there_is_enough() {
    let mut engine = Engine::default();
    let queue = summary(amounts(4_000, 8), Vector::default(), Vector::default());
    let said = |engine: &Engine| beyond_capacity(&queue, engine, &names());
    let nothing = "guaranteed, of what all queues can share now: 4 of 0 cpu, 8 of 0 nvidia.com/gpu";
    assert_eq!(said(&engine).as_deref(), Some(nothing));
    let allocatable = amounts(4_000, 8);
    let node = NodeConfig {
        cluster: ClusterId(0),
        allocatable,
        ready: true,
        schedulable: true,
        ..NodeConfig::default()
    };
    engine.apply(0, Event::NodeChanged(NodeId(1), node));
    assert_eq!(said(&engine), None);
}

/// Of a node with capacity, the lower queue uses half since the beginning.
fn remembering() -> World {
    let mut world = World::new();
    let config = QueueConfig {
        half_life: Some(60_000),
        limit: [(ResourceId::CPU, 9_000)].into_iter().collect(),
        max_pending: Some(10),
        ..QueueConfig::default()
    };
    world.engine.apply(0, Event::QueueChanged(QUEUE, config));
    world.names.learn(Name::Resource(ResourceId::CPU, "cpu".into()));
    let pod = world.wait(1, QUEUE, &owner("a"))[0];
    let config = PodConfig {
        group: GroupId(1),
        cost: [(ResourceId::CPU, 1_000)].into_iter().collect(),
        priority: 0,
        created: 1,
        started: Some(0),
        never_preempts: false,
        state: PodState::Released { held: false },
    };
    world.engine.apply(0, Event::PodChanged(pod, config));
    world
}

#[test]
fn what_was_used_before_is_written_again_after_half_a_minute_though_nothing_changed() {
    let mut world = remembering();
    let mut cpus = |now| {
        world.engine.tick(now);
        let past = world.written_by(true, now)?.past.unwrap();
        Some((past.at, past.own.get("cpu").copied().unwrap_or(0)))
    };
    assert_eq!(cpus(0), Some((0, 0)));
    assert_eq!(cpus(PAST_EVERY - EVERY), None);
    assert_eq!(cpus(PAST_EVERY), Some((PAST_EVERY, 292_893_218)), "half counts after a minute");
    assert_eq!(cpus(2 * PAST_EVERY), Some((2 * PAST_EVERY, 500_000_000)));
}

#[test]
fn a_status_that_is_written_for_another_reason_says_the_same_past() {
    let mut world = remembering();
    world.written(0).unwrap();
    world.engine.tick(5_000);
    world.wait(1, BELOW, &owner("b"));
    assert_eq!(world.written(5_000).unwrap().past.unwrap().at, 0);
}

#[test]
fn who_only_follows_writes_neither_a_full_backlog_nor_what_was_used_before() {
    let mut world = remembering();
    world.wait(10, QUEUE, &owner("a"));
    assert_eq!(world.written_by(false, 2 * PAST_EVERY), None);
    let status = world.written_by(true, 2 * PAST_EVERY).unwrap();
    assert!(status.full.is_some() && status.past.is_some());
}

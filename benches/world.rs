//! A fleet made of numbers: the same every time, with ten times more work than room.

use std::{collections::VecDeque, sync::Arc};

use tidegate::{
    engine::{
        Assignment, ClusterId, Decision, Engine, Gang, GroupId, Millis, NodeId, PodId, PodState,
        QueueId, ResourceId, Uid, Vector,
        event::{
            Address, Event, GroupConfig, GroupName, Maker, Name, NodeConfig, ObjectRef, PodConfig,
            QueueConfig, QueueName,
        },
    },
    view::Names,
};

use crate::fleet::mix;

/// Queues with work; each ten of them have one above.
pub const QUEUES: u32 = 100;
/// Pods of one group.
pub const GROUP: u64 = 10;
/// One in so many pods has room.
const CONTENTION: u64 = 10;
/// Average pods that a node has room for.
const PODS_PER_NODE: u64 = 32;
/// Decisions of one round, as in the control loop.
const ROUND: usize = 2_000;

const HERE: ClusterId = ClusterId(0);
const GPU: ResourceId = ResourceId(4);
const GIB: i128 = 1 << 30;
const NOW: Millis = 1_000_000_000;

/// An engine, the names for its view, and what runs.
pub struct World {
    pub engine: Engine,
    pub names: Names,
    nodes: u64,
    running: VecDeque<PodId>,
}

impl World {
    /// So many pods, all waiting.
    pub fn new(pods: u64) -> Self {
        let nodes = (pods / CONTENTION / PODS_PER_NODE).max(1);
        let mut world = Self {
            engine: Engine::default(),
            names: Names::default(),
            nodes,
            running: VecDeque::new(),
        };
        for (id, name) in (0..).zip(["cpu", "memory", "pods", "groups", "nvidia.com/gpu"]) {
            world.names.learn(Name::Resource(ResourceId(id), name.into()));
        }
        for number in 0..QUEUES + QUEUES / 10 {
            world.queue(number);
        }
        for number in (0..).map(NodeId).take(usize::try_from(nodes).unwrap_or(usize::MAX)) {
            world.apply(Event::NodeChanged(number, node()));
        }
        for number in 0..pods / GROUP {
            world.group(number);
        }
        for number in 0..pods {
            world.pod(number);
        }
        world.apply(Event::Synced(HERE));
        world
    }

    /// Rounds until nothing more may start.
    pub fn decide_all(&mut self) -> Vec<Decision> {
        let mut all = Vec::new();
        while self.engine.tick(NOW) {
            all.extend(self.engine.decide(ROUND).started);
        }
        all
    }

    /// A pod that ran has ended.
    pub fn end_one(&mut self) -> Option<PodId> {
        let pod = self.running.pop_front()?;
        self.see(pod, PodState::Ended);
        Some(pod)
    }

    /// Its object is gone.
    pub fn remove(&mut self, pod: PodId) {
        self.apply(Event::PodRemoved(pod));
        self.names.forget_pod(pod);
    }

    /// What was decided runs.
    pub fn run(&mut self, decisions: &[Decision]) {
        for decision in decisions {
            let node = NodeId(u32::try_from(decision.number % self.nodes).unwrap_or(0));
            self.see(decision.pod, PodState::Bound { node, terminating: false });
            self.running.push_back(decision.pod);
        }
    }

    fn see(&mut self, pod: PodId, state: PodState) {
        self.apply(Event::PodChanged(pod, PodConfig { state, ..config(number_of(pod)) }));
    }

    fn apply(&mut self, event: Event) {
        self.engine.apply(NOW, event);
    }

    fn queue(&mut self, number: u32) {
        let id = QueueId(number);
        let object = Some((format!("queue-uid-{number}").into(), 1));
        let name = format!("queue-{number}").into();
        self.names.learn(Name::Queue(id, QueueName { name, object }));
        self.apply(Event::QueueChanged(id, queue(number)));
    }

    fn group(&mut self, number: u64) {
        let (id, root) = (GroupId(number), Uid(u128::from(number)));
        let address = address("job", number, root);
        let name = GroupName {
            namespace: address.namespace.clone(),
            joined: None,
            root: ObjectRef { address, api_version: "batch/v1".into(), kind: "Job".into() },
            origin: Arc::default(),
        };
        self.names.learn(Name::Group(id, Arc::new(name)));
        let queue = Assignment::Queue(QueueId(u32::try_from(number).unwrap_or(0) % QUEUES));
        // One group in ten starts as a gang.
        let gang = if number.is_multiple_of(10) { Gang::AtLeast(10) } else { Gang::Units };
        self.apply(Event::GroupChanged(
            id,
            GroupConfig {
                cluster: HERE,
                root,
                queue,
                gang,
                singleton: None,
                non_preemptible: false,
                topology: None,
            },
        ));
    }

    fn pod(&mut self, number: u64) {
        let id = pod_id(number);
        let address = Arc::new(address("pod", number, id));
        self.names.learn(Name::Pod(id, address, Maker::Namespace));
        self.apply(Event::PodChanged(id, config(number)));
    }
}

/// Leaves first; the ones after them are above.
fn queue(number: u32) -> QueueConfig {
    let parent = (number < QUEUES).then(|| QueueId(QUEUES + number / 10));
    let cores = |cores: i128| [(ResourceId::CPU, cores * 1000)].into_iter().collect();
    QueueConfig {
        parent,
        weight: 1 + number % 5,
        guaranteed: if number.is_multiple_of(3) { cores(10) } else { Vector::default() },
        limit: if number.is_multiple_of(4) { cores(500) } else { Vector::default() },
        ..QueueConfig::default()
    }
}

fn node() -> NodeConfig {
    let allocatable = [
        (ResourceId::CPU, 60_000),
        (ResourceId::MEMORY, 320 * GIB),
        (ResourceId::PODS, 110),
        (GPU, 4),
    ];
    let allocatable = allocatable.into_iter().collect();
    NodeConfig {
        cluster: HERE,
        allocatable,
        ready: true,
        schedulable: true,
        ..NodeConfig::default()
    }
}

fn address(kind: &str, number: u64, uid: Uid) -> Address {
    Address {
        cluster: HERE,
        namespace: Arc::from(format!("team-{}", number % 50)),
        name: Arc::from(format!("{kind}-{number}")),
        uid: Arc::from(format!("{:032x}", uid.0)),
    }
}

/// A pod's configuration while it waits.
pub fn config(number: u64) -> PodConfig {
    let group = number / GROUP;
    let mixed = mix(group);
    PodConfig {
        group: GroupId(group),
        cost: cost(mixed),
        priority: [0, 0, 0, 10, 100][usize::try_from(mixed >> 60).unwrap_or(0) % 5],
        created: Millis::try_from(number).unwrap_or(0),
        started: None,
        never_preempts: false,
        state: PodState::Gated,
    }
}

/// One of 32 shapes.
fn cost(mixed: u64) -> Vector {
    let cores = [500, 1000, 2000, 4000][usize::try_from(mixed % 4).unwrap_or(0)];
    let gib = [2, 4, 8, 16][usize::try_from(mixed / 4 % 4).unwrap_or(0)];
    let amounts =
        [(ResourceId::CPU, cores), (ResourceId::MEMORY, gib * GIB), (ResourceId::PODS, 1)];
    let gpu = (mixed / 16).is_multiple_of(8).then_some((GPU, 1));
    amounts.into_iter().chain(gpu).collect()
}

/// In no order, as uids are; the number is kept in its lower half.
pub fn pod_id(number: u64) -> PodId {
    Uid(u128::from(mix(number)) << 64 | u128::from(number))
}

fn number_of(pod: PodId) -> u64 {
    u64::try_from(pod.0 & u128::from(u64::MAX)).unwrap_or(0)
}

//! Whole fleets for the decision core: queues in a tree of three levels, of different weights,
//! a third with a guarantee, a quarter with a limit; more is asked than there is.

use std::{collections::VecDeque, str::FromStr};

use tidegate::engine::{
    Assignment, ClusterId, Gang, GroupId, NodeId, PodId, PodState, QueueId, ResourceId, Uid,
    Vector,
    event::{Event, GroupConfig, NodeConfig, PodConfig, QueueConfig},
    log::{Log, Logged},
};

/// Different costs.
const SHAPES: u64 = 500;
/// Clusters.
const CLUSTERS: u64 = 100;
/// Pods of a gang, where there are gangs.
const GANG: u64 = 8;
/// Queues one below the other, where that is so.
const DEPTH: u64 = 64;
/// Decisions of one round, as in the control loop.
const ROUND: usize = 2_000;

const GPU: ResourceId = ResourceId(4);
const GIB: i128 = 1 << 30;

/// What waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// Pods each on its own, of 500 costs.
    Pods,
    /// The same in gangs of eight.
    Gangs,
    /// A tenth of the pods are in one queue and each costs something else.
    Odd,
    /// A tenth of the pods are in one queue, in gangs of eight that are beyond its limit.
    Impossible,
    /// Ten thousand queues side by side.
    Wide,
    /// Queues in chains of 64.
    Deep,
    /// Weights of zero and the largest there is.
    Weights,
}

impl Load {
    /// What a user or an administrator may do to everybody else.
    pub const HOSTILE: [Self; 5] =
        [Self::Odd, Self::Impossible, Self::Wide, Self::Deep, Self::Weights];
}

impl FromStr for Load {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let mut all = [Self::Pods, Self::Gangs].into_iter().chain(Self::HOSTILE);
        let named = all.find(|load| load.to_string() == name);
        named.ok_or_else(|| format!("no load is called {name}"))
    }
}

impl std::fmt::Display for Load {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&format!("{self:?}").to_lowercase())
    }
}

/// An engine, and what runs.
pub struct Fleet {
    pub engine: Logged,
    now: i64,
    pods: u64,
    queues: u64,
    load: Load,
    /// Decisions of one round.
    pub budget: usize,
    running: VecDeque<PodId>,
}

impl Fleet {
    /// Queues and nodes, and nothing that waits.
    pub fn new(pods: u64, nodes: u64, load: Load, log: Option<Box<dyn Log>>) -> Self {
        let queues = if load == Load::Wide { 10_000 } else { (pods / 100).clamp(10, 10_000) };
        let (engine, running) = (Logged::new(log), VecDeque::new());
        let mut fleet = Self { engine, now: 0, pods, queues, load, budget: ROUND, running };
        for number in 0..fleet.above() + queues {
            fleet.queue(number);
        }
        for number in 0..nodes {
            fleet.node(number);
        }
        for cluster in 0..CLUSTERS {
            fleet.apply(Event::Synced(ClusterId(u16::try_from(cluster).unwrap_or(0))));
        }
        fleet.engine.settle();
        fleet
    }

    fn apply(&mut self, event: Event) {
        self.engine.apply(self.now, event);
    }

    /// Queues above those with work.
    fn above(&self) -> u64 {
        match self.load {
            Load::Wide | Load::Deep => 0,
            _ => (self.queues / 100).max(1),
        }
    }

    fn parent(&self, number: u64) -> Option<u64> {
        match self.load {
            Load::Wide => None,
            Load::Deep => (!number.is_multiple_of(DEPTH)).then(|| number - 1),
            _ => (number >= self.above()).then(|| number % self.above()),
        }
    }

    fn weight(&self, number: u64) -> u32 {
        match self.load {
            Load::Weights if number.is_multiple_of(2) => 0,
            Load::Weights => u32::MAX,
            _ => 1 + u32::try_from(number % 7).unwrap_or(0),
        }
    }

    fn queue(&mut self, number: u64) {
        let id = |number: u64| QueueId(u32::try_from(number).unwrap_or(0));
        let cores = |cores: i128| [(ResourceId::CPU, cores * 1000)].into_iter().collect();
        let below = number >= self.above();
        let config = QueueConfig {
            parent: self.parent(number).map(id),
            weight: self.weight(number),
            guaranteed: if below && number.is_multiple_of(3) {
                cores(10)
            } else {
                Vector::default()
            },
            limit: if below && self.is_limited(number) { cores(500) } else { Vector::default() },
            ..QueueConfig::default()
        };
        self.apply(Event::QueueChanged(id(number), config));
    }

    fn is_limited(&self, number: u64) -> bool {
        match self.load {
            // All above would be limited too, and next to nothing would start.
            Load::Deep => false,
            Load::Impossible if number == self.above() => true,
            _ => number.is_multiple_of(4),
        }
    }

    fn node(&mut self, number: u64) {
        let of = |modulus: u64| i128::from(number % modulus);
        let allocatable = [
            (ResourceId::CPU, 32_000 + 32_000 * of(3)),
            (ResourceId::MEMORY, (128 + 64 * of(4)) * GIB),
            (ResourceId::PODS, 110),
            (GPU, if number.is_multiple_of(4) { 8 } else { 0 }),
        ];
        let cluster = ClusterId(u16::try_from(number % CLUSTERS).unwrap_or(0));
        let allocatable = allocatable.into_iter().collect();
        let config = NodeConfig {
            cluster,
            allocatable,
            ready: true,
            schedulable: true,
            ..NodeConfig::default()
        };
        self.apply(Event::NodeChanged(NodeId(u32::try_from(number).unwrap_or(0)), config));
    }

    /// Everything that waits.
    pub fn tell(&mut self) {
        for number in 0..self.pods {
            let size = self.size(number);
            let group = number - number % size;
            if group == number {
                self.group(group, size);
            }
            let config = PodConfig {
                group: GroupId(group),
                cost: self.cost(number, group),
                priority: 0,
                created: i64::try_from(number / 100).unwrap_or(0),
                started: None,
                never_preempts: false,
                state: PodState::Gated,
            };
            self.apply(Event::PodChanged(pod(number), config));
        }
        self.engine.settle();
    }

    /// Pods of the group that a pod is of.
    fn size(&self, number: u64) -> u64 {
        let in_gangs = self.load == Load::Gangs || self.is_impossible(number);
        if in_gangs { GANG } else { 1 }
    }

    fn is_odd(&self, number: u64) -> bool {
        self.load == Load::Odd && number.is_multiple_of(10)
    }

    fn is_impossible(&self, number: u64) -> bool {
        self.load == Load::Impossible && number < self.pods / 10 / GANG * GANG
    }

    fn group(&mut self, number: u64, size: u64) {
        let is_one = self.is_odd(number) || self.is_impossible(number);
        let queue = if is_one { 0 } else { mix(number + 77) % self.queues };
        let queue = QueueId(u32::try_from(self.above() + queue).unwrap_or(0));
        let need = u32::try_from(size).unwrap_or(1);
        let config = GroupConfig {
            cluster: ClusterId(u16::try_from(number % CLUSTERS).unwrap_or(0)),
            root: Uid(u128::from(mix(number)) << 64 | u128::from(number)),
            queue: Assignment::Queue(queue),
            gang: if size > 1 { Gang::AtLeast(need) } else { Gang::Units },
            singleton: None,
            non_preemptible: false,
            topology: None,
        };
        self.apply(Event::GroupChanged(GroupId(number), config));
    }

    fn cost(&self, number: u64, group: u64) -> Vector {
        let shape = mix(mix(group * 7 + 3) % SHAPES);
        let of = |shift: u32, modulus: u64| i128::from((shape >> shift) % modulus);
        let odd = if self.is_odd(number) { i128::from(number) } else { 0 };
        let large = if self.is_impossible(number) { 64_000 + i128::from(group % 997) } else { 0 };
        let amounts = [
            (ResourceId::CPU, 1000 + of(0, 64) * 250 + odd % 997 + large),
            (ResourceId::MEMORY, GIB * (1 + of(8, 40)) + odd),
            (ResourceId::PODS, 1),
        ];
        let gpu = shape.is_multiple_of(8).then_some((GPU, 1));
        amounts.into_iter().chain(gpu).collect()
    }

    /// One round of decisions as the control loop makes it: how many started. None when nothing
    /// more may start.
    pub fn round(&mut self) -> Option<usize> {
        if !self.engine.tick(self.now) {
            return None;
        }
        let started = self.engine.decide(self.budget).started;
        self.running.extend(started.iter().map(|decision| decision.pod));
        Some(started.len())
    }

    /// The pod that has run for longest is gone, a millisecond later, and it is decided anew;
    /// false when nothing runs.
    pub fn end(&mut self) -> bool {
        let Some(pod) = self.running.pop_front() else { return false };
        self.now += 1;
        self.apply(Event::PodRemoved(pod));
        while self.round().is_some() {}
        true
    }
}

fn pod(number: u64) -> PodId {
    Uid(u128::from(mix(number)) << 64 | u128::from(number))
}

/// The finalizer of `SplitMix64` (Steele et al. 2014).
pub fn mix(number: u64) -> u64 {
    let z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

//! The decision core in virtual time: work comes, runs for a known time and ends, at once.

mod generated;
mod waves;

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use anyhow::Result;
use tidegate::engine::{
    Assignment, ClusterId, Engine, Gang, GroupId, Millis, NodeId, PodId, PodState, QueueId,
    ResourceId, Uid, Vector,
    event::{Event, GroupConfig, NodeConfig, PodConfig, QueueConfig},
};

use crate::figures::Report;

/// Both.
pub fn measure() -> Result<Report> {
    let mut report = Report::default();
    generated::measure(&mut report)?;
    waves::measure(&mut report)?;
    Ok(report)
}

/// Decisions of one round, as in the control loop.
const ROUND: usize = 2_000;
/// How often the loop looks whether time alone makes a difference.
const LOOK: Millis = 1_000;

const HERE: ClusterId = ClusterId(0);
const NODE: NodeId = NodeId(0);

/// One pod that asks for CPUs.
#[derive(Clone, Debug)]
pub struct Work {
    pub queue: QueueId,
    pub cores: i128,
    pub priority: i32,
    pub comes: Millis,
    pub runs: Millis,
    /// When it started first.
    pub started: Option<Millis>,
    /// It was evicted so many times, and began anew.
    attempt: u32,
}

impl Work {
    pub fn new(queue: QueueId, cores: i128, priority: i32, at: Millis, runs: Millis) -> Self {
        Self { queue, cores, priority, comes: at, runs, started: None, attempt: 0 }
    }

    /// How long it waited first.
    pub fn waited(&self) -> Option<Millis> {
        Some(self.started? - self.comes)
    }
}

#[derive(Clone, Copy)]
enum Happens {
    Comes(usize),
    Ends { work: usize, attempt: u32 },
}

/// Queues, one large node, and all that comes and goes.
pub struct Virtual {
    pub engine: Engine,
    pub now: Millis,
    pub works: Vec<Work>,
    /// CPUs in use, by queue.
    pub used: Vec<i128>,
    /// CPUs asked for, in use or not, by queue.
    pub asked: Vec<i128>,
    /// Pods that were taken back.
    pub evictions: u64,
    /// Time that the core took.
    pub took: Duration,
    /// The longest round, in which it brings itself up to date and decides.
    pub longest: Duration,
    due: BTreeMap<(Millis, usize), Happens>,
    told: usize,
}

impl Virtual {
    pub fn new(cores: i128, queues: &[QueueConfig]) -> Self {
        let mut all = Self {
            engine: Engine::default(),
            now: 0,
            works: Vec::new(),
            used: vec![0; queues.len()],
            asked: vec![0; queues.len()],
            evictions: 0,
            took: Duration::ZERO,
            longest: Duration::ZERO,
            due: BTreeMap::new(),
            told: 0,
        };
        let allocatable = [(ResourceId::CPU, cores * 1000), (ResourceId::PODS, cores * 2)];
        let allocatable = allocatable.into_iter().collect();
        let node = NodeConfig {
            cluster: HERE,
            allocatable,
            ready: true,
            schedulable: true,
            ..NodeConfig::default()
        };
        all.apply(Event::NodeChanged(NODE, node));
        for (id, queue) in (0..).map(QueueId).zip(queues) {
            all.apply(Event::QueueChanged(id, queue.clone()));
        }
        all.apply(Event::Synced(HERE));
        all
    }

    /// It will come.
    pub fn expect(&mut self, work: Work) {
        self.due(work.comes, Happens::Comes(self.works.len()));
        self.works.push(work);
    }

    /// Goes on until nothing more happens, or to that time.
    pub fn run(&mut self, until: Option<Millis>) {
        let is_over = |at: Millis| until.is_some_and(|until| at > until);
        while let Some((&(at, _), _)) = self.due.first_key_value() {
            let look = (self.now / LOOK + 1) * LOOK;
            let next = at.min(look);
            if is_over(next) {
                break;
            }
            self.now = next;
            while let Some(entry) = self.due.first_entry().filter(|due| due.key().0 <= next) {
                let happens = entry.remove();
                self.happens(happens);
            }
            self.decide();
        }
        self.now = until.unwrap_or(self.now);
    }

    fn happens(&mut self, happens: Happens) {
        match happens {
            Happens::Comes(work) => {
                self.asked[index(self.works[work].queue)] += self.works[work].cores;
                self.tell(work, PodState::Gated);
            }
            Happens::Ends { work, attempt } if attempt == self.works[work].attempt => {
                self.leave(work);
                self.asked[index(self.works[work].queue)] -= self.works[work].cores;
            }
            Happens::Ends { .. } => {}
        }
    }

    /// As the control loop does it: rounds until nothing more may start.
    fn decide(&mut self) {
        loop {
            let begin = Instant::now();
            let decided = self.engine.tick(self.now).then(|| self.engine.decide(ROUND));
            let took = begin.elapsed();
            (self.took, self.longest) = (self.took + took, self.longest.max(took));
            let Some(decided) = decided else { return };
            for decision in decided.started {
                self.start(work_of(decision.pod));
            }
            for eviction in decided.evicted {
                self.evict(work_of(eviction.pod));
            }
        }
    }

    fn start(&mut self, number: usize) {
        let work = &mut self.works[number];
        work.started.get_or_insert(self.now);
        let (queue, cores, attempt) = (work.queue, work.cores, work.attempt);
        let ends = self.now.saturating_add(work.runs);
        self.used[index(queue)] += cores;
        self.tell(number, PodState::Bound { node: NODE, terminating: false });
        self.due(ends, Happens::Ends { work: number, attempt });
    }

    /// What it did is lost, and whoever made it makes it again.
    fn evict(&mut self, work: usize) {
        self.evictions += 1;
        self.leave(work);
        self.works[work].attempt += 1;
        self.tell(work, PodState::Gated);
    }

    fn leave(&mut self, number: usize) {
        let work = &self.works[number];
        let (pod, queue, cores) = (pod_of(number, work.attempt), work.queue, work.cores);
        self.used[index(queue)] -= cores;
        self.apply(Event::PodRemoved(pod));
    }

    fn tell(&mut self, number: usize, state: PodState) {
        let work = &self.works[number];
        let group = GroupId(number as u64);
        let config = GroupConfig {
            cluster: HERE,
            root: Uid(number as u128),
            queue: Assignment::Queue(work.queue),
            gang: Gang::Units,
            singleton: None,
            non_preemptible: false,
            topology: None,
        };
        let waits = state == PodState::Gated;
        let pod = PodConfig {
            group,
            cost: [(ResourceId::CPU, work.cores * 1000), (ResourceId::PODS, 1)]
                .into_iter()
                .collect(),
            priority: work.priority,
            created: work.comes,
            started: (!waits).then_some(self.now),
            never_preempts: false,
            state,
        };
        let id = pod_of(number, work.attempt);
        if waits {
            self.apply(Event::GroupChanged(group, config));
        }
        self.apply(Event::PodChanged(id, pod));
    }

    fn apply(&mut self, event: Event) {
        let begin = Instant::now();
        self.engine.apply(self.now, event);
        self.took += begin.elapsed();
    }

    fn due(&mut self, at: Millis, happens: Happens) {
        self.told += 1;
        self.due.insert((at, self.told), happens);
    }
}

/// CPUs as a queue lists them.
pub fn cores(count: i128) -> Vector {
    [(ResourceId::CPU, count * 1000)].into_iter().collect()
}

fn index(queue: QueueId) -> usize {
    queue.0 as usize
}

fn pod_of(work: usize, attempt: u32) -> PodId {
    Uid((work as u128) << 32 | u128::from(attempt))
}

fn work_of(pod: PodId) -> usize {
    usize::try_from(pod.0 >> 32).unwrap_or(usize::MAX)
}

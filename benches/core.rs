//! The decision core on whole fleets: a cold pass, and one event after another.
//!
//! Queues in a tree of three levels, of different weights, a third with a guarantee, a
//! quarter with a limit; more is asked than there is. Each size is measured in processes
//! of its own, so that memory is read from fresh ones.

use std::{
    collections::VecDeque,
    process::{Command, Stdio},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, anyhow, ensure};
use tidegate::engine::{
    Assignment, ClusterId, Gang, GroupId, NodeId, PodId, PodState, QueueId, ResourceId, Uid,
    Vector,
    event::{Event, GroupConfig, NodeConfig, PodConfig, QueueConfig},
    log::{Counts, Entry, Log, Logged, Next, Replay},
};
use tidegate::record::{self, Logs};

use crate::figures::{Report, Samples, memory, nanos};
use crate::world::mix;

/// Waiting pods; a tenth of them are nodes, a hundredth queues.
const SIZES: [u64; 3] = [10_000, 100_000, 1_000_000];
/// How often each size is measured.
const REPEATS: usize = 3;
/// Different costs.
const SHAPES: u64 = 500;
/// Clusters.
const CLUSTERS: u64 = 100;
/// Pods of a gang, where there are gangs.
const GANG: u64 = 8;
/// Pods that end one after another.
const ENDS: usize = 20_000;
/// Decisions of one round, as in the control loop.
const ROUND: usize = 2_000;

const GPU: ResourceId = ResourceId(4);
const GIB: i128 = 1 << 30;

/// What waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Load {
    /// Pods each on its own, of 500 costs.
    Pods,
    /// The same in gangs of eight.
    Gangs,
    /// A tenth of the pods are in one queue and each costs something else.
    Odd,
}

/// Every size and load; `pods` is the only size, if given.
pub fn all(pods: Option<usize>) -> Result<Report> {
    let sizes = pods.map_or_else(|| SIZES.to_vec(), |pods| vec![pods as u64]);
    let mut report = Report::default();
    for &size in &sizes {
        report.merge(several(size, Load::Pods)?);
    }
    let middle = sizes[sizes.len() / 2];
    for load in [Load::Gangs, Load::Odd] {
        report.merge(several(middle, load)?);
    }
    replay(&mut report, middle)?;
    Ok(report)
}

/// Entries, for whoever looks at them later.
struct Kept(Arc<Mutex<Vec<Entry>>>);

impl Log for Kept {
    fn take(&mut self, entry: Entry) -> Next {
        self.0.lock().map_or(Next::Nothing, |mut kept| {
            kept.push(entry);
            Next::Entry
        })
    }

    fn begin(&mut self, _: &mut dyn Iterator<Item = Entry>) -> Next {
        Next::Nothing
    }
}

/// A recorded cold pass is done again, and so is the log of a real run.
fn replay(report: &mut Report, pods: u64) -> Result<()> {
    let entries = Arc::new(Mutex::new(Vec::new()));
    let mut fleet = Fleet::new(pods, Load::Pods, Some(Box::new(Kept(Arc::clone(&entries)))));
    fleet.tell();
    fleet.cold();
    drop(fleet);
    let entries = std::mem::take(&mut *entries.lock().map_err(|_| anyhow!("a panic"))?);
    let bytes = record::bytes(entries.into_iter())?;
    let (counts, took) = done_again(&bytes)?;
    report.size("replayed events", counts.events);
    report.size("bytes of them", bytes.len() as u64);
    let rate = counts.events as f64 / took.as_secs_f64();
    report.add_with_goal("replay", rate, "events/s", "at least 200000");
    done_again(include_bytes!("../tests/fixtures/preemption.log"))?;
    Ok(())
}

fn done_again(bytes: &[u8]) -> Result<(Counts, Duration)> {
    let begin = Instant::now();
    let mut again = Replay::default();
    for entry in Logs::of(bytes)? {
        again.step(entry?)?;
    }
    // Brings all up to date and starts nothing.
    again.step(Entry::Rehearsed(0))?;
    Ok((again.counts(), begin.elapsed()))
}

/// An engine is written down as it is and made again from that.
fn restore(report: &mut Report, k: &str, fleet: Fleet) -> Result<()> {
    let mut bytes = Ok(Vec::new());
    let wrote = timed(|| bytes = record::bytes(fleet.engine.snapshot()));
    drop(fleet);
    let bytes = bytes?;
    let (_, restored) = done_again(&bytes)?;
    report.size(&format!("bytes of a snapshot {k}"), bytes.len() as u64);
    report.add(format!("snapshot_{k}"), nanos(wrote) / 1e6, "ms");
    report.add_with_goal(format!("restore_{k}"), nanos(restored) / 1e6, "ms", "at most 3000");
    Ok(())
}

fn several(pods: u64, load: Load) -> Result<Report> {
    let one = |_| -> Result<Report> {
        let name = format!("{load:?}").to_lowercase();
        let done = Command::new(std::env::current_exe()?)
            .args(["core", "--json", "--size", &pods.to_string(), "--load", &name])
            .stderr(Stdio::inherit())
            .output()?;
        ensure!(done.status.success(), "{pods} pods: ended with {}", done.status);
        serde_json::from_slice(&done.stdout).context("not a report")
    };
    Ok(Report::spread((0..REPEATS).map(one).collect::<Result<_>>()?))
}

/// One size in this process.
pub fn one(pods: u64, load: Load) -> Result<Report> {
    let mut report = Report::default();
    let k = match load {
        Load::Pods => format!("{}k", pods / 1_000),
        Load::Gangs => format!("{}k_in_gangs", pods / 1_000),
        Load::Odd => format!("{}k_a_tenth_odd", pods / 1_000),
    };
    let mut fleet = Fleet::new(pods, load, None);
    let (empty, _) = memory("self")?;
    let told = timed(|| fleet.tell());
    let (loaded, _) = memory("self")?;
    let (decisions, cold, longest) = fleet.cold();
    report.size(&format!("waiting {k}"), pods);
    report.size(&format!("decided {k}"), decisions as u64);
    report.add(format!("told_{k}"), nanos(told) / pods as f64, "ns/pod");
    report.add_with_goal(
        format!("memory_{k}"),
        loaded.saturating_sub(empty) as f64 / pods as f64,
        "B/pod",
        "at most 300",
    );
    let decided = decisions as f64;
    report.add_with_goal(format!("cold_{k}"), nanos(cold) / decided, "ns/decision", "at most 2000");
    report.add(format!("longest_round_{k}"), nanos(longest) / 1e6, "ms");
    let mut ends = fleet.ends();
    for (name, part, goal) in
        [("p50", 500, "at most 6"), ("p99", 990, "at most 20"), ("p999", 999, "at most 150")]
    {
        let took = nanos(ends.per_mille(part)) / 1e3;
        report.add_with_goal(format!("end_{name}_{k}"), took, "us", goal);
    }
    restore(&mut report, &k, fleet)?;
    Ok(report)
}

struct Fleet {
    engine: Logged,
    now: i64,
    pods: u64,
    queues: u64,
    load: Load,
    running: VecDeque<PodId>,
}

impl Fleet {
    /// Queues and nodes, and nothing that waits.
    fn new(pods: u64, load: Load, log: Option<Box<dyn Log>>) -> Self {
        let queues = (pods / 100).max(10);
        let (engine, running) = (Logged::new(log), VecDeque::new());
        let mut fleet = Self { engine, now: 0, pods, queues, load, running };
        for number in 0..fleet.above() + queues {
            fleet.queue(number);
        }
        for number in 0..(pods / 10).max(1) {
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
        (self.queues / 100).max(1)
    }

    fn queue(&mut self, number: u64) {
        let id = |number: u64| QueueId(u32::try_from(number).unwrap_or(0));
        let cores = |cores: i128| [(ResourceId::CPU, cores * 1000)].into_iter().collect();
        let below = number >= self.above();
        let config = QueueConfig {
            parent: below.then(|| id(number % self.above())),
            weight: 1 + u32::try_from(number % 7).unwrap_or(0),
            guaranteed: if below && number.is_multiple_of(3) {
                cores(10)
            } else {
                Vector::default()
            },
            limit: if below && number.is_multiple_of(4) { cores(500) } else { Vector::default() },
            ..QueueConfig::default()
        };
        self.apply(Event::QueueChanged(id(number), config));
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
    fn tell(&mut self) {
        let size = if self.load == Load::Gangs { GANG } else { 1 };
        for number in 0..self.pods {
            let group = number / size;
            if number.is_multiple_of(size) {
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

    fn is_odd(&self, number: u64) -> bool {
        self.load == Load::Odd && number.is_multiple_of(10)
    }

    fn group(&mut self, number: u64, size: u64) {
        let queue = if self.is_odd(number) { 0 } else { mix(number + 77) % self.queues };
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
        let amounts = [
            (ResourceId::CPU, 1000 + of(0, 64) * 250 + odd % 997),
            (ResourceId::MEMORY, GIB * (1 + of(8, 40)) + odd),
            (ResourceId::PODS, 1),
        ];
        let gpu = shape.is_multiple_of(8).then_some((GPU, 1));
        amounts.into_iter().chain(gpu).collect()
    }

    /// Rounds until nothing more may start: how many started, how long it took and the
    /// longest round.
    fn cold(&mut self) -> (usize, Duration, Duration) {
        let (mut all, mut longest) = (Duration::ZERO, Duration::ZERO);
        while self.engine.tick(self.now) {
            let begin = Instant::now();
            let decisions = self.engine.decide(ROUND).started;
            let took = begin.elapsed();
            (all, longest) = (all + took, longest.max(took));
            self.running.extend(decisions.iter().map(|decision| decision.pod));
        }
        (self.running.len(), all, longest)
    }

    /// One pod after another is gone, a millisecond apart, and each time it is decided anew.
    fn ends(&mut self) -> Samples {
        let mut samples = Samples::default();
        for _ in 0..ENDS.min(self.running.len()) {
            let Some(pod) = self.running.pop_front() else { break };
            self.now += 1;
            let begin = Instant::now();
            self.apply(Event::PodRemoved(pod));
            let mut decided = Vec::new();
            while self.engine.tick(self.now) {
                decided.extend(self.engine.decide(ROUND).started);
            }
            samples.add(begin.elapsed());
            self.running.extend(decided.iter().map(|decision| decision.pod));
        }
        samples
    }
}

fn pod(number: u64) -> PodId {
    Uid(u128::from(mix(number)) << 64 | u128::from(number))
}

fn timed(work: impl FnOnce()) -> Duration {
    let begin = Instant::now();
    work();
    begin.elapsed()
}

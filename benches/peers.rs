//! Peers' own benchmarks, and the same inputs through the decision core in the same run.
//!
//! They put pods on nodes. The core decides by what there is together, and by limits, shares
//! and guarantees; kube-scheduler finds the node.

use std::{
    collections::BTreeMap,
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use tidegate::engine::{
    Assignment, ClusterId, Engine, Gang, GroupId, NodeId, PodState, QueueId, ResourceId, Uid,
    Vector,
    event::{Event, GroupConfig, NodeConfig, PodConfig, QueueConfig},
};

use crate::{
    figures::{Report, median, millis},
    support::helper,
};

/// How often each is done.
const REPEATS: usize = 5;
const HERE: ClusterId = ClusterId(0);
const GPU: ResourceId = ResourceId(4);
const GIB: i128 = 1 << 30;

/// Resource by resource: CPU in thousandths, memory in bytes, GPUs.
type Amounts = [i128; 3];

const CPU_NODE: Amounts = [32_000, 256 * GIB, 0];
const GPU_NODE: Amounts = [64_000, 1024 * GIB, 8];
const SMALL: Amounts = [1_000, 4 * GIB, 0];
const ON_GPU: Amounts = [8_000, 128 * GIB, 1];

/// What a peer's benchmark is given.
struct Case {
    name: &'static str,
    /// As the peer calls it, without what Go puts in front and behind.
    peers: &'static str,
    /// So many nodes of that size.
    nodes: Vec<(u32, Amounts)>,
    /// Of each node, in use already.
    used: Amounts,
    /// Groups of so many pods, each in a queue of its own.
    groups: Vec<u32>,
    pod: Amounts,
    gang: bool,
}

/// `BenchmarkScheduleMany` of `internal/scheduler/nodedb`: all jobs of a case are one gang.
fn armada() -> Vec<Case> {
    let case = |name, peers, nodes: u32, used: Amounts, jobs: u32| Case {
        name,
        peers,
        nodes: vec![(nodes, CPU_NODE)],
        used,
        groups: vec![jobs],
        pod: SMALL,
        gang: true,
    };
    let (idle, full) = ([0; 3], [31_000, 0, 0]);
    let among_gpus = Case {
        nodes: vec![(500, CPU_NODE), (1, GPU_NODE), (499, CPU_NODE)],
        pod: ON_GPU,
        ..case("1000_nodes_1_gpu_job", "ResourceConstrained", 0, idle, 1)
    };
    vec![
        case("1_node_320_jobs", "10CpuNodes320SmallJobs", 1, idle, 320),
        case("1_node_640_jobs", "10CpuNodes640SmallJobs", 1, idle, 640),
        case("100_nodes_3200_jobs", "100CpuNodes3200SmallJobs", 100, idle, 3_200),
        case("100_nodes_6400_jobs", "100CpuNodes6400SmallJobs", 100, idle, 6_400),
        case("1000_nodes_32000_jobs", "1000CpuNodes32000SmallJobs", 1_000, idle, 32_000),
        case("1000_nodes_64000_jobs", "1000CpuNodes64000SmallJobs", 1_000, idle, 64_000),
        case("100_nodes_1_cpu_free", "100CpuNodes1CpuUnused", 100, full, 100),
        case("1000_nodes_1_cpu_free", "1000CpuNodes1CpuUnused", 1_000, full, 1_000),
        case("10000_nodes_1_cpu_free", "10000CpuNodes1CpuUnused", 10_000, full, 10_000),
        among_gpus,
    ]
}

/// `BenchmarkScheduling` of `pkg/scheduler/tests`: two queues, an application of equal pods in
/// each, and room for all.
fn yunikorn() -> Vec<Case> {
    let case = |name, peers, nodes: u32| {
        let fit = i128::from(10_000 / nodes + 1);
        Case {
            name,
            peers,
            nodes: vec![(nodes, [fit, 10 * fit, 0])],
            used: [0; 3],
            groups: vec![5_000, 5_000],
            pod: [1, 10, 0],
            gang: false,
        }
    };
    vec![
        case("500_nodes_10000_pods", "500Nodes/10000Pods", 500),
        case("1000_nodes_10000_pods", "1000Nodes/10000Pods", 1_000),
        case("2000_nodes_10000_pods", "2000Nodes/10000Pods", 2_000),
        case("5000_nodes_10000_pods", "5000Nodes/10000Pods", 5_000),
    ]
}

/// Both peers, each beside the core.
pub fn measure() -> Result<Report> {
    let mut report = Report::default();
    report.size("runs of each case", REPEATS as u64);
    let theirs = go("armada", "BenchmarkScheduleMany")?;
    beside(&mut report, "armada", "at least 100", &armada(), &theirs)?;
    let theirs = go("yunikorn", "BenchmarkScheduling")?;
    beside(&mut report, "yunikorn", "at least 50", &yunikorn(), &theirs)?;
    Ok(report)
}

fn beside(
    report: &mut Report,
    peer: &str,
    goal: &str,
    cases: &[Case],
    theirs: &BTreeMap<String, Vec<f64>>,
) -> Result<()> {
    for case in cases {
        let name = format!("{peer}_{}", case.name);
        let runs =
            theirs.get(case.peers).with_context(|| format!("no {} in its output", case.peers))?;
        let peer = median(runs.iter().copied());
        let (mut told, mut decided) = (Vec::new(), Vec::new());
        let mut started = 0;
        for _ in 0..REPEATS {
            let (telling, deciding, count) = case.through_the_core();
            told.push(millis(telling));
            decided.push(millis(deciding));
            started = count;
        }
        let (told, decided) = (median(told.into_iter()), median(decided.into_iter()));
        report.size(&format!("started {name}"), started as u64);
        report.add(format!("{name}_peer"), peer, "ms");
        report.add(format!("{name}_decide"), decided, "ms");
        report.add_with_goal(format!("{name}_ratio"), peer / decided, "x", goal);
        report.add(format!("{name}_tell"), told, "ms");
        report.add(format!("{name}_ratio_with_telling"), peer / (told + decided), "x");
    }
    Ok(())
}

/// Milliseconds by case, of a peer's benchmarks.
fn go(peer: &str, prefix: &str) -> Result<BTreeMap<String, Vec<f64>>> {
    let done = Command::new(helper(peer)?)
        .args(["-test.run", "^$", "-test.bench", prefix, "-test.benchtime", "1x"])
        .args(["-test.count", &REPEATS.to_string()])
        .current_dir(std::env::temp_dir())
        .output()?;
    ensure!(done.status.success(), "{peer}: {}", String::from_utf8_lossy(&done.stderr));
    let mut cases: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for line in String::from_utf8_lossy(&done.stdout).lines() {
        let Some((case, nanos)) = result(line, prefix) else { continue };
        cases.entry(case.to_owned()).or_default().push(nanos / 1e6);
    }
    Ok(cases)
}

/// Of `BenchmarkNAME/CASE-2  1  123 ns/op` the case and the time.
fn result<'a>(line: &'a str, prefix: &str) -> Option<(&'a str, f64)> {
    let (name, rest) = line.strip_prefix(prefix)?.split_once(char::is_whitespace)?;
    let (name, _) = name.rsplit_once('-')?;
    let nanos = rest.trim_end().strip_suffix("ns/op")?.split_whitespace().last()?;
    Some((name.trim_start_matches('/'), nanos.parse().ok()?))
}

impl Case {
    /// How long it takes to tell the core of the pods, how long to decide, and how many start.
    fn through_the_core(&self) -> (Duration, Duration, usize) {
        let mut engine = self.fleet();
        let begin = Instant::now();
        for event in self.pods() {
            engine.apply(0, event);
        }
        engine.settle();
        let told = begin.elapsed();
        let begin = Instant::now();
        let mut started = 0;
        while engine.tick(0) {
            started += engine.decide(usize::MAX).started.len();
        }
        (told, begin.elapsed(), started)
    }

    fn fleet(&self) -> Engine {
        let mut engine = Engine::default();
        let sizes = self.nodes.iter().flat_map(|&(count, size)| (0..count).map(move |_| size));
        for (node, size) in (0..).map(NodeId).zip(sizes) {
            let allocatable = vector(size, 110);
            let node_config = NodeConfig {
                cluster: HERE,
                allocatable,
                ready: true,
                schedulable: true,
                ..NodeConfig::default()
            };
            engine.apply(0, Event::NodeChanged(node, node_config));
            engine.apply(0, Event::ForeignChanged(node, vector(self.used, 0)));
        }
        for queue in (0..).map(QueueId).take(self.groups.len()) {
            let config = QueueConfig { weight: 1, ..QueueConfig::default() };
            engine.apply(0, Event::QueueChanged(queue, config));
        }
        engine.apply(0, Event::Synced(HERE));
        engine.settle();
        engine
    }

    fn pods(&self) -> Vec<Event> {
        let mut events = Vec::new();
        for (number, &pods) in (0..).zip(&self.groups) {
            let group = GroupId(u64::from(number));
            let config = GroupConfig {
                cluster: HERE,
                root: Uid(u128::from(number)),
                queue: Assignment::Queue(QueueId(number)),
                gang: if self.gang { Gang::AtLeast(pods) } else { Gang::Units },
                singleton: None,
                non_preemptible: false,
                topology: None,
            };
            events.push(Event::GroupChanged(group, config));
            for pod in 0..pods {
                let config = PodConfig {
                    group,
                    cost: vector(self.pod, 1),
                    priority: 0,
                    created: i64::from(pod),
                    started: None,
                    never_preempts: false,
                    state: PodState::Gated,
                };
                let id = Uid(u128::from(number) << 64 | u128::from(pod));
                events.push(Event::PodChanged(id, config));
            }
        }
        events
    }
}

fn vector([cpu, memory, gpus]: Amounts, pods: i128) -> Vector {
    let amounts = [
        (ResourceId::CPU, cpu),
        (ResourceId::MEMORY, memory),
        (GPU, gpus),
        (ResourceId::PODS, pods),
    ];
    amounts.into_iter().filter(|&(_, amount)| amount > 0).collect()
}

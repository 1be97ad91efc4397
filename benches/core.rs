//! The decision core on whole fleets: a cold pass, and one event after another.
//!
//! Each size is measured in processes of its own, so that memory is read from fresh ones.

use std::{
    process::{Command, Stdio},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, anyhow, ensure};
use tidegate::engine::log::{Counts, Entry, Log, Next, Replay};
use tidegate::record::{self, Logs};

use crate::figures::{Report, Samples, memory, nanos};
use crate::fleet::{Fleet, Load};

/// Waiting pods; a tenth of them are nodes, a hundredth queues.
const SIZES: [u64; 3] = [10_000, 100_000, 1_000_000];
/// Pods and nodes, to see how cost grows.
const GROWTH: [(u64, u64); 8] = [
    (10_000, 1_000),
    (100_000, 1_000),
    (100_000, 10_000),
    (1_000_000, 1_000),
    (1_000_000, 100_000),
    (1_000_000, 300_000),
    (5_000_000, 100_000),
    (5_000_000, 300_000),
];
/// Pods beside hostile input.
const HOSTILE: u64 = 100_000;
/// How often each size is measured.
const REPEATS: usize = 3;
/// Pods that end one after another.
const ENDS: usize = 20_000;

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
    let mut fleet =
        Fleet::new(pods, pods / 10, Load::Pods, Some(Box::new(Kept(Arc::clone(&entries)))));
    fleet.tell();
    cold(&mut fleet);
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
    let one = |_| -> Result<Report> { apart(pods, pods / 10, load) };
    Ok(Report::spread((0..REPEATS).map(one).collect::<Result<_>>()?))
}

/// One size in a process of its own.
fn apart(pods: u64, nodes: u64, load: Load) -> Result<Report> {
    let done = Command::new(std::env::current_exe()?)
        .args(["core", "--json", "--size", &pods.to_string()])
        .args(["--nodes", &nodes.to_string(), "--load", &load.to_string()])
        .stderr(Stdio::inherit())
        .output()?;
    ensure!(done.status.success(), "{pods} pods, {load}: ended with {}", done.status);
    serde_json::from_slice(&done.stdout).context("not a report")
}

/// How cost grows with pods and nodes, what hostile input costs beside the usual, and how long
/// one round takes by its budget. Ratios are of medians; the rest is measured once.
pub fn growth() -> Result<Report> {
    let mut report = Report::default();
    for (pods, nodes) in GROWTH {
        report.merge(apart(pods, nodes, Load::Pods)?);
    }
    let usual = several(HOSTILE, Load::Pods)?;
    for load in Load::HOSTILE {
        let hostile = several(HOSTILE, load)?;
        let names = [Load::Pods, load].map(|load| name(HOSTILE, HOSTILE / 10, load));
        for figure in ["told", "cold", "end_p50", "memory"] {
            let [before, after] = [(&usual, 0), (&hostile, 1)]
                .map(|(of, at): (&Report, usize)| of.value(&format!("{figure}_{}", names[at])));
            let ratio = after? / before?;
            report.add_with_goal(format!("{load}_{figure}_ratio"), ratio, "x", "at most 5");
        }
        report.merge(hostile);
    }
    for budget in [1, 50, 500, 2_000, usize::MAX] {
        let mut fleet = Fleet::new(HOSTILE, HOSTILE / 10, Load::Pods, None);
        fleet.tell();
        fleet.budget = budget;
        let (.., longest) = cold(&mut fleet);
        let steps = if budget == usize::MAX { "all".to_owned() } else { budget.to_string() };
        report.add(format!("longest_round_of_{steps}"), nanos(longest) / 1e6, "ms");
    }
    Ok(report)
}

fn name(pods: u64, nodes: u64, load: Load) -> String {
    let k = format!("{}k", pods / 1_000);
    match load {
        Load::Pods if nodes != pods / 10 => format!("{k}_on_{}k_nodes", nodes / 1_000),
        Load::Pods => k,
        Load::Gangs => format!("{k}_in_gangs"),
        Load::Odd => format!("{k}_a_tenth_odd"),
        load => format!("{k}_{load}"),
    }
}

/// One size in this process.
pub fn one(pods: u64, nodes: u64, load: Load) -> Result<Report> {
    let mut report = Report::default();
    let k = name(pods, nodes, load);
    let mut fleet = Fleet::new(pods, nodes, load, None);
    let (empty, _) = memory("self")?;
    let told = timed(|| fleet.tell());
    let (loaded, _) = memory("self")?;
    let (decisions, cold, longest) = cold(&mut fleet);
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
    // Where few may start, a decision bears what it costs to refuse the rest.
    report.add(format!("cold_all_{k}"), nanos(cold) / 1e6, "ms");
    report.add(format!("longest_round_{k}"), nanos(longest) / 1e6, "ms");
    let mut ends = ends(&mut fleet);
    for (name, part, goal) in
        [("p50", 500, "at most 6"), ("p99", 990, "at most 20"), ("p999", 999, "at most 150")]
    {
        let took = nanos(ends.per_mille(part)) / 1e3;
        report.add_with_goal(format!("end_{name}_{k}"), took, "us", goal);
    }
    report.add(format!("end_longest_{k}"), nanos(ends.per_mille(1_000)) / 1e3, "us");
    restore(&mut report, &k, fleet)?;
    Ok(report)
}

/// Rounds until nothing more may start: how many started, how long it took and the longest round.
fn cold(fleet: &mut Fleet) -> (usize, Duration, Duration) {
    let (mut decided, mut all, mut longest) = (0, Duration::ZERO, Duration::ZERO);
    loop {
        let mut started = None;
        let took = timed(|| started = fleet.round());
        let Some(started) = started else { return (decided, all, longest) };
        (decided, all, longest) = (decided + started, all + took, longest.max(took));
    }
}

/// One pod after another is gone, and each time it is decided anew.
fn ends(fleet: &mut Fleet) -> Samples {
    let end = || {
        let mut any = false;
        let took = timed(|| any = fleet.end());
        any.then_some(took)
    };
    std::iter::from_fn(end).take(ENDS).collect()
}

fn timed(work: impl FnOnce()) -> Duration {
    let begin = Instant::now();
    work();
    begin.elapsed()
}

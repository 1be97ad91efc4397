//! The decision core and the view, without any cluster.

use std::{
    collections::BTreeMap,
    hint::black_box,
    process::{Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use tidegate::{
    engine::{
        Engine, PodId, QueueId,
        event::{Event, PodConfig, QueueConfig},
    },
    view::{Totals, View},
};

use crate::figures::{Report, Samples, memory, millis, nanos};
use crate::world::{GROUP, QUEUES, World, config, pod_id};

/// Waiting pods.
const SIZES: [u64; 2] = [10_000, 100_000];
/// Pods that end one after another.
const ENDS: usize = 100;
/// How often each is measured; the fastest counts.
const REPEATS: usize = 5;
/// Queues of which it is told how the core gets to know them.
const MANY_QUEUES: [u32; 2] = [1_000, 2_000];

/// Each size in a process of its own.
pub fn all_sizes() -> Result<Report> {
    let mut report = Report::default();
    for pods in SIZES {
        let done = Command::new(std::env::current_exe()?)
            .args(["engine", "--json", "--size", &pods.to_string()])
            .stderr(Stdio::inherit())
            .output()?;
        ensure!(done.status.success(), "{pods} pods: ended with {}", done.status);
        report.merge(serde_json::from_slice(&done.stdout).context("not a report")?);
    }
    learning_queues(&mut report);
    Ok(report)
}

/// One size in this process. Memory is read before anything is made to compare with.
pub fn one_size(pods: u64) -> Result<Report> {
    let k = pods / 1_000;
    let mut report = Report::default();
    report.size("queues", u64::from(QUEUES));
    report.size("pods of a group", GROUP);
    report.size(&format!("waiting pods {k}k"), pods);
    let (empty, _) = memory("self")?;
    let (mut world, mut decisions) = (World::new(pods), Vec::new());
    let (loaded, _) = memory("self")?;
    let view = View::of(&world.engine, &world.names, 0, Totals::default());
    let (_, peak) = memory("self")?;
    let per_pod = |bytes: u64| bytes.saturating_sub(empty) as f64 / pods as f64;
    report.add(format!("memory_{k}k"), per_pod(loaded), "B/pod");
    report.add(format!("memory_peak_with_view_{k}k"), per_pod(peak), "B/pod");

    let (mut loads, mut passes) = (Samples::default(), Samples::default());
    for _ in 0..REPEATS {
        let (fresh, load) = timed(|| World::new(pods));
        world = fresh;
        loads.add(load);
        let (decided, pass) = timed(|| world.decide_all());
        decisions = decided;
        passes.add(pass);
    }
    let (load, pass) = (loads.fastest(), passes.fastest());
    let insert = fastest(|| insert_all(pods));
    report.size(&format!("decided in the cold pass {k}k"), decisions.len() as u64);
    report.add(format!("load_{k}k"), nanos(load) / pods as f64, "ns/pod");
    report.add(format!("cold_pass_{k}k"), nanos(pass) / decisions.len() as f64, "ns/decision");
    let per_pod = nanos(pass) / pods as f64;
    report.add_with_goal(format!("cold_pass_per_pod_{k}k"), per_pod, "ns/pod", "at most 2000");
    report.add(format!("btree_insert_{k}k"), nanos(insert) / pods as f64, "ns/pod");
    let ratio = nanos(pass) / nanos(insert);
    report.add(format!("cold_pass_to_btree_insert_{k}k"), ratio, "x");

    world.run(&decisions);
    ends(&mut world, pods, &mut report);
    views(&world, &view, k, &mut report);
    Ok(report)
}

fn views(world: &World, known: &View, k: u64, report: &mut Report) {
    let build = || View::of(&world.engine, &world.names, 0, Totals::default());
    let building = fastest(|| timed(build).1);
    let ratio = nanos(building) / nanos(fastest(|| deep_copy(known)));
    report.size(&format!("groups in the view {k}k"), known.groups.len() as u64);
    report.add(format!("view_{k}k"), millis(building), "ms");
    report.add(format!("view_to_deep_copy_{k}k"), ratio, "x");
}

/// One pod after another ends, and each time it is decided anew.
fn ends(world: &mut World, pods: u64, report: &mut Report) {
    let mut samples = Samples::default();
    let mut started = 0;
    for _ in 0..ENDS {
        let ((ended, decisions), took) = timed(|| (world.end_one(), world.decide_all()));
        samples.add(took);
        started += decisions.len();
        world.run(&decisions);
        if let Some(pod) = ended {
            world.remove(pod);
        }
        // What the removal makes possible is not part of the next sample.
        let rest = world.decide_all();
        world.run(&rest);
    }
    let k = pods / 1_000;
    let median = samples.percentile(50);
    let micros = |took: Duration| nanos(took) / 1e3;
    report.size(&format!("pods ended one by one {k}k"), ENDS as u64);
    report.size(&format!("started by these ends {k}k"), started as u64);
    report.add_with_goal(format!("end_and_decide_{k}k"), micros(median), "us", "at most 6");
    report.add(format!("end_and_decide_p99_{k}k"), micros(samples.percentile(99)), "us");
    report.add(format!("end_to_btree_move_{k}k"), nanos(median) / nanos(move_one(pods)), "x");
}

/// The least there is to do for a pod: to be put into an ordered map.
fn insert_all(pods: u64) -> Duration {
    let configs: Vec<_> = (0..pods).map(|number| (pod_id(number), config(number))).collect();
    let insert = || {
        let mut map = BTreeMap::new();
        for (id, config) in configs {
            map.insert(id, config);
        }
        map
    };
    timed(insert).1
}

/// The least there is to do when a pod ends: one leaves an ordered map, one enters another.
fn move_one(pods: u64) -> Duration {
    let mut waiting: BTreeMap<PodId, PodConfig> =
        (0..pods).map(|number| (pod_id(number), config(number))).collect();
    let mut running = BTreeMap::new();
    let mut samples = Samples::default();
    for number in (0..pods).step_by(usize::try_from(pods).unwrap_or(1) / ENDS) {
        let ((), took) = timed(|| {
            if let Some((id, config)) = waiting.remove_entry(&pod_id(number)) {
                running.insert(id, config);
            }
        });
        samples.add(took);
    }
    samples.percentile(50)
}

/// The least there is to do for a view: all its rows written once.
fn deep_copy(view: &View) -> Duration {
    let copy = || -> BTreeMap<_, _> {
        view.groups.iter().map(|(key, row)| (key.clone(), Arc::new((**row).clone()))).collect()
    };
    timed(copy).1
}

/// How long it takes until so many queues are known, told one by one.
fn learning_queues(report: &mut Report) {
    let learn = |queues: u32| {
        let mut engine = Engine::default();
        timed(|| {
            for number in 0..queues {
                let config = QueueConfig { weight: 1, ..QueueConfig::default() };
                engine.apply(0, Event::QueueChanged(QueueId(number), config));
            }
            engine.settle();
        })
        .1
    };
    let took = MANY_QUEUES.map(|queues| fastest(|| learn(queues)));
    report.add(format!("learning_{}_queues", MANY_QUEUES[0]), millis(took[0]), "ms");
    let growth = nanos(took[1]) / nanos(took[0]);
    report.add_with_goal("learning_twice_as_many_queues", growth, "x", "about 2");
}

/// The time least disturbed by whatever else the machine does.
fn fastest(mut measure: impl FnMut() -> Duration) -> Duration {
    let mut samples = Samples::default();
    for _ in 0..REPEATS {
        samples.add(measure());
    }
    samples.fastest()
}

/// The result, and how long it took to get it.
fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let begin = Instant::now();
    let result = black_box(work());
    (result, begin.elapsed())
}

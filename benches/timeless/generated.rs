//! The inputs of Kueue's performance tests, in virtual time beside what those tests were
//! published to take on a real apiserver.
//!
//! Source: kubernetes-sigs/kueue, test/performance/scheduler/configs, `baseline` and
//! `large-scale` as of August 2026: numbers of cohorts, queues and workloads, intervals, run
//! times, priorities, requests; and the means that their `rangespec.yaml` tells.

use anyhow::Result;
use tidegate::engine::{
    Millis, QueueId, Reclaim, WithinQueue,
    event::{Preemption, QueueConfig},
};

use super::{Virtual, Work, cores};
use crate::figures::Report;

/// Of each queue: so many of them, one each interval.
struct Set {
    name: &'static str,
    count: i64,
    every: Millis,
    runs: Millis,
    priority: i32,
    cores: i128,
    /// Mean wait there, in seconds.
    waited: f64,
}

struct File {
    name: &'static str,
    cohorts: u32,
    queues: u32,
    nominal: i128,
    borrowing: i128,
    sets: [Set; 3],
    /// How long it took there, in seconds, and how much of the quota was in use, in hundredths.
    took: f64,
    used: f64,
}

const BASELINE: File = File {
    name: "baseline",
    cohorts: 5,
    queues: 6,
    nominal: 20,
    borrowing: 100,
    sets: [
        Set {
            name: "small",
            count: 350,
            every: 100,
            runs: 200,
            priority: 50,
            cores: 1,
            waited: 215.0,
        },
        Set {
            name: "medium",
            count: 100,
            every: 500,
            runs: 500,
            priority: 100,
            cores: 5,
            waited: 76.8,
        },
        Set {
            name: "large",
            count: 50,
            every: 1200,
            runs: 1000,
            priority: 200,
            cores: 20,
            waited: 16.5,
        },
    ],
    took: 351.1,
    used: 55.9,
};

const LARGE: File = File {
    name: "large_scale",
    cohorts: 10,
    queues: 100,
    nominal: 20,
    borrowing: 100,
    sets: [
        Set {
            name: "small",
            count: 35,
            every: 60,
            runs: 150,
            priority: 50,
            cores: 1,
            waited: 700.0,
        },
        Set {
            name: "medium",
            count: 11,
            every: 300,
            runs: 350,
            priority: 100,
            cores: 5,
            waited: 256.0,
        },
        Set {
            name: "large",
            count: 4,
            every: 700,
            runs: 700,
            priority: 200,
            cores: 20,
            waited: 106.0,
        },
    ],
    took: 1179.4,
    used: 38.6,
};

impl File {
    /// The queues above, then those with work.
    fn tree(&self, min_runtime: Option<Millis>) -> Vec<QueueConfig> {
        let preemption = Preemption {
            reclaim: Reclaim::Guaranteed,
            within_queue: WithinQueue::LowerPriority,
            min_runtime,
        };
        let above = QueueConfig {
            weight: 1,
            limit: cores(self.nominal * i128::from(self.queues)),
            ..QueueConfig::default()
        };
        let below = |number: u32| QueueConfig {
            parent: Some(QueueId(number / self.queues)),
            weight: 1,
            guaranteed: cores(self.nominal),
            limit: cores(self.nominal + self.borrowing),
            preemption,
            ..QueueConfig::default()
        };
        let all = self.cohorts * self.queues;
        (0..self.cohorts).map(|_| above.clone()).chain((0..all).map(below)).collect()
    }

    /// As each queue's workloads of a set are made: each after an interval.
    fn works(&self) -> impl Iterator<Item = (usize, Work)> + '_ {
        let queues = (0..self.cohorts * self.queues).map(|number| QueueId(self.cohorts + number));
        queues.flat_map(|queue| {
            self.sets.iter().enumerate().flat_map(move |(kind, set)| {
                let work = move |number: i64| {
                    Work::new(queue, set.cores, set.priority, number * set.every, set.runs)
                };
                (1..=set.count).map(move |number| (kind, work(number)))
            })
        })
    }

    fn capacity(&self) -> i128 {
        self.nominal * i128::from(self.cohorts * self.queues)
    }
}

/// Each file with the least run time that Kueue knows, none, and with our own default.
pub fn measure(report: &mut Report) -> Result<()> {
    for file in [BASELINE, LARGE] {
        one(report, &file, file.name, Some(0))?;
        one(report, &file, &format!("{}_min_runtime_10m", file.name), None)?;
        report.add(format!("{}_of_kueue", file.name), file.took, "s as published");
        report.add(format!("{}_use_of_kueue", file.name), file.used, "% as published");
        for set in &file.sets {
            let name = format!("{}_wait_{}_of_kueue", file.name, set.name);
            report.add(name, set.waited, "s as published");
        }
    }
    Ok(())
}

fn one(report: &mut Report, file: &File, name: &str, min_runtime: Option<Millis>) -> Result<()> {
    let mut run = Virtual::new(file.capacity(), &file.tree(min_runtime));
    let (mut kinds, mut work, mut last) = (Vec::new(), 0.0, 0);
    for (kind, one) in file.works() {
        kinds.push(kind);
        work += one.cores as f64 * one.runs as f64;
        last = last.max(one.comes + one.runs);
        run.expect(one);
    }
    run.run(None);
    let ideal = (work / file.capacity() as f64).max(last as f64);
    let ratio = run.now as f64 / ideal;
    report.size(&format!("{name} workloads"), kinds.len() as u64);
    report.size(&format!("{name} queues"), u64::from(file.cohorts * file.queues));
    report.add(format!("{name}_ideal"), ideal / 1e3, "s");
    report.add(format!("{name}_makespan"), run.now as f64 / 1e3, "s");
    report.add_with_goal(format!("{name}_makespan_to_ideal"), ratio, "x", "at most 1.25");
    let used = 100.0 * work / file.capacity() as f64 / run.now as f64;
    report.add(format!("{name}_use"), used, "%");
    for (kind, set) in file.sets.iter().enumerate() {
        let waits: Vec<_> = run.works.iter().zip(&kinds).filter(|(_, of)| **of == kind).collect();
        let waits: Option<Vec<Millis>> = waits.iter().map(|(work, _)| work.waited()).collect();
        let waits = waits.ok_or_else(|| anyhow::anyhow!("{name}: a {} never ran", set.name))?;
        let mean = waits.iter().sum::<Millis>() as f64 / waits.len() as f64;
        report.add(format!("{name}_wait_{}", set.name), mean / 1e3, "s");
    }
    report.add(format!("{name}_evictions"), run.evictions as f64, "pods");
    report.add(format!("{name}_core"), run.took.as_secs_f64(), "s of the core");
    Ok(())
}

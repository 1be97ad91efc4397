//! How many pods a second the apiserver takes, and how long each takes at half that rate.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, api::PostParams};
use tidegate::api::names;
use tokio::task::JoinSet;

use crate::figures::{Report, Samples, cpu_time, median, millis};
use crate::path::{Run, pods, watch::has_gate};
use crate::support::{cluster::Component, tidegate::Tidegate};

use super::{
    ARMS, TURNS,
    parts::{Arm, MANAGED, WEBHOOK},
};

/// One turn of one arm.
#[derive(Default)]
struct Cost {
    pods_a_second: f64,
    /// CPU of the apiserver for one pod, in milliseconds.
    apiserver: f64,
    /// CPU of the webhook for all pods.
    webhook: Duration,
}

/// Where pods are made.
struct Place<'a> {
    client: &'a Client,
    apiserver: u32,
    webhook: u32,
    /// Pods of one turn.
    pods: usize,
}

/// All arms in turns: saturated, then at half of what the slowest of them takes.
pub async fn measure(
    run: &mut Run,
    tidegate: &Tidegate,
    client: &Client,
    pods: usize,
) -> Result<()> {
    let apiserver = tidegate.cluster().pid(Component::ApiServer)?;
    let place = Place { client, apiserver, webhook: tidegate.webhook_pid()?, pods };
    run.say("creating as fast as the apiserver takes it");
    let mut costs = Vec::new();
    // The first turn warms the apiserver up.
    for turn in 0..=TURNS {
        costs.push(place.turn(turn).await?);
    }
    let slowest = report_rates(&costs[1..], &mut run.report);
    report_reviews(&costs, pods, &mut run.report);
    let rate = slowest / 2.0;
    run.say(&format!("creating {rate:.0} pods a second"));
    let mut samples = [const { Vec::new() }; ARMS.len()];
    for turn in 0..TURNS {
        for (arm, samples) in ARMS.iter().zip(&mut samples) {
            samples.extend(place.paced(arm, turn, rate).await?);
        }
    }
    run.report.add("paced_creates", rate, "pods/s");
    report_latencies(samples.map(Samples::from_iter), &mut run.report);
    Ok(())
}

impl Place<'_> {
    async fn turn(&self, turn: usize) -> Result<Vec<Cost>> {
        let mut costs = Vec::new();
        for arm in &ARMS {
            costs.push(self.saturated(arm, turn).await?);
        }
        Ok(costs)
    }

    async fn saturated(&self, arm: &Arm, turn: usize) -> Result<Cost> {
        let pods = self.some(arm, &format!("saturated-{turn}"))?;
        let used = (cpu_time(self.apiserver)?, cpu_time(self.webhook)?);
        let (made, took) = pods::create(&self.api(arm), &pods).await?;
        let apiserver = cpu_time(self.apiserver)?.saturating_sub(used.0);
        let gated = made.iter().all(|pod| has_gate(pod, names::GATE) == arm.is_managed());
        ensure!(gated, "gates are wrong: {}", arm.name);
        Ok(Cost {
            pods_a_second: pods.len() as f64 / took.as_secs_f64(),
            apiserver: millis(apiserver) / pods.len() as f64,
            webhook: cpu_time(self.webhook)?.saturating_sub(used.1),
        })
    }

    /// How long each create takes when they come at this rate, whatever the earlier ones do.
    async fn paced(&self, arm: &Arm, turn: usize, rate: f64) -> Result<Vec<Duration>> {
        let mut clock = tokio::time::interval(Duration::from_secs_f64(1.0 / rate));
        let mut sent = JoinSet::new();
        for pod in self.some(arm, &format!("paced-{turn}"))? {
            clock.tick().await;
            let api = self.api(arm);
            sent.spawn(async move {
                let begin = Instant::now();
                let made = api.create(&PostParams::default(), &pod).await;
                made.map(|_| begin.elapsed())
            });
        }
        Ok(sent.join_all().await.into_iter().collect::<Result<_, _>>()?)
    }

    fn api(&self, arm: &Arm) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &arm.namespace())
    }

    fn some(&self, arm: &Arm, name: &str) -> Result<Vec<Pod>> {
        let (gates, labels) = arm.pods();
        pods::many(self.pods, name, gates, labels)
    }
}

/// Rates, and what part they are of those without anything in the way, turn by turn;
/// the lowest rate.
fn report_rates(turns: &[Vec<Cost>], report: &mut Report) -> f64 {
    let mut slowest = f64::INFINITY;
    for (number, arm) in ARMS.iter().enumerate() {
        let of =
            |figure: fn(&Cost) -> f64| median(turns.iter().map(|costs| figure(&costs[number])));
        let rate = of(|cost| cost.pods_a_second);
        slowest = slowest.min(rate);
        report.add(format!("creates_{}", arm.name), rate, "pods/s");
        let cpu = of(|cost| cost.apiserver);
        report.add(format!("create_cpu_{}", arm.name), cpu, "ms of apiserver/pod");
        let part = |costs: &Vec<Cost>| costs[number].pods_a_second / costs[0].pods_a_second;
        let ratio = median(turns.iter().map(part));
        let name = format!("creates_ratio_{}", arm.name);
        match arm.least {
            Some(least) => report.add_with_goal(name, ratio, "x", &format!("at least {least}")),
            None if number > 0 => report.add(name, ratio, "x"),
            None => {}
        }
    }
    slowest
}

/// CPU of the webhook; over all turns together, since Linux counts in hundredths of seconds.
fn report_reviews(turns: &[Vec<Cost>], pods: usize, report: &mut Report) {
    let asked = |(_, arm): &(&Cost, &Arm)| arm.labels.contains(&WEBHOOK);
    let used: Vec<Duration> = turns
        .iter()
        .flat_map(|costs| costs.iter().zip(&ARMS).filter(asked))
        .map(|(cost, _)| cost.webhook)
        .collect();
    let reviews = (used.len() * pods) as f64;
    let of_one = millis(used.iter().sum()) * 1e3 / reviews;
    report.add_with_goal("webhook_cpu_per_review", of_one, "us", "under 100");
}

/// Times, and how much longer they are than without anything in the way.
fn report_latencies(mut samples: [Samples; ARMS.len()], report: &mut Report) {
    for (percent, goal) in [(50, "under 1"), (99, "under 3")] {
        let none = samples[0].percentile(percent);
        for (arm, samples) in ARMS.iter().zip(&mut samples) {
            let took = samples.percentile(percent);
            report.add(format!("latency_p{percent}_{}", arm.name), millis(took), "ms");
            let (more, name) = (millis(took) - millis(none), arm.name);
            let name = format!("latency_added_p{percent}_{name}");
            if arm.labels.contains(&MANAGED) {
                report.add_with_goal(name, more, "ms", goal);
            }
        }
    }
}

//! The same pods through Tidegate and through Kueue, one after the other, each on a fresh
//! cluster of the same make.

mod install;

use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use clap::ValueEnum;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use serde_json::json;

use crate::figures::Report;
use crate::support::{cluster::Cluster, lab::Lab};

use super::{
    OURS, Run,
    life::{Life, live},
    pods, programs,
    writes::Writes,
};

/// Measurements of each kind, one after the other.
const TURNS: usize = 2;
/// Namespace of the pods, and its queue.
const PLACE: &str = "bench";

/// Who queues the pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Side {
    /// We.
    Tidegate,
    /// Kueue of `tests/operators/kueue`.
    Kueue,
}

/// Each side in a process of its own, and their ratios.
pub fn both(pods: Option<usize>) -> Result<Report> {
    let mut report = Report::default();
    let ours = side(Side::Tidegate, pods)?;
    let theirs = side(Side::Kueue, pods)?;
    let ratio = |name: &str| {
        let of = |report: &Report, side: &str| report.value(&format!("{name}_{side}"));
        anyhow::Ok(of(&ours, "tidegate")? / of(&theirs, "kueue")?)
    };
    let let_go = ratio("life_created_to_ungated")?;
    let cpu = ratio("life_cpu")?;
    report.merge(ours);
    report.merge(theirs);
    report.add_with_goal("life_created_to_ungated_ratio", let_go, "x", "at least 6");
    report.add("life_cpu_ratio", cpu, "x");
    Ok(report)
}

fn side(side: Side, pods: Option<usize>) -> Result<Report> {
    let name = side.to_possible_value().context("a side without a name")?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["kueue", "--json", "--side", name.get_name()]).stderr(Stdio::inherit());
    if let Some(pods) = pods {
        command.args(["--pods", &pods.to_string()]);
    }
    let done = command.output()?;
    ensure!(done.status.success(), "{side:?} ended with {}", done.status);
    serde_json::from_slice(&done.stdout).context("not a report")
}

/// One side on a cluster of its own: without anything, then with it installed.
pub async fn one(side: Side, run: &mut Run) -> Result<()> {
    run.report.size("turns", TURNS as u64);
    let count = run.size("pods of one turn", 300);
    let cluster = run.cluster()?;
    let client = cluster.client().await?;
    run.say("living without anything installed");
    pods::namespace(&client, "before", &[]).await?;
    let bare = |turn: usize| pods::many(count, &format!("life-{turn}"), &[], &[]);
    let before = lives(cluster, &client, "before", &[], bare).await?;
    match side {
        Side::Tidegate => {
            let tidegate = run.install(cluster).await?;
            run.say("living through Tidegate");
            let room = json!({"limit": {"cpu": "1000", "memory": "10Ti"}});
            Lab::on(tidegate, PLACE, room).await?;
            let since = Timestamp::now();
            let after = lives(cluster, &client, PLACE, &programs(tidegate)?, bare).await?;
            before.report("without_tidegate", &mut run.report);
            report(run, "tidegate", after, &Writes::of(cluster, OURS, since)?, count);
        }
        Side::Kueue => {
            run.say("installing Kueue, which may have to be built");
            let kueue = install::Kueue::install(cluster, PLACE).await?;
            run.say("living through Kueue");
            let queued = |turn: usize| {
                pods::many(count, &format!("life-{turn}"), &[], &[(install::QUEUE_LABEL, PLACE)])
            };
            let since = Timestamp::now();
            let after = lives(cluster, &client, PLACE, &[kueue.pid()], queued).await?;
            before.report("without_kueue", &mut run.report);
            report(run, "kueue", after, &Writes::of(cluster, install::ACCOUNT, since)?, count);
        }
    }
    Ok(())
}

/// The first turn warms everything up.
async fn lives(
    cluster: &Cluster,
    client: &Client,
    namespace: &str,
    programs: &[u32],
    pods: impl Fn(usize) -> Result<Vec<Pod>>,
) -> Result<Life> {
    let mut lived = Vec::new();
    for turn in 0..=TURNS {
        lived.push(live(cluster, client, namespace, programs, &pods(turn)?).await?);
    }
    Ok(Life::median(&lived[1..]))
}

fn report(run: &mut Run, name: &str, life: Life, writes: &Writes, pods: usize) {
    life.report(name, &mut run.report);
    run.report.add(format!("life_cpu_of_{name}"), life.queueing, "ms/pod");
    writes.report(name, pods * (TURNS + 1), &mut run.report);
}

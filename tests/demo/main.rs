//! `./dev demo`: two teams, real operators, a real control plane.
//!
//! Two queues of different weight share a small cluster. Unchanged custom
//! resources of several operators compete; a live table shows gates open. It
//! ends with a summary and fails unless every pod was gated first, each object
//! reached its end, shares matched weights while both queues had work, and the
//! audit log shows one PATCH of ours for each pod.

#![allow(
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "it prints for people, and a step that fails ends it"
)]

// Compiled with it: the support of the integration tests.
#[path = "../it/support/mod.rs"]
mod support;

mod board;
mod watch;
mod work;

use std::{
    path::Path,
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use futures::future::try_join_all;
use serde_json::json;

use board::Board;
use support::{
    audit,
    cluster::{Cluster, Options},
    lab::Lab,
    operators::{Operator, OperatorKind},
    tidegate::{Install, Tidegate},
    wait,
};
use watch::Watch;
use work::{Team, Work};

/// Queues, as name and weight.
const TEAMS: [(&str, i64); 2] = [("team-a", 3), ("team-b", 1)];
/// How far shares may be from the weights, in hundredths: one pod more or less.
const TOLERANCE: u64 = 10;
/// How long all of it may take.
const LIMIT: Duration = Duration::from_mins(5);

/// Show Tidegate on a local cluster.
#[derive(Debug, Parser)]
#[command(name = "./dev demo")]
struct Args {
    /// Leave everything running at the end and print what to try.
    #[arg(long)]
    keep: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    match demo(&Args::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("\nthe demo failed: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn demo(args: &Args) -> Result<()> {
    let begin = Instant::now();
    say("starting etcd, kube-apiserver, controller-manager, scheduler and two fake nodes");
    let options =
        Options { nodes: 2, flags: vec!["--node-cpu=8".to_owned()], ..Options::default() };
    let cluster: &'static Cluster = Box::leak(Box::new(Cluster::start(&options)?));
    say("helm install charts/tidegate; the programs run with the chart's ServiceAccounts");
    let tidegate: &'static Tidegate =
        Box::leak(Box::new(Tidegate::install(cluster, &Install::default()).await?));
    say("starting operators: MPI, KubeRay, JobSet, Dask, and one nobody has heard of");
    let operators = try_join_all(OperatorKind::ALL.map(async |kind| {
        Operator::start(kind, cluster.kubeconfig(), &cluster.dir().join(kind.name())).await
    }))
    .await?;
    let teams = teams(tidegate).await?;
    let watch = Watch::start(cluster, TEAMS.map(|(name, _)| name)).await?;
    say(&format!("ready after {} s; submitting", begin.elapsed().as_secs()));
    let work = work::submit(&teams).await?;
    let board = run(&teams, &work, &watch, begin).await?;
    summary(cluster, &teams, &watch, &board, begin)?;
    if args.keep {
        keep(cluster).await?;
    }
    drop(operators);
    Ok(())
}

fn say(line: &str) {
    println!("* {line}");
}

/// Two queues that are closed until all work is there, so that both have some.
async fn teams(tidegate: &'static Tidegate) -> Result<Vec<Team>> {
    let mut teams = Vec::new();
    for (name, weight) in TEAMS {
        let lab = Lab::on(tidegate, name, json!({"weight": weight, "stop": "Hold"})).await?;
        teams.push(Team { name, weight, lab });
    }
    Ok(teams)
}

/// Opens the queues and shows what happens until every object has ended.
async fn run(teams: &[Team], work: &[Work], watch: &Watch, begin: Instant) -> Result<Board> {
    let mut board = Board::new(begin);
    wait::until("all work is known", wait::START, async || {
        board.look(teams).await?;
        let missing: Vec<&str> =
            work.iter().filter(|work| !board.knows(work)).map(|work| work.name.as_str()).collect();
        ensure!(missing.is_empty(), "no pods yet of {missing:?}");
        Ok(true)
    })
    .await?;
    let gated = watch.pods().len();
    say(&format!("{gated} pods are there, all of them gated; opening both queues"));
    for team in teams {
        team.lab.set_queue(team.name, json!({"stop": "None"})).await?;
    }
    let end = Instant::now() + LIMIT;
    let mut left: Vec<&Work> = work.iter().collect();
    while !left.is_empty() {
        ensure!(
            Instant::now() < end,
            "not ended: {:?}",
            left.iter().map(|w| &w.name).collect::<Vec<_>>()
        );
        board.look(teams).await?;
        board.show();
        let mut open = Vec::new();
        for work in left {
            if !work.ended().await.with_context(|| work.name.clone())? {
                open.push(work);
            }
        }
        left = open;
    }
    board.finish();
    Ok(board)
}

fn summary(
    cluster: &Cluster,
    teams: &[Team],
    watch: &Watch,
    board: &Board,
    begin: Instant,
) -> Result<()> {
    println!("\nSUMMARY after {} s", begin.elapsed().as_secs());
    let pods = watch.pods();
    let free: Vec<&str> =
        pods.values().filter(|pod| !pod.gated_first).map(|pod| pod.name.as_str()).collect();
    println!("  pods {}, gated at creation {}", pods.len(), pods.len() - free.len());
    let mut writes = 0;
    for team in teams {
        let waits = watch.waits(team.name);
        let average = waits.iter().sum::<i64>() / i64::try_from(waits.len().max(1))?;
        println!(
            "  {}: weight {}, {} pods released, waited {average} s on average, {} s at most",
            team.name,
            team.weight,
            waits.len(),
            waits.iter().max().unwrap_or(&0),
        );
        for (uid, count) in audit::releases(cluster, |namespace| namespace.starts_with(team.name))?
        {
            ensure!(count == 1, "pod {uid} saw {count} PATCHes of ours");
            writes += count;
        }
    }
    println!("  PATCHes of ours: {writes}, one for each pod released");
    let share = board.share_of_first();
    let weights: i64 = TEAMS.iter().map(|(_, weight)| weight).sum();
    let due = u64::try_from(TEAMS[0].1 * 100 / weights)?;
    println!(
        "  while both had work ({} looks): {} had {} % of the CPU in use, its weight says {due} %",
        board.looks(),
        TEAMS[0].0,
        share.map_or_else(|| "?".to_owned(), |share| share.to_string()),
    );
    ensure!(free.is_empty(), "not gated first: {free:?}");
    let share = share.context("both queues never had work at the same time")?;
    ensure!(share.abs_diff(due) <= TOLERANCE, "shares did not match the weights");
    say("every object ended as it does without Tidegate");
    Ok(())
}

/// Leaves everything running until a signal.
async fn keep(cluster: &Cluster) -> Result<()> {
    println!("\nLeft running. In another terminal:\n");
    println!("  export KUBECONFIG={}", cluster.kubeconfig().display());
    let program = support::tidegate::program();
    let tools = support::helper("kubectl")?;
    let folder = |path: &Path| path.parent().map(Path::to_path_buf).context("no folder");
    println!("  export PATH={}:{}:$PATH", folder(&tools)?.display(), folder(&program)?.display());
    println!("  kubectl get queues");
    println!("  kubectl get groups -A");
    println!("  kubectl -n team-a create job more --image=busybox -- sleep 5");
    println!("  tidegate why job/more -n team-a");
    println!("\nCtrl-C ends it.");
    tokio::signal::ctrl_c().await?;
    Ok(())
}

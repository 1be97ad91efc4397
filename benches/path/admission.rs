//! What admission costs: creating pods with and without each part of it, and the whole
//! life of a pod.
//!
//! One chart holds all parts. Labels of namespaces, added to what the parts select, say
//! which of them work where, so that all are measured in turns on one apiserver.

mod creates;
mod parts;

use anyhow::Result;
use tidegate::api::names;

use crate::figures::Report;

use self::parts::{Arm, BACKLOG, GUARD, MANAGED, POLICY, WEBHOOK};
use super::{
    Run,
    life::{Life, live},
    pods, programs,
};

/// Measurements of each kind, taken in turns.
const TURNS: usize = 3;
/// The queue of all pods; it has no limit.
const QUEUE: &str = "bench";

/// What the apiserver does for a pod.
const ARMS: [Arm; 8] = [
    Arm { name: "none", labels: &[], least: None },
    Arm { name: "without_opt_in", labels: &[GUARD], least: None },
    Arm { name: "guard", labels: &[MANAGED, GUARD], least: None },
    Arm { name: "webhook", labels: &[MANAGED, WEBHOOK], least: Some(0.75) },
    Arm { name: "policy", labels: &[MANAGED, POLICY], least: Some(0.65) },
    Arm { name: "webhook_and_guard", labels: &[MANAGED, WEBHOOK, GUARD], least: Some(0.45) },
    Arm { name: "policy_and_guard", labels: &[MANAGED, POLICY, GUARD], least: Some(0.45) },
    Arm { name: "policy_with_backlogs", labels: &[MANAGED, POLICY, GUARD, BACKLOG], least: None },
];
/// The two ways to install the chart, and pods that it has nothing to do with.
const LIVED: [&Arm; 3] = [&ARMS[5], &ARMS[7], &ARMS[1]];

/// First lives, with the controller, then creates, without it.
pub async fn measure(run: &mut Run) -> Result<()> {
    run.report.size("turns", TURNS as u64);
    let lives = run.size("pods of one turn of lives", 300);
    let created = run.size("pods of one turn of creates", 500);
    let cluster = run.cluster()?;
    let client = cluster.client().await?;
    run.say("living without anything installed");
    pods::namespace(&client, "before", &[]).await?;
    let mut before = Vec::new();
    for turn in 0..=TURNS {
        let pods = pods::many(lives, &format!("life-{turn}"), &[], &[])?;
        before.push(live(cluster, &client, "before", &[], &pods).await?);
    }
    // The first turn warms the apiserver up.
    let before = Life::median(&before[1..]);
    let tidegate = run.install(cluster).await?;
    parts::separate(tidegate, QUEUE, &ARMS).await?;
    run.say("living through Tidegate");
    let mut after = [const { Vec::new() }; LIVED.len()];
    for turn in 0..=TURNS {
        for (lived, arm) in after.iter_mut().zip(LIVED) {
            let pods = pods::many(lives, &format!("life-{turn}"), &[], &[])?;
            let programs = programs(tidegate)?;
            lived.push(live(cluster, &client, &arm.namespace(), &programs, &pods).await?);
        }
    }
    let after = after.map(|lived| Life::median(&lived[1..]));
    report_lives(before, after, &mut run.report);
    tidegate.stop_controller("TERM")?;
    creates::measure(run, tidegate, &client, created).await
}

fn report_lives(before: Life, after: [Life; LIVED.len()], report: &mut Report) {
    before.report("without_us", report);
    for (life, arm) in after.iter().zip(LIVED) {
        life.report(arm.name, report);
        let ratio = life.apiserver / before.apiserver;
        let figure = format!("life_cpu_ratio_{}", arm.name);
        if arm.is_managed() {
            // 17 ms where 11 are without us.
            report.add_with_goal(figure, ratio, "x", "at most 1.55");
        } else {
            report.add(figure, ratio, "x");
        }
        report.add(format!("life_cpu_of_ours_{}", arm.name), life.queueing, "ms/pod");
    }
}

impl Arm {
    fn is_managed(&self) -> bool {
        self.labels.contains(&MANAGED)
    }

    /// Whether its pods have to bring the gate themselves.
    fn brings_gate(&self) -> bool {
        self.is_managed() && !self.labels.contains(&WEBHOOK) && !self.labels.contains(&POLICY)
    }

    /// Gates and labels that its pods have from the start.
    fn pods(&self) -> (&[&'static str], &[(&'static str, &'static str)]) {
        if self.brings_gate() {
            (&[pods::HOLD, names::GATE], &[MANAGED])
        } else {
            (&[pods::HOLD], &[])
        }
    }
}

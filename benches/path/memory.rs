//! What the controller keeps in memory for pods that wait, and how it starts with them.

use std::time::Instant;

use anyhow::{Result, ensure};
use k8s_openapi::api::{
    admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingAdmissionPolicyBinding},
    core::v1::Pod,
};
use kube::{
    Api,
    api::{DeleteParams, ListParams, PostParams},
};
use serde_json::json;
use tidegate::api::names;

use crate::figures::memory;
use crate::support::{
    lab::{Lab, is_gated},
    tidegate::Tidegate,
    wait,
};

use super::{Run, known, pods};

/// Pods made between two looks at how far it is.
const AT_ONCE: usize = 10_000;

/// A controller without pods, then one that starts when all of them wait: each a group
/// of its own, which is the most there can be to keep.
pub async fn measure(run: &mut Run) -> Result<()> {
    let count = run.size("gated pods", 20_000);
    let cluster = run.cluster()?;
    let tidegate = run.install(cluster).await?;
    let lab = Lab::on(tidegate, "bench-memory", json!({"limit": {"pods": "1"}})).await?;
    known(&lab, 0).await?;
    let (empty, _) = memory(&tidegate.controller_pid()?.to_string())?;
    tidegate.stop_controller("TERM")?;
    bypass_admission(&lab).await?;
    let api: Api<Pod> = Api::namespaced(lab.client.clone(), &lab.namespace);
    let labels = [(names::LABEL_MANAGED, "true")];
    for begin in (0..count).step_by(AT_ONCE) {
        run.say(&format!("{begin} pods"));
        let some = AT_ONCE.min(count - begin);
        let gates = [pods::HOLD, names::GATE];
        let pods = pods::many(some, &format!("pod-{begin}"), &gates, &labels)?;
        pods::create(&api, &pods).await?;
    }
    start(run, tidegate, &lab, count, empty).await
}

/// Pods then come gated as they are, faster than through webhook and guard.
async fn bypass_admission(lab: &Lab) -> Result<()> {
    let (how, all) = (DeleteParams::default(), ListParams::default());
    let webhooks: Api<MutatingWebhookConfiguration> = Api::all(lab.client.clone());
    webhooks.delete_collection(&how, &all).await?;
    let guard: Api<ValidatingAdmissionPolicyBinding> = Api::all(lab.client.clone());
    guard.delete_collection(&how, &all).await?;
    let probe = pods::pod("probe", &[pods::HOLD], &[])?;
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    let api: Api<Pod> = Api::namespaced(lab.client.clone(), &lab.namespace);
    wait::until("nothing is in the way of pods", wait::SOON, async || {
        Ok(!is_gated(&api.create(&dry_run, &probe).await?))
    })
    .await
}

async fn start(
    run: &mut Run,
    tidegate: &Tidegate,
    lab: &Lab,
    count: usize,
    empty: u64,
) -> Result<()> {
    run.say("starting the controller");
    tidegate.start_controller().await?;
    let begin = Instant::now();
    wait::until("the controller is ready", wait::START, async || {
        tidegate.check()?;
        let (code, body) = tidegate.get("/readyz").await?;
        ensure!(code == 200, "{body}");
        Ok(true)
    })
    .await?;
    let synced = begin.elapsed();
    // One has been let go.
    known(lab, count - 1).await?;
    let told = begin.elapsed();
    let (now, peak) = memory(&tidegate.controller_pid()?.to_string())?;
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let of_a_pod = |bytes: u64| bytes.saturating_sub(empty) as f64 / count as f64;
    let report = &mut run.report;
    report.add("start_to_synced", synced.as_secs_f64(), "s");
    report.add("start_to_queue_status", told.as_secs_f64(), "s");
    report.add("memory_empty", mib(empty), "MiB");
    report.add("memory", mib(now), "MiB");
    report.add("memory_peak", mib(peak), "MiB");
    report.add_with_goal("memory_per_pod", of_a_pod(now), "B/pod", "under 3072");
    report.add("memory_peak_per_pod", of_a_pod(peak), "B/pod");
    Ok(())
}

//! The whole path on a real control plane, beside what its apiserver does without us.
//!
//! Every pod carries a scheduling gate of somebody else, so that neither scheduler
//! nor kubelet takes part and all of the machine is left for what is measured.

mod creates;
mod latency;
mod releases;
mod watch;

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{DeleteParams, ListParams},
};
use serde_json::{Value, json};

use crate::figures::{Report, memory};
use crate::support::{
    cluster::{Cluster, Options},
    lab::Lab,
    tidegate::{Install, Tidegate},
    wait,
};

/// Requests in flight at once, as many as Tidegate's writer allows itself.
const IN_FLIGHT: usize = 16;
/// Somebody else's gate.
const HOLD: &str = "example.com/hold";
/// Longest time for everything.
const LIMIT: Duration = Duration::from_mins(5);

/// Measures everything on a cluster of its own.
pub fn run() -> Result<Report> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        tokio::time::timeout(LIMIT, measure()).await.context("it took too long")?
    })
}

async fn measure() -> Result<Report> {
    let begin = Instant::now();
    let say = |what: &str| eprintln!("{:>4} s  {what}", begin.elapsed().as_secs());
    let mut report = Report::default();
    report.size("requests in flight", IN_FLIGHT as u64);
    say("starting a control plane");
    let flags = ["--node-cpu=64", "--node-pods=500"].map(str::to_owned).to_vec();
    let options = Options { nodes: 10, flags, ..Options::default() };
    let cluster: &'static Cluster = Box::leak(Box::new(Cluster::start(&options)?));
    let mut creates = creates::Creates::new(cluster).await?;
    say("creating pods before anything is installed");
    creates.before().await?;
    say("installing the chart");
    let tidegate: &'static Tidegate =
        Box::leak(Box::new(Tidegate::install(cluster, &Install::default()).await?));
    say("creating pods, gated by the webhook");
    let waiting = waiting_room(tidegate, "bench-webhook").await?;
    creates.gated_by("webhook", &waiting).await?;
    controller_memory(&waiting, &mut report).await?;
    empty(&waiting).await?;
    say("upgrading the chart: the policy gates");
    let policy = Install { values: vec!["admission.gateBy=policy".to_owned()] };
    tidegate.helm(&["upgrade"], &policy).await?;
    let waiting = waiting_room(tidegate, "bench-policy").await?;
    creates.gated_by("policy", &waiting).await?;
    creates.report(&mut report);
    say("releasing jobs through Tidegate and by hand");
    releases::measure(tidegate, &mut report).await?;
    say("ending pods one by one");
    latency::measure(tidegate, &mut report).await?;
    say("done");
    report.size("seconds", begin.elapsed().as_secs());
    Ok(report)
}

/// A queue with room for one pod, which is taken: all others wait and are looked at
/// in each round.
async fn waiting_room(tidegate: &'static Tidegate, name: &str) -> Result<Lab> {
    let lab = Lab::on(tidegate, name, json!({"limit": {"pods": "1"}})).await?;
    creates::gated_for_a_while(&lab).await?;
    lab.create(pod("blocker")).await?;
    lab.released_at_least("blocker").await?;
    Ok(lab)
}

/// Waits until the controller counts so many waiting pods.
async fn known(lab: &Lab, pods: usize) -> Result<()> {
    wait::until(&format!("{pods} pods are known"), wait::START, async || {
        let status = lab.get_queue(&lab.namespace).await?.status.unwrap_or_default();
        Ok(usize::try_from(status.pending.pods)? == pods)
    })
    .await
}

/// Deletes all pods of a namespace and waits until the controller knows.
async fn empty(lab: &Lab) -> Result<()> {
    let api: Api<Pod> = Api::namespaced(lab.client.clone(), &lab.namespace);
    let at_once = DeleteParams::default().grace_period(0);
    api.delete_collection(&at_once, &ListParams::default()).await?;
    known(lab, 0).await
}

async fn controller_memory(lab: &Lab, report: &mut Report) -> Result<()> {
    known(lab, creates::GATED).await?;
    let (now, peak) = memory(&lab.tidegate.controller_pid()?.to_string())?;
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    report.size("gated pods while memory is read", creates::GATED as u64);
    report.add("controller_memory", mib(now), "MiB");
    report.add("controller_memory_peak", mib(peak), "MiB");
    Ok(())
}

/// A pod of nobody.
fn pod(name: &str) -> Value {
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}});
    pod["spec"] = pod_spec(&[HOLD]);
    pod
}

fn pod_spec(gates: &[&str]) -> Value {
    let gates: Vec<Value> = gates.iter().map(|name| json!({"name": name})).collect();
    json!({
        "restartPolicy": "Never",
        "schedulingGates": gates,
        "containers": [{"name": "app", "image": "pause",
            "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}}}],
    })
}

fn typed(pod: Value) -> Result<Pod> {
    Ok(serde_json::from_value(pod)?)
}

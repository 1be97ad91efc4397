//! What letting pods go costs: from a standing backlog beside the same PATCH by hand,
//! through the whole path, and how soon after room became free.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context as _, Result};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, ResourceExt as _,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use tidegate::{api::names, release};

use crate::figures::{cpu_time, median, millis};
use crate::support::{cluster::Component, lab::Lab, tidegate::Tidegate, wait};

use super::{
    IN_FLIGHT, Run, known, latency,
    life::{Life, live},
    pods, programs,
    watch::{Watch, has_gate},
    writes::Writes,
};

/// Pods of each Job.
const OF_A_JOB: usize = 50;
/// Measurements of each kind, taken in turns.
const TURNS: usize = 3;
/// The gate that is opened by hand.
const BY_HAND: &str = "example.com/by-hand";

/// One measurement.
struct Cost {
    pods_a_second: f64,
    /// CPU of the apiserver for one pod, in milliseconds.
    apiserver: f64,
    /// CPU of the controller for one pod, in milliseconds.
    controller: f64,
}

/// Everything on one cluster.
pub async fn measure(run: &mut Run) -> Result<()> {
    run.report.size("turns", TURNS as u64);
    let jobs = run.size("pods of a backlog", 500).div_ceil(OF_A_JOB);
    let lived = run.size("pods of one turn of lives", 300);
    let cluster = run.cluster()?;
    let tidegate = run.install(cluster).await?;
    backlogs(run, tidegate, jobs).await?;
    lives(run, tidegate, lived).await?;
    run.say("ending pods one by one");
    latency::measure(tidegate, &mut run.report).await
}

/// Through Tidegate and by hand in turns, their ratios, and what was written.
async fn backlogs(run: &mut Run, tidegate: &'static Tidegate, jobs: usize) -> Result<()> {
    run.say("opening the gates of jobs through Tidegate and by hand");
    run.report.size("pods of each job", OF_A_JOB as u64);
    let since = Timestamp::now();
    let mut turns = Vec::new();
    // The first turn warms everything up.
    for turn in 0..=TURNS {
        let through = through_tidegate(tidegate, &format!("bench-release-{turn}"), jobs).await?;
        turns.push((through, by_patch(tidegate, &format!("bench-patched-{turn}"), jobs).await?));
    }
    let report = &mut run.report;
    Writes::of(tidegate.cluster(), super::OURS, since)?.report(
        "backlog",
        jobs * OF_A_JOB * turns.len(),
        report,
    );
    let turns = &turns[1..];
    let middle = |of: fn(&(Cost, Cost)) -> f64| median(turns.iter().map(of));
    report.add("releases_through_tidegate", middle(|turn| turn.0.pods_a_second), "pods/s");
    report.add("releases_by_raw_patch", middle(|turn| turn.1.pods_a_second), "pods/s");
    let ratio = middle(|(through, hand)| through.pods_a_second / hand.pods_a_second);
    report.add_with_goal("releases_ratio", ratio, "x", "at least 0.9");
    report.add("release_cpu_through_tidegate", middle(|turn| turn.0.apiserver), "ms/pod");
    report.add("release_cpu_by_raw_patch", middle(|turn| turn.1.apiserver), "ms/pod");
    let ratio = middle(|(through, hand)| through.apiserver / hand.apiserver);
    report.add("release_cpu_ratio", ratio, "x");
    report.add("release_cpu_of_controller", middle(|turn| turn.0.controller), "ms/pod");
    Ok(())
}

/// Opens the queue of jobs whose pods all wait.
async fn through_tidegate(tidegate: &'static Tidegate, name: &str, jobs: usize) -> Result<Cost> {
    let lab = Lab::on(tidegate, name, json!({"stop": "Hold"})).await?;
    submit(&lab, jobs, &[pods::HOLD]).await?;
    known(&lab, jobs * OF_A_JOB).await?;
    let open = async { lab.set_queue(name, json!({"stop": "None"})).await };
    cost(&lab, jobs * OF_A_JOB, names::GATE, open).await
}

/// Opens as many gates of such pods, in a namespace that did not opt in.
async fn by_patch(tidegate: &'static Tidegate, name: &str, jobs: usize) -> Result<Cost> {
    let cluster = tidegate.cluster();
    let lab = Lab { client: cluster.client().await?, namespace: name.to_owned(), tidegate };
    lab.namespace(name, BTreeMap::new()).await?;
    submit(&lab, jobs, &[pods::HOLD, BY_HAND]).await?;
    let pods = waiting_pods(&lab, jobs * OF_A_JOB).await?;
    let client = release::client(cluster.config().await?)?;
    let sending = stream::iter(pods)
        .map(|pod| open(client.clone(), pod))
        .buffer_unordered(IN_FLIGHT)
        .try_for_each(async |()| Ok(()));
    cost(&lab, jobs * OF_A_JOB, BY_HAND, sending).await
}

/// What it costs until all gates are open, from the first to the last of them.
async fn cost(
    lab: &Lab,
    pods: usize,
    gate: &str,
    open: impl Future<Output = Result<()>>,
) -> Result<Cost> {
    let programs =
        [lab.tidegate.cluster().pid(Component::ApiServer)?, lab.tidegate.controller_pid()?];
    let mut watch = Watch::start(&lab.client, &lab.namespace).await?;
    let before = programs.map(cpu_time);
    let (times, ()) = tokio::try_join!(watch.times(pods, |pod| !has_gate(pod, gate)), open)?;
    let [apiserver, controller] = programs.map(cpu_time);
    let [apiserver_before, controller_before] = before;
    let (first, last) = times.first().zip(times.last()).context("nothing was opened")?;
    let of_one = |used: Duration| millis(used) / pods as f64;
    Ok(Cost {
        pods_a_second: (pods - 1) as f64 / last.duration_since(*first).as_secs_f64(),
        apiserver: of_one(apiserver?.saturating_sub(apiserver_before?)),
        controller: of_one(controller?.saturating_sub(controller_before?)),
    })
}

async fn submit(lab: &Lab, jobs: usize, gates: &[&str]) -> Result<()> {
    for number in 0..jobs {
        let job = json!({
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": {"name": format!("job-{number}")},
            "spec": {"parallelism": OF_A_JOB, "completions": OF_A_JOB,
                "template": {"spec": pods::spec(gates)}},
        });
        lab.create(job).await?;
    }
    Ok(())
}

/// All pods of the jobs, once they are there.
async fn waiting_pods(lab: &Lab, count: usize) -> Result<Vec<Pod>> {
    let api: Api<Pod> = Api::namespaced(lab.client.clone(), &lab.namespace);
    wait::for_some("the pods of the jobs", wait::START, async || {
        let pods = api.list(&ListParams::default()).await?.items;
        Ok((pods.len() == count).then_some(pods))
    })
    .await
}

/// A PATCH as the writer sends it, for another gate and with other names.
async fn open(client: Client, pod: Pod) -> Result<()> {
    let released = json!({
        "pod": pod.uid(), "queue": "bench-release-0", "group": "Job/job-0", "root": pod.uid(),
        "size": 1, "time": "2026-01-01T00:00:00.000Z", "decision": 1000,
    });
    let annotations: Value =
        json!({"example.com/released": released.to_string(), "example.com/epoch": "1"});
    let body = json!({
        "metadata": {"uid": pod.uid(), "annotations": annotations},
        "spec": {"schedulingGates": [{"$patch": "delete", "name": BY_HAND}]},
    });
    let api: Api<Pod> = Api::namespaced(client, &pod.namespace().unwrap_or_default());
    let patch = Patch::Strategic(body);
    api.patch_metadata(&pod.name_any(), &PatchParams::default(), &patch).await?;
    Ok(())
}

/// Pods of nobody from their creation to their end, beside such pods without opt-in.
async fn lives(run: &mut Run, tidegate: &'static Tidegate, pods: usize) -> Result<()> {
    run.say("living through Tidegate");
    let cluster = tidegate.cluster();
    let lab = Lab::on(tidegate, "bench-life", json!({})).await?;
    lab.namespace("bench-plain", BTreeMap::new()).await?;
    let since = Timestamp::now();
    let (mut through, mut plain) = (Vec::new(), Vec::new());
    for turn in 0..=TURNS {
        let pods = pods::many(pods, &format!("life-{turn}"), &[], &[])?;
        let programs = programs(tidegate)?;
        through.push(live(cluster, &lab.client, "bench-life", &programs, &pods).await?);
        plain.push(live(cluster, &lab.client, "bench-plain", &programs, &pods).await?);
    }
    let report = &mut run.report;
    Writes::of(cluster, super::OURS, since)?.report("life", pods * through.len(), report);
    Life::median(&through[1..]).report("through_tidegate", report);
    Life::median(&plain[1..]).report("without_opt_in", report);
    Ok(())
}

//! How many gates a second Tidegate opens, beside the same PATCH sent as fast as
//! the apiserver takes it; and what it writes for that.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, ResourceExt as _,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use tidegate::{
    api::names::{ANNOTATION_EPOCH, ANNOTATION_RELEASED},
    release,
};

use crate::figures::{Report, cpu_time, millis};
use crate::support::{
    audit,
    cluster::{Cluster, Component},
    lab::Lab,
    tidegate::Tidegate,
    wait,
};

use super::{HOLD, IN_FLIGHT, known, pod_spec, watch::Watch};

/// Jobs of one measurement, and pods of each.
const JOBS: usize = 10;
const PODS: usize = 50;
/// Measurements of each kind, taken in turns.
const TURNS: usize = 2;
/// The gate that is opened by hand.
const BY_HAND: &str = "example.com/by-hand";

/// One measurement.
#[derive(Default)]
struct Cost {
    pods_a_second: f64,
    /// CPU of the apiserver for one pod.
    apiserver: f64,
    /// CPU of the controller for one pod.
    controller: f64,
}

/// Costs in turns, then their ratios and what was written.
pub async fn measure(tidegate: &'static Tidegate, report: &mut Report) -> Result<()> {
    report.size("jobs of one rate of releases", JOBS as u64);
    report.size("pods of each job", PODS as u64);
    report.size("turns of one rate of releases", TURNS as u64);
    let (mut through, mut hand) = (Cost::default(), Cost::default());
    for turn in 0..TURNS {
        through.add(&through_tidegate(tidegate, &format!("bench-release-{turn}")).await?);
        hand.add(&by_patch(tidegate, &format!("bench-patched-{turn}")).await?);
    }
    for (kind, cost) in [("through_tidegate", &through), ("by_raw_patch", &hand)] {
        report.add(format!("releases_{kind}"), cost.pods_a_second, "pods/s");
        report.add(format!("release_cpu_{kind}"), cost.apiserver, "ms of apiserver/pod");
    }
    report.add("release_cpu_of_controller", through.controller, "ms/pod");
    let ratio = through.pods_a_second / hand.pods_a_second;
    report.add_with_goal("releases_ratio", ratio, "x", "at least 0.75");
    report.add("release_cpu_ratio", through.apiserver / hand.apiserver, "x");
    writes(tidegate.cluster(), report)
}

impl Cost {
    /// Adds one turn to the mean of all.
    fn add(&mut self, turn: &Self) {
        self.pods_a_second += turn.pods_a_second / TURNS as f64;
        self.apiserver += turn.apiserver / TURNS as f64;
        self.controller += turn.controller / TURNS as f64;
    }
}

/// Opens the queue of jobs whose pods all wait.
async fn through_tidegate(tidegate: &'static Tidegate, name: &str) -> Result<Cost> {
    let lab = Lab::on(tidegate, name, json!({"stop": "Hold"})).await?;
    submit(&lab, &[HOLD]).await?;
    known(&lab, JOBS * PODS).await?;
    let open = async { lab.set_queue(name, json!({"stop": "None"})).await };
    cost(&lab, open).await
}

/// Opens as many gates of such pods, in a namespace that did not opt in.
async fn by_patch(tidegate: &'static Tidegate, name: &str) -> Result<Cost> {
    let cluster = tidegate.cluster();
    let lab = Lab { client: cluster.client().await?, namespace: name.to_owned(), tidegate };
    lab.namespace(name, BTreeMap::new()).await?;
    submit(&lab, &[HOLD, BY_HAND]).await?;
    let pods = waiting_pods(&lab).await?;
    let client = release::client(cluster.config().await?)?;
    let sending = stream::iter(pods)
        .map(|pod| open(client.clone(), pod))
        .buffer_unordered(IN_FLIGHT)
        .try_for_each(async |()| Ok(()));
    cost(&lab, sending).await
}

/// What it costs until all gates are open, from the first to the last of them.
async fn cost(lab: &Lab, open: impl Future<Output = Result<()>>) -> Result<Cost> {
    let programs =
        [lab.tidegate.cluster().pid(Component::ApiServer)?, lab.tidegate.controller_pid()?];
    let mut watch = Watch::start(&lab.client, &lab.namespace).await?;
    let before = programs.map(cpu_time);
    let (pods_a_second, ()) = tokio::try_join!(rate(&mut watch), open)?;
    let [apiserver, controller] = programs.map(cpu_time);
    let [apiserver_before, controller_before] = before;
    let of_one = |used: Duration| millis(used) / (JOBS * PODS) as f64;
    Ok(Cost {
        pods_a_second,
        apiserver: of_one(apiserver?.saturating_sub(apiserver_before?)),
        controller: of_one(controller?.saturating_sub(controller_before?)),
    })
}

async fn submit(lab: &Lab, gates: &[&str]) -> Result<()> {
    for number in 0..JOBS {
        let job = json!({
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": {"name": format!("job-{number}")},
            "spec": {"parallelism": PODS, "completions": PODS,
                "template": {"spec": pod_spec(gates)}},
        });
        lab.create(job).await?;
    }
    Ok(())
}

/// All pods of the jobs, once they are there.
async fn waiting_pods(lab: &Lab) -> Result<Vec<Pod>> {
    let api: Api<Pod> = Api::namespaced(lab.client.clone(), &lab.namespace);
    wait::for_some("the pods of the jobs", wait::START, async || {
        let pods = api.list(&ListParams::default()).await?.items;
        Ok((pods.len() == JOBS * PODS).then_some(pods))
    })
    .await
}

/// Gates opened a second, from the first to the last of them.
async fn rate(watch: &mut Watch) -> Result<f64> {
    let mut seen = BTreeSet::new();
    let mut times: Vec<Instant> = Vec::new();
    while seen.len() < JOBS * PODS {
        let (name, at) = watch.opened().await?;
        if seen.insert(name) {
            times.push(at);
        }
    }
    let (first, last) = times.first().zip(times.last()).context("nothing was opened")?;
    Ok((times.len() - 1) as f64 / last.duration_since(*first).as_secs_f64())
}

/// The PATCH that the writer sends, for another gate.
async fn open(client: Client, pod: Pod) -> Result<()> {
    let released = json!({
        "pod": pod.uid(), "queue": "bench-release-0", "group": "Job/job-0", "root": pod.uid(),
        "size": 1, "time": "2026-01-01T00:00:00.000Z", "decision": 1000,
    });
    let annotations: Value =
        json!({ANNOTATION_RELEASED: released.to_string(), ANNOTATION_EPOCH: "1"});
    let body = json!({
        "metadata": {"uid": pod.uid(), "annotations": annotations},
        "spec": {"schedulingGates": [{"$patch": "delete", "name": BY_HAND}]},
    });
    let api: Api<Pod> = Api::namespaced(client, &pod.namespace().unwrap_or_default());
    let patch = Patch::Strategic(body);
    api.patch_metadata(&pod.name_any(), &PatchParams::default(), &patch).await?;
    Ok(())
}

/// What the controller wrote for the pods that it released here.
fn writes(cluster: &Cluster, report: &mut Report) -> Result<()> {
    let (mut patches, mut all) = (0_u32, 0_u32);
    for write in audit::writes(cluster)? {
        let ours = write.user.ends_with(":tidegate-controller");
        let here = [&write.namespace, &write.name].iter().any(|n| n.starts_with("bench-release-"));
        if ours && here {
            all += 1;
            patches += u32::from(write.resource == "pods");
        }
    }
    let pods = (JOBS * PODS * TURNS) as f64;
    report.add_with_goal("pod_writes_per_pod", f64::from(patches) / pods, "writes", "1");
    report.add("all_writes_per_pod", f64::from(all) / pods, "writes");
    Ok(())
}

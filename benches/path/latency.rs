//! From room that becomes free to the gate of the next pod.

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{DeleteParams, PostParams},
};
use serde_json::json;

use crate::figures::{Report, Samples, millis};
use crate::support::{lab::Lab, tidegate::Tidegate};

use super::{known, pod, typed, watch::Watch};

/// Pods that make room for the next one.
const PODS: usize = 200;

/// One pod after another leaves a queue with room for one. Both ends of each time
/// come from the same watch.
pub async fn measure(tidegate: &'static Tidegate, report: &mut Report) -> Result<()> {
    let lab = Lab::on(tidegate, "bench-latency", json!({"limit": {"pods": "1"}})).await?;
    let api: Api<Pod> = Api::namespaced(lab.client.clone(), &lab.namespace);
    let mut watch = Watch::start(&lab.client, &lab.namespace).await?;
    for number in 0..=PODS {
        api.create(&PostParams::default(), &typed(pod(&format!("pod-{number:03}")))?).await?;
    }
    let (mut running, _) = watch.opened().await?;
    known(&lab, PODS).await?;
    let mut samples = Samples::default();
    for _ in 0..PODS {
        api.delete(&running, &DeleteParams::default().grace_period(0)).await?;
        let (gone, freed) = watch.gone().await?;
        ensure!(gone == running, "{gone} is gone, not {running}");
        let (next, opened) = watch.opened().await?;
        samples.add(opened.duration_since(freed));
        running = next;
    }
    report.size("pods that made room one by one", PODS as u64);
    let median = millis(samples.percentile(50));
    report.add_with_goal("free_to_gate_gone", median, "ms", "at most 50");
    report.add_with_goal(
        "free_to_gate_gone_p99",
        millis(samples.percentile(99)),
        "ms",
        "at most 200",
    );
    Ok(())
}

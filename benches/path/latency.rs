//! From room that becomes free to the gate of the next pod.

use anyhow::Result;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, PostParams},
};
use serde_json::json;
use tidegate::api::names;

use crate::figures::{Report, Samples, millis};
use crate::support::{lab::Lab, tidegate::Tidegate};

use super::{
    known, pods,
    watch::{Watch, has_gate},
};

/// Pods that make room for the next one.
const PODS: usize = 200;

/// One pod after another leaves a queue with room for one. Both ends of each time
/// come from the same watch.
pub async fn measure(tidegate: &'static Tidegate, report: &mut Report) -> Result<()> {
    let lab = Lab::on(tidegate, "bench-latency", json!({"limit": {"pods": "1"}})).await?;
    let api: Api<Pod> = Api::namespaced(lab.client.clone(), &lab.namespace);
    let mut watch = Watch::start(&lab.client, &lab.namespace).await?;
    for pod in pods::many(PODS + 1, "pod", &[pods::HOLD], &[])? {
        api.create(&PostParams::default(), &pod).await?;
    }
    let open = |pod: &Pod| !has_gate(pod, names::GATE);
    let (mut running, _) = watch.next(open).await?;
    known(&lab, PODS).await?;
    let mut samples = Samples::default();
    for _ in 0..PODS {
        let at_once = DeleteParams::default().grace_period(0);
        api.delete(&running.name_any(), &at_once).await?;
        let freed = watch.gone(&running.name_any()).await?;
        let (next, opened) = watch.next(open).await?;
        samples.add(opened.duration_since(freed));
        running = next;
    }
    report.size("pods that made room one by one", PODS as u64);
    report.add("free_to_gate_gone_p50", millis(samples.percentile(50)), "ms");
    let slow = millis(samples.percentile(99));
    report.add_with_goal("free_to_gate_gone_p99", slow, "ms", "under 50");
    Ok(())
}

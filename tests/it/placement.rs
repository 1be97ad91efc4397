//! Queues that look for nodes before work starts, and what the scheduler is told of them.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use crate::support::{
    lab::{Lab, is_gated},
    wait,
};

/// Nodes with chips that only one test knows, in racks; each named after its rack.
async fn racks(lab: &Lab, chip: &str, nodes: &[(&str, u32)]) -> Result<()> {
    for (number, (rack, chips)) in nodes.iter().enumerate() {
        let node = json!({
            "name": format!("{chip}-{rack}-{number}"),
            "labels": {"topology.example.com/rack": format!("{chip}-{rack}")},
            "extended": {format!("example.com/{chip}"): chips.to_string()},
        });
        lab.tidegate.cluster().add_node(node).await?;
    }
    Ok(())
}

/// A Job whose pods run until they are deleted.
fn job(name: &str, pods: usize, chip: &str, chips: u32, annotations: &Value) -> Value {
    let chips = json!({format!("example.com/{chip}"): chips.to_string()});
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"parallelism": pods, "completions": pods, "template": {
            "metadata": {"annotations": {"fake.tidegate.dev/duration": "1h"}},
            "spec": {"restartPolicy": "Never", "containers": [{"name": "app", "image": "pause",
                "resources": {"requests": {"cpu": "1m"}, "limits": chips}}]}}},
    })
}

async fn on_nodes(lab: &Lab, job: &str, count: usize) -> Result<Vec<Pod>> {
    let mut pods = Vec::new();
    wait::until(&format!("{count} pods of {job} are on nodes"), wait::SOON, async || {
        pods = lab.pods().await?;
        pods.retain(|pod| label(pod, "batch.kubernetes.io/job-name") == Some(job));
        let bound = pods.iter().filter(|pod| node(pod).is_some()).count();
        ensure!(bound == count, "{bound} are");
        Ok(true)
    })
    .await?;
    Ok(pods)
}

fn label<'a>(pod: &'a Pod, key: &str) -> Option<&'a str> {
    pod.metadata.labels.as_ref()?.get(key).map(String::as_str)
}

fn node(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref()
}

#[tokio::test]
async fn a_gang_goes_to_the_one_rack_that_holds_it_by_the_patch_that_opens_its_gates() -> Result<()>
{
    let lab = Lab::new("racks", json!({"placement": "Domain"})).await?;
    racks(&lab, "abacus", &[("small", 3), ("small", 3), ("large", 4), ("large", 4)]).await?;
    let wants = json!({"tidegate.dev/min-count": "4",
        "tidegate.dev/topology": "topology.example.com/rack"});
    lab.create(job("train", 4, "abacus", 2, &wants)).await?;
    let pods = on_nodes(&lab, "train", 4).await?;
    for pod in &pods {
        let spec = pod.spec.as_ref().context("no spec")?;
        let selector = spec.node_selector.clone().unwrap_or_default();
        let rack = selector.get("topology.example.com/rack").map(String::as_str);
        ensure!(rack == Some("abacus-large"), "{selector:?}");
    }
    let nodes: BTreeSet<Option<&str>> = pods.iter().map(node).collect();
    ensure!(nodes == [Some("abacus-large-2"), Some("abacus-large-3")].into(), "{nodes:?}");
    // Six chips are free, as many as it asks, but three on each of two nodes.
    let wants = json!({"tidegate.dev/min-count": "3",
        "tidegate.dev/topology": "topology.example.com/rack"});
    lab.create(job("wide", 3, "abacus", 2, &wants)).await?;
    lab.why_says("job/wide", "room for only 2 of the 3 pods").await?;
    ensure!(lab.pods().await?.iter().filter(|pod| is_gated(pod)).count() == 3);
    lab.one_patch_each().await
}

#[tokio::test]
async fn a_pod_waits_for_one_node_and_is_drawn_to_it() -> Result<()> {
    let lab = Lab::new("one-node", json!({"placement": "Node"})).await?;
    racks(&lab, "loom", &[("one", 2), ("one", 3)]).await?;
    lab.create(job("first", 1, "loom", 2, &json!({}))).await?;
    let pods = on_nodes(&lab, "first", 1).await?;
    ensure!(node(&pods[0]) == Some("loom-one-0"), "the smaller one: {:?}", node(&pods[0]));
    let affinity = pods[0].spec.as_ref().and_then(|spec| spec.affinity.as_ref());
    ensure!(affinity.is_some(), "it was not drawn");
    lab.create(job("second", 1, "loom", 2, &json!({}))).await?;
    on_nodes(&lab, "second", 1).await?;
    racks(&lab, "loom", &[("two", 1)]).await?;
    // One chip is free on each of two nodes.
    lab.create(job("third", 1, "loom", 2, &json!({}))).await?;
    lab.why_says("job/third", "no node that it may run on has room").await?;
    racks(&lab, "loom", &[("three", 2)]).await?;
    on_nodes(&lab, "third", 1).await?;
    lab.one_patch_each().await
}

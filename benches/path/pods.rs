//! Pods to measure with, and how they are made.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use anyhow::Result;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::{Namespace, Pod, ServiceAccount};
use kube::{Api, Client, api::PostParams};
use serde_json::{Value, json};

use crate::support::wait;

use super::IN_FLIGHT;

/// Somebody else's gate, which keeps scheduler and kubelet out: all of the machine is
/// left for what is measured.
pub const HOLD: &str = "example.com/hold";

/// The spec of a small pod with these gates.
pub fn spec(gates: &[&str]) -> Value {
    let gates: Vec<Value> = gates.iter().map(|name| json!({"name": name})).collect();
    json!({
        "restartPolicy": "Never",
        "schedulingGates": gates,
        "containers": [{"name": "app", "image": "pause",
            "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}}}],
    })
}

/// A pod of nobody.
pub fn pod(name: &str, gates: &[&str], labels: &[(&str, &str)]) -> Result<Pod> {
    let labels: BTreeMap<_, _> = labels.iter().copied().collect();
    let pod = json!({"metadata": {"name": name, "labels": labels}, "spec": spec(gates)});
    Ok(serde_json::from_value(pod)?)
}

/// So many pods of nobody with different names.
pub fn many(count: usize, name: &str, gates: &[&str], labels: &[(&str, &str)]) -> Result<Vec<Pod>> {
    (0..count).map(|number| pod(&format!("{name}-{number}"), gates, labels)).collect()
}

/// Creates pods as fast as the apiserver takes them: as they were stored, and how long
/// that took.
pub async fn create(api: &Api<Pod>, pods: &[Pod]) -> Result<(Vec<Pod>, Duration)> {
    let begin = Instant::now();
    let made = stream::iter(pods)
        .map(|pod| async { api.create(&PostParams::default(), pod).await })
        .buffer_unordered(IN_FLIGHT)
        .try_collect()
        .await?;
    Ok((made, begin.elapsed()))
}

/// A namespace with these labels, once pods can be made in it.
pub async fn namespace(client: &Client, name: &str, labels: &[(&str, &str)]) -> Result<()> {
    let labels: BTreeMap<_, _> = labels.iter().copied().collect();
    let namespace = json!({"metadata": {"name": name, "labels": labels}});
    let namespaces: Api<Namespace> = Api::all(client.clone());
    namespaces.create(&PostParams::default(), &serde_json::from_value(namespace)?).await?;
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), name);
    wait::until("the default ServiceAccount", wait::SOON, async || {
        Ok(accounts.get_opt("default").await?.is_some())
    })
    .await
}

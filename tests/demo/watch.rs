//! Every pod of the teams from its first moment.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::{Result, bail};
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt as _,
    api::{WatchEvent, WatchParams},
};
use serde_json::Value;

use crate::support::{cluster::Cluster, lab::is_gated};

/// What was seen of one pod.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Its name.
    pub name: String,
    /// Its namespace.
    namespace: String,
    /// Its gate was there when it was stored.
    pub gated_first: bool,
    /// Seconds from its creation to the decision.
    waited: Option<i64>,
}

/// A watch that began before the first pod.
pub struct Watch {
    seen: Arc<Mutex<BTreeMap<String, Seen>>>,
}

impl Watch {
    /// Watches pods of namespaces that begin so until the program ends.
    pub async fn start(cluster: &Cluster, namespaces: [&'static str; 2]) -> Result<Self> {
        let seen = Arc::<Mutex<BTreeMap<String, Seen>>>::default();
        let api: Api<Pod> = Api::all(cluster.client().await?);
        let from = api.list(&kube::api::ListParams::default()).await?.metadata.resource_version;
        let (into, from) = (seen.clone(), from.unwrap_or_default());
        tokio::spawn(async move {
            if let Err(error) = follow(&api, from, &namespaces, &into).await {
                eprintln!("the demo's watch ended: {error:#}");
            }
        });
        Ok(Self { seen })
    }

    /// Everything seen so far, by uid.
    pub fn pods(&self) -> BTreeMap<String, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Seconds that each released pod of a team had waited.
    pub fn waits(&self, namespace: &str) -> Vec<i64> {
        self.pods()
            .values()
            .filter(|pod| pod.namespace.starts_with(namespace))
            .filter_map(|pod| pod.waited)
            .collect()
    }
}

async fn follow(
    api: &Api<Pod>,
    mut from: String,
    namespaces: &[&str],
    into: &Mutex<BTreeMap<String, Seen>>,
) -> Result<()> {
    loop {
        let mut events = api.watch(&WatchParams::default(), &from).await?.boxed();
        while let Some(event) = events.try_next().await? {
            let pod = match event {
                WatchEvent::Added(pod) | WatchEvent::Modified(pod) | WatchEvent::Deleted(pod) => {
                    pod
                }
                WatchEvent::Bookmark(_) => continue,
                WatchEvent::Error(error) => bail!("{error:?}"),
            };
            from = pod.resource_version().unwrap_or(from);
            let namespace = pod.namespace().unwrap_or_default();
            if namespaces.iter().any(|team| namespace.starts_with(team)) {
                note(&pod, namespace, into);
            }
        }
    }
}

fn note(pod: &Pod, namespace: String, into: &Mutex<BTreeMap<String, Seen>>) {
    let mut seen = into.lock().unwrap_or_else(PoisonError::into_inner);
    let entry = seen.entry(pod.uid().unwrap_or_default()).or_insert_with(|| Seen {
        name: pod.name_any(),
        namespace,
        gated_first: is_gated(pod),
        waited: None,
    });
    entry.waited = entry.waited.or_else(|| waited(pod));
}

fn waited(pod: &Pod) -> Option<i64> {
    let record: Value =
        serde_json::from_str(pod.annotations().get("tidegate.dev/released")?).ok()?;
    let decided: jiff::Timestamp = record["time"].as_str()?.parse().ok()?;
    let created = pod.creation_timestamp()?.0;
    Some(decided.as_second() - created.as_second())
}

//! What happens to pods, as anybody sees it, and when.

use std::{
    collections::BTreeSet,
    mem,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use futures::{StreamExt as _, TryStreamExt as _, stream::BoxStream};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, ResourceExt as _,
    api::{ListParams, WatchEvent, WatchParams},
};

/// Longest time between two things that are waited for.
const QUIET: Duration = Duration::from_mins(1);

type Events = BoxStream<'static, kube::Result<WatchEvent<Pod>>>;

/// A watch of the pods of one namespace.
pub struct Watch {
    api: Api<Pod>,
    events: Events,
    /// Of the last event.
    version: String,
}

impl Watch {
    /// From now on.
    pub async fn start(client: &Client, namespace: &str) -> Result<Self> {
        let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
        let list = api.list_metadata(&ListParams::default().limit(1)).await?;
        let version = list.metadata.resource_version.context("a list without a version")?;
        Ok(Self { events: events(&api, &version).await?, api, version })
    }

    /// The next pod that was made or changed and is so, and when it was seen.
    pub async fn next(&mut self, so: impl Fn(&Pod) -> bool) -> Result<(Pod, Instant)> {
        loop {
            match self.event().await? {
                (WatchEvent::Added(pod) | WatchEvent::Modified(pod), at) if so(&pod) => {
                    return Ok((pod, at));
                }
                _ => {}
            }
        }
    }

    /// When so many pods were seen to be so for the first time, in that order.
    pub async fn times(&mut self, pods: usize, so: impl Fn(&Pod) -> bool) -> Result<Vec<Instant>> {
        let (mut seen, mut times) = (BTreeSet::new(), Vec::with_capacity(pods));
        while times.len() < pods {
            let (pod, at) = self.next(&so).await?;
            if seen.insert(pod.name_any()) {
                times.push(at);
            }
        }
        Ok(times)
    }

    /// When a pod is seen to go. It is marked first and deleted then, and without a node it
    /// takes no room from the mark on: the next gate may be gone before the pod is.
    pub async fn gone(&mut self, name: &str) -> Result<Instant> {
        loop {
            match self.event().await? {
                (WatchEvent::Deleted(pod), at) if pod.name_any() == name => return Ok(at),
                (WatchEvent::Modified(pod), at)
                    if pod.name_any() == name && pod.metadata.deletion_timestamp.is_some() =>
                {
                    return Ok(at);
                }
                _ => {}
            }
        }
    }

    /// An apiserver ends the watch of who reads too slowly: it goes on where it was.
    async fn event(&mut self) -> Result<(WatchEvent<Pod>, Instant)> {
        let end = Instant::now() + QUIET;
        while Instant::now() < end {
            let event = tokio::time::timeout(QUIET, self.events.try_next()).await;
            match event.context("nothing happens")?? {
                Some(WatchEvent::Error(error)) => bail!("the watch failed: {error:?}"),
                Some(event) => {
                    let at = Instant::now();
                    self.version = version(&event).unwrap_or_else(|| mem::take(&mut self.version));
                    return Ok((event, at));
                }
                None => self.events = events(&self.api, &self.version).await?,
            }
        }
        bail!("the watch ends again and again")
    }
}

async fn events(api: &Api<Pod>, version: &str) -> Result<Events> {
    let params = WatchParams::default().disable_bookmarks();
    Ok(api.watch(&params, version).await?.boxed())
}

fn version(event: &WatchEvent<Pod>) -> Option<String> {
    match event {
        WatchEvent::Added(pod) | WatchEvent::Modified(pod) | WatchEvent::Deleted(pod) => {
            pod.resource_version()
        }
        WatchEvent::Bookmark(_) | WatchEvent::Error(_) => None,
    }
}

/// Whether a pod has this gate.
pub fn has_gate(pod: &Pod, name: &str) -> bool {
    let gates = pod.spec.as_ref().and_then(|spec| spec.scheduling_gates.as_ref());
    gates.into_iter().flatten().any(|gate| gate.name == name)
}

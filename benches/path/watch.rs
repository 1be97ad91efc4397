//! What happens to pods, as anybody sees it, and when.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use futures::{StreamExt as _, TryStreamExt as _, stream::BoxStream};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, ResourceExt as _,
    api::{ListParams, WatchEvent, WatchParams},
    core::PartialObjectMeta,
};
use tidegate::api::names::ANNOTATION_RELEASED;

/// Longest time between two things that are waited for.
const QUIET: Duration = Duration::from_secs(30);

/// A watch of the pods of one namespace. Only metadata travels: a pod's gate is open
/// when its annotation says so, since one PATCH does both.
pub struct Watch(BoxStream<'static, kube::Result<WatchEvent<PartialObjectMeta<Pod>>>>);

impl Watch {
    /// From now on.
    pub async fn start(client: &Client, namespace: &str) -> Result<Self> {
        let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
        let list = api.list_metadata(&ListParams::default().limit(1)).await?;
        let from = list.metadata.resource_version.context("a list without a version")?;
        let params = WatchParams::default().disable_bookmarks();
        Ok(Self(api.watch_metadata(&params, &from).await?.boxed()))
    }

    /// The next pod whose gate is open, and when it was seen.
    pub async fn opened(&mut self) -> Result<(String, Instant)> {
        self.next(|event| match event {
            WatchEvent::Modified(pod) if pod.annotations().contains_key(ANNOTATION_RELEASED) => {
                Some(pod.name_any())
            }
            _ => None,
        })
        .await
    }

    /// The next pod that is gone, and when it was seen.
    pub async fn gone(&mut self) -> Result<(String, Instant)> {
        self.next(|event| match event {
            WatchEvent::Deleted(pod) => Some(pod.name_any()),
            _ => None,
        })
        .await
    }

    async fn next(
        &mut self,
        wanted: impl Fn(&WatchEvent<PartialObjectMeta<Pod>>) -> Option<String>,
    ) -> Result<(String, Instant)> {
        loop {
            let event = tokio::time::timeout(QUIET, self.0.try_next()).await;
            let event = event.context("nothing happens")??.context("the watch ended")?;
            if let WatchEvent::Error(error) = event {
                bail!("the watch failed: {error:?}");
            }
            if let Some(name) = wanted(&event) {
                return Ok((name, Instant::now()));
            }
        }
    }
}

//! Pods made without a pause while something is done to Tidegate.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Result, bail};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, PostParams};

use super::lab::{Lab, bare_pod, is_gated};

/// What came of trying to make a pod.
#[derive(Debug)]
pub enum Attempt {
    /// With our gate.
    Gated,
    /// Refused, with the text.
    Refused(String),
}

/// Tries once; an ungated pod is an error.
pub async fn attempt(lab: &Lab, name: &str) -> Result<Attempt> {
    let pod: Pod = serde_json::from_value(bare_pod(name, "100m"))?;
    match lab.pod_api().create(&PostParams::default(), &pod).await {
        Ok(stored) if is_gated(&stored) => Ok(Attempt::Gated),
        Ok(_) => bail!("{name} was stored without our gate"),
        Err(kube::Error::Api(status)) => Ok(Attempt::Refused(status.message.clone())),
        Err(error) => Err(error.into()),
    }
}

/// Makes pods as fast as it can while something else is done, and then until one is gated
/// again; all pods of the namespace are deleted at the end. Fails when one was stored without our gate; returns the texts of the refusals.
pub async fn in_a_storm(
    lab: &Lab,
    prefix: &str,
    other: impl Future<Output = Result<()>>,
) -> Result<Vec<String>> {
    let done = AtomicBool::new(false);
    let storm = async {
        let mut refusals = Vec::new();
        for number in 0.. {
            let last = done.load(Ordering::Relaxed);
            match attempt(lab, &format!("{prefix}-{number}")).await? {
                Attempt::Gated if last => break,
                Attempt::Gated => {}
                Attempt::Refused(text) => refusals.push(text),
            }
        }
        Ok(refusals)
    };
    let other = async {
        let result = other.await;
        done.store(true, Ordering::Relaxed);
        result
    };
    let (refusals, other) = tokio::join!(storm, other);
    // Whoever lets all go later would fill the nodes with them.
    let at_once = DeleteParams::default().grace_period(0);
    lab.pod_api().delete_collection(&at_once, &ListParams::default()).await?;
    other?;
    refusals
}

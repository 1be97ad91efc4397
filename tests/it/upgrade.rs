//! Programs are replaced while pods are made: no create fails.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use kube::Api;
use serde_json::json;

use crate::support::{
    balancer::Balancer,
    lab::Lab,
    process::Process,
    storm::{Attempt, attempt, in_a_storm},
    tidegate::{RELEASE, Tidegate, free_port},
    tls, wait,
};

/// How long a webhook goes on that is told to stop.
const DRAIN: &str = "--drain=3s";
/// For so long a Service still leads to one that is not ready.
const LAG: Duration = Duration::from_secs(1);

/// One webhook pod.
struct Replica {
    port: u16,
    process: Process,
}

impl Replica {
    /// Starts one and waits until it is ready.
    async fn start(lab: &Lab, name: &str) -> Result<Self> {
        let port = free_port()?;
        let process = lab.tidegate.start_webhook_replica(name, port, &[DRAIN]).await?;
        let all: Api<MutatingWebhookConfiguration> = Api::all(lab.client.clone());
        let webhook = all.get(RELEASE).await?.webhooks.unwrap_or_default().remove(0);
        let bundle = webhook.client_config.ca_bundle.context("no bundle")?;
        let bundle = String::from_utf8(bundle.0)?;
        wait::until("the new webhook is ready", wait::SOON, async || {
            tls::ready(&bundle, port).await
        })
        .await?;
        Ok(Self { port, process })
    }

    async fn has_ended(mut self) -> Result<()> {
        wait::until("the old webhook has ended", wait::SOON, async || {
            Ok(self.process.check().is_err())
        })
        .await
    }
}

#[tokio::test]
async fn webhooks_are_replaced_one_by_one_and_no_create_fails() -> Result<()> {
    let tidegate = Tidegate::exclusive().await?;
    let lab = Lab::on(&tidegate, "upgrade", json!({"stop": "Hold"})).await?;
    tidegate.stop_webhook("KILL")?;
    let first = Replica::start(&lab, "webhook-1").await?;
    let second = Replica::start(&lab, "webhook-2").await?;
    let service = Balancer::start(tidegate.webhook_port(), &[first.port, second.port])?;
    wait::until("the Service is reached", wait::SOON, async || {
        Ok(matches!(attempt(&lab, "first").await?, Attempt::Gated))
    })
    .await?;
    let roll = async {
        let third = Replica::start(&lab, "webhook-3").await?;
        service.set(&[first.port, second.port, third.port]);
        first.process.signal("TERM")?;
        tokio::time::sleep(LAG).await;
        service.set(&[second.port, third.port]);
        let fourth = Replica::start(&lab, "webhook-4").await?;
        service.set(&[second.port, third.port, fourth.port]);
        second.process.signal("TERM")?;
        tokio::time::sleep(LAG).await;
        service.set(&[third.port, fourth.port]);
        first.has_ended().await?;
        second.has_ended().await?;
        anyhow::Ok((third, fourth))
    };
    let mut rolled = None;
    let roll = async {
        rolled = Some(roll.await?);
        Ok(())
    };
    let two = Box::pin(async {
        let refusals = Box::pin(in_a_storm(&lab, "b", roll)).await?;
        ensure!(refusals.is_empty(), "{refusals:?}");
        Ok(())
    });
    let refusals = in_a_storm(&lab, "a", two).await?;
    service.close();
    drop(rolled);
    ensure!(refusals.is_empty(), "{refusals:?}");
    // Whoever comes next finds the installation as it was.
    tidegate.start_webhook().await?;
    tidegate.ready().await
}

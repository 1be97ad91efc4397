//! Webhooks in several pods.

use anyhow::{Context as _, Result};
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use kube::Api;

use super::{
    process::Process,
    tidegate::{RELEASE, Tidegate, free_port},
    tls, wait,
};

/// How long one goes on that is told to stop.
const DRAIN: &str = "--drain=3s";

/// One webhook pod.
#[derive(Debug)]
pub struct Webhook {
    /// Where it listens.
    pub port: u16,
    /// Its process.
    pub process: Process,
}

impl Webhook {
    /// Starts one and waits until it is ready.
    pub async fn start(tidegate: &Tidegate, name: &str) -> Result<Self> {
        // As the kubelet keeps it.
        tidegate.mount_secret(&tidegate.mounted()).await?;
        let port = free_port()?;
        let process = tidegate.start_webhook_replica(name, port, &[DRAIN]).await?;
        let all: Api<MutatingWebhookConfiguration> = Api::all(tidegate.cluster().client().await?);
        let webhook = all.get(RELEASE).await?.webhooks.unwrap_or_default().remove(0);
        let bundle = webhook.client_config.ca_bundle.context("no bundle")?;
        let bundle = String::from_utf8(bundle.0)?;
        wait::until("the new webhook is ready", wait::SOON, async || {
            tls::ready(&bundle, port).await
        })
        .await?;
        Ok(Self { port, process })
    }

    /// Waits until it has ended by itself.
    pub async fn has_ended(mut self) -> Result<()> {
        wait::until("the old webhook has ended", wait::SOON, async || {
            Ok(self.process.check().is_err())
        })
        .await
    }
}

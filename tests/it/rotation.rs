//! Certificates change while pods are made: no create fails.

use std::{pin::pin, time::Duration};

use anyhow::{Context as _, Result, ensure};
use futures::future::{Either, LocalBoxFuture, select};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::{
        admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration},
        core::v1::Secret,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    kube_aggregator::pkg::apis::apiregistration::v1::APIService,
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use rustls::pki_types::{CertificateDer, pem::PemObject as _};
use serde_json::{Value, json};
use tidegate::{
    api::names::ANNOTATION_ROTATE,
    certs::{Authority, Home, Names, Pace, store::Keeper},
    manifests::names::{CONFIGURATION, VISIBILITY_SERVICE, WEBHOOK_SERVICE},
};

use crate::support::{
    lab::Lab,
    storm::in_a_storm,
    tidegate::{Install, NAMESPACE, RELEASE, Tidegate, mount},
    tls::shown,
    wait,
};

const SECRET: &str = "tidegate-tls";
const API_SERVICE: &str = "v1alpha1.visibility.tidegate.dev";
/// Stages as short as a busy machine allows; longer than the lag of our kubelet.
const STAGES: &[&str] = &["--ca-settle=2s", "--ca-overlap=6s"];
/// How far a mounted Secret is behind.
const LAG: Duration = Duration::from_secs(1);

/// An installation whose certificates are played with.
struct Stage {
    lab: Lab,
    secrets: Api<Secret>,
}

impl Stage {
    async fn new(tidegate: &'static Tidegate, name: &str) -> Result<Self> {
        let lab = Lab::on(tidegate, name, json!({"stop": "Hold"})).await?;
        let secrets = Api::namespaced(lab.client.clone(), NAMESPACE);
        Ok(Self { lab, secrets })
    }

    fn tidegate(&self) -> &'static Tidegate {
        self.lab.tidegate
    }

    /// One entry of the Secret.
    async fn entry(&self, key: &str) -> Result<Option<String>> {
        let data = self.secrets.get_opt(SECRET).await?.and_then(|secret| secret.data);
        let value = data.unwrap_or_default().remove(key);
        Ok(value.map(|value| String::from_utf8(value.0)).transpose()?)
    }

    /// Waits until the Secret has or lacks an entry.
    async fn has(&self, key: &str, wanted: bool) -> Result<()> {
        wait::until(&format!("{key} is there: {wanted}"), wait::SOON, async || {
            Ok(self.entry("tls.crt").await?.is_some() && self.entry(key).await?.is_some() == wanted)
        })
        .await
    }

    /// Waits until all three objects carry so many authorities.
    async fn all_trust(&self, authorities: usize) -> Result<()> {
        wait::until(&format!("{authorities} authorities are trusted"), wait::SOON, async || {
            let bundles = bundles(&self.lab.client).await?;
            let counts: Vec<_> = bundles.iter().map(|b| b.matches("BEGIN CERT").count()).collect();
            ensure!(counts == [authorities; 3], "{counts:?}");
            Ok(true)
        })
        .await
    }

    async fn kill_controller(&self) -> Result<()> {
        self.tidegate().stop_controller("KILL")?;
        self.tidegate().start_controller_with(STAGES).await
    }

    /// Makes pods, mounts the Secret late and opens new connections to the webhook as an
    /// apiserver would, while something else is done. Fails if any of it fails.
    fn while_in_use<'a>(
        &'a self,
        other: impl Future<Output = Result<()>> + 'a,
    ) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let uses = async { tokio::try_join!(self.kubelet(), self.connects()).map(drop) };
            let other = async {
                match select(pin!(uses), pin!(other)).await {
                    Either::Left((ended, _)) => ended.context("it ended too soon"),
                    Either::Right((done, _)) => done,
                }
            };
            let refusals = in_a_storm(&self.lab, "pod", other).await?;
            let first = refusals.first();
            ensure!(first.is_none(), "{} creates failed: {first:?}", refusals.len());
            Ok(())
        })
    }

    /// Mounts each new leaf a while after it is there.
    async fn kubelet(&self) -> Result<()> {
        let mut mounted = self.entry("tls.crt").await?;
        loop {
            let leaf = self.entry("tls.crt").await?;
            if leaf.is_some() && leaf != mounted {
                tokio::time::sleep(LAG).await;
                mount(&self.tidegate().mounted(), self.data().await?)?;
                mounted = leaf;
            }
            tokio::time::sleep(LAG / 5).await;
        }
    }

    async fn data(&self) -> Result<impl Iterator<Item = (String, Vec<u8>)> + use<>> {
        let data = self.secrets.get(SECRET).await?.data.unwrap_or_default();
        Ok(data.into_iter().map(|(key, value)| (key, value.0)))
    }

    /// At each moment the leaf that the webhook shows is trusted by what the apiserver has.
    async fn connects(&self) -> Result<()> {
        loop {
            let [bundle, ..] = bundles(&self.lab.client).await?;
            if let Err(error) = shown(&bundle, self.tidegate().webhook_port()).await {
                // It may have changed between the two looks.
                ensure!(bundles(&self.lab.client).await?[0] != bundle, "{error:#}");
            }
            tokio::time::sleep(LAG / 10).await;
        }
    }

    /// Waits until the webhook shows the leaf of the Secret.
    async fn leaf_is_shown(&self) -> Result<()> {
        wait::until("the newest leaf is shown", wait::SOON, async || {
            let leaf = self.entry("tls.crt").await?.context("no leaf")?;
            let [bundle, ..] = bundles(&self.lab.client).await?;
            let leaf = CertificateDer::from_pem_slice(leaf.as_bytes())?;
            Ok(shown(&bundle, self.tidegate().webhook_port()).await? == leaf)
        })
        .await
    }
}

/// What the apiserver trusts when it calls us.
async fn bundles(client: &Client) -> Result<[String; 3]> {
    let mutating: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    let validating: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    let services: Api<APIService> = Api::all(client.clone());
    let mutating = mutating.get(RELEASE).await?.webhooks.unwrap_or_default().remove(0);
    let validating = validating.get(RELEASE).await?.webhooks.unwrap_or_default().remove(0);
    let service = services.get(API_SERVICE).await?.spec.context("no spec")?;
    let texts =
        [mutating.client_config.ca_bundle, validating.client_config.ca_bundle, service.ca_bundle];
    Ok(texts.map(|text| String::from_utf8(text.unwrap_or_default().0).unwrap_or_default()))
}

#[tokio::test]
async fn one_authority_follows_another_without_a_create_that_fails() -> Result<()> {
    let tidegate = Tidegate::exclusive().await?;
    let stage = Stage::new(&tidegate, "rotation").await?;
    let rotate = json!({"metadata": {"annotations": {ANNOTATION_ROTATE: "now"}}});
    stage
        .while_in_use(async {
            // Whatever another test began is over first.
            stage.kill_controller().await?;
            stage.has("next-ca.crt", false).await?;
            stage.has("old-ca.crt", false).await?;
            let before = stage.entry("tls.crt").await?;
            stage.secrets.patch(SECRET, &PatchParams::default(), &Patch::Merge(rotate)).await?;
            stage.kill_controller().await?;
            stage.has("next-ca.crt", true).await?;
            // Whoever starts now goes on from what the Secret holds.
            stage.kill_controller().await?;
            stage.all_trust(2).await?;
            ensure!(stage.entry("tls.crt").await? == before, "the leaf changed before the trust");
            stage.has("old-ca.crt", true).await?;
            ensure!(stage.entry("tls.crt").await? != before, "the leaf is the old one");
            stage.has("old-ca.crt", false).await?;
            stage.all_trust(1).await?;
            stage.leaf_is_shown().await
        })
        .await?;
    ensure!(stage.entry("next-ca.crt").await?.is_none());
    let secret = stage.secrets.get(SECRET).await?;
    ensure!(!secret.annotations().contains_key(ANNOTATION_ROTATE), "it would go on for ever");
    tidegate.restart_controller().await
}

#[tokio::test]
async fn a_deleted_secret_is_back_and_no_create_fails() -> Result<()> {
    let tidegate = Tidegate::exclusive().await?;
    let stage = Stage::new(&tidegate, "no-secret").await?;
    let delete = async || stage.secrets.delete(SECRET, &DeleteParams::default()).await.map(drop);
    stage
        .while_in_use(async {
            // The controller remembers what the webhook shows.
            let before = (stage.entry("tls.crt").await?, stage.entry("ca.crt").await?);
            delete().await?;
            stage.has("tls.key", true).await?;
            let after = (stage.entry("tls.crt").await?, stage.entry("ca.crt").await?);
            ensure!(before == after, "callers had no time to learn of another authority");
            ensure!(bundles(&stage.lab.client).await?[0].matches("BEGIN CERT").count() > 0);
            // Nobody remembers it, and who makes another is an hour ahead.
            tidegate.stop_controller("KILL")?;
            delete().await?;
            an_hour_ahead(&stage.lab.client).await?;
            tidegate.start_controller().await?;
            let made = stage.entry("ca.crt").await?.context("no authority")?;
            wait::until("the new authority is trusted", wait::SOON, async || {
                Ok(bundles(&stage.lab.client).await?.iter().all(|bundle| bundle.contains(&made)))
            })
            .await?;
            stage.leaf_is_shown().await
        })
        .await
}

/// Makes the Secret as a controller would whose clock is an hour ahead.
async fn an_hour_ahead(client: &Client) -> Result<()> {
    let home = Home {
        namespace: NAMESPACE.to_owned(),
        secret: SECRET.to_owned(),
        names: names(),
        configuration: CONFIGURATION.to_owned(),
        api_service: API_SERVICE.to_owned(),
    };
    let mut keeper = Keeper::new(client.clone(), home, Pace::default());
    keeper.ensure(Timestamp::now() + SignedDuration::from_hours(1)).await?;
    Ok(())
}

fn names() -> Names {
    Names::of_services(NAMESPACE, &[WEBHOOK_SERVICE, VISIBILITY_SERVICE], &[])
}

#[tokio::test]
async fn cert_manager_renews_the_leaf_and_no_create_fails() -> Result<()> {
    let tidegate = Tidegate::exclusive().await?;
    let stage = Stage::new(&tidegate, "cert-manager").await?;
    let all: Api<CustomResourceDefinition> = Api::all(stage.lab.client.clone());
    all.create(&PostParams::default(), &serde_json::from_value(certificates_crd())?).await?;
    wait::until("its kinds are served", wait::SOON, async || {
        let crd = all.get("certificates.cert-manager.io").await?;
        let conditions = crd.status.and_then(|status| status.conditions).unwrap_or_default();
        Ok(conditions.iter().any(|c| c.type_ == "Established" && c.status == "True"))
    })
    .await?;
    let values = ["certManager.enabled=true", "certManager.issuerRef.name=ours"];
    tidegate.helm(&["upgrade"], &Install { values: values.map(str::to_owned).to_vec() }).await?;
    let result = by_cert_manager(&stage).await;
    // Whoever comes next finds the installation as it was.
    tidegate.helm(&["upgrade"], &Install::default()).await?;
    tidegate.restart_controller().await?;
    tidegate.stop_webhook("KILL")?;
    tidegate.start_webhook().await?;
    stage.leaf_is_shown().await?;
    tidegate.ready().await?;
    result
}

async fn by_cert_manager(stage: &Stage) -> Result<()> {
    let tidegate = stage.tidegate();
    let first = Authority::issue(&names(), Timestamp::now())?;
    let renewed = first.with_new_leaf(&names(), Timestamp::now())?;
    let files = |authority: &Authority| {
        let Authority { tls_crt, tls_key, .. } = authority.clone();
        [("tls.crt".to_owned(), tls_crt.into_bytes()), ("tls.key".to_owned(), tls_key.into_bytes())]
    };
    tidegate.stop_controller("KILL")?;
    tidegate.stop_webhook("KILL")?;
    let mounted = tidegate.mounted();
    mount(&mounted, files(&first).into_iter())?;
    inject(&stage.lab.client, &first.ca_crt).await?;
    let directory = format!("--cert-dir={}", mounted.display());
    tidegate.start_controller_with(&[&directory]).await?;
    tidegate.start_mounted_webhook().await?;
    tidegate.ready().await?;
    let leaf = CertificateDer::from_pem_slice(renewed.tls_crt.as_bytes())?;
    let renewal = async {
        mount(&mounted, files(&renewed).into_iter())?;
        wait::until("the new leaf is shown", wait::SOON, async || {
            Ok(shown(&first.ca_crt, tidegate.webhook_port()).await? == leaf)
        })
        .await
    };
    let refusals = in_a_storm(&stage.lab, "pod", renewal).await?;
    ensure!(refusals.is_empty(), "{refusals:?}");
    let carried = bundles(&stage.lab.client).await?;
    ensure!(carried.iter().all(|bundle| *bundle == first.ca_crt), "somebody else wrote a bundle");
    Ok(())
}

/// What cert-manager's injector does to the objects that carry its annotation.
async fn inject(client: &Client, ca_crt: &str) -> Result<()> {
    let bundle = k8s_openapi::ByteString(ca_crt.as_bytes().to_vec());
    let of = |name: &str| {
        let config = json!({"name": name, "clientConfig": {"caBundle": bundle}});
        Patch::Strategic(json!({"webhooks": [config]}))
    };
    let params = PatchParams::default();
    let mutating: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    mutating.patch(RELEASE, &params, &of("gate-pods.tidegate.dev")).await?;
    let validating: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    validating.patch(RELEASE, &params, &of("check-queues.tidegate.dev")).await?;
    let services: Api<APIService> = Api::all(client.clone());
    let patch = Patch::Strategic(json!({"spec": {"caBundle": bundle}}));
    let service = services.patch(API_SERVICE, &params, &patch).await?;
    let annotation = service.annotations().get("cert-manager.io/inject-ca-from");
    ensure!(annotation.is_some_and(|from| *from == format!("{NAMESPACE}/{SECRET}")));
    Ok(())
}

/// As much of cert-manager as the chart needs to be installed.
fn certificates_crd() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "certificates.cert-manager.io"},
        "spec": {"group": "cert-manager.io", "scope": "Namespaced",
            "names": {"plural": "certificates", "singular": "certificate", "kind": "Certificate"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {
                "openAPIV3Schema": {"type": "object",
                    "x-kubernetes-preserve-unknown-fields": true}}}]},
    })
}

//! Who adds the gate, and what happens while nobody can.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use kube::{Api, ResourceExt as _, api::PostParams};
use serde_json::{Value, json};

use crate::{
    backlog, kinds,
    support::{
        lab::{Lab, job},
        storm::{Attempt, attempt, in_a_storm},
        tidegate::{Install, NAMESPACE, RELEASE, Tidegate},
        wait,
    },
};

/// The webhook by the name that the apiserver shows.
const GATE: &str = "gate-pods.tidegate.dev";

#[tokio::test]
async fn a_configuration_put_back_as_rendered_has_its_bundle_at_once_and_lets_no_pod_through()
-> Result<()> {
    let tidegate = Tidegate::exclusive().await?;
    let lab = Lab::on(&tidegate, "gate-gitops", json!({"stop": "Hold"})).await?;
    let chart = tidegate.rendered().await?;
    let found = chart.into_iter().find(|object| object["kind"] == "MutatingWebhookConfiguration");
    let rendered: MutatingWebhookConfiguration =
        serde_json::from_value(found.context("the chart has no such webhook")?)?;
    let all: Api<MutatingWebhookConfiguration> = Api::all(lab.client.clone());
    let put_back = async {
        for _ in 0..3 {
            let mut object = rendered.clone();
            object.metadata.resource_version = all.get(RELEASE).await?.resource_version();
            all.replace(RELEASE, &PostParams::default(), &object).await?;
            let gap = Instant::now();
            wait::until("the bundle is back", wait::SOON, async || {
                let webhooks = all.get(RELEASE).await?.webhooks.unwrap_or_default();
                Ok(webhooks.iter().all(|webhook| webhook.client_config.ca_bundle.is_some()))
            })
            .await?;
            ensure!(gap.elapsed() < Duration::from_secs(5), "it took {:?}", gap.elapsed());
        }
        Ok(())
    };
    let refusals = in_a_storm(&lab, "gap", put_back).await?;
    let unclear = refusals.iter().find(|text| !text.contains(GATE));
    ensure!(unclear.is_none(), "it does not say who is missing: {unclear:?}");
    Ok(())
}

#[tokio::test]
async fn applying_the_chart_as_rendered_would_change_nothing() -> Result<()> {
    let tidegate = Tidegate::exclusive().await?;
    let lab = Lab {
        client: tidegate.cluster().client().await?,
        namespace: NAMESPACE.to_owned(),
        tidegate: *tidegate,
    };
    let chart = tidegate.rendered().await?;
    ensure!(chart.len() > 20, "the chart has only {} objects", chart.len());
    for object in chart {
        let (stored, applied) = lab.apply_dry(object).await?;
        let (stored, applied) = (without_history(&stored)?, without_history(&applied)?);
        ensure!(stored == applied, "stored: {stored:#}\nwould be: {applied:#}");
    }
    Ok(())
}

/// Without what every write changes.
fn without_history(object: &impl serde::Serialize) -> Result<Value> {
    let mut object = serde_json::to_value(object)?;
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.retain(|key, _| !matches!(key.as_str(), "managedFields" | "resourceVersion"));
    }
    Ok(object)
}

/// How often the apiserver has called the webhook that gates pods, or tried to.
async fn calls(lab: &Lab) -> Result<f64> {
    let request = http::Request::get("/metrics").body(Vec::new())?;
    let text = lab.client.request_text(request).await?;
    let ours = text.lines().filter(|line| {
        line.starts_with("apiserver_admission_webhook_request_total{") && line.contains(GATE)
    });
    ours.map(|line| Ok(line.rsplit(' ').next().context("no value")?.parse::<f64>()?)).sum()
}

#[tokio::test]
async fn with_all_of_tidegate_dead_only_opted_in_namespaces_wait_and_are_told_for_whom()
-> Result<()> {
    let tidegate = Tidegate::exclusive().await?;
    let lab = Lab::on(&tidegate, "gate-cold", json!({"stop": "Hold"})).await?;
    lab.namespace("net-system", BTreeMap::new()).await?;
    lab.namespace("monitoring", BTreeMap::new()).await?;
    let elsewhere = |namespace: &str| Lab {
        client: lab.client.clone(),
        namespace: namespace.to_owned(),
        tidegate: lab.tidegate,
    };
    tidegate.stop_webhook("KILL")?;
    tidegate.stop_controller("KILL")?;
    let before = calls(&lab).await?;
    let (net, monitoring) = (elsewhere("net-system"), elsewhere("monitoring"));
    net.create(json!({"apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": {"name": "net-agent"},
        "spec": {"selector": {"matchLabels": {"app": "net-agent"}}, "template": {
            "metadata": {"labels": {"app": "net-agent"}},
            "spec": {"hostNetwork": true, "tolerations": [{"operator": "Exists"}],
                "containers": [{"name": "agent", "image": "pause"}]}}}}))
        .await?;
    monitoring.create(job("chart-hook", 1, "10m", "100ms")).await?;
    monitoring.completes("chart-hook").await?;
    wait::until("the daemons are ready", wait::SOON, async || {
        let status = net.read("apps/v1", "DaemonSet", "net-agent").await?["status"].clone();
        Ok(status["desiredNumberScheduled"] == 4 && status["numberReady"] == 4)
    })
    .await?;
    // Or it could never come back.
    elsewhere(NAMESPACE).pod("own", "10m").await?;
    ensure!((calls(&lab).await? - before).abs() < 0.5, "it was called for others");
    match attempt(&lab, "opted-in").await? {
        Attempt::Refused(text) => ensure!(text.contains(GATE), "{text}"),
        Attempt::Gated => bail!("somebody else gated it"),
    }
    ensure!(calls(&lab).await? > before, "the counter counts nothing");
    tidegate.start_controller().await?;
    tidegate.start_webhook().await?;
    wait::until("pods are gated again", wait::SOON, async || {
        Ok(matches!(attempt(&lab, "opted-in").await?, Attempt::Gated))
    })
    .await
}

#[tokio::test]
async fn with_the_gate_added_by_policy_pods_need_no_webhook() -> Result<()> {
    let tidegate = Tidegate::exclusive().await?;
    let lab = Lab::on(&tidegate, "gate-switch", json!({"stop": "Hold"})).await?;
    let all: Api<MutatingWebhookConfiguration> = Api::all(lab.client.clone());
    let policy = Install { values: vec!["admission.gateBy=policy".to_owned()] };
    in_a_storm(&lab, "to-policy", async { tidegate.helm(&["upgrade"], &policy).await.map(drop) })
        .await
        .context("on the way to the policy")?;
    ensure!(all.get_opt(RELEASE).await?.is_none(), "the webhook is still configured");
    let result = match backlog::refused_beside_policy(*tidegate).await {
        Ok(()) => all_kinds(&tidegate, &lab).await,
        refused => refused.context("maxPending"),
    };
    // Whoever comes next finds the installation as it was.
    in_a_storm(&lab, "to-webhook", async {
        tidegate.helm(&["upgrade"], &Install::default()).await?;
        tidegate.ready().await
    })
    .await
    .context("on the way back to the webhook")?;
    result
}

async fn all_kinds(tidegate: &'static Tidegate, lab: &Lab) -> Result<()> {
    let labs = kinds::labs(tidegate, "gate-policy").await?;
    tidegate.stop_webhook("KILL")?;
    let held = kinds::hold(labs).await?;
    ensure!(matches!(attempt(lab, "without-webhook").await?, Attempt::Gated));
    // Changes of queues are still checked by it.
    tidegate.start_webhook().await?;
    wait::until("queues can be changed", wait::SOON, async || {
        lab.set_queue(&lab.namespace, json!({"weight": 2})).await?;
        Ok(true)
    })
    .await?;
    kinds::end(held).await
}

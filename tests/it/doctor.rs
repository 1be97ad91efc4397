//! `tidegate doctor` on a real installation: nothing to complain of, and each broken thing found.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::{
    Api, Client,
    api::{
        ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams,
    },
};
use serde_json::{Value, json};

use crate::support::{
    lab::Lab,
    tidegate::{NAMESPACE, RELEASE, Tidegate},
    wait,
};

const ADMISSION: &str = "admissionregistration.k8s.io";

/// Exit code and findings.
async fn examine(tidegate: &Tidegate) -> Result<(i32, Vec<Value>)> {
    let output = tidegate.cli(&["doctor", "-o", "json", "-n", NAMESPACE]).await?;
    let report: Value = serde_json::from_str(&output.stdout)
        .with_context(|| format!("{}{}", output.stdout, output.stderr))?;
    ensure!(report["healthy"] == (output.code == 0), "{}: {report:#}", output.code);
    Ok((output.code, report["findings"].as_array().cloned().context("no findings")?))
}

/// Everything is as it should be, but what tests before this one left in namespaces.
async fn healthy(tidegate: &Tidegate) -> Result<()> {
    wait::until("doctor finds nothing to complain of", wait::SOON, async || {
        let (code, findings) = examine(tidegate).await?;
        let bad: Vec<_> = findings
            .iter()
            .filter(|f| f["verdict"] != "ok" && f["check"] != "namespaces")
            .collect();
        ensure!(code == 0 && bad.is_empty(), "{code}: {bad:#?}");
        Ok(true)
    })
    .await
}

/// Doctor finds all of these, by check, verdict and a part of the message.
async fn finds(tidegate: &Tidegate, wanted: &[(&str, &str, &str)]) -> Result<()> {
    wait::until(&format!("doctor finds {wanted:?}"), wait::SOON, async || {
        let (_, findings) = examine(tidegate).await?;
        let found = |(check, verdict, said): &(&str, &str, &str)| {
            findings.iter().any(|finding| {
                finding["check"] == *check
                    && finding["verdict"] == *verdict
                    && finding["message"].as_str().is_some_and(|message| message.contains(said))
            })
        };
        let missing: Vec<_> = wanted.iter().filter(|one| !found(one)).collect();
        ensure!(missing.is_empty(), "not found: {missing:?} in {findings:#?}");
        Ok(true)
    })
    .await
}

fn objects(client: &Client, kind: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk(ADMISSION, "v1", kind);
    Api::all_with(client.clone(), &ApiResource::from_gvk(&kind))
}

/// Takes an object away, looks, and puts it back.
async fn without(
    tidegate: &Tidegate,
    client: &Client,
    (kind, name): (&str, &str),
    found: (&str, &str, &str),
) -> Result<()> {
    let all = objects(client, kind);
    let mut object = all.get(name).await?;
    all.delete(name, &DeleteParams::default()).await?;
    let looked = finds(tidegate, &[found]).await;
    object.metadata.resource_version = None;
    object.metadata.uid = None;
    all.create(&PostParams::default(), &object).await?;
    looked
}

/// Changes an object, looks, and changes it back.
async fn changed(
    tidegate: &Tidegate,
    client: &Client,
    (kind, name): (&str, &str),
    (to, back): (Value, Value),
    found: (&str, &str, &str),
) -> Result<()> {
    let (all, params) = (objects(client, kind), PatchParams::default());
    all.patch(name, &params, &Patch::Merge(to)).await?;
    let looked = finds(tidegate, &[found]).await;
    all.patch(name, &params, &Patch::Merge(back)).await?;
    looked
}

/// Of the controller's rights one that nothing needs at the moment.
async fn with_a_right_less(tidegate: &Tidegate, client: &Client) -> Result<()> {
    let all: Api<ClusterRole> = Api::all(client.clone());
    let role = all.get("tidegate-controller").await?;
    let rules = role.rules.clone().unwrap_or_default();
    let reviews = |resources: &[String]| resources.iter().any(|r| r == "subjectaccessreviews");
    let fewer: Vec<_> = rules
        .iter()
        .filter(|rule| !reviews(rule.resources.as_deref().unwrap_or_default()))
        .collect();
    ensure!(fewer.len() + 1 == rules.len(), "no such rule");
    let set = async |rules: Value| {
        let patch = Patch::Merge(json!({"rules": rules}));
        all.patch("tidegate-controller", &PatchParams::default(), &patch).await
    };
    set(json!(fewer)).await?;
    let missing = "tidegate-controller may not create subjectaccessreviews.authorization.k8s.io";
    let looked = finds(tidegate, &[("rights", "fail", missing)]).await;
    set(json!(rules)).await?;
    looked
}

/// A dead controller fills no bundle, and what waits goes on waiting.
async fn without_controller_and_bundle(tidegate: &Tidegate, client: &Client) -> Result<()> {
    tidegate.stop_controller("TERM")?;
    let all = objects(client, "ValidatingWebhookConfiguration");
    let mut configuration = serde_json::to_value(all.get(RELEASE).await?)?;
    for webhook in configuration["webhooks"].as_array_mut().context("no webhooks")? {
        webhook["clientConfig"]["caBundle"] = Value::Null;
    }
    let emptied = serde_json::from_value(configuration)?;
    all.replace(RELEASE, &PostParams::default(), &emptied).await?;
    let looked = finds(
        tidegate,
        &[
            (
                "bundles",
                "fail",
                "no authority is trusted by: ValidatingWebhookConfiguration tidegate",
            ),
            ("queue webhook", "fail", "failed calling webhook"),
            ("visibility API", "fail", "is not running"),
            ("waiting pods", "fail", "no controller answers"),
        ],
    )
    .await;
    tidegate.start_controller().await?;
    tidegate.ready().await?;
    looked
}

#[tokio::test]
async fn doctor_finds_each_broken_thing_and_nothing_in_what_is_whole() -> Result<()> {
    let tidegate = Tidegate::exclusive().await?;
    let lab = Lab::on(&tidegate, "doctor", json!({"stop": "Hold"})).await?;
    let client = lab.client.clone();
    lab.pod("waits", "100m").await?;
    healthy(&tidegate).await?;

    let resize = ("ValidatingAdmissionPolicy", "guard-resize.tidegate.dev");
    let missing =
        ("guard", "fail", "ValidatingAdmissionPolicy guard-resize.tidegate.dev is missing");
    without(&tidegate, &client, resize, missing).await?;
    let gate = ("MutatingWebhookConfiguration", RELEASE);
    without(&tidegate, &client, gate, ("gate", "fail", "nothing adds it")).await?;
    let binding = ("ValidatingAdmissionPolicyBinding", "guard-pods.tidegate.dev");
    let actions = |action: &str| json!({"spec": {"validationActions": [action]}});
    let weaker = ("guard", "fail", "spec.validationActions");
    changed(&tidegate, &client, binding, (actions("Audit"), actions("Deny")), weaker).await?;
    with_a_right_less(&tidegate, &client).await?;
    tidegate.ready().await?;
    healthy(&tidegate).await?;

    without_controller_and_bundle(&tidegate, &client).await?;
    tidegate.stop_webhook("TERM")?;
    let dead = [
        ("gating", "fail", "failed calling webhook"),
        ("queue webhook", "fail", "failed calling webhook"),
    ];
    let looked = finds(&tidegate, &dead).await;
    tidegate.start_webhook().await?;
    tidegate.ready().await?;
    looked?;

    let labels = BTreeMap::from([("tidegate.dev/managed".to_owned(), "yes".to_owned())]);
    lab.namespace("doctor-yes", labels).await?;
    let told = "doctor-yes has tidegate.dev/managed=\"yes\"";
    finds(&tidegate, &[("namespaces", "warn", told)]).await?;
    healthy(&tidegate).await
}

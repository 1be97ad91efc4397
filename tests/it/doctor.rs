//! `tidegate doctor` on a real installation: nothing to complain of, and each broken thing found.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::{
    api::{coordination::v1::Lease, core::v1::ConfigMap},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Api, Client, ResourceExt as _,
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

fn objects(client: &Client, group: &str, kind: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk(group, "v1", kind);
    Api::all_with(client.clone(), &ApiResource::from_gvk(&kind))
}

/// Puts an object back as Helm had applied it: nobody else owns a field, so that tests which
/// upgrade the chart later meet no conflict.
async fn put_back(all: &Api<DynamicObject>, mut object: DynamicObject) -> Result<()> {
    let name = object.name_any();
    object.metadata = ObjectMeta {
        name: object.metadata.name,
        labels: object.metadata.labels,
        annotations: object.metadata.annotations,
        ..ObjectMeta::default()
    };
    // The bundle is the controller's to write.
    let webhooks = object.data.get_mut("webhooks").and_then(Value::as_array_mut);
    for webhook in webhooks.into_iter().flatten() {
        webhook["clientConfig"].as_object_mut().context("no client")?.remove("caBundle");
    }
    let whole = Patch::Merge(object.data.clone());
    all.patch(&name, &PatchParams::apply("helm").force(), &Patch::Apply(object)).await?;
    // What somebody else had put into a set is still there.
    all.patch(&name, &PatchParams::default(), &whole).await?;
    Ok(())
}

/// Takes an object away, looks, and puts it back.
async fn without(
    tidegate: &Tidegate,
    client: &Client,
    (kind, name): (&str, &str),
    found: (&str, &str, &str),
) -> Result<()> {
    let all = objects(client, ADMISSION, kind);
    let object = all.get(name).await?;
    all.delete(name, &DeleteParams::default()).await?;
    let looked = finds(tidegate, &[found]).await;
    put_back(&all, object).await?;
    looked
}

/// Changes an object, looks, and changes it back.
async fn changed(
    tidegate: &Tidegate,
    all: &Api<DynamicObject>,
    name: &str,
    to: Value,
    found: (&str, &str, &str),
) -> Result<()> {
    let object = all.get(name).await?;
    all.patch(name, &PatchParams::default(), &Patch::Merge(to)).await?;
    let looked = finds(tidegate, &[found]).await;
    put_back(all, object).await?;
    looked
}

/// Of the controller's rights one that nothing needs at the moment.
async fn with_a_right_less(tidegate: &Tidegate, client: &Client) -> Result<()> {
    let all = objects(client, "rbac.authorization.k8s.io", "ClusterRole");
    let role = all.get("tidegate-controller").await?;
    let rules = role.data["rules"].as_array().context("no rules")?;
    let reviews = |rule: &&Value| rule["resources"] != json!(["subjectaccessreviews"]);
    let fewer: Vec<_> = rules.iter().filter(reviews).collect();
    ensure!(fewer.len() + 1 == rules.len(), "no such rule");
    let missing = "tidegate-controller may not create subjectaccessreviews.authorization.k8s.io";
    let found = ("rights", "fail", missing);
    changed(tidegate, &all, "tidegate-controller", json!({"rules": fewer}), found).await
}

/// A dead controller fills no bundle, and what waits goes on waiting.
async fn without_controller_and_bundle(tidegate: &Tidegate, client: &Client) -> Result<()> {
    tidegate.stop_controller("TERM")?;
    let all = objects(client, ADMISSION, "ValidatingWebhookConfiguration");
    let mut configuration = serde_json::to_value(all.get(RELEASE).await?)?;
    for webhook in configuration["webhooks"].as_array_mut().context("no webhooks")? {
        webhook["clientConfig"]["caBundle"] = Value::Null;
    }
    let emptied = serde_json::from_value(configuration)?;
    all.replace(RELEASE, &PostParams::default(), &emptied).await?;
    let leases: Api<Lease> = Api::namespaced(client.clone(), NAMESPACE);
    leases.delete("tidegate-controller", &DeleteParams::default()).await?;
    let epochs: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    epochs.delete("tidegate-epoch", &DeleteParams::default()).await?;
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
            ("lease", "warn", "is not there"),
            ("epoch", "warn", "is not fenced off"),
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
    let bindings = objects(&client, ADMISSION, "ValidatingAdmissionPolicyBinding");
    let audited = json!({"spec": {"validationActions": ["Audit"]}});
    let weaker = ("guard", "fail", "spec.validationActions");
    changed(&tidegate, &bindings, "guard-pods.tidegate.dev", audited, weaker).await?;
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

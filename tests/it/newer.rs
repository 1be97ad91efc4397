//! Objects that a later version wrote: the programs of this one go on.

use anyhow::{Result, ensure};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use tidegate::api::v1alpha1::Queue;

use crate::support::{lab::Lab, tidegate::Tidegate, wait};

const KIND: &str = "queues.tidegate.dev";
const SPEC: &str = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";

/// Changes the kind; done when it is served.
async fn change_kind(lab: &Lab, steps: Value, probe: &Value, taken: bool) -> Result<()> {
    let kinds: Api<CustomResourceDefinition> = Api::all(lab.client.clone());
    let patch: json_patch::Patch = serde_json::from_value(steps)?;
    kinds.patch(KIND, &PatchParams::default(), &Patch::<()>::Json(patch)).await?;
    wait::until("the kind is served as changed", wait::SOON, async || {
        let made = lab.create_strict(queue("newer-probe", probe)).await;
        if made.is_ok() {
            delete(lab, "newer-probe").await?;
        }
        ensure!(made.is_ok() == taken, "{made:?}");
        Ok(true)
    })
    .await
}

fn queue(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "tidegate.dev/v1alpha1", "kind": "Queue",
        "metadata": {"name": name}, "spec": spec})
}

async fn delete(lab: &Lab, name: &str) -> Result<()> {
    Api::<Queue>::all(lab.client.clone()).delete(name, &DeleteParams::default()).await?;
    Ok(())
}

/// A queue below another one is taken once the webhook knows that one.
async fn is_known(lab: &Lab, parent: &str, below: &str) -> Result<()> {
    wait::until(&format!("the webhook knows {parent}"), wait::SOON, async || {
        lab.create(queue(below, &json!({"parent": parent}))).await?;
        Ok(true)
    })
    .await
}

#[tokio::test]
async fn queues_with_fields_and_words_of_a_later_version_hide_no_others() -> Result<()> {
    let tidegate = Tidegate::exclusive().await?;
    let lab = Lab::on(&tidegate, "newer", json!({})).await?;
    let newer = json!([
        {"op": "add", "path": format!("{SPEC}/colour"), "value": {"type": "string"}},
        {"op": "add", "path": format!("{SPEC}/stop/enum/-"), "value": "Explode"},
    ]);
    let probe = json!({"colour": "blue", "stop": "Explode"});
    change_kind(&lab, newer, &probe, true).await?;

    lab.create(queue("newer-colour", &json!({"colour": "blue", "limit": {"cpu": "1"}}))).await?;
    lab.create(queue("newer-stop", &json!({"stop": "Explode"}))).await?;
    // What it can read of them counts, and it follows what comes after them.
    is_known(&lab, "newer-colour", "newer-below-colour").await?;
    is_known(&lab, "newer-stop", "newer-below-stop").await?;
    is_known(&lab, "newer-below-colour", "newer-below-both").await?;
    lab.queue("newer-orphan", json!({"parent": "newer-nowhere"})).await.expect_err("no parent");
    for (namespace, queue) in [("newer-a", "newer-below-colour"), ("newer-b", "newer-below-stop")] {
        lab.opt_in(namespace, Some(queue)).await?;
    }
    let known = Lab { namespace: "newer-a".to_owned(), client: lab.client.clone(), ..lab };
    known.pod("goes", "1").await?;
    known.pod("waits", "1").await?;
    known.released(&["goes"]).await?;
    known.why_says("pod/waits", "limit of queue \"newer-colour\"").await?;
    let unknown = Lab { namespace: "newer-b".to_owned(), client: lab.client.clone(), ..lab };
    unknown.pod("shut", "1").await?;
    unknown.why_says("pod/shut", "something in it that cannot be read").await?;
    let log = tidegate.controller_log()?;
    ensure!(log.contains("queue_unreadable") && log.contains("Explode"), "{log}");
    let shown = tidegate.cli(&["queues"]).await?;
    ensure!(shown.code == 0 && shown.stdout.contains("newer-stop"), "{shown:?}");
    // Nobody needs a later program to mend or delete them.
    lab.set_queue("newer-stop", json!({"stop": "None"})).await?;
    unknown.released(&["shut"]).await?;

    for name in ["newer-below-both", "newer-below-colour", "newer-below-stop"] {
        wait::until("the webhook knows what is gone", wait::SOON, async || {
            Ok(delete(&lab, name).await.is_ok())
        })
        .await?;
    }
    for name in ["newer-colour", "newer-stop"] {
        wait::until("the webhook knows what is gone", wait::SOON, async || {
            Ok(delete(&lab, name).await.is_ok())
        })
        .await?;
    }
    let older = json!([
        {"op": "remove", "path": format!("{SPEC}/colour")},
        {"op": "remove", "path": format!("{SPEC}/stop/enum/3")},
    ]);
    change_kind(&lab, older, &probe, false).await
}

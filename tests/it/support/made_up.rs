//! An in-house operator that Tidegate has never heard of: a `Flock` makes a
//! herder pod and, beside it, `size` birds; it is done when all have ended.

use std::time::Duration;

use anyhow::Result;
use k8s_openapi::{
    api::core::v1::Pod,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{
        ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams,
    },
};
use serde_json::{Value, json};

use super::wait;

const GROUP: &str = "inhouse.example.com";
/// Between two rounds of its controller.
const ROUND: Duration = Duration::from_millis(200);

/// A `Flock` of this size.
pub fn object(name: &str, size: usize) -> Value {
    json!({"apiVersion": format!("{GROUP}/v1"), "kind": "Flock", "metadata": {"name": name},
        "spec": {"size": size}})
}

/// Installs the kind and starts its controller; it ends with the test's runtime.
pub async fn install(client: &Client) -> Result<()> {
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("flocks.{GROUP}")},
        "spec": {
            "group": GROUP, "scope": "Namespaced",
            "names": {"kind": "Flock", "plural": "flocks", "singular": "flock"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object",
                    "x-kubernetes-preserve-unknown-fields": true}}}],
        },
    });
    match crds.create(&PostParams::default(), &serde_json::from_value(crd)?).await {
        Err(kube::Error::Api(status)) if status.code == 409 => {}
        Err(error) => return Err(error.into()),
        Ok(_) => {}
    }
    let flocks: Api<DynamicObject> = Api::all_with(client.clone(), &resource());
    wait::until("the made-up kind is served", wait::START, async || {
        flocks.list(&ListParams::default()).await?;
        Ok(true)
    })
    .await?;
    tokio::spawn(control(client.clone()));
    Ok(())
}

fn resource() -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(GROUP, "v1", "Flock"), "flocks")
}

/// The whole in-house controller: no more careful than such things are.
async fn control(client: Client) {
    loop {
        if let Err(error) = round(&client).await {
            eprintln!("the made-up controller: {error:#}");
        }
        tokio::time::sleep(ROUND).await;
    }
}

async fn round(client: &Client) -> Result<()> {
    let flocks: Api<DynamicObject> = Api::all_with(client.clone(), &resource());
    for flock in flocks.list(&ListParams::default()).await? {
        let size = flock.data["spec"]["size"].as_u64().unwrap_or(1);
        let namespace = flock.namespace().unwrap_or_default();
        let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace);
        let mut done = 0;
        for number in 0..=size {
            let role = if number == 0 { "herder".to_owned() } else { format!("bird-{number}") };
            let name = format!("{}-{role}", flock.name_any());
            match pods.get_opt(&name).await? {
                None => drop(pods.create(&PostParams::default(), &member(&flock, &name)?).await?),
                Some(pod) => {
                    let phase = pod.status.and_then(|status| status.phase);
                    done += u64::from(phase.as_deref() == Some("Succeeded"));
                }
            }
        }
        let phase = if done > size { "Done" } else { "Flying" };
        if flock.data["status"]["phase"] != phase {
            let api: Api<DynamicObject> =
                Api::namespaced_with(client.clone(), &namespace, &resource());
            let status = Patch::Merge(json!({"status": {"phase": phase}}));
            api.patch_status(&flock.name_any(), &PatchParams::default(), &status).await?;
        }
    }
    Ok(())
}

fn member(flock: &DynamicObject, name: &str) -> Result<Pod> {
    Ok(serde_json::from_value(json!({
        "metadata": {"name": name, "annotations": {"fake.tidegate.dev/duration": "1s"},
            "ownerReferences": [{"apiVersion": format!("{GROUP}/v1"), "kind": "Flock",
                "name": flock.name_any(), "uid": flock.uid(), "controller": true}]},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "app", "image": "pause",
            "resources": {"requests": {"cpu": "100m"}}}]},
    }))?)
}

//! What somebody with the role `edit` in one namespace tries, on the real control plane.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::support::{
    lab::{Lab, bare_pod, is_gated},
    wait,
};

#[tokio::test]
async fn another_namespace_as_owner_does_not_lend_its_queue() -> Result<()> {
    let lab = Lab::new("adv-ns-owner", json!({"stop": "Hold"})).await?;
    lab.queue("adv-theirs", json!({})).await?;
    lab.opt_in("adv-theirs", Some("adv-theirs")).await?;
    let namespaces: Api<Namespace> = Api::all(lab.client.clone());
    let uid = namespaces.get("adv-theirs").await?.uid().context("no uid")?;
    let mut pod = bare_pod("guest", "100m");
    pod["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "v1", "kind": "Namespace", "name": "adv-theirs", "uid": uid}]);
    lab.create(pod).await?;
    lab.why_says("pod/guest", "\"adv-ns-owner\" is stopped").await?;
    lab.all_gated(1).await.map(drop)
}

#[tokio::test]
async fn owner_references_that_are_no_names_lead_nowhere() -> Result<()> {
    let lab = Lab::new("adv-odd-owner", json!({})).await?;
    let uid = "11111111-2222-3333-4444-555555555555";
    for (at, (api_version, name)) in
        [("v1", "../secrets/x"), ("v1", "x/proxy?y"), ("a b/v1", "x"), ("v1", "ä b")]
            .into_iter()
            .enumerate()
    {
        let mut pod = bare_pod(&format!("odd-{at}"), "10m");
        pod["metadata"]["ownerReferences"] = json!([{
            "apiVersion": api_version, "kind": "Pod", "name": name, "uid": uid}]);
        lab.create(pod).await?;
    }
    // The garbage collector may remove them; what is left is let go.
    wait::until("all are released or gone", wait::SOON, async || {
        Ok(!lab.pods().await?.iter().any(is_gated))
    })
    .await
}

#[tokio::test]
async fn a_member_deleted_while_it_waits_tears_no_gang() -> Result<()> {
    let lab = Lab::new("adv-gang", json!({})).await?;
    lab.create(json!({"apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": "gang", "annotations": {"tidegate.dev/min-count": "4"}},
        "spec": {"parallelism": 3, "completions": 3, "template": {"spec": {
            "restartPolicy": "Never", "containers": [{"name": "app", "image": "pause",
                "resources": {"requests": {"cpu": "10m"}}}]}}}}))
        .await?;
    let before: BTreeSet<String> =
        lab.all_gated(3).await?.iter().filter_map(ResourceExt::uid).collect();
    lab.why_says("job/gang", "3 of the 4 pods").await?;
    let name = lab.pods().await?.first().map(ResourceExt::name_any).context("no pod")?;
    lab.pod_api().delete(&name, &DeleteParams::default()).await?;
    wait::until("it is replaced", wait::SOON, async || {
        let now: BTreeSet<String> = lab.pods().await?.iter().filter_map(ResourceExt::uid).collect();
        Ok(now.len() == 3 && now != before)
    })
    .await?;
    lab.why_says("job/gang", "3 of the 4 pods").await?;
    lab.all_gated(3).await.map(drop)
}

#[tokio::test]
async fn no_subresource_opens_a_gate() -> Result<()> {
    let lab = Lab::new("adv-subresources", json!({"stop": "Hold"})).await?;
    lab.pod("held", "100m").await?;
    let pods: Api<Pod> = Api::namespaced(lab.editor("mallory").await?, &lab.namespace);
    let admin = lab.pod_api();
    let open = json!({"spec": {"schedulingGates": null}});
    let params = PatchParams::default();
    for api in [&pods, &admin] {
        for part in ["status", "ephemeralcontainers", "resize"] {
            // Refused or without effect: what counts is that the gate is there.
            let _answer = api.patch_subresource(part, "held", &params, &Patch::Merge(&open)).await;
        }
    }
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "held"},
        "target": {"kind": "Node", "name": "node-0"}});
    let answer: Result<Value, _> =
        admin.create_subresource("binding", "held", &PostParams::default(), &binding).await;
    ensure!(answer.is_err(), "a gated pod was bound");
    let marks = json!({"metadata": {"annotations": {"tidegate.dev/released": "{}"}}});
    let answer =
        pods.patch_subresource("ephemeralcontainers", "held", &params, &Patch::Merge(&marks)).await;
    ensure!(
        answer.is_err()
            || !lab
                .pod_api()
                .get("held")
                .await?
                .annotations()
                .contains_key("tidegate.dev/released"),
        "a marker was forged"
    );
    lab.all_gated(1).await.map(drop)
}

#[tokio::test]
async fn a_label_under_an_owner_does_not_come_alive_when_the_owner_goes() -> Result<()> {
    let lab = Lab::new("adv-orphan", json!({"stop": "Hold"})).await?;
    lab.queue("adv-orphan-theirs", json!({"stop": "Hold"})).await?;
    let user = lab.editor("mallory").await?;
    let maps: Api<ConfigMap> = Api::namespaced(user.clone(), &lab.namespace);
    let map = serde_json::from_value(json!({"metadata": {"name": "cover"}}))?;
    let uid = maps.create(&PostParams::default(), &map).await?.uid().context("no uid")?;
    let mut pod = bare_pod("sleeper", "10m");
    pod["metadata"]["labels"] = json!({"tidegate.dev/queue": "adv-orphan-theirs"});
    pod["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "cover", "uid": uid}]);
    let pods: Api<Pod> = Api::namespaced(user, &lab.namespace);
    pods.create(&PostParams::default(), &serde_json::from_value(pod)?).await?;
    let free = Patch::Merge(json!({"metadata": {"ownerReferences": null}}));
    let answer = pods.patch("sleeper", &PatchParams::default(), &free).await;
    ensure!(answer.is_err(), "the label came alive by the user's own hand");
    maps.delete("cover", &DeleteParams::orphan()).await?;
    lab.why_says("pod/sleeper", "\"adv-orphan\" is stopped").await
}

/// A copy of the label would begin to choose: whoever takes the owners away must be allowed
/// to use the queue, and the garbage collector is not.
#[tokio::test]
async fn objects_become_orphans_once_their_copies_of_the_label_are_gone() -> Result<()> {
    let lab = Lab::new("adv-cascade", json!({})).await?;
    let labels = json!({"app": "web", "tidegate.dev/queue": "adv-cascade"});
    lab.create(json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "web"},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": {
            "metadata": {"labels": labels},
            "spec": {"containers": [{"name": "app", "image": "pause"}]}}}}))
        .await?;
    let pod = wait::for_some("its pod is let go", wait::SOON, async || {
        let pods = lab.pods().await?;
        Ok(pods.into_iter().find(|pod| !is_gated(pod)))
    })
    .await?
    .name_any();
    let sets: Api<ReplicaSet> = Api::namespaced(lab.client.clone(), &lab.namespace);
    sets.delete("web", &DeleteParams::orphan()).await?;
    let unlabel = Patch::Merge(json!({"metadata": {"labels": {"tidegate.dev/queue": null}}}));
    lab.pod_api().patch(&pod, &PatchParams::default(), &unlabel).await?;
    wait::until("the ReplicaSet is gone", wait::SOON, async || {
        Ok(sets.get_opt("web").await?.is_none())
    })
    .await?;
    ensure!(lab.pod_api().get(&pod).await?.owner_references().is_empty(), "not an orphan");
    Ok(())
}

//! What somebody with the role `edit` in one namespace tries, on the real control plane.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, Secret};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use tidegate::api::v1alpha1::Queue;

use crate::support::{
    lab::{Lab, bare_pod, is_gated},
    tidegate::NAMESPACE,
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

#[tokio::test]
async fn a_group_named_like_another_namespaces_joins_nothing() -> Result<()> {
    let theirs = Lab::new("adv-group-theirs", json!({"stop": "Hold"})).await?;
    let lab = Lab::new("adv-group", json!({"stop": "Hold"})).await?;
    let named = |name: &str| {
        let mut pod = bare_pod(name, "10m");
        pod["metadata"]["annotations"] =
            json!({"tidegate.dev/group": "shared", "tidegate.dev/gang": "all"});
        pod
    };
    theirs.create(named("victim")).await?;
    lab.create(named("guest")).await?;
    for (lab, queue) in [(&theirs, "adv-group-theirs"), (&lab, "adv-group")] {
        let pod = if queue == "adv-group" { "pod/guest" } else { "pod/victim" };
        lab.why_says(pod, &format!("\"{queue}\" is stopped")).await?;
        let why = lab.why(pod).await?;
        ensure!(why.contains("1 waiting"), "{why}");
    }
    Ok(())
}

#[tokio::test]
async fn the_highest_priority_goes_first_in_its_own_queue_only() -> Result<()> {
    let lab = Lab::new("adv-loud", json!({"limit": {"cpu": "1"}})).await?;
    let calm = Lab::new("adv-calm", json!({"limit": {"cpu": "1"}})).await?;
    lab.create(json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
        "metadata": {"name": "adv-loudest"}, "value": 1_000_000_000}))
        .await?;
    let mut first = bare_pod("first", "1");
    first["spec"]["priorityClassName"] = json!("adv-loudest");
    lab.create(first).await?;
    lab.released(&["first"]).await?;
    let mut pod = bare_pod("loud", "1");
    pod["spec"]["priorityClassName"] = json!("adv-loudest");
    lab.create(pod).await?;
    calm.pod("calm", "1").await?;
    calm.released(&["calm"]).await?;
    lab.why_says("pod/loud", "limit").await
}

#[tokio::test]
async fn a_gang_of_ten_million_waits_and_holds_nobody_up() -> Result<()> {
    let lab = Lab::new("adv-millions", json!({"limit": {"cpu": "2"}})).await?;
    for (name, count) in [("millions", "10000000"), ("most", "4294967295"), ("more", "4294967296")]
    {
        let mut pod = bare_pod(name, "1");
        pod["metadata"]["annotations"] = json!({"tidegate.dev/min-count": count});
        lab.create(pod).await?;
    }
    lab.why_says("pod/millions", "1 of the 10000000 pods").await?;
    lab.why_says("pod/most", "1 of the 4294967295 pods").await?;
    // What is no count counts for nothing, and is said so.
    lab.why_says("pod/more", "not a whole number").await?;
    lab.pod("small", "1").await?;
    lab.released(&["more", "small"]).await
}

/// Whether something exists is told to nobody who may not see it.
#[tokio::test]
async fn neither_an_owner_nor_a_queue_tells_whether_a_secret_thing_exists() -> Result<()> {
    let lab = Lab::new("adv-oracle", json!({"stop": "Hold"})).await?;
    lab.queue("adv-oracle-secret", json!({})).await?;
    lab.create(json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "there"},
        "stringData": {"password": "hunter2"}}))
        .await?;
    let pods: Api<Pod> = Api::namespaced(lab.editor("mallory").await?, &lab.namespace);
    let mut told = Vec::new();
    for name in ["there", "none"] {
        let uid = "11111111-2222-3333-4444-555555555555";
        let mut pod = bare_pod(&format!("owned-{name}"), "10m");
        pod["metadata"]["ownerReferences"] =
            json!([{"apiVersion": "v1", "kind": "Secret", "name": name, "uid": uid}]);
        // Else the garbage collector would remove it at once.
        pod["metadata"]["finalizers"] = json!(["example.com/kept"]);
        pods.create(&PostParams::default(), &serde_json::from_value(pod)?).await?;
        let object = format!("pod/owned-{name}");
        lab.why_says(&object, "may not be read").await?;
        let evidence = lab.why(&object).await?;
        let line = evidence.lines().find(|line| line.contains("may not be read"));
        told.push(line.unwrap_or_default().replace(name, "NAME"));
        ensure!(!evidence.contains("hunter2"), "{evidence}");
    }
    ensure!(told[0] == told[1], "{told:#?}");

    let mut refusals = Vec::new();
    for queue in ["adv-oracle-secret", "adv-oracle-none"] {
        let mut pod = bare_pod("probe", "10m");
        pod["metadata"]["labels"] = json!({"tidegate.dev/queue": queue});
        let answer = pods.create(&PostParams::default(), &serde_json::from_value(pod)?).await;
        let Err(refusal) = answer else { bail!("{queue} was used without the right to") };
        refusals.push(refusal.to_string().replace(queue, "QUEUE"));
    }
    ensure!(refusals[0] == refusals[1], "{refusals:#?}");
    Ok(())
}

#[tokio::test]
async fn what_a_pod_says_of_itself_exempts_it_from_nothing() -> Result<()> {
    let lab = Lab::new("adv-claims", json!({"stop": "Hold"})).await?;
    let pods: Api<Pod> = Api::namespaced(lab.editor("mallory").await?, &lab.namespace);
    let claims = [
        (
            "labels",
            json!({"metadata": {"labels": {
            "tidegate.dev/managed": "false", "k8s-app": "kube-dns", "tier": "control-plane"}}}),
        ),
        (
            "mirror",
            json!({"metadata": {"annotations": {
            "kubernetes.io/config.mirror": "x", "kubernetes.io/config.source": "file"}}}),
        ),
        ("tolerant", json!({"spec": {"tolerations": [{"operator": "Exists"}]}})),
        ("host", json!({"spec": {"hostNetwork": true}})),
        ("scheduler", json!({"spec": {"schedulerName": "mine"}})),
    ];
    for (name, claim) in claims {
        let mut pod = bare_pod(name, "10m");
        json_patch::merge(&mut pod, &claim);
        // Refused or gated: what counts is that it does not run.
        if let Ok(made) = pods.create(&PostParams::default(), &serde_json::from_value(pod)?).await {
            ensure!(is_gated(&made), "{name} was let in");
        }
    }
    ensure!(lab.pods().await?.len() >= 3 && lab.pods().await?.iter().all(is_gated));
    Ok(())
}

/// Whoever edits a namespace edits nothing that decides about it.
#[tokio::test]
async fn an_editor_of_a_namespace_reaches_nothing_that_decides() -> Result<()> {
    let lab = Lab::new("adv-reach", json!({"stop": "Hold"})).await?;
    lab.pod("held", "10m").await?;
    let user = lab.editor("mallory").await?;
    let change = Patch::Merge(json!({"metadata": {"labels": {"tidegate.dev/managed": null}}}));
    let namespaces: Api<Namespace> = Api::all(user.clone());
    let queues: Api<Queue> = Api::all(user.clone());
    let params = PatchParams::default();
    let open = Patch::Merge(json!({"spec": {"stop": "None"}, "status": null}));
    let secrets: Api<Secret> = Api::namespaced(user.clone(), NAMESPACE);
    let webhooks: Api<MutatingWebhookConfiguration> = Api::all(user.clone());
    ensure!(namespaces.patch(&lab.namespace, &params, &change).await.is_err(), "it opted out");
    ensure!(queues.patch("adv-reach", &params, &open).await.is_err(), "it opened the queue");
    ensure!(queues.patch_status("adv-reach", &params, &open).await.is_err(), "it wrote a status");
    ensure!(secrets.get("tidegate-tls").await.is_err(), "it read our key");
    ensure!(
        webhooks.delete("tidegate", &DeleteParams::default()).await.is_err(),
        "it freed itself"
    );
    lab.all_gated(1).await.map(drop)
}

#[tokio::test]
async fn an_explanation_names_no_object_of_another_namespace() -> Result<()> {
    let lab = Lab::new("adv-ahead", json!({"limit": {"cpu": "1"}})).await?;
    lab.opt_in("adv-ahead-theirs", Some("adv-ahead")).await?;
    for (known, name) in ["runs-secretly", "waits-secretly"].into_iter().enumerate() {
        let known = i64::try_from(known)?;
        let mut pod = bare_pod(name, "1");
        pod["metadata"]["namespace"] = json!("adv-ahead-theirs");
        lab.create(pod).await?;
        wait::until("it is known", wait::SOON, async || {
            let usage = lab.get_queue("adv-ahead").await?.status.unwrap_or_default();
            Ok(usage.running.pods + usage.pending.pods > known)
        })
        .await?;
    }
    lab.pod("mine", "1").await?;
    lab.why_says("pod/mine", "ahead").await?;
    let why = lab.why("pod/mine").await?;
    let groups = lab.groups().await?;
    for secret in ["secretly", "adv-ahead-theirs"] {
        ensure!(!why.contains(secret), "{why}");
        ensure!(!json!(groups).to_string().contains(secret), "{groups:#?}");
    }
    Ok(())
}

/// Labels of metrics name queues. Whatever else somebody chose a name for is not there.
#[tokio::test]
async fn metrics_name_no_namespace_no_object_and_no_account() -> Result<()> {
    let lab = Lab::new("adv-metrics", json!({"limit": {"cpu": "1"}})).await?;
    lab.opt_in("adv-tenant", Some("adv-metrics")).await?;
    let tenant = Lab { client: lab.client.clone(), namespace: "adv-tenant".to_owned(), ..lab };
    let pods: Api<Pod> = Api::namespaced(tenant.editor("adv-somebody").await?, &tenant.namespace);
    for name in ["adv-goes", "adv-waits"] {
        let pod = serde_json::from_value(bare_pod(name, "1"))?;
        pods.create(&PostParams::default(), &pod).await?;
    }
    let text = wait::for_some("both are counted", wait::SOON, async || {
        let text = lab.tidegate.get("/metrics").await?.1;
        let counted = |what: &str| {
            text.contains(&format!("tidegate_queue_{what}_pods{{queue=\"adv-metrics\"}} 1"))
        };
        Ok((counted("pending") && counted("running")).then(|| text.clone()))
    })
    .await?;
    for name in ["adv-tenant", "adv-somebody", "adv-goes", "adv-waits"] {
        ensure!(!text.contains(name), "{name} is named");
    }
    Ok(())
}

/// Whoever edits a namespace may make and act as any account of it, but of no other.
#[tokio::test]
async fn an_account_called_like_an_exempt_one_is_not_exempt() -> Result<()> {
    let lab = Lab::new("adv-namesake", json!({"stop": "Hold"})).await?;
    let namesake = lab.editor("daemon-set-controller").await?;
    lab.editor("mallory").await?;
    let acting = async |account: &str| {
        let mut config = lab.config("mallory").await?;
        config.auth_info.impersonate = Some(format!("system:serviceaccount:{account}"));
        anyhow::Ok(Client::try_from(config)?)
    };
    let own = acting("adv-namesake:daemon-set-controller").await?;
    for (name, client) in [("token", namesake), ("acting", own)] {
        let pods: Api<Pod> = Api::namespaced(client, &lab.namespace);
        let pod = serde_json::from_value(bare_pod(name, "10m"))?;
        ensure!(is_gated(&pods.create(&PostParams::default(), &pod).await?), "{name}");
    }
    for account in ["kube-system:daemon-set-controller", "tidegate-system:tidegate-controller"] {
        let pods: Api<Pod> = Api::namespaced(acting(account).await?, &lab.namespace);
        let pod = serde_json::from_value(bare_pod("other", "10m"))?;
        let answer = pods.create(&PostParams::default(), &pod).await;
        let Err(kube::Error::Api(status)) = answer else { bail!("acted as {account}") };
        ensure!(status.code == 403 && status.message.contains("impersonate"), "{status:?}");
    }
    lab.all_gated(2).await.map(drop)
}

/// As large as the apiserver takes it: admission, watches and the release pass it on.
#[tokio::test]
async fn a_pod_of_more_than_a_megabyte_is_gated_and_let_go_like_any_other() -> Result<()> {
    let lab = Lab::new("adv-large", json!({"limit": {"cpu": "1"}})).await?;
    let mut pod = bare_pod("large", "1");
    pod["metadata"]["annotations"] = json!({"note": "n".repeat(250_000)});
    let filled = (0..12).map(|at| json!({"name": format!("E{at}"), "value": "v".repeat(90_000)}));
    pod["spec"]["containers"][0]["env"] = filled.collect();
    lab.create(pod).await?;
    lab.released(&["large"]).await?;
    lab.pod("small", "1").await?;
    lab.why_says("pod/small", "1 of 1 in use").await?;
    lab.delete_pod("large").await?;
    lab.released(&["small"]).await?;
    let huge = json!([{"name": "E", "value": "v".repeat(7 << 20)}]);
    let mut pod = bare_pod("huge", "1");
    pod["spec"]["containers"][0]["env"] = huge;
    ensure!(lab.create(pod).await.is_err(), "the apiserver stored 7 MB");
    lab.one_patch_each().await
}

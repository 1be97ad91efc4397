//! What bad input gets: a clear message, nothing lost, nothing let go by accident.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use tidegate::api::v1alpha1::Queue;

use crate::support::{
    lab::{Lab, bare_pod, is_gated},
    tidegate::kubectl,
    wait,
};

fn owned_by(name: &str, owner: &Value) -> Value {
    let mut pod = bare_pod(name, "100m");
    pod["metadata"]["ownerReferences"] = json!([owner]);
    pod
}

fn owner(api_version: &str, kind: &str, name: &str, uid: &str) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "name": name, "uid": uid, "controller": true})
}

/// Creates and expects a refusal; returns its text.
async fn refused(lab: &Lab, object: Value) -> Result<String> {
    match lab.create(object).await {
        Ok(_) => bail!("it was taken"),
        Err(error) => Ok(format!("{error:#}")),
    }
}

#[tokio::test]
async fn work_for_an_unknown_queue_waits_and_says_so_until_the_queue_is_made() -> Result<()> {
    let lab = Lab::new("bad-unknown", json!({})).await?;
    let mut pod = bare_pod("lost", "100m");
    pod["metadata"]["labels"] = json!({"tidegate.dev/queue": "bad-unknown-later"});
    lab.create(pod).await?;
    lab.why_says("pod/lost", "queue \"bad-unknown-later\" does not exist").await?;
    wait::until("a warning Event names the cause", wait::SOON, async || {
        let events = lab.events().await?;
        Ok(events.iter().any(|event| {
            event.type_.as_deref() == Some("Warning")
                && event.reason.as_deref() == Some("UnknownQueue")
        }))
    })
    .await?;
    lab.all_gated(1).await?;
    lab.queue("bad-unknown-later", json!({})).await?;
    lab.released(&["lost"]).await
}

#[tokio::test]
async fn a_namespace_without_a_queue_gates_and_says_what_to_do() -> Result<()> {
    let lab = Lab::new("bad-noqueue", json!({})).await?;
    lab.opt_in("bad-noqueue-ns", None).await?;
    let lab = Lab { namespace: "bad-noqueue-ns".to_owned(), ..lab };
    lab.pod("lost", "100m").await?;
    lab.why_says("pod/lost", "names a queue").await?;
    lab.why_says("pod/lost", "tidegate.dev/queue").await?;
    lab.all_gated(1).await.map(drop)
}

#[tokio::test]
async fn mistakes_in_labels_and_queues_are_told_to_whoever_makes_them() -> Result<()> {
    let lab = Lab::new("bad-told", json!({"limit": {"cpu": "100m"}})).await?;
    let admin = lab.tidegate.cluster().kubeconfig();
    let told = async |args: &[&str], text: &str| {
        let output = kubectl(admin, args).await?;
        let warned = output.code == 0 && output.stderr.contains("Warning: ");
        ensure!(warned && output.stderr.contains(text), "{args:?}: {output:?}");
        Ok::<_, anyhow::Error>(())
    };
    let namespace = BTreeMap::from([("tidegate.dev/managed".to_owned(), "yes".to_owned())]);
    lab.namespace("bad-told-yes", namespace).await?;
    let label = ["label", "namespace", "bad-told-yes", "--overwrite"];
    told(&[&label[..], &["tidegate.dev/managed=on"]].concat(), "only \"true\" does").await?;
    let default = "tidegate.dev/queue=bad-told-nobody";
    let opt_in = [&label[..], &["tidegate.dev/managed=true", default]].concat();
    told(&opt_in, "queue \"bad-told-nobody\"").await?;
    let why = lab.tidegate.cli(&["why", "pod/x", "-n", "kube-system"]).await?;
    ensure!(why.code == 3, "{why:?}");

    let answer = lab.queue("bad-told-cpus", json!({"limit": {"cpus": 1}})).await;
    let text = format!("{:#}", answer.err().context("it was taken")?);
    ensure!(text.contains("resource \"cpus\"") && text.contains("use \"cpu\""), "{text}");

    lab.set_queue("bad-told", json!({"guaranteed": {"memory": "1Pi"}})).await?;
    lab.pod("runs", "100m").await?;
    lab.pod("waits", "100m").await?;
    wait::until("the status says what is wrong and what is at work", wait::SOON, async || {
        let status = lab.get_queue("bad-told").await?.status.unwrap_or_default();
        let beyond = status.conditions.iter().find(|c| c.type_ == "GuaranteedBeyondCapacity");
        let beyond = beyond.context("no such condition")?;
        ensure!(beyond.status == "True" && beyond.message.ends_with(" memory"), "{beyond:?}");
        Ok((status.pending.pods, status.running.pods) == (1, 1))
    })
    .await?;
    told(&["delete", "queue", "bad-told"], "had waiting pods (1)").await
}

#[tokio::test]
async fn a_queue_deleted_under_its_work_stops_what_waits_and_keeps_what_runs() -> Result<()> {
    let lab = Lab::new("bad-deleted", json!({"limit": {"cpu": "100m"}})).await?;
    lab.pod("runs", "100m").await?;
    lab.released(&["runs"]).await?;
    lab.pod("waits", "100m").await?;
    lab.why_says("pod/waits", "limit of queue").await?;
    let queues: Api<Queue> = Api::all(lab.client.clone());
    queues.delete("bad-deleted", &DeleteParams::default()).await?;
    lab.why_says("pod/waits", "does not exist").await?;
    lab.released(&["runs"]).await?;
    lab.queue("bad-deleted", json!({"limit": {"cpu": "200m"}})).await?;
    lab.released(&["runs", "waits"]).await?;
    lab.usage_is("cpu", "200m").await
}

#[tokio::test]
async fn a_cycle_of_parents_is_refused_and_so_is_deleting_a_parent() -> Result<()> {
    let lab = Lab::shared_client().await?;
    lab.queue("cycle-a", json!({})).await?;
    wait::until("a child is taken", wait::SOON, async || {
        lab.queue("cycle-b", json!({"parent": "cycle-a"})).await?;
        Ok(true)
    })
    .await?;
    wait::until("the cycle is refused", wait::SOON, async || {
        let answer = lab.set_queue("cycle-a", json!({"parent": "cycle-b"})).await;
        let text = format!("{:#}", answer.err().context("it was taken")?);
        ensure!(text.contains("cycle"), "{text}");
        Ok(true)
    })
    .await?;
    let queues: Api<Queue> = Api::all(lab.client.clone());
    let answer = queues.delete("cycle-a", &DeleteParams::default()).await;
    let text = format!("{:#}", answer.err().context("it was deleted")?);
    ensure!(text.contains("cycle-b"), "{text}");
    Ok(())
}

#[tokio::test]
async fn a_pod_that_names_a_node_is_refused_with_what_to_do_instead() -> Result<()> {
    let lab = Lab::new("bad-nodename", json!({})).await?;
    let mut pod = bare_pod("skips", "100m");
    pod["spec"]["nodeName"] = json!("node-0");
    let text = refused(&lab, pod).await?;
    ensure!(text.contains("nodeName") && text.contains("kubernetes.io/hostname"), "{text}");
    // In a template it must not become a storm of creates.
    lab.create(
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "pinned"},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "pinned"}}, "template": {
            "metadata": {"labels": {"app": "pinned"}},
            "spec": {"nodeName": "node-0", "containers": [{"name": "app", "image": "pause"}]}}}}),
    )
    .await?;
    let events: Api<k8s_openapi::api::core::v1::Event> =
        Api::namespaced(lab.client.clone(), &lab.namespace);
    wait::until("its ReplicaSet shows the text", wait::SOON, async || {
        let events = events.list(&kube::api::ListParams::default()).await?;
        Ok(events.iter().any(|event| {
            event.reason.as_deref() == Some("FailedCreate")
                && event.message.as_deref().is_some_and(|m| m.contains("kubernetes.io/hostname"))
        }))
    })
    .await?;
    ensure!(lab.pods().await?.is_empty());
    Ok(())
}

#[tokio::test]
async fn a_pod_that_claims_a_daemon_set_as_owner_is_gated_like_any_other() -> Result<()> {
    let lab = Lab::new("bad-daemonset", json!({"stop": "Hold"})).await?;
    lab.create(json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "agent"},
        "spec": {"selector": {"matchLabels": {"app": "agent"}}, "template": {
            "metadata": {"labels": {"app": "agent"}},
            "spec": {"nodeSelector": {"none": "such"},
                "containers": [{"name": "app", "image": "pause"}]}}}}))
        .await?;
    let uid = lab.read("apps/v1", "DaemonSet", "agent").await?["metadata"]["uid"]
        .as_str()
        .context("no uid")?
        .to_owned();
    lab.create(owned_by("forged", &owner("apps/v1", "DaemonSet", "agent", &uid))).await?;
    let pod = lab.pod_api().get("forged").await?;
    ensure!(is_gated(&pod), "it was let through");
    Ok(())
}

#[tokio::test]
async fn the_pods_of_a_real_daemon_set_are_not_gated_and_count_as_foreign() -> Result<()> {
    let lab = Lab::new("good-daemonset", json!({"stop": "Hold"})).await?;
    lab.create(json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "agent"},
        "spec": {"selector": {"matchLabels": {"app": "agent"}}, "template": {
            "metadata": {"labels": {"app": "agent"}},
            "spec": {"containers": [{"name": "app", "image": "pause",
                "resources": {"requests": {"cpu": "10m"}}}]}}}}))
        .await?;
    wait::until("its pods run", wait::SOON, async || {
        let pods = lab.pods().await?;
        ensure!(!pods.iter().any(is_gated), "one is gated");
        let running = |pod: &k8s_openapi::api::core::v1::Pod| {
            pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running")
        };
        Ok(!pods.is_empty() && pods.iter().all(running))
    })
    .await?;
    lab.usage_is("cpu", "0").await
}

#[tokio::test]
async fn another_owners_gate_stays_and_clearing_all_gates_is_refused_with_help() -> Result<()> {
    let lab = Lab::new("bad-gates", json!({"stop": "Hold"})).await?;
    let mut pod = bare_pod("two-gates", "100m");
    pod["spec"]["schedulingGates"] = json!([{"name": "example.com/own-gate"}]);
    lab.create(pod).await?;
    let other = lab.editor("other").await?;
    let pods: Api<k8s_openapi::api::core::v1::Pod> = Api::namespaced(other, &lab.namespace);
    let empty = Patch::Merge(json!({"spec": {"schedulingGates": []}}));
    let answer = pods.patch("two-gates", &PatchParams::default(), &empty).await;
    let text = answer.err().context("all gates were cleared")?.to_string();
    for word in ["tidegate.dev/queue", "example.com/own-gate", "$patch"] {
        ensure!(text.contains(word), "the refusal does not say {word}: {text}");
    }
    lab.set_queue(&lab.namespace, json!({"stop": "None"})).await?;
    lab.why_says("pod/two-gates", "WaitingForOtherGate").await?;
    lab.why_says("pod/two-gates", "scheduling gates of others: example.com/own-gate").await?;
    pods.patch("two-gates", &PatchParams::default(), &empty).await?;
    wait::until("it runs", wait::SOON, async || {
        let pod = pods.get("two-gates").await?;
        Ok(pod.spec.and_then(|spec| spec.node_name).is_some())
    })
    .await
}

#[tokio::test]
async fn a_user_can_neither_open_the_gate_nor_forge_our_marks() -> Result<()> {
    let lab = Lab::new("bad-forge", json!({"stop": "Hold"})).await?;
    let mut pod = bare_pod("forged", "100m");
    pod["metadata"]["annotations"] = json!({
        "tidegate.dev/released": r#"{"queue":"old","group":"gone"}"#,
        "tidegate.dev/created-by": r#"{"uid":"x","name":"y"}"#,
    });
    lab.create(pod).await?;
    let stored = lab.pod_api().get("forged").await?;
    for key in ["tidegate.dev/released", "tidegate.dev/created-by"] {
        ensure!(!stored.annotations().contains_key(key), "{key} was kept");
    }
    let user = lab.editor("mallory").await?;
    let pods: Api<k8s_openapi::api::core::v1::Pod> = Api::namespaced(user, &lab.namespace);
    let attempts = [
        Patch::Merge(json!({"spec": {"schedulingGates": []}})),
        Patch::Strategic(json!({"spec": {"schedulingGates": [
            {"$patch": "delete", "name": "tidegate.dev/queue"}]}})),
        Patch::Merge(json!({"metadata": {"annotations": {"tidegate.dev/released": "{}"}}})),
        Patch::Merge(json!({"metadata": {"annotations": {"tidegate.dev/created-by": "{}"}}})),
        Patch::Merge(json!({"metadata": {"annotations": {"tidegate.dev/epoch": "9"}}})),
        Patch::Merge(json!({"metadata": {"labels": {"tidegate.dev/managed": null}}})),
    ];
    for attempt in attempts {
        let answer = pods.patch("forged", &PatchParams::default(), &attempt).await;
        ensure!(answer.is_err(), "{attempt:?} was taken");
    }
    let mut whole = pods.get("forged").await?;
    if let Some(spec) = whole.spec.as_mut() {
        spec.scheduling_gates = None;
    }
    let answer = pods.replace("forged", &kube::api::PostParams::default(), &whole).await;
    ensure!(answer.is_err(), "a replace opened the gate");
    lab.all_gated(1).await.map(drop)
}

#[tokio::test]
async fn an_owner_that_cannot_be_found_ends_the_chain_and_the_namespace_pays() -> Result<()> {
    let lab = Lab::new("bad-owner", json!({"stop": "Hold"})).await?;
    let uid = "11111111-2222-3333-4444-555555555555";
    lab.create(owned_by("orphan", &owner("example.com/v1", "Nothing", "gone", uid))).await?;
    lab.why_says("pod/orphan", "Nothing").await?;
    lab.why_says("pod/orphan", "bad-owner").await?;
    lab.set_queue(&lab.namespace, json!({"stop": "None"})).await?;
    lab.released_at_least("orphan").await
}

#[tokio::test]
async fn an_owner_of_a_kind_we_may_not_read_names_the_missing_right() -> Result<()> {
    let lab = Lab::new("bad-unreadable", json!({"stop": "Hold"})).await?;
    let secret = lab
        .create(json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "owner"}}))
        .await?;
    let uid = secret.uid().context("no uid")?;
    lab.create(owned_by("owned", &owner("v1", "Secret", "owner", &uid))).await?;
    lab.why_says("pod/owned", "secrets").await?;
    lab.set_queue(&lab.namespace, json!({"stop": "None"})).await?;
    lab.released_at_least("owned").await
}

#[tokio::test]
async fn another_teams_object_as_owner_does_not_charge_that_team() -> Result<()> {
    let lab = Lab::new("bad-uid", json!({})).await?;
    lab.queue("bad-uid-victim", json!({})).await?;
    let job = json!({"apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": "victim", "labels": {"tidegate.dev/queue": "bad-uid-victim"}},
        "spec": {"suspend": true, "template": {"spec": {"restartPolicy": "Never",
            "containers": [{"name": "app", "image": "pause"}]}}}});
    lab.create(job).await?;
    let wrong = "99999999-2222-3333-4444-555555555555";
    lab.create(owned_by("thief", &owner("batch/v1", "Job", "victim", wrong))).await?;
    // The garbage collector removes such a pod sooner or later; until then it is not the victim's.
    wait::until("it is ours or gone", wait::SOON, async || {
        let victim = lab.get_queue("bad-uid-victim").await?.status.unwrap_or_default();
        ensure!(victim.running.pods == 0 && victim.pending.pods == 0, "the victim pays");
        match lab.pod_api().get_opt("thief").await? {
            None => Ok(true),
            Some(pod) => Ok(!is_gated(&pod)),
        }
    })
    .await
}

#[tokio::test]
async fn owners_five_levels_up_and_in_a_cycle_are_resolved() -> Result<()> {
    let lab = Lab::new("bad-levels", json!({"stop": "Hold"})).await?;
    lab.queue("bad-levels-top", json!({"stop": "Hold"})).await?;
    let mut above: Option<Value> = None;
    for level in 0..5 {
        let name = format!("level-{level}");
        // A ReplicaSet would let go of a pod that its selector does not match.
        let mut map = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
            "spec": {"replicas": 0, "selector": {"matchLabels": {"level": name}}, "template": {
                "metadata": {"labels": {"level": name}},
                "spec": {"containers": [{"name": "app", "image": "pause"}]}}}});
        match &above {
            Some(owner) => map["metadata"]["ownerReferences"] = json!([owner]),
            None => map["metadata"]["labels"] = json!({"tidegate.dev/queue": "bad-levels-top"}),
        }
        let made = lab.create(map).await?;
        above = Some(owner("apps/v1", "Deployment", &name, &made.uid().context("no uid")?));
    }
    lab.create(owned_by("deep", &above.context("no owner")?)).await?;
    lab.why_says("pod/deep", "bad-levels-top").await?;
    lab.why_says("pod/deep", "level-0").await
}

#[tokio::test]
async fn what_never_fits_waits_for_good_and_holds_nobody_up() -> Result<()> {
    let lab = Lab::new("bad-large", json!({"limit": {"cpu": "100"}, "order": "Strict"})).await?;
    lab.pod("wide", "90").await?;
    lab.why_says("pod/wide", "larger than any node").await?;
    lab.pod("wider", "101").await?;
    lab.why_says("pod/wider", "larger than queue").await?;
    lab.pod("small", "100m").await?;
    lab.released(&["small"]).await
}

#[tokio::test]
async fn pods_that_ran_before_the_opt_in_are_charged_and_never_touched() -> Result<()> {
    let lab = Lab::new("bad-before", json!({"limit": {"cpu": "300m"}})).await?;
    lab.namespace("bad-before-ns", BTreeMap::new()).await?;
    let lab = Lab { namespace: "bad-before-ns".to_owned(), ..lab };
    lab.pod("before", "200m").await?;
    wait::until("it runs", wait::SOON, async || {
        let pod = lab.pod_api().get("before").await?;
        Ok(pod.spec.and_then(|spec| spec.node_name).is_some())
    })
    .await?;
    let before = lab.pod_api().get("before").await?;
    let labels = json!({"metadata": {"labels": {
        "tidegate.dev/managed": "true", "tidegate.dev/queue": "bad-before"}}});
    let namespaces: Api<Namespace> = Api::all(lab.client.clone());
    namespaces.patch("bad-before-ns", &PatchParams::default(), &Patch::Merge(labels)).await?;
    wait::until("the queue pays", wait::SOON, async || {
        let status = lab.get_queue("bad-before").await?.status.unwrap_or_default();
        Ok(status.usage.get("cpu").is_some_and(|cpu| cpu == "200m"))
    })
    .await?;
    wait::until("new pods are gated", wait::SOON, async || {
        lab.pod("after", "200m").await?;
        if is_gated(&lab.pod_api().get("after").await?) {
            return Ok(true);
        }
        lab.delete_pod("after").await?;
        Ok(false)
    })
    .await?;
    lab.why_says("pod/after", "100m missing").await?;
    let now = lab.pod_api().get("before").await?;
    ensure!(now.uid() == before.uid() && now.labels() == before.labels(), "it was touched");
    Ok(())
}

#[tokio::test]
async fn pods_that_wait_when_the_opt_in_goes_are_still_let_go_in_order() -> Result<()> {
    let lab = Lab::new("bad-optout", json!({"limit": {"cpu": "100m"}})).await?;
    lab.pod("first", "100m").await?;
    lab.released(&["first"]).await?;
    lab.pod("second", "100m").await?;
    lab.why_says("pod/second", "limit of queue").await?;
    let labels = json!({"metadata": {"labels": {"tidegate.dev/managed": null}}});
    let namespaces: Api<Namespace> = Api::all(lab.client.clone());
    namespaces.patch("bad-optout", &PatchParams::default(), &Patch::Merge(labels)).await?;
    wait::until("new pods are not gated", wait::SOON, async || {
        let free = !is_gated(&lab.pod("free", "10m").await?);
        lab.delete_pod("free").await?;
        Ok(free)
    })
    .await?;
    ensure!(is_gated(&lab.pod_api().get("second").await?));
    lab.delete_pod("first").await?;
    lab.released(&["second"]).await
}

#[tokio::test]
async fn a_pod_replaced_under_the_same_name_is_another_pod() -> Result<()> {
    let lab = Lab::new("bad-replaced", json!({"limit": {"cpu": "100m"}})).await?;
    lab.pod("same", "100m").await?;
    lab.released(&["same"]).await?;
    let first = lab.pod_api().get("same").await?.uid();
    lab.pod("next", "100m").await?;
    lab.delete_pod("same").await?;
    wait::until("the name is free", wait::SOON, async || {
        Ok(lab.pod_api().get_opt("same").await?.is_none())
    })
    .await?;
    lab.pod("same", "100m").await?;
    lab.released(&["next"]).await?;
    let second = lab.pod_api().get("same").await?;
    ensure!(second.uid() != first && is_gated(&second));
    lab.delete_pod("next").await?;
    lab.released(&["same"]).await?;
    lab.one_patch_each().await
}

#[tokio::test]
async fn a_queue_closed_to_a_namespace_or_a_priority_class_is_not_used() -> Result<()> {
    let lab =
        Lab::new("bad-closed", json!({"namespaces": {"matchLabels": {"team": "other"}}})).await?;
    lab.pod("outsider", "100m").await?;
    lab.why_says("pod/outsider", "may not be used from this namespace").await?;
    lab.all_gated(1).await?;
    lab.set_queue(&lab.namespace, json!({"namespaces": null, "priorityClasses": ["gold"]})).await?;
    lab.why_says("pod/outsider", "priority class").await?;
    lab.all_gated(1).await?;
    lab.set_queue(&lab.namespace, json!({"priorityClasses": null})).await?;
    lab.released(&["outsider"]).await
}

#[tokio::test]
async fn a_label_of_a_queue_one_may_not_use_is_refused() -> Result<()> {
    let lab = Lab::new("bad-use", json!({})).await?;
    lab.queue("bad-use-theirs", json!({})).await?;
    let user = lab.editor("mallory").await?;
    let jobs: Api<k8s_openapi::api::batch::v1::Job> = Api::namespaced(user, &lab.namespace);
    let job = |queue: &str| {
        serde_json::from_value(json!({"metadata": {"generateName": "job-",
            "labels": {"tidegate.dev/queue": queue}},
            "spec": {"template": {"spec": {"restartPolicy": "Never",
                "containers": [{"name": "app", "image": "pause"}]}}}}))
    };
    let params = kube::api::PostParams::default();
    let answer = jobs.create(&params, &job("bad-use-theirs")?).await;
    let text = answer.err().context("it was taken")?.to_string();
    ensure!(text.contains("bad-use-theirs") && text.contains("use"), "{text}");
    lab.allow_use("mallory", "bad-use-theirs").await?;
    wait::until("the right is enough", wait::SOON, async || {
        jobs.create(&params, &job("bad-use-theirs")?).await?;
        Ok(true)
    })
    .await
}

#[tokio::test]
async fn a_pod_that_is_not_ours_is_not_guarded_and_cannot_be_made_ours() -> Result<()> {
    let lab = Lab::new("bad-foreign", json!({})).await?;
    lab.queue("bad-foreign-theirs", json!({})).await?;
    lab.namespace("bad-foreign-ns", BTreeMap::new()).await?;
    let foreign = Lab { namespace: "bad-foreign-ns".to_owned(), ..lab };
    let uid = foreign.create(bare_pod("foreign", "10m")).await?.uid().context("no uid")?;
    let user = foreign.editor("mallory").await?;
    let pods: Api<k8s_openapi::api::core::v1::Pod> = Api::namespaced(user, &foreign.namespace);
    let write = async |metadata: Value| {
        let patch = Patch::Merge(json!({"metadata": metadata}));
        pods.patch("foreign", &PatchParams::default(), &patch).await
    };
    let record = json!({"pod": uid, "queue": "bad-foreign-theirs", "group": "Pod/foreign", "root": uid,
        "size": 1, "time": "2026-01-01T00:00:00Z", "decision": 1});
    write(json!({"annotations": {"tidegate.dev/released": record.to_string()}})).await?;
    for value in ["true", "false"] {
        let answer = write(json!({"labels": {"tidegate.dev/managed": value}})).await;
        ensure!(answer.is_err(), "the label became {value:?}");
    }
    // Where queues rule later, what was forged still chooses nothing.
    let labels = json!({"metadata": {"labels": {
        "tidegate.dev/managed": "true", "tidegate.dev/queue": "bad-foreign"}}});
    let namespaces: Api<Namespace> = Api::all(foreign.client.clone());
    namespaces.patch("bad-foreign-ns", &PatchParams::default(), &Patch::Merge(labels)).await?;
    let home = Lab { namespace: "bad-foreign".to_owned(), ..foreign };
    home.usage_is("cpu", "10m").await?;
    let theirs = home.get_queue("bad-foreign-theirs").await?.status.unwrap_or_default();
    ensure!(!theirs.usage.contains_key("cpu"), "the forged record chose who pays: {theirs:?}");
    Ok(())
}

#[tokio::test]
async fn our_marks_mean_nothing_in_a_namespace_that_did_not_opt_in() -> Result<()> {
    let lab = Lab::new("bad-marks", json!({})).await?;
    lab.namespace("bad-marks-ns", BTreeMap::new()).await?;
    let lab = Lab { namespace: "bad-marks-ns".to_owned(), ..lab };
    let mut pod = bare_pod("forged", "100m");
    pod["metadata"]["labels"] =
        json!({"tidegate.dev/managed": "true", "tidegate.dev/queue": "bad-marks"});
    pod["metadata"]["annotations"] = json!({"tidegate.dev/released":
        r#"{"pod":"x","queue":"bad-marks","group":"Pod/forged","root":"x","size":1,"time":"2026-01-01T00:00:00Z","decision":1}"#});
    let mut gated = pod.clone();
    gated["spec"]["schedulingGates"] = json!([{"name": "tidegate.dev/queue"}]);
    let text = refused(&lab, gated).await?;
    ensure!(text.contains("this namespace is not queued"), "{text}");
    lab.create(pod).await?;
    wait::until("it runs like any pod", wait::SOON, async || {
        let pod = lab.pod_api().get("forged").await?;
        Ok(pod.spec.and_then(|spec| spec.node_name).is_some())
    })
    .await?;
    // A pod of the queue's own that comes later is counted, so the forged one was looked at.
    let home = Lab { namespace: "bad-marks".to_owned(), ..lab };
    home.pod("own", "10m").await?;
    home.usage_is("cpu", "10m").await
}

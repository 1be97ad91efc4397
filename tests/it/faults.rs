//! What goes wrong between the controller and a real apiserver, and around pods that wait.
//! After each fault: no gated pod is forgotten, no limit passed, no gate opened twice, and
//! all that can run does. docs/faults.md lists these and the faults tested elsewhere.

use std::{collections::BTreeMap, ops::Deref, time::Duration};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::{
    admissionregistration::v1::ValidatingAdmissionPolicyBinding,
    core::v1::{Namespace, NamespaceCondition},
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::support::{
    audit,
    lab::{Lab, bare_pod, deployment, is_gated, job},
    proxy::{Fault, Proxy},
    record::Record,
    tidegate::{Exclusive, Tidegate, serves_groups},
    wait,
};

/// etcd's words when its alarm NOSPACE is raised, as the apiserver passes them on.
const STORE_FULL: &str = "etcdserver: mvcc: database space exceeded";

/// The controller behind a bad network, until it is dropped; whoever comes next starts
/// another one that is not.
struct Behind {
    tidegate: Exclusive,
    proxy: Proxy,
}

impl Behind {
    async fn start(prepare: impl FnOnce(&Proxy)) -> Result<Self> {
        let tidegate = Tidegate::exclusive().await?;
        let proxy = Proxy::start(tidegate.cluster()).await?;
        prepare(&proxy);
        tidegate.stop_controller("TERM")?;
        tidegate.start_controller_at(&proxy.url(), &[]).await?;
        let behind = Self { tidegate, proxy };
        behind.synced().await?;
        Ok(behind)
    }
}

impl Deref for Behind {
    type Target = Tidegate;

    fn deref(&self) -> &Tidegate {
        &self.tidegate
    }
}

impl Drop for Behind {
    fn drop(&mut self) {
        if let Err(error) = self.tidegate.stop_controller("TERM") {
            eprintln!("ending the controller behind the proxy: {error:#}");
        }
    }
}

/// Fails unless each released pod saw a PATCH of ours that worked, and none a second one
/// but those whose answer was lost. A second one changes nothing: the apiserver takes
/// no gate that is added.
async fn no_patch_twice_but_lost(lab: &Lab, lost: usize) -> Result<()> {
    let counts = audit::releases(lab.tidegate.cluster(), |namespace| namespace == lab.namespace)?;
    for pod in lab.pods().await?.iter().filter(|pod| !is_gated(pod)) {
        ensure!(counts.contains_key(&pod.uid().unwrap_or_default()), "{} by whom?", pod.name_any());
    }
    let again: usize = counts.values().map(|count| count - 1).sum();
    ensure!(again <= lost, "{again} times again, {lost} answers lost: {counts:?}");
    Ok(())
}

#[tokio::test]
async fn refused_failed_cut_lost_and_slow_answers_delay_releases_and_lose_none() -> Result<()> {
    let behind = Behind::start(|_| {}).await?;
    let lab = Lab::on(&behind.tidegate, "fault-answers", json!({"limit": {"cpu": "3"}})).await?;
    let record = Record::start(lab.pod_api()).await?;
    let faults = [
        Some(Fault::LoseAnswer),
        Some(Fault::Answer(500, "etcdserver: request timed out")),
        None,
        Some(Fault::Cut),
        Some(Fault::Answer(429, "too many requests")),
        None,
        Some(Fault::LoseAnswer),
        None,
        Some(Fault::Delay(Duration::from_millis(400))),
        Some(Fault::Answer(503, "not now")),
    ];
    behind.proxy.next_patches(faults);
    lab.create(job("busy", 12, "1", "100ms")).await?;
    lab.completes("busy").await?;
    let pods = lab.pods().await?;
    ensure!(pods.len() == 12 && !pods.iter().any(is_gated), "{} pods", pods.len());
    ensure!(record.peak(|_| true) <= 3000, "{} ran at once", record.peak(|_| true));
    lab.usage_is("cpu", "0").await?;
    no_patch_twice_but_lost(&lab, 2).await
}

/// Status and reason of the condition `Releasing`.
async fn releasing(lab: &Lab) -> Result<(String, String)> {
    let status = lab.get_queue(&lab.namespace).await?.status.unwrap_or_default();
    let found = status.conditions.into_iter().find(|c| c.type_ == "Releasing");
    let found = found.context("no condition Releasing")?;
    Ok((found.status, found.reason))
}

async fn metric(lab: &Lab, line: &str) -> Result<bool> {
    Ok(lab.tidegate.get("/metrics").await?.1.lines().any(|found| found == line))
}

#[tokio::test]
async fn while_the_store_is_full_releases_pause_say_so_and_go_on_by_themselves() -> Result<()> {
    let behind = Behind::start(|_| {}).await?;
    let lab = Lab::on(&behind.tidegate, "fault-store", json!({"limit": {"cpu": "10"}})).await?;
    let idle = json!({"limit": {"cpu": "1"}});
    lab.queue("fault-store-idle", idle).await?;
    behind.proxy.every_patch(Some(Fault::Answer(500, STORE_FULL)));
    lab.create(deployment("work", 5, "1")).await?;
    wait::until("the queue says that releases are paused", wait::SOON, async || {
        let said = releasing(&lab).await?;
        ensure!(said == ("False".to_owned(), "StoreFull".to_owned()), "{said:?}");
        Ok(true)
    })
    .await?;
    lab.why_says("deployment/work", "releases are paused since ").await?;
    ensure!(metric(&lab, r#"tidegate_release_circuit{cluster="hub",state="closed"} 0.0"#).await?);
    // What comes now is not decided; what goes now, decided or not, is not missed.
    lab.pod("late", "1").await?;
    lab.pod("gone", "1").await?;
    lab.why_says("pod/late", "(etcd) is full").await?;
    let decided =
        lab.pods().await?.iter().map(ResourceExt::name_any).find(|n| n.starts_with("work-"));
    lab.delete_pod(&decided.context("no pod of the Deployment")?).await?;
    lab.delete_pod("gone").await?;
    lab.all_gated(6).await?;
    ensure!(behind.proxy.patches() < 40, "{} PATCHes, paused", behind.proxy.patches());

    behind.proxy.every_patch(None);
    wait::until("all that is left is let go", wait::SOON, async || {
        let pods = lab.pods().await?;
        ensure!(!pods.iter().any(is_gated), "one is gated");
        Ok(pods.len() == 6)
    })
    .await?;
    wait::until("the queue says that releases go on", wait::SOON, async || {
        Ok(releasing(&lab).await?.0 == "True")
    })
    .await?;
    let closed = r#"tidegate_release_circuit{cluster="hub",state="closed"} 1.0"#;
    wait::until("the circuit is closed", wait::SOON, async || metric(&lab, closed).await).await?;
    let idle = Lab { namespace: "fault-store-idle".to_owned(), ..lab };
    let status = idle.get_queue("fault-store-idle").await?.status.unwrap_or_default();
    let since = |kind: &str| {
        let found = status.conditions.iter().find(|c| c.type_ == kind);
        found.map(|found| found.last_transition_time.clone())
    };
    ensure!(since("Releasing") == since("Ready"), "nothing waited there, and it was told");
    let lab = Lab { namespace: "fault-store".to_owned(), ..idle };
    lab.usage_is("cpu", "6").await?;
    no_patch_twice_but_lost(&lab, 0).await
}

#[tokio::test]
async fn watches_that_were_cut_and_know_too_little_miss_nothing_that_happened_meanwhile()
-> Result<()> {
    let behind = Behind::start(Proxy::without_bookmarks).await?;
    let lab = Lab::on(&behind.tidegate, "fault-watch", json!({"limit": {"cpu": "2"}})).await?;
    let record = Record::start(lab.pod_api()).await?;
    for (name, open) in [("a", vec!["a"]), ("b", vec!["a", "b"])] {
        lab.pod(name, "1").await?;
        lab.released(&open).await?;
    }
    for name in ["c", "d"] {
        lab.pod(name, "1").await?;
        lab.why_says(&format!("pod/{name}"), "limit of queue").await?;
    }
    // Of the same second the uid would decide, not the age.
    let made = lab.pod_api().get("d").await?.metadata.creation_timestamp;
    let made = made.map_or(0, |made| made.0.as_second());
    wait::until("another second has begun", wait::SOON, async || {
        Ok(jiff::Timestamp::now().as_second() > made)
    })
    .await?;
    behind.proxy.refuse(true);
    behind.proxy.cut();
    lab.delete_pod("a").await?;
    lab.delete_pod("c").await?;
    lab.pod("e", "1").await?;
    behind.proxy.expire_watches(3);
    behind.proxy.refuse(false);
    wait::until("three watches were told to list anew", wait::SOON, async || {
        Ok(behind.proxy.unexpired() == 0)
    })
    .await?;
    lab.released(&["b", "d"]).await?;
    lab.usage_is("cpu", "2").await?;
    lab.why_says("pod/e", "limit of queue").await?;
    ensure!(lab.groups().await?.len() == 3, "{:#?}", lab.groups().await?);
    lab.delete_pod("b").await?;
    lab.released(&["d", "e"]).await?;
    ensure!(record.peak(|_| true) <= 2000, "{} at once", record.peak(|_| true));
    lab.one_patch_each().await
}

#[tokio::test]
async fn a_namespace_that_is_deleted_with_work_at_its_gate_leaves_nothing_behind() -> Result<()> {
    let lab = Lab::new("fault-namespace", json!({"limit": {"cpu": "2"}})).await?;
    lab.opt_in("fault-namespace-left", Some(&lab.namespace)).await?;
    let mut work = job("work", 22, "1", "1h");
    work["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = json!(1);
    lab.create(work).await?;
    lab.usage_is("cpu", "2").await?;
    let left = Lab {
        client: lab.client.clone(),
        namespace: "fault-namespace-left".to_owned(),
        tidegate: lab.tidegate,
    };
    left.pod("next", "1").await?;
    left.why_says("pod/next", "limit of queue").await?;
    let namespaces: Api<Namespace> = Api::all(lab.client.clone());
    namespaces.delete(&lab.namespace, &DeleteParams::default()).await?;
    wait::until("the namespace is gone", wait::SOON, async || {
        Ok(namespaces.get_opt(&lab.namespace).await?.is_none())
    })
    .await?;
    left.released(&["next"]).await?;
    lab.usage_is("cpu", "1").await?;
    wait::until("its groups are gone", wait::SOON, async || Ok(lab.groups().await?.is_empty()))
        .await?;
    let status = lab.get_queue(&lab.namespace).await?.status.unwrap_or_default();
    ensure!(status.pending.pods == 0, "{:?}", status.pending);
    left.one_patch_each().await
}

/// Kubernetes deletes no namespace before it has seen all that is in it, and groups are
/// served by the controller.
#[tokio::test]
async fn a_namespace_that_is_deleted_while_no_controller_runs_goes_when_one_is_back() -> Result<()>
{
    let tidegate = Tidegate::exclusive().await?;
    let lab = Lab::on(&tidegate, "fault-unseen", json!({"stop": "Hold"})).await?;
    lab.pod("waits", "1").await?;
    let namespaces: Api<Namespace> = Api::all(lab.client.clone());
    tidegate.stop_controller("KILL")?;
    wait::until(
        "nobody serves groups",
        wait::SOON,
        async || Ok(!serves_groups(&lab.client).await?),
    )
    .await?;
    namespaces.delete(&lab.namespace, &DeleteParams::default()).await?;
    wait::until("it says that it waits", wait::SOON, async || {
        let status = namespaces.get(&lab.namespace).await?.status.unwrap_or_default();
        let conditions = status.conditions.unwrap_or_default();
        let waits = conditions.iter().find(|c| c.type_ == "NamespaceDeletionDiscoveryFailure");
        Ok(waits.is_some_and(|c| c.status == "True" && message(c).contains("visibility")))
    })
    .await?;
    tidegate.start_controller().await?;
    tidegate.ready().await?;
    wait::until("the namespace is gone", wait::START, async || {
        Ok(namespaces.get_opt(&lab.namespace).await?.is_none())
    })
    .await
}

fn message(condition: &NamespaceCondition) -> &str {
    condition.message.as_deref().unwrap_or_default()
}

/// A quota on pods counts those at their gate. Those it keeps out are made when others end, and only
/// those that were made can go.
#[tokio::test]
async fn a_resource_quota_full_of_gated_pods_lets_all_run_in_the_end() -> Result<()> {
    let lab = Lab::new("fault-quota", json!({"limit": {"cpu": "1"}})).await?;
    lab.create(json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"},
        "spec": {"hard": {"pods": "3"}}}))
        .await?;
    let quota = async || lab.read("v1", "ResourceQuota", "few").await;
    wait::until("the quota is in force", wait::SOON, async || {
        Ok(quota().await?["status"]["hard"]["pods"] == "3")
    })
    .await?;
    let record = Record::start(lab.pod_api()).await?;
    lab.create(job("work", 6, "1", "100ms")).await?;
    lab.completes("work").await?;
    ensure!(record.peak(|_| true) == 1000, "{} at once", record.peak(|_| true));
    let refused = audit::writes(lab.tidegate.cluster())?.into_iter().any(|write| {
        let pod = write.verb == "create" && write.resource == "pods" && write.code == 403;
        pod && write.namespace == lab.namespace
    });
    ensure!(refused, "the quota kept nothing out");
    lab.usage_is("cpu", "0").await?;
    lab.one_patch_each().await
}

/// A policy of somebody else that forbids to change a pod of this label in this namespace.
async fn forbid_changes(lab: &Lab, label: &str) -> Result<()> {
    let name = &lab.namespace;
    lab.create(json!({"apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name}, "spec": {
            "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"],
                "resources": ["pods"], "operations": ["UPDATE"]}]},
            "validations": [{"expression": "false", "message": "not on Mondays"}]}}))
        .await?;
    lab.create(json!({"apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": name}, "spec": {
            "policyName": name, "validationActions": ["Deny"], "matchResources": {
                "objectSelector": {"matchLabels": {label: "yes"}},
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}}}}}))
        .await?;
    Ok(())
}

fn labelled(mut object: Value, label: &str) -> Value {
    object["metadata"]["labels"] = json!({label: "yes"});
    object
}

#[tokio::test]
async fn a_release_that_others_refuse_for_ever_costs_nobody_their_turn() -> Result<()> {
    let lab = Lab::new("fault-refused", json!({"stop": "Hold", "limit": {"cpu": "1"}})).await?;
    forbid_changes(&lab, "cursed").await?;
    lab.create(labelled(bare_pod("cursed", "1"), "cursed")).await?;
    wait::until("the policy is in force", wait::SOON, async || {
        let touch = Patch::Merge(json!({"metadata": {"labels": {"touched": "yes"}}}));
        let params = PatchParams { dry_run: true, ..PatchParams::default() };
        Ok(lab.pod_api().patch("cursed", &params, &touch).await.is_err())
    })
    .await?;
    lab.why_says("pod/cursed", "is stopped").await?;
    lab.create(job("fine", 4, "1", "100ms")).await?;
    lab.set_queue(&lab.namespace, json!({"stop": "None"})).await?;
    lab.why_says("pod/cursed", "not on Mondays").await?;
    lab.completes("fine").await?;
    lab.usage_is("cpu", "0").await?;
    let refused: BTreeMap<String, usize> =
        lab.events().await?.into_iter().fold(BTreeMap::new(), |mut counts, event| {
            *counts.entry(event.reason.unwrap_or_default()).or_default() += 1;
            counts
        });
    ensure!(refused.get("ReleaseRefused") == Some(&1), "{refused:?}");
    let tries = audit::writes(lab.tidegate.cluster())?.into_iter().filter(|write| {
        let ours = write.user.ends_with(":tidegate-controller") && write.resource == "pods";
        ours && write.namespace == lab.namespace && write.code >= 400
    });
    // After 0, 5, 15, 35 s and so on.
    ensure!((1..=5).contains(&tries.count()), "it does not back off");
    let api: Api<ValidatingAdmissionPolicyBinding> = Api::all(lab.client.clone());
    api.delete(&lab.namespace, &DeleteParams::default()).await?;
    lab.released_at_least("cursed").await?;
    lab.usage_is("cpu", "1").await?;
    lab.one_patch_each().await
}

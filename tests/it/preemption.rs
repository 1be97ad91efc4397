//! Room that is made by evictions, for work that has a better right to it.

use std::{collections::BTreeMap, pin::pin};

use anyhow::{Context as _, Result, ensure};
use futures::TryStreamExt as _;
use k8s_openapi::api::{
    core::v1::{Namespace, Pod},
    policy::v1::PodDisruptionBudget,
};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, Patch, PatchParams},
    runtime::watcher,
};
use rstest::rstest;
use serde_json::{Value, json};

use crate::support::{
    audit::{self, Write},
    lab::{Lab, bare_pod, deployment, is_gated},
    wait,
};

/// Evictions that we asked for in the namespace of a lab and that were done.
fn evictions(lab: &Lab) -> Result<Vec<Write>> {
    let mut writes = audit::writes(lab.tidegate.cluster())?;
    writes.retain(|write| {
        write.resource == "pods/eviction"
            && write.namespace == lab.namespace
            && write.user.ends_with(":tidegate-controller")
            && write.code < 300
    });
    Ok(writes)
}

/// A queue with 400m of its own, below which `lent` runs a Deployment on all of it and `own` is
/// guaranteed half of it.
async fn lent_and_own(name: &str, min_runtime: &str) -> Result<(Lab, Lab)> {
    let room = json!({"guaranteed": {"cpu": "400m"}, "limit": {"cpu": "400m"}});
    Lab::shared_client().await?.queue(name, room).await?;
    let preemption = json!({"minRuntime": min_runtime});
    let lent = json!({"parent": name, "preemption": preemption});
    let lent = Lab::new(&format!("{name}-lent"), lent).await?;
    let own = json!({"parent": name, "guaranteed": {"cpu": "200m"}});
    let own = Lab::new(&format!("{name}-own"), own).await?;
    lent.create(deployment("web", 4, "100m")).await?;
    open(&lent, 4).await?;
    Ok((lent, own))
}

/// Waits until so many pods of a namespace, not on their way out, have their gate open.
async fn open(lab: &Lab, count: usize) -> Result<()> {
    wait::until(&format!("{count} gates are open"), wait::SOON, async || {
        let pods = lab.pods().await?;
        let stays = |pod: &&Pod| pod.metadata.deletion_timestamp.is_none() && !is_gated(pod);
        let open = pods.iter().filter(stays).count();
        ensure!(open == count, "{open} are");
        Ok(true)
    })
    .await
}

#[tokio::test]
async fn a_guarantee_is_taken_back_and_what_was_evicted_waits_again() -> Result<()> {
    let (lent, own) = lent_and_own("take", "0s").await?;
    own.pod("train", "200m").await?;
    own.released_at_least("train").await?;
    open(&lent, 2).await?;
    wait::until("the Deployment has its pods again, gated", wait::SOON, async || {
        let gated = lent.pods().await?.iter().filter(|pod| is_gated(pod)).count();
        ensure!(gated == 2, "{gated} are gated");
        Ok(true)
    })
    .await?;
    lent.why_says("deployment/web", "limit of queue \"take\"").await?;
    ensure!(evictions(&lent)?.len() == 2, "{:?}", evictions(&lent)?);
    let told = |event: &_| {
        let event: &k8s_openapi::api::core::v1::Event = event;
        event.reason.as_deref() == Some("Preempted")
            && event.involved_object.name.as_deref() == Some("web")
    };
    wait::until("it is told to whom it concerns", wait::SOON, async || {
        Ok(lent.events().await?.iter().any(told))
    })
    .await?;
    // Nothing more is due to it.
    own.pod("more", "100m").await?;
    own.why_says("pod/more", "limit of queue \"take\"").await?;
    open(&lent, 2).await?;
    ensure!(evictions(&lent)?.len() == 2, "{:?}", evictions(&lent)?);
    lent.no_patch_twice()
}

#[tokio::test]
async fn work_runs_for_its_time_before_it_is_evicted() -> Result<()> {
    let (lent, own) = lent_and_own("young", "1h").await?;
    own.pod("train", "200m").await?;
    own.why_says("pod/train", "limit of queue \"young\"").await?;
    lent.set_queue("young-lent", json!({"preemption": {"minRuntime": "1s"}})).await?;
    own.released_at_least("train").await?;
    ensure!(evictions(&lent)?.len() == 2, "{:?}", evictions(&lent)?);
    Ok(())
}

/// A `PodDisruptionBudget` in the namespace of a lab that lets nothing go, counted already.
async fn guard(lab: &Lab, app: &str, pods: i32) -> Result<Api<PodDisruptionBudget>> {
    lab.create(json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": app},
        "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": app}}}}))
        .await?;
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(lab.client.clone(), &lab.namespace);
    wait::until("the budget is counted", wait::SOON, async || {
        let status = budgets.get(app).await?.status.unwrap_or_default();
        Ok(status.current_healthy == Some(pods))
    })
    .await?;
    Ok(budgets)
}

/// Waits until a group of the lab was told of something by an Event that says so.
async fn is_told(lab: &Lab, reason: &str, text: &str) -> Result<()> {
    wait::until(&format!("an Event {reason}"), wait::SOON, async || {
        let events = lab.events().await?;
        let of_reason = events.iter().filter(|event| event.reason.as_deref() == Some(reason));
        let said: Vec<_> = of_reason.filter_map(|event| event.message.as_deref()).collect();
        ensure!(said.iter().any(|said| said.contains(text)), "{said:?}");
        Ok(true)
    })
    .await
}

#[tokio::test]
async fn what_a_budget_guards_stays_until_it_may_go() -> Result<()> {
    let (lent, own) = lent_and_own("guarded", "0s").await?;
    let budgets = guard(&lent, "web", 4).await?;
    own.pod("train", "200m").await?;
    own.why_says("pod/train", "evictions for it refused by a PodDisruptionBudget: 4").await?;
    lent.why_says("deployment/web", "refused by a PodDisruptionBudget: The disruption budget web")
        .await?;
    is_told(&lent, "EvictionRefused", "by a PodDisruptionBudget: The disruption budget web")
        .await?;
    open(&lent, 4).await?;
    budgets.delete("web", &DeleteParams::default()).await?;
    own.released_at_least("train").await?;
    ensure!(evictions(&lent)?.len() == 2, "{:?}", evictions(&lent)?);
    Ok(())
}

#[tokio::test]
async fn a_budget_of_one_tenant_does_not_hold_off_what_another_may_give() -> Result<()> {
    let room = json!({"guaranteed": {"cpu": "400m"}, "limit": {"cpu": "400m"}});
    Lab::shared_client().await?.queue("evades", room).await?;
    let lent = json!({"parent": "evades", "preemption": {"minRuntime": "0s"}});
    // Uses most, so it is taken from first.
    let held = Lab::new("evades-held", lent.clone()).await?;
    let open_to = Lab::new("evades-open", lent).await?;
    let own = json!({"parent": "evades", "guaranteed": {"cpu": "55m"}});
    let own = Lab::new("evades-own", own).await?;
    held.create(deployment("web", 4, "55m")).await?;
    open(&held, 4).await?;
    open_to.create(deployment("web", 3, "60m")).await?;
    open(&open_to, 3).await?;
    guard(&held, "web", 4).await?;
    own.pod("train", "55m").await?;
    own.released_at_least("train").await?;
    open(&held, 4).await?;
    open(&open_to, 2).await?;
    ensure!(evictions(&open_to)?.len() == 1, "{:?}", evictions(&open_to)?);
    Ok(())
}

#[tokio::test]
async fn what_is_drained_and_guarded_is_told() -> Result<()> {
    let lab = Lab::new("drained-held", json!({})).await?;
    lab.create(deployment("web", 2, "10m")).await?;
    open(&lab, 2).await?;
    let budgets = guard(&lab, "web", 2).await?;
    lab.set_queue("drained-held", json!({"stop": "HoldAndDrain"})).await?;
    is_told(&lab, "EvictionRefused", "by a PodDisruptionBudget: The disruption budget web").await?;
    lab.why_says("deployment/web", "(and 1 more): refused by a PodDisruptionBudget").await?;
    budgets.delete("web", &DeleteParams::default()).await?;
    lab.all_gated(2).await?;
    let said = lab.why("deployment/web").await?;
    ensure!(!said.contains("PodDisruptionBudget"), "{said}");
    Ok(())
}

#[tokio::test]
async fn who_is_evicted_has_half_an_hour_to_end_at_most() -> Result<()> {
    let lab = Lab::new("lingers", json!({})).await?;
    let pod = |name: &str, grace: i64| {
        let mut pod = bare_pod(name, "10m");
        pod["spec"]["terminationGracePeriodSeconds"] = json!(grace);
        pod
    };
    lab.create(pod("long", 1_000_000)).await?;
    lab.create(pod("short", 7)).await?;
    lab.released(&["long", "short"]).await?;
    wait::until("both are on a node", wait::SOON, async || {
        let pods = lab.pods().await?;
        let on_node = |pod: &Pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
        Ok(pods.iter().all(on_node))
    })
    .await?;
    // Whoever plays the kubelet ends them at once: what they were given is seen on the way.
    let seen = tokio::spawn(graces(lab.pod_api()));
    lab.set_queue("lingers", json!({"stop": "HoldAndDrain"})).await?;
    let seen = seen.await??;
    ensure!(seen == [("long".to_owned(), 1_800), ("short".to_owned(), 7)].into(), "{seen:?}");
    Ok(())
}

/// How long each of two pods is first given to end.
async fn graces(pods: Api<Pod>) -> Result<BTreeMap<String, i64>> {
    let mut seen = BTreeMap::new();
    let mut changes = pin!(watcher(pods, watcher::Config::default()));
    while seen.len() < 2 {
        let change = tokio::time::timeout(wait::SOON, changes.try_next()).await?;
        let change = change?.context("the watch ended")?;
        if let watcher::Event::Apply(pod) | watcher::Event::InitApply(pod) = change
            && let Some(grace) = pod.metadata.deletion_grace_period_seconds
        {
            seen.entry(pod.name_any()).or_insert(grace);
        }
    }
    Ok(seen)
}

#[tokio::test]
async fn a_queue_that_is_drained_is_emptied_and_its_work_waits() -> Result<()> {
    let lab = Lab::new("drained", json!({})).await?;
    lab.create(deployment("web", 3, "10m")).await?;
    open(&lab, 3).await?;
    lab.create(labelled("stays", "tidegate.dev/preemptible", "true")).await?;
    lab.released_at_least("stays").await?;
    lab.set_queue("drained", json!({"stop": "HoldAndDrain"})).await?;
    wait::until("all wait again", wait::SOON, async || {
        let pods = lab.pods().await?;
        ensure!(pods.len() == 3 && pods.iter().all(is_gated), "{} pods", pods.len());
        Ok(true)
    })
    .await?;
    ensure!(evictions(&lab)?.len() == 4, "{:?}", evictions(&lab)?);
    lab.why_says("deployment/web", "is stopped").await?;
    lab.set_queue("drained", json!({"stop": "None"})).await?;
    open(&lab, 3).await
}

#[tokio::test]
async fn who_joins_what_runs_neither_protects_it_nor_goes_before_others() -> Result<()> {
    let room = json!({"guaranteed": {"cpu": "400m"}, "limit": {"cpu": "400m"}});
    Lab::shared_client().await?.queue("joins", room).await?;
    let lent = json!({"parent": "joins", "preemption": {"minRuntime": "0s"}});
    let lent = Lab::new("joins-lent", lent).await?;
    let own = json!({"parent": "joins", "guaranteed": {"cpu": "200m"}});
    let own = Lab::new("joins-own", own).await?;
    let member = |name: &str| {
        let mut pod = bare_pod(name, "100m");
        pod["metadata"]["annotations"]["tidegate.dev/group"] = "big".into();
        pod
    };
    for name in ["one", "two", "three", "four"] {
        lent.create(member(name)).await?;
    }
    open(&lent, 4).await?;
    let mut joins = member("joins");
    joins["metadata"]["annotations"]["tidegate.dev/min-count"] = "1000".into();
    joins["metadata"]["labels"] = json!({"tidegate.dev/preemptible": "false"});
    lent.create(joins).await?;
    lent.why_says("pod/joins", "each pod on its own, may be evicted: kept since it began").await?;
    own.pod("train", "200m").await?;
    own.released_at_least("train").await?;
    open(&lent, 2).await?;
    ensure!(evictions(&lent)?.len() == 2, "{:?}", evictions(&lent)?);
    let pods = lent.pods().await?;
    let waits = |pod: &&Pod| pod.metadata.name.as_deref() == Some("joins") && is_gated(pod);
    ensure!(pods.iter().filter(waits).count() == 1, "what joined went before others");
    lent.no_patch_twice()
}

#[tokio::test]
async fn what_ran_before_its_namespace_opted_in_is_charged_and_never_evicted() -> Result<()> {
    let room = json!({"guaranteed": {"cpu": "400m"}, "limit": {"cpu": "400m"}});
    Lab::shared_client().await?.queue("settled", room).await?;
    let lent = json!({"parent": "settled", "preemption": {"minRuntime": "0s"}});
    let lent = Lab::new("settled-lent", lent).await?;
    let own = json!({"parent": "settled", "guaranteed": {"cpu": "400m"}});
    let own = Lab::new("settled-own", own).await?;
    let namespaces: Api<Namespace> = Api::all(lent.client.clone());
    let label = async |value: Value| {
        let patch = Patch::Merge(json!({"metadata": {"labels": {"tidegate.dev/managed": value}}}));
        namespaces.patch(&lent.namespace, &PatchParams::default(), &patch).await
    };
    label(Value::Null).await?;
    lent.create(bare_pod("settled", "200m")).await?;
    open(&lent, 1).await?;
    label("true".into()).await?;
    lent.usage_is("cpu", "200m").await?;
    lent.pod("lent", "200m").await?;
    lent.released_at_least("lent").await?;
    own.pod("first", "200m").await?;
    own.released_at_least("first").await?;
    own.pod("second", "200m").await?;
    own.why_says("pod/second", "limit of queue \"settled\"").await?;
    let evicted: Vec<String> = evictions(&lent)?.into_iter().map(|write| write.name).collect();
    ensure!(evicted == ["lent"], "{evicted:?}");
    Ok(())
}

fn labelled(name: &str, key: &str, value: &str) -> Value {
    let mut pod = bare_pod(name, "100m");
    pod["metadata"]["labels"] = json!({key: value});
    pod
}

#[tokio::test]
async fn a_higher_priority_takes_from_a_lower_where_the_queue_wants_that() -> Result<()> {
    let preemption = json!({"withinQueue": "LowerPriority", "minRuntime": "0s"});
    let queue = json!({"limit": {"cpu": "200m"}, "preemption": preemption});
    let lab = Lab::new("priority", queue).await?;
    lab.create(json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
        "metadata": {"name": "priority-high"}, "value": 1000}))
        .await?;
    lab.create(json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
        "metadata": {"name": "priority-polite"}, "value": 900, "preemptionPolicy": "Never"}))
        .await?;
    lab.create(labelled("early", "tidegate.dev/preemptible", "true")).await?;
    lab.released(&["early"]).await?;
    lab.pod("later", "100m").await?;
    lab.released(&["later", "early"]).await?;
    let mut polite = bare_pod("polite", "100m");
    polite["spec"]["priorityClassName"] = json!("priority-polite");
    lab.create(polite).await?;
    lab.why_says("pod/polite", "limit of queue").await?;
    let mut high = bare_pod("high", "100m");
    high["spec"]["priorityClassName"] = json!("priority-high");
    lab.create(high).await?;
    lab.released_at_least("high").await?;
    let evicted: Vec<String> = evictions(&lab)?.into_iter().map(|write| write.name).collect();
    ensure!(evicted == ["later"], "{evicted:?}");
    lab.delete_pod("early").await?;
    lab.released_at_least("polite").await
}

#[tokio::test]
async fn work_that_may_not_be_evicted_starts_only_within_what_is_its_queues_own() -> Result<()> {
    let lab = Lab::new("pinned", json!({"guaranteed": {"cpu": "100m"}})).await?;
    let once = |name: &str| {
        let mut pod = bare_pod(name, "100m");
        pod["metadata"]["annotations"] = json!({"tidegate.dev/run": "AtMostOnce"});
        pod
    };
    lab.create(labelled("first", "tidegate.dev/preemptible", "false")).await?;
    lab.released(&["first"]).await?;
    lab.create(once("second")).await?;
    let why = "may not be preempted and is more than queue \"pinned\" has of its own";
    lab.why_says("pod/second", why).await?;
    lab.create(labelled("third", "tidegate.dev/preemptible", "maybe")).await?;
    lab.released(&["first", "third"]).await?;
    lab.why_says("pod/third", "label tidegate.dev/preemptible=\"maybe\"").await?;
    lab.delete_pod("first").await?;
    lab.delete_pod("third").await?;
    lab.released_at_least("second").await
}

#[tokio::test]
async fn one_of_a_key_runs_at_a_time_in_a_queue() -> Result<()> {
    let lab = Lab::new("single", json!({})).await?;
    let keyed = |name: &str, key: &str| labelled(name, "tidegate.dev/singleton", key);
    lab.create(keyed("first", "db")).await?;
    lab.released(&["first"]).await?;
    lab.create(keyed("second", "db")).await?;
    lab.why_says("pod/second", "another group of its singleton key runs in the queue").await?;
    lab.create(keyed("other", "cache")).await?;
    lab.released(&["first", "other"]).await?;
    lab.delete_pod("first").await?;
    lab.released(&["other", "second"]).await
}

#[rstest]
#[case::groups("groups", "most-groups")]
#[case::pods("pods", "most-pods")]
#[tokio::test]
async fn so_many_run_at_a_time_as_the_queue_says(
    #[case] field: &str,
    #[case] name: &str,
) -> Result<()> {
    let lab = Lab::new(name, json!({"maxRunning": {field: 1}})).await?;
    lab.pod("first", "10m").await?;
    lab.released(&["first"]).await?;
    lab.pod("second", "10m").await?;
    lab.why_says("pod/second", &format!("limit of queue {name:?}: needs 1 {field}")).await?;
    lab.set_queue(name, json!({"maxRunning": {field: 2}})).await?;
    lab.released(&["first", "second"]).await
}

#[rstest]
#[case::words("ten minutes", false)]
#[case::negative("-1s", false)]
#[case::no_unit("10", false)]
#[case::a_year("8761h", false)]
#[case::zero("0s", true)]
#[case::mixed("1h30m", true)]
#[case::fraction("1.5h", true)]
#[tokio::test]
async fn a_shortest_time_is_a_duration_of_a_year_at_most(
    #[case] text: &str,
    #[case] good: bool,
) -> Result<()> {
    let lab = Lab::shared_client().await?;
    let name = format!("least-{:x}", text.bytes().fold(7_u64, |sum, b| sum * 31 + u64::from(b)));
    let answer = lab.queue(&name, json!({"preemption": {"minRuntime": text}})).await;
    ensure!(answer.is_ok() == good, "{text}: {answer:?}");
    Ok(())
}

#[rstest]
#[case::part(json!({"guaranteed": {"cpu": "4m"}, "lendable": {"cpu": "1500u"}}), true)]
#[case::more(json!({"guaranteed": {"cpu": "4m"}, "lendable": {"cpu": "5m"}}), false)]
#[case::of_nothing(json!({"lendable": {"cpu": "1m"}}), false)]
#[tokio::test]
async fn what_is_lent_is_part_of_what_is_guaranteed(
    #[case] spec: Value,
    #[case] good: bool,
) -> Result<()> {
    let lab = Lab::shared_client().await?;
    let name = format!("lends-{}", spec.to_string().len());
    let mut spec = spec;
    spec["stop"] = json!("Hold");
    spec["guaranteed"]["example.com/none"] = json!(0);
    let answer = lab.queue(&name, spec).await;
    ensure!(answer.is_ok() == good, "{answer:?}");
    Ok(())
}

#[tokio::test]
async fn the_status_shows_what_a_queue_is_entitled_to() -> Result<()> {
    let lab = Lab::new("entitled", json!({"limit": {"cpu": "100m"}})).await?;
    lab.pod("runs", "100m").await?;
    lab.pod("waits", "100m").await?;
    wait::until("its entitlement is its limit", wait::SOON, async || {
        let status = lab.get_queue("entitled").await?.status.unwrap_or_default();
        let cpu = status.entitlement.get("cpu").cloned();
        ensure!(cpu.as_deref() == Some("100m"), "it is {:?}", status.entitlement);
        Ok(true)
    })
    .await
}

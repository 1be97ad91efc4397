//! Parts that are killed while work waits and runs: nothing is lost, nothing is
//! let go twice, no limit is passed.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use serde_json::{Value, json};
use tidegate::quantity;

use crate::support::{
    audit,
    cluster::Component,
    lab::{Lab, bare_pod, deployment, is_gated, job},
    record::Record,
    tidegate::Tidegate,
    wait,
};

/// All that the controller says of a namespace and of these queues, by its own words.
async fn said(lab: &Lab, queues: &[&str]) -> Result<(Vec<Value>, Vec<String>)> {
    let mut groups = lab.groups().await?;
    groups.sort_by_key(|group| group["metadata"]["name"].to_string());
    let (_, metrics) = lab.tidegate.get("/metrics").await?;
    let about = |line: &&str| {
        line.starts_with("tidegate_queue_")
            && queues.iter().any(|queue| line.contains(&format!("queue=\"{queue}\"")))
    };
    Ok((groups, metrics.lines().filter(about).map(str::to_owned).collect()))
}

/// Waits until this many pods hold room and this many wait, as the controller sees it.
async fn stands(lab: &Lab, holding: u64, waiting: u64) -> Result<()> {
    wait::until(&format!("{holding} hold room and {waiting} wait"), wait::SOON, async || {
        let groups = lab.groups().await?;
        let sum = |key: &str| groups.iter().filter_map(|g| g["counts"][key].as_u64()).sum::<u64>();
        let now = (sum("released") + sum("running"), sum("waiting"));
        ensure!(now == (holding, waiting), "{now:?} do: {groups:#?}");
        Ok(true)
    })
    .await
}

fn with_priority(mut object: Value, class: &str) -> Value {
    let spec = match object["kind"].as_str() {
        Some("Pod") => &mut object["spec"],
        _ => &mut object["spec"]["template"]["spec"],
    };
    spec["priorityClassName"] = json!(class);
    object
}

fn in_queue(mut object: Value, queue: &str) -> Value {
    object["metadata"]["labels"] = json!({"tidegate.dev/queue": queue});
    object
}

async fn priority_class(lab: &Lab, name: &str, value: i32) -> Result<()> {
    let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
        "metadata": {"name": name}, "value": value});
    lab.create(class).await.map(drop)
}

#[tokio::test]
async fn a_killed_controller_comes_back_to_the_same_usage_the_same_queues_and_the_same_reasons()
-> Result<()> {
    let tidegate = Tidegate::exclusive().await?;
    let lab = Lab::on(&tidegate, "back-same", json!({"limit": {"cpu": "3"}})).await?;
    lab.queue("back-frozen", json!({"limit": {"cpu": "1"}})).await?;
    lab.queue("back-moved", json!({"stop": "Hold"})).await?;
    priority_class(&lab, "back-urgent", 1000).await?;
    // Let go and without a node: charged, but not running.
    let mut nowhere = bare_pod("nowhere", "1");
    nowhere["spec"]["nodeSelector"] = json!({"none": "such"});
    lab.create(nowhere).await?;
    stands(&lab, 1, 0).await?;
    lab.create(deployment("serves", 3, "1")).await?;
    lab.create(in_queue(job("frozen", 2, "1", "1h"), "back-frozen")).await?;
    // Two jobs of one second go by uid: the first has its place before the second exists.
    stands(&lab, 4, 2).await?;
    lab.create(in_queue(job("moves", 2, "1", "1h"), "back-frozen")).await?;
    stands(&lab, 4, 4).await?;
    lab.create(with_priority(bare_pod("urgent", "1"), "back-urgent")).await?;
    stands(&lab, 4, 5).await?;
    let queues = ["back-same", "back-frozen", "back-moved"];
    let before = said(&lab, &queues).await?;

    tidegate.restart_controller().await?;
    tidegate.synced().await?;
    wait::until("it says the same as before", wait::SOON, async || {
        let now = said(&lab, &queues).await?;
        ensure!(now == before, "before: {before:#?}\nnow: {now:#?}");
        Ok(true)
    })
    .await?;

    // What was started keeps its queue whatever its root says now; what was not moves.
    tidegate.stop_controller("KILL")?;
    lab.relabel("batch/v1", "Job", "frozen", "back-moved").await?;
    lab.relabel("batch/v1", "Job", "moves", "back-moved").await?;
    tidegate.start_controller().await?;
    tidegate.synced().await?;
    lab.why_says("job/frozen", "queue back-frozen: kept since the first release").await?;
    lab.why_says("job/moves", "queue \"back-moved\" is stopped").await?;
    lab.set_queue("back-frozen", json!({"limit": {"cpu": "2"}})).await?;
    lab.set_queue("back-same", json!({"limit": {"cpu": "5"}})).await?;
    stands(&lab, 7, 2).await?;
    let pods = lab.pods().await?;
    let frozen = pods.iter().filter(|pod| pod.name_any().starts_with("frozen-"));
    for pod in frozen {
        let released = &pod.annotations()["tidegate.dev/released"];
        ensure!(released.contains(r#""queue":"back-frozen""#), "{released}");
    }
    lab.no_patch_twice()?;
    told_once(&lab).await
}

/// Nobody is told the same of a group twice, by whichever process.
async fn told_once(lab: &Lab) -> Result<()> {
    let mut told = BTreeMap::<String, Vec<String>>::new();
    for event in lab.events().await? {
        let about = event.involved_object.name.unwrap_or_default();
        told.entry(about).or_default().push(event.reason.unwrap_or_default());
    }
    ensure!(told.contains_key("frozen"), "{told:?}");
    for (about, reasons) in told {
        let different: BTreeSet<&String> = reasons.iter().collect();
        ensure!(different.len() == reasons.len() && reasons.len() <= 3, "{about}: {reasons:?}");
    }
    Ok(())
}

/// A pod's place: priority, age, uid.
type Turn = (Reverse<i32>, i64, String, String);

/// The order in which one queue lets single pods go: of groups by the priority of their
/// next pod, the age of their oldest and their root's uid; in a group by priority, age, uid.
fn expected_order(pods: &[Pod]) -> Vec<String> {
    let mut groups = BTreeMap::<String, Vec<Turn>>::new();
    for pod in pods {
        let uid = pod.uid().unwrap_or_default();
        let root = pod.owner_references().first().map_or_else(|| uid.clone(), |o| o.uid.clone());
        let priority = pod.spec.as_ref().and_then(|spec| spec.priority).unwrap_or_default();
        let created = pod.creation_timestamp().map_or(0, |time| time.0.as_second());
        let turn = (Reverse(priority), created, uid, pod.name_any());
        groups.entry(root).or_default().push(turn);
    }
    for turns in groups.values_mut() {
        turns.sort();
    }
    let mut order = Vec::new();
    loop {
        let next = groups.iter().filter_map(|(root, turns)| {
            let oldest = turns.iter().map(|turn| turn.1).min()?;
            Some(((turns.first()?.0, oldest, root.clone()), root.clone()))
        });
        let Some((_, root)) = next.min() else { return order };
        if let Some(turns) = groups.get_mut(&root) {
            order.push(turns.remove(0).3);
        }
    }
}

#[tokio::test]
async fn a_controller_killed_again_and_again_lets_work_go_in_the_order_of_one_that_lived()
-> Result<()> {
    let tidegate = Tidegate::exclusive().await?;
    let lab =
        Lab::on(&tidegate, "back-order", json!({"stop": "Hold", "limit": {"cpu": "1"}})).await?;
    priority_class(&lab, "back-order-high", 100).await?;
    let record = Record::start(lab.pod_api()).await?;
    for name in ["a", "b", "c"] {
        lab.create(job(name, 2, "1", "100ms")).await?;
    }
    lab.create(with_priority(job("high", 2, "1", "100ms"), "back-order-high")).await?;
    for name in ["x", "y"] {
        lab.create(brief_pod(name)).await?;
    }
    lab.create(with_priority(brief_pod("z"), "back-order-high")).await?;
    let pods = lab.all_gated(11).await?;
    let expected = expected_order(&pods);
    stands(&lab, 0, 11).await?;
    lab.set_queue(&lab.namespace, json!({"stop": "None"})).await?;
    for count in [2, 5, 8] {
        record.has_released(count).await?;
        tidegate.restart_controller().await?;
    }
    record.has_released(expected.len()).await?;
    ensure!(record.released() == expected, "{:?} is not {expected:?}", record.released());
    ensure!(record.peak(|_| true) == 1000, "more than one at a time");
    lab.no_patch_twice()
}

/// What a queue's own groups used of CPU before, in nano cores, and until when; once it is known to
/// be something later than that.
async fn past(lab: &Lab, after: &str) -> Result<(i128, String)> {
    wait::for_some("the past is written", wait::SOON, async || {
        let status = lab.get_queue(&lab.namespace).await?.status.unwrap_or_default();
        let Some(past) = status.past_usage.filter(|past| *past.as_of > *after) else {
            return Ok(None);
        };
        let Some(cpu) = past.own.get("cpu") else { return Ok(None) };
        Ok(Some((quantity::parse(cpu)?.nanos(), past.as_of)))
    })
    .await
}

#[tokio::test]
async fn what_a_queue_used_is_known_to_the_controller_after_one_that_was_killed() -> Result<()> {
    let tidegate = Tidegate::exclusive().await?;
    let lab = Lab::on(&tidegate, "back-past", json!({"usageHalfLife": "168h"})).await?;
    lab.create(bare_pod("works", "1")).await?;
    lab.released(&["works"]).await?;
    let (used, until) = past(&lab, "").await?;
    tidegate.stop_controller("KILL")?;
    lab.delete_pod("works").await?;
    tidegate.start_controller().await?;
    tidegate.synced().await?;
    let (remembered, _) = past(&lab, &until).await?;
    ensure!(used > 0 && remembered > used * 99 / 100, "{remembered} of {used} nano cores");
    Ok(())
}

fn brief_pod(name: &str) -> Value {
    let mut pod = bare_pod(name, "1");
    pod["metadata"]["annotations"] = json!({"fake.tidegate.dev/duration": "100ms"});
    pod["spec"]["restartPolicy"] = json!("Never");
    pod
}

#[tokio::test]
async fn limits_hold_at_every_moment_while_the_controller_is_killed_in_the_rush() -> Result<()> {
    let tidegate = Tidegate::exclusive().await?;
    let lab = Lab::on(&tidegate, "back-rush", json!({"limit": {"cpu": "5"}})).await?;
    for (name, weight) in [("left", 2), ("right", 1)] {
        let spec = json!({"parent": "back-rush", "weight": weight, "limit": {"cpu": "4"}});
        wait::until("the parent is known", wait::SOON, async || {
            lab.queue(&format!("back-rush-{name}"), spec.clone()).await?;
            Ok(true)
        })
        .await?;
    }
    let record = Record::start(lab.pod_api()).await?;
    for name in ["left", "right"] {
        lab.create(in_queue(job(name, 24, "1", "200ms"), &format!("back-rush-{name}"))).await?;
    }
    for count in [1, 8, 16, 24, 32] {
        record.has_released(count).await?;
        tidegate.restart_controller().await?;
    }
    lab.completes("left").await?;
    lab.completes("right").await?;
    ensure!(record.peak(|_| true) <= 5000, "the parent held {}", record.peak(|_| true));
    for name in ["left-", "right-"] {
        let peak = record.peak(|pod| pod.starts_with(name));
        ensure!(peak <= 4000, "{name} held {peak}");
    }
    lab.usage_is("cpu", "0").await?;
    lab.no_patch_twice()
}

/// A Job of many short pods, three at a time.
async fn busy(lab: &Lab) -> Result<Record> {
    let record = Record::start(lab.pod_api()).await?;
    lab.create(job("busy", 18, "1", "200ms")).await?;
    record.has_released(4).await?;
    Ok(record)
}

/// The Job ends, and no more than the limit ever ran.
async fn ended(lab: &Lab, record: &Record) -> Result<()> {
    lab.completes("busy").await?;
    let pods = lab.pods().await?;
    ensure!(pods.len() == 18, "{} pods", pods.len());
    ensure!(!pods.iter().any(is_gated), "one is left at its gate");
    ensure!(record.peak(|_| true) <= 3000, "{} ran at once", record.peak(|_| true));
    lab.usage_is("cpu", "0").await?;
    lab.no_patch_twice()
}

#[tokio::test]
async fn an_apiserver_or_etcd_that_dies_in_the_rush_loses_nothing() -> Result<()> {
    let tidegate = Tidegate::exclusive().await?;
    for (name, component) in
        [("gone-apiserver", Component::ApiServer), ("gone-etcd", Component::Etcd)]
    {
        let lab = Lab::on(&tidegate, name, json!({"limit": {"cpu": "3"}})).await?;
        let record = busy(&lab).await?;
        let cluster = tidegate.cluster();
        cluster.kill(component).await?;
        cluster.start_component(component).await?;
        // They would look again by themselves, in their own time.
        for component in [Component::ControllerManager, Component::Scheduler] {
            cluster.restart(component).await?;
        }
        ended(&lab, &record).await.context(name)?;
        tidegate.check()?;
    }
    Ok(())
}

#[tokio::test]
async fn a_webhook_that_dies_while_pods_are_made_delays_them_and_nobody_else() -> Result<()> {
    let tidegate = Tidegate::exclusive().await?;
    let lab = Lab::on(&tidegate, "gone-webhook", json!({"limit": {"cpu": "3"}})).await?;
    lab.namespace("gone-webhook-outside", BTreeMap::new()).await?;
    let outside = Lab { namespace: "gone-webhook-outside".to_owned(), ..lab_of(&lab) };
    let record = Record::start(lab.pod_api()).await?;
    let mut object = job("busy", 18, "1", "200ms");
    object["spec"]["parallelism"] = json!(4);
    lab.create(object).await?;
    record.has_released(4).await?;
    tidegate.stop_webhook("KILL")?;
    wait::until("a pod of the Job is refused, and told by whom", wait::SOON, async || {
        let writes = audit::writes(tidegate.cluster())?;
        Ok(writes.iter().any(|write| {
            let pod = write.verb == "create" && write.resource == "pods" && write.code >= 500;
            pod && write.namespace == lab.namespace
        }))
    })
    .await?;
    outside.create(job("free", 2, "1", "200ms")).await?;
    outside.completes("free").await?;
    tidegate.start_webhook().await?;
    ended(&lab, &record).await
}

fn lab_of(lab: &Lab) -> Lab {
    Lab { client: lab.client.clone(), namespace: lab.namespace.clone(), tidegate: lab.tidegate }
}

#[tokio::test]
async fn a_gang_whose_release_was_cut_in_two_is_whole_before_anything_else_goes() -> Result<()> {
    let tidegate = Tidegate::exclusive().await?;
    let lab =
        Lab::on(&tidegate, "back-gang", json!({"stop": "Hold", "limit": {"cpu": "10"}})).await?;
    priority_class(&lab, "back-gang-urgent", 1000).await?;
    let mut gang = job("gang", 100, "100m", "1h");
    gang["metadata"]["annotations"] = json!({"tidegate.dev/min-count": "100"});
    lab.create(gang).await?;
    stands(&lab, 0, 100).await?;
    let record = Record::start(lab.pod_api()).await?;
    lab.set_queue(&lab.namespace, json!({"stop": "None"})).await?;
    record.has_released(1).await?;
    tidegate.stop_controller("KILL")?;
    lab.create(with_priority(job("urgent", 20, "100m", "1h"), "back-gang-urgent")).await?;
    wait::until("all pods are made", wait::SOON, async || Ok(lab.pods().await?.len() == 120))
        .await?;
    let cut = record.released().len();
    ensure!(cut < 100, "the kill came too late");
    tidegate.start_controller().await?;
    record.has_released(100).await?;
    let urgent = record.released().iter().filter(|name| name.starts_with("urgent-")).count();
    ensure!(urgent == 0, "{urgent} went into the gap of {}", 100 - cut);
    stands(&lab, 100, 20).await?;
    ensure!(record.peak(|_| true) == 10_000, "{} at once", record.peak(|_| true));
    lab.no_patch_twice()
}

//! Two controllers: one decides, the other looks on and takes over; who was thought dead
//! and wakes lets nothing go.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use jiff::Timestamp;
use k8s_openapi::api::{
    coordination::v1::{Lease, LeaseSpec},
    core::v1::{ConfigMap, Namespace},
};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::json;
use tidegate::api::refusals::FENCED;

use crate::support::{
    audit,
    lab::{Lab, job},
    proxy::{Fault, Proxy},
    record::Record,
    replicas::Replicas,
    tidegate::{NAMESPACE, Tidegate},
    wait,
};

/// No machine is so slow that such a Lease is lost, and nobody waits until it expires.
const LONG: &[&str] = &["--leader-elect-lease-duration=10m", "--leader-elect-renew-deadline=9m"];
/// For tests that wait until it expires. A slow machine must not lose it without need.
const SHORT: &[&str] = &[
    "--leader-elect-lease-duration=7s",
    "--leader-elect-renew-deadline=6s",
    "--leader-elect-retry-period=500ms",
];

/// How long a controller waits for the answer to a release.
const ANSWER: Duration = Duration::from_secs(15);

async fn lease(lab: &Lab) -> Result<LeaseSpec> {
    let leases: Api<Lease> = Api::namespaced(lab.client.clone(), NAMESPACE);
    leases.get("tidegate-controller").await?.spec.context("no spec")
}

fn epochs(lab: &Lab) -> Api<ConfigMap> {
    Api::namespaced(lab.client.clone(), NAMESPACE)
}

async fn epoch(lab: &Lab) -> Result<u64> {
    let data = epochs(lab).get("tidegate-epoch").await?.data.unwrap_or_default();
    Ok(data.get("epoch").context("no epoch")?.parse()?)
}

/// Release PATCHes of a namespace that the apiserver accepted, by epoch and time.
fn accepted(lab: &Lab) -> Result<Vec<(u64, Timestamp)>> {
    answered(lab, |code| code < 300)
}

/// Those that it answered so.
fn answered(lab: &Lab, so: impl Fn(i64) -> bool) -> Result<Vec<(u64, Timestamp)>> {
    let writes = audit::writes(lab.tidegate.cluster())?;
    let ours = writes.iter().filter(|write| {
        write.verb == "patch"
            && write.resource == "pods"
            && write.namespace == lab.namespace
            && write.user.ends_with(":tidegate-controller")
            && so(write.code)
    });
    ours.filter_map(|write| {
        let epoch = write.body["metadata"]["annotations"]["tidegate.dev/epoch"].as_str()?;
        Some(epoch.parse().map(|epoch| (epoch, write.time)).map_err(anyhow::Error::from))
    })
    .collect()
}

#[tokio::test]
async fn of_two_one_writes_and_when_it_leaves_the_other_goes_on_at_once() -> Result<()> {
    let tidegate = Tidegate::exclusive().await?;
    let mut replicas = Replicas::start(&tidegate, LONG).await?;
    let lab = Lab::on(&tidegate, "two", json!({"limit": {"cpu": "2"}})).await?;
    let leader = replicas.leader_but(None).await?;
    let follower = 1 - leader;
    lab.create(job("work", 6, "1", "100ms")).await?;
    lab.completes("work").await?;
    lab.create(job("stays", 3, "1", "1h")).await?;
    lab.why_says("job/stays", "limit of queue").await?;
    lab.usage_is("cpu", "2").await?;
    for quiet in ["release_patches_total", "decided_pods_total"] {
        let count = replicas.metric(follower, &format!("tidegate_{quiet}")).await?;
        ensure!(count < 0.5, "the follower has {count} {quiet}");
    }
    let before = epoch(&lab).await?;
    // Fencing comes back by itself.
    epochs(&lab).delete("tidegate-epoch", &DeleteParams::default()).await?;
    wait::until("the epoch is back", wait::SOON, async || Ok(epoch(&lab).await? == before)).await?;

    let start = Instant::now();
    replicas.end(leader, "TERM")?;
    let ended = start.elapsed();
    ensure!(replicas.leader_but(Some(leader)).await? == follower);
    eprintln!("takeover {:?} after the signal, {ended:?} of it to end", start.elapsed());
    // The Lease would have lasted for minutes.
    ensure!(start.elapsed() < wait::SOON, "it was not given back");
    ensure!(epoch(&lab).await? == before + 1);
    lab.set_queue("two", json!({"limit": {"cpu": "3"}})).await?;
    lab.usage_is("cpu", "3").await?;
    let used: BTreeSet<u64> = accepted(&lab)?.into_iter().map(|(epoch, _)| epoch).collect();
    ensure!(used == BTreeSet::from([before, before + 1]), "{used:?}");
    lab.no_patch_twice()?;
    told_once(&lab).await?;

    // The other one answers for the aggregated API.
    lab.why_says("job/stays", "Running").await?;
    let namespaces: Api<Namespace> = Api::all(lab.client.clone());
    namespaces.delete("two", &DeleteParams::default()).await?;
    wait::until("the namespace is gone", wait::SOON, async || {
        Ok(namespaces.get_opt("two").await?.is_none())
    })
    .await
}

/// Nobody is told the same of a group by both.
async fn told_once(lab: &Lab) -> Result<()> {
    let mut told = BTreeSet::new();
    for event in lab.events().await? {
        let fact = (event.involved_object.name, event.reason);
        ensure!(told.insert(fact.clone()), "twice: {fact:?}");
    }
    ensure!(!told.is_empty(), "nobody was told anything");
    Ok(())
}

#[tokio::test]
async fn a_leader_killed_before_between_and_after_its_patches_is_followed_and_nothing_is_lost()
-> Result<()> {
    let tidegate = Tidegate::exclusive().await?;
    let mut replicas = Replicas::start(&tidegate, SHORT).await?;
    let lab = Lab::on(&tidegate, "killed", json!({"stop": "Hold", "limit": {"cpu": "3"}})).await?;
    let record = Record::start(lab.pod_api()).await?;
    lab.create(job("busy", 12, "1", "200ms")).await?;
    lab.all_gated(12).await?;
    // Before: the next process of its pod need not wait for the Lease to expire.
    let leader = replicas.leader_but(None).await?;
    replicas.end(leader, "KILL")?;
    lab.set_queue("killed", json!({"stop": "None"})).await?;
    replicas.restart(leader).await?;
    record.has_released(4).await?;
    // Between: the other one has to.
    let (leader, before) = (replicas.leader_but(None).await?, epoch(&lab).await?);
    let dead = lease_of_killed(&lab, &mut replicas, leader).await?;
    let next = replicas.leader_but(Some(leader)).await?;
    record.has_released(12).await?;
    if let Some(dead) = dead {
        takes_over_in_time(&lab, dead, before)?;
    }
    // After.
    replicas.end(next, "KILL")?;
    replicas.restart(next).await?;
    lab.completes("busy").await?;
    lab.create(job("after", 3, "1", "100ms")).await?;
    lab.completes("after").await?;
    ensure!(record.peak(|_| true) <= 3000, "{} ran at once", record.peak(|_| true));
    lab.usage_is("cpu", "0").await?;
    lab.no_patch_twice()
}

/// Kills a leader. The Lease as it left it; nothing when the machine slept for so long that
/// another one holds it by now.
async fn lease_of_killed(
    lab: &Lab,
    replicas: &mut Replicas,
    leader: usize,
) -> Result<Option<LeaseSpec>> {
    let holder = lease(lab).await?.holder_identity;
    replicas.end(leader, "KILL")?;
    Ok(Some(lease(lab).await?).filter(|lease| lease.holder_identity == holder))
}

/// The next one waits until the Lease has expired, and then not long: two seconds on a machine
/// that has time for it. On any it is no sooner, and not by two more Leases later.
fn takes_over_in_time(lab: &Lab, dead: LeaseSpec, before: u64) -> Result<()> {
    let renewed = dead.renew_time.context("never renewed")?.0;
    let lease = i64::from(dead.lease_duration_seconds.context("no duration")?) * 1_000;
    let releases = accepted(lab)?;
    let first = releases.iter().filter(|&&(of, _)| of > before).map(|&(_, at)| at).min();
    let took = first.context("it released nothing")?.as_millisecond() - renewed.as_millisecond();
    eprintln!("first release {took} ms after the last renewal of a Lease of {lease} ms");
    ensure!((lease..3 * lease).contains(&took), "{took} ms for a Lease of {lease} ms");
    Ok(())
}

/// A dry run of a release with that epoch, by somebody who may open gates, is refused.
async fn is_fenced_off(lab: &Lab, epoch: u64) -> Result<()> {
    let pod = lab.pods().await?.first().and_then(|pod| pod.metadata.name.clone());
    let release = Patch::Strategic(json!({
        "metadata": {"annotations": {"tidegate.dev/epoch": epoch.to_string()}},
        "spec": {"schedulingGates": [{"$patch": "delete", "name": "tidegate.dev/queue"}]},
    }));
    let dry = PatchParams { dry_run: true, ..PatchParams::default() };
    wait::until("the new epoch is in force", wait::SOON, async || {
        match lab.pod_api().patch(pod.as_deref().unwrap_or_default(), &dry, &release).await {
            Err(kube::Error::Api(status)) => Ok(status.message.contains(FENCED)),
            other => bail!("{other:?}"),
        }
    })
    .await
}

#[tokio::test]
async fn releases_on_their_way_while_their_leader_sleeps_and_another_begins_are_refused()
-> Result<()> {
    let tidegate = Tidegate::exclusive().await?;
    let cluster = tidegate.cluster();
    let proxies = [Proxy::start(cluster).await?, Proxy::start(cluster).await?];
    let urls = proxies.each_ref().map(Proxy::url);
    let mut replicas = Replicas::start_at(&tidegate, SHORT, urls.each_ref().map(|u| &**u)).await?;
    let lab = Lab::on(&tidegate, "late", json!({"stop": "Hold", "limit": {"cpu": "8"}})).await?;
    lab.create(job("late", 3, "1", "1h")).await?;
    lab.all_gated(3).await?;
    let (sleeper, before) = (replicas.leader_but(None).await?, epoch(&lab).await?);
    proxies[sleeper].every_patch(Some(Fault::Keep));
    lab.set_queue("late", json!({"stop": "None"})).await?;
    wait::until("three releases are on their way", wait::SOON, async || {
        Ok(proxies[sleeper].patches() >= 3)
    })
    .await?;
    let sent = Instant::now();
    replicas.signal(sleeper, "STOP")?;
    // Whatever goes now is the sleeper's.
    lab.set_queue("late", json!({"stop": "Hold"})).await?;
    replicas.leader_but(Some(sleeper)).await?;
    is_fenced_off(&lab, before).await?;
    proxies[sleeper].let_through();
    wait::until("all three were refused", wait::SOON, async || {
        Ok(answered(&lab, |code| code == 403)?.iter().filter(|&&(of, _)| of == before).count() >= 3)
    })
    .await?;
    ensure!(accepted(&lab)?.is_empty(), "{:?}", accepted(&lab)?);
    lab.all_gated(3).await?;
    replicas.signal(sleeper, "CONT")?;
    let said = replicas.ended(sleeper).await?;
    // Later than that it may give up waiting for an answer before it reads it.
    let heard = said.contains("release_fenced") && said.contains(FENCED);
    ensure!(heard || sent.elapsed() > ANSWER && said.contains("leads no more"), "{said}");
    lab.set_queue("late", json!({"stop": "None"})).await?;
    lab.usage_is("cpu", "3").await?;
    ensure!(accepted(&lab)?.iter().all(|&(of, _)| of == before + 1), "{:?}", accepted(&lab)?);
    lab.no_patch_twice()
}

#[tokio::test]
async fn a_leader_that_sleeps_past_its_lease_wakes_to_let_nothing_go_and_ends() -> Result<()> {
    let tidegate = Tidegate::exclusive().await?;
    let mut replicas = Replicas::start(&tidegate, SHORT).await?;
    let lab = Lab::on(&tidegate, "sleeps", json!({"stop": "Hold", "limit": {"cpu": "8"}})).await?;
    lab.create(job("many", 120, "100m", "1h")).await?;
    lab.all_gated(120).await?;
    let record = Record::start(lab.pod_api()).await?;
    let sleeper = replicas.leader_but(None).await?;
    let before = epoch(&lab).await?;
    lab.set_queue("sleeps", json!({"stop": "None"})).await?;
    record.has_released(1).await?;
    replicas.signal(sleeper, "STOP")?;
    let asleep = record.released().len();
    replicas.leader_but(Some(sleeper)).await?;
    record.has_released(80).await?;
    lab.usage_is("cpu", "8").await?;
    let woken = Timestamp::now();
    replicas.signal(sleeper, "CONT")?;
    let said = replicas.ended(sleeper).await?;
    eprintln!("asleep after {asleep}; {}", said.lines().last().unwrap_or_default());
    ensure!(said.contains("leads no more") || said.contains("fenced off"), "{said}");
    let late = accepted(&lab)?.into_iter().filter(|&(of, at)| of == before && at > woken).count();
    ensure!(late == 0, "{late} releases of the woken one were accepted");
    ensure!(record.peak(|_| true) <= 8_000, "{} at once", record.peak(|_| true));
    lab.no_patch_twice()
}

#[tokio::test]
async fn a_leader_whose_epoch_is_over_ends_and_the_next_has_a_larger_one() -> Result<()> {
    let tidegate = Tidegate::exclusive().await?;
    let lab = Lab::on(&tidegate, "fenced", json!({"stop": "Hold"})).await?;
    lab.pod("waits", "100m").await?;
    lab.why_says("pod/waits", "is stopped").await?;
    let ours = epoch(&lab).await?;
    let raise = Patch::Merge(json!({"data": {"epoch": (ours + 7).to_string()}}));
    epochs(&lab).patch("tidegate-epoch", &PatchParams::default(), &raise).await?;
    lab.set_queue("fenced", json!({"stop": "None"})).await?;
    wait::until("it ends by itself", wait::SOON, async || Ok(tidegate.check().is_err())).await?;
    let log = tidegate.controller_log()?;
    ensure!(log.contains("leads no more"), "{log}");
    ensure!(accepted(&lab)?.is_empty(), "a fenced release was accepted");
    tidegate.start_controller().await?;
    lab.released(&["waits"]).await?;
    ensure!(epoch(&lab).await? == ours + 8);
    let spec = lease(&lab).await?;
    ensure!(spec.holder_identity.is_some_and(|holder| holder.starts_with("controller_")));
    Ok(())
}

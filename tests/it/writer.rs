//! The one writer against a real apiserver, without the rest of Tidegate.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::core::v1::{Event as CoreEvent, Namespace, Pod};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, Config, CustomResourceExt as _, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tidegate::api::names::{ANNOTATION_EPOCH, ANNOTATION_RELEASED, GATE};
use tidegate::api::released::Released;
use tidegate::api::v1alpha1::Queue;
use tidegate::engine::action::{Action, Evict, Notice, QueueStatus, Release, Terms};
use tidegate::engine::event::{Address, Event, Input, ObjectRef, Outcome, Spared};
use tidegate::engine::{ClusterId, Uid};
use tidegate::release::{Clients, Counters, Phase, Settings, Writer};
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::support::cluster::Cluster;
use crate::support::proxy::{Fault, Proxy};
use crate::support::wait;

const HERE: ClusterId = ClusterId(0);

/// A writer that runs until it is dropped.
struct Running {
    actions: mpsc::Sender<Action>,
    inbox: mpsc::Receiver<Input>,
    refusals: Vec<String>,
    counters: Arc<Counters>,
    _stop: DropGuard,
}

impl Running {
    async fn start(cluster: &Cluster, epoch: u64) -> Result<Self> {
        Self::start_with(cluster.config().await?, Settings::new(epoch))
    }

    fn start_with(config: Config, settings: Settings) -> Result<Self> {
        let client = tidegate::release::client(config)?;
        let clients = Clients { hub: client.clone(), members: [(HERE, client)].into() };
        let (actions, taken) = mpsc::channel(1_000);
        let (outcomes, inbox) = mpsc::channel(1_000);
        let clock = Arc::new(|| jiff::Timestamp::now().as_millisecond());
        let writer = Writer::new(clients, settings, outcomes, clock);
        let (counters, stop) = (writer.counters(), CancellationToken::new());
        tokio::spawn(writer.run(taken, stop.clone()));
        Ok(Self { actions, inbox, refusals: Vec::new(), counters, _stop: stop.drop_guard() })
    }

    async fn release(&mut self, release: Release) -> Result<Outcome> {
        let pod = release.pod;
        self.actions.send(Action::Release(release)).await?;
        let (about, outcome) = self.outcome().await?;
        ensure!(about == pod, "an outcome for {about:?}");
        Ok(outcome)
    }

    async fn outcome(&mut self) -> Result<(Uid, Outcome)> {
        loop {
            let input = tokio::time::timeout(wait::SOON, self.inbox.recv()).await?;
            match input.context("the writer ended")? {
                Input::Event(Event::Outcome(pod, outcome)) => return Ok((pod, outcome)),
                Input::Event(Event::Paused(..) | Event::Resumed(_)) => {}
                Input::Refusal(_, why) | Input::Spared(_, Spared { why, .. }) => {
                    self.refusals.push(why.to_string());
                }
                other => anyhow::bail!("not an outcome: {other:?}"),
            }
        }
    }
}

async fn namespace(client: &Client, name: &str) -> Result<Api<Pod>> {
    let namespace = object(json!({"metadata": {"name": name}}))?;
    Api::<Namespace>::all(client.clone()).create(&PostParams::default(), &namespace).await?;
    let pods = Api::namespaced(client.clone(), name);
    let (params, probe) =
        (PostParams { dry_run: true, ..PostParams::default() }, pod("probe", &[])?);
    wait::until("pods can be made", wait::SOON, async || {
        Ok(pods.create(&params, &probe).await.is_ok())
    })
    .await?;
    Ok(pods)
}

fn object<T: DeserializeOwned>(value: Value) -> Result<T> {
    Ok(serde_json::from_value(value)?)
}

fn pod(name: &str, gates: &[&str]) -> Result<Pod> {
    let gates: Vec<_> = gates.iter().map(|name| json!({"name": name})).collect();
    object(json!({
        "metadata": {"name": name},
        "spec": {
            "schedulingGates": gates,
            "containers": [{"name": "main", "image": "pause", "resources": {"requests": {"cpu": "1m"}}}],
        },
    }))
}

async fn gated(pods: &Api<Pod>, name: &str, gates: &[&str]) -> Result<Release> {
    let made = pods.create(&PostParams::default(), &pod(name, gates)?).await?;
    release_of(&made)
}

fn release_of(pod: &Pod) -> Result<Release> {
    let uid = pod.uid().context("no uid")?;
    Ok(Release {
        pod: Uid(u128::from_str_radix(&uid.replace('-', ""), 16)?),
        address: Address {
            cluster: HERE,
            namespace: pod.namespace().context("no namespace")?.into(),
            name: pod.name_any().into(),
            uid: uid.into(),
        },
        queue: "team-a".into(),
        group: "Job/j".into(),
        root: "root-uid".into(),
        size: 2,
        terms: Box::new(Terms { min_count: Some(2), preemptible: true, ..Terms::default() }),
        time: 1_796_040_000_000,
        decision: 5,
        place: None,
    })
}

fn gates(pod: &Pod) -> Vec<&str> {
    let gates = pod.spec.iter().flat_map(|spec| &spec.scheduling_gates).flatten();
    gates.map(|gate| gate.name.as_str()).collect()
}

#[tokio::test]
async fn a_release_opens_our_gate_only_and_says_why() -> Result<()> {
    let cluster = Cluster::bare()?;
    let pods = namespace(&cluster.client().await?, "writer-opens").await?;
    let release = gated(&pods, "a", &["example.com/other", GATE]).await?;
    let mut writer = Running::start(cluster, 7).await?;
    assert_eq!(writer.release(release.clone()).await?, Outcome::Released);

    let open = pods.get("a").await?;
    assert_eq!(gates(&open), ["example.com/other"]);
    assert_eq!(open.annotations()[ANNOTATION_EPOCH], "7");
    let released: Released = serde_json::from_str(&open.annotations()[ANNOTATION_RELEASED])?;
    assert_eq!((released.queue.as_str(), released.size), ("team-a", 2));

    // Another process that never saw the first answer says the same again.
    let mut again = Running::start(cluster, 7).await?;
    assert_eq!(again.release(release).await?, Outcome::Released);
    let same = pods.get("a").await?;
    assert_eq!(same.resource_version(), open.resource_version(), "nothing was written");
    Ok(())
}

#[tokio::test]
async fn a_release_for_another_pod_of_that_name_is_gone() -> Result<()> {
    let cluster = Cluster::bare()?;
    let pods = namespace(&cluster.client().await?, "writer-gone").await?;
    let older = gated(&pods, "a", &[GATE]).await?;
    pods.delete("a", &DeleteParams::default()).await?;
    let mut writer = Running::start(cluster, 1).await?;
    assert_eq!(writer.release(older.clone()).await?, Outcome::Gone);

    gated(&pods, "a", &[GATE]).await?;
    assert_eq!(writer.release(older).await?, Outcome::Gone);
    assert_eq!(gates(&pods.get("a").await?), [GATE]);
    Ok(())
}

#[tokio::test]
async fn who_was_deleted_with_days_to_end_has_half_an_hour_once_evicted() -> Result<()> {
    let cluster = Cluster::bare()?;
    let pods = namespace(&cluster.client().await?, "writer-lingers").await?;
    let mut lingers = pod("a", &[])?;
    if let Some(spec) = &mut lingers.spec {
        spec.node_name = Some("nowhere".to_owned());
    }
    let made = pods.create(&PostParams::default(), &lingers).await?;
    pods.delete("a", &DeleteParams::default().grace_period(1_000_000)).await?;
    let Release { pod, address, .. } = release_of(&made)?;
    let writer = Running::start(cluster, 1).await?;
    writer.actions.send(Action::Evict(Evict { pod, address, ends_slowly: true })).await?;
    wait::until("it ends within half an hour", wait::SOON, async || {
        let grace = pods.get("a").await?.metadata.deletion_grace_period_seconds;
        ensure!(grace == Some(1_800), "{grace:?}");
        Ok(true)
    })
    .await
}

#[tokio::test]
async fn a_policy_that_says_no_is_told_and_tried_again_later() -> Result<()> {
    let cluster = Cluster::bare()?;
    let client = cluster.client().await?;
    let pods = namespace(&client, "writer-refused").await?;
    let policies = Api::<ValidatingAdmissionPolicy>::all(client.clone());
    policies.create(&PostParams::default(), &object(json!({
        "metadata": {"name": "writer-refused"},
        "spec": {
            "matchConstraints": {"resourceRules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["UPDATE"],
            }]},
            "validations": [{"expression": "false", "message": "not on Mondays"}],
        },
    }))?).await?;
    Api::<ValidatingAdmissionPolicyBinding>::all(client.clone()).create(&PostParams::default(), &object(json!({
        "metadata": {"name": "writer-refused"},
        "spec": {
            "policyName": "writer-refused", "validationActions": ["Deny"],
            "matchResources": {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "writer-refused"}}},
        },
    }))?).await?;
    gated(&pods, "probe", &[GATE]).await?;
    wait::until("the policy is in force", wait::SOON, async || {
        let touch = Patch::Merge(json!({"metadata": {"labels": {"touched": "yes"}}}));
        let params = PatchParams { dry_run: true, ..PatchParams::default() };
        Ok(pods.patch("probe", &params, &touch).await.is_err())
    })
    .await?;

    let release = gated(&pods, "a", &[GATE]).await?;
    let mut writer = Running::start(cluster, 1).await?;
    let refused = writer.release(release.clone()).await?;
    ensure!(matches!(refused, Outcome::Refused { .. }), "{refused:?}");
    ensure!(
        writer.refusals.iter().any(|why| why.contains("not on Mondays")),
        "{:?}",
        writer.refusals
    );

    policies.delete("writer-refused", &DeleteParams::default()).await?;
    wait::until("the policy is gone and the release goes through", wait::SOON, async || {
        Ok(writer.release(release.clone()).await? == Outcome::Released)
    })
    .await?;
    assert!(gates(&pods.get("a").await?).is_empty());
    Ok(())
}

/// A connection to the apiserver that is there and carries nothing; answers that never
/// come though the gate is open.
#[tokio::test]
async fn without_answers_releases_pause_and_are_repeated_until_each_has_one() -> Result<()> {
    let cluster = Cluster::bare()?;
    let pods = namespace(&cluster.client().await?, "writer-silence").await?;
    let proxy = Proxy::for_admin(cluster).await?;
    let config = Config::new(proxy.url().parse()?);
    let timeout = Duration::from_millis(300);
    let mut writer = Running::start_with(config, Settings { timeout, ..Settings::new(1) })?;
    let first = gated(&pods, "a", &[GATE]).await?;
    proxy.next_patches([Some(Fault::HoldAnswer); 2]);
    assert_eq!(writer.release(first).await?, Outcome::Released);
    let open = pods.get("a").await?;
    assert!(gates(&open).is_empty());

    proxy.hold(true);
    for name in ["b", "c", "d"] {
        let release = gated(&pods, name, &[GATE]).await?;
        writer.actions.send(Action::Release(release)).await?;
    }
    wait::until("releases are paused", wait::SOON, async || Ok(writer.counters.read().pauses == 1))
        .await?;
    proxy.hold(false);
    for _ in 0..3 {
        assert_eq!(writer.outcome().await?.1, Outcome::Released);
    }
    wait::until("releases flow", wait::SOON, async || {
        Ok(writer.counters.flows().iter().all(|flow| flow.phase == Phase::Closed))
    })
    .await?;
    assert_eq!(writer.counters.read().refusals, 0);
    assert_eq!(pods.get("a").await?.resource_version(), open.resource_version());
    Ok(())
}

async fn queue(client: &Client, name: &str) -> Result<Queue> {
    let crds = Api::<CustomResourceDefinition>::all(client.clone());
    let params = PatchParams::apply("tests").force();
    crds.patch("queues.tidegate.dev", &params, &Patch::Apply(Queue::crd())).await?;
    let queues = Api::<Queue>::all(client.clone());
    let object: Queue = object(json!({"metadata": {"name": name}, "spec": {}}))?;
    wait::for_some("queues can be made", wait::SOON, async || {
        Ok(Some(queues.create(&PostParams::default(), &object).await?))
    })
    .await
}

#[tokio::test]
async fn a_status_is_written_when_it_changed_and_survives_a_restart() -> Result<()> {
    let cluster = Cluster::bare()?;
    let client = cluster.client().await?;
    let queue = queue(&client, "writer-status").await?;
    let queues = Api::<Queue>::all(client.clone());
    let mut status = QueueStatus {
        entitlement: BTreeMap::new(),
        name: "writer-status".into(),
        uid: queue.uid().context("no uid")?.into(),
        generation: 1,
        pending: (1, 3),
        running: (1, 1),
        past: None,
        usage: [("cpu".into(), 1_250), ("memory".into(), 4 << 30)].into(),
        share: 125,
        oldest: Some(1_796_040_000_000),
        ready: Ok(()),
        releasing: Ok(()),
        over_limit: None,
        beyond_capacity: None,
        max_pending: None,
        full: None,
        urgent: false,
    };
    let writer = Running::start(cluster, 1).await?;
    writer.actions.send(Action::QueueStatus(Box::new(status.clone()))).await?;
    let first = wait::for_some("the status is there", wait::SOON, async || {
        Ok(queues.get("writer-status").await?.status)
    })
    .await?;
    assert_eq!(first.usage["cpu"], "1250m");
    assert_eq!(first.share.as_deref(), Some("12.5%"));

    // A new process reads before it writes: times go on from what stands there.
    let writer = Running::start(cluster, 1).await?;
    status.usage = [("cpu".into(), 0)].into();
    status.oldest = None;
    status.ready = Err(("QueueStopped", "held".to_owned()));
    writer.actions.send(Action::QueueStatus(Box::new(status))).await?;
    let second = wait::for_some("the new status is there", wait::SOON, async || {
        Ok(queues
            .get("writer-status")
            .await?
            .status
            .filter(|status| status.oldest_pending.is_none()))
    })
    .await?;
    assert_eq!(second.usage.keys().collect::<Vec<_>>(), ["cpu"], "what is no longer said is gone");
    assert_eq!(second.conditions[1], first.conditions[1], "nothing changed there");
    assert_eq!(writer.counters.read().statuses, 1);
    Ok(())
}

#[tokio::test]
async fn events_are_shown_where_people_look() -> Result<()> {
    let cluster = Cluster::bare()?;
    let client = cluster.client().await?;
    let queue = queue(&client, "writer-event").await?;
    let writer = Running::start(cluster, 1).await?;
    for message in ["once", "and again"] {
        let notice = Notice {
            about: ObjectRef {
                address: Address {
                    cluster: HERE,
                    namespace: "".into(),
                    name: "writer-event".into(),
                    uid: queue.uid().context("no uid")?.into(),
                },
                api_version: "tidegate.dev/v1alpha1".into(),
                kind: "Queue".into(),
            },
            warning: true,
            reason: "QueueInvalid",
            message: message.to_owned(),
        };
        writer.actions.send(Action::Notice(notice)).await?;
    }
    let events = Api::<CoreEvent>::namespaced(client, "default");
    let found = wait::for_some("an Event with a series", wait::SOON, async || {
        let list = ListParams::default().fields("involvedObject.name=writer-event");
        Ok(events.list(&list).await?.items.into_iter().find(|event| event.series.is_some()))
    })
    .await?;
    assert_eq!(found.series.and_then(|series| series.count), Some(2));
    assert_eq!(found.reporting_component.as_deref(), Some("tidegate"));
    assert_eq!(found.type_.as_deref(), Some("Warning"));
    Ok(())
}

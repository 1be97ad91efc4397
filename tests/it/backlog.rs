//! `maxPending`: who floods a queue is told to come back later, and nobody else is.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{DynamicObject, ListParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};

use crate::support::lab::{Lab, bare_pod, is_gated, job};
use crate::support::tidegate::Tidegate;
use crate::support::wait;

/// Pods of a runaway that nothing stops: far more than the most.
const RUNAWAY: usize = 1_500;
const MOST: usize = 100;
/// Requests of a runaway under way at once.
const AT_ONCE: usize = 8;

/// Somebody's controller that makes pods of one owner without ever waiting.
struct Runaway<'a> {
    lab: &'a Lab,
    owner: DynamicObject,
    made: AtomicUsize,
    tried: AtomicUsize,
}

/// What came of a try.
#[derive(Debug, PartialEq)]
enum Tried {
    Made,
    Refused(String),
}

impl<'a> Runaway<'a> {
    /// In the lab's namespace, for work of its queue.
    async fn new(lab: &'a Lab, name: &str) -> Result<Self> {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
        let owner = lab.create(map).await?;
        Ok(Self { lab, owner, made: AtomicUsize::new(0), tried: AtomicUsize::new(0) })
    }

    /// Tries once. Fails unless the pod was made or refused as a full backlog refuses.
    async fn again(&self) -> Result<Tried> {
        let number = self.tried.fetch_add(1, Ordering::Relaxed);
        let mut pod = bare_pod(&format!("{}-{number}", self.owner.name_any()), "1m");
        pod["metadata"]["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "ConfigMap",
            "name": self.owner.name_any(), "uid": self.owner.uid(), "controller": true}]);
        pod["metadata"]["annotations"] = json!({"fake.tidegate.dev/duration": "1ms"});
        let tried = create(self.lab, pod).await?;
        if tried == Tried::Made {
            self.made.fetch_add(1, Ordering::Relaxed);
        }
        Ok(tried)
    }

    /// Goes on until it was refused so often in all; how many it made.
    async fn run(&self, refusals: usize) -> Result<usize> {
        let refused = AtomicUsize::new(0);
        let worker = async || -> Result<()> {
            while refused.load(Ordering::Relaxed) < refusals {
                ensure!(self.made.load(Ordering::Relaxed) < RUNAWAY, "nothing stops it");
                if self.again().await? != Tried::Made {
                    refused.fetch_add(1, Ordering::Relaxed);
                }
            }
            Ok(())
        };
        futures::future::try_join_all((0..AT_ONCE).map(|_| worker())).await?;
        Ok(self.made.load(Ordering::Relaxed))
    }
}

/// A lab whose client does what it is asked once. Without this kube repeats for minutes
/// what is answered with 429.
async fn once(mut lab: Lab) -> Result<Lab> {
    let mut config = lab.tidegate.cluster().config().await?;
    config.default_retry = false;
    lab.client = Client::try_from(config)?;
    Ok(lab)
}

async fn create(lab: &Lab, pod: Value) -> Result<Tried> {
    let pod: Pod = serde_json::from_value(pod)?;
    match lab.pod_api().create(&PostParams::default(), &pod).await {
        Ok(pod) => {
            ensure!(is_gated(&pod), "{} was stored without our gate", pod.name_any());
            Ok(Tried::Made)
        }
        Err(kube::Error::Api(status)) if status.code == 429 => {
            Ok(Tried::Refused(status.message.clone()))
        }
        Err(error) => Err(error.into()),
    }
}

async fn bare(lab: &Lab, name: &str, queue: Option<&str>) -> Result<Tried> {
    let mut pod = bare_pod(name, "1m");
    if let Some(queue) = queue {
        pod["metadata"]["labels"] = json!({"tidegate.dev/queue": queue});
    }
    create(lab, pod).await
}

/// Waits until the queue says that its backlog is full, or that it is not.
async fn is_full(lab: &Lab, full: bool) -> Result<()> {
    wait::until(&format!("the backlog is full: {full}"), wait::SOON, async || {
        let status = lab.get_queue(&lab.namespace).await?.status.unwrap_or_default();
        let condition = status.conditions.iter().find(|c| c.type_ == "BacklogFull");
        let said = condition.context("no such condition")?.status == "True";
        Ok(said == full && status.backlog.is_some() == full)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runaway_is_refused_with_429_others_are_not_and_it_goes_on_when_its_pods_have_started()
-> Result<()> {
    let held = json!({"stop": "Hold", "maxPending": {"pods": MOST}});
    let lab = once(Lab::new("backlog", held).await?).await?;
    let other = Lab::new("backlog-other", json!({})).await?;
    let runaway = Runaway::new(&lab, "runaway").await?;
    let begun = Instant::now();
    let made = runaway.run(50).await?;
    let per_second = u128::try_from(made)? * 1_000 / begun.elapsed().as_millis().max(1);
    eprintln!("maxPending {MOST}: {made} pods made at about {per_second}/s, tries included");
    ensure!(made >= MOST, "refused at {made}");

    // In the same moment others come in: of another queue, and of another owner here.
    let Tried::Refused(text) = runaway.again().await? else { panic!("let in again") };
    ensure!(text.contains("queue \"backlog\" is full"), "{text}");
    ensure!(text.contains("spec.maxPending.pods is 100"), "{text}");
    for number in 0..20 {
        assert_eq!(bare(&other, &format!("beside-{number}"), None).await?, Tried::Made);
        ensure!(runaway.again().await? != Tried::Made, "let in while others are");
    }
    assert_eq!(bare(&lab, "first-of-its-owner", None).await?, Tried::Made);
    ensure!(matches!(bare(&lab, "by-label", Some("backlog")).await?, Tried::Refused(_)));
    assert_eq!(bare(&lab, "by-other-label", Some("backlog-other")).await?, Tried::Made);

    // The owner that had no pod waiting has one now.
    wait::until("its next one is refused", wait::SOON, async || {
        let name = format!("next-{}", runaway.tried.fetch_add(1, Ordering::Relaxed));
        Ok(bare(&lab, &name, None).await? != Tried::Made)
    })
    .await?;
    let wide = lab.tidegate.cli(&["queues", "backlog", "-o", "wide"]).await?;
    ensure!(wide.stdout.contains("pods wait and spec.maxPending is 100"), "{}", wide.stdout);

    lab.set_queue("backlog", json!({"stop": "None"})).await?;
    wait::until("it may go on", wait::SOON, async || Ok(runaway.again().await? == Tried::Made))
        .await?;
    is_full(&lab, false).await
}

/// Waits until the webhook refuses a pod that names the lab's queue; none is made.
async fn is_held_back(lab: &Lab) -> Result<()> {
    let mut pod = bare_pod("probe", "1m");
    pod["metadata"]["labels"] = json!({"tidegate.dev/queue": lab.namespace});
    let pod: Pod = serde_json::from_value(pod)?;
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    wait::until("the webhook knows", wait::SOON, async || {
        let tried = lab.pod_api().create(&dry, &pod).await;
        Ok(matches!(tried, Err(kube::Error::Api(status)) if status.code == 429))
    })
    .await
}

#[tokio::test]
async fn a_job_with_more_pods_than_may_wait_completes() -> Result<()> {
    let held = json!({"stop": "Hold", "maxPending": {"pods": 4}});
    let lab = once(Lab::new("backlog-job", held).await?).await?;
    let mut wide = job("wide", 12, "10m", "10ms");
    wide["spec"]["parallelism"] = json!(4);
    lab.create(wide).await?;
    lab.all_gated(4).await?;
    is_held_back(&lab).await?;
    // The Job controller is refused what it now wants besides, and backs off.
    lab.merge("batch/v1", "Job", "wide", json!({"spec": {"parallelism": 12}})).await?;
    let events: Api<Event> = Api::namespaced(lab.client.clone(), &lab.namespace);
    wait::until("its controller was refused", wait::SOON, async || {
        let said = events.list(&ListParams::default()).await?;
        let text = |event: &Event| event.message.clone().unwrap_or_default();
        Ok(said.iter().any(|event| text(event).contains("queue \"backlog-job\" is full")))
    })
    .await?;
    lab.all_gated(4).await?;
    lab.set_queue("backlog-job", json!({"stop": "None"})).await?;
    lab.completes("wide").await
}

/// Where a policy gates, pods pass a webhook of their own.
pub async fn refused_beside_policy(tidegate: &'static Tidegate) -> Result<()> {
    let held = json!({"stop": "Hold", "maxPending": {"pods": 10}});
    let lab = once(Lab::on(tidegate, "backlog-policy", held).await?).await?;
    let runaway = Runaway::new(&lab, "runaway").await?;
    // More than ten may come in before the webhook is trusted.
    wait::until("it is refused", wait::SOON, async || Ok(runaway.again().await? != Tried::Made))
        .await?;
    let made = runaway.made.load(Ordering::Relaxed);
    ensure!(made >= 10, "refused at {made}");
    Ok(())
}

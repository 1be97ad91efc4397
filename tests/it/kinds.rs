//! Any kind, unchanged: gated at creation, charged, held while the queue is
//! full, released, run to its end.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use futures::future::try_join_all;
use kube::{Api, ResourceExt as _, api::DynamicObject};
use rstest::rstest;
use serde_json::{Value, json};

use crate::support::{
    cluster::Cluster,
    lab::{Lab, bare_pod, is_gated},
    made_up,
    operators::{Operator, OperatorKind, Sample, samples},
    tidegate::Tidegate,
    wait,
};

/// A queue with room for one pod: some samples ask no CPU at all.
fn room_for_one() -> Value {
    json!({"limit": {"cpu": "1", "pods": "1"}})
}

/// A queue with room for one pod, and a pod that takes it.
async fn full_lab(name: &str) -> Result<Lab> {
    let lab = Lab::new(name, room_for_one()).await?;
    fill(&lab).await?;
    Ok(lab)
}

async fn fill(lab: &Lab) -> Result<()> {
    lab.create(bare_pod("blocker", "1")).await?;
    lab.released(&["blocker"]).await
}

/// Opens the queue for everything.
async fn open(lab: &Lab) -> Result<()> {
    lab.set_queue(&lab.namespace, json!({"limit": null})).await
}

/// Waits until `count` pods are there beside the blocker, all gated and known to the controller.
async fn held(lab: &Lab, count: usize) -> Result<()> {
    wait::until(&format!("{count} held pods"), wait::START, async || {
        lab.tidegate.check()?;
        let pods = lab.pods().await?;
        let held: Vec<_> = pods.iter().filter(|pod| pod.name_any() != "blocker").collect();
        for pod in &held {
            ensure!(is_gated(pod), "{} is not gated", pod.name_any());
            ensure!(pod.labels().get("tidegate.dev/managed").is_some_and(|v| v == "true"));
        }
        ensure!(held.len() == count, "there are {}", held.len());
        let groups = lab.groups().await?;
        let waiting: u64 = groups.iter().filter_map(|g| g["counts"]["waiting"].as_u64()).sum();
        ensure!(waiting == count as u64, "the controller knows {waiting}: {groups:#?}");
        Ok(true)
    })
    .await
}

/// Built-in kinds, with how many pods each makes at first and how its end looks.
fn builtin(kind: &str) -> (Value, usize, fn(&Value) -> bool) {
    let pod = |restart: &str| {
        json!({"spec": {"restartPolicy": restart, "containers": [{"name": "app", "image": "pause",
            "resources": {"requests": {"cpu": "100m"}}}]}})
    };
    let labelled = || {
        let mut template = pod("Always");
        template["metadata"] = json!({"labels": {"app": "it"}});
        template
    };
    let job = |spec: Value| {
        let mut spec = spec;
        spec["template"] = pod("Never");
        json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "it"}, "spec": spec})
    };
    let complete: fn(&Value) -> bool = |object| condition(object, "Complete");
    match kind {
        "job" => (job(json!({"parallelism": 3, "completions": 3})), 3, complete),
        "indexed" => (
            job(json!({"parallelism": 2, "completions": 4, "completionMode": "Indexed"})),
            2,
            complete,
        ),
        "backoff-per-index" => (
            job(json!({"parallelism": 2, "completions": 2, "completionMode": "Indexed",
                "backoffLimitPerIndex": 1})),
            2,
            complete,
        ),
        "cronjob" => (
            json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "it"},
                "spec": {"schedule": "* * * * *", "concurrencyPolicy": "Forbid",
                    "jobTemplate": {"spec": {"template": pod("Never")}}}}),
            1,
            |object| object["status"]["lastSuccessfulTime"].is_string(),
        ),
        "deployment" => (
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "it"},
                "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "it"}}, "template": labelled()}}),
            3,
            |object| object["status"]["readyReplicas"] == 3,
        ),
        "statefulset" => (
            json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "it"},
                "spec": {"replicas": 2, "serviceName": "it",
                    "selector": {"matchLabels": {"app": "it"}}, "template": labelled()}}),
            1,
            |object| object["status"]["readyReplicas"] == 2,
        ),
        other => panic!("no such kind: {other}"),
    }
}

fn condition(object: &Value, name: &str) -> bool {
    let all = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    all.iter().any(|c| c["type"] == name && c["status"] == "True")
}

#[rstest]
#[case::job("job")]
#[case::indexed("indexed")]
#[case::backoff_per_index("backoff-per-index")]
#[case::cronjob("cronjob")]
#[case::deployment("deployment")]
#[case::statefulset("statefulset")]
#[tokio::test]
async fn a_built_in_kind_is_held_while_its_queue_is_full_and_then_runs_to_its_end(
    #[case] kind: &str,
) -> Result<()> {
    let lab = Lab::new(&format!("kind-{kind}"), room_for_one()).await?;
    Held::new(lab, kind).await?.ends().await
}

/// An object of a built-in kind whose pods wait in a full queue.
pub struct Held {
    lab: Lab,
    made: DynamicObject,
    ended: fn(&Value) -> bool,
}

impl Held {
    async fn new(lab: Lab, kind: &str) -> Result<Self> {
        fill(&lab).await?;
        let (object, count, ended) = builtin(kind);
        let made = lab.create(object).await?;
        held(&lab, count).await?;
        let root = format!("{}/it", made.types.as_ref().context("no kind")?.kind.to_lowercase());
        lab.why_says(&root, &format!("limit of queue \"{}\"", lab.namespace)).await?;
        Ok(Self { lab, made, ended })
    }

    async fn ends(self) -> Result<()> {
        open(&self.lab).await?;
        let read = reader(&self.lab, &self.made).await?;
        wait::until("its own status says that it ended", wait::START, async || {
            let object = read().await?;
            ensure!((self.ended)(&object), "status is {}", object["status"]);
            Ok(true)
        })
        .await?;
        self.lab.one_patch_each().await
    }
}

/// A namespace with a full queue for each kind. No `CronJob`: its pods are a Job's, and it
/// takes a minute.
pub async fn labs(tidegate: &'static Tidegate, prefix: &str) -> Result<Vec<(Lab, &'static str)>> {
    let kinds = ["job", "indexed", "backoff-per-index", "deployment", "statefulset"];
    let lab = async |kind: &'static str| {
        let lab = Lab::on(tidegate, &format!("{prefix}-{kind}"), room_for_one()).await?;
        Ok::<_, anyhow::Error>((lab, kind))
    };
    try_join_all(kinds.map(lab)).await
}

/// Makes an object of each kind and waits until its pods are held.
pub async fn hold(labs: Vec<(Lab, &'static str)>) -> Result<Vec<Held>> {
    try_join_all(labs.into_iter().map(|(lab, kind)| Held::new(lab, kind))).await
}

/// Opens the queues and waits until all have ended.
pub async fn end(held: Vec<Held>) -> Result<()> {
    try_join_all(held.into_iter().map(Held::ends)).await.map(drop)
}

/// Reads an object again and again.
async fn reader(
    lab: &Lab,
    object: &DynamicObject,
) -> Result<impl AsyncFn() -> Result<Value> + use<>> {
    let types = object.types.as_ref().context("no kind")?;
    let gvk = kube::api::GroupVersionKind::try_from(types)?;
    let (resource, _) = kube::discovery::pinned_kind(&lab.client, &gvk).await?;
    let api: Api<DynamicObject> =
        Api::namespaced_with(lab.client.clone(), &lab.namespace, &resource);
    let name = object.name_any();
    Ok(async move || Ok(serde_json::to_value(api.get(&name).await?)?))
}

/// One running operator a kind and test run.
async fn operator(kind: OperatorKind) -> Result<()> {
    use std::sync::Mutex;
    static RUNNING: Mutex<Vec<(OperatorKind, Operator)>> = Mutex::new(Vec::new());
    let start = move || {
        let mut running = RUNNING.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if running.iter().any(|(other, _)| *other == kind) {
            return Ok(());
        }
        let cluster = Cluster::shared()?;
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let dir = cluster.dir().join(kind.name());
        let operator = runtime.block_on(Operator::start(kind, cluster.kubeconfig(), &dir))?;
        running.push((kind, operator));
        Ok(())
    };
    tokio::task::spawn_blocking(start).await?
}

#[rstest]
#[case::mpi(OperatorKind::Mpi)]
#[case::kuberay(OperatorKind::KubeRay)]
#[case::jobset(OperatorKind::JobSet)]
#[case::dask(OperatorKind::Dask)]
#[tokio::test]
async fn a_real_operators_own_samples_are_held_and_then_end_as_without_us(
    #[case] kind: OperatorKind,
) -> Result<()> {
    operator(kind).await?;
    for (number, sample) in samples(kind)?.iter().enumerate() {
        let name = format!("sample-{}-{number}", kind.name());
        sample_path(&name, sample).await.with_context(|| sample.name.to_owned())?;
    }
    Ok(())
}

async fn sample_path(name: &str, sample: &Sample) -> Result<()> {
    let lab = full_lab(name).await?;
    sample.create(&lab.client, &lab.namespace).await?;
    held(&lab, sample.pods).await?;
    lab.delete_pod("blocker").await?;
    open(&lab).await?;
    sample.ends(&lab.client, &lab.namespace, Duration::from_mins(2)).await?;
    lab.one_patch_each().await
}

#[tokio::test]
async fn an_operator_nobody_has_heard_of_is_queued_like_any_other() -> Result<()> {
    let lab = full_lab("kind-made-up").await?;
    made_up::install(&lab.client).await?;
    let made = lab.create(made_up::object("flock", 3)).await?;
    held(&lab, 4).await?;
    let groups = lab.groups().await?;
    ensure!(groups.iter().filter(|g| g["root"]["kind"] == "Flock").count() == 1, "{groups:#?}");
    open(&lab).await?;
    let read = reader(&lab, &made).await?;
    wait::until("the flock is done", wait::START, async || {
        Ok(read().await?["status"]["phase"] == "Done")
    })
    .await?;
    lab.one_patch_each().await
}

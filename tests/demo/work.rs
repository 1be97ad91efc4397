//! What the two teams submit: operators' own samples, built-in kinds, a made-up one.

use std::time::Duration;

use anyhow::{Context as _, Result};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind},
};
use serde_json::{Value, json};

use crate::support::{
    lab::Lab,
    made_up,
    operators::{OperatorKind, Sample, samples},
};

/// Short jobs of one team, so that both queues have work for a while.
const JOBS: usize = 12;
/// Pods of each.
const PODS: usize = 8;

/// One team.
pub struct Team {
    /// Namespace and queue.
    pub name: &'static str,
    /// The queue's weight.
    pub weight: i64,
    /// Its corner.
    pub lab: Lab,
}

/// One submitted object and how its end looks.
pub struct Work {
    /// For people.
    pub name: String,
    /// Namespace.
    pub namespace: String,
    /// Kind of the root.
    pub kind: String,
    /// Name of the root.
    pub object: String,
    client: Client,
    end: End,
}

enum End {
    /// A sample knows its own.
    Sample(Box<Sample>),
    /// A predicate on the object.
    Object(ApiResource, fn(&Value) -> bool),
}

impl Work {
    /// Whether the object's own status says that it has ended or serves.
    pub async fn ended(&self) -> Result<bool> {
        match &self.end {
            End::Sample(sample) => {
                let (object, pods) = sample.read(&self.client, &self.namespace).await?;
                sample.end_programs(&self.client, &pods).await?;
                Ok(sample.expect.met(&object, &pods))
            }
            End::Object(resource, ended) => {
                let api: Api<DynamicObject> =
                    Api::namespaced_with(self.client.clone(), &self.namespace, resource);
                Ok(ended(&serde_json::to_value(api.get(&self.object).await?)?))
            }
        }
    }
}

/// Submits everything, serving kinds first.
pub async fn submit(teams: &[Team]) -> Result<Vec<Work>> {
    let [a, b] = teams else { anyhow::bail!("two teams") };
    let mut work = Vec::new();
    for (team, kind) in [
        (a, OperatorKind::KubeRay),
        (a, OperatorKind::Mpi),
        (b, OperatorKind::Dask),
        (b, OperatorKind::JobSet),
    ] {
        for (number, sample) in samples(kind)?.into_iter().enumerate() {
            let namespace = format!("{}-{}-{number}", team.name, kind.name());
            team.lab.opt_in(&namespace, Some(team.name)).await?;
            sample.create(&team.lab.client, &namespace).await?;
            work.push(of_sample(team, namespace, sample)?);
        }
    }
    made_up::install(&a.lab.client).await?;
    work.push(object(a, made_up::object("flock", 3), |o| o["status"]["phase"] == "Done").await?);
    work.push(object(a, deployment(), |o| o["status"]["readyReplicas"] == 2).await?);
    work.push(object(b, stateful_set(), |o| o["status"]["readyReplicas"] == 2).await?);
    work.push(object(b, cron_job(), |o| o["status"]["lastSuccessfulTime"].is_string()).await?);
    for number in 0..JOBS {
        for team in [a, b] {
            let job = job(&format!("batch-{number}"), PODS);
            work.push(object(team, job, |o| o["status"]["succeeded"] == PODS).await?);
        }
    }
    Ok(work)
}

fn of_sample(team: &Team, namespace: String, sample: Sample) -> Result<Work> {
    let root = sample.documents.first().context("a sample without an object")?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (kind, object) = (text(&root["kind"]), text(&root["metadata"]["name"]));
    Ok(Work {
        name: format!("{kind}/{object} of {}", team.name),
        namespace,
        kind,
        object,
        client: team.lab.client.clone(),
        end: End::Sample(Box::new(sample)),
    })
}

async fn object(team: &Team, object: Value, ended: fn(&Value) -> bool) -> Result<Work> {
    let made = team.lab.create(object).await?;
    let types = made.types.context("no kind")?;
    let gvk = GroupVersionKind::try_from(&types)?;
    let (resource, _) = kube::discovery::pinned_kind(&team.lab.client, &gvk).await?;
    let name = made.metadata.name.context("no name")?;
    Ok(Work {
        name: format!("{}/{name} of {}", types.kind, team.name),
        namespace: team.name.to_owned(),
        kind: types.kind,
        object: name,
        client: team.lab.client.clone(),
        end: End::Object(resource, ended),
    })
}

fn template(restart: &str, seconds: Option<u64>) -> Value {
    let mut template = json!({"metadata": {"labels": {"app": "demo"}, "annotations": {}},
        "spec": {"restartPolicy": restart, "containers": [{"name": "app", "image": "pause",
            "resources": {"requests": {"cpu": "250m", "memory": "64Mi"}}}]}});
    if let Some(seconds) = seconds {
        let duration = format!("{}s", Duration::from_secs(seconds).as_secs());
        template["metadata"]["annotations"] = json!({"fake.tidegate.dev/duration": duration});
    }
    template
}

fn job(name: &str, pods: usize) -> Value {
    json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
        "spec": {"parallelism": pods, "completions": pods, "template": template("Never", Some(4))}})
}

fn cron_job() -> Value {
    json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "each-minute"},
        "spec": {"schedule": "* * * * *", "concurrencyPolicy": "Forbid",
            "jobTemplate": {"spec": {"template": template("Never", Some(1))}}}})
}

fn deployment() -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "demo"}},
            "template": template("Always", None)}})
}

fn stateful_set() -> Value {
    json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "store"},
        "spec": {"replicas": 2, "serviceName": "store", "selector": {"matchLabels": {"app": "demo"}},
            "template": template("Always", None)}})
}

//! What users do, by chance: a steady stream of it, with a bound on what is there at a time.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::{
    apps::v1::Deployment,
    batch::v1::Job,
    core::v1::{Namespace, Pod},
};
use kube::{
    Api, Client, Resource,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::{
    book::Book,
    random::Random,
    support::{
        lab::{Lab, is_gated},
        tidegate::Tidegate,
        wait,
    },
    tree::{self, HOLDS, LEAST, LEAST_TOP, NAMESPACES, PASSES, QUEUES, SHIFTS, TOP},
};

/// Between two things that a user does.
const PACE: Duration = Duration::from_millis(500);
/// Pods at a time, above which nothing is added.
const MOST: usize = 150;
/// How long a queue is stopped.
const HELD: Duration = Duration::from_secs(9);
/// How long a Deployment lives.
const SERVES: Duration = Duration::from_secs(15);
/// How long somebody who is refused waits.
const AGAIN: Duration = Duration::from_secs(2);
/// How long anything that is asked of an apiserver may not work.
const OUTAGE: Duration = Duration::from_mins(4);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Job,
    Pod,
    Deployment,
}

#[derive(Clone, Debug)]
struct Root {
    kind: Kind,
    namespace: &'static str,
    name: String,
    /// Only with it can it start.
    partner: Option<String>,
    born: Instant,
}

/// The users.
pub struct Work {
    lab: Lab,
    client: Client,
    book: Arc<Book>,
    random: Random,
    made: usize,
    roots: VecDeque<Root>,
    /// What was refused, and when to try again.
    later: VecDeque<(Instant, Root, Value)>,
    held: Option<Instant>,
    /// The namespace that passes is being deleted.
    passing: bool,
}

/// Makes queues and namespaces.
pub async fn prepare(tidegate: &'static Tidegate) -> Result<Lab> {
    let lab = Lab::on(tidegate, TOP, tree::spec(TOP)).await?;
    for queue in QUEUES {
        wait::until("the parent is known", wait::SOON, async || {
            lab.queue(queue, tree::spec(queue)).await?;
            Ok(true)
        })
        .await?;
    }
    for (namespace, queue) in NAMESPACES {
        lab.opt_in(namespace, Some(queue)).await?;
    }
    Ok(lab)
}

impl Work {
    /// Does nothing yet.
    pub fn new(lab: Lab, client: Client, book: Arc<Book>, random: Random) -> Self {
        let (roots, later) = (VecDeque::new(), VecDeque::new());
        Self { lab, client, book, random, made: 0, roots, later, held: None, passing: false }
    }

    /// Goes on until it is told to stop.
    pub async fn run(mut self, stop: CancellationToken) -> Result<Self> {
        let mut pace = tokio::time::interval(PACE);
        pace.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        while stop.run_until_cancelled(pace.tick()).await.is_some() {
            self.step().await.context("the stream of work")?;
        }
        Ok(self)
    }

    async fn step(&mut self) -> Result<()> {
        self.sweep().await?;
        let now = Instant::now();
        if self.later.front().is_some_and(|(due, ..)| *due <= now)
            && let Some((_, root, object)) = self.later.pop_front()
        {
            self.make(root, object).await?;
        }
        let chance = self.random.within(0, 99);
        match chance {
            0..=59 if self.book.live() >= MOST => self.delete_one().await,
            0..=21 => self.job().await,
            22..=33 => self.gang().await,
            34..=38 => self.pair().await,
            39..=54 => self.pod().await,
            55..=59 => self.deployment().await,
            60..=64 => self.failing().await,
            65..=76 => self.delete_one().await,
            77..=84 => self.relabel().await,
            85..=90 => self.shift().await,
            91..=95 => self.hold().await,
            96 => self.pass().await,
            _ => Ok(()),
        }
    }

    fn root(&mut self, kind: Kind) -> Root {
        self.made += 1;
        let usual = if self.passing { &NAMESPACES[..3] } else { &NAMESPACES[..] };
        let namespace = self.random.one_of(usual).0;
        let name = format!("r{}", self.made);
        Root { kind, namespace, name, partner: None, born: Instant::now() }
    }

    /// What pods of a root look like: at most 1 CPU each, with their end after seconds.
    fn template(&mut self, root: &Root, cpu: u64) -> Value {
        let duration = format!("{}ms", self.random.within(300, 5_000));
        json!({"metadata": {"labels": {"soak": root.name},
                "annotations": {"fake.tidegate.dev/duration": duration}},
            "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1,
                "containers": [{"name": "app", "image": "pause",
                    "resources": {"requests": {"cpu": format!("{cpu}m")}}}]}})
    }

    fn metadata(&mut self, root: &Root) -> Value {
        let mut metadata = json!({"name": root.name, "namespace": root.namespace, "labels": {}, "annotations": {}});
        if self.random.one_in(2) {
            metadata["labels"]["tidegate.dev/queue"] = json!(self.random.one_of(&QUEUES));
        }
        metadata
    }

    fn job_of(&mut self, root: &Root, pods: u64, at_once: u64, cpu: u64) -> Value {
        json!({"metadata": self.metadata(root), "spec": {"parallelism": at_once,
            "completions": pods, "backoffLimit": 20, "ttlSecondsAfterFinished": 10,
            "template": self.template(root, cpu)}})
    }

    async fn job(&mut self) -> Result<()> {
        let root = self.root(Kind::Job);
        let pods = self.random.within(1, 8);
        let cpu = 250 * self.random.within(1, 4);
        let object = self.job_of(&root, pods, pods.min(5), cpu);
        self.make(root, object).await
    }

    async fn gang(&mut self) -> Result<()> {
        let root = self.root(Kind::Job);
        let pods = self.random.within(2, 8);
        let mut object = self.job_of(&root, pods, pods, 250);
        object["metadata"]["annotations"]["tidegate.dev/min-count"] = json!(pods.to_string());
        self.make(root, object).await
    }

    /// Two Jobs that start together.
    async fn pair(&mut self) -> Result<()> {
        let mut first = self.root(Kind::Job);
        let partner = Some(first.name.clone());
        let second = Root { namespace: first.namespace, partner, ..self.root(Kind::Job) };
        first.partner = Some(second.name.clone());
        let (group, queue) = (format!("g{}", self.made), *self.random.one_of(&QUEUES));
        for root in [first, second] {
            let mut object = self.job_of(&root, 2, 2, 250);
            object["metadata"]["labels"]["tidegate.dev/queue"] = json!(queue);
            object["metadata"]["annotations"] =
                json!({"tidegate.dev/group": group, "tidegate.dev/min-count": "4"});
            self.make(root, object).await?;
        }
        Ok(())
    }

    async fn pod(&mut self) -> Result<()> {
        let root = self.root(Kind::Pod);
        let cpu = 100 * self.random.within(1, 10);
        let mut object = self.template(&root, cpu);
        let own = self.metadata(&root);
        object["metadata"]["name"] = own["name"].clone();
        object["metadata"]["namespace"] = own["namespace"].clone();
        if let Some(queue) = own["labels"].get("tidegate.dev/queue") {
            object["metadata"]["labels"]["tidegate.dev/queue"] = queue.clone();
        }
        self.make(root, object).await
    }

    async fn deployment(&mut self) -> Result<()> {
        let root = self.root(Kind::Deployment);
        let mut template = self.template(&root, 300);
        template["spec"]["restartPolicy"] = json!("Always");
        template["metadata"]["annotations"] = json!({});
        let object = json!({"metadata": self.metadata(&root), "spec": {
            "replicas": self.random.within(1, 3),
            "selector": {"matchLabels": {"soak": root.name}}, "template": template}});
        self.make(root, object).await
    }

    async fn failing(&mut self) -> Result<()> {
        let root = self.root(Kind::Job);
        let mut object = self.job_of(&root, 2, 2, 200);
        object["spec"]["backoffLimit"] = json!(1);
        object["spec"]["template"]["metadata"]["annotations"]["fake.tidegate.dev/result"] =
            json!("Failed");
        self.make(root, object).await
    }

    /// Creates it, or tries again later as people do.
    async fn make(&mut self, root: Root, object: Value) -> Result<()> {
        let made = match root.kind {
            Kind::Job => self.create::<Job>(&root, &object).await?,
            Kind::Deployment => self.create::<Deployment>(&root, &object).await?,
            Kind::Pod => self.create::<Pod>(&root, &object).await?,
        };
        match made {
            true => self.roots.push_back(root),
            false if self.later.len() < 40 => {
                self.later.push_back((Instant::now() + AGAIN, root, object));
            }
            false => {}
        }
        Ok(())
    }

    /// Whether it is there.
    async fn create<K>(&self, root: &Root, object: &Value) -> Result<bool>
    where
        K: Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>
            + Clone
            + DeserializeOwned
            + serde::Serialize
            + std::fmt::Debug
            + 'static,
    {
        let api: Api<K> = Api::namespaced(self.client.clone(), root.namespace);
        match api.create(&PostParams::default(), &serde_json::from_value(object.clone())?).await {
            Ok(stored) if root.kind == Kind::Pod => {
                let stored: Pod = serde_json::from_value(serde_json::to_value(stored)?)?;
                ensure!(is_gated(&stored), "{root:?} was stored without our gate");
                Ok(true)
            }
            Ok(_) => Ok(true),
            // It was made, and the answer did not arrive.
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(true),
            // Refused by a webhook that is down, a full queue, a quota, a namespace that goes;
            // or nobody answers.
            Err(_) => Ok(false),
        }
    }

    /// Deletes what has ended or served, opens what was held, makes the namespace again.
    async fn sweep(&mut self) -> Result<()> {
        self.roots.retain(|root| {
            root.born.elapsed() < Duration::from_mins(3) || root.kind == Kind::Deployment
        });
        let ended = self.book.pods().into_values().filter(|pod| pod.bare && pod.ended);
        for pod in ended.take(4) {
            let api: Api<Pod> = Api::namespaced(self.client.clone(), &pod.namespace);
            api.delete(&pod.name, &DeleteParams::default().grace_period(0)).await.ok();
        }
        let served = |root: &Root| root.kind == Kind::Deployment && root.born.elapsed() > SERVES;
        if let Some(at) = self.roots.iter().position(served) {
            self.delete(at).await?;
        }
        if self.held.is_some_and(|since| since.elapsed() > HELD) {
            self.set_queue(HOLDS, json!({"stop": "None"})).await?;
            self.held = None;
        }
        if self.passing && self.is_gone(PASSES).await {
            self.insist("the namespace is made again", async |work| {
                match work.lab.opt_in(PASSES, Some("soak-capped")).await {
                    Err(error) if format!("{error:#}").contains("already exists") => Ok(()),
                    other => other,
                }
            })
            .await?;
            self.passing = false;
        }
        Ok(())
    }

    async fn is_gone(&self, namespace: &str) -> bool {
        let api: Api<Namespace> = Api::all(self.client.clone());
        matches!(api.get_opt(namespace).await, Ok(None))
    }

    async fn delete_one(&mut self) -> Result<()> {
        if self.roots.is_empty() {
            return Ok(());
        }
        let last = u64::try_from(self.roots.len() - 1)?;
        let at = usize::try_from(self.random.within(0, last))?;
        self.delete(at).await
    }

    async fn delete(&mut self, at: usize) -> Result<()> {
        let Some(root) = self.roots.remove(at) else { return Ok(()) };
        let partner =
            self.roots.iter().position(|other| Some(&other.name) == root.partner.as_ref());
        let partner = partner.and_then(|at| self.roots.remove(at));
        // One that is still to be made would wait for ever.
        self.later.retain(|(_, other, _)| Some(&other.name) != root.partner.as_ref());
        self.delete_root(&root).await?;
        match partner {
            Some(partner) => self.delete_root(&partner).await,
            None => Ok(()),
        }
    }

    async fn delete_root(&self, root: &Root) -> Result<()> {
        self.insist("an object is deleted", async |work| {
            let (client, name) = (work.client.clone(), &root.name);
            let params = DeleteParams::background();
            let done = match root.kind {
                Kind::Job => {
                    let api: Api<Job> = Api::namespaced(client, root.namespace);
                    api.delete(name, &params).await.map(drop)
                }
                Kind::Deployment => {
                    let api: Api<Deployment> = Api::namespaced(client, root.namespace);
                    api.delete(name, &params).await.map(drop)
                }
                Kind::Pod => {
                    let api: Api<Pod> = Api::namespaced(client, root.namespace);
                    api.delete(name, &params).await.map(drop)
                }
            };
            unless_gone(done)
        })
        .await
    }

    async fn relabel(&mut self) -> Result<()> {
        let jobs: Vec<Root> =
            self.roots.iter().filter(|root| root.kind == Kind::Job).cloned().collect();
        if jobs.is_empty() {
            return Ok(());
        }
        let (root, queue) = (self.random.one_of(&jobs).clone(), *self.random.one_of(&QUEUES));
        let label = json!({"metadata": {"labels": {"tidegate.dev/queue": queue}}});
        self.insist("a Job is relabelled", async |work| {
            let api: Api<Job> = Api::namespaced(work.client.clone(), root.namespace);
            let patch = Patch::Merge(&label);
            unless_gone(api.patch(&root.name, &PatchParams::default(), &patch).await.map(drop))
        })
        .await
    }

    async fn shift(&mut self) -> Result<()> {
        let (queue, cpu) = if self.random.one_in(2) {
            (SHIFTS, self.random.within(LEAST, 5))
        } else {
            (TOP, self.random.within(LEAST_TOP, 16))
        };
        self.set_queue(queue, json!({"limit": {"cpu": cpu.to_string()}})).await
    }

    async fn hold(&mut self) -> Result<()> {
        self.held.get_or_insert_with(Instant::now);
        self.set_queue(HOLDS, json!({"stop": "Hold"})).await
    }

    async fn set_queue(&self, queue: &str, spec: Value) -> Result<()> {
        self.insist("a queue is changed", async |work| {
            work.lab.set_queue(queue, spec.clone()).await
        })
        .await
    }

    /// Deletes the namespace that passes, with all that waits and runs there.
    async fn pass(&mut self) -> Result<()> {
        if !self.passing {
            self.insist("a namespace is deleted", async |work| {
                let api: Api<Namespace> = Api::all(work.client.clone());
                unless_gone(api.delete(PASSES, &DeleteParams::default()).await.map(drop))
            })
            .await?;
            self.passing = true;
            self.roots.retain(|root| root.namespace != PASSES);
            self.later.retain(|(_, root, _)| root.namespace != PASSES);
        }
        Ok(())
    }

    /// Tries until it works, through outages.
    async fn insist(
        &self,
        what: &str,
        mut act: impl AsyncFnMut(&Self) -> Result<()>,
    ) -> Result<()> {
        let end = Instant::now() + OUTAGE;
        loop {
            match act(self).await {
                Ok(()) => return Ok(()),
                Err(error) if Instant::now() > end => bail!("{what}: {error:#}"),
                Err(_) => tokio::time::sleep(PACE).await,
            }
        }
    }

    /// Makes what could not be made yet, opens everything and lets what serves go, so that all
    /// can end.
    pub async fn open(&mut self) -> Result<()> {
        while let Some((_, root, object)) = self.later.pop_front() {
            if root.kind == Kind::Job {
                self.insist("a Job is made", async |work| {
                    let made = work.create::<Job>(&root, &object).await?;
                    ensure!(made, "{root:?} was refused");
                    Ok(())
                })
                .await?;
            }
        }
        for queue in QUEUES {
            self.set_queue(queue, json!({"stop": "None"})).await?;
        }
        self.set_queue(TOP, json!({"limit": {"cpu": "30"}})).await?;
        self.set_queue(SHIFTS, json!({"limit": {"cpu": "5"}})).await?;
        self.insist("Deployments are deleted", async |work| {
            for (namespace, _) in NAMESPACES {
                let api: Api<Deployment> = Api::namespaced(work.client.clone(), namespace);
                api.delete_collection(&DeleteParams::background(), &ListParams::default()).await?;
            }
            Ok(())
        })
        .await
    }

    /// Jobs that have not ended, by name.
    pub async fn unended(&self) -> Result<Vec<String>> {
        let api: Api<Job> = Api::all(self.client.clone());
        let jobs = api.list(&ListParams::default()).await?.items;
        let ended = |job: &Job| {
            let conditions = job.status.as_ref().and_then(|status| status.conditions.as_ref());
            let last = |kind: &str| matches!(kind, "Complete" | "Failed");
            conditions.is_some_and(|all| all.iter().any(|c| last(&c.type_) && c.status == "True"))
        };
        let open = jobs.into_iter().filter(|job| !ended(job));
        Ok(open.filter_map(|job| job.metadata.name).collect())
    }
}

fn unless_gone(done: Result<(), kube::Error>) -> Result<()> {
    match done {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        other => Ok(other?),
    }
}

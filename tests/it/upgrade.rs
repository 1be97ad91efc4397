//! All of Tidegate is replaced by another version while pods are made: no create fails, no
//! gate is lost or opened twice, no limit passed. And back again.
//!
//! `./dev upgrade` gives two versions; otherwise it is the same one on both sides.

use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::{
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::support::{
    balancer::Balancer,
    build::Build,
    cluster::{Cluster, Component, Options},
    lab::{Lab, bare_pod, is_gated, job},
    record::Record,
    replicas::Replicas,
    storm::{Attempt, attempt, in_a_storm},
    tidegate::{Install, Tidegate, cli, kubectl_apply},
    wait,
    webhooks::Webhook,
};

/// For so long a Service still leads to one that is not ready.
const LAG: Duration = Duration::from_secs(1);
/// No machine is so slow that such a Lease is lost, and nobody waits until it expires.
const LONG: &[&str] = &["--leader-elect-lease-duration=10m", "--leader-elect-renew-deadline=9m"];
/// The kind that the chart brings.
const KIND: &str = "queues.tidegate.dev";
/// CPU, in thousandths, of the queue whose work comes and goes.
const LIMIT: i128 = 8_000;
/// Pods that nobody may let go before the end.
const HELD: usize = 5;

/// Two of each program, as the chart wants them.
struct Fleet {
    tidegate: &'static Tidegate,
    service: Balancer,
    webhooks: Vec<Webhook>,
    controllers: Replicas,
    started: usize,
}

impl Fleet {
    async fn start(tidegate: &'static Tidegate) -> Result<Self> {
        tidegate.stop_webhook("KILL")?;
        let controllers = Replicas::start(tidegate, LONG).await?;
        let service = Balancer::start(tidegate.webhook_port(), &[])?;
        let mut fleet = Self { tidegate, service, webhooks: Vec::new(), controllers, started: 0 };
        for _ in 0..2 {
            fleet.add_webhook().await?;
        }
        Ok(fleet)
    }

    async fn add_webhook(&mut self) -> Result<()> {
        self.started += 1;
        let name = format!("webhook-{}", self.started);
        self.webhooks.push(Webhook::start(self.tidegate, &name).await?);
        self.serve();
        Ok(())
    }

    fn serve(&self) {
        let ports: Vec<u16> = self.webhooks.iter().map(|webhook| webhook.port).collect();
        self.service.set(&ports);
    }

    /// Chart, webhooks and controllers, as a rolling update replaces them.
    async fn roll(&mut self, to: Build) -> Result<()> {
        eprintln!("to {} with {}", to.program.display(), to.chart.display());
        self.tidegate.switch(to);
        self.tidegate.helm(&["upgrade"], &Install::default()).await?;
        let mut old = Vec::new();
        for _ in 0..2 {
            self.add_webhook().await?;
            let leaves = self.webhooks.remove(0);
            leaves.process.signal("TERM")?;
            tokio::time::sleep(LAG).await;
            self.serve();
            old.push(leaves);
        }
        for webhook in old {
            webhook.has_ended().await?;
        }
        let leader = self.controllers.leader_but(None).await?;
        for which in [1 - leader, leader] {
            self.controllers.end(which, "TERM")?;
            self.controllers.restart(which).await?;
            self.controllers.are_ready().await?;
        }
        ensure!(self.controllers.leader_but(None).await? != leader, "the old leader leads");
        Ok(())
    }
}

/// What is there while all is replaced.
struct Work {
    busy: Lab,
    gang: Lab,
    held: Lab,
    storm: Lab,
    records: [Record; 2],
}

impl Work {
    /// Gated, released, running, and a gang in part.
    async fn start(tidegate: &'static Tidegate) -> Result<Self> {
        let busy = Lab::on(tidegate, "up-busy", json!({"limit": {"cpu": "8"}})).await?;
        let gang = Lab::on(tidegate, "up-gang", json!({"limit": {"cpu": "2"}})).await?;
        let held = Lab::on(tidegate, "up-held", json!({"stop": "Hold"})).await?;
        let storm = Lab::on(tidegate, "up-storm", json!({"stop": "Hold"})).await?;
        wait::until("the Service is reached", wait::SOON, async || {
            Ok(matches!(attempt(&storm, "first").await?, Attempt::Gated))
        })
        .await?;
        let records = [Record::start(busy.pod_api()).await?, Record::start(gang.pod_api()).await?];
        busy.create(job("runs", 2, "1", "1h")).await?;
        busy.usage_is("cpu", "2").await?;
        for number in 0..HELD {
            held.pod(&format!("held-{number}"), "100m").await?;
        }
        for number in 0..4 {
            gang.create(member(number)).await?;
        }
        let work = Self { busy, gang, held, storm, records };
        work.gang_is_open(2).await?;
        Ok(work)
    }

    async fn gang_is_open(&self, count: usize) -> Result<()> {
        wait::until(&format!("{count} of the gang are let go"), wait::SOON, async || {
            let pods = self.gang.pods().await?;
            let open = pods.iter().filter(|pod| !is_gated(pod)).count();
            ensure!(open == count, "{open} are");
            Ok(true)
        })
        .await
    }

    /// Replaces all while pods are made, released and end.
    async fn through(&self, fleet: &mut Fleet, to: Build, name: &str) -> Result<()> {
        self.busy.create(job(name, 60, "1", "500ms")).await?;
        let refusals = Box::pin(in_a_storm(&self.storm, name, fleet.roll(to))).await?;
        ensure!(refusals.is_empty(), "{refusals:?}");
        self.busy.completes(name).await?;
        self.is_whole().await
    }

    async fn is_whole(&self) -> Result<()> {
        self.busy.usage_is("cpu", "2").await?;
        self.held.all_gated(HELD).await?;
        self.gang_is_open(2).await?;
        let [busy, gang] = self.records.each_ref().map(|record| record.peak(|_| true));
        ensure!(busy <= LIMIT && gang <= 2_000, "{busy} and {gang} at once");
        for lab in [&self.busy, &self.gang] {
            lab.one_patch_each().await?;
        }
        Ok(())
    }

    /// All that waited can still go.
    async fn goes_on(&self) -> Result<()> {
        self.gang.set_queue("up-gang", json!({"limit": {"cpu": "4"}})).await?;
        self.held.set_queue("up-held", json!({"stop": "None"})).await?;
        self.gang_is_open(4).await?;
        let held: Vec<_> = (0..HELD).map(|number| format!("held-{number}")).collect();
        self.held.released(&held.iter().map(String::as_str).collect::<Vec<_>>()).await?;
        for lab in [&self.busy, &self.gang, &self.held] {
            lab.one_patch_each().await?;
        }
        Ok(())
    }
}

fn member(number: usize) -> Value {
    let mut pod = bare_pod(&format!("member-{number}"), "1");
    pod["metadata"]["annotations"] =
        json!({"tidegate.dev/group": "gang", "tidegate.dev/min-count": "2"});
    pod
}

/// The kinds of the version under test, as docs/operations.md tells, over one that Helm brought
/// and that was another, whatever the version before is.
async fn apply_kinds(cluster: &Cluster) -> Result<()> {
    let all: Api<CustomResourceDefinition> = Api::all(cluster.client().await?);
    let mut kind = all.get(KIND).await?;
    kind.metadata = ObjectMeta { name: kind.metadata.name, ..ObjectMeta::default() };
    kind.status = None;
    kind.spec.names.short_names = Some(vec!["older".to_owned()]);
    all.patch(KIND, &PatchParams::apply("helm").force(), &Patch::Apply(&kind)).await?;
    let kinds = cli(cluster.kubeconfig(), &["crds"]).await?;
    ensure!(kinds.code == 0, "{kinds:?}");
    kubectl_apply(cluster.kubeconfig(), &kinds.stdout).await?;
    ensure!(all.get(KIND).await?.spec.names.short_names != kind.spec.names.short_names);
    Ok(())
}

async fn there_and_back(tidegate: &'static Tidegate) -> Result<()> {
    let mut fleet = Fleet::start(tidegate).await?;
    let work = Work::start(tidegate).await?;
    apply_kinds(tidegate.cluster()).await?;
    work.through(&mut fleet, Build::present(), "upgrade").await?;
    work.through(&mut fleet, Build::previous(), "downgrade").await?;
    work.goes_on().await
}

#[tokio::test]
async fn all_of_it_is_upgraded_and_downgraded_in_a_storm_and_no_create_fails() -> Result<()> {
    let cluster = tokio::task::spawn_blocking(|| Cluster::start(&Options::default())).await??;
    let installed =
        Tidegate::install_build(&cluster, &Install::default(), Build::previous()).await?;
    let outcome = there_and_back(Box::leak(Box::new(installed))).await;
    for component in Component::ALL.into_iter().rev() {
        cluster.stop(component).await?;
    }
    outcome
}

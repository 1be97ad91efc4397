//! The whole path on real control planes, beside what their apiservers do without us.

pub mod admission;
pub mod kueue;
pub mod memory;
pub mod release;

mod latency;
mod life;
mod pods;
mod watch;
mod writes;

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use crate::figures::Report;
use crate::support::{
    cluster::{Cluster, Options},
    lab::Lab,
    tidegate::{Install, Tidegate},
    wait,
};

/// Requests in flight at once, as many as Tidegate's writer allows itself.
const IN_FLIGHT: usize = 16;
/// End of the name of the controller's account.
const OURS: &str = ":tidegate-controller";
/// Longest time for everything.
const LIMIT: Duration = Duration::from_mins(20);

/// One run and what it found.
pub struct Run {
    report: Report,
    begin: Instant,
    pods: Option<usize>,
}

/// Measures on a cluster that ends with this process.
pub fn run(
    pods: Option<usize>,
    measure: impl AsyncFnOnce(&mut Run) -> Result<()>,
) -> Result<Report> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let mut run = Run { report: Report::default(), begin: Instant::now(), pods };
    runtime.block_on(async {
        let measuring = tokio::time::timeout(LIMIT, measure(&mut run));
        measuring.await.context("it took too long")?
    })?;
    run.say("done");
    Ok(run.report)
}

impl Run {
    fn say(&self, what: &str) {
        eprintln!("{:>4} s  {what}", self.begin.elapsed().as_secs());
    }

    /// How many pods: what the caller wants, else the usual.
    fn size(&mut self, what: &str, usual: usize) -> usize {
        let pods = self.pods.unwrap_or(usual);
        self.report.size(what, pods as u64);
        pods
    }

    /// A control plane with 20 fake nodes, on which pods end a tenth of a second after
    /// they began.
    fn cluster(&self) -> Result<&'static Cluster> {
        self.say("starting a control plane");
        let flags = ["--node-cpu=64", "--node-memory=512Gi", "--node-pods=1000"];
        let flags = flags.into_iter().chain(["--default-duration=100ms"]);
        let flags = flags.map(str::to_owned).collect();
        let options = Options { nodes: 20, flags, ..Options::default() };
        Ok(Box::leak(Box::new(Cluster::start(&options)?)))
    }

    async fn install(&self, cluster: &Cluster) -> Result<&'static Tidegate> {
        self.say("installing the chart");
        let installed = Tidegate::install(cluster, &Install::default()).await?;
        Ok(Box::leak(Box::new(installed)))
    }
}

/// The processes whose CPU is ours.
fn programs(tidegate: &Tidegate) -> Result<[u32; 2]> {
    Ok([tidegate.controller_pid()?, tidegate.webhook_pid()?])
}

/// Waits until the controller counts so many waiting pods.
async fn known(lab: &Lab, pods: usize) -> Result<()> {
    wait::until(&format!("{pods} pods are known"), wait::START, async || {
        let status = lab.get_queue(&lab.namespace).await?.status.unwrap_or_default();
        Ok(usize::try_from(status.pending.pods)? == pods)
    })
    .await
}

//! What the whole life of a pod costs: created, let go, scheduled, run, ended.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use anyhow::Result;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, ResourceExt as _};

use crate::figures::{Report, cpu_time, median, millis};
use crate::support::cluster::{Cluster, Component};

use super::{pods, watch::Watch};

/// What one life costs, as the mean of many that were lived at once.
#[derive(Clone, Copy, Debug)]
pub struct Life {
    /// Created a second.
    pub created: f64,
    /// Without any gate a second, creation included.
    pub let_go: f64,
    /// Ended a second, all before included.
    pub ended: f64,
    /// CPU of the apiserver, in milliseconds.
    pub apiserver: f64,
    /// CPU of the programs that queue, in milliseconds.
    pub queueing: f64,
}

/// Makes pods in a namespace as fast as the apiserver takes them and follows them to
/// their end.
pub async fn live(
    cluster: &Cluster,
    client: &Client,
    namespace: &str,
    programs: &[u32],
    pods: &[Pod],
) -> Result<Life> {
    let apiserver = cluster.pid(Component::ApiServer)?;
    let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let mut watch = Watch::start(client, namespace).await?;
    let before = (cpu_time(apiserver)?, cpu_of(programs)?);
    let begin = Instant::now();
    let ((_, creating), (let_go, ended)) =
        tokio::try_join!(pods::create(&api, pods), follow(&mut watch, pods.len()))?;
    let of_one = |now: Duration, before| millis(now.saturating_sub(before)) / pods.len() as f64;
    let rate = |took: Duration| pods.len() as f64 / took.as_secs_f64();
    Ok(Life {
        created: rate(creating),
        let_go: rate(let_go.duration_since(begin)),
        ended: rate(ended.duration_since(begin)),
        apiserver: of_one(cpu_time(apiserver)?, before.0),
        queueing: of_one(cpu_of(programs)?, before.1),
    })
}

/// When the last gate was gone and when the last pod had ended, its finalizers done.
async fn follow(watch: &mut Watch, pods: usize) -> Result<(Instant, Instant)> {
    let (mut open, mut last) = (BTreeSet::new(), Instant::now());
    let mut done = BTreeSet::new();
    loop {
        let (pod, at) = watch.next(|pod| !waits(pod)).await?;
        if open.insert(pod.name_any()) {
            last = at;
        }
        if has_ended(&pod) {
            done.insert(pod.name_any());
        }
        if done.len() == pods {
            return Ok((last, at));
        }
    }
}

fn waits(pod: &Pod) -> bool {
    let gates = pod.spec.as_ref().and_then(|spec| spec.scheduling_gates.as_ref());
    gates.is_some_and(|gates| !gates.is_empty())
}

fn has_ended(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    phase == Some("Succeeded") && pod.finalizers().is_empty()
}

fn cpu_of(programs: &[u32]) -> Result<Duration> {
    programs.iter().map(|&program| cpu_time(program)).sum()
}

impl Life {
    /// Its figures, by the name of what they are of.
    pub fn report(&self, name: &str, report: &mut Report) {
        report.add(format!("life_created_{name}"), self.created, "pods/s");
        report.add(format!("life_created_to_ungated_{name}"), self.let_go, "pods/s");
        report.add(format!("life_created_to_ended_{name}"), self.ended, "pods/s");
        report.add(format!("life_cpu_{name}"), self.apiserver, "ms of apiserver/pod");
    }

    /// Figure by figure the median of several.
    pub fn median(lives: &[Self]) -> Self {
        let of = |figure: fn(&Self) -> f64| median(lives.iter().map(figure));
        Self {
            created: of(|life| life.created),
            let_go: of(|life| life.let_go),
            ended: of(|life| life.ended),
            apiserver: of(|life| life.apiserver),
            queueing: of(|life| life.queueing),
        }
    }
}

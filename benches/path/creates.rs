//! How many pods a second the apiserver takes: without us, beside us, through us.

use std::time::Instant;

use anyhow::{Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::{Namespace, Pod, ServiceAccount};
use kube::{Api, Client, api::PostParams};
use serde_json::json;

use crate::figures::{Report, cpu_time, millis};
use crate::support::{
    cluster::{Cluster, Component},
    lab::{Lab, is_gated},
    wait,
};

use super::{IN_FLIGHT, known, pod, typed};

/// Pods of one measurement.
const PODS: usize = 500;
/// Measurements of each kind, taken in turns.
const TURNS: usize = 2;
/// Pods that each adder gates.
pub const GATED: usize = 2 * TURNS * PODS;
/// The namespace that never opts in.
const PLAIN: &str = "bench-plain";

/// What creating pods cost, by kind.
pub struct Creates {
    client: Client,
    apiserver: u32,
    made: usize,
    costs: Vec<(String, Vec<Cost>)>,
}

/// One measurement.
struct Cost {
    pods_a_second: f64,
    /// CPU of the apiserver for one pod.
    millis: f64,
}

impl Creates {
    /// A namespace that never opts in.
    pub async fn new(cluster: &Cluster) -> Result<Self> {
        let client = cluster.client().await?;
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let plain = serde_json::from_value(json!({"metadata": {"name": PLAIN}}))?;
        namespaces.create(&PostParams::default(), &plain).await?;
        let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), PLAIN);
        wait::until("the default ServiceAccount", wait::SOON, async || {
            Ok(accounts.get_opt("default").await?.is_some())
        })
        .await?;
        let apiserver = cluster.pid(Component::ApiServer)?;
        Ok(Self { client, apiserver, made: 0, costs: Vec::new() })
    }

    /// While the chart is not installed. The first turn warms the apiserver up.
    pub async fn before(&mut self) -> Result<()> {
        self.turn(PLAIN).await?;
        let mut before = Vec::new();
        for _ in 0..TURNS {
            before.push(self.turn(PLAIN).await?);
        }
        self.costs.push(("before_install".to_owned(), before));
        Ok(())
    }

    /// In turns without the opt-in, with it, and with it while the controller stands still.
    pub async fn gated_by(&mut self, adder: &str, lab: &Lab) -> Result<()> {
        let (mut plain, mut gated, mut alone) = (Vec::new(), Vec::new(), Vec::new());
        for turn in 1..=TURNS {
            plain.push(self.turn(PLAIN).await?);
            gated.push(self.turn(&lab.namespace).await?);
            lab.tidegate.signal_controller("STOP")?;
            alone.push(self.turn(&lab.namespace).await?);
            lab.tidegate.signal_controller("CONT")?;
            known(lab, 2 * PODS * turn).await?;
        }
        self.costs.push((format!("{adder}_without_opt_in"), plain));
        self.costs.push((format!("{adder}_gate"), gated));
        self.costs.push((format!("{adder}_gate_controller_still"), alone));
        Ok(())
    }

    async fn turn(&mut self, namespace: &str) -> Result<Cost> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let pods = (self.made..self.made + PODS)
            .map(|number| typed(pod(&format!("pod-{number}"))))
            .collect::<Result<Vec<_>>>()?;
        self.made += PODS;
        let (begin, used) = (Instant::now(), cpu_time(self.apiserver)?);
        let made: Vec<Pod> = stream::iter(&pods)
            .map(|pod| async { api.create(&PostParams::default(), pod).await })
            .buffer_unordered(IN_FLIGHT)
            .try_collect()
            .await?;
        let (took, used) = (begin.elapsed(), cpu_time(self.apiserver)?.saturating_sub(used));
        let opted_in = namespace != PLAIN;
        ensure!(made.iter().all(|pod| is_gated(pod) == opted_in), "gates in {namespace} are wrong");
        let pods = PODS as f64;
        Ok(Cost { pods_a_second: pods / took.as_secs_f64(), millis: millis(used) / pods })
    }

    /// All costs, and those of a gate as parts of those without one.
    pub fn report(&self, report: &mut Report) {
        report.size("pods of one rate of creates", PODS as u64);
        report.size("turns of one rate of creates", TURNS as u64);
        for (kind, costs) in &self.costs {
            report.add(format!("creates_{kind}"), mean(costs).pods_a_second, "pods/s");
            report.add(format!("create_cpu_{kind}"), mean(costs).millis, "ms of apiserver/pod");
        }
        for adder in ["webhook", "policy"] {
            let plain = self.cost(&format!("{adder}_without_opt_in"));
            for kind in [format!("{adder}_gate"), format!("{adder}_gate_controller_still")] {
                let gated = self.cost(&kind);
                let ratio = gated.pods_a_second / plain.pods_a_second;
                report.add_with_goal(format!("creates_ratio_{kind}"), ratio, "x", "at least 0.75");
                report.add(format!("create_cpu_ratio_{kind}"), gated.millis / plain.millis, "x");
            }
        }
    }

    fn cost(&self, kind: &str) -> Cost {
        let costs = self.costs.iter().find(|(known, _)| known == kind);
        mean(costs.map_or(&[], |(_, costs)| costs))
    }
}

fn mean(costs: &[Cost]) -> Cost {
    let of = |one: fn(&Cost) -> f64| costs.iter().map(one).sum::<f64>() / costs.len().max(1) as f64;
    Cost { pods_a_second: of(|cost| cost.pods_a_second), millis: of(|cost| cost.millis) }
}

/// Waits until pods have been gated for half a second: the apiserver takes a moment
/// to leave the webhook for the policy and refuses pods meanwhile.
pub async fn gated_for_a_while(lab: &Lab) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(lab.client.clone(), &lab.namespace);
    let probe = typed(pod("probe"))?;
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    let mut in_a_row = 0;
    wait::until("pods are gated", wait::SOON, async || {
        let made = pods.create(&dry_run, &probe).await;
        in_a_row = if made.as_ref().is_ok_and(is_gated) { in_a_row + 1 } else { 0 };
        made?;
        Ok(in_a_row == 10)
    })
    .await
}

//! How many pods a second the apiserver takes: without us, beside us, through us.

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::{
    admissionregistration::v1::MutatingWebhookConfiguration,
    core::v1::{Namespace, Pod, ServiceAccount},
};
use kube::{Api, Client, api::PostParams};
use serde_json::json;

use crate::figures::Report;
use crate::support::{
    cluster::Cluster,
    lab::{Lab, is_gated},
    tidegate::RELEASE,
    wait,
};

use super::{IN_FLIGHT, pod, typed};

/// Pods of one measurement.
const PODS: usize = 500;
/// Measurements of each kind, taken in turns.
const TURNS: usize = 2;
/// The namespace that never opts in.
const PLAIN: &str = "bench-plain";

/// Rates of all kinds, in pods a second.
pub struct Creates {
    client: Client,
    made: usize,
    gated: usize,
    /// Name of a figure and its measurements.
    rates: Vec<(String, Vec<f64>)>,
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
        Ok(Self { client, made: 0, gated: 0, rates: Vec::new() })
    }

    /// Gated pods so far.
    pub fn gated(&self) -> usize {
        self.gated
    }

    /// While the chart is not installed. The first turn warms the apiserver up.
    pub async fn before(&mut self) -> Result<()> {
        self.turn(PLAIN).await?;
        let mut rates = Vec::new();
        for _ in 0..TURNS {
            rates.push(self.turn(PLAIN).await?);
        }
        self.rates.push(("creates_before_install".to_owned(), rates));
        Ok(())
    }

    /// In turns without and with the opt-in.
    pub async fn gated_by(&mut self, adder: &str, lab: &Lab) -> Result<()> {
        let (mut plain, mut gated) = (Vec::new(), Vec::new());
        for _ in 0..TURNS {
            plain.push(self.turn(PLAIN).await?);
            gated.push(self.turn(&lab.namespace).await?);
            self.gated += PODS;
        }
        self.rates.push((format!("creates_without_opt_in_{adder}"), plain));
        self.rates.push((format!("creates_gated_by_{adder}"), gated));
        Ok(())
    }

    /// Pods a second.
    async fn turn(&mut self, namespace: &str) -> Result<f64> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let pods = (self.made..self.made + PODS)
            .map(|number| typed(pod(&format!("pod-{number}"))))
            .collect::<Result<Vec<_>>>()?;
        self.made += PODS;
        let begin = Instant::now();
        let made: Vec<Pod> = stream::iter(&pods)
            .map(|pod| async { api.create(&PostParams::default(), pod).await })
            .buffer_unordered(IN_FLIGHT)
            .try_collect()
            .await?;
        let took = begin.elapsed();
        let opted_in = namespace != PLAIN;
        ensure!(made.iter().all(|pod| is_gated(pod) == opted_in), "gates in {namespace} are wrong");
        Ok(PODS as f64 / took.as_secs_f64())
    }

    /// The rates, and what is left of those without the opt-in.
    pub fn report(&self, report: &mut Report) {
        report.size("pods of one rate of creates", PODS as u64);
        report.size("turns of one rate of creates", TURNS as u64);
        for (name, rates) in &self.rates {
            report.add(name.clone(), mean(rates), "pods/s");
        }
        for adder in ["webhook", "policy"] {
            let rate = |kind: &str| self.rate(&format!("creates_{kind}_{adder}"));
            let ratio = rate("gated_by") / rate("without_opt_in");
            let name = format!("creates_gated_by_{adder}_to_without_opt_in");
            report.add_with_goal(name, ratio, "x", "at least 0.75");
        }
    }

    fn rate(&self, name: &str) -> f64 {
        self.rates.iter().find(|(known, _)| known == name).map_or(0.0, |(_, rates)| mean(rates))
    }
}

fn mean(rates: &[f64]) -> f64 {
    rates.iter().sum::<f64>() / rates.len().max(1) as f64
}

/// Waits until the webhook's configuration is gone and pods are gated all the same.
pub async fn policy_gates(lab: &Lab) -> Result<()> {
    let webhooks: Api<MutatingWebhookConfiguration> = Api::all(lab.client.clone());
    let pods: Api<Pod> = Api::namespaced(lab.client.clone(), &lab.namespace);
    let probe = typed(pod("probe"))?;
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    wait::until("the policy gates", wait::SOON, async || {
        ensure!(webhooks.get_opt(RELEASE).await?.is_none(), "the webhook is still configured");
        let made = pods.create(&dry_run, &probe).await.context("the policy does not gate yet")?;
        Ok(is_gated(&made))
    })
    .await
}

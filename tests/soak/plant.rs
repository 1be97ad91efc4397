//! All that runs: a control plane, two controllers, each behind a network of its own, and
//! two webhooks behind a Service; and what a kubelet does for them.

use std::{collections::VecDeque, fs, path::Path, time::Duration};

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};

use crate::support::{
    balancer::Balancer,
    cluster::{Cluster, Component, Options},
    process::Process,
    proxy::Proxy,
    replicas::Replicas,
    tidegate::{Install, NAMESPACE, Tidegate, free_port, mount},
    wait,
};

/// Of the controllers' Lease. A slow machine must not lose it without need.
const LEASE: [&str; 3] = [
    "--leader-elect-lease-duration=7s",
    "--leader-elect-renew-deadline=6s",
    "--leader-elect-retry-period=500ms",
];
/// Between two looks of the kubelet at a mounted Secret.
const MOUNTS: Duration = Duration::from_secs(1);
/// Programs, as their logs are called.
const WEBHOOKS: [&str; 2] = ["webhook-a", "webhook-b"];

/// Everything.
pub struct Plant {
    /// The controllers.
    pub controllers: Replicas,
    /// Their ways to the apiserver.
    pub networks: [Proxy; 2],
    /// The installation.
    pub tidegate: &'static Tidegate,
    /// The administrator, who asks once.
    pub client: Client,
    webhooks: [Option<Process>; 2],
    ports: [u16; 2],
    service: Balancer,
    nodes: VecDeque<String>,
    nodes_made: usize,
}

impl Plant {
    /// Starts all of it.
    pub async fn start() -> Result<Self> {
        let cluster: &'static Cluster = Box::leak(Box::new(Cluster::start(&Options::default())?));
        let install = Install::default();
        let tidegate = Tidegate::install(cluster, &install).await?;
        let tidegate: &'static Tidegate = Box::leak(Box::new(tidegate));
        let networks = [Proxy::start(cluster).await?, Proxy::start(cluster).await?];
        let servers = networks.each_ref().map(Proxy::url);
        let servers = servers.each_ref().map(String::as_str);
        let controllers = Replicas::start_at(tidegate, &LEASE, servers).await?;
        let mut config = cluster.config().await?;
        config.default_retry = false;
        let client = Client::try_from(config)?;
        tidegate.stop_webhook("TERM")?;
        let ports = [free_port()?, free_port()?];
        let service = Balancer::start(tidegate.webhook_port(), &ports)?;
        tokio::spawn(keep_mounted(client.clone(), tidegate));
        let nodes = (1..=4).map(|number| format!("node-{number}")).collect();
        let webhooks = [None, None];
        let mut plant = Self {
            controllers,
            networks,
            tidegate,
            client,
            webhooks,
            ports,
            service,
            nodes,
            nodes_made: 4,
        };
        plant.mend().await?;
        Ok(plant)
    }

    /// The control plane.
    pub fn cluster(&self) -> &Cluster {
        self.tidegate.cluster()
    }

    /// Starts whatever does not run; what had ended by itself, by its last words.
    pub async fn mend(&mut self) -> Result<Vec<String>> {
        for component in Component::ALL {
            self.cluster().start_component(component).await?;
        }
        self.tend().await
    }

    /// Starts programs of ours that do not run; what had ended by itself, by its last words.
    pub async fn tend(&mut self) -> Result<Vec<String>> {
        let mut ended = Vec::new();
        for which in 0..2 {
            if !self.controllers.is_alive(which) {
                let tail = self.controllers.tail(which);
                if self.controllers.pid(which).is_some() {
                    let words = tail.lines().last().unwrap_or_default();
                    ended.push(format!(
                        "{} ended: {words}",
                        ["controller-a", "controller-b"][which]
                    ));
                }
                self.controllers.restart(which).await?;
            }
        }
        for which in 0..2 {
            match &mut self.webhooks[which] {
                Some(process) => process.check().context("a webhook ended by itself")?,
                None => self.start_webhook(which).await?,
            }
        }
        self.service.set(&self.ports);
        Ok(ended)
    }

    async fn start_webhook(&mut self, which: usize) -> Result<()> {
        let (name, port) = (WEBHOOKS[which], self.ports[which]);
        let process = self.tidegate.start_webhook_replica(name, port, &[]).await?;
        self.webhooks[which] = Some(process);
        wait::until(&format!("{name} listens"), wait::SOON, async || {
            Ok(std::net::TcpStream::connect(("127.0.0.1", port)).is_ok())
        })
        .await
    }

    /// Kills a webhook; it stays down.
    pub fn kill_webhook(&mut self, which: usize) -> Result<()> {
        self.webhooks[which].take().context("it does not run")?.end("KILL")
    }

    /// Sends a webhook a signal.
    pub fn signal_webhook(&self, which: usize, signal: &str) -> Result<()> {
        self.webhooks[which].as_ref().context("it does not run")?.signal(signal)
    }

    /// From now on new connections go to this one only.
    pub fn only_webhook(&self, which: usize) {
        self.service.set(&[self.ports[which]]);
    }

    /// The node that is there for the longest time.
    pub fn a_node(&self) -> Result<String> {
        Ok(self.nodes.front().context("no node")?.clone())
    }

    /// Deletes a node.
    pub async fn lose_node(&mut self, name: &str) -> Result<()> {
        self.nodes.retain(|node| node != name);
        self.cluster().remove_node(name).await
    }

    /// Adds one with a name that was never used.
    pub async fn another_node(&mut self) -> Result<()> {
        self.nodes_made += 1;
        let name = format!("node-{}", self.nodes_made);
        self.cluster().add_node(serde_json::json!({"name": name})).await?;
        self.nodes.push_back(name);
        Ok(())
    }

    /// Resident memory of both controllers in MiB; 0 for one that does not run.
    pub fn memory(&self) -> [u64; 2] {
        [0, 1].map(|which| self.controllers.pid(which).and_then(resident).unwrap_or_default())
    }

    /// Lines of our programs' logs that tell of a panic.
    pub fn panics(&self) -> Result<Vec<String>> {
        let mut found = Vec::new();
        for path in logs(&self.cluster().dir().join("tidegate"))? {
            let text = String::from_utf8_lossy(&fs::read(&path)?).into_owned();
            let panics = text.lines().filter(|line| line.contains("panicked"));
            found.extend(panics.map(|line| format!("{}: {line}", path.display())));
        }
        Ok(found)
    }

    /// Copies all logs to a folder.
    pub fn keep_logs(&self, folder: &Path) -> Result<()> {
        fs::create_dir_all(folder)?;
        let dir = self.cluster().dir();
        for path in logs(dir)?.into_iter().chain(logs(&dir.join("tidegate"))?) {
            let name = path.file_name().context("no name")?;
            fs::copy(&path, folder.join(name))?;
        }
        Ok(())
    }
}

fn logs(dir: &Path) -> Result<Vec<std::path::PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "log") {
            found.push(path);
        }
    }
    Ok(found)
}

/// MiB.
fn resident(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? / 1024)
}

/// Mounts each new leaf of the Secret, as the kubelet does for the webhooks.
async fn keep_mounted(client: Client, tidegate: &'static Tidegate) {
    let secrets: Api<Secret> = Api::namespaced(client, NAMESPACE);
    let mut mounted = None;
    loop {
        if let Err(error) = mount_newer(&secrets, tidegate, &mut mounted).await {
            tracing::debug!(%error, "the Secret was not read");
        }
        tokio::time::sleep(MOUNTS).await;
    }
}

async fn mount_newer(
    secrets: &Api<Secret>,
    tidegate: &Tidegate,
    mounted: &mut Option<Vec<u8>>,
) -> Result<()> {
    let data = secrets.get("tidegate-tls").await?.data.unwrap_or_default();
    let Some(leaf) = data.get("tls.crt").map(|leaf| leaf.0.clone()) else { bail!("no leaf") };
    if mounted.as_ref() != Some(&leaf) {
        mount(&tidegate.mounted(), data.into_iter().map(|(key, value)| (key, value.0)))?;
        *mounted = Some(leaf);
    }
    Ok(())
}

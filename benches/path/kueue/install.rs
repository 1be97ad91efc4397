//! Kueue as its chart installs it, its manager run here with the token of its account.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::{Api, Client, api::PostParams};
use serde_json::{Value, json};

use crate::path::{pods, watch::has_gate};
use crate::support::{
    self,
    cluster::Cluster,
    process::Process,
    tidegate::{account_kubeconfig, free_port, kubectl, mount, tool},
    wait,
};

/// Label that names a pod's queue.
pub const QUEUE_LABEL: &str = "kueue.x-k8s.io/queue-name";
/// End of the name of its account.
pub const ACCOUNT: &str = ":kueue-controller-manager";

const NAMESPACE: &str = "kueue-system";
const MODULE: &str = "sigs.k8s.io/kueue";
const GATE: &str = "kueue.x-k8s.io/admission";
/// Time that it may take to start.
const START: Duration = Duration::from_mins(3);

/// The running manager.
pub struct Kueue(Process);

impl Kueue {
    /// Installs it with one queue, `place`, for the namespace of that name, and waits until
    /// it gates pods there.
    pub async fn install(cluster: &Cluster, place: &str) -> Result<Self> {
        let dir = cluster.dir().join("kueue");
        let port = free_port()?;
        let client = cluster.client().await?;
        fs::create_dir_all(&dir)?;
        let binary = tokio::task::spawn_blocking(|| support::helper("kueue")).await??;
        pods::namespace(&client, NAMESPACE, &[]).await?;
        pods::namespace(&client, place, &[]).await?;
        apply(cluster, &dir, "chart", chart(&dir, port)?).await?;
        let kubeconfig =
            account_kubeconfig(cluster, &dir, NAMESPACE, "kueue-controller-manager").await?;
        let mut command = Command::new(binary);
        command
            .env("KUBECONFIG", kubeconfig)
            .arg("--feature-gates=VisibilityOnDemand=false")
            .arg(format!("--config={}", configuration(&dir, port)?.display()));
        let mut kueue = Self(Process::start("kueue", &command, &dir)?);
        kueue.mount_certificate(&client, &dir.join("tls")).await?;
        wait::until("Kueue takes its queues", START, async || {
            kueue.0.check()?;
            apply(cluster, &dir, "queues", queues(place)).await?;
            Ok(true)
        })
        .await?;
        kueue.gates(&client, place).await?;
        Ok(kueue)
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.0.pid()
    }

    /// What the kubelet does once the manager has filled its Secret.
    async fn mount_certificate(&mut self, client: &Client, dir: &Path) -> Result<()> {
        let secrets: Api<Secret> = Api::namespaced(client.clone(), NAMESPACE);
        let data = wait::for_some("Kueue has made its certificate", START, async || {
            self.0.check()?;
            let data = secrets.get("kueue-webhook-server-cert").await?.data.unwrap_or_default();
            Ok(data.contains_key("tls.crt").then_some(data))
        })
        .await?;
        mount(dir, data.into_iter().map(|(key, value)| (key, value.0)))
    }

    async fn gates(&mut self, client: &Client, place: &str) -> Result<()> {
        let api: Api<Pod> = Api::namespaced(client.clone(), place);
        let probe = pods::pod("probe", &[], &[(QUEUE_LABEL, place)])?;
        let dry_run = PostParams { dry_run: true, ..PostParams::default() };
        wait::until("Kueue gates pods", START, async || {
            self.0.check()?;
            Ok(has_gate(&api.create(&dry_run, &probe).await?, GATE))
        })
        .await
    }
}

/// The manager's configuration as shipped, but for addresses, for integrations other than
/// pods, and for its own limit of 50 requests a second, which we do not have either.
fn configuration(dir: &Path, port: u16) -> Result<PathBuf> {
    let path = dir.join("configuration.json");
    let configuration = json!({
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "namespace": NAMESPACE,
        "health": {"healthProbeBindAddress": "0"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"host": "127.0.0.1", "port": port, "certDir": dir.join("tls")},
        "leaderElection": {"leaderElect": false},
        "controller": {"groupKindConcurrency": {"Pod": 5, "Workload.kueue.x-k8s.io": 5,
            "LocalQueue.kueue.x-k8s.io": 1, "ClusterQueue.kueue.x-k8s.io": 1,
            "ResourceFlavor.kueue.x-k8s.io": 1}},
        "clientConnection": {"qps": 1000, "burst": 2000},
        "internalCertManagement": {"enable": true,
            "webhookServiceName": "kueue-webhook-service",
            "webhookSecretName": "kueue-webhook-server-cert"},
        "integrations": {"frameworks": ["pod"]},
    });
    fs::write(&path, configuration.to_string())?;
    Ok(path)
}

/// The chart's objects, its webhooks leading to this machine. There is no aggregated API.
fn chart(dir: &Path, port: u16) -> Result<Vec<Value>> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/operators/kueue");
    let module = printed(
        Command::new("go").args(["list", "-m", "-f", "{{.Dir}}", MODULE]).current_dir(directory),
    )?;
    let chart = Path::new(module.trim()).join("charts/kueue");
    let text = printed(
        tool("helm")?
            .args(["template", "kueue"])
            .arg(chart)
            .args(["--namespace", NAMESPACE, "--kube-version=1.36.0"])
            .current_dir(dir),
    )?;
    let mut objects = serde_yaml::from_multiple::<Value>(&text)?;
    objects.retain(|object| {
        !matches!(object["kind"].as_str(), None | Some("Deployment" | "APIService" | "Service"))
    });
    for object in &mut objects {
        lead_here(object, port);
    }
    objects.push(json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "kueue-webhook-service", "namespace": NAMESPACE},
        "spec": {"type": "ExternalName", "externalName": "localhost"},
    }));
    Ok(objects)
}

/// Puts the port into each service that a webhook is reached by.
fn lead_here(value: &mut Value, port: u16) {
    if let Some(service) = value.pointer_mut("/clientConfig/service") {
        service["port"] = json!(port);
    }
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| lead_here(item, port)),
        Value::Object(fields) => fields.values_mut().for_each(|field| lead_here(field, port)),
        _ => {}
    }
}

/// A queue with more room than anybody asks for.
fn queues(place: &str) -> Vec<Value> {
    let version = "kueue.x-k8s.io/v1beta2";
    let quotas = json!([{"name": "cpu", "nominalQuota": "1000"},
        {"name": "memory", "nominalQuota": "10Ti"}]);
    vec![
        json!({"apiVersion": version, "kind": "ResourceFlavor", "metadata": {"name": "default"}}),
        json!({
            "apiVersion": version, "kind": "ClusterQueue", "metadata": {"name": place},
            "spec": {"namespaceSelector": {}, "resourceGroups": [{
                "coveredResources": ["cpu", "memory"],
                "flavors": [{"name": "default", "resources": quotas}]}]},
        }),
        json!({
            "apiVersion": version, "kind": "LocalQueue",
            "metadata": {"name": place, "namespace": place}, "spec": {"clusterQueue": place},
        }),
    ]
}

async fn apply(cluster: &Cluster, dir: &Path, name: &str, objects: Vec<Value>) -> Result<()> {
    let file = dir.join(format!("{name}.json"));
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    fs::write(&file, list.to_string())?;
    let file = file.to_str().context("a strange path")?;
    let done = kubectl(cluster.kubeconfig(), &["apply", "--server-side", "-f", file]).await?;
    ensure!(done.code == 0, "{}", done.stderr);
    Ok(())
}

fn printed(command: &mut Command) -> Result<String> {
    let done = command.output().with_context(|| format!("running {command:?}"))?;
    ensure!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
    Ok(String::from_utf8(done.stdout)?)
}

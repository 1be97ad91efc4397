//! A real Kubernetes for tests: `tgcluster` of `tests/cluster`, with fake nodes.
//!
//! Most tests share one cluster and work in namespaces of their own. A test that kills components
//! or needs several clusters starts its own.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU32, Ordering},
    },
};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde::Deserialize;
use serde_json::{Value, json};

/// How much of a log an error shows.
const TAIL: usize = 30;

/// What to start.
#[derive(Clone, Debug)]
pub struct Options {
    /// Clusters; they share one etcd.
    pub clusters: u32,
    /// Fake nodes in each cluster.
    pub nodes: u32,
    /// `nvidia.com/gpu` of each node.
    pub node_gpus: u32,
    /// More flags of `tgcluster up`, such as `--default-duration=200ms` or
    /// `--extra=kube-apiserver=--feature-gates=…`.
    pub flags: Vec<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self { clusters: 1, nodes: 4, node_gpus: 0, flags: Vec::new() }
    }
}

/// A part of the control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Component {
    /// The store, shared by all clusters of one start.
    Etcd,
    /// kube-apiserver.
    ApiServer,
    /// kube-controller-manager.
    ControllerManager,
    /// kube-scheduler.
    Scheduler,
}

impl Component {
    /// In the order in which they start.
    pub const ALL: [Self; 4] =
        [Self::Etcd, Self::ApiServer, Self::ControllerManager, Self::Scheduler];

    const fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::ApiServer => "kube-apiserver",
            Self::ControllerManager => "kube-controller-manager",
            Self::Scheduler => "kube-scheduler",
        }
    }
}

/// One running cluster. The processes end when the last cluster of its start is dropped, and in
/// any case when this process ends.
#[derive(Clone, Debug)]
pub struct Cluster {
    state: State,
    supervisor: Arc<Supervisor>,
}

/// What the control API tells of a cluster.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct State {
    number: usize,
    url: String,
    kubeconfig: PathBuf,
    audit_log: PathBuf,
    ca: PathBuf,
    ca_key: PathBuf,
}

/// What the control API tells of all.
#[derive(Deserialize)]
struct Status {
    clusters: Vec<State>,
}

impl Cluster {
    /// The cluster that tests share, with Tidegate on it, started by whoever asks first.
    pub fn shared() -> Result<&'static Self> {
        static SHARED: OnceLock<Result<Cluster, String>> = OnceLock::new();
        Self::once(&SHARED)
    }

    /// A second one to share, on which nothing is ever installed.
    pub fn bare() -> Result<&'static Self> {
        static BARE: OnceLock<Result<Cluster, String>> = OnceLock::new();
        Self::once(&BARE)
    }

    fn once(cell: &'static OnceLock<Result<Self, String>>) -> Result<&'static Self> {
        // Tests leave their work: there is room for all of it at once.
        let roomy = Options { nodes: 8, ..Options::default() };
        cell.get_or_init(|| Self::start(&roomy).map_err(|e| format!("{e:#}")))
            .as_ref()
            .map_err(|e| anyhow!("the shared cluster did not start: {e}"))
    }

    /// Starts one cluster of one's own.
    pub fn start(options: &Options) -> Result<Self> {
        let mut all = Self::start_many(&Options { clusters: 1, ..options.clone() })?;
        all.pop().context("no cluster was started")
    }

    /// Starts several clusters on one etcd.
    pub fn start_many(options: &Options) -> Result<Vec<Self>> {
        let supervisor = Arc::new(Supervisor::start(options)?);
        let status = supervisor.request("GET", "/status", None)?;
        let Status { clusters } = serde_json::from_value(status)?;
        let whole = |state| Self { state, supervisor: Arc::clone(&supervisor) };
        Ok(clusters.into_iter().map(whole).collect())
    }

    /// A new client of the cluster's administrator. Each test has a runtime of its own, and a
    /// client's connections belong to the runtime that made them.
    pub async fn client(&self) -> Result<Client> {
        Ok(Client::try_from(self.config().await?)?)
    }

    /// What [`Self::client`] is made from; change it to act as somebody else.
    pub async fn config(&self) -> Result<Config> {
        let kubeconfig = Kubeconfig::read_from(self.kubeconfig())?;
        let options = KubeConfigOptions::default();
        Ok(Config::from_custom_kubeconfig(kubeconfig, &options).await?)
    }

    /// The administrator's kubeconfig.
    pub fn kubeconfig(&self) -> &Path {
        &self.state.kubeconfig
    }

    /// `https://127.0.0.1:PORT`.
    pub fn url(&self) -> &str {
        &self.state.url
    }

    /// One JSON object a line, one line a request; the body only for a PATCH of a pod.
    pub fn audit_log(&self) -> &Path {
        &self.state.audit_log
    }

    /// Certificate and key of the authority that signs everything in this cluster.
    pub fn authority(&self) -> (&Path, &Path) {
        (&self.state.ca, &self.state.ca_key)
    }

    /// The directory of this cluster: logs as `COMPONENT.log`, `pki`, kubeconfigs.
    pub fn dir(&self) -> &Path {
        self.kubeconfig().parent().unwrap_or(&self.supervisor.dir)
    }

    /// 1 for the first cluster of a start.
    pub fn number(&self) -> usize {
        self.state.number
    }

    /// The process id of a component that is this cluster's alone.
    pub fn pid(&self, component: Component) -> Result<u32> {
        let status = self.supervisor.request("GET", "/status", None)?;
        let index = self.number().saturating_sub(1);
        let pid = status.pointer(&format!("/clusters/{index}/components/{}/pid", component.name()));
        Ok(u32::try_from(pid.and_then(Value::as_u64).context("no such component")?)?)
    }

    /// Ends a component at once; it stays down. After more than a few seconds without an API server
    /// the scheduler and the controllers take up to half a minute to look again, as they do
    /// anywhere; restart them when the test is not about that.
    pub async fn kill(&self, component: Component) -> Result<()> {
        self.component(component, "kill", None).await
    }

    /// Asks a component to end and waits until it has.
    pub async fn stop(&self, component: Component) -> Result<()> {
        self.component(component, "stop", None).await
    }

    /// Starts a component and waits until it answers.
    pub async fn start_component(&self, component: Component) -> Result<()> {
        self.component(component, "start", None).await
    }

    /// [`Self::stop`], then [`Self::start_component`].
    pub async fn restart(&self, component: Component) -> Result<()> {
        self.component(component, "restart", None).await
    }

    /// Restarts a component with these arguments behind its usual ones.
    pub async fn restart_with(&self, component: Component, extra: &[&str]) -> Result<()> {
        self.component(component, "restart", Some(json!({ "extra": extra }))).await
    }

    /// Adds a fake node. `spec` has `name` and any of `cpu`, `memory`, `pods`, `labels`, `taints`,
    /// `extended`, `allocatable`, `unschedulable`.
    pub async fn add_node(&self, spec: Value) -> Result<()> {
        self.post("nodes", Some(spec)).await
    }

    /// Deletes a node, as when its machine is given back.
    pub async fn remove_node(&self, name: &str) -> Result<()> {
        self.call("DELETE", &format!("nodes/{name}"), None).await
    }

    /// Lets a node's kubelet fall silent (Ready turns Unknown, nothing moves on it any more), or
    /// come back.
    pub async fn set_ready(&self, name: &str, ready: bool) -> Result<()> {
        let verb = if ready { "ready" } else { "notready" };
        self.post(&format!("nodes/{name}/{verb}"), None).await
    }

    async fn component(&self, component: Component, verb: &str, body: Option<Value>) -> Result<()> {
        self.post(&format!("components/{}/{verb}", component.name()), body).await
    }

    async fn post(&self, path: &str, body: Option<Value>) -> Result<()> {
        self.call("POST", path, body).await
    }

    /// The work is done when the control API answers.
    async fn call(&self, method: &'static str, path: &str, body: Option<Value>) -> Result<()> {
        let path = format!("/clusters/{}/{path}", self.number());
        let supervisor = Arc::clone(&self.supervisor);
        let ask = move || supervisor.request(method, &path, body.as_ref()).map(drop);
        tokio::task::spawn_blocking(ask).await?
    }
}

/// The `tgcluster up` process. It stops when its standard input closes, which the kernel sees to
/// however this process ends, and takes its directory with it.
#[derive(Debug)]
struct Supervisor {
    child: Child,
    dir: PathBuf,
}

impl Supervisor {
    fn start(options: &Options) -> Result<Self> {
        let binary = super::helper("cluster")?;
        let dir = fresh_dir();
        // Beside the directory, which goes when the process does.
        let log = dir.with_extension("log");
        let mut command = Command::new(binary);
        command
            .args(["up", "--until-stdin-closes", "--dir"])
            .arg(&dir)
            .arg(format!("--clusters={}", options.clusters))
            .arg(format!("--nodes={}", options.nodes))
            .arg(format!("--node-gpus={}", options.node_gpus))
            .args(&options.flags)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(fs::File::create(&log)?);
        if !keep() {
            command.arg("--remove-dir");
        }
        let mut child = command.spawn().with_context(|| format!("starting {command:?}"))?;
        let stdout = child.stdout.take().context("no standard output")?;
        let mut line = String::new();
        // The supervisor bounds its own start, and its end closes the pipe.
        BufReader::new(stdout).read_line(&mut line)?;
        let supervisor = Self { child, dir };
        let said = tail(&log);
        if !keep() {
            fs::remove_file(&log)?;
        }
        ensure!(line.trim() == "ready", "no cluster:\n{said}");
        Ok(supervisor)
    }

    /// HTTP/1.0 in the plainest form: the answer ends when the connection does.
    fn request(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Value> {
        let body = body.map(Value::to_string).unwrap_or_default();
        let mut socket = UnixStream::connect(self.dir.join("control.sock"))?;
        write!(socket, "{method} {path} HTTP/1.0\r\nContent-Length: {}\r\n\r\n{body}", body.len())?;
        let mut answer = String::new();
        socket.read_to_string(&mut answer)?;
        let (head, body) = answer.split_once("\r\n\r\n").context("half an answer")?;
        let body: Value = serde_json::from_str(body)?;
        if head.split(' ').nth(1) != Some("200") {
            let error = body.get("error").and_then(Value::as_str);
            bail!("{method} {path}: {}", error.unwrap_or(head));
        }
        Ok(body)
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        if let Err(error) = self.child.wait() {
            tracing::warn!(%error, "waiting for the test cluster to end");
        }
    }
}

/// Set `TIDEGATE_KEEP` to look at a cluster's directory afterwards.
fn keep() -> bool {
    std::env::var_os("TIDEGATE_KEEP").is_some()
}

/// A short path: the control socket lies in it, and Linux bounds a socket's path.
fn fresh_dir() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("tidegate-{}-{number}", std::process::id()))
}

fn tail(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap_or_else(|e| e.to_string());
    let lines: Vec<&str> = text.lines().collect();
    lines.split_at(lines.len().saturating_sub(2 * TAIL)).1.join("\n")
}

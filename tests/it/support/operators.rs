//! Other projects' operators, the real ones, run beside a test's control plane.
//!
//! `tests/operators/NAME` pins each: a Go module, or for Dask a set of Python packages. Their
//! custom resource definitions, their webhooks and their published samples are read from there at
//! run time and never copied here.

use std::{
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Client, Config, ResourceExt as _,
    api::{
        Api, ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams,
        PostParams,
    },
    config::{KubeConfigOptions, Kubeconfig},
    discovery,
};
use serde_json::{Value, json};

use super::process::Process;

/// How long an operator may take from its start until it works.
const START_LIMIT: Duration = Duration::from_mins(2);
/// How long the API server may take until it serves a new kind.
const SERVED_LIMIT: Duration = Duration::from_mins(2);
/// Pause between two looks at a condition.
const LOOK: Duration = Duration::from_millis(50);
/// Tries with another port when somebody else took the one that was free a moment ago.
const PORT_TRIES: usize = 3;
/// Field manager of what is applied here.
const MANAGER: &str = "tidegate-tests";
/// Annotation by which the fake kubelet ends a pod's program after a time.
const DURATION: &str = "fake.tidegate.dev/duration";

/// Enough for any sample on a busy machine. What an owner leaves behind may stay for more than half
/// a minute: the garbage collector looks for new kinds only every 30 s, and these are as new as the
/// cluster.
pub const END_LIMIT: Duration = Duration::from_mins(2);

/// The operators that tests can start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperatorKind {
    /// Kubeflow's MPI operator: `MPIJob`.
    Mpi,
    /// Ray's operator: `RayCluster`, `RayJob`, `RayService`.
    KubeRay,
    /// Kubernetes SIGs' `JobSet`, with its webhooks.
    JobSet,
    /// Dask's operator: `DaskCluster`, `DaskJob`.
    Dask,
}

impl OperatorKind {
    pub const ALL: [Self; 4] = [Self::Mpi, Self::KubeRay, Self::JobSet, Self::Dask];

    /// Its directory under `tests/operators`, and its name for `./dev bin`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mpi => "mpi-operator",
            Self::KubeRay => "kuberay",
            Self::JobSet => "jobset",
            Self::Dask => "dask",
        }
    }

    /// The Go module that holds its files; Dask's are in a Python package.
    const fn module(self) -> Option<&'static str> {
        match self {
            Self::Mpi => Some("github.com/kubeflow/mpi-operator"),
            Self::KubeRay => Some("github.com/ray-project/kuberay/ray-operator"),
            Self::JobSet => Some("sigs.k8s.io/jobset"),
            Self::Dask => None,
        }
    }

    /// A file, or a directory of files, with its custom resource definitions.
    const fn definitions(self) -> &'static str {
        match self {
            Self::Mpi => "manifests/base/kubeflow.org_mpijobs.yaml",
            Self::KubeRay => "config/crd/bases",
            Self::JobSet => "config/components/crd/bases",
            Self::Dask => "dask_kubernetes/operator/deployment/helm/dask-kubernetes-operator/crds",
        }
    }

    /// Lines that its log holds once each of its loops watches.
    const fn working(self) -> &'static [&'static str] {
        match self {
            Self::Mpi => &["Started workers"],
            Self::KubeRay => &[
                r#""logger":"controllers.RayCluster","msg":"Starting workers""#,
                r#""logger":"controllers.RayJob","msg":"Starting workers""#,
                r#""logger":"controllers.RayService","msg":"Starting workers""#,
            ],
            Self::JobSet => &[
                r#"Starting workers	{"controller": "jobset""#,
                r#"Starting workers	{"controller": "pod""#,
            ],
            Self::Dask => &[
                "Starting the watch-stream for daskclusters",
                "Starting the watch-stream for daskworkergroups",
                "Starting the watch-stream for daskjobs",
                "Starting the watch-stream for services",
                "Starting the watch-stream for pods",
            ],
        }
    }
}

/// A running operator. Its process ends when it is dropped, and when the test process is gone;
/// what it made in the cluster stays.
#[derive(Debug)]
pub struct Operator(Process);

impl Operator {
    /// Installs the definitions, starts the process and waits until it works. Its log and files go
    /// to `dir`.
    pub async fn start(kind: OperatorKind, kubeconfig: &Path, dir: &Path) -> Result<Self> {
        let client = client(kubeconfig).await?;
        // The first call may build it, which takes minutes.
        let (binary, files) =
            tokio::task::spawn_blocking(move || anyhow::Ok((binary(kind)?, files(kind)?)))
                .await??;
        fs::create_dir_all(dir)?;
        install(&client, &files.join(kind.definitions())).await?;
        for _ in 1..PORT_TRIES {
            let launch = Launch::new(kind, &binary, &files, kubeconfig, dir)?;
            match launch.run(kind, &client).await {
                Err(error) if error.is::<PortTaken>() => {}
                outcome => return outcome,
            }
        }
        Launch::new(kind, &binary, &files, kubeconfig, dir)?.run(kind, &client).await
    }

    /// Looks once whether the operator works; an error if it no longer runs.
    async fn works(
        &mut self,
        kind: OperatorKind,
        client: &Client,
        probe: Option<&Value>,
    ) -> Result<bool> {
        let ended = self.0.check();
        let log = self.0.log()?;
        if ended.is_err() && log.contains("address already in use") {
            bail!(PortTaken);
        }
        ended?;
        if !kind.working().iter().all(|line| log.contains(line)) {
            return Ok(false);
        }
        match probe {
            Some(document) => defaults_are_set(client, document).await,
            None => Ok(true),
        }
    }
}

/// Another process took the port between its choice and its use.
#[derive(Debug, thiserror::Error)]
#[error("the port was taken")]
struct PortTaken;

/// One try to start.
struct Launch {
    command: Command,
    /// The webhook configurations that lead to it.
    webhooks: Vec<Value>,
    /// What these webhooks should fill in and let through.
    probe: Option<Value>,
    dir: PathBuf,
}

impl Launch {
    fn new(
        kind: OperatorKind,
        binary: &Path,
        files: &Path,
        kubeconfig: &Path,
        dir: &Path,
    ) -> Result<Self> {
        let mut command = Command::new(binary);
        command.env("KUBECONFIG", kubeconfig);
        let (mut webhooks, mut probe) = (Vec::new(), None);
        match kind {
            OperatorKind::Mpi => {
                command.arg("--kubeconfig").arg(kubeconfig);
            }
            OperatorKind::KubeRay => {
                command.args([
                    "--enable-leader-election=false",
                    "--metrics-addr=0",
                    "--health-probe-bind-address=0",
                ]);
            }
            OperatorKind::JobSet => {
                let port = free_port()?;
                let authority = serving_certificate(dir)?;
                command.arg("--config").arg(jobset_configuration(dir, port)?);
                webhooks = jobset_webhooks(files, port, &authority)?;
                probe = documents(&directory(kind).join("sample.yaml"))?.pop();
            }
            OperatorKind::Dask => {
                command.args(["-m", "kopf", "run", "-m", "dask_kubernetes.operator.controller"]);
                command.args(["--standalone", "--all-namespaces", "--verbose"]);
            }
        }
        Ok(Self { command, webhooks, probe, dir: dir.to_owned() })
    }

    async fn run(self, kind: OperatorKind, client: &Client) -> Result<Operator> {
        let mut operator = Operator(Process::start(kind.name(), &self.command, &self.dir)?);
        for webhook in &self.webhooks {
            apply(client, webhook).await?;
        }
        let start = Instant::now();
        while !operator.works(kind, client, self.probe.as_ref()).await? {
            ensure!(
                start.elapsed() < START_LIMIT,
                "{} does not work after {START_LIMIT:?}; its log ends with\n{}",
                kind.name(),
                operator.0.tail()
            );
            tokio::time::sleep(LOOK).await;
        }
        Ok(operator)
    }
}

/// How a sample looks when it has gone as far as it goes without real containers: what its status
/// says, and how many of its namespace's pods run. The pods are counted because some operators call
/// a thing running that has yet to start, and tidy up only after they call it done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// A condition of its status is True.
    Condition { name: &'static str, running: Option<usize> },
    /// A field of its status has this value.
    Status { field: &'static str, value: &'static str, running: Option<usize> },
    /// Its status is no help: only the pods count.
    Pods { running: usize },
}

/// A project's own published example.
#[derive(Clone, Debug)]
pub struct Sample {
    /// The file's name in the project.
    pub name: &'static str,
    /// As published; nothing is changed or added.
    pub documents: Vec<Value>,
    /// What the first document becomes in the end.
    pub expect: Expect,
    /// How many pods it makes, all of them at once.
    pub pods: usize,
    /// Label of pods whose program would end by itself though no Job owns them, which the fake
    /// kubelet cannot know.
    pub ending: Option<(&'static str, &'static str)>,
}

impl Sample {
    /// Creates its objects in a namespace, as a user would.
    pub async fn create(&self, client: &Client, namespace: &str) -> Result<()> {
        for document in &self.documents {
            let (object, resource) = object(client, document).await?;
            Api::<DynamicObject>::namespaced_with(client.clone(), namespace, &resource)
                .create(&PostParams::default(), &object)
                .await
                .with_context(|| format!("creating {}", self.name))?;
        }
        Ok(())
    }

    /// Waits until the expected end. The namespace should hold nothing but this sample.
    pub async fn ends(&self, client: &Client, namespace: &str, limit: Duration) -> Result<()> {
        let start = Instant::now();
        loop {
            let (object, pods) = self.read(client, namespace).await?;
            self.end_programs(client, &pods).await?;
            if self.expect.met(&object, &pods) {
                return Ok(());
            }
            if start.elapsed() > limit {
                let phases: Vec<_> = pods.iter().map(describe).collect();
                let status = object.get("status");
                bail!(
                    "{}: not {:?} after {limit:?}: {status:?} {phases:?}",
                    self.name,
                    self.expect
                );
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Tells the fake kubelet that a running pod's program ends. Pods that wait are left alone.
    pub async fn end_programs(&self, client: &Client, pods: &[Pod]) -> Result<()> {
        let Some((label, value)) = self.ending else { return Ok(()) };
        for pod in pods.iter().filter(|pod| phase(pod) == "Running") {
            let has = |key| pod.annotations().contains_key(key);
            if pod.labels().get(label).is_some_and(|found| found == value) && !has(DURATION) {
                let patch = json!({"metadata": {"annotations": {DURATION: "1s"}}});
                let namespace = pod.namespace().unwrap_or_default();
                Api::<Pod>::namespaced(client.clone(), &namespace)
                    .patch(&pod.name_any(), &PatchParams::default(), &Patch::Merge(&patch))
                    .await?;
            }
        }
        Ok(())
    }

    /// Its first object as it is now, and all pods of the namespace.
    pub async fn read(&self, client: &Client, namespace: &str) -> Result<(Value, Vec<Pod>)> {
        let document = self.documents.first().context("a sample without a document")?;
        let (object, resource) = object(client, document).await?;
        let name = object.metadata.name.context("a sample without a name")?;
        let found = Api::<DynamicObject>::namespaced_with(client.clone(), namespace, &resource)
            .get(&name)
            .await?;
        let pods = Api::<Pod>::namespaced(client.clone(), namespace);
        Ok((serde_json::to_value(found)?, pods.list(&ListParams::default()).await?.items))
    }
}

impl Expect {
    /// Whether an object and its namespace's pods are there.
    #[must_use]
    pub fn met(&self, object: &Value, pods: &[Pod]) -> bool {
        let run = pods.iter().filter(|pod| phase(pod) == "Running").count();
        let counted = |running: Option<usize>| running.is_none_or(|running| running == run);
        match *self {
            Self::Condition { name, running } => {
                let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
                let is_true =
                    |condition: &Value| condition["type"] == name && condition["status"] == "True";
                counted(running) && conditions.into_iter().flatten().any(is_true)
            }
            Self::Status { field, value, running } => {
                let found = object.get("status").and_then(|status| status.get(field));
                counted(running) && found.is_some_and(|found| found == value)
            }
            Self::Pods { running } => running == run,
        }
    }
}

/// The project's own samples that run to their end without containers.
pub fn samples(kind: OperatorKind) -> Result<Vec<Sample>> {
    let files = files(kind)?;
    let dask = "dask_kubernetes/operator/controller/tests/resources";
    Ok(match kind {
        OperatorKind::Mpi => vec![Sample {
            name: "pi.yaml",
            documents: documents(&files.join("examples/v2beta1/pi/pi.yaml"))?,
            expect: Expect::Condition { name: "Succeeded", running: Some(0) },
            pods: 3,
            ending: None,
        }],
        OperatorKind::KubeRay => vec![Sample {
            name: "ray-cluster.sample.yaml",
            documents: documents(&files.join("config/samples/ray-cluster.sample.yaml"))?,
            expect: Expect::Status { field: "state", value: "ready", running: Some(2) },
            pods: 2,
            ending: None,
        }],
        OperatorKind::JobSet => vec![Sample {
            name: "sample.yaml",
            documents: documents(&directory(kind).join("sample.yaml"))?,
            expect: Expect::Condition { name: "Completed", running: Some(0) },
            pods: 5,
            ending: None,
        }],
        OperatorKind::Dask => vec![
            Sample {
                name: "simplecluster.yaml",
                documents: documents(&files.join(dask).join("simplecluster.yaml"))?,
                // Its phase is Running before any pod runs, and now and then Pending for ever: two
                // handlers of the operator write it, in any order.
                expect: Expect::Pods { running: 3 },
                pods: 3,
                ending: None,
            },
            Sample {
                name: "simplejob.yaml",
                documents: documents(&files.join(dask).join("simplejob.yaml"))?,
                // Its pods go when the garbage collector has learned of the new kinds.
                expect: Expect::Status { field: "jobStatus", value: "Successful", running: None },
                pods: 4,
                ending: Some(("dask.org/component", "job-runner")),
            },
        ],
    })
}

// ---- Where things are

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn directory(kind: OperatorKind) -> PathBuf {
    repository().join("tests/operators").join(kind.name())
}

/// The program to run: for Dask the Python interpreter of its environment.
fn binary(kind: OperatorKind) -> Result<PathBuf> {
    let variable = format!("TIDEGATE_BIN_{}", kind.name().to_uppercase().replace('-', "_"));
    let path = match std::env::var_os(&variable) {
        Some(path) => PathBuf::from(path),
        None => super::helper(kind.name())?,
    };
    Ok(if kind == OperatorKind::Dask { path.with_file_name("python") } else { path })
}

/// The directory of the project's own files, as its package manager keeps them.
fn files(kind: OperatorKind) -> Result<PathBuf> {
    let path = match kind.module() {
        Some(module) => output(
            Command::new("go")
                .args(["list", "-m", "-f", "{{.Dir}}", module])
                .current_dir(directory(kind)),
        )?,
        None => output(
            Command::new(binary(kind)?)
                .args(["-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]),
        )?,
    };
    ensure!(Path::new(&path).is_dir(), "{}: its files are not in {path:?}", kind.name());
    Ok(PathBuf::from(path))
}

/// The last line that a command prints.
fn output(command: &mut Command) -> Result<String> {
    let done = command
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("running {command:?}"))?;
    ensure!(done.status.success(), "{command:?} ended with {}", done.status);
    let text = String::from_utf8(done.stdout)?;
    Ok(text.lines().last().unwrap_or_default().trim().to_owned())
}

/// The documents of a YAML file, or of all YAML files of a directory in the order of their names.
fn documents(path: &Path) -> Result<Vec<Value>> {
    let mut paths = vec![path.to_owned()];
    if path.is_dir() {
        paths = fs::read_dir(path)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
        paths.retain(|path| path.extension().is_some_and(|extension| extension == "yaml"));
        paths.sort();
    }
    let mut documents = Vec::new();
    for path in paths {
        let text =
            fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        documents.extend(
            serde_yaml::from_multiple::<Value>(&text)
                .with_context(|| format!("parsing {}", path.display()))?
                .into_iter()
                .filter(|document| !document.is_null()),
        );
    }
    Ok(documents)
}

// ---- Talking to the cluster

async fn client(kubeconfig: &Path) -> Result<Client> {
    let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}

/// A document as an object, with the resource that serves its kind.
async fn object(client: &Client, document: &Value) -> Result<(DynamicObject, ApiResource)> {
    let object: DynamicObject = serde_json::from_value(document.clone())?;
    let types = object.types.as_ref().context("a document without a kind")?;
    let (resource, _) = discovery::pinned_kind(client, &GroupVersionKind::try_from(types)?).await?;
    Ok((object, resource))
}

/// Server-side apply of a cluster-scoped object. Definitions are too large for any other apply.
async fn apply(client: &Client, document: &Value) -> Result<DynamicObject> {
    let (object, resource) = object(client, document).await?;
    let name = object.metadata.name.as_deref().context("a document without a name")?;
    let params = PatchParams::apply(MANAGER).force();
    Api::<DynamicObject>::all_with(client.clone(), &resource)
        .patch(name, &params, &Patch::Apply(document))
        .await
        .with_context(|| format!("applying {} {name}", resource.kind))
}

/// Applies custom resource definitions and waits until each kind can be listed.
async fn install(client: &Client, path: &Path) -> Result<()> {
    let definitions = documents(path)?;
    ensure!(!definitions.is_empty(), "no definitions in {}", path.display());
    try_join_all(definitions.iter().map(|definition| apply(client, definition))).await?;
    for definition in &definitions {
        for (kind, plural) in served(definition)? {
            let start = Instant::now();
            while !answers(client, &kind, plural).await {
                ensure!(
                    start.elapsed() < SERVED_LIMIT,
                    "{plural} is not served after {SERVED_LIMIT:?}"
                );
                tokio::time::sleep(LOOK).await;
            }
        }
    }
    Ok(())
}

/// Whether a kind can be listed and is found by discovery, which come at different times. Before
/// that, the answers are 404 and 429 "storage is (re)initializing".
async fn answers(client: &Client, kind: &GroupVersionKind, plural: &str) -> bool {
    let resource = ApiResource::from_gvk_with_plural(kind, plural);
    let api = Api::<DynamicObject>::all_with(client.clone(), &resource);
    discovery::pinned_kind(client, kind).await.is_ok()
        && api.list(&ListParams::default().limit(1)).await.is_ok()
}

/// The kinds that a definition makes the API server serve, with their plural names.
fn served(definition: &Value) -> Result<Vec<(GroupVersionKind, &str)>> {
    let spec = definition.get("spec").context("a definition without a spec")?;
    let text = |pointer| {
        spec.pointer(pointer).and_then(Value::as_str).context("a definition without a name")
    };
    let (group, kind, plural) = (text("/group")?, text("/names/kind")?, text("/names/plural")?);
    let versions = spec.get("versions").and_then(Value::as_array).into_iter().flatten();
    Ok(versions
        .filter(|version| version["served"] == true)
        .filter_map(|version| version["name"].as_str())
        .map(|version| (GroupVersionKind::gvk(group, version, kind), plural))
        .collect())
}

fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

fn describe(pod: &Pod) -> String {
    format!("{} {}", pod.name_any(), phase(pod))
}

// ---- JobSet's webhooks

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

/// Writes `tls.crt` and `tls.key` for 127.0.0.1 and returns the authority that signed them, as PEM.
fn serving_certificate(dir: &Path) -> Result<String> {
    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

    let mut authority = CertificateParams::new(Vec::new())?;
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate()?)?;
    let key = KeyPair::generate()?;
    let leaf = CertificateParams::new(vec!["127.0.0.1".to_owned()])?.signed_by(&key, &authority)?;
    fs::write(dir.join("tls.crt"), leaf.pem())?;
    fs::write(dir.join("tls.key"), key.serialize_pem())?;
    Ok(authority.pem())
}

fn jobset_configuration(dir: &Path, port: u16) -> Result<PathBuf> {
    let path = dir.join("jobset.yaml");
    let configuration = json!({
        "apiVersion": "config.jobset.x-k8s.io/v1alpha1",
        "kind": "Configuration",
        "leaderElection": {"leaderElect": false},
        "internalCertManagement": {"enable": false},
        "metrics": {"bindAddress": "0"},
        "health": {"healthProbeBindAddress": "0"},
        "webhook": {"host": "127.0.0.1", "port": port, "certDir": dir},
    });
    fs::write(&path, configuration.to_string())?;
    Ok(path)
}

/// The project's webhook configurations with its own patches, pointed at a local process.
fn jobset_webhooks(files: &Path, port: u16, authority: &str) -> Result<Vec<Value>> {
    let directory = files.join("config/components/webhook");
    let mut configurations = documents(&directory.join("manifests.yaml"))?;
    for configuration in &mut configurations {
        let side = match configuration["kind"].as_str() {
            Some("MutatingWebhookConfiguration") => "mutating",
            Some("ValidatingWebhookConfiguration") => "validating",
            kind => bail!("not a webhook configuration: {kind:?}"),
        };
        let patch = documents(&directory.join(format!("patches/{side}-patch.yaml")))?.pop();
        let patch: json_patch::Patch = serde_json::from_value(patch.context("an empty patch")?)?;
        json_patch::patch(configuration, &patch)?;
        // The project's deployment puts its name before the generated one.
        let name = configuration.pointer_mut("/metadata/name").context("no name")?;
        *name = json!(format!("jobset-{side}-webhook-configuration"));
        let webhooks = configuration["webhooks"].as_array_mut().context("no webhooks")?;
        for webhook in webhooks {
            let served = webhook.pointer("/clientConfig/service/path").and_then(Value::as_str);
            let url = format!("https://127.0.0.1:{port}{}", served.context("no path")?);
            webhook["clientConfig"] = json!({"url": url, "caBundle": base64(authority)});
        }
    }
    Ok(configurations)
}

/// Whether a new `JobSet` would get its defaults and be let through.
async fn defaults_are_set(client: &Client, document: &Value) -> Result<bool> {
    let (object, resource) = object(client, document).await?;
    let api = Api::<DynamicObject>::default_namespaced_with(client.clone(), &resource);
    let params = PostParams { dry_run: true, ..PostParams::default() };
    // Until the webhook listens and the API server knows it, this is an error or has no defaults.
    Ok(api.create(&params, &object).await.is_ok_and(|made| {
        made.data.pointer("/spec/successPolicy/operator").is_some_and(Value::is_string)
    }))
}

/// Bytes as the API writes them in JSON.
fn base64(text: &str) -> Value {
    json!(k8s_openapi::ByteString(text.as_bytes().to_vec()))
}

//! Tidegate as its chart installs it, its processes run by the test.
//!
//! Helm puts the real chart on the real apiserver; the programs run here with
//! tokens of the chart's own ServiceAccounts, so that a missing right and a
//! right too many both show. Services are `ExternalName: localhost`, so the
//! chart's webhook configuration and APIService are used as they are.

use std::{
    collections::hash_map::RandomState,
    fs,
    hash::{BuildHasher as _, Hasher as _},
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    ops::Deref,
    os::{
        linux::net::SocketAddrExt as _,
        unix::{
            fs::symlink,
            net::{SocketAddr, UnixListener},
        },
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Mutex, OnceLock},
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use k8s_openapi::{
    api::{
        admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration},
        authentication::v1::{TokenRequest, TokenRequestSpec},
        core::v1::{Secret, ServiceAccount},
    },
    kube_aggregator::pkg::apis::apiregistration::v1::APIService,
};
use kube::{Api, Client, api::PostParams};
use serde_json::{Value, json};
use tidegate::api::v1alpha1::Queue;

use super::{
    build::Build,
    cluster::{Cluster, Component, Options},
    process::Process,
    wait,
};

/// Where the chart is installed.
pub const NAMESPACE: &str = "tidegate-system";
/// All of ours for tests, as the chart has it for measurements.
const LOG: &str = if cfg!(debug_assertions) { "--log=info,tidegate=debug" } else { "--log=info" };
/// Release and name prefix.
pub const RELEASE: &str = "tidegate";

/// Election of a controller that nobody else wants to replace.
const PATIENT: [&str; 2] =
    ["--leader-elect-lease-duration=10m", "--leader-elect-renew-deadline=9m"];

/// One of several controllers.
#[derive(Clone, Debug)]
pub struct Replica {
    /// Name of its pod and of its log.
    pub name: String,
    /// How it reaches the apiserver.
    pub server: String,
    /// Port of the aggregated API.
    pub visibility: u16,
    /// Port of metrics and health.
    pub health: u16,
    /// Further flags.
    pub flags: Vec<String>,
}

/// How the chart is installed.
#[derive(Clone, Debug, Default)]
pub struct Install {
    /// Further `--set` values.
    pub values: Vec<String>,
}

/// One installed Tidegate.
#[derive(Debug)]
pub struct Tidegate {
    cluster: Cluster,
    dir: PathBuf,
    ports: Ports,
    processes: Mutex<Processes>,
    build: Mutex<Build>,
}

/// Where an installation is kept for those who come later.
type Slot = OnceLock<Result<Tidegate, String>>;

/// Installs on first use.
fn installed(slot: &'static Slot, cluster: fn() -> Result<Cluster>) -> Result<&'static Tidegate> {
    let install = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(Tidegate::install(&cluster()?, &Install::default()))
    };
    // A runtime cannot be started inside a test's own.
    let install = move || {
        let installing = std::thread::spawn(install).join();
        installing.unwrap_or_else(|_| Err(anyhow!("the installer panicked")))
    };
    slot.get_or_init(|| install().map_err(|error| format!("{error:#}")))
        .as_ref()
        .map_err(|error| anyhow!("Tidegate was not installed: {error}"))
}

/// A test's turn with an installation that it may break.
#[derive(Debug)]
pub struct Exclusive {
    tidegate: &'static Tidegate,
    _turn: tokio::sync::MutexGuard<'static, ()>,
}

impl Deref for Exclusive {
    type Target = &'static Tidegate;

    fn deref(&self) -> &Self::Target {
        &self.tidegate
    }
}

#[derive(Debug, Default)]
struct Processes {
    controller: Option<Process>,
    webhook: Option<Process>,
}

#[derive(Clone, Copy, Debug)]
struct Ports {
    webhook: u16,
    visibility: u16,
    health: u16,
}

impl Tidegate {
    /// The installation on the shared cluster, made by whoever asks first.
    pub fn shared() -> Result<&'static Self> {
        static SHARED: Slot = OnceLock::new();
        installed(&SHARED, || Cluster::shared().cloned())
    }

    /// The installation on a cluster that tests may break, for one test at a time. What the
    /// test before left broken is mended first.
    pub async fn exclusive() -> Result<Exclusive> {
        static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
        static INSTALLED: Slot = OnceLock::new();
        let turn = TURN.lock().await;
        let tidegate = installed(&INSTALLED, || Cluster::start(&Options::default()))?;
        tidegate.mend().await?;
        Ok(Exclusive { tidegate, _turn: turn })
    }

    /// Starts whatever does not run.
    async fn mend(&self) -> Result<()> {
        for component in Component::ALL {
            self.cluster.start_component(component).await?;
        }
        let ended = |process: &mut Option<Process>| {
            process.as_mut().is_none_or(|process| process.check().is_err())
        };
        let (controller, webhook) = {
            let mut processes = self.lock();
            (ended(&mut processes.controller), ended(&mut processes.webhook))
        };
        if controller {
            self.start_controller().await?;
        }
        if webhook {
            self.start_webhook().await?;
        }
        self.ready().await
    }

    /// Installs the chart on a cluster and starts both programs.
    pub async fn install(cluster: &Cluster, install: &Install) -> Result<Self> {
        Self::install_build(cluster, install, Build::present()).await
    }

    /// The same of any version.
    pub async fn install_build(cluster: &Cluster, install: &Install, build: Build) -> Result<Self> {
        let dir = cluster.dir().join("tidegate");
        fs::create_dir_all(&dir)?;
        let ports = Ports { webhook: free_port()?, visibility: free_port()?, health: free_port()? };
        let (cluster, processes) = (cluster.clone(), Mutex::default());
        let tidegate = Self { cluster, dir, ports, processes, build: Mutex::new(build) };
        tidegate.helm(&["install"], install).await?;
        tidegate.start_controller().await?;
        tidegate.start_webhook().await?;
        tidegate.ready().await?;
        Ok(tidegate)
    }

    /// From now on chart and programs are this version's.
    pub fn switch(&self, build: Build) {
        *self.build.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = build;
    }

    fn build(&self) -> Build {
        self.build.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    /// Runs `helm install|upgrade|template` with this test's ports; what it printed.
    pub async fn helm(&self, verb: &[&str], install: &Install) -> Result<String> {
        let chart = self.build().chart;
        let mut command = tool("helm")?;
        command
            .args(verb)
            .args([RELEASE.as_ref(), chart.as_os_str()])
            .args(["--namespace", NAMESPACE, "--create-namespace", "--timeout", "60s"])
            .env("KUBECONFIG", self.cluster.kubeconfig());
        let mut values = vec![
            "service.externalName=localhost".to_owned(),
            format!("webhook.service.port={}", self.ports.webhook),
            format!("controller.service.port={}", self.ports.visibility),
        ];
        values.extend(install.values.iter().cloned());
        for value in values {
            command.args(["--set", &value]);
        }
        run(command).await
    }

    /// Runs `helm uninstall`, which ends when the chart's Job has.
    pub async fn helm_uninstall(&self) -> Result<String> {
        let mut command = tool("helm")?;
        command
            .args(["uninstall", RELEASE, "--namespace", NAMESPACE, "--timeout", "180s"])
            .env("KUBECONFIG", self.cluster.kubeconfig());
        run(command).await
    }

    /// Every object of the chart as it was installed, rendered once more.
    pub async fn rendered(&self) -> Result<Vec<Value>> {
        let text = self
            .helm(
                &["template", "--include-crds", "--no-hooks", "--kube-version=1.36.0"],
                &Install::default(),
            )
            .await?;
        Ok(serde_yaml::from_multiple(&text)?)
    }

    /// Starts the controller with its ServiceAccount's token. It is always of the same pod, so
    /// that it takes over from the one before at once, and no slow machine makes it stop.
    pub async fn start_controller(&self) -> Result<()> {
        self.start_controller_at(self.cluster.url(), &[]).await
    }

    /// The same with further arguments.
    pub async fn start_controller_with(&self, further: &[&str]) -> Result<()> {
        self.start_controller_at(self.cluster.url(), further).await
    }

    /// The same with something between it and the apiserver.
    pub async fn start_controller_at(&self, server: &str, further: &[&str]) -> Result<()> {
        let replica = Replica {
            name: "controller".to_owned(),
            server: server.to_owned(),
            visibility: self.ports.visibility,
            health: self.ports.health,
            flags: PATIENT.iter().chain(further).map(|&flag| flag.to_owned()).collect(),
        };
        let process = self.start_replica(&replica).await?;
        self.lock().controller = Some(process);
        Ok(())
    }

    /// Starts one of several controllers with their ServiceAccount's token.
    pub async fn start_replica(&self, replica: &Replica) -> Result<Process> {
        let account = self.account_kubeconfig(NAMESPACE, "tidegate-controller").await?;
        let text = fs::read_to_string(account)?.replace(self.cluster.url(), &replica.server);
        // Its own: another replica that starts may be reading the account's.
        let kubeconfig = self.dir.join(format!("{}.kubeconfig", replica.name));
        fs::write(&kubeconfig, text)?;
        let args = [
            "run".to_owned(),
            "controller".to_owned(),
            format!("--kubeconfig={}", kubeconfig.display()),
            format!("--namespace={NAMESPACE}"),
            format!("--visibility-listen=127.0.0.1:{}", replica.visibility),
            format!("--health-listen=127.0.0.1:{}", replica.health),
            format!("--pod-name={}", replica.name),
            LOG.to_owned(),
        ];
        let mut command = Command::new(self.build().program);
        Process::start(&replica.name, command.args(args).args(&replica.flags), &self.dir)
    }

    /// Where the aggregated API's Service leads.
    pub fn visibility_port(&self) -> u16 {
        self.ports.visibility
    }

    /// Starts the webhook with its ServiceAccount's token and the mounted Secret.
    pub async fn start_webhook(&self) -> Result<()> {
        self.mount_secret(&self.mounted()).await?;
        self.start_mounted_webhook().await
    }

    /// The same with what is mounted already.
    pub async fn start_mounted_webhook(&self) -> Result<()> {
        let process = self.start_webhook_replica("webhook", self.ports.webhook, &[]).await?;
        self.lock().webhook = Some(process);
        Ok(())
    }

    /// Starts one of several webhooks at a port of its own.
    pub async fn start_webhook_replica(
        &self,
        name: &str,
        port: u16,
        further: &[&str],
    ) -> Result<Process> {
        let kubeconfig = self.account_kubeconfig(NAMESPACE, "tidegate-webhook").await?;
        let args = [
            "run".to_owned(),
            "webhook".to_owned(),
            format!("--kubeconfig={}", kubeconfig.display()),
            format!("--listen=127.0.0.1:{port}"),
            format!("--cert-dir={}", self.mounted().display()),
            LOG.to_owned(),
        ];
        let mut command = Command::new(self.build().program);
        Process::start(name, command.args(args).args(further), &self.dir)
    }

    /// Starts both programs as one process, as the cluster's administrator does on a laptop,
    /// at the addresses of the two.
    pub fn start_all(&self) -> Result<Process> {
        let args = [
            "run".to_owned(),
            "all".to_owned(),
            format!("--kubeconfig={}", self.cluster.kubeconfig().display()),
            format!("--namespace={NAMESPACE}"),
            format!("--listen=127.0.0.1:{}", self.ports.webhook),
            format!("--visibility-listen=127.0.0.1:{}", self.ports.visibility),
            format!("--health-listen=127.0.0.1:{}", self.ports.health),
            "--pod-name=controller".to_owned(),
        ];
        let mut command = Command::new(self.build().program);
        Process::start("all", command.args(args).args(PATIENT), &self.dir)
    }

    /// Kills the controller and starts it again; it has to read everything anew.
    pub async fn restart_controller(&self) -> Result<()> {
        self.stop_controller("KILL")?;
        self.start_controller().await
    }

    /// Ends the controller by a signal and waits until it is gone.
    pub fn stop_controller(&self, signal: &str) -> Result<()> {
        let process = self.lock().controller.take().context("the controller does not run")?;
        process.end(signal)
    }

    /// Ends the webhook by a signal and waits until it is gone.
    pub fn stop_webhook(&self, signal: &str) -> Result<()> {
        let process = self.lock().webhook.take().context("the webhook does not run")?;
        process.end(signal)
    }

    /// Sends the controller a signal such as `STOP` or `CONT`.
    pub fn signal_controller(&self, signal: &str) -> Result<()> {
        self.lock().controller.as_ref().context("the controller does not run")?.signal(signal)
    }

    /// The controller's process id.
    pub fn controller_pid(&self) -> Result<u32> {
        Ok(self.lock().controller.as_ref().context("the controller does not run")?.pid())
    }

    /// The webhook's process id.
    pub fn webhook_pid(&self) -> Result<u32> {
        Ok(self.lock().webhook.as_ref().context("the webhook does not run")?.pid())
    }

    /// The controller's log so far.
    pub fn controller_log(&self) -> Result<String> {
        Ok(fs::read_to_string(self.dir.join("controller.log"))?)
    }

    /// Status and body of `GET path` at the controller's port for metrics and health.
    pub async fn get(&self, path: &str) -> Result<(u16, String)> {
        get(self.ports.health, path).await
    }

    /// Waits until the controller has read the cluster.
    pub async fn synced(&self) -> Result<()> {
        wait::until("the controller is ready", wait::SOON, async || {
            self.check()?;
            let (code, body) = self.get("/readyz").await?;
            ensure!(code == 200, "{body}");
            Ok(true)
        })
        .await
    }

    /// The cluster it is installed on.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Runs the command line program as the cluster's administrator.
    pub async fn cli(&self, args: &[&str]) -> Result<Output> {
        cli(self.cluster.kubeconfig(), args).await
    }

    /// Waits until pods are gated, the controller decides and the visibility API answers.
    pub async fn ready(&self) -> Result<()> {
        wait::until("the controller leads", wait::START, async || {
            self.check()?;
            Ok(self.get("/metrics").await?.1.contains("\ntidegate_leader 1.0\n"))
        })
        .await?;
        let client = self.cluster.client().await?;
        wait::until("the webhook configurations have their bundle", wait::START, async || {
            self.check()?;
            let all: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
            let webhooks = all.get(RELEASE).await?.webhooks.unwrap_or_default();
            let checks = webhooks.iter().all(|webhook| webhook.client_config.ca_bundle.is_some());
            let all: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
            // There is none where a policy adds the gate.
            let webhooks = all.get_opt(RELEASE).await?.and_then(|object| object.webhooks);
            let mut webhooks = webhooks.iter().flatten();
            Ok(checks && webhooks.all(|webhook| webhook.client_config.ca_bundle.is_some()))
        })
        .await?;
        wait::until("the visibility API is available", wait::START, async || {
            self.check()?;
            serves_groups(&client).await
        })
        .await?;
        self.admits(&client).await
    }

    /// The apiserver takes a moment to see new configurations: proven by a dry run.
    async fn admits(&self, client: &Client) -> Result<()> {
        wait::until("the webhook judges queues", wait::START, async || {
            self.check()?;
            judges_queues(client).await
        })
        .await
    }

    /// Fails when a program of ours has ended.
    pub fn check(&self) -> Result<()> {
        let mut processes = self.lock();
        let Processes { controller, webhook } = &mut *processes;
        controller.iter_mut().chain(webhook).try_for_each(Process::check)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Processes> {
        self.processes.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// A kubeconfig that holds nothing but a ServiceAccount's token.
    pub async fn account_kubeconfig(&self, namespace: &str, account: &str) -> Result<PathBuf> {
        account_kubeconfig(&self.cluster, &self.dir, namespace, account).await
    }

    /// Where the webhook's certificate is mounted.
    pub fn mounted(&self) -> PathBuf {
        self.dir.join("tls")
    }

    /// Port of the webhook.
    pub fn webhook_port(&self) -> u16 {
        self.ports.webhook
    }

    /// Lays the Secret out as the kubelet mounts it.
    pub async fn mount_secret(&self, mounted: &Path) -> Result<()> {
        let client = self.cluster.client().await?;
        let secrets: Api<Secret> = Api::namespaced(client, NAMESPACE);
        let mut data = None;
        wait::until("the controller has made its certificates", wait::START, async || {
            self.check()?;
            data = secrets.get_opt("tidegate-tls").await?.and_then(|secret| secret.data);
            Ok(data.as_ref().is_some_and(|data| data.contains_key("tls.crt")))
        })
        .await?;
        mount(mounted, data.unwrap_or_default().into_iter().map(|(key, value)| (key, value.0)))
    }
}

/// Whether the apiserver passes questions for groups on to a controller.
pub async fn serves_groups(client: &Client) -> Result<bool> {
    let services: Api<APIService> = Api::all(client.clone());
    let service = services.get("v1alpha1.visibility.tidegate.dev").await?;
    let conditions = service.status.and_then(|status| status.conditions).unwrap_or_default();
    Ok(conditions.iter().any(|c| c.type_ == "Available" && c.status == "True"))
}

/// Whether a queue without its parent is refused for that reason.
pub async fn judges_queues(client: &Client) -> Result<bool> {
    let queues: Api<Queue> = Api::all(client.clone());
    let bad: Queue = serde_json::from_value(json!({
        "apiVersion": "tidegate.dev/v1alpha1", "kind": "Queue",
        "metadata": {"name": "probe"}, "spec": {"parent": "does-not-exist"},
    }))?;
    let dry = PostParams { dry_run: true, field_manager: None };
    match queues.create(&dry, &bad).await {
        Err(kube::Error::Api(status)) => Ok(status.message.contains("does-not-exist")),
        _ => Ok(false),
    }
}

/// A kubeconfig, in this directory, that holds nothing but a ServiceAccount's token.
pub async fn account_kubeconfig(
    cluster: &Cluster,
    dir: &Path,
    namespace: &str,
    account: &str,
) -> Result<PathBuf> {
    let client = cluster.client().await?;
    let accounts: Api<ServiceAccount> = Api::namespaced(client, namespace);
    let spec = TokenRequestSpec { expiration_seconds: Some(7200), ..Default::default() };
    let request = TokenRequest { spec: Some(spec), ..Default::default() };
    let answer = accounts.create_token_request(account, &PostParams::default(), &request).await?;
    let token = answer.status.and_then(|status| status.token).context("no token")?;
    let (authority, _) = cluster.authority();
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "test",
        "clusters": [{"name": "test", "cluster": {
            "server": cluster.url(), "certificate-authority": authority,
        }}],
        "users": [{"name": "test", "user": {"token": token}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
    });
    let path = dir.join(format!("{namespace}-{account}.kubeconfig"));
    fs::write(&path, config.to_string())?;
    Ok(path)
}

/// Lays a Secret's data out as the kubelet does: a symlink to a folder that is swapped whole.
pub fn mount(mounted: &Path, data: impl Iterator<Item = (String, Vec<u8>)>) -> Result<()> {
    fs::create_dir_all(mounted)?;
    let version = format!("..{}", fs::read_dir(mounted)?.count());
    fs::create_dir_all(mounted.join(&version))?;
    for (key, value) in data.filter(|(key, _)| key == "tls.crt" || key == "tls.key") {
        fs::write(mounted.join(&version).join(&key), value)?;
        let link = mounted.join(&key);
        if !link.is_symlink() {
            symlink(Path::new("..data").join(&key), link)?;
        }
    }
    symlink(&version, mounted.join("..new"))?;
    fs::rename(mounted.join("..new"), mounted.join("..data"))?;
    Ok(())
}

/// Status and body of `GET path` at a port of this machine, without TLS.
pub async fn get(port: u16, path: &str) -> Result<(u16, String)> {
    let request = format!("GET {path} HTTP/1.0\r\n\r\n");
    let answer = tokio::task::spawn_blocking(move || -> Result<String> {
        let mut socket = TcpStream::connect(("127.0.0.1", port))?;
        socket.write_all(request.as_bytes())?;
        let mut answer = String::new();
        socket.read_to_string(&mut answer)?;
        Ok(answer)
    });
    let answer = answer.await??;
    let (head, body) = answer.split_once("\r\n\r\n").context("half an answer")?;
    let code = head.split(' ').nth(1).context("no status")?.parse()?;
    Ok((code, body.to_owned()))
}

/// What a program printed and how it ended.
#[derive(Clone, Debug)]
pub struct Output {
    /// Exit code.
    pub code: i32,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

/// Runs the command line program with a kubeconfig.
pub async fn cli(kubeconfig: &Path, args: &[&str]) -> Result<Output> {
    let mut command = Command::new(program());
    command.args(args).env("KUBECONFIG", kubeconfig);
    output(command).await
}

/// Runs kubectl with a kubeconfig.
pub async fn kubectl(kubeconfig: &Path, args: &[&str]) -> Result<Output> {
    let mut command = tool("kubectl")?;
    command.args(args).env("KUBECONFIG", kubeconfig);
    output(command).await
}

/// Applies objects as `kubectl apply --server-side --force-conflicts -f -` does.
pub async fn kubectl_apply(kubeconfig: &Path, objects: &str) -> Result<()> {
    let file = kubeconfig.with_extension("apply.yaml");
    fs::write(&file, objects)?;
    let file = file.display().to_string();
    let done =
        kubectl(kubeconfig, &["apply", "--server-side", "--force-conflicts", "-f", &file]).await?;
    ensure!(done.code == 0, "{done:?}");
    Ok(())
}

/// The program under test.
pub fn program() -> PathBuf {
    match option_env!("CARGO_BIN_EXE_tidegate") {
        Some(path) => PathBuf::from(path),
        // An example stands one folder below the programs.
        None => std::env::current_exe()
            .ok()
            .and_then(|path| Some(path.parent()?.parent()?.join("tidegate")))
            .unwrap_or_default(),
    }
}

async fn output(mut command: Command) -> Result<Output> {
    command.stdin(Stdio::null());
    let done = tokio::task::spawn_blocking(move || command.output()).await??;
    Ok(Output {
        code: done.status.code().unwrap_or(-1),
        stdout: String::from_utf8(done.stdout)?,
        stderr: String::from_utf8(done.stderr)?,
    })
}

async fn run(command: Command) -> Result<String> {
    let described = format!("{command:?}");
    let done = output(command).await?;
    ensure!(
        done.code == 0,
        "{described} ended with {}:\n{}{}",
        done.code,
        done.stdout,
        done.stderr
    );
    Ok(done.stdout)
}

/// A tool that comes with the repository's helpers; it never reads the user's home.
pub fn tool(name: &str) -> Result<Command> {
    static PATHS: OnceLock<Mutex<std::collections::BTreeMap<String, PathBuf>>> = OnceLock::new();
    let paths = PATHS.get_or_init(Mutex::default);
    let mut paths = paths.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if !paths.contains_key(name) {
        paths.insert(name.to_owned(), super::helper(name)?);
    }
    let mut command = Command::new(&paths[name]);
    let home = std::env::temp_dir().join("tidegate-home");
    command
        .env("HOME", &home)
        .env("HELM_CACHE_HOME", home.join("cache"))
        .env("HELM_CONFIG_HOME", home.join("config"))
        .env("HELM_DATA_HOME", home.join("data"));
    Ok(command)
}

/// A port that no other test process takes, nor an outgoing connection: below the ephemeral
/// ones and held by a name as the test clusters hold theirs.
pub fn free_port() -> Result<u16> {
    static HELD: Mutex<Vec<UnixListener>> = Mutex::new(Vec::new());
    for _ in 0..2_000 {
        let port = 20_000 + u16::try_from(RandomState::new().build_hasher().finish() % 12_000)?;
        let name = SocketAddr::from_abstract_name(format!("tidegate-port-{port}"))?;
        let Ok(held) = UnixListener::bind_addr(&name) else { continue };
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            HELD.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(held);
            return Ok(port);
        }
    }
    bail!("no free port")
}

/// How long a pod may take to be let go once it may.
pub const SOON: Duration = Duration::from_secs(30);

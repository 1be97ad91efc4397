//! `tidegate run`: the long-running programs, wired from the rooms.

mod controller;
mod leadership;
mod preflight;
mod webhook;

use std::net::TcpListener;
use std::path::Path;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use kube::{Client, Config};

use crate::admission::server::Limits;
use crate::engine::Millis;
use crate::manifests::Values;
use crate::runtime::Supervisor;
use crate::runtime::telemetry::{self, LogFormat};

use super::{Connect, Failure};

/// How long a connection to the apiserver may be silent. A watch is told something each
/// minute, if only a bookmark: after two that did not come the connection is dead, and
/// nobody said so.
const READ_TIMEOUT: Duration = Duration::from_secs(130);

/// Which program to run.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum Run {
    /// Decide what may start and let it go. Of several one decides and the others look on.
    Controller(controller::Args),
    /// Gate pods as they are made and check queues as they are changed.
    Webhook(webhook::Args),
    /// Both in one process, for a laptop.
    All(All),
}

/// Both programs.
#[derive(Clone, Debug, clap::Args)]
pub struct All {
    #[command(flatten)]
    controller: controller::Args,
    /// Address of the webhook.
    #[arg(long, default_value = "0.0.0.0:9443", value_name = "ADDRESS")]
    listen: String,
    /// Accounts whose pods are not gated, beside kubelets and the DaemonSet controller.
    #[arg(long, value_name = "USER", value_delimiter = ',', value_parser = Values::account)]
    exempt_account: Vec<String>,
}

/// What every program needs.
#[derive(Clone, Debug, clap::Args)]
pub struct Common {
    #[command(flatten)]
    connect: Connect,
    /// Namespace that Tidegate is installed in.
    #[arg(
        long,
        env = "TIDEGATE_NAMESPACE",
        default_value = "tidegate-system",
        value_parser = Values::namespace
    )]
    namespace: String,
    /// What to log: a level, or `target=level` pairs.
    #[arg(long, env = "TIDEGATE_LOG", default_value = "info", value_name = "FILTER")]
    log: String,
    /// How log lines look.
    #[arg(long, value_enum, default_value_t)]
    log_format: LogFormat,
}

/// Runs until told to stop or until a part of it ends.
///
/// # Errors
/// Wrong usage, something that is not installed, or a listener, a client or a task that
/// failed.
pub async fn run(run: Run) -> Result<(), Failure> {
    run.common().log();
    if let Some(directory) = run.cert_dir() {
        preflight::directory(directory)?;
    }
    let client = run.common().connect.client().await?;
    preflight::installed(&client, run.home()).await?;
    serve(run).await.map_err(|error| Failure::Error(format!("{error:#}")))
}

async fn serve(run: Run) -> anyhow::Result<()> {
    let mut supervisor = Supervisor::default();
    match run {
        Run::Controller(args) => drop(controller::start(&args, &mut supervisor).await?),
        Run::Webhook(args) => webhook::start(&args, &mut supervisor).await?,
        Run::All(args) => {
            let resolver = controller::start(&args.controller, &mut supervisor).await?;
            let client = args.controller.common.client().await?;
            let accounts = args.exempt_account.clone();
            let limits = Limits::default();
            webhook::serve(client, &args.listen, accounts, resolver, limits, &mut supervisor)?;
        }
    }
    Ok(supervisor.run().await?)
}

impl Run {
    fn common(&self) -> &Common {
        match self {
            Self::Controller(args) => &args.common,
            Self::Webhook(args) => &args.common,
            Self::All(args) => &args.controller.common,
        }
    }

    /// Where somebody else keeps certificate and key, if somebody does.
    fn cert_dir(&self) -> Option<&Path> {
        match self {
            Self::Controller(args) => args.cert_dir.as_deref(),
            Self::Webhook(args) => Some(&args.cert_dir),
            Self::All(args) => args.controller.cert_dir.as_deref(),
        }
    }

    /// The namespace that certificates of our own are kept in.
    fn home(&self) -> Option<&str> {
        self.cert_dir().is_none().then_some(&self.common().namespace)
    }
}

impl Common {
    fn log(&self) {
        telemetry::init(&self.log, self.log_format);
    }

    async fn config(&self) -> anyhow::Result<Config> {
        let mut config = self.connect.config().await?;
        config.read_timeout = Some(READ_TIMEOUT);
        Ok(config)
    }

    async fn client(&self) -> anyhow::Result<Client> {
        Ok(Client::try_from(self.config().await?)?)
    }
}

/// A time such as `90s` or `1h 30m`.
fn duration(text: &str) -> Result<Duration, String> {
    let duration: jiff::SignedDuration = text.parse().map_err(|error| format!("{error}"))?;
    Duration::try_from(duration).map_err(|_| "must not be negative".to_owned())
}

fn listen(address: &str) -> anyhow::Result<TcpListener> {
    let listener =
        TcpListener::bind(address).with_context(|| format!("cannot listen on {address}"))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Milliseconds since the Unix epoch, as a clock that never goes back: waits are
/// measured in it.
fn now() -> Millis {
    static START: LazyLock<(Millis, Instant)> =
        LazyLock::new(|| (jiff::Timestamp::now().as_millisecond(), Instant::now()));
    let (begin, since) = &*START;
    begin.saturating_add(Millis::try_from(since.elapsed().as_millis()).unwrap_or(Millis::MAX))
}

fn clock() -> crate::control::Clock {
    Arc::new(now)
}

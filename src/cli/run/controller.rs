//! `tidegate run controller`.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::Client;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::api::names::{VERSION, VISIBILITY_GROUP};
use crate::certs::{Home, Names, Pace, Resolver, files, inject, store};
use crate::clusters;
use crate::control::{self, Edges};
use crate::engine::action::Action;
use crate::engine::event::Input;
use crate::engine::log::Log;
use crate::engine::{ClusterId, Millis};
use crate::leader::{self, Standing};
use crate::manifests::names::{CONFIGURATION, VISIBILITY_SERVICE, WEBHOOK_SERVICE};
use crate::record::{self, RecordError};
use crate::release::{self, Clients, Settings, Writer};
use crate::report::health::Health;
use crate::report::{frontproxy, metrics, serve, visibility};
use crate::runtime::Supervisor;
use crate::view::{self, Published};

use super::leadership::{Leadership, known, leads};
use super::{Common, clock, duration, listen, now};

/// Inputs and actions that may wait between two rooms.
const CHANNEL: usize = 8_192;
/// A loop without a round for so long is dead.
const DEAD_AFTER: Millis = 30_000;
/// The hub is its own single member.
const HUB: ClusterId = ClusterId(0);
/// How metrics call it.
const HUB_NAME: &str = "hub";

/// The controller.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub common: Common,
    /// Address of the aggregated API.
    #[arg(long, default_value = "0.0.0.0:8443", value_name = "ADDRESS")]
    visibility_listen: String,
    /// Address of metrics and health, without TLS.
    #[arg(long, default_value = "0.0.0.0:8080", value_name = "ADDRESS")]
    health_listen: String,
    /// Secret that the controller keeps its certificates in.
    #[arg(long, default_value = "tidegate-tls", value_name = "NAME")]
    tls_secret: String,
    /// Directory with tls.crt and tls.key that somebody else keeps, such as
    /// cert-manager; the controller then makes no certificates and fills no bundle.
    #[arg(long, value_name = "DIR")]
    pub cert_dir: Option<PathBuf>,
    /// How long every caller must have been seen to trust a new authority before it signs.
    #[arg(long, default_value = "1m", value_parser = duration, value_name = "TIME")]
    ca_settle: Duration,
    /// How long an earlier authority stays trusted; longer than kubelets take to renew a
    /// mounted Secret.
    #[arg(long, default_value = "1h", value_parser = duration, value_name = "TIME")]
    ca_overlap: Duration,
    #[command(flatten)]
    leadership: Leadership,
    /// Write down what the decision core is told and a digest of what it decides, in a new file
    /// of this directory, for `tidegate replay`. It holds numbers and no names.
    #[arg(long, env = "TIDEGATE_RECORD", value_name = "DIR")]
    record: Option<PathBuf>,
    /// Mebibytes told after which another file of the record begins; the last two are kept.
    #[arg(long, default_value = "128", value_name = "MIB", value_parser = clap::value_parser!(u32).range(1..))]
    record_limit: u32,
}

impl Args {
    fn record(&self) -> Result<Option<Box<dyn Log>>, RecordError> {
        let most = u64::from(self.record_limit) << 20;
        self.record.as_deref().map(|directory| record::begin(directory, now(), most)).transpose()
    }
}

/// Starts the controller's tasks. Returns what serves its certificate.
pub async fn start(args: &Args, supervisor: &mut Supervisor) -> anyhow::Result<Arc<Resolver>> {
    let client = args.common.client().await?;
    let resolver = Arc::new(Resolver::default());
    certificates(args, &client, &resolver, supervisor);
    let core = core(args, &client, supervisor).await?;
    faces(args, client, &resolver, core, supervisor)?;
    Ok(resolver)
}

/// What the core shows to the outside.
struct Core {
    published: Published,
    heartbeat: Arc<AtomicI64>,
    counters: Arc<release::Counters>,
}

/// Election, watches, the loop and the writer, joined by bounded channels.
async fn core(args: &Args, client: &Client, supervisor: &mut Supervisor) -> anyhow::Result<Core> {
    let (inputs, inbox) = mpsc::channel::<Input>(CHANNEL);
    let (actions, queue) = mpsc::channel(CHANNEL);
    let published = view::published();
    let heartbeat = Arc::new(AtomicI64::new(now()));
    let (standing, idle) = elect(args, client, supervisor)?;
    let counters = write(args, inputs.clone(), queue, &standing, idle, supervisor).await?;
    let edges = Edges {
        inbox,
        actions,
        published: published.clone(),
        heartbeat: heartbeat.clone(),
        clock: clock(),
        log: args.record()?,
    };
    supervisor.spawn("control loop", control::run(edges, supervisor.token()));
    let (client, stop) = (client.clone(), supervisor.token());
    supervisor.spawn("cluster", async move {
        // Who leads at once lists once.
        if stop.run_until_cancelled(known(standing.clone())).await.is_none() {
            return Ok(());
        }
        let leads = async move {
            leads(standing).await;
        };
        clusters::run(client, HUB, inputs, leads, stop).await
    });
    Ok(Core { published, heartbeat, counters })
}

/// Takes part in the election. What comes of it, and what to cancel when this process
/// writes nothing more: only then the Lease is given back.
fn elect(
    args: &Args,
    client: &Client,
    supervisor: &mut Supervisor,
) -> anyhow::Result<(watch::Receiver<Standing>, CancellationToken)> {
    let (standing, receiver) = watch::channel(Standing::default());
    let settings = args.leadership.settings(&args.common.namespace)?;
    let idle = CancellationToken::new();
    let wait = idle.clone().cancelled_owned();
    let taking_part = leader::run(client.clone(), settings, standing, supervisor.token(), wait);
    supervisor.spawn("leader", taking_part);
    Ok((receiver, idle))
}

/// The writer, which begins when this process leads.
async fn write(
    args: &Args,
    inputs: mpsc::Sender<Input>,
    actions: mpsc::Receiver<Action>,
    standing: &watch::Receiver<Standing>,
    idle: CancellationToken,
    supervisor: &mut Supervisor,
) -> anyhow::Result<Arc<release::Counters>> {
    let client = release::client(args.common.config().await?)?;
    let clients = Clients { hub: client.clone(), members: BTreeMap::from([(HUB, client)]) };
    let settings = Settings { instance: args.leadership.pod_name(), ..Settings::new(0) };
    let writer = Writer::new(clients, settings, inputs, clock());
    let counters = writer.counters();
    let (leads, stop) = (leads(standing.clone()), supervisor.token());
    supervisor.spawn("writer", async move {
        let _idle = idle.drop_guard();
        match stop.run_until_cancelled(leads).await {
            Some(epoch) => writer.with_epoch(epoch).run(actions, stop).await,
            None => Ok(()),
        }
    });
    Ok(counters)
}

/// The aggregated API, metrics and health.
fn faces(
    args: &Args,
    client: Client,
    resolver: &Arc<Resolver>,
    core: Core,
    supervisor: &mut Supervisor,
) -> anyhow::Result<()> {
    let health = health(&core, resolver.clone());
    let authorizer = Arc::new(visibility::Apiserver::new(client.clone()));
    let app = visibility::Visibility::new(core.published.clone(), authorizer);
    let proxy = Arc::new(frontproxy::FrontProxy::default());
    let router = frontproxy::authenticated(visibility::router(app, &health), proxy.clone());
    let tls = frontproxy::server_config(resolver.clone(), proxy.clone())?;
    let listener = listen(&args.visibility_listen)?;
    let serving = serve::tls(listener, tls, router, supervisor.token());
    supervisor.spawn("aggregated API", serving);
    let stop = supervisor.token();
    let settings =
        async move { stop.run_until_cancelled(frontproxy::keep_current(client, proxy)).await };
    supervisor.spawn("front proxy settings", endless(async { settings.await.unwrap_or_default() }));
    let counters = core.counters;
    let writes: metrics::Writes = Arc::new(move || written(counters.read(), &counters.flows()));
    let router = metrics::router(core.published, writes, &health);
    let serving = serve::plain(listen(&args.health_listen)?, router, supervisor.token());
    supervisor.spawn("metrics and health", serving);
    Ok(())
}

fn written(counts: release::Counts, flows: &[release::Flow]) -> metrics::Written {
    let flow = |flow: &release::Flow| metrics::Flow {
        // With one cluster there is one name.
        cluster: HUB_NAME.into(),
        state: flow.phase.code(),
        window: flow.window,
    };
    metrics::Written {
        pauses: counts.pauses,
        flows: flows.iter().map(flow).collect(),
        patches: counts.patches,
        retries: counts.retries,
        events: counts.events,
        events_dropped: counts.events_dropped,
        statuses: counts.statuses,
        status_failures: counts.status_failures,
        evicted: counts.evicted,
        eviction_retries: counts.eviction_retries,
        evictions_guarded: counts.evictions_guarded,
        evictions_refused: counts.evictions_refused,
    }
}

fn health(core: &Core, resolver: Arc<Resolver>) -> Health {
    let heartbeat = core.heartbeat.clone();
    let published = core.published.clone();
    Health {
        live: Arc::new(move || {
            let age = now().saturating_sub(heartbeat.load(Ordering::Relaxed));
            if age > DEAD_AFTER { Err(format!("no round for {age} ms")) } else { Ok(()) }
        }),
        ready: Arc::new(move || match (published.load().synced, resolver.is_loaded()) {
            (false, _) => Err("first lists are not in yet".to_owned()),
            (_, false) => Err("no certificate yet".to_owned()),
            (true, true) => Ok(()),
        }),
    }
}

/// Keeps the Secret and the bundles, or follows files that somebody else keeps.
fn certificates(
    args: &Args,
    client: &Client,
    resolver: &Arc<Resolver>,
    supervisor: &mut Supervisor,
) {
    let stop = supervisor.token();
    if let Some(directory) = &args.cert_dir {
        let follow = files::follow(directory.clone(), resolver.clone(), stop);
        supervisor.spawn("certificate files", endless(follow));
        return;
    }
    let home = home(args);
    let pace = Pace { settle: args.ca_settle, overlap: args.ca_overlap };
    let keeper = store::Keeper::new(client.clone(), home.clone(), pace);
    let (bundle, bundles) = watch::channel(None);
    let keep = store::keep(keeper, resolver.clone(), bundle, stop.clone());
    supervisor.spawn("authority", endless(keep));
    let fill = (client.clone(), home, bundles, stop);
    let (client, home, bundles, stop) = fill.clone();
    let mutating = inject::keep::<MutatingWebhookConfiguration>(client, home, bundles, stop);
    supervisor.spawn("bundle of the mutating webhook", endless(mutating));
    let (client, home, bundles, stop) = fill.clone();
    let validating = inject::keep::<ValidatingWebhookConfiguration>(client, home, bundles, stop);
    supervisor.spawn("bundle of the validating webhook", endless(validating));
    let (client, home, bundles, stop) = fill;
    let visibility = inject::keep::<APIService>(client, home, bundles, stop);
    supervisor.spawn("bundle of the aggregated API", endless(visibility));
}

fn home(args: &Args) -> Home {
    let services = [WEBHOOK_SERVICE, VISIBILITY_SERVICE];
    Home {
        namespace: args.common.namespace.clone(),
        secret: args.tls_secret.clone(),
        names: Names::of_services(&args.common.namespace, &services, &[]),
        configuration: CONFIGURATION.to_owned(),
        api_service: format!("{VERSION}.{VISIBILITY_GROUP}"),
    }
}

async fn endless(task: impl Future<Output = ()>) -> Result<(), Infallible> {
    task.await;
    Ok(())
}

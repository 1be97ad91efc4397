//! `tidegate run controller`.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::Client;
use tokio::sync::{mpsc, watch};

use crate::api::names::{VERSION, VISIBILITY_GROUP};
use crate::certs::{Names, Resolver, files, inject, store};
use crate::control::{self, Edges};
use crate::engine::event::Input;
use crate::engine::{ClusterId, Millis};
use crate::manifests::names::{CONFIGURATION, VISIBILITY_SERVICE, WEBHOOK_SERVICE};
use crate::release::{self, Clients, Settings, Writer};
use crate::report::health::Health;
use crate::runtime::Supervisor;
use crate::view::{self, Published};
use crate::{clusters, report};

use super::{Common, clock, listen, now};

/// Inputs and actions that may wait between two rooms.
const CHANNEL: usize = 8_192;
/// A loop without a round for so long is dead.
const DEAD_AFTER: Millis = 30_000;
/// The hub is its own single member.
const HUB: ClusterId = ClusterId(0);
/// The leader's fencing number while there can be only one controller.
const EPOCH: u64 = 1;

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
    cert_dir: Option<PathBuf>,
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

/// Watches, the loop and the writer, joined by two bounded channels.
async fn core(args: &Args, client: &Client, supervisor: &mut Supervisor) -> anyhow::Result<Core> {
    let (inputs, inbox) = mpsc::channel::<Input>(CHANNEL);
    let (actions, queue) = mpsc::channel(CHANNEL);
    let published = view::published();
    let heartbeat = Arc::new(AtomicI64::new(now()));
    let writing = release::client(args.common.config().await?)?;
    let clients = Clients { hub: writing.clone(), members: BTreeMap::from([(HUB, writing)]) };
    let writer = Writer::new(clients, Settings::new(EPOCH), inputs.clone(), clock());
    let counters = writer.counters();
    supervisor.spawn("writer", writer.run(queue, supervisor.token()));
    let edges = Edges {
        inbox,
        actions,
        published: published.clone(),
        heartbeat: heartbeat.clone(),
        clock: clock(),
    };
    supervisor.spawn("control loop", control::run(edges, supervisor.token()));
    supervisor.spawn("cluster", clusters::run(client.clone(), HUB, inputs, supervisor.token()));
    Ok(Core { published, heartbeat, counters })
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
    let _ = (args, client, health, supervisor, listen, report::human);
    drop(core.counters);
    Ok(())
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
    let services = [WEBHOOK_SERVICE, VISIBILITY_SERVICE];
    let home = store::Home {
        namespace: args.common.namespace.clone(),
        secret: args.tls_secret.clone(),
        names: Names::of_services(&args.common.namespace, &services, &[]),
    };
    let (bundle, bundles) = watch::channel(None);
    let keep = store::keep(client.clone(), home, resolver.clone(), bundle, stop.clone());
    supervisor.spawn("authority", endless(keep));
    let configuration = CONFIGURATION.to_owned();
    let mutating = inject::keep::<MutatingWebhookConfiguration>(
        client.clone(),
        configuration.clone(),
        bundles.clone(),
        stop.clone(),
    );
    let validating = inject::keep::<ValidatingWebhookConfiguration>(
        client.clone(),
        configuration,
        bundles.clone(),
        stop.clone(),
    );
    let api_service = format!("{VERSION}.{VISIBILITY_GROUP}");
    let visibility = inject::keep::<APIService>(client.clone(), api_service, bundles, stop);
    supervisor.spawn("bundle of the mutating webhook", endless(mutating));
    supervisor.spawn("bundle of the validating webhook", endless(validating));
    supervisor.spawn("bundle of the aggregated API", endless(visibility));
}

async fn endless(task: impl Future<Output = ()>) -> Result<(), Infallible> {
    task.await;
    Ok(())
}

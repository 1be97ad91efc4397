//! `tidegate run webhook`.

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use kube::api::{ApiResource, DynamicObject};
use kube::runtime::reflector::store::Writer;
use kube::runtime::{WatchStreamExt as _, reflector, watcher};
use kube::{Api, Client, ResourceExt as _};
use tokio_util::sync::CancellationToken;

use crate::admission::server::{Limits, Service};
use crate::admission::{Backlogs, Exempt, QueueTree, Queues, server};
use crate::api::v1alpha1::{Queue, StoredQueue, read_queue};
use crate::certs::{Resolver, files};
use crate::manifests::Values;
use crate::runtime::Supervisor;

use super::{Common, duration, listen};

/// The webhook.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub common: Common,
    /// Address of the webhook.
    #[arg(long, default_value = "0.0.0.0:9443", value_name = "ADDRESS")]
    listen: String,
    /// Directory with tls.crt and tls.key, read again when they change.
    #[arg(long, default_value = "/etc/tidegate/tls", value_name = "DIR")]
    pub cert_dir: PathBuf,
    /// Accounts whose pods are not gated, beside kubelets and the DaemonSet controller.
    #[arg(long, value_name = "USER", value_delimiter = ',', value_parser = Values::account)]
    exempt_account: Vec<String>,
    /// How long a webhook that is told to stop still answers, until nobody calls it any more.
    #[arg(long, default_value = "15s", value_parser = duration, value_name = "TIME")]
    drain: Duration,
}

/// Starts the webhook's tasks.
pub async fn start(args: &Args, supervisor: &mut Supervisor) -> anyhow::Result<()> {
    let resolver = Arc::new(Resolver::default());
    let follow = files::follow(args.cert_dir.clone(), resolver.clone(), supervisor.token());
    supervisor.spawn("certificate files", async {
        follow.await;
        Ok::<_, Infallible>(())
    });
    let client = args.common.client().await?;
    let limits = Limits { drain: args.drain, ..Limits::default() };
    serve(client, &args.listen, args.exempt_account.clone(), resolver, limits, supervisor)
}

/// Starts the server and the watch that tells it the queues.
pub fn serve(
    client: Client,
    address: &str,
    exempt: Vec<String>,
    resolver: Arc<Resolver>,
    limits: Limits,
    supervisor: &mut Supervisor,
) -> anyhow::Result<()> {
    let queues = Queues::default();
    let backlogs = Backlogs::default();
    let service = Service::new(Exempt::new(exempt), queues.clone(), backlogs.clone());
    let listener = listen(address)?;
    tracing::info!(address, "webhook listening");
    let stop = supervisor.token();
    supervisor.spawn("queue watch", watch_queues(client, queues, backlogs, stop.clone()));
    supervisor.spawn("webhook", server::serve(listener, resolver, service, limits, stop));
    Ok(())
}

/// Keeps the webhook's view of the queues fresh, until cancelled. Read without a type: one
/// queue that this version cannot read must not hide the others.
async fn watch_queues(
    client: Client,
    queues: Queues,
    backlogs: Backlogs,
    stop: CancellationToken,
) -> Result<(), Infallible> {
    let kind = ApiResource::erase::<Queue>(&());
    let api = Api::<DynamicObject>::all_with(client, &kind);
    let writer = Writer::new(kind);
    let store = writer.as_reader();
    let watch = watcher(api, watcher::Config::default());
    let mut events = reflector(writer, watch.default_backoff()).boxed();
    loop {
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            event = events.next() => match event {
                Some(Ok(watcher::Event::Init | watcher::Event::InitApply(_))) | None => {}
                Some(Ok(_)) => show(&store.state(), &queues, &backlogs),
                Some(Err(error)) => tracing::warn!(%error, "queue watch failed"),
            },
        }
    }
}

/// Shows all queues, each as far as it can be read, to those who answer reviews.
fn show(stored: &[Arc<DynamicObject>], queues: &Queues, backlogs: &Backlogs) {
    let read = |object: &Arc<DynamicObject>| {
        let StoredQueue { queue, unreadable } = read_queue(DynamicObject::clone(object));
        if let Some(why) = unreadable {
            tracing::debug!(queue = %queue.name_any(), why, "queue_unreadable");
        }
        queue
    };
    let all: Vec<Queue> = stored.iter().map(read).collect();
    backlogs.observe(all.iter(), Instant::now());
    queues.store(Some(Arc::new(all.iter().collect::<QueueTree>())));
}

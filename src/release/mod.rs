//! The only writer of workload objects.
//!
//! In: [`Action`]s from the control loop through one bounded channel. Out: at most
//! one PATCH that changes a pod for each release, evictions, Events, queue statuses; and
//! what became of each release, as an event in the loop's inbox. Every release it takes
//! ends as exactly one outcome. Lanes for the releases of each cluster, its evictions,
//! Events, statuses; all but the first are slow and small and never hold it up.
//!
//! Must never decide anything, read the engine's state or the view, replace an
//! object, write one without its uid, or wait for the control loop while the
//! control loop may wait for it.

mod circuit;
mod clear;
mod counters;
mod dispatch;
mod error;
mod evict;
mod lane;
mod latency;
mod notice;
mod pace;
mod send;
mod status;
#[cfg(test)]
mod tests;
mod throttle;
mod time;
mod ungate;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use http::header::{HeaderValue, USER_AGENT};
use kube::{Client, Config};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::api::names::FIELD_MANAGER;
use crate::engine::action::{Action, Evict};
use crate::engine::event::Input;
use crate::engine::{ClusterId, Millis};

pub use circuit::Phase;
pub use clear::{Cleared, Clearing, Progress, clear};
pub use counters::{Counters, Counts, Flow};
pub use error::{Handling, ReleaseError};
pub use pace::Backoff;
pub use time::Clock;

/// Events that may wait to be written; more are dropped.
const NOTICES: usize = 512;
/// Evictions of a cluster that may wait to be taken; more are handed back.
const EVICTIONS: usize = 1_024;
/// Statuses between two lanes; the status lane always takes them at once.
const STATUSES: usize = 64;

/// How the writer goes about it.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The leader's fencing number, written with each release.
    pub epoch: u64,
    /// Name of this process in Events, such as its pod's name.
    pub instance: Option<String>,
    /// Release patches in flight at once towards one cluster, at most.
    pub in_flight: u32,
    /// Patches for one release before it is handed back; those that failed because the
    /// apiserver suffers do not count.
    pub tries: u32,
    /// Longest wait for the answer to one PATCH. Longer than the ten seconds that an
    /// admission webhook may take by default: a webhook in trouble is not the apiserver's.
    pub timeout: Duration,
    /// Waits between two tries, and of a whole cluster whose apiserver is in trouble.
    pub retry: Backoff,
    /// Waits before a release or an eviction that was refused may be decided again.
    pub refusal: Backoff,
    /// Waits between two tries of an eviction.
    pub eviction: Backoff,
    /// How long an eviction is tried that fails.
    pub eviction_patience: Duration,
    /// Shortest time between two writes of one queue's status.
    pub status_every: Duration,
}

impl Settings {
    /// What production uses, with this epoch.
    #[must_use]
    pub fn new(epoch: u64) -> Self {
        let (millis, secs) = (Duration::from_millis, Duration::from_secs);
        Self {
            epoch,
            instance: None,
            in_flight: 16,
            tries: 4,
            timeout: secs(15),
            retry: Backoff { first: millis(200), most: secs(10) },
            refusal: Backoff { first: secs(5), most: secs(300) },
            eviction: Backoff { first: secs(1), most: secs(20) },
            eviction_patience: secs(30),
            status_every: secs(1),
        }
    }
}

/// Connections, each made by [`client`].
#[derive(Clone)]
pub struct Clients {
    /// The cluster that has the queues.
    pub hub: Client,
    /// The clusters that have pods. With one cluster, the hub is in here too.
    pub members: BTreeMap<ClusterId, Client>,
}

/// A client for the writer.
///
/// kube's own retries are off: they would repeat a 429 up to fifteen times out of
/// sight of the lane that must slow down because of it.
pub fn client(mut config: Config) -> Result<Client, kube::Error> {
    config.default_retry = false;
    config.headers.push((USER_AGENT, HeaderValue::from_static(FIELD_MANAGER)));
    Client::try_from(config)
}

/// The one writer.
pub struct Writer {
    clients: Clients,
    settings: Settings,
    inbox: mpsc::Sender<Input>,
    clock: Clock,
    counters: Arc<Counters>,
}

impl Writer {
    /// A writer that reports to `inbox`.
    #[must_use]
    pub fn new(
        clients: Clients,
        settings: Settings,
        inbox: mpsc::Sender<Input>,
        clock: Clock,
    ) -> Self {
        let counters = Arc::new(Counters::of(clients.members.keys().copied()));
        Self { clients, settings, inbox, clock, counters }
    }

    /// Gives the leader's fencing number, which is known only once it leads.
    #[must_use]
    pub fn with_epoch(mut self, epoch: u64) -> Self {
        self.settings.epoch = epoch;
        self
    }

    /// What it has done so far, also while it runs.
    #[must_use]
    pub fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.counters)
    }

    /// Writes until cancelled, then lets what is in flight end, each within its time-out.
    ///
    /// What waits at that moment is not written: whoever leads next decides it again.
    /// Ends with an error when the control loop is gone or another leader has fenced it off.
    pub async fn run(
        self,
        actions: mpsc::Receiver<Action>,
        stop: CancellationToken,
    ) -> Result<(), ReleaseError> {
        let (to_notices, notices) = mpsc::channel(NOTICES);
        let (to_statuses, statuses) = mpsc::channel(STATUSES);
        let counters = Arc::clone(&self.counters);
        let scribes = notice::Scribes::new(&self.clients.members, self.settings.instance.clone());
        let publisher = status::Statuses::new(
            self.clients.hub.clone(),
            self.settings.status_every,
            Arc::clone(&self.clock),
            &counters,
        );
        let (to_evictors, evictors) = self.evictors(&stop);
        let channels = dispatch::Channels {
            notices: to_notices,
            statuses: to_statuses,
            evictions: to_evictors,
        };
        let releases = dispatch::Dispatch::new(self, channels);
        let (result, _, (), ()) = tokio::join!(
            releases.run(actions, stop.clone()),
            futures::future::join_all(evictors),
            notice::run(scribes, notices, &counters, stop.clone()),
            publisher.run(statuses, stop),
        );
        result
    }
}

impl Writer {
    /// One for each cluster, and where it takes evictions from.
    fn evictors(
        &self,
        stop: &CancellationToken,
    ) -> (BTreeMap<ClusterId, mpsc::Sender<Evict>>, Vec<impl Future<Output = ()> + use<>>) {
        let limits = evict::Limits {
            timeout: self.settings.timeout,
            retry: self.settings.eviction,
            patience: self.settings.eviction_patience,
            refusal: self.settings.refusal,
        };
        let one = |(&cluster, client): (&ClusterId, &Client)| {
            let (sender, evictions) = mpsc::channel(EVICTIONS);
            let evictor = evict::Evictor {
                client: client.clone(),
                limits,
                inbox: self.inbox.clone(),
                clock: Arc::clone(&self.clock),
                counters: Arc::clone(&self.counters),
            };
            ((cluster, sender), evictor.run(evictions, stop.clone()))
        };
        self.clients.members.iter().map(one).unzip()
    }
}

/// Waits so many milliseconds, or for ever.
async fn sleep(wait: Option<Millis>) {
    match wait.map(|wait| Duration::from_millis(u64::try_from(wait).unwrap_or(0))) {
        Some(wait) => tokio::time::sleep(wait).await,
        None => std::future::pending().await,
    }
}

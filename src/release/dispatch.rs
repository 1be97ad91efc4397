//! Takes actions in, keeps the lanes of all clusters going, reports outcomes.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use kube::Client;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::engine::action::{Action, Evict, Notice, QueueStatus, Release};
use crate::engine::event::{Event, Input, Outcome, Pause};
use crate::engine::{ClusterId, Millis, PodId};

use super::counters::{Counters, count};
use super::error::{Handling, ReleaseError};
use super::lane::{Attempt, Finished, Lane, Limits, Next};
use super::pace::millis;
use super::time::Clock;
use super::{Writer, ungate};

/// Outcomes that may wait for the inbox; while they do, no action is taken in.
const OUTBOX: usize = 1_024;
/// Shortest time between two warnings about refusals.
const WARN_EVERY: Millis = 10_000;

/// How a PATCH ended, and after how long.
struct Done {
    cluster: ClusterId,
    attempt: Attempt,
    result: Result<(), ReleaseError>,
    took: Duration,
}

/// All releases of all clusters.
pub(super) struct Dispatch {
    clients: BTreeMap<ClusterId, Client>,
    lanes: BTreeMap<ClusterId, Lane>,
    limits: Limits,
    epoch: u64,
    timeout: Duration,
    in_flight: FuturesUnordered<BoxFuture<'static, Done>>,
    inbox: mpsc::Sender<Input>,
    outbox: VecDeque<Input>,
    channels: Channels,
    clock: Clock,
    counters: Arc<Counters>,
    warn_at: Millis,
    /// Clusters whose pause the control loop was told of.
    paused: BTreeMap<ClusterId, Pause>,
    /// Why nothing more may be written.
    fenced: Option<ReleaseError>,
}

/// The other lanes.
pub(super) struct Channels {
    pub notices: mpsc::Sender<Notice>,
    pub statuses: mpsc::Sender<QueueStatus>,
    pub evictions: BTreeMap<ClusterId, mpsc::Sender<Evict>>,
}

impl Dispatch {
    pub(super) fn new(writer: Writer, channels: Channels) -> Self {
        let Writer { clients, settings, inbox, clock, counters } = writer;
        let limits = Limits {
            in_flight: settings.in_flight,
            tries: settings.tries,
            retry: settings.retry,
            refusal: settings.refusal,
        };
        Self {
            lanes: clients.members.keys().map(|&id| (id, Lane::new(limits))).collect(),
            clients: clients.members,
            limits,
            epoch: settings.epoch,
            timeout: settings.timeout,
            in_flight: FuturesUnordered::new(),
            inbox,
            outbox: VecDeque::new(),
            channels,
            clock,
            counters,
            warn_at: Millis::MIN,
            paused: BTreeMap::new(),
            fenced: None,
        }
    }

    pub(super) async fn run(
        mut self,
        mut actions: mpsc::Receiver<Action>,
        stop: CancellationToken,
    ) -> Result<(), ReleaseError> {
        let result = self.work(&mut actions, &stop).await;
        while let Some(done) = self.in_flight.next().await {
            self.finish(done);
        }
        // Nobody may be reading any more: what does not fit is lost, and the next list of
        // pods tells it again.
        for input in self.outbox.drain(..) {
            if self.inbox.try_send(input).is_err() {
                break;
            }
        }
        result
    }

    async fn work(
        &mut self,
        actions: &mut mpsc::Receiver<Action>,
        stop: &CancellationToken,
    ) -> Result<(), ReleaseError> {
        let inbox = self.inbox.clone();
        loop {
            if let Some(error) = self.fenced.take() {
                return Err(error);
            }
            let wait = self.start();
            tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                permit = inbox.reserve(), if !self.outbox.is_empty() => {
                    let permit = permit.map_err(|_| ReleaseError::InboxClosed)?;
                    if let Some(input) = self.outbox.pop_front() {
                        permit.send(input);
                    }
                }
                Some(done) = self.in_flight.next() => self.finish(done),
                action = actions.recv(), if self.has_room() => {
                    self.accept(action.ok_or(ReleaseError::ActionsClosed)?, stop).await;
                }
                () = super::sleep(wait) => {}
            }
        }
    }

    /// While no lane takes more, actions wait in the channel and the control loop decides
    /// less, instead of handing back what it has decided.
    fn has_room(&self) -> bool {
        let full = !self.lanes.is_empty() && !self.lanes.values().any(Lane::has_room);
        self.outbox.len() < OUTBOX && !full
    }

    fn now(&self) -> Millis {
        (self.clock)()
    }

    /// Sends what may be sent now; how long until more may be.
    fn start(&mut self) -> Option<Millis> {
        let now = self.now();
        let clusters: Vec<ClusterId> = self.lanes.keys().copied().collect();
        let wake = clusters.into_iter().filter_map(|cluster| {
            let wake = self.start_in(cluster, now);
            self.tell_pause(cluster, now);
            wake
        });
        wake.min().map(|wake| wake.saturating_sub(now))
    }

    fn start_in(&mut self, cluster: ClusterId, now: Millis) -> Option<Millis> {
        let client = self.clients.get(&cluster)?;
        let lane = self.lanes.get_mut(&cluster)?;
        loop {
            let attempt = match lane.next(now) {
                Next::Start(attempt) => attempt,
                Next::At(at) => return Some(at),
                Next::Idle => return None,
            };
            count(&self.counters.patches);
            let (client, epoch, limit) = (client.clone(), self.epoch, self.timeout);
            self.in_flight.push(Box::pin(async move {
                let began = Instant::now();
                let result = ungate::open(client, &attempt.release, epoch, limit).await;
                Done { cluster, attempt, result, took: began.elapsed() }
            }));
        }
    }

    /// Tells the control loop, the log and the metrics when releases stop or go on.
    fn tell_pause(&mut self, cluster: ClusterId, now: Millis) {
        let Some(lane) = self.lanes.get(&cluster) else { return };
        let (phase, window) = lane.standing(now);
        self.counters.set_flow(cluster, phase, window);
        let (pause, told) = (lane.pause(), self.paused.get(&cluster).copied());
        if pause == told {
            return;
        }
        let (id, state) = (cluster.0, phase.code());
        let event = match (pause, told) {
            (Some(pause), _) => {
                count(&self.counters.pauses);
                self.paused.insert(cluster, pause);
                tracing::warn!(cluster = id, state, cause = pause.cause.code(), "releases_paused");
                Event::Paused(cluster, pause)
            }
            (None, told) => {
                self.paused.remove(&cluster);
                let millis = told.map_or(0, |told| now.saturating_sub(told.since));
                tracing::info!(cluster = id, state, millis, "releases_resumed");
                Event::Resumed(cluster)
            }
        };
        self.outbox.push_back(Input::Event(event));
    }

    async fn accept(&mut self, action: Action, stop: &CancellationToken) {
        match action {
            Action::Release(release) => self.accept_release(release),
            Action::Evict(evict) => self.accept_eviction(evict),
            Action::Notice(notice) => self.tell(notice),
            Action::QueueStatus(status) => {
                tokio::select! {
                    () = stop.cancelled() => {}
                    // Fails only when the lane has ended, which is while stopping.
                    _ = self.channels.statuses.send(*status) => {}
                }
            }
        }
    }

    fn accept_release(&mut self, release: Release) {
        let (now, pod) = (self.now(), release.pod);
        let outcome = if let Some(lane) = self.lanes.get_mut(&release.address.cluster) {
            lane.accept(now, release)
        } else {
            tracing::error!(cluster = release.address.cluster.0, "release_to_unknown_cluster");
            let retry_at = now.saturating_add(self.limits.refusal.after(u32::MAX));
            Some(Outcome::Refused { retry_at })
        };
        if let Some(outcome) = outcome {
            self.report(pod, outcome);
        }
    }

    /// Hands it on, or back when too many wait.
    fn accept_eviction(&mut self, evict: Evict) {
        let pod = evict.pod;
        let lane = self.channels.evictions.get(&evict.address.cluster);
        if lane.is_none_or(|lane| lane.try_send(evict).is_err()) {
            let retry_at = self.now().saturating_add(self.limits.refusal.after(1));
            count(&self.counters.evictions_refused);
            self.report(pod, Outcome::NotEvicted { retry_at });
        }
    }

    fn tell(&self, notice: Notice) {
        if self.channels.notices.try_send(notice).is_err() {
            count(&self.counters.events_dropped);
        }
    }

    fn finish(&mut self, done: Done) {
        let Done { cluster, attempt, result, took } = done;
        let (now, pod) = (self.now(), attempt.release.pod);
        let Some(lane) = self.lanes.get_mut(&cluster) else { return };
        if let Err(error) = &result
            && error.handling() == Handling::Stop
        {
            tracing::warn!(pod = %format_args!("{:032x}", pod.0), %error, "release_fenced");
            self.fenced = Some(error.clone());
        }
        match lane.finish(now, attempt, result, millis(took)) {
            Finished::Outcome(outcome) => self.report(pod, outcome),
            Finished::Retried(error) => {
                count(&self.counters.retries);
                tracing::debug!(pod = %format_args!("{:032x}", pod.0), %error, "release_retried");
            }
            Finished::Refused { release, error, retry_at, times } => {
                self.warn(now, &release, times, &error);
                self.outbox.push_back(Input::Refusal(pod, error.to_string().into()));
                self.report(pod, Outcome::Refused { retry_at });
            }
        }
    }

    fn report(&mut self, pod: PodId, outcome: Outcome) {
        match outcome {
            Outcome::Released => count(&self.counters.released),
            Outcome::Gone => count(&self.counters.gone),
            Outcome::Refused { .. } => count(&self.counters.refusals),
            Outcome::NotEvicted { .. } => {}
        }
        self.outbox.push_back(Input::Event(Event::Outcome(pod, outcome)));
    }

    fn warn(&mut self, now: Millis, release: &Release, times: u32, error: &ReleaseError) {
        let (namespace, name) = (&*release.address.namespace, &*release.address.name);
        if now < self.warn_at {
            tracing::debug!(namespace, name, times, %error, "release_refused");
            return;
        }
        self.warn_at = now.saturating_add(WARN_EVERY);
        let refused = self.counters.read().refusals;
        tracing::warn!(namespace, name, times, refused, %error, "release_refused");
    }
}

//! The one loop: drain the inbox, apply, decide, publish, dispatch.
//!
//! In: `Input`s from the clusters and outcomes from the writer, through one
//! bounded inbox. Out: actions for the one writer and, after each batch, a new
//! immutable view. Only this room touches the engine. It never waits for the
//! writer: what the writer cannot take yet stays in the outbox, and while the
//! outbox is long nothing more is decided.
//!
//! Until it is told that this process leads it does all of that but dispatch: what
//! would be decided is only rehearsed, so that a follower's view gives reasons too.

mod backlog;
mod notices;
mod statuses;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use tokio_util::sync::CancellationToken;

use crate::engine::action::{Action, Evict, Place, Release, Terms};
use crate::engine::event::{Event, GroupName, Input, Outcome, PodConfig, Spared};
use crate::engine::log::{Log, Logged};
use crate::engine::{ClusterId, Decided, Decision, Gang, GroupId, Millis, PodId, PodState};
use crate::view::{Names, Published, Totals, View};

use notices::Notices;
use statuses::Statuses;

/// Inputs taken from the inbox before anything is decided.
const BATCH: usize = 4_096;
/// Pods let go in one round, about.
const BUDGET: usize = 2_000;
/// Actions that may wait for the writer before deciding pauses.
const OUTBOX: usize = 1_000;
/// Longest time between two rounds.
const TICK: Duration = Duration::from_millis(200);
/// Shortest time between two views.
const PUBLISH_EVERY: Millis = 50;
/// Part of the loop's time that building views may take: one in this many.
const PUBLISH_SHARE: Millis = 5;

/// Tells the time in milliseconds since the Unix epoch.
pub type Clock = Arc<dyn Fn() -> Millis + Send + Sync>;

/// The control loop could not go on.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// Everybody who could send inputs is gone. Stop.
    #[error("the inbox was closed")]
    InboxClosed,
    /// The writer is gone. Stop.
    #[error("the writer stopped taking actions")]
    WriterGone,
}

/// What the loop needs of its surroundings.
pub struct Edges {
    /// Everything that happens.
    pub inbox: mpsc::Receiver<Input>,
    /// Everything to be written.
    pub actions: mpsc::Sender<Action>,
    /// Where readers look.
    pub published: Published,
    /// The time of the last finished round, for liveness.
    pub heartbeat: Arc<AtomicI64>,
    /// The time.
    pub clock: Clock,
    /// Where to write down what the engine is told.
    pub log: Option<Box<dyn Log>>,
}

/// Runs until cancelled.
pub async fn run(edges: Edges, cancel: CancellationToken) -> Result<(), ControlError> {
    let mut control = Control::new(edges);
    while !cancel.is_cancelled() {
        control.round(&cancel).await?;
    }
    Ok(())
}

/// How far this process has come; it never goes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Role {
    /// First lists are not in.
    Reads,
    /// It knows all and decides nothing.
    Follows,
    /// It decides.
    Leads,
}

struct Control {
    edges: Edges,
    engine: Logged,
    names: Names,
    outbox: VecDeque<Action>,
    notices: Notices,
    statuses: Statuses,
    totals: Totals,
    role: Role,
    changed: bool,
    publish_at: Millis,
}

impl Control {
    fn new(mut edges: Edges) -> Self {
        let started = (edges.clock)();
        let log = edges.log.take();
        Self {
            edges,
            engine: Logged::new(log),
            names: Names::default(),
            outbox: VecDeque::new(),
            notices: Notices::since(started),
            statuses: Statuses::default(),
            totals: Totals::default(),
            role: Role::Reads,
            changed: true,
            publish_at: 0,
        }
    }

    async fn round(&mut self, cancel: &CancellationToken) -> Result<(), ControlError> {
        let mut batch = Vec::new();
        let wait =
            if self.engine.tick(self.now()) && self.may_decide() { Duration::ZERO } else { TICK };
        tokio::select! {
            taken = self.edges.inbox.recv_many(&mut batch, BATCH) => {
                if taken == 0 {
                    return Err(ControlError::InboxClosed);
                }
            }
            () = tokio::time::sleep(wait) => {}
            () = cancel.cancelled() => return Ok(()),
        }
        let now = self.now();
        self.absorb(now, batch);
        self.decide(now);
        self.notice_record();
        self.publish(now);
        self.write_statuses(now);
        self.dispatch()?;
        self.edges.heartbeat.store(now, Ordering::Relaxed);
        Ok(())
    }

    fn now(&self) -> Millis {
        (self.edges.clock)()
    }

    fn notice_record(&mut self) {
        let recording = self.engine.is_recorded();
        self.changed |= recording != self.totals.recording;
        self.totals.recording = recording;
    }

    fn leads(&self) -> bool {
        self.role == Role::Leads
    }

    fn may_decide(&self) -> bool {
        self.outbox.len() < OUTBOX
    }

    fn absorb(&mut self, now: Millis, batch: Vec<Input>) {
        self.totals.rounds += 1;
        self.totals.inputs += u64::try_from(batch.len()).unwrap_or(0);
        self.changed |= !batch.is_empty();
        for input in batch {
            match input {
                Input::Name(name) => self.names.learn(name),
                Input::Event(event) => self.apply(now, event),
                Input::Refusal(pod, why) => self.refused(pod, why),
                Input::Spared(pod, spared) => self.spared(pod, spared),
                Input::Lead(cluster) => self.lead(now, cluster),
            }
        }
    }

    /// From here on it decides. What began before was told about by whoever led then.
    fn lead(&mut self, now: Millis, cluster: ClusterId) {
        self.role = Role::Leads;
        self.notices = Notices::since(now);
        self.apply(now, Event::Synced(cluster));
    }

    fn apply(&mut self, now: Millis, event: Event) {
        if let Event::NodeRemoved(node) = event {
            self.names.forget_node(node);
        }
        let gone = match &event {
            Event::Outcome(_, Outcome::Released) => {
                self.totals.released += 1;
                None
            }
            Event::Outcome(_, Outcome::Refused { .. }) => {
                self.totals.refused += 1;
                None
            }
            Event::Outcome(_, Outcome::Gone) => {
                self.totals.gone += 1;
                None
            }
            Event::PodRemoved(pod) => {
                self.left(*pod);
                Some(*pod)
            }
            Event::PodChanged(pod, config) => {
                if matches!(config.state, PodState::Bound { terminating: true, .. }) {
                    self.left(*pod);
                }
                self.totals.opened_by_others += u64::from(self.opened_by_others(*pod, config));
                None
            }
            Event::Synced(_) => {
                self.role = self.role.max(Role::Follows);
                None
            }
            _ => None,
        };
        self.engine.apply(now, event);
        if let Some(pod) = gone {
            self.names.forget_pod(pod);
        }
    }

    /// A pod is gone or on its way: that we evicted it is told when it is done.
    fn left(&mut self, pod: PodId) {
        let Some(eviction) = self.names.evicted(pod) else { return };
        self.outbox.extend(self.notices.evicted(&self.names, &eviction));
    }

    fn opened_by_others(&self, pod: PodId, config: &PodConfig) -> bool {
        let gated = matches!(config.state, PodState::Gated | PodState::Dropped);
        self.leads() && !gated && self.engine.waits(pod)
    }

    fn refused(&mut self, pod: PodId, why: Arc<str>) {
        let Some(group) = self.engine.group_of(pod) else { return };
        self.outbox.extend(self.notices.refused(&self.names, group, &why));
        self.names.refused(group, why);
    }

    fn spared(&mut self, pod: PodId, spared: Spared) {
        let Some(group) = self.engine.group_of(pod) else { return };
        self.outbox.extend(self.notices.spared(&self.names, group, pod, &spared.why));
        self.names.spared(pod, spared);
    }

    fn decide(&mut self, now: Millis) {
        if !self.engine.tick(now) || !self.may_decide() {
            return;
        }
        self.changed = true;
        if !self.leads() {
            return self.engine.rehearse(BUDGET);
        }
        let Decided { started: decisions, evicted } = self.engine.decide(BUDGET);
        for eviction in &evicted {
            self.names.evicting(*eviction);
            self.outbox.extend(self.evict(eviction.pod).map(Action::Evict));
        }
        self.totals.decided = self.engine.decided();
        for decision in &decisions {
            if let Some(release) = self.release(now, decision) {
                self.outbox.push_back(Action::Release(release));
            }
        }
        self.outbox.extend(self.notices.started(&self.names, &self.engine, &decisions));
    }

    fn release(&self, now: Millis, decision: &Decision) -> Option<Release> {
        let group = self.names.group(decision.group)?;
        Some(Release {
            pod: decision.pod,
            address: self.names.pod(decision.pod)?.clone(),
            queue: self.names.queue(decision.queue).name,
            group: format!("{}/{}", group.root.kind, group.root.address.name).into(),
            root: group.root.address.uid.clone(),
            size: decision.size,
            terms: Box::new(self.terms(decision.group, group)),
            time: now,
            decision: decision.number,
            place: self.place(decision),
        })
    }

    fn evict(&self, pod: PodId) -> Option<Evict> {
        let address = self.names.pod(pod)?.clone();
        Some(Evict { pod, address, ends_slowly: self.names.ends_slowly(pod) })
    }

    /// What a group begins with, or began with.
    fn terms(&self, id: GroupId, group: &GroupName) -> Terms {
        let config = self.engine.group(id);
        Terms {
            joined: group.joined.clone(),
            min_count: config.and_then(|config| match config.gang {
                Gang::AtLeast(count) => Some(count),
                Gang::Units | Gang::All => None,
            }),
            preemptible: config.is_none_or(|config| !config.non_preemptible),
            singleton: group.origin.singleton.clone(),
            topology: group.origin.topology.clone(),
        }
    }

    /// Where a pod is to run. Its own preferences are not ours to weigh, and a list of them
    /// would be replaced as one.
    fn place(&self, decision: &Decision) -> Option<Box<Place>> {
        let node = decision.node.filter(|_| !self.names.prefers_nodes(decision.pod));
        let node = node.and_then(|node| self.names.node(node).cloned());
        let domain = decision.domain.and_then(|domain| self.names.domain(domain).cloned());
        let place = Place { node, domain };
        Some(place).filter(|place| *place != Place::default()).map(Box::new)
    }

    /// Publishes when something changed, and never so often that it slows the loop.
    fn publish(&mut self, now: Millis) {
        if !self.changed || now < self.publish_at {
            return;
        }
        self.changed = false;
        self.engine.entitle();
        let mut view = View::of(&self.engine, &self.names, now, self.totals);
        (view.synced, view.leads) = (self.role != Role::Reads, self.leads());
        if self.leads() {
            self.outbox.extend(self.notices.waiting(&view));
            self.statuses.due();
        }
        self.edges.published.store(Arc::new(view));
        let took = self.now().saturating_sub(now).max(0);
        self.publish_at = now + PUBLISH_EVERY.max(took * PUBLISH_SHARE);
    }

    fn write_statuses(&mut self, now: Millis) {
        self.engine.settle();
        let view = self.edges.published.load();
        self.outbox.extend(self.statuses.write(now, &view, &self.engine, &self.names));
    }

    fn dispatch(&mut self) -> Result<(), ControlError> {
        while let Some(action) = self.outbox.pop_front() {
            match self.edges.actions.try_send(action) {
                Ok(()) => {}
                Err(TrySendError::Full(action)) => {
                    self.outbox.push_front(action);
                    return Ok(());
                }
                Err(TrySendError::Closed(_)) => return Err(ControlError::WriterGone),
            }
        }
        Ok(())
    }
}

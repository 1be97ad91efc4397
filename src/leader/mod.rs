//! Which of several controllers decides: a Lease, and a number that fences the others off.
//!
//! In: a client, the namespace, who this process is, how long things may take. Out: the
//! [`Standing`] of this process, and an end of the task when it led and leads no more:
//! the process then stops, since nobody else may be doing its work in the meantime. A
//! follower becomes the leader at most once and a leader never follows again.
//!
//! The Lease alone does not protect: a leader that is paused and wakes has not looked yet.
//! So whoever takes it raises the number in the `ConfigMap` that the guard policy reads
//! before it says that it leads, and the apiserver refuses releases of smaller numbers.
//!
//! Must never: compare its clock with another's; write over what it has not seen; write
//! anything but the Lease and that `ConfigMap`; give the Lease back while anything is still
//! being written.

mod election;
mod epoch;
mod lease;

use std::collections::hash_map::RandomState;
use std::future::Future;
use std::hash::{BuildHasher as _, Hasher as _};
use std::pin::pin;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::BoxStream;
use jiff::Timestamp;
use kube::Client;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

pub use election::{Candidate, Loss, Timing};

use election::{Election, Moment, Step, Stored, Write};

/// Longest wait for an answer, however long the deadlines.
const ANSWER: Duration = Duration::from_secs(5);

/// How this process takes part.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Namespace of the Lease and of the fencing number.
    pub namespace: String,
    /// Who this process is.
    pub candidate: Candidate,
    /// Absent where it is the only controller, by somebody's word: it leads at once.
    pub timing: Option<Timing>,
}

/// What this process is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Standing {
    /// It has not seen the Lease yet.
    #[default]
    Unknown,
    /// Another one leads, or nobody yet.
    Follows,
    /// It leads, and every leader before it is fenced off by this number.
    Leads {
        /// Goes into every release.
        epoch: u64,
    },
}

/// A leader leads no more. Stop.
#[derive(Debug, thiserror::Error)]
pub enum LeaderError {
    /// The Lease is lost.
    #[error("leads no more: {0}")]
    Lost(#[from] Loss),
    /// Another one has raised the fencing number.
    #[error("leads no more: its epoch is {ours}, and {stands} has begun")]
    Fenced {
        /// This process's.
        ours: u64,
        /// The one that stands in the `ConfigMap`.
        stands: u64,
    },
}

/// A request that did not work out; it is made again.
#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error("{0}")]
    Api(#[from] kube::Error),
    #[error("no answer in time")]
    Silence(#[from] tokio::time::error::Elapsed),
}

/// What tells lives of one name apart: 64 random bits as text.
#[must_use]
pub fn life() -> String {
    format!("{:016x}", random())
}

/// Keys of a map's hasher are random in each process and differ with each call.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Takes part until `stop`, then, once `idle` has come, gives the Lease back. `idle` must
/// not come before all that the leader writes has ended.
///
/// # Errors
/// It led and leads no more.
pub async fn run(
    client: Client,
    settings: Settings,
    standing: watch::Sender<Standing>,
    stop: CancellationToken,
    idle: impl Future<Output = ()>,
) -> Result<(), LeaderError> {
    let mut member = Member::new(client, settings, standing);
    let mut end = pin!(async {
        stop.cancelled().await;
        idle.await;
    });
    loop {
        member.turn().await?;
        tokio::select! {
            () = &mut end => break,
            () = member.wait() => {}
        }
    }
    member.give_back().await;
    Ok(())
}

/// The process as one of several.
struct Member {
    contest: Option<Contest>,
    epochs: epoch::Store,
    epoch: Option<u64>,
    standing: watch::Sender<Standing>,
    clock: Clock,
}

impl Member {
    fn new(client: Client, settings: Settings, standing: watch::Sender<Standing>) -> Self {
        let Settings { namespace, candidate, timing } = settings;
        let store = lease::Store::new(client.clone(), &namespace);
        Self {
            contest: timing.map(|timing| Contest::new(store, candidate, timing)),
            epochs: epoch::Store::new(client, &namespace),
            epoch: None,
            standing,
            clock: Clock(Instant::now()),
        }
    }

    async fn turn(&mut self) -> Result<(), LeaderError> {
        if let Some(contest) = &mut self.contest {
            contest.turn(self.clock).await?;
        }
        if self.may_lead() {
            self.hold().await?;
        }
        self.publish();
        Ok(())
    }

    fn may_lead(&self) -> bool {
        let now = self.clock.now();
        let holds =
            |contest: &Contest| contest.election.leads_until().is_some_and(|until| now < until);
        self.contest.as_ref().is_none_or(holds)
    }

    /// Fences off all before, then sees to it that nobody after has done so.
    async fn hold(&mut self) -> Result<(), LeaderError> {
        let patience = self.contest.as_ref().map_or(ANSWER, |contest| contest.timing.renew / 4);
        let Some(ours) = self.epoch else {
            let floor = self.contest.as_ref().map_or(0, |contest| contest.election.transitions());
            match answer(patience, self.epochs.raise(floor)).await {
                Ok(epoch) => self.epoch = Some(epoch),
                Err(trouble) => tracing::warn!(%trouble, "epoch_not_raised"),
            }
            return Ok(());
        };
        match answer(patience, self.epochs.keep(ours)).await {
            Ok(Some(stands)) => return Err(LeaderError::Fenced { ours, stands }),
            Ok(None) => {}
            Err(trouble) => tracing::debug!(%trouble, "epoch_not_read"),
        }
        Ok(())
    }

    fn publish(&self) {
        let known = self.contest.as_ref().is_some_and(|contest| contest.election.has_seen());
        let standing = match self.epoch {
            Some(epoch) if self.may_lead() => Standing::Leads { epoch },
            _ if known => Standing::Follows,
            _ => return,
        };
        self.standing.send_if_modified(|current| {
            let changed = *current != standing;
            if changed {
                tracing::info!(?standing, holder = self.holder(), "standing");
            }
            *current = standing;
            changed
        });
    }

    fn holder(&self) -> &str {
        self.contest.as_ref().map_or("", |contest| contest.election.holder())
    }

    async fn wait(&mut self) {
        match &mut self.contest {
            Some(contest) => contest.wait(self.clock).await,
            None => tokio::time::sleep(ANSWER).await,
        }
    }

    async fn give_back(self) {
        let Some(contest) = self.contest else { return };
        let Some(write) = contest.election.release(Timestamp::now()) else { return };
        match answer(ANSWER, contest.store.write(&write)).await {
            Ok(_) => tracing::info!("lease_released"),
            Err(trouble) => tracing::warn!(%trouble, "lease_not_released"),
        }
    }
}

/// The election with its I/O.
struct Contest {
    store: lease::Store,
    election: Election,
    timing: Timing,
    changes: BoxStream<'static, Option<Stored>>,
    /// What is stored must be read before anything else.
    look: bool,
}

impl Contest {
    fn new(store: lease::Store, candidate: Candidate, timing: Timing) -> Self {
        let changes = store.changes();
        Self { store, election: Election::new(candidate, timing), timing, changes, look: true }
    }

    /// Looks where that is needed, and writes where that is due.
    async fn turn(&mut self, clock: Clock) -> Result<(), Loss> {
        if self.look {
            match answer(self.patience(clock), self.store.read()).await {
                Ok(stored) => {
                    self.election.observe(clock.now(), stored);
                    self.look = false;
                }
                Err(trouble) => tracing::warn!(%trouble, "lease_not_read"),
            }
        }
        match self.election.step(clock.now(), Timestamp::now()) {
            Step::Lost(loss) => return Err(loss),
            Step::Write(write) if !self.look => self.write(clock, &write).await,
            Step::Write(_) | Step::Wait(_) => {}
        }
        Ok(())
    }

    async fn write(&mut self, clock: Clock, write: &Write) {
        let sent = clock.now();
        match answer(self.patience(clock), self.store.write(write)).await {
            Ok(stored) => self.election.wrote(sent, stored),
            Err(trouble) => {
                self.look = true;
                if self.election.leads_until().is_some() {
                    tracing::warn!(%trouble, "lease_not_renewed");
                } else {
                    tracing::debug!(%trouble, "lease_not_taken");
                }
            }
        }
    }

    /// How long an answer may take: a leader needs time for a second try.
    fn patience(&self, clock: Clock) -> Duration {
        let left = self.election.leads_until().map(|until| until.saturating_sub(clock.now()));
        ANSWER.min(self.timing.renew / 2).min(left.unwrap_or(ANSWER))
    }

    /// Until the next turn: when something is due, or at once when the Lease was seen to change
    /// hands.
    async fn wait(&mut self, clock: Clock) {
        let due = self.due(clock.now());
        loop {
            tokio::select! {
                () = sleep_until(clock.at(due)) => {
                    self.look |= self.election.leads_until().is_none();
                    return;
                }
                Some(seen) = self.changes.next() => if self.matters(clock, seen) { return },
            }
        }
    }

    fn due(&self, now: Moment) -> Moment {
        let retry = self.timing.retry;
        match (self.election.step(now, Timestamp::now()), self.election.leads_until()) {
            // What comes now has failed just now.
            (Step::Write(_) | Step::Lost(_), Some(until)) => until.min(now + retry),
            (Step::Write(_) | Step::Lost(_), None) => now + jittered(retry),
            (Step::Wait(until), Some(_)) => until,
            (Step::Wait(until), None) => (now + jittered(retry)).min(until + jittered(retry) / 8),
        }
    }

    /// A watch may show what is over. A leader therefore only takes it as a hint to look.
    fn matters(&mut self, clock: Clock, seen: Option<Stored>) -> bool {
        if self.election.leads_until().is_some() {
            let holder = seen.as_ref().map_or("", |stored| &*stored.record.holder);
            self.look |= holder != self.election.me();
            return self.look;
        }
        self.election.observe(clock.now(), seen);
        !matches!(self.election.step(clock.now(), Timestamp::now()), Step::Wait(_))
    }
}

/// This process's own time.
#[derive(Clone, Copy)]
struct Clock(Instant);

impl Clock {
    fn now(self) -> Moment {
        self.0.elapsed()
    }

    fn at(self, moment: Moment) -> Instant {
        self.0 + moment
    }
}

/// So long or up to a fifth more, so that followers do not all look at once.
fn jittered(wait: Duration) -> Duration {
    let part = u32::try_from(random() % 256).unwrap_or(0);
    wait + wait / 5 * part / 256
}

async fn answer<T>(
    patience: Duration,
    request: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, Trouble> {
    Ok(timeout(patience, request).await??)
}

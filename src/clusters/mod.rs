//! Watches member clusters and tells the engine what changed.
//!
//! In: a client of a cluster. Out: [`Input`]s for the one inbox. Objects are
//! stripped as they arrive, owners of pods are read through discovery, and a pure
//! [`Translator`] turns what was seen into events. Reads only: nothing is written
//! to a cluster here, no decision is taken, and no failed look-up loses a pod.

pub mod cost;
pub mod facts;
mod owners;
pub mod pod;
pub mod strip;
mod translate;
mod turns;
mod watch;

use std::pin::pin;
use std::time::Duration;

use futures::StreamExt;
use kube::Client;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::engine::event::{Event, Input};
use crate::engine::{ClusterId, Millis};
use crate::grouping::{Lookup, ObjectKey};

use facts::Observation;
use owners::Reader;
use turns::Turns;

pub use translate::{Output, Translator};

/// How often owners of waiting groups are looked at again.
const TICK: Duration = Duration::from_millis(100);

/// Watching a cluster could not go on.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// Nobody takes inputs any more. Stop.
    #[error("the inbox was closed")]
    InboxClosed,
    /// A watch ended, which none should. Stop.
    #[error("a watch of the cluster ended")]
    WatchEnded,
    /// The task that read an owner ended without an answer, which only a bug can bring about. Stop.
    #[error("reading an owner broke: {0}")]
    ReadBroke(#[source] tokio::task::JoinError),
}

/// Follows one cluster until cancelled. Breaks of connection are waited out inside.
///
/// When `leads` comes, which is after all earlier leaders were fenced off, everything is
/// listed again, so that nothing that they did is missed, and then [`Input::Lead`] is said.
pub async fn run(
    client: Client,
    cluster: ClusterId,
    inbox: mpsc::Sender<Input>,
    leads: impl Future<Output = ()>,
    cancel: CancellationToken,
) -> Result<(), ClusterError> {
    let following = Follower::new(client, cluster, inbox).follow(leads);
    tokio::select! {
        () = cancel.cancelled() => Ok(()),
        end = following => end,
    }
}

/// The translator with its I/O.
struct Follower {
    client: Client,
    translator: Translator,
    reader: Reader,
    inbox: mpsc::Sender<Input>,
    started: Instant,
    /// What is listed now, or was, was listed after this process became the leader.
    leads: bool,
    /// Owners to be read; the translator asks for each once until it is answered.
    turns: Turns,
    reads: JoinSet<(ObjectKey, Lookup)>,
}

impl Follower {
    fn new(client: Client, cluster: ClusterId, inbox: mpsc::Sender<Input>) -> Self {
        Self {
            reader: Reader::new(client.clone()),
            client,
            translator: Translator::new(cluster),
            inbox,
            started: Instant::now(),
            leads: false,
            turns: Turns::default(),
            reads: JoinSet::new(),
        }
    }

    async fn follow(mut self, leads: impl Future<Output = ()>) -> Result<(), ClusterError> {
        let mut leads = pin!(leads);
        let mut seen = watch::observations(&self.client);
        let mut tick = interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = &mut leads, if !self.leads => {
                    self.leads = true;
                    self.translator.start_again();
                    seen = watch::observations(&self.client);
                }
                observation = seen.next() => {
                    self.take(observation.flatten().ok_or(ClusterError::WatchEnded)?).await?;
                }
                Some(read) = self.reads.join_next() => {
                    let (key, answer) = read.map_err(ClusterError::ReadBroke)?;
                    self.turns.done(&key);
                    self.take(Observation::Owner(key, answer)).await?;
                }
                _ = tick.tick() => {
                    let due = self.translator.due(self.now());
                    self.turns.extend(due);
                }
            }
            self.read_owners();
        }
    }

    fn now(&self) -> Millis {
        Millis::try_from(self.started.elapsed().as_millis()).unwrap_or(Millis::MAX)
    }

    async fn take(&mut self, observation: Observation) -> Result<(), ClusterError> {
        let output = self.translator.observe(self.now(), observation);
        self.turns.extend(output.look_ups);
        for input in output.inputs {
            let input = match input {
                Input::Event(Event::Synced(cluster)) if self.leads => Input::Lead(cluster),
                input => input,
            };
            self.inbox.send(input).await.map_err(|_| ClusterError::InboxClosed)?;
        }
        Ok(())
    }

    fn read_owners(&mut self) {
        while let Some(key) = self.turns.next() {
            let reader = self.reader.clone();
            self.reads.spawn(async move {
                let answer = reader.read(&key).await;
                (key, answer)
            });
        }
    }
}

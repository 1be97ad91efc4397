//! Queue statuses: the newest numbers, when they changed, not too often.
//!
//! Server-side apply of the whole status: what is no longer said disappears, and
//! a repetition changes nothing. The status endpoint ignores a uid, so before the
//! first write to an object it is read: the uid is compared and the times of its
//! conditions are learnt. `observedGeneration` tells readers what a status is of.

mod book;
mod desired;

use std::time::Duration;

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use kube::{Client, Resource};
use serde_json::json;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::api::names::FIELD_MANAGER;
use crate::api::v1alpha1::Queue;
use crate::engine::Millis;
use crate::engine::action::QueueStatus;

use super::counters::{Counters, count};
use super::error::{Handling, ReleaseError};
use super::pace::millis;
use super::time::Clock;

use book::{Book, Job, Known};

/// Statuses written at once.
const IN_FLIGHT: usize = 2;
/// Longest wait for one status.
const TIMEOUT: Duration = Duration::from_secs(10);

type Written = (QueueStatus, Result<Wrote, ReleaseError>);

/// What a write found out.
struct Wrote {
    known: Known,
    changed: bool,
}

/// Writes statuses until cancelled or until nobody can send any more.
pub(super) struct Statuses<'a> {
    queues: Api<DynamicObject>,
    book: Book,
    clock: Clock,
    counters: &'a Counters,
    writes: FuturesUnordered<BoxFuture<'static, Written>>,
}

impl<'a> Statuses<'a> {
    /// `hub` has the queues; each is written at most once in `every`.
    pub(super) fn new(hub: Client, every: Duration, clock: Clock, counters: &'a Counters) -> Self {
        let queues = Api::all_with(hub, &ApiResource::erase::<Queue>(&()));
        let book = Book::new(millis(every));
        Self { queues, book, clock, counters, writes: FuturesUnordered::new() }
    }

    pub(super) async fn run(
        mut self,
        mut statuses: mpsc::Receiver<QueueStatus>,
        stop: CancellationToken,
    ) {
        loop {
            let now = (self.clock)();
            self.start(now);
            let wait = self.wait(now);
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                Some(written) = self.writes.next() => self.finish(written),
                status = statuses.recv() => match status {
                    Some(status) => self.book.put(status),
                    None => break,
                },
                () = super::sleep(wait) => {}
            }
        }
        while let Some(written) = self.writes.next().await {
            self.finish(written);
        }
    }

    fn start(&mut self, now: Millis) {
        while self.writes.len() < IN_FLIGHT {
            let Some(job) = self.book.take(now) else { return };
            let queues = self.queues.clone();
            self.writes.push(Box::pin(async move {
                let status = job.status.clone();
                let result = match tokio::time::timeout(TIMEOUT, write(&queues, job, now)).await {
                    Ok(result) => result,
                    Err(_) => Err(ReleaseError::NoAnswer("none in time".to_owned())),
                };
                (status, result)
            }));
        }
    }

    /// Until the next status is due; `None` when only a finished write can change that.
    fn wait(&self, now: Millis) -> Option<Millis> {
        let due = self.book.due().filter(|_| self.writes.len() < IN_FLIGHT)?;
        Some(due.saturating_sub(now))
    }

    fn finish(&mut self, (status, result): Written) {
        match &result {
            Ok(wrote) if wrote.changed => count(&self.counters.statuses),
            Ok(_) => {}
            Err(error) => {
                count(&self.counters.status_failures);
                log_failure(&status, error);
            }
        }
        self.book.finish((self.clock)(), status, result.map(|wrote| wrote.known));
    }
}

fn log_failure(status: &QueueStatus, error: &ReleaseError) {
    if error.handling() == Handling::Drop && *error != ReleaseError::Gone {
        tracing::warn!(queue = %status.name, %error, "queue_status_refused");
    } else {
        tracing::debug!(queue = %status.name, %error, "queue_status_failed");
    }
}

async fn write(queues: &Api<DynamicObject>, job: Job, now: Millis) -> Result<Wrote, ReleaseError> {
    let Job { status, known } = job;
    let known = match known.filter(|known| known.uid == status.uid) {
        Some(known) => known,
        None => read(queues, &status).await?,
    };
    let wanted = desired::status(&status, &known.status, now);
    if wanted == known.status {
        return Ok(Wrote { known, changed: false });
    }
    let body = json!({
        "apiVersion": Queue::api_version(&()),
        "kind": Queue::kind(&()),
        "metadata": { "name": &*status.name },
        "status": wanted,
    });
    let params = PatchParams::apply(FIELD_MANAGER).force();
    queues.patch_status(&status.name, &params, &Patch::Apply(body)).await?;
    Ok(Wrote { known: Known { uid: known.uid, status: wanted }, changed: true })
}

/// What the object says now. A status that makes no sense counts as none.
async fn read(queues: &Api<DynamicObject>, status: &QueueStatus) -> Result<Known, ReleaseError> {
    let queue = queues.get(&status.name).await?;
    if queue.metadata.uid.as_deref() != Some(&*status.uid) {
        return Err(ReleaseError::Gone);
    }
    let known = queue.data.get("status").cloned().map(serde_json::from_value);
    let known = known.and_then(Result::ok).unwrap_or_default();
    Ok(Known { uid: status.uid.clone(), status: known })
}

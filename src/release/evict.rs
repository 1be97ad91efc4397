//! Evictions of one cluster, by the Eviction API: one at a time, each until it is done, the pod
//! is gone, or those who guard it have said no for long enough.
//!
//! What is done is not told: the watch shows the pod on its way out, also to whoever leads next.
//! A `PodDisruptionBudget` that allows nothing now is asked again after a while.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use kube::{Client, Resource};
use serde_json::json;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::engine::action::Evict;
use crate::engine::event::{Address, Event, Input, Outcome};
use crate::engine::{Millis, PodId};

use super::counters::{Counters, count};
use super::error::{Handling, ReleaseError, cut};
use super::pace::{Backoff, millis};
use super::send::send;
use super::time::Clock;

/// Evictions that may wait for another try; while so many do, no more are taken.
const WAITING: usize = 4_096;

/// How hard evictions are tried.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Longest wait for one answer.
    pub timeout: Duration,
    /// Between two tries.
    pub retry: Backoff,
    /// Since the first try; after that it is handed back.
    pub patience: Duration,
    /// Before an eviction that was handed back may be decided again.
    pub pause: Duration,
}

/// The evictions of one cluster.
pub(super) struct Evictor {
    pub client: Client,
    pub limits: Limits,
    pub inbox: mpsc::Sender<Input>,
    pub clock: Clock,
    pub counters: Arc<Counters>,
}

/// An eviction that is not done.
#[derive(Debug)]
struct Attempt {
    address: Address,
    since: Millis,
    tries: u32,
}

/// What is to be done, by when.
#[derive(Debug, Default)]
struct Waiting {
    due: BTreeMap<(Millis, PodId), Attempt>,
    pods: BTreeSet<PodId>,
}

impl Waiting {
    fn put(&mut self, at: Millis, pod: PodId, attempt: Attempt) {
        if self.pods.insert(pod) {
            self.due.insert((at, pod), attempt);
        }
    }

    fn take(&mut self, now: Millis) -> Option<(PodId, Attempt)> {
        let first = self.due.first_entry().filter(|first| first.key().0 <= now)?;
        let ((_, pod), attempt) = first.remove_entry();
        self.pods.remove(&pod);
        Some((pod, attempt))
    }

    fn wait(&self, now: Millis) -> Option<Millis> {
        self.due.first_key_value().map(|(&(at, _), _)| at.saturating_sub(now))
    }
}

impl Evictor {
    /// Evicts until cancelled or until nobody can send any more.
    pub(super) async fn run(self, mut evictions: mpsc::Receiver<Evict>, stop: CancellationToken) {
        let mut waiting = Waiting::default();
        loop {
            let now = (self.clock)();
            if let Some((pod, attempt)) = waiting.take(now) {
                let request = request(&attempt.address);
                let result = match request {
                    Ok(request) => send(self.client.clone(), request, self.limits.timeout).await,
                    Err(error) => Err(error),
                };
                self.finish(&mut waiting, pod, attempt, result, &stop).await;
                continue;
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                evict = evictions.recv(), if waiting.due.len() < WAITING => match evict {
                    Some(Evict { pod, address }) => {
                        waiting.put(now, pod, Attempt { address, since: now, tries: 0 });
                    }
                    None => return,
                },
                () = super::sleep(waiting.wait(now)) => {}
            }
        }
    }

    async fn finish(
        &self,
        waiting: &mut Waiting,
        pod: PodId,
        mut attempt: Attempt,
        result: Result<(), ReleaseError>,
        stop: &CancellationToken,
    ) {
        let now = (self.clock)();
        let error = match result {
            Ok(()) => return count(&self.counters.evicted),
            // Its deletion is on its way from the watch.
            Err(ReleaseError::Gone) => return,
            Err(error) => error,
        };
        attempt.tries = attempt.tries.saturating_add(1);
        let waited = now.saturating_sub(attempt.since);
        if error.handling() == Handling::Retry && waited < millis(self.limits.patience) {
            count(&self.counters.eviction_retries);
            let wait = self.limits.retry.after(attempt.tries);
            let wait = wait.max(error.retry_after().map_or(0, millis));
            return waiting.put(now.saturating_add(wait), pod, attempt);
        }
        count(&self.counters.evictions_refused);
        let (namespace, name) = (&*attempt.address.namespace, &*attempt.address.name);
        tracing::warn!(namespace, name, tries = attempt.tries, %error, "eviction_refused");
        let retry_at = now.saturating_add(millis(self.limits.pause));
        let outcome = Input::Event(Event::Outcome(pod, Outcome::NotEvicted { retry_at }));
        tokio::select! {
            () = stop.cancelled() => {}
            // Fails only when the control loop has ended, which is while stopping.
            _ = self.inbox.send(outcome) => {}
        }
    }
}

fn request(address: &Address) -> Result<http::Request<Vec<u8>>, ReleaseError> {
    let path = Pod::url_path(&(), Some(&address.namespace));
    let body = json!({
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": { "name": &*address.name, "namespace": &*address.namespace },
        "deleteOptions": { "preconditions": { "uid": &*address.uid } },
    });
    kube::core::Request::new(path)
        .create_subresource(
            "eviction",
            &address.name,
            &PostParams::default(),
            body.to_string().into(),
        )
        .map_err(|error| ReleaseError::Refused { code: 0, message: cut(&error.to_string()) })
}

#[cfg(test)]
mod tests {
    use super::super::tests::support::{Api, Reply, Started, evict, release};
    use super::*;
    use crate::engine::Uid;
    use crate::engine::action::Action;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn the_eviction_names_the_uid() {
        let request = request(&release(1).address).unwrap();
        assert_eq!(request.method(), http::Method::POST);
        assert_eq!(request.uri().path(), "/api/v1/namespaces/team-a/pods/pod-1/eviction");
        let body: serde_json::Value = serde_json::from_slice(request.body()).unwrap();
        assert_eq!(body["deleteOptions"]["preconditions"]["uid"], "uid-1");
    }

    #[test]
    fn a_pod_waits_once_and_in_time() {
        let mut waiting = Waiting::default();
        let attempt = || Attempt { address: release(1).address, since: 0, tries: 0 };
        waiting.put(5, Uid(1), attempt());
        waiting.put(3, Uid(1), attempt());
        waiting.put(4, Uid(2), attempt());
        assert_eq!((waiting.due.len(), waiting.wait(1)), (2, Some(3)));
        assert!(waiting.take(3).is_none());
        assert_eq!(waiting.take(9).map(|(pod, _)| pod), Some(Uid(2)));
        assert_eq!(waiting.take(9).map(|(pod, _)| pod), Some(Uid(1)));
        assert_eq!(waiting.wait(9), None);
    }

    #[tokio::test]
    async fn what_a_budget_refuses_is_tried_again_until_it_lets_go() {
        let asked = AtomicUsize::new(0);
        let api = Api::new(move |_| match asked.fetch_add(1, Ordering::SeqCst) {
            0 | 1 => Reply::status(429, "TooManyRequests", "budget"),
            _ => Reply::text(201, "{}"),
        });
        let mut writer = Started::with(api);
        writer.send(Action::Evict(evict(1))).await;
        writer.api.requests(3).await;
        let (seen, counts) = writer.stop().await;
        assert_eq!((seen.len(), counts.eviction_retries, counts.evicted), (3, 2, 1));
    }

    #[tokio::test]
    async fn a_no_is_told_and_the_pod_is_not_asked_for_again_soon() {
        let mut writer = Started::with(Api::new(|_| Reply::status(403, "Forbidden", "no")));
        writer.send(Action::Evict(evict(1))).await;
        let (pod, outcome) = writer.outcome().await;
        assert_eq!(pod, Uid(1));
        assert!(matches!(outcome, Outcome::NotEvicted { .. }), "{outcome:?}");
        let (seen, counts) = writer.stop().await;
        assert_eq!((seen.len(), counts.evictions_refused), (1, 1));
    }

    #[tokio::test]
    async fn a_pod_that_is_gone_is_nothing_to_tell() {
        let mut writer = Started::with(Api::new(|seen| {
            if seen.path.contains("pod-1/") {
                Reply::status(404, "NotFound", "pods \"pod-1\" not found")
            } else {
                Reply::text(201, "{}")
            }
        }));
        writer.send(Action::Evict(evict(1))).await;
        writer.send(Action::Evict(evict(2))).await;
        writer.api.requests(2).await;
        let (_, counts) = writer.stop().await;
        assert_eq!((counts.evicted, counts.evictions_refused, counts.eviction_retries), (1, 0, 0));
    }
}

//! Evictions of one cluster, by the Eviction API: one at a time, each until it is done, the pod
//! is gone, somebody says no, or it has failed for long enough.
//!
//! What is done is not told: the watch shows the pod on its way out, also to whoever leads next.
//! What is refused, as by a `PodDisruptionBudget`, is handed back at once, so that others may be
//! taken; the same pod is let be for longer after each time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use kube::{Client, Resource};
use serde_json::json;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::api::names::GRACE_SECONDS;
use crate::engine::action::Evict;
use crate::engine::event::{Address, Event, Input, Outcome, Spared};
use crate::engine::{Millis, PodId};

use super::counters::{Counters, count};
use super::error::{Handling, ReleaseError, cut};
use super::pace::{Backoff, Memory, millis};
use super::send::send;
use super::time::Clock;

/// Evictions that may wait for another try; while so many do, no more are taken.
const WAITING: usize = 4_096;

/// Pods of which it is remembered how often their eviction was handed back.
const REMEMBERED: usize = 16_384;

/// How hard evictions are tried.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Longest wait for one answer.
    pub timeout: Duration,
    /// Between two tries.
    pub retry: Backoff,
    /// Since the first try; after that it is handed back.
    pub patience: Duration,
    /// Before an eviction that was handed back may be decided again, by how often it was.
    pub refusal: Backoff,
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
    ends_slowly: bool,
    since: Millis,
    tries: u32,
}

/// What is to be done, by when.
#[derive(Debug)]
struct Waiting {
    due: BTreeMap<(Millis, PodId), Attempt>,
    pods: BTreeSet<PodId>,
    /// How often a pod was handed back in a row.
    refusals: Memory<u32>,
}

impl Default for Waiting {
    fn default() -> Self {
        Self { due: BTreeMap::new(), pods: BTreeSet::new(), refusals: Memory::new(REMEMBERED) }
    }
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
                let request = request(&attempt);
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
                    Some(Evict { pod, address, ends_slowly }) => {
                        let attempt = Attempt { address, ends_slowly, since: now, tries: 0 };
                        waiting.put(now, pod, attempt);
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
            // Its deletion is on its way from the watch.
            Ok(()) | Err(ReleaseError::Gone) => {
                if result.is_ok() {
                    count(&self.counters.evicted);
                }
                return waiting.refusals.forget(pod);
            }
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
        let times = waiting.refusals.get(pod).map_or(1, |times| times.saturating_add(1));
        waiting.refusals.put(pod, times);
        let by_budget = matches!(error, ReleaseError::Guarded(_));
        count(if by_budget {
            &self.counters.evictions_guarded
        } else {
            &self.counters.evictions_refused
        });
        say(&attempt, times, &error);
        let until = now.saturating_add(self.limits.refusal.after(times));
        let spared = Spared { by_budget, why: error.to_string().into(), until };
        let outcome = Event::Outcome(pod, Outcome::NotEvicted { retry_at: until });
        for input in [Input::Spared(pod, spared), Input::Event(outcome)] {
            tokio::select! {
                () = stop.cancelled() => {}
                // Fails only when the control loop has ended, which is while stopping.
                _ = self.inbox.send(input) => {}
            }
        }
    }
}

/// Once for a pod: the same no may come again and again.
fn say(attempt: &Attempt, times: u32, error: &ReleaseError) {
    let (namespace, name) = (&*attempt.address.namespace, &*attempt.address.name);
    let tries = attempt.tries;
    if times == 1 {
        tracing::warn!(namespace, name, tries, %error, "eviction_refused");
    } else {
        tracing::debug!(namespace, name, tries, times, %error, "eviction_refused");
    }
}

fn request(attempt: &Attempt) -> Result<http::Request<Vec<u8>>, ReleaseError> {
    let Attempt { address, ends_slowly, .. } = attempt;
    let path = Pod::url_path(&(), Some(&address.namespace));
    let mut options = json!({ "preconditions": { "uid": &*address.uid } });
    if let Some(options) = options.as_object_mut().filter(|_| *ends_slowly) {
        options.insert("gracePeriodSeconds".to_owned(), GRACE_SECONDS.into());
    }
    let body = json!({
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": { "name": &*address.name, "namespace": &*address.namespace },
        "deleteOptions": options,
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
    use super::super::tests::support::{Api, NOON, Reply, Started, evict, release};
    use super::*;
    use crate::engine::Uid;
    use crate::engine::action::Action;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn attempt(ends_slowly: bool) -> Attempt {
        Attempt { address: release(1).address, ends_slowly, since: 0, tries: 0 }
    }

    #[test]
    fn the_eviction_names_the_uid() {
        let request = request(&attempt(false)).unwrap();
        assert_eq!(request.method(), http::Method::POST);
        assert_eq!(request.uri().path(), "/api/v1/namespaces/team-a/pods/pod-1/eviction");
        let body: serde_json::Value = serde_json::from_slice(request.body()).unwrap();
        assert_eq!(body["deleteOptions"], json!({"preconditions": {"uid": "uid-1"}}));
    }

    #[test]
    fn a_time_to_end_is_said_only_where_it_is_shorter_than_the_pods_own() {
        let request = request(&attempt(true)).unwrap();
        let body: serde_json::Value = serde_json::from_slice(request.body()).unwrap();
        assert_eq!(body["deleteOptions"]["gracePeriodSeconds"], 1_800);
    }

    #[test]
    fn a_pod_waits_once_and_in_time() {
        let mut waiting = Waiting::default();
        waiting.put(5, Uid(1), attempt(false));
        waiting.put(3, Uid(1), attempt(false));
        waiting.put(4, Uid(2), attempt(false));
        assert_eq!((waiting.due.len(), waiting.wait(1)), (2, Some(3)));
        assert!(waiting.take(3).is_none());
        assert_eq!(waiting.take(9).map(|(pod, _)| pod), Some(Uid(2)));
        assert_eq!(waiting.take(9).map(|(pod, _)| pod), Some(Uid(1)));
        assert_eq!(waiting.wait(9), None);
    }

    #[tokio::test]
    async fn what_an_apiserver_has_no_time_for_is_tried_again() {
        let asked = AtomicUsize::new(0);
        let api = Api::new(move |_| match asked.fetch_add(1, Ordering::SeqCst) {
            0 | 1 => Reply::status(429, "TooManyRequests", "later"),
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
    async fn what_a_budget_guards_is_handed_back_at_once_and_let_be_for_longer_each_time() {
        let no = json!({"kind": "Status", "code": 429, "reason": "TooManyRequests", "details":
            {"causes": [{"reason": "DisruptionBudget", "message": "budget web needs 4"}]}});
        let mut writer = Started::with(Api::new(move |_| Reply::text(429, &no.to_string())));
        let mut waits = Vec::new();
        for _ in 0..8 {
            writer.send(Action::Evict(evict(1))).await;
            let Outcome::NotEvicted { retry_at } = writer.outcome().await.1 else {
                panic!("it was evicted")
            };
            waits.push((retry_at - NOON) / 1_000);
        }
        assert_eq!(waits, [5, 10, 20, 40, 80, 160, 300, 300]);
        assert_eq!(writer.refusals[0], "refused by a PodDisruptionBudget: budget web needs 4");
        assert!(writer.pauses.is_empty(), "{:?}", writer.pauses);
        let (seen, counts) = writer.stop().await;
        assert_eq!((seen.len(), counts.evictions_guarded, counts.evictions_refused), (8, 8, 0));
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

//! The writer against an apiserver that answers as told.

pub mod support;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rstest::rstest;
use serde_json::{Value, json};
use tokio::sync::{Barrier, Notify};

use crate::engine::action::{Action, Notice};
use crate::engine::event::{Event, ObjectRef, Outcome, Pause, Trouble};
use crate::engine::{ClusterId, Uid};

use super::{Phase, ReleaseError};
use support::{Api, NOON, Reply, Seen, Started, queue_status, release, settings};

fn is_patch(seen: &Seen) -> bool {
    seen.path.starts_with("/api/v1/namespaces/team-a/pods/")
}

#[tokio::test]
async fn a_release_is_one_patch_and_one_outcome() {
    let mut writer = Started::with(Api::new(|_| Reply::ok()));
    writer.send(Action::Release(release(1))).await;
    assert_eq!(writer.outcome().await, (Uid(1), Outcome::Released));
    writer.send(Action::Release(release(1))).await;
    assert_eq!(writer.outcome().await, (Uid(1), Outcome::Released));
    let (seen, counts) = writer.stop().await;
    assert_eq!(seen.len(), 1, "never a second PATCH for a pod that was released");
    assert_eq!(seen[0].body["metadata"]["uid"], "uid-1");
    assert_eq!((counts.patches, counts.released), (1, 2));
}

#[derive(Debug, PartialEq, Eq)]
enum End {
    Released,
    Gone,
    Refused,
}

/// What an answer ends in, and after how many PATCHes.
#[rstest]
#[case::missing(Reply::status(404, "NotFound", "pods \"pod-1\" not found"), End::Gone, 1)]
#[case::another_uid(
    Reply::status(
        422,
        "Invalid",
        "Pod \"pod-1\" is invalid: metadata.uid: Invalid value: \"x\": field is immutable"
    ),
    End::Gone,
    1
)]
#[case::denied(Reply::status(403, "Forbidden", "denied the request"), End::Refused, 1)]
#[case::invalid(Reply::status(422, "Invalid", "spec: Forbidden"), End::Refused, 1)]
#[case::bad(Reply::status(400, "BadRequest", "no"), End::Refused, 1)]
#[case::conflict(Reply::status(409, "Conflict", "try again"), End::Refused, 3)]
#[case::broken_webhook(
    Reply::status(500, "InternalError", "failed calling webhook"),
    End::Refused,
    3
)]
#[case::success(Reply::ok(), End::Released, 1)]
#[case::success_without_body(Reply::text(200, ""), End::Released, 1)]
#[tokio::test]
async fn each_answer_has_its_end(#[case] reply: Reply, #[case] end: End, #[case] patches: usize) {
    let answer = move |seen: &Seen| if is_patch(seen) { reply.clone() } else { Reply::ok() };
    let mut writer = Started::with(Api::new(answer));
    writer.send(Action::Release(release(1))).await;
    let ended = match writer.outcome().await.1 {
        Outcome::Released => End::Released,
        Outcome::Gone => End::Gone,
        Outcome::Refused { retry_at } => {
            assert_eq!(retry_at, NOON + 5_000);
            End::Refused
        }
        outcome @ Outcome::NotEvicted { .. } => panic!("{outcome:?}"),
    };
    let (seen, _) = writer.stop().await;
    assert_eq!((ended, seen.iter().filter(|seen| is_patch(seen)).count()), (end, patches));
}

/// However long the apiserver suffers, no release is handed back: its gate may be open,
/// and then others must not be given its room.
#[rstest]
#[case::busy(Reply::status(429, "TooManyRequests", "later"))]
#[case::no_json(Reply::text(502, "bad gateway"))]
#[case::not_the_apiserver(Reply::text(404, "page not found"))]
#[case::cut_connection(Reply::Cut)]
#[case::silence(Reply::Never)]
#[tokio::test]
async fn trouble_of_the_apiserver_is_waited_out(#[case] reply: Reply) {
    let patches = AtomicUsize::new(0);
    let mut writer = Started::with(Api::new(move |seen| {
        let bad = is_patch(seen) && patches.fetch_add(1, Ordering::SeqCst) < 20;
        if bad { reply.clone() } else { Reply::ok() }
    }));
    writer.send(Action::Release(release(1))).await;
    assert_eq!(writer.outcome().await, (Uid(1), Outcome::Released));
    let (seen, counts) = writer.stop().await;
    assert_eq!((seen.len(), counts.retries, counts.refusals), (21, 20, 0));
}

#[tokio::test]
async fn releases_are_paused_and_resumed_in_one_event_each() {
    let patches = AtomicUsize::new(0);
    let full = "etcdserver: mvcc: database space exceeded";
    let mut writer =
        Started::with(Api::new(move |_| match patches.fetch_add(1, Ordering::SeqCst) {
            0..5 => Reply::status(500, "", full),
            _ => Reply::ok(),
        }));
    for pod in 1..=10 {
        writer.send(Action::Release(release(pod))).await;
    }
    for _ in 1..=10 {
        assert_eq!(writer.outcome().await.1, Outcome::Released);
    }
    let pause = Pause { since: NOON, cause: Trouble::StoreFull };
    let here = ClusterId(0);
    assert_eq!(writer.pauses, [Event::Paused(here, pause), Event::Resumed(here)]);
    let flow = writer.counters.flows();
    assert_eq!((flow.len(), flow[0].phase, flow[0].cluster), (1, Phase::Closed, here));
    assert_eq!(writer.stop().await.1.pauses, 1);
}

/// The PATCH was applied, its answer never came: the same bytes are sent again and
/// the pod changes once.
#[rstest]
#[case(Reply::Never)]
#[case(Reply::Cut)]
#[case(Reply::status(504, "Timeout", "the server was slow"))]
#[tokio::test]
async fn a_lost_answer_is_harmless_and_counts_as_released(#[case] lost: Reply) {
    let changes = Arc::new(AtomicUsize::new(0));
    let pod = std::sync::Mutex::new(Value::Null);
    let counted = Arc::clone(&changes);
    let mut writer = Started::with(Api::new(move |seen| {
        let mut pod = pod.lock().unwrap();
        if *pod == seen.body {
            return Reply::ok();
        }
        *pod = seen.body.clone();
        counted.fetch_add(1, Ordering::SeqCst);
        lost.clone()
    }));
    writer.send(Action::Release(release(1))).await;
    assert_eq!(writer.outcome().await, (Uid(1), Outcome::Released));
    let (seen, counts) = writer.stop().await;
    assert_eq!((seen.len(), changes.load(Ordering::SeqCst)), (2, 1));
    assert_eq!((counts.retries, counts.released, counts.refusals), (1, 1, 0));
}

#[tokio::test]
async fn no_more_than_the_bound_are_in_flight() {
    let barrier = Arc::new(Barrier::new(16));
    let mut writer = Started::with(Api::new(move |_| Reply::Together(Arc::clone(&barrier))));
    for pod in 1..=48 {
        writer.send(Action::Release(release(pod))).await;
    }
    for _ in 1..=48 {
        assert_eq!(writer.outcome().await.1, Outcome::Released);
    }
    assert_eq!(writer.api.most_at_once(), 16);
}

#[tokio::test]
async fn what_is_decided_faster_than_written_waits_and_is_not_handed_back() {
    let gate = Arc::new(Notify::new());
    let waiting = Arc::clone(&gate);
    let mut writer = Started::with(Api::new(move |_| Reply::After(Arc::clone(&waiting))));
    let slow = tokio::spawn(async move {
        loop {
            for _ in 0..20 {
                tokio::task::yield_now().await;
            }
            gate.notify_waiters();
        }
    });
    let releases = (1..=6_000).map(|pod| Action::Release(release(pod)));
    let outcomes = writer.exchange(releases.collect()).await;
    slow.abort();
    assert!(outcomes.iter().all(|(_, outcome)| *outcome == Outcome::Released));
}

fn notice() -> Action {
    Action::Notice(Notice {
        about: ObjectRef {
            address: release(1).address,
            api_version: "batch/v1".into(),
            kind: "Job".into(),
        },
        warning: false,
        reason: "Queued",
        message: "x".repeat(3_000),
    })
}

#[tokio::test]
async fn neither_events_nor_statuses_hold_up_releases() {
    let mut writer =
        Started::with(Api::new(|seen| if is_patch(seen) { Reply::ok() } else { Reply::Never }));
    for pod in 1..=1_000 {
        writer.send(notice()).await;
        writer.send(Action::QueueStatus(Box::new(queue_status(&format!("q{pod}"), 1)))).await;
        writer.send(Action::Release(release(pod))).await;
        assert_eq!(writer.outcome().await.1, Outcome::Released);
    }
    let counts = writer.counters.read();
    assert_eq!(counts.released, 1_000);
    assert!(counts.events_dropped >= 400, "what cannot be written is counted: {counts:?}");
}

#[tokio::test]
async fn an_event_says_whom_it_is_about() {
    let mut writer = Started::with(Api::new(|_| Reply::ok()));
    writer.send(notice()).await;
    writer.api.requests(1).await;
    let (seen, counts) = writer.stop().await;
    assert_eq!(counts.events, 1);
    assert_eq!(seen[0].path, "/apis/events.k8s.io/v1/namespaces/team-a/events");
    let body = &seen[0].body;
    assert_eq!(body["regarding"]["uid"], "uid-1");
    assert_eq!(body["regarding"]["kind"], "Job");
    assert_eq!(body["reportingController"], "tidegate");
    assert_eq!((&body["type"], &body["reason"]), (&json!("Normal"), &json!("Queued")));
    assert_eq!(body["note"].as_str().map(str::len), Some(1_024), "longer is not accepted");
}

#[tokio::test]
async fn an_event_that_fails_is_dropped() {
    let mut writer = Started::with(Api::new(|_| Reply::status(403, "Forbidden", "no")));
    writer.send(notice()).await;
    writer.api.requests(1).await;
    let (seen, counts) = writer.stop().await;
    assert_eq!((seen.len(), counts.events, counts.events_dropped), (1, 0, 1));
}

#[tokio::test]
async fn a_refusal_goes_back_with_its_reason_and_a_growing_wait() {
    let mut writer = Started::with(Api::new(|seen| {
        if is_patch(seen) { Reply::status(403, "Forbidden", "policy says no") } else { Reply::ok() }
    }));
    for wait in [5_000, 10_000] {
        writer.send(Action::Release(release(1))).await;
        let outcome = Outcome::Refused { retry_at: NOON + wait };
        assert_eq!(writer.outcome().await, (Uid(1), outcome));
    }
    assert_eq!(writer.refusals.len(), 2);
    assert!(writer.refusals.iter().all(|why| why.contains("policy says no")));
}

fn hub(seen: &Seen) -> Reply {
    match seen.method.as_str() {
        "GET" => Reply::json(&json!({
            "apiVersion": "tidegate.dev/v1alpha1", "kind": "Queue",
            "metadata": {"name": "a", "uid": "uid-a"},
            "spec": {"from": "a later version"},
            "status": {"conditions": [{
                "type": "Ready", "status": "True", "reason": "r", "message": "m",
                "lastTransitionTime": "2020-01-01T00:00:00Z",
            }]},
        })),
        _ => Reply::json(&json!({"metadata": {"name": "a"}})),
    }
}

#[tokio::test]
async fn a_status_is_read_once_and_written_when_it_changed() {
    let mut writer = Started::with(Api::new(hub));
    for running in [1, 1, 2] {
        writer.send(Action::QueueStatus(Box::new(queue_status("a", running)))).await;
        // The release behind it has ended: the status lane has taken the status.
        writer.api.requests(if running == 1 { 2 } else { 3 }).await;
    }
    let (seen, counts) = writer.stop().await;
    assert_eq!(counts.statuses, 2);
    let methods: Vec<_> = seen.iter().map(|seen| seen.method.as_str()).collect();
    assert_eq!(methods, ["GET", "PATCH", "PATCH"]);
    assert_eq!(seen[1].path, "/apis/tidegate.dev/v1alpha1/queues/a/status");
    assert_eq!(seen[1].query, "&force=true&fieldManager=tidegate");
    assert_eq!(seen[1].content_type, "application/apply-patch+yaml");
    let status = &seen[1].body["status"];
    assert_eq!(status["conditions"][0]["lastTransitionTime"], "2020-01-01T00:00:00Z");
    assert_eq!(status["conditions"][1]["lastTransitionTime"], "2026-11-30T12:00:00Z");
}

#[tokio::test]
async fn a_status_is_never_written_to_another_queue_of_that_name() {
    let mut writer = Started::with(Api::new(hub));
    let mut status = queue_status("a", 1);
    status.uid = "older".into();
    writer.send(Action::QueueStatus(Box::new(status))).await;
    writer.api.requests(1).await;
    writer.send(Action::Release(release(1))).await;
    writer.outcome().await;
    let (seen, _) = writer.stop().await;
    assert!(seen.iter().all(|seen| seen.method == "GET" || is_patch(seen)));
}

#[tokio::test]
async fn what_is_in_flight_at_the_end_still_ends() {
    let gate = Arc::new(Notify::new());
    let held = Arc::clone(&gate);
    let mut writer = Started::with(Api::new(move |_| Reply::After(Arc::clone(&held))));
    writer.send(Action::Release(release(1))).await;
    writer.api.requests(1).await;
    writer.cancel();
    gate.notify_one();
    assert_eq!(writer.outcome().await, (Uid(1), Outcome::Released));
    assert_eq!(writer.end().await, Ok(()));
}

#[tokio::test]
async fn stopping_waits_no_longer_than_the_time_out() {
    let mut writer = Started::with(Api::new(|_| Reply::Never));
    writer.send(Action::Release(release(1))).await;
    writer.api.requests(1).await;
    writer.cancel();
    let ended = tokio::time::timeout(Duration::from_secs(30), writer.end()).await;
    assert_eq!(ended, Ok(Ok(())));
}

#[tokio::test]
async fn without_the_control_loop_the_writer_ends() {
    let mut writer = Started::with(Api::new(|_| Reply::ok()));
    writer.close_actions();
    assert_eq!(writer.end().await, Err(ReleaseError::ActionsClosed));

    let mut writer = Started::with(Api::new(|_| Reply::ok()));
    writer.close_inbox();
    writer.send(Action::Release(release(1))).await;
    assert_eq!(writer.end().await, Err(ReleaseError::InboxClosed));
}

#[tokio::test]
async fn a_release_to_an_unknown_cluster_is_handed_back() {
    let mut writer = Started::with(Api::new(|_| Reply::ok()));
    let mut stray = release(1);
    stray.address.cluster = ClusterId(9);
    writer.send(Action::Release(stray)).await;
    let outcome = Outcome::Refused { retry_at: NOON + 300_000 };
    assert_eq!(writer.outcome().await, (Uid(1), outcome));
}

/// A reader that stops reading must not cost an outcome.
#[tokio::test]
async fn a_full_inbox_loses_no_outcome() {
    let mut writer = Started::with_inbox(Api::new(|_| Reply::ok()), settings(), 1);
    let mut outcomes = BTreeMap::new();
    for pod in 1..=200 {
        writer.send(Action::Release(release(pod))).await;
    }
    for _ in 1..=200 {
        let (pod, outcome) = writer.outcome().await;
        assert_eq!(outcomes.insert(pod, outcome), None);
    }
    assert_eq!(outcomes.len(), 200);
}

//! The endpoints without TLS: limits, deadlines, readiness.

use std::time::{Duration, Instant};

use axum::body::{Body, Bytes, to_bytes};
use axum::http::{Request, StatusCode, header};
use axum::response::Response;
use futures::stream;
use serde_json::{Value, json};
use tidegate::admission::server::{MUTATE_PODS, Service, VALIDATE_PODS, VALIDATE_QUEUES};
use tidegate::admission::{Backlogs, Exempt, QueueTree, Queues};
use tidegate::api::v1alpha1::{Queue, QueueSpec};
use tower::ServiceExt as _;

use super::{patch, pod_review, queue_review, service};

/// Reviews that a webhook works on at the same time.
const REVIEWS: usize = 64;

async fn send(service: &Service, request: Request<Body>) -> Response {
    service.router().oneshot(request).await.unwrap()
}

fn post(path: &str, body: impl Into<Body>) -> Request<Body> {
    Request::post(path).header(header::CONTENT_TYPE, "application/json").body(body.into()).unwrap()
}

async fn get(service: &Service, path: &str) -> StatusCode {
    send(service, Request::get(path).body(Body::empty()).unwrap()).await.status()
}

async fn json_of(response: Response) -> Value {
    assert_eq!(response.status(), StatusCode::OK);
    serde_json::from_slice(&to_bytes(response.into_body(), usize::MAX).await.unwrap()).unwrap()
}

/// A body whose sender has fallen silent.
fn silent() -> Body {
    Body::from_stream(stream::pending::<Result<Bytes, std::io::Error>>())
}

#[tokio::test]
async fn a_pod_without_namespace_and_name_is_gated_and_labelled_and_nothing_else() {
    let (service, _) = service(&[]);
    let review = pod_review();
    let path = format!("{MUTATE_PODS}?timeout=2s");
    let answer = json_of(send(&service, post(&path, review.to_string())).await).await;
    assert_eq!(answer["response"]["uid"], review["request"]["uid"]);
    assert_eq!(answer["response"]["allowed"], true);
    assert_eq!(answer["response"]["patchType"], "JSONPatch");
    let mut pod = review["request"]["object"].clone();
    json_patch::patch(&mut pod, &patch(&answer)).unwrap();
    let mut expected = review["request"]["object"].clone();
    expected["metadata"]["labels"] = json!({"tidegate.dev/managed": "true"});
    expected["spec"]["schedulingGates"] = json!([{"name": "tidegate.dev/queue"}]);
    assert_eq!(pod, expected);
}

#[tokio::test]
async fn what_is_no_review_is_a_bad_request() {
    let (service, _) = service(&[]);
    let deep = "[".repeat(100_000);
    for body in ["", "{}", "null", r#"{"apiVersion":"v1","kind":"Pod"}"#, &deep] {
        for path in [MUTATE_PODS, VALIDATE_QUEUES] {
            let response = send(&service, post(path, body.to_owned())).await;
            assert_eq!(response.status(), StatusCode::BAD_REQUEST);
        }
    }
    assert_eq!(get(&service, MUTATE_PODS).await, StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(get(&service, "/mutate/anything").await, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn two_of_the_largest_objects_fit_and_no_more_is_read() {
    let (service, _) = service(&[]);
    let mut review = pod_review();
    review["request"]["object"]["metadata"]["annotations"] = json!({"a": "x".repeat(6 << 20)});
    let response = send(&service, post(MUTATE_PODS, review.to_string())).await;
    assert_eq!(response.status(), StatusCode::OK);
    let response = send(&service, post(MUTATE_PODS, vec![b' '; (7 << 20) + 1])).await;
    assert_eq!(response.status(), StatusCode::PAYLOAD_TOO_LARGE);
}

#[tokio::test]
async fn a_silent_sender_is_given_up_at_the_deadline() {
    let (service, _) = service(&[]);
    let path = format!("{MUTATE_PODS}?timeout=20ms");
    let response = send(&service, post(&path, silent())).await;
    assert_eq!(response.status(), StatusCode::GATEWAY_TIMEOUT);
}

#[tokio::test]
async fn more_than_can_be_worked_on_is_asked_to_come_back() {
    let (service, _) = service(&[]);
    let held: Vec<_> = (0..REVIEWS)
        .map(|_| {
            let (router, request) = (service.router(), post(MUTATE_PODS, silent()));
            tokio::spawn(router.oneshot(request))
        })
        .collect();
    let busy = async {
        loop {
            let response = send(&service, post(MUTATE_PODS, pod_review().to_string())).await;
            if response.status() == StatusCode::TOO_MANY_REQUESTS {
                return response;
            }
            tokio::task::yield_now().await;
        }
    };
    let response = tokio::time::timeout(Duration::from_secs(5), busy).await.unwrap();
    assert_eq!(response.headers()[header::RETRY_AFTER], "1");
    assert_eq!(get(&service, "/livez").await, StatusCode::OK, "probes are not counted");
    for task in held {
        task.abort();
        assert!(task.await.unwrap_err().is_cancelled());
    }
    let response = send(&service, post(MUTATE_PODS, pod_review().to_string())).await;
    assert_eq!(response.status(), StatusCode::OK);
}

#[tokio::test]
async fn queues_are_not_judged_before_they_are_known() {
    let queues = Queues::default();
    let service = Service::new(Exempt::default(), queues.clone(), Backlogs::default());
    assert_eq!(get(&service, "/readyz").await, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(get(&service, "/livez").await, StatusCode::OK);
    let review = queue_review("q", &json!({})).to_string();
    let response = send(&service, post(VALIDATE_QUEUES, review.clone())).await;
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(response.headers()[header::RETRY_AFTER], "1");
    queues.store(Some(QueueTree::default().into()));
    assert_eq!(get(&service, "/readyz").await, StatusCode::OK);
    let answer = json_of(send(&service, post(VALIDATE_QUEUES, review)).await).await;
    assert_eq!(answer["response"], json!({"uid": "r-1", "allowed": true}));
}

#[tokio::test]
async fn a_refusal_says_what_is_wrong() {
    let (service, _) = service(&[]);
    let review = queue_review("q", &json!({"parent": "nobody"})).to_string();
    let answer = json_of(send(&service, post(VALIDATE_QUEUES, review)).await).await;
    let response = &answer["response"];
    assert_eq!(response["allowed"], false);
    assert_eq!(response["status"]["code"], 403);
    assert!(response["status"]["message"].as_str().unwrap().contains("\"nobody\" does not exist"));
}

/// A queue whose backlog is full of pods of this owner.
fn full_queue(owner: &str) -> Queue {
    serde_json::from_value(json!({
        "apiVersion": "tidegate.dev/v1alpha1", "kind": "Queue", "metadata": {"name": "q"},
        "spec": {"maxPending": {"pods": 100}},
        "status": {"backlog": {"pods": 117, "renewed": "2026-11-30T12:00:00Z", "owners": [owner]}},
    }))
    .unwrap()
}

#[tokio::test]
async fn new_pods_of_who_fills_a_backlog_are_refused_with_429_whoever_gates_them() {
    let backlogs = Backlogs::default();
    let exempt = Exempt::new(["system:serviceaccount:velero:velero".to_owned()]);
    let service = Service::new(exempt, Queues::default(), backlogs.clone());
    backlogs.observe([full_queue("u-1")].iter(), Instant::now());
    let review = |user: &str, owner: &str| {
        let mut review = pod_review();
        review["request"]["userInfo"]["username"] = json!(user);
        review["request"]["object"]["metadata"]["ownerReferences"] = json!([
            {"apiVersion": "v1", "kind": "Any", "name": "a", "uid": owner, "controller": true}]);
        review.to_string()
    };
    for path in [MUTATE_PODS, VALIDATE_PODS] {
        let ask = async |user: &str, owner: &str| {
            json_of(send(&service, post(path, review(user, owner))).await).await["response"].clone()
        };
        let refused = ask("operator", "u-1").await;
        assert_eq!((&refused["allowed"], &refused["status"]["code"]), (&json!(false), &json!(429)));
        assert_eq!(refused["status"]["reason"], "TooManyRequests");
        assert_eq!(refused["patch"], Value::Null);
        assert_eq!(ask("operator", "u-2").await["allowed"], true);
        assert_eq!(ask("system:serviceaccount:velero:velero", "u-1").await["allowed"], true);
    }
    let answer =
        json_of(send(&service, post(VALIDATE_PODS, review("operator", "u-2"))).await).await;
    assert_eq!(answer["response"]["patch"], Value::Null, "it gates nothing");
    backlogs.observe(std::iter::empty(), Instant::now());
    let answer = json_of(send(&service, post(MUTATE_PODS, review("operator", "u-1"))).await).await;
    assert_eq!(answer["response"]["allowed"], true);
}

#[tokio::test]
async fn a_child_made_right_after_its_parent_is_not_refused() {
    let (service, queues) = service(&[]);
    let review = queue_review("child", &json!({"parent": "parent"})).to_string();
    let judged = tokio::spawn(service.router().oneshot(post(VALIDATE_QUEUES, review)));
    // The watch brings the parent once the review has been looked at a first time.
    tokio::task::yield_now().await;
    let parent = Queue::new("parent", QueueSpec::default());
    queues.store(Some([&parent].into_iter().collect::<QueueTree>().into()));
    let answer = json_of(judged.await.unwrap().unwrap()).await;
    assert_eq!(answer["response"]["allowed"], true);
}

use axum::body::{Body, to_bytes};
use axum::http::{Method, StatusCode};
use futures::future::BoxFuture;
use rstest::rstest;
use tower::ServiceExt;

use super::super::access::AccessError;
use super::super::objects::{Explanation, Group, GroupList, Work};
use super::*;
use crate::report::tests::{NOW, view};
use crate::view::{Counts, GroupState, Held};

const GROUP_PATH: &str = "/apis/visibility.tidegate.dev/v1alpha1";
const KUBECTL: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

/// Lets `ann` read namespace `ml` and nothing else.
struct OnlyMl;

impl Authorizer for OnlyMl {
    fn allows<'a>(
        &'a self,
        who: &'a Identity,
        ask: &'a Ask,
    ) -> BoxFuture<'a, Result<bool, AccessError>> {
        let yes = who.user == "ann" && ask.namespace.as_deref() == Some("ml");
        Box::pin(
            async move { if who.user == "unlucky" { Err(AccessError::Timeout) } else { Ok(yes) } },
        )
    }
}

fn app(view: View) -> Router {
    let published = crate::view::published();
    published.store(Arc::new(view));
    let mut app = Visibility::new(published, Arc::new(OnlyMl));
    app.clock = || NOW;
    let ok: crate::report::health::Probe = Arc::new(|| Ok(()));
    router(app, &Health { live: ok.clone(), ready: ok })
}

fn request(user: &str, path: &str) -> Request {
    let uri = if path.starts_with("/groups") || path.starts_with("/namespaces") {
        format!("{GROUP_PATH}{path}")
    } else {
        path.to_owned()
    };
    let mut request = Request::get(uri).body(Body::empty()).unwrap();
    if !user.is_empty() {
        let groups = if user == "root" { vec!["system:masters".to_owned()] } else { vec![] };
        let identity = Identity { user: user.to_owned(), groups, ..Identity::default() };
        request.extensions_mut().insert(identity);
    }
    request
}

async fn send(app: Router, request: Request) -> (StatusCode, String) {
    let response = app.oneshot(request).await.unwrap();
    let status = response.status();
    let body = to_bytes(response.into_body(), 1 << 20).await.unwrap();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

async fn read(user: &str, path: &str) -> (StatusCode, String) {
    send(app(view()), request(user, path)).await
}

fn names(body: &str) -> Vec<String> {
    let list: GroupList = serde_json::from_str(body).unwrap();
    list.items.into_iter().map(|group| group.metadata.name).collect()
}

/// A `Table` as kubectl prints it.
async fn printed(user: &str, path: &str) -> String {
    printed_of(view(), user, path).await
}

async fn printed_of(view: View, user: &str, path: &str) -> String {
    let mut request = request(user, path);
    request.headers_mut().insert("accept", KUBECTL.parse().unwrap());
    let (_, body) = send(app(view), request).await;
    let table: Value = serde_json::from_str(&body).unwrap();
    let line = |cells: &Value, of: fn(&Value) -> Value| {
        let cells = cells.as_array().unwrap().iter().map(of).map(|cell| match cell {
            Value::String(text) => text,
            other => other.to_string(),
        });
        cells.collect::<Vec<_>>().join(" | ")
    };
    let mut lines = vec![line(&table["columnDefinitions"], |column| column["name"].clone())];
    for row in table["rows"].as_array().unwrap() {
        lines.push(line(&row["cells"], Value::clone));
        lines.push(format!("  object {}", row.get("object").unwrap_or(&Value::Null)));
    }
    lines.join("\n")
}

#[tokio::test]
async fn kubectl_gets_a_table() {
    insta::assert_snapshot!(printed("ann", "/namespaces/ml/groups?limit=500").await, @r#"
    Name | Queue | State | Pods | Reason | Age | Priority | Asks | Ahead | Root | Warning
    rayjob-x-1f2e | a | Growing | 1/4 | QueueLimit | 90s | 10 | cpu=2,memory=4Gi | 2 | RayJob/x | <none>
      object {"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadata","metadata":{"creationTimestamp":"2026-11-30T19:42:24Z","name":"rayjob-x-1f2e","namespace":"ml"}}
    rayjob-y-1f2e | a | Growing | 1/4 | QueueLimit | 90s | 10 | cpu=2,memory=4Gi | 2 | RayJob/y | <none>
      object {"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadata","metadata":{"creationTimestamp":"2026-11-30T19:42:24Z","name":"rayjob-y-1f2e","namespace":"ml"}}
    "#);
}

#[tokio::test]
async fn a_group_that_has_ended_is_whole_and_one_that_is_held_says_by_what() {
    let mut view = view();
    for ((_, name), row) in &mut view.groups {
        let row = Arc::make_mut(row);
        row.wait = None;
        if &**name == "rayjob-x-1f2e" {
            (row.state, row.counts) = (GroupState::Ended, Counts { ended: 8, ..Counts::default() });
        } else {
            row.counts = Counts { released: 1, running: 2, ended: 1, waiting: 0 };
            row.held = Some(Box::new(Held { code: "OtherGate", message: String::new() }));
            let who = Arc::make_mut(&mut row.who);
            Arc::make_mut(&mut who.origin).warnings =
                vec!["a is ignored".into(), "b is ignored".into()];
        }
    }
    let table = printed_of(view, "ann", "/namespaces/ml/groups?includeObject=None").await;
    let rows: Vec<&str> = table.lines().filter(|line| line.starts_with("rayjob")).collect();
    assert!(rows[0].contains("| Ended | 8/8 |  | 90s |"), "{table}");
    assert!(rows[1].contains("| 3/4 | OtherGate | 90s |"), "{table}");
    assert!(rows[1].ends_with("| a is ignored; b is ignored"), "{table}");
}

#[tokio::test]
async fn a_row_carries_as_much_of_its_object_as_was_asked_for() {
    let table = printed("ann", "/namespaces/ml/groups/rayjob-x-1f2e?includeObject=None").await;
    assert!(table.ends_with("object null"), "{table}");
    let table = printed("ann", "/namespaces/ml/groups/rayjob-x-1f2e?includeObject=Object").await;
    assert!(table.contains(r#""kind":"Group""#) && table.contains(r#""queue":"a""#), "{table}");
}

/// Reads an object back as a client would and shows it in the order of its fields.
fn pretty<T: serde::Serialize>(object: &T) -> String {
    serde_json::to_string_pretty(object).unwrap()
}

#[tokio::test]
async fn a_group_has_its_root_its_numbers_and_why_it_waits() {
    let (code, body) = read("ann", "/namespaces/ml/groups/rayjob-x-1f2e").await;
    assert_eq!(code, StatusCode::OK);
    let group: Group = serde_json::from_str(&body).unwrap();
    insta::assert_snapshot!(pretty(&group), @r#"
    {
      "apiVersion": "visibility.tidegate.dev/v1alpha1",
      "kind": "Group",
      "metadata": {
        "name": "rayjob-x-1f2e",
        "namespace": "ml",
        "creationTimestamp": "2026-11-30T19:42:24Z"
      },
      "root": {
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "name": "x",
        "uid": "0b7f2a3c-1f2e-4c9d-9d3e-5a6b7c8d9e0f"
      },
      "chains": [
        [
          "RayJob/x",
          "RayCluster/x-abcde"
        ]
      ],
      "queue": "a",
      "state": "Growing",
      "minCount": 4,
      "priority": 10,
      "asks": {
        "cpu": "2",
        "memory": "4Gi"
      },
      "charged": {
        "cpu": "2",
        "pods": "1"
      },
      "counts": {
        "waiting": 3,
        "released": 0,
        "running": 1,
        "ended": 0
      },
      "wait": {
        "reason": "QueueLimit",
        "message": "queue a may use 8 cpu, 7 are in use and 2 are asked: 1 is missing",
        "remedy": "raise the limit of queue a or wait",
        "needsAction": false,
        "groupsAhead": 2,
        "podsAhead": 5
      }
    }
    "#);
}

#[tokio::test]
async fn an_explanation_has_the_path_of_queues_the_pods_and_the_evidence() {
    let path = "/namespaces/ml/groups/rayjob-x-1f2e/explanation";
    let (code, body) = read("ann", path).await;
    assert_eq!(code, StatusCode::OK);
    let mut explanation: Explanation = serde_json::from_str(&body).unwrap();
    let queues: Vec<_> = explanation.queue_path.iter().map(|step| &*step.name).collect();
    assert_eq!(queues, ["a", "org"]);
    explanation.queue_path.truncate(1);
    explanation.work = Work::default();
    insta::assert_snapshot!(pretty(&explanation), @r#"
    {
      "apiVersion": "visibility.tidegate.dev/v1alpha1",
      "kind": "Explanation",
      "metadata": {
        "name": "rayjob-x-1f2e",
        "namespace": "ml",
        "creationTimestamp": "2026-11-30T19:42:24Z"
      },
      "root": {
        "apiVersion": "",
        "kind": "",
        "name": "",
        "uid": ""
      },
      "chains": [],
      "state": "",
      "minCount": 0,
      "priority": 0,
      "asks": {},
      "charged": {},
      "counts": {
        "waiting": 0,
        "released": 0,
        "running": 0,
        "ended": 0
      },
      "queuePath": [
        {
          "name": "a",
          "exists": true,
          "weight": 3,
          "guaranteed": {},
          "limit": {
            "cpu": "8"
          },
          "usage": {
            "cpu": "7"
          },
          "share": "43.7%"
        }
      ],
      "capacity": {
        "cpu": "16",
        "memory": "64Gi"
      },
      "pods": [
        {
          "name": "x-head",
          "state": "Running",
          "created": "2026-11-30T19:42:24Z"
        },
        {
          "name": "x-worker-0",
          "state": "Waiting",
          "created": "2026-11-30T19:42:24Z"
        }
      ],
      "podsNotShown": 2,
      "evidence": [
        "queue: label tidegate.dev/queue on RayJob/train"
      ],
      "observedAt": "2026-11-30T19:43:54Z"
    }
    "#);
}

#[tokio::test]
async fn a_cycle_of_queues_is_shown_once() {
    let mut view = view();
    if let Some(org) = view.queues.get_mut("org") {
        org.parent = Some("a".into());
    }
    let path = "/namespaces/ml/groups/rayjob-x-1f2e/explanation";
    let (_, body) = send(app(view), request("ann", path)).await;
    let explanation: Explanation = serde_json::from_str(&body).unwrap();
    assert_eq!(explanation.queue_path.len(), 2);
}

#[rstest]
#[case::all_namespaces("/groups")]
#[case::all_with_one_selected("/groups?fieldSelector=metadata.namespace%3Dml")]
#[case::another("/namespaces/web/groups")]
#[case::another_with_a_token("/namespaces/web/groups?continue=ml%2Fa")]
#[case::one_group("/namespaces/web/groups/rayjob-z-1f2e")]
#[case::one_that_does_not_exist("/namespaces/web/groups/none")]
#[case::explanation("/namespaces/web/groups/rayjob-z-1f2e/explanation")]
#[tokio::test]
async fn nobody_reads_other_tenants(#[case] path: &str) {
    let (code, body) = read("ann", path).await;
    assert_eq!(code, StatusCode::FORBIDDEN);
    assert!(!body.contains("rayjob-x"), "{body}");
}

#[tokio::test]
async fn own_groups_can_be_selected() {
    let (_, body) = read("ann", "/namespaces/ml/groups?fieldSelector=object%3Dpo%2Fy-head").await;
    assert_eq!(names(&body), ["rayjob-y-1f2e"]);
    let (_, body) = read("ann", "/namespaces/ml/groups?fieldSelector=queue%3Dother").await;
    assert_eq!(names(&body), [""; 0]);
    let (_, body) = read("root", "/groups").await;
    assert_eq!(names(&body).len(), 3);
}

#[tokio::test]
async fn pages_go_on_where_the_last_one_ended() {
    let (_, first) = read("root", "/groups?limit=2").await;
    let list: GroupList = serde_json::from_str(&first).unwrap();
    let token = list.metadata.continue_.unwrap().replace('/', "%2F");
    let (_, second) = read("root", &format!("/groups?limit=2&continue={token}")).await;
    assert_eq!((names(&first).len(), names(&second)), (2, vec!["rayjob-z-1f2e".to_owned()]));
}

#[rstest]
#[case::no_identity("", "/namespaces/ml/groups", 401, "Unauthorized")]
#[case::no_identity_for_discovery("", "/apis", 401, "Unauthorized")]
#[case::forbidden("bob", "/namespaces/ml/groups", 403, "Forbidden")]
#[case::no_authorizer("unlucky", "/namespaces/ml/groups", 503, "ServiceUnavailable")]
#[case::no_group("ann", "/namespaces/ml/groups/none", 404, "NotFound")]
#[case::no_path("ann", "/apis/other", 404, "NotFound")]
#[case::labels("ann", "/namespaces/ml/groups?labelSelector=a%3Db", 400, "BadRequest")]
#[case::field("ann", "/namespaces/ml/groups?fieldSelector=a%3Db", 400, "BadRequest")]
#[case::limit("ann", "/namespaces/ml/groups?limit=x", 400, "BadRequest")]
#[case::twice("ann", "/namespaces/ml/groups?limit=1&limit=2", 400, "BadRequest")]
#[case::include("ann", "/namespaces/ml/groups?includeObject=x", 400, "BadRequest")]
#[case::watch("ann", "/namespaces/ml/groups?watch=true", 405, "MethodNotAllowed")]
#[tokio::test]
async fn errors_are_statuses(
    #[case] user: &str,
    #[case] path: &str,
    #[case] code: u16,
    #[case] reason: &str,
) {
    let (status, body) = read(user, path).await;
    let value: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((status.as_u16(), &value["kind"]), (code, &Value::from("Status")));
    assert_eq!((&value["code"], &value["reason"]), (&Value::from(code), &Value::from(reason)));
}

#[tokio::test]
async fn a_refusal_says_what_is_missing() {
    let (_, body) = read("bob", "/namespaces/ml/groups/x/explanation").await;
    insta::assert_snapshot!(body, @r#"{"apiVersion":"v1","kind":"Status","code":403,"details":{"group":"visibility.tidegate.dev","kind":"groups","name":"x"},"message":"groups.visibility.tidegate.dev is forbidden: User \"bob\" cannot get resource \"groups/explanation\" in API group \"visibility.tidegate.dev\" in the namespace \"ml\"","metadata":{},"reason":"Forbidden","status":"Failure"}"#);
}

#[tokio::test]
async fn nothing_is_said_before_all_is_known() {
    let unsynced = View { synced: false, ..view() };
    let request = request("ann", "/namespaces/ml/groups");
    let response = app(unsynced).oneshot(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(response.headers()["retry-after"], "1");
}

#[tokio::test]
async fn nothing_can_be_written() {
    for method in [Method::POST, Method::DELETE, Method::PATCH, Method::PUT] {
        let mut request = request("root", "/namespaces/ml/groups/rayjob-x-1f2e");
        *request.method_mut() = method;
        assert_eq!(send(app(view()), request).await.0, StatusCode::METHOD_NOT_ALLOWED);
    }
}

#[tokio::test]
async fn health_needs_no_identity() {
    for path in ["/healthz", "/livez", "/readyz"] {
        assert_eq!(read("", path).await, (StatusCode::OK, "ok".to_owned()));
    }
}

#[tokio::test]
async fn discovery_names_the_resource() {
    let (_, body) = read("ann", GROUP_PATH).await;
    insta::assert_snapshot!(body, @r#"{"apiVersion":"v1","groupVersion":"visibility.tidegate.dev/v1alpha1","kind":"APIResourceList","resources":[{"categories":["tidegate"],"kind":"Group","name":"groups","namespaced":true,"shortNames":["tg"],"singularName":"group","verbs":["get","list"]},{"kind":"Explanation","name":"groups/explanation","namespaced":true,"singularName":"","verbs":["get"]}]}"#);
    for path in ["/apis", "/apis/visibility.tidegate.dev", "/openapi/v2", "/openapi/v3"] {
        assert_eq!(read("ann", path).await.0, StatusCode::OK, "{path}");
    }
    let path = format!("/openapi/v3{GROUP_PATH}");
    assert_eq!(read("ann", &path).await.0, StatusCode::OK);
}

#[tokio::test]
async fn too_many_at_once_are_told_to_come_back() {
    let view = crate::view::published();
    let app = Visibility::new(view, Arc::new(OnlyMl));
    let permits = app.permits.clone();
    let _all = permits.acquire_many(u32::try_from(AT_ONCE).unwrap()).await.unwrap();
    let ok: crate::report::health::Probe = Arc::new(|| Ok(()));
    let router = router(app, &Health { live: ok.clone(), ready: ok });
    let (code, _) = send(router.clone(), request("root", "/groups")).await;
    assert_eq!(code, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(send(router, request("", "/livez")).await.0, StatusCode::OK);
}

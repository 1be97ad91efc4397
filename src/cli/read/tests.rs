//! The commands against a small cluster: the real visibility API over a made view,
//! and fixed answers for the rest.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use clap::Parser;
use futures::future::BoxFuture;
use http::{Request, Response, StatusCode};
use kube::Client;
use rstest::rstest;
use serde_json::{Value, json};
use tower::{ServiceExt, service_fn};

use super::super::output::{Format, Printed};
use super::super::{Cli, Command, Failure};
use super::{pending, queues, why};
use crate::report::health::{Health, Probe};
use crate::report::tests::{NOW, view};
use crate::report::visibility::access::{AccessError, Ask};
use crate::report::visibility::select::ObjectName;
use crate::report::visibility::{Authorizer, Identity, Visibility, router};
use crate::view::{Held, View};

/// Everyone may read `ml`.
struct OnlyMl;

impl Authorizer for OnlyMl {
    fn allows<'a>(
        &'a self,
        _: &'a Identity,
        ask: &'a Ask,
    ) -> BoxFuture<'a, Result<bool, AccessError>> {
        Box::pin(async { Ok(ask.namespace.as_deref() != Some("secret")) })
    }
}

fn visibility(view: View) -> Router {
    let published = crate::view::published();
    published.store(Arc::new(view));
    let ok: Probe = Arc::new(|| Ok(()));
    let health = Health { live: ok.clone(), ready: ok };
    router(Visibility::new(published, Arc::new(OnlyMl)), &health)
}

/// A client of a cluster with this view and these answers by path; other paths are
/// 404 as the apiserver says it.
fn client_of(view: View, answers: Vec<(&str, Value)>) -> Client {
    let router = visibility(view);
    let answers: BTreeMap<String, Value> =
        answers.into_iter().map(|(path, answer)| (path.to_owned(), answer)).collect();
    let service = service_fn(move |request: Request<kube::client::Body>| {
        let (router, answer) = (router.clone(), answers.get(request.uri().path()).cloned());
        async move {
            let ours = request.uri().path().starts_with("/apis/visibility.tidegate.dev/");
            Ok::<_, Infallible>(match answer {
                Some(answer) => response(&answer),
                None if ours => through(router, request).await,
                None => response(&status(404, "not found")),
            })
        }
    });
    Client::new(service, "ml")
}

async fn through(router: Router, request: Request<kube::client::Body>) -> Response<Body> {
    let mut request = request.map(|_| Body::empty());
    request.extensions_mut().insert(Identity { user: "ann".to_owned(), ..Identity::default() });
    router.oneshot(request).await.unwrap()
}

fn response(answer: &Value) -> Response<Body> {
    let code = answer["code"].as_u64().map_or(200, |code| u16::try_from(code).unwrap());
    let mut response = Response::new(Body::from(answer.to_string()));
    *response.status_mut() = StatusCode::from_u16(code).unwrap();
    response
}

fn status(code: u16, message: &str) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": message})
}

/// What the apiserver knows beside: an opted-in namespace, two kinds, two objects.
fn cluster() -> Vec<(&'static str, Value)> {
    let kind = |group: &str, version: &str, kind: &str, plural: &str, short: &str| {
        json!({"metadata": {"name": group}, "versions": [{"version": version, "resources": [{
            "resource": plural, "scope": "Namespaced", "verbs": ["get"], "shortNames": [short],
            // As the apiserver answers: only kinds of others carry group and version.
            "responseKind": if group.is_empty() {
                json!({"group": "", "version": "", "kind": kind})
            } else {
                json!({"group": group, "version": version, "kind": kind})
            },
        }]}]})
    };
    let list = |groups: Value| json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "items": groups});
    let object = |api_version: &str, kind: &str, name: &str, owner: Value| {
        json!({"apiVersion": api_version, "kind": kind,
            "metadata": {"name": name, "namespace": "ml", "ownerReferences": owner}})
    };
    let owner = json!([{"apiVersion": "ray.io/v1", "kind": "RayCluster", "name": "x-abcde",
        "uid": "u", "controller": true}]);
    vec![
        ("/api", list(json!([kind("", "v1", "Pod", "pods", "po")]))),
        ("/apis", list(json!([kind("ray.io", "v1", "RayJob", "rayjobs", "rj")]))),
        ("/api/v1/namespaces/ml", namespace("ml", &json!({"tidegate.dev/managed": "true"}))),
        ("/api/v1/namespaces/default", namespace("default", &json!({}))),
        ("/api/v1/namespaces/private", status(403, "namespaces \"private\" is forbidden")),
        ("/apis/ray.io/v1/namespaces/ml/rayjobs/x", object("ray.io/v1", "RayJob", "x", json!([]))),
        (
            "/apis/ray.io/v1/namespaces/ml/rayjobs/idle",
            object("ray.io/v1", "RayJob", "idle", json!([])),
        ),
        (
            "/apis/ray.io/v1/namespaces/private/rayjobs/a",
            object("ray.io/v1", "RayJob", "a", json!([])),
        ),
        ("/api/v1/namespaces/ml/pods/x-worker-999", object("v1", "Pod", "x-worker-999", owner)),
        ("/apis/tidegate.dev/v1alpha1/queues", queue_list()),
        ("/apis/tidegate.dev/v1alpha1/queues/none", status(404, "queues \"none\" not found")),
    ]
}

fn namespace(name: &str, labels: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
}

fn queue_list() -> Value {
    let queue = |name: &str, parent: Value, ready: &str, message: &str| {
        json!({
            "apiVersion": "tidegate.dev/v1alpha1", "kind": "Queue", "metadata": {"name": name},
            "spec": {"parent": parent, "weight": 2, "limit": {"cpu": "8"}},
            "status": {
                "pending": {"groups": 1, "pods": 3}, "running": {"groups": 2, "pods": 7},
                "usage": {"cpu": "7", "pods": "7"}, "share": "43.7%",
                "oldestPending": "2026-11-30T19:42:24Z",
                "conditions": [{"type": "Ready", "status": ready, "reason": "X", "message": message,
                    "lastTransitionTime": "2026-11-30T19:42:24Z"}],
            },
        })
    };
    let new = json!({"apiVersion": "tidegate.dev/v1alpha1", "kind": "Queue",
        "metadata": {"name": "new"}, "spec": {}});
    json!({"apiVersion": "tidegate.dev/v1alpha1", "kind": "QueueList", "metadata": {}, "items": [
        queue("a", json!("org"), "True", "work may start"),
        queue("b", json!("org"), "False", "queue \"b\" is stopped (spec.stop)"),
        new,
        queue("one", json!("two"), "False", "a cycle of parents"),
        queue("org", json!(null), "True", "work may start"),
        queue("two", json!("one"), "False", "a cycle of parents"),
    ]})
}

async fn ask_why(client: Client, args: &[&str]) -> Result<Printed, Failure> {
    let Command::Why(args) = parse("why", args) else { panic!("not why") };
    why::answer(client, &args, NOW).await
}

async fn ask_pending(client: Client, args: &[&str]) -> Result<Printed, Failure> {
    let Command::Pending(args) = parse("pending", args) else { panic!("not pending") };
    pending::show(client, &args, NOW).await
}

fn parse(command: &str, args: &[&str]) -> Command {
    let args = ["tidegate", command].into_iter().chain(args.iter().copied());
    Cli::try_parse_from(args).unwrap().command
}

#[tokio::test]
async fn why_says_what_it_waits_for_first_and_what_to_do_last() {
    let printed = ask_why(client_of(view(), cluster()), &["pod/x-head"]).await.unwrap();
    insta::assert_snapshot!(printed.out, @"
    RayJob/x -> RayCluster/x-abcde in namespace ml: Growing
      waits for 90s: QueueLimit
      queue a may use 8 cpu, 7 are in use and 2 are asked: 1 is missing

    Queue      a
    Pods       3 waiting, 0 let go without a node, 1 running, 0 ended; 4 start together
    Asks       cpu 2, memory 4Gi
    Charged    cpu 2, pods 1
    Priority   10
    Capacity   cpu 16, memory 64Gi

    QUEUE   WEIGHT   SHARE   USAGE   LIMIT   GUARANTEED
    a       3        43.7%   cpu 7   cpu 8   <none>
    org     3        43.7%   cpu 7   cpu 8   <none>

    Ahead of it in its queue: groups 2, pods 5.

    Evidence:
      queue: label tidegate.dev/queue on RayJob/train

    It goes on by itself, or:
      raise the limit of queue a or wait
    ");
}

#[tokio::test]
async fn why_on_a_wide_screen_lists_the_pods() {
    let client = client_of(view(), cluster());
    let printed = ask_why(client, &["RayCluster", "x-abcde", "-o", "wide"]).await.unwrap();
    let at = printed.out.find("POD ").unwrap();
    insta::assert_snapshot!(printed.out[at..].lines().take(3).collect::<Vec<_>>().join("\n"), @"
    POD          STATE     AGE   HELD BY
    x-head       Running   90s
    x-worker-0   Waiting   90s
    ");
}

#[rstest]
#[case::root("rayjob/x")]
#[case::short_name_that_only_the_cluster_knows("rj/x")]
#[case::link("rayclusters.ray.io/x-abcde")]
#[case::pod("po/x-worker-0")]
#[case::pod_beyond_those_a_view_lists("pod/x-worker-999")]
#[tokio::test]
async fn a_group_is_found_by_any_object_of_it(#[case] object: &str) {
    let client = client_of(view(), cluster());
    let printed = ask_why(client, &[object, "-o", "name"]).await.unwrap();
    assert_eq!(printed.out, "group.visibility.tidegate.dev/rayjob-x-1f2e\n");
}

#[rstest]
#[case::no_pods(&["rayjob/idle"], "made none yet")]
#[case::no_object(&["rayjob/none"], "there is no rayjob/none in namespace \"ml\"")]
#[case::no_kind(&["sparkle/x"], "the cluster has no kind \"sparkle\"")]
#[case::no_namespace(&["rayjob/x", "-n", "gone"], "there is no namespace \"gone\"")]
#[case::not_opted_in(&["rayjob/x", "-n", "default"], "kubectl label namespace default tidegate.dev/managed=true")]
#[case::unreadable_namespace(&["rayjob/a", "-n", "private"], "namespaces \"private\" is forbidden")]
#[tokio::test]
async fn what_is_missing_is_named(#[case] args: &[&str], #[case] said: &str) {
    let failure = ask_why(client_of(view(), cluster()), args).await.unwrap_err();
    assert!(matches!(failure, Failure::NotFound(_)), "{failure:?}");
    assert!(failure.to_string().contains(said), "{failure}");
}

#[tokio::test]
async fn a_missing_right_is_named() {
    let client = client_of(view(), cluster());
    let failure = ask_why(client, &["rayjob/x", "-n", "secret"]).await.unwrap_err();
    insta::assert_snapshot!(failure, @r#"
    not allowed: groups.visibility.tidegate.dev is forbidden: User "ann" cannot list resource "groups" in API group "visibility.tidegate.dev" in the namespace "secret"
    The verbs get and list on groups and groups/explanation of API group visibility.tidegate.dev are what these commands need.
    "#);
}

#[rstest]
#[case::not_installed(json!("404 page not found"), "kubectl get apiservice v1alpha1.visibility.tidegate.dev")]
#[case::no_endpoints(status(503, "service unavailable"), "is not running")]
#[case::bad_token(status(401, "Unauthorized"), "does not accept these credentials")]
#[tokio::test]
async fn an_absent_controller_is_told_from_other_errors(#[case] answer: Value, #[case] said: &str) {
    let mut answers = cluster();
    let answer = if answer.is_string() { status(404, "404 page not found") } else { answer };
    answers.push(("/apis/visibility.tidegate.dev/v1alpha1/namespaces/ml/groups", answer));
    let failure = ask_pending(client_of(view(), answers), &[]).await.unwrap_err();
    assert!(
        matches!(failure, Failure::Error(_)) && failure.to_string().contains(said),
        "{failure}"
    );
}

#[tokio::test]
async fn a_controller_that_still_reads_is_not_reported_absent() {
    let unsynced = View { synced: false, ..view() };
    let failure = ask_pending(client_of(unsynced, cluster()), &[]).await.unwrap_err();
    assert!(failure.to_string().contains("still reading the cluster"), "{failure}");
}

#[tokio::test]
async fn pending_lists_what_waits() {
    let client = client_of(view(), cluster());
    let printed = ask_pending(client.clone(), &["-A"]).await.unwrap();
    insta::assert_snapshot!(printed.out, @"
    NAMESPACE   ROOT       QUEUE   WAITING   RUNNING   PRIORITY   AHEAD   REASON       WAIT
    ml          RayJob/x   a       3         1         10         2       QueueLimit   90s
    ml          RayJob/y   a       3         1         10         2       QueueLimit   90s
    web         RayJob/z   a       3         1         10         2       QueueLimit   90s
    ");
    let printed = ask_pending(client.clone(), &["-o", "wide"]).await.unwrap();
    insta::assert_snapshot!(printed.out, @"
    ROOT       QUEUE   WAITING   RUNNING   PRIORITY   AHEAD   REASON       WAIT   ASKS                GROUP           MESSAGE
    RayJob/x   a       3         1         10         2       QueueLimit   90s    cpu 2, memory 4Gi   rayjob-x-1f2e   queue a may use 8 cpu, 7 are in use and 2 are asked: 1 is missing
    RayJob/y   a       3         1         10         2       QueueLimit   90s    cpu 2, memory 4Gi   rayjob-y-1f2e   queue a may use 8 cpu, 7 are in use and 2 are asked: 1 is missing
    ");
    let printed = ask_pending(client.clone(), &["--queue", "b"]).await.unwrap();
    assert_eq!(printed.out, "");
    assert_eq!(printed.note.as_deref(), Some("Nothing waits in namespace ml."));
    let printed = ask_pending(client, &["-n", "default"]).await.unwrap();
    assert!(printed.note.is_some_and(|note| note.contains("has not opted in")));
}

#[rstest]
#[case::namespace(&["-n", "gone"], "there is no namespace \"gone\"")]
#[case::queue(&["--queue", "gone"], "there is no queue \"gone\"")]
#[tokio::test]
async fn pending_in_what_is_not_there_is_not_found(#[case] args: &[&str], #[case] said: &str) {
    let failure = ask_pending(client_of(view(), cluster()), args).await.unwrap_err();
    assert_eq!(failure, Failure::NotFound(said.to_owned()));
}

#[tokio::test]
async fn pending_of_a_queue_holds_what_waits_below_it() {
    let client = client_of(view(), cluster());
    let all = ask_pending(client.clone(), &["-A", "-o", "name"]).await.unwrap();
    let of_org = ask_pending(client, &["-A", "-o", "name", "--queue", "org"]).await.unwrap();
    assert_eq!(of_org, all);
    assert_eq!(of_org.out.lines().count(), 3);
}

#[tokio::test]
async fn pending_of_a_queue_that_is_gone_shows_what_still_names_it_and_says_so() {
    let mut answers = cluster();
    let none = json!({"apiVersion": "tidegate.dev/v1alpha1", "kind": "QueueList", "metadata": {}, "items": []});
    answers.push(("/apis/tidegate.dev/v1alpha1/queues", none));
    let args = ["--queue", "a", "-o", "name"];
    let printed = ask_pending(client_of(view(), answers.clone()), &args).await.unwrap();
    assert_eq!(printed.out.lines().count(), 2);
    assert_eq!(printed.note.as_deref(), Some("Queue \"a\" does not exist."));
    answers.push(("/apis/tidegate.dev/v1alpha1/queues", status(403, "no")));
    let printed = ask_pending(client_of(view(), answers), &args).await.unwrap();
    assert_eq!(printed.out.lines().count(), 2);
    assert!(printed.note.is_some_and(|note| note.contains("tidegate-queue-viewer")));
}

#[tokio::test]
async fn why_warns_first_and_says_what_holds_what_was_let_go() {
    let mut view = view();
    for row in view.groups.values_mut() {
        let row = Arc::make_mut(row);
        let who = Arc::make_mut(&mut row.who);
        Arc::make_mut(&mut who.origin).warnings =
            vec!["annotation tidegate.dev/gang=\"yes\" is ignored".into()];
        let message = "pod x-head: 0/3 nodes are available".to_owned();
        row.held = Some(Box::new(Held { code: "Unschedulable", message }));
        row.wait = None;
        row.counts.waiting = 250;
    }
    let args = ["pod/x-head", "-o", "wide"];
    let printed = ask_why(client_of(view, cluster()), &args).await.unwrap();
    let head: Vec<&str> = printed.out.lines().take(6).collect();
    insta::assert_snapshot!(head.join("\n"), @r#"
    RayJob/x -> RayCluster/x-abcde in namespace ml: Growing
      let go, and not on a node: Unschedulable
      pod x-head: 0/3 nodes are available

    Warning:
      annotation tidegate.dev/gang="yes" is ignored
    "#);
    assert!(printed.out.contains("249 more pods are not shown."), "{}", printed.out);
}

#[tokio::test]
async fn a_wrong_opt_in_is_named_where_the_namespace_is_asked_about() {
    let mut answers = cluster();
    let wrong = namespace("default", &json!({"tidegate.dev/managed": "yes"}));
    answers.push(("/api/v1/namespaces/default", wrong));
    let args = ["rayjob/x", "-n", "default"];
    let failure = ask_why(client_of(view(), answers), &args).await.unwrap_err().to_string();
    assert!(failure.contains("tidegate.dev/managed=\"yes\" does not opt it in"), "{failure}");
}

#[tokio::test]
async fn pending_leaves_out_what_runs_and_sorts_as_told() {
    let mut view = view();
    for ((_, name), row) in &mut view.groups {
        let row = Arc::make_mut(row);
        match &**name {
            "rayjob-x-1f2e" => row.counts.waiting = 0,
            "rayjob-z-1f2e" => (row.priority, row.since) = (99, NOW),
            _ => {}
        }
    }
    let client = client_of(view, cluster());
    let names = |printed: Printed| printed.out.replace("group.visibility.tidegate.dev/", "");
    let by_wait = ask_pending(client.clone(), &["-A", "-o", "name"]).await.unwrap();
    assert_eq!(names(by_wait), "rayjob-y-1f2e\nrayjob-z-1f2e\n");
    let args = ["-A", "-o", "name", "--sort-by", "priority"];
    let by_priority = ask_pending(client, &args).await.unwrap();
    assert_eq!(names(by_priority), "rayjob-z-1f2e\nrayjob-y-1f2e\n");
}

#[tokio::test]
async fn queues_are_a_tree_with_their_problems_below() {
    let client = client_of(view(), cluster());
    let printed = queues::show(client.clone(), None, Format::Table, NOW).await.unwrap();
    insta::assert_snapshot!(printed.out, @r#"
    QUEUE   WEIGHT   PENDING   RUNNING   SHARE    USAGE           READY     OLDEST
    new     1        0         0         <none>   <none>          Unknown   <none>
    org     2        3         7         43.7%    cpu 7, pods 7   True      90s
      a     2        3         7         43.7%    cpu 7, pods 7   True      90s
      b     2        3         7         43.7%    cpu 7, pods 7   False     90s
    one     2        3         7         43.7%    cpu 7, pods 7   False     90s
      two   2        3         7         43.7%    cpu 7, pods 7   False     90s

    b: queue "b" is stopped (spec.stop)
    one: a cycle of parents
    two: a cycle of parents
    "#);
    let wide = queues::show(client.clone(), None, Format::Wide, NOW).await.unwrap();
    insta::assert_snapshot!(wide.out.lines().take(2).collect::<Vec<_>>().join("\n"), @"
    QUEUE   WEIGHT   PENDING   RUNNING   SHARE    USAGE           READY     OLDEST   PENDING-GROUPS   RUNNING-GROUPS   GUARANTEED   LIMIT    MAX-PENDING
    new     1        0         0         <none>   <none>          Unknown   <none>   0                0                <none>       <none>   <none>
    ");
    let names = queues::show(client, None, Format::Name, NOW).await.unwrap();
    assert!(names.out.starts_with("queue.tidegate.dev/a\n"), "{}", names.out);
}

#[tokio::test]
async fn a_missing_queue_is_told_from_a_missing_kind() {
    let client = client_of(view(), cluster());
    let failure = queues::show(client, Some("none"), Format::Table, NOW).await.unwrap_err();
    assert_eq!(failure, Failure::NotFound("there is no queue \"none\"".to_owned()));
    let bare = client_of(view(), Vec::new());
    let failure = queues::show(bare, None, Format::Table, NOW).await.unwrap_err();
    assert!(failure.to_string().contains("not installed"), "{failure}");
}

#[tokio::test]
async fn who_may_not_read_queues_is_told_the_role_that_grants_it() {
    let said = "queues.tidegate.dev is forbidden: User \"ann\" cannot list resource \"queues\"";
    let forbidden =
        client_of(view(), vec![("/apis/tidegate.dev/v1alpha1/queues", status(403, said))]);
    let failure = queues::show(forbidden, None, Format::Table, NOW).await.unwrap_err().to_string();
    assert!(failure.contains(said) && failure.contains("tidegate-queue-viewer"), "{failure}");
}

#[test]
fn the_object_of_why_is_one_word_or_two() {
    for args in [&["Job/x"][..], &["Job", "x"]] {
        let Command::Why(args) = parse("why", args) else { panic!("not why") };
        assert_eq!(args.object(), ObjectName::parse("job/x").map_err(Failure::Usage));
    }
    let Command::Why(args) = parse("why", &["x"]) else { panic!("not why") };
    assert!(matches!(args.object(), Err(Failure::Usage(_))));
}

use super::*;
use crate::admission::review::Review;
use proptest::prelude::*;
use rstest::rstest;

const CREATOR_UID: &str = "0b1c2d3e-0000-4000-8000-000000000001";

fn user(name: &str) -> Value {
    json!({"username": name, "groups": ["system:authenticated"]})
}

fn bound_token() -> Value {
    json!({"username": "system:serviceaccount:team:driver", "extra": {
        EXTRA_POD_UID: [CREATOR_UID],
        EXTRA_POD_NAME: ["driver-0"],
    }})
}

fn review(user: &Value, pod: &Value) -> Value {
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "r-1",
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "operation": "CREATE", "namespace": "team", "userInfo": user, "object": pod,
    }})
}

fn answer_to(review: &Value) -> Answer {
    let request = Review::<Pod>::read(review.to_string().as_bytes()).unwrap();
    let exempt = Exempt::new(["system:serviceaccount:velero:velero".to_owned()]);
    mutate(&request, &exempt, &Backlogs::default(), Instant::now()).unwrap()
}

fn patch_for(user: &Value, pod: &Value) -> Patch {
    match answer_to(&review(user, pod)) {
        Answer::Allow(patch) => patch,
        other => panic!("not allowed: {other:?}"),
    }
}

fn mutated(user: &Value, pod: &Value) -> Value {
    let mut result = pod.clone();
    json_patch::patch(&mut result, &patch_for(user, pod)).unwrap();
    result
}

#[test]
fn a_plain_pod_gets_gate_and_label_and_nothing_else() {
    let pod = json!({"metadata": {"generateName": "worker-"}, "spec": {"containers": []}});
    assert_eq!(
        mutated(&user("system:serviceaccount:operators:some-operator"), &pod),
        json!({
            "metadata": {"generateName": "worker-", "labels": {"tidegate.dev/managed": "true"}},
            "spec": {"containers": [], "schedulingGates": [{"name": "tidegate.dev/queue"}]},
        })
    );
}

#[test]
fn foreign_gates_and_labels_stay_in_front() {
    let pod = json!({
        "metadata": {"labels": {"app": "a", "tidegate.dev/managed": "false"}},
        "spec": {"schedulingGates": [{"name": "example.com/own"}], "nodeName": ""},
    });
    let result = mutated(&user("ann"), &pod);
    assert_eq!(
        result["spec"]["schedulingGates"],
        json!([{"name": "example.com/own"}, {"name": GATE}])
    );
    assert_eq!(result["metadata"]["labels"], json!({"app": "a", "tidegate.dev/managed": "true"}));
}

#[test]
fn markers_from_a_backup_are_dropped() {
    let pod = json!({"metadata": {"annotations": {
        "tidegate.dev/released": "{}", "tidegate.dev/epoch": "7",
        "tidegate.dev/created-by": "{}", "tidegate.dev/group": "mine",
    }}, "spec": {}});
    let result = mutated(&user("ann"), &pod);
    assert_eq!(result["metadata"]["annotations"], json!({"tidegate.dev/group": "mine"}));
}

#[test]
fn the_creating_pod_is_noted_from_its_token_over_a_forged_note() {
    let note = format!(r#"{{"uid":"{CREATOR_UID}","name":"driver-0"}}"#);
    let plain = json!({"metadata": {}, "spec": {}});
    let forged =
        json!({"metadata": {"annotations": {"tidegate.dev/created-by": "{}"}}, "spec": {}});
    for pod in [plain, forged] {
        let result = mutated(&bound_token(), &pod);
        assert_eq!(result["metadata"]["annotations"]["tidegate.dev/created-by"], json!(note));
        serde_json::from_str::<Value>(&note).unwrap();
    }
}

#[rstest]
#[case(json!({EXTRA_POD_UID: ["x\",\"name\":\"y"], EXTRA_POD_NAME: ["n"]}))]
#[case(json!({EXTRA_POD_UID: [CREATOR_UID], EXTRA_POD_NAME: ["a\"b"]}))]
#[case(json!({EXTRA_POD_UID: [CREATOR_UID, CREATOR_UID], EXTRA_POD_NAME: ["n"]}))]
#[case(json!({EXTRA_POD_UID: [CREATOR_UID]}))]
fn a_token_that_names_no_pod_properly_notes_nothing(#[case] extra: Value) {
    let result = mutated(&json!({"username": "u", "extra": extra}), &json!({"spec": {}}));
    assert_eq!(result["metadata"].get("annotations"), None);
}

#[rstest]
#[case::kubelet(json!({"username": "system:node:n1", "groups": ["system:nodes"]}))]
#[case::daemon_sets(user(USER_DAEMON_SET))]
#[case::listed(user("system:serviceaccount:velero:velero"))]
fn exempt_accounts_may_name_nodes_and_get_no_gate(#[case] who: Value) {
    let pod = json!({"metadata": {"annotations": {"a": "b"}}, "spec": {"nodeName": "n1"}});
    assert_eq!(mutated(&who, &pod), pod);
    let forged = json!({"metadata": {"annotations": {"tidegate.dev/released": "{}"}}, "spec": {}});
    assert_eq!(mutated(&who, &forged), json!({"metadata": {"annotations": {}}, "spec": {}}));
}

const USER_DAEMON_SET: &str = crate::api::names::USER_DAEMON_SET_CONTROLLER;

#[test]
fn a_user_with_a_node_name_is_refused_whatever_the_pod_claims() {
    let pod = json!({
        "metadata": {
            "annotations": {"kubernetes.io/config.mirror": "x"},
            "ownerReferences": [{"kind": "DaemonSet", "controller": true}],
        },
        "spec": {"nodeName": "n1"},
    });
    match answer_to(&review(&user("mallory"), &pod)) {
        Answer::Deny(reason) => assert!(reason.contains("kubernetes.io/hostname"), "{reason}"),
        other => panic!("not denied: {other:?}"),
    }
}

#[rstest]
#[case("operation", json!("UPDATE"))]
#[case("operation", json!("CONNECT"))]
#[case("operation", json!("SOMETHING_NEW"))]
#[case("subResource", json!("resize"))]
#[case("resource", json!({"group": "", "version": "v1", "resource": "services"}))]
#[case("resource", json!({"group": "apps", "version": "v1", "resource": "pods"}))]
fn what_is_not_the_creation_of_a_pod_passes(#[case] field: &str, #[case] value: Value) {
    let mut review = review(&user("ann"), &json!({"spec": {"nodeName": "n1"}}));
    review["request"][field] = value;
    assert_eq!(answer_to(&review), Answer::allow());
}

#[test]
fn an_object_that_names_another_namespace_changes_nothing() {
    let pod = json!({"metadata": {"namespace": "kube-system", "name": ""}, "spec": {}});
    let result = mutated(&user("ann"), &pod);
    assert_eq!(result["spec"]["schedulingGates"], json!([{"name": GATE}]));
}

#[test]
fn bodies_that_are_no_review_are_malformed() {
    let deep = format!("{}1{}", "[".repeat(200_000), "]".repeat(200_000));
    let labels = format!(r#"{{"labels":{{"x":{deep}}}}}"#);
    let pod = review(&user("ann"), &json!("POD")).to_string();
    for body in [
        String::new(),
        "[]".to_owned(),
        deep,
        pod.replace(r#""POD""#, &format!(r#"{{"metadata":{labels}}}"#)),
        pod.clone(),
        pod.replace("admission.k8s.io/v1", "admission.k8s.io/v1beta1"),
        r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}"#.to_owned(),
    ] {
        assert!(Review::<Pod>::read(body.as_bytes()).is_err(), "{}", body.len());
    }
    let none = review(&user("ann"), &Value::Null).to_string();
    let request = Review::<Pod>::read(none.as_bytes()).unwrap();
    assert!(matches!(
        mutate(&request, &Exempt::default(), &Backlogs::default(), Instant::now()),
        Err(Malformed::NoObject)
    ));
}

fn any_map() -> impl Strategy<Value = Value> {
    let key = prop_oneof![
        Just(LABEL_MANAGED.to_owned()),
        Just(ANNOTATION_RELEASED.to_owned()),
        Just(ANNOTATION_CREATED_BY.to_owned()),
        "[a-z~/]{0,6}",
    ];
    let entries = prop::collection::btree_map(key, "true|[a-z~/\\PC]{0,4}", 0..4);
    prop_oneof![Just(Value::Null), entries.prop_map(|map| json!(map))]
}

fn any_gates() -> impl Strategy<Value = Value> {
    let gate = prop_oneof![
        Just(json!({"name": GATE})),
        "[a-z]{1,3}".prop_map(|name| json!({"name": name, "later": {"field": 1}})),
    ];
    let distinct = |gates: Vec<Value>| {
        let mut seen = Vec::new();
        for gate in gates {
            if !seen.contains(&gate) {
                seen.push(gate);
            }
        }
        json!(seen)
    };
    prop_oneof![Just(Value::Null), prop::collection::vec(gate, 0..4).prop_map(distinct)]
}

prop_compose! {
    fn any_pod()(
        labels in any_map(),
        annotations in any_map(),
        gates in any_gates(),
        drop in prop::collection::vec(any::<bool>(), 5),
    ) -> Value {
        let mut pod = json!({
            "metadata": {"labels": labels, "annotations": annotations, "name": "p"},
            "spec": {"schedulingGates": gates, "containers": [{"name": "c"}]},
            "status": {"unknown": [1, {"field": null}]},
        });
        for (path, drop) in ["/metadata/labels", "/metadata/annotations", "/spec/schedulingGates", "/metadata", "/spec"].iter().zip(drop) {
            let (parent, key) = path.rsplit_once('/').unwrap();
            if drop {
                pod.pointer_mut(parent).and_then(Value::as_object_mut).map(|map| map.remove(key));
            }
        }
        pod
    }
}

proptest! {
    #[test]
    fn any_pod_is_gated_exactly_once_and_twice_is_as_once(pod in any_pod(), bound in any::<bool>()) {
        let who = if bound { bound_token() } else { user("ann") };
        let patch = patch_for(&who, &pod);
        for operation in &patch.0 {
            prop_assert!(!matches!(operation, PatchOperation::Test(_)));
        }
        let once = mutated(&who, &pod);
        let gates = once["spec"]["schedulingGates"].as_array().unwrap();
        prop_assert_eq!(gates.iter().filter(|gate| gate["name"] == GATE).count(), 1);
        prop_assert_eq!(&once["metadata"]["labels"][LABEL_MANAGED], MANAGED);
        prop_assert!(once["metadata"]["annotations"].get(ANNOTATION_RELEASED).is_none());
        prop_assert_eq!(patch_for(&who, &once), Patch::default());
        // Nothing that is not ours is lost or reordered.
        let before = pod["spec"]["schedulingGates"].as_array().cloned().unwrap_or_default();
        prop_assert_eq!(&gates[..before.len()], &before[..]);
        prop_assert_eq!(&once["status"], &pod["status"]);
    }
}

use super::*;
use crate::admission::review::Review;
use crate::api::v1alpha1::QueueSpec;
use rstest::rstest;
use serde_json::{Value, json};

/// root: 10 cpu. root/a: 4, root/b: 3. a/leaf: 2. lone: nothing. ring-1 and ring-2 name each other.
fn tree() -> QueueTree {
    let queues: Vec<_> = [
        ("root", json!({"guaranteed": {"cpu": 10}})),
        ("a", json!({"parent": "root", "guaranteed": {"cpu": 4, "gpu": 9}})),
        ("b", json!({"parent": "root", "guaranteed": {"cpu": "3000m"}})),
        ("leaf", json!({"parent": "a", "guaranteed": {"cpu": 2}})),
        ("lone", json!({})),
        ("wide", json!({"limit": {"cpu": 8, "memory": "4Gi"}})),
        ("wide-a", json!({"parent": "wide", "guaranteed": {"cpu": 5}})),
        ("wide-a-leaf", json!({"parent": "wide-a", "guaranteed": {"memory": "3Gi"}})),
        ("ring-1", json!({"parent": "ring-2"})),
        ("ring-2", json!({"parent": "ring-1"})),
    ]
    .into_iter()
    .map(|(name, spec)| StoredQueue::new(name, serde_json::from_value::<QueueSpec>(spec).unwrap()))
    .collect();
    queues.iter().collect()
}

fn judge(operation: &str, name: &str, object: &Value, old: &Value) -> Result<(), String> {
    let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "r-1", "operation": operation, "name": name, "object": object, "oldObject": old,
        "resource": {"group": "tidegate.dev", "version": "v1alpha1", "resource": "queues"},
    }});
    let request = Review::<Queue>::read(review.to_string().as_bytes()).unwrap();
    match validate(&request, &tree()).unwrap() {
        Answer::Allow(patch) => {
            assert!(patch.is_empty());
            Ok(())
        }
        Answer::Warn(warnings) => Err(format!("warned: {}", warnings.join("\n"))),
        Answer::Deny(reason) => Err(reason),
        Answer::Later(reason) => panic!("nobody is to come back later: {reason}"),
    }
}

fn create(name: &str, spec: &Value) -> Result<(), String> {
    judge("CREATE", name, &json!({"spec": spec}), &Value::Null)
}

#[test]
fn what_another_version_stored_may_be_mended_and_deleted() {
    let stored = json!({"spec": {"limit": [], "parent": {"name": "root"}}, "status": "well"});
    assert_eq!(judge("DELETE", "lone", &Value::Null, &stored), Ok(()));
    assert_eq!(judge("UPDATE", "lone", &json!({"spec": {"parent": "root"}}), &stored), Ok(()));
    assert!(judge("UPDATE", "lone", &json!({"spec": {"parent": "none"}}), &stored).is_err());
}

#[rstest]
#[case::root("new", json!({}))]
#[case::exactly_what_is_left("c", json!({"parent": "root", "guaranteed": {"cpu": 3}}))]
#[case::parent_does_not_list_it("c", json!({"parent": "root", "guaranteed": {"memory": "1E"}}))]
#[case::limit_above_that_of_the_parent("c", json!({"parent": "root", "limit": {"cpu": 9999}}))]
#[case::own_share_is_not_counted_twice("a", json!({"parent": "root", "guaranteed": {"cpu": 7}}))]
#[case::no_longer_lists_it("a", json!({"parent": "root"}))]
#[case::fields_of_later_versions("new", json!({"preemption": {"reclaim": "Any"}}))]
fn good_queues_pass(#[case] name: &str, #[case] spec: Value) {
    assert_eq!(create(name, &spec), Ok(()));
}

#[rstest]
#[case::unknown_parent("new", json!({"parent": "nobody"}), "parent \"nobody\" does not exist")]
#[case::own_parent("new", json!({"parent": "new"}), "comes back to \"new\"")]
#[case::ring("root", json!({"parent": "leaf", "guaranteed": {"cpu": 10}}), "comes back to \"root\"")]
#[case::ring_of_others("new", json!({"parent": "ring-1"}), "comes back to \"ring-1\"")]
#[case::sum("c", json!({"parent": "root", "guaranteed": {"cpu": "3001m"}}),
    "guaranteed cpu of all queues under \"root\" would be 10001m, more than its own 10000m")]
#[case::below_children("a", json!({"parent": "root", "guaranteed": {"cpu": 1}}),
    "guaranteed cpu 1 is less than the 2 guaranteed to its children (leaf)")]
#[case::above_limit("new", json!({"guaranteed": {"cpu": 2}, "limit": {"cpu": 1}}),
    "guaranteed cpu 2 is above limit 1")]
#[case::beyond_int64("c", json!({"parent": "root", "guaranteed": {"cpu": "50E"}}), "more than its own 10")]
#[case::sum_above_the_limit("c", json!({"parent": "wide", "guaranteed": {"cpu": 4}}),
    "guaranteed cpu of all queues under \"wide\" would be 9, more than its limit 8")]
#[case::above_a_limit_further_up("c", json!({"parent": "wide-a", "guaranteed": {"memory": "5Gi"}}),
    "guaranteed memory 5Gi is above the limit 4Gi of \"wide\"")]
#[case::limit_below_children("wide", json!({"limit": {"cpu": 4}}),
    "limit cpu 4 is less than the 5 guaranteed to its children (wide-a)")]
#[case::limit_below_a_grandchild("wide", json!({"limit": {"memory": "2560Mi"}}),
    "limit memory 2560Mi is less than the 3072Mi guaranteed to \"wide-a-leaf\"")]
#[case::resource_that_no_pod_asks_for("new", json!({"limit": {"cpus": 1}}), "use \"cpu\"")]
#[case::resource_without_name("new", json!({"guaranteed": {"": 1}}), "resource \"\"")]
#[case::malformed("new", json!({"guaranteed": {"cpu": "lots"}}), "cpu: ")]
fn bad_queues_are_refused_with_a_reason(
    #[case] name: &str,
    #[case] spec: Value,
    #[case] reason: &str,
) {
    let refusal = create(name, &spec).unwrap_err();
    assert!(refusal.contains(reason), "{refusal}");
}

#[test]
fn what_was_wrong_before_does_not_block_other_changes() {
    let spec = json!({"parent": "nobody", "guaranteed": {"cpu": 2}});
    let (old, new) = (json!({"spec": spec}), json!({"spec": spec, "metadata": {"labels": {}}}));
    assert_eq!(judge("UPDATE", "x", &new, &old), Ok(()));
    let moved = json!({"spec": {"parent": "nobody-2", "guaranteed": {"cpu": 2}}});
    assert!(judge("UPDATE", "x", &moved, &old).is_err());
}

#[test]
fn a_queue_with_children_is_not_deleted() {
    let refusal = judge("DELETE", "root", &Value::Null, &json!({"spec": {}})).unwrap_err();
    assert!(refusal.contains("kubectl delete queues a b root"), "{refusal}");
    assert_eq!(judge("DELETE", "leaf", &Value::Null, &json!({"spec": {}})), Ok(()));
}

#[rstest]
#[case::idle(json!({"pending": {"pods": 0}, "running": {"pods": 0}}), Ok(()))]
#[case::never_seen(Value::Null, Ok(()))]
#[case::work(json!({"pending": {"groups": 2, "pods": 3}, "running": {"pods": 1}}), Err(
    "warned: queue \"lone\" had waiting pods (3): they stay gated until a queue of this name exists \
     again or their root names another one\n\
     queue \"lone\" had running pods (1): they go on, and no longer count against the queues above"
))]
fn a_queue_that_goes_with_work_says_what_becomes_of_it(
    #[case] status: Value,
    #[case] said: Result<(), &str>,
) {
    let old = json!({"spec": {}, "status": status});
    assert_eq!(judge("DELETE", "lone", &Value::Null, &old), said.map_err(str::to_owned));
}

#[test]
fn a_long_list_of_children_is_cut() {
    let names = (0..9).map(|n| format!("c{n}"));
    let node = Node { parent: Some("p".to_owned()), ..Node::default() };
    let tree = QueueTree(names.map(|name| (name, node.clone())).collect());
    assert_eq!(tree.name_children("p", ", "), "c0, c1, c2, c3, c4, ...");
}

use super::*;
use crate::api::v1alpha1::{MaxPending, QueueSpec, QueueStatus};
use rstest::rstest;
use serde_json::{Value, json};

const OWNER: &str = "0b1c2d3e-0000-4000-8000-000000000001";

fn queue(name: &str, parent: Option<&str>) -> Queue {
    Queue::new(name, QueueSpec { parent: parent.map(str::to_owned), ..QueueSpec::default() })
}

fn full_queue(name: &str, parent: Option<&str>, renewed: &str) -> Queue {
    let mut queue = queue(name, parent);
    queue.spec.max_pending = Some(MaxPending { pods: 100 });
    queue.status = Some(QueueStatus {
        backlog: Some(Backlog {
            pods: 117,
            renewed: renewed.to_owned(),
            owners: vec![OWNER.to_owned()],
            namespaces: vec!["lab".to_owned()],
        }),
        ..QueueStatus::default()
    });
    queue
}

fn pod(metadata: &Value) -> Pod {
    serde_json::from_value(json!({"metadata": metadata})).unwrap()
}

fn owned_by(uid: &str) -> Pod {
    let owner = json!({"apiVersion": "v1", "kind": "Any", "name": "a", "uid": uid});
    pod(&json!({"ownerReferences": [owner]}))
}

fn bare(queue: Option<&str>) -> Pod {
    let labels = queue.map_or(json!({}), |queue| json!({"tidegate.dev/queue": queue}));
    pod(&json!({ "labels": labels }))
}

fn observed(queues: &[Queue], now: Instant) -> Backlogs {
    let backlogs = Backlogs::default();
    backlogs.observe(queues.iter(), now);
    backlogs
}

#[rstest]
#[case(owned_by(OWNER), "elsewhere", true)]
#[case(owned_by("another"), "lab", false)]
#[case(bare(None), "lab", true)]
#[case(bare(None), "other", false)]
#[case(bare(Some("full")), "other", true)]
#[case(bare(Some("below")), "other", true)]
#[case(bare(Some("beside")), "lab", false)]
#[case(bare(Some("unknown")), "lab", false)]
fn those_who_are_named_are_refused_and_nobody_else(
    #[case] pod: Pod,
    #[case] namespace: &str,
    #[case] refused: bool,
) {
    let now = Instant::now();
    let queues = [
        full_queue("full", None, "t0"),
        queue("middle", Some("full")),
        queue("below", Some("middle")),
        queue("beside", None),
    ];
    let refusal = observed(&queues, now).refuse(&pod, namespace, now);
    assert_eq!(refusal.is_some(), refused, "{refusal:?}");
}

#[test]
fn the_controller_among_several_owners_counts_as_in_grouping() {
    let now = Instant::now();
    let backlogs = observed(&[full_queue("full", None, "t0")], now);
    let owner = |uid: &str, controller: Option<bool>| json!({"apiVersion": "v1", "kind": "Any", "name": "a", "uid": uid, "controller": controller});
    let of = |owners: [Value; 2]| pod(&json!({"ownerReferences": owners}));
    let controlled = of([owner("another", None), owner(OWNER, Some(true))]);
    assert!(backlogs.refuse(&controlled, "other", now).is_some());
    let other = of([owner(OWNER, None), owner("another", Some(true))]);
    assert!(backlogs.refuse(&other, "lab", now).is_none());
    let nobody = of([owner(OWNER, None), owner("another", None)]);
    assert!(backlogs.refuse(&nobody, "lab", now).is_some(), "like a pod that nobody owns");
}

#[test]
fn the_refusal_names_queue_backlog_and_most() {
    let now = Instant::now();
    let refusal = observed(&[full_queue("full", None, "t0")], now).refuse(&bare(None), "lab", now);
    insta::assert_snapshot!(refusal.unwrap(), @r#"the backlog of queue "full" is full: 117 pods wait and spec.maxPending.pods is 100; nothing is lost, try again when some of them have started"#);
}

#[test]
fn a_status_that_nobody_renews_is_believed_for_half_a_minute_of_our_own_clock() {
    let start = Instant::now();
    let backlogs = observed(&[full_queue("full", None, "t0")], start);
    let at = |now| backlogs.refuse(&bare(None), "lab", now).is_some();
    assert!(at(start + Duration::from_secs(29)));
    assert!(!at(start + LAPSE));
    backlogs.observe([full_queue("full", None, "t0")].iter(), start + LAPSE);
    assert!(!at(start + LAPSE), "another change of the object is no renewal");
    backlogs.observe([full_queue("full", None, "an hour ago")].iter(), start + LAPSE);
    assert!(at(start + LAPSE + LAPSE / 2), "whatever its writer's clock says");
}

#[test]
fn the_freshest_of_two_full_queues_counts() {
    let start = Instant::now();
    let backlogs =
        observed(&[full_queue("full", None, "t0"), full_queue("below", Some("full"), "t0")], start);
    let later = start + LAPSE;
    backlogs.observe(
        [full_queue("full", None, "t1"), full_queue("below", Some("full"), "t0")].iter(),
        later,
    );
    for pod in [bare(None), bare(Some("below")), owned_by(OWNER)] {
        assert!(backlogs.refuse(&pod, "lab", later).unwrap().contains("\"full\""));
    }
}

#[test]
fn without_a_most_or_a_status_nobody_is_refused() {
    let now = Instant::now();
    let mut switched_off = full_queue("a", None, "t0");
    switched_off.spec.max_pending = None;
    let mut drained = full_queue("b", None, "t0");
    drained.status = Some(QueueStatus::default());
    let backlogs = observed(&[switched_off, drained, queue("c", None)], now);
    for pod in [bare(None), bare(Some("a")), owned_by(OWNER)] {
        assert_eq!(backlogs.refuse(&pod, "lab", now), None);
    }
}

#[test]
fn a_cycle_of_parents_ends() {
    let now = Instant::now();
    let queues = [full_queue("a", Some("b"), "t0"), queue("b", Some("a"))];
    assert!(observed(&queues, now).refuse(&bare(Some("b")), "other", now).is_some());
}

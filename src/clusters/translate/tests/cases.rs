use rstest::rstest;
use serde_json::json;

use super::bench::*;
use crate::clusters::facts::{Observation, Watch};
use crate::clusters::pod::Pod;
use crate::clusters::strip;
use crate::grouping::Lookup;

#[test]
fn a_gated_pod_waits_for_its_owners_and_is_then_placed() {
    let mut bench = Bench::furnished();
    bench.owner(&owner("Job/j").queue("house"));
    bench.managed(&pod("p").by("Job/j"));
    assert_eq!(bench.pods(), ["ns/p: Gated in Job/j for unresolved Units"]);
    bench.answer_all();
    assert_eq!(bench.pods(), ["ns/p: Gated in Job/j for house Units"]);
}

#[test]
fn pods_of_one_owner_ask_for_it_once() {
    let mut bench = Bench::furnished();
    (0..5).for_each(|n| bench.managed(&pod(&format!("p{n}")).by("Job/j")));
    assert_eq!(bench.asked.len(), 1);
}

#[rstest]
#[case::unsaid(serde_json::Value::Null, false)]
#[case::half_an_hour(1_800.into(), false)]
#[case::longer(1_801.into(), true)]
fn who_asks_for_more_than_half_an_hour_to_end_is_known(
    #[case] seconds: serde_json::Value,
    #[case] slow: bool,
) {
    for field in ["/spec/terminationGracePeriodSeconds", "/metadata/deletionGracePeriodSeconds"] {
        let pod = pod("p").on("n1").set(field, seconds.clone());
        assert_eq!(pod.seen().facts.stage.ends_slowly(), slow, "{field}");
    }
}

#[rstest]
#[case::gated(pod("p"), "Gated")]
#[case::gated_beside_another_gate(
    pod("p").set("/spec/schedulingGates", json!([{"name": "x/y"}, {"name": "tidegate.dev/queue"}])),
    "Gated"
)]
#[case::condition_lags_behind(
    pod("p").open().set("/status/conditions", json!([{"type": "PodScheduled", "status": "False",
        "reason": "SchedulingGated"}])),
    "Released { held: false }"
)]
#[case::another_gate(
    pod("p").set("/spec/schedulingGates", json!([{"name": "x/y"}])),
    "Released { held: true }"
)]
#[case::bound(pod("p").on("n1"), "Bound n1 false")]
#[case::terminating(pod("p").on("n1").deleting(), "Bound n1 true")]
#[case::lingering(
    pod("p").on("n1").deleting().set("/metadata/deletionGracePeriodSeconds", 1_801.into()),
    "Bound n1 false"
)]
#[case::succeeded(pod("p").on("n1").phase("Succeeded"), "Ended")]
#[case::failed(pod("p").on("n1").phase("Failed").deleting(), "Ended")]
#[case::deleted_while_gated(pod("p").deleting(), "Dropped")]
#[case::failed_while_gated(pod("p").phase("Failed"), "Dropped")]
#[case::deleted_while_unbound(pod("p").open().deleting(), "Ended")]
fn where_a_pod_stands_is_read_from_its_spec(#[case] pod: Made, #[case] state: &str) {
    let mut bench = Bench::furnished();
    bench.managed(&pod);
    assert_eq!(bench.pods(), [format!("ns/p: {state} in Pod/p for house Units")]);
}

#[test]
fn what_a_gated_pod_says_about_its_release_is_not_believed() {
    let mut bench = Bench::furnished();
    bench.managed(&pod("p").released("vip", "Job/other").gated());
    assert_eq!(bench.pods(), ["ns/p: Gated in Pod/p for house Units"]);
}

#[test]
fn our_label_on_a_pod_that_we_never_let_go_means_nothing_where_no_queue_rules() {
    let mut bench = Bench::furnished();
    bench.see(seen_namespace(&namespace("ns").queue("house")));
    bench.managed(&pod("forged").on("n1"));
    assert_eq!(bench.pods(), ["foreign on n1: cpu:1000,pods:1"]);
    bench.managed(&pod("let-go").released("house", "Pod/let-go").on("n1"));
    assert!(
        bench
            .pods()
            .contains(&"ns/let-go: Bound n1 false in Pod/let-go for house Units".to_owned())
    );
}

#[test]
fn what_an_unmanaged_pod_says_about_its_release_is_not_believed() {
    let mut bench = Bench::furnished();
    bench.other(&plain_pod("p", "n1").released("vip", "Job/other").on("n1"));
    assert_eq!(bench.pods(), ["ns/p: Bound n1 false in Pod/p for house Units"]);
}

#[test]
fn after_a_restart_a_released_pod_keeps_the_queue_and_group_that_were_written_down() {
    let mut bench = Bench::furnished();
    bench.owner(&owner("Job/j").queue("new"));
    bench.managed(&pod("p").by("Job/j").released("old", "Job/j").on("n1"));
    assert_eq!(bench.pods(), ["ns/p: Bound n1 false in Job/j for old Units"]);
    bench.answer_all();
    assert_eq!(bench.pods(), ["ns/p: Bound n1 false in Job/j for old Units"]);
    bench.managed(&pod("q").by("Job/j").born(9));
    bench.answer_all();
    assert_eq!(bench.pods()[1], "ns/q: Gated in Job/j for old Units");
    assert!(bench.evidence().contains(&"queue old: kept since the first release".to_owned()));
}

#[test]
fn a_released_pod_whose_owners_are_gone_stays_in_the_group_that_was_written_down() {
    let mut bench = Bench::furnished();
    for name in ["p", "q"] {
        bench.managed(&pod(name).by("ReplicaSet/gone").released("a", "Deployment/d").on("n1"));
    }
    bench.answer_all();
    assert_eq!(bench.mirror.groups.len(), 1);
    assert_eq!(bench.pods()[0], "ns/p: Bound n1 false in Deployment/d for a Units");
}

#[test]
fn a_bound_pod_is_charged_where_queues_rule_and_foreign_elsewhere() {
    let mut bench = Bench::furnished();
    let bound = plain_pod("p", "n1");
    bench.other(&bound);
    assert_eq!(bench.pods(), ["ns/p: Bound n1 false in Pod/p for house Units"]);
    bench.see(seen_namespace(&namespace("ns").queue("house")));
    assert_eq!(bench.pods(), ["foreign on n1: cpu:1000,pods:1"]);
    bench.see(seen_namespace(&namespace("ns").managed()));
    assert_eq!(bench.pods(), ["ns/p: Bound n1 false in Pod/p for unnamed Units"]);
    bench.see(Observation::OtherPodGone(bound.id()));
    assert!(bench.pods().is_empty() && bench.mirror.pods.is_empty());
}

#[test]
fn waiting_pods_stay_ours_when_their_namespace_opts_out() {
    let mut bench = Bench::furnished();
    bench.managed(&pod("p"));
    bench.see(seen_namespace(&namespace("ns").queue("house")));
    assert_eq!(bench.pods(), ["ns/p: Gated in Pod/p for house Units"]);
}

#[rstest]
#[case::mirror(plain_pod("p", "n1").annotated("kubernetes.io/config.mirror", "x"))]
#[case::daemon(plain_pod("p", "n1").by("DaemonSet/d"))]
fn daemons_and_mirror_pods_are_foreign_everywhere(#[case] pod: Made) {
    let mut bench = Bench::furnished();
    bench.other(&pod);
    assert_eq!(bench.pods(), ["foreign on n1: cpu:1000,pods:1"]);
    assert!(bench.asked.is_empty());
}

#[test]
fn a_gated_pod_that_claims_a_daemon_set_is_no_daemon() {
    let mut bench = Bench::furnished();
    bench.managed(&pod("p").by("DaemonSet/d"));
    bench.answer_all();
    assert_eq!(bench.pods(), ["ns/p: Gated in Pod/p for house Units"]);
}

#[test]
fn system_namespaces_never_opt_in() {
    let mut bench = Bench::furnished();
    bench.see(seen_namespace(&namespace("kube-system").managed()));
    bench.other(&plain_pod("p", "n1").set("/metadata/namespace", json!("kube-system")));
    assert_eq!(bench.pods(), ["foreign on n1: cpu:1000,pods:1"]);
}

#[test]
fn foreign_load_is_summed_by_node_and_told_again_when_the_node_comes_back() {
    let mut bench = Bench::furnished();
    bench.see(seen_namespace(&namespace("ns")));
    for name in ["p", "q"] {
        bench.other(&plain_pod(name, "n1"));
    }
    assert_eq!(bench.pods(), ["foreign on n1: cpu:2000,pods:2"]);
    bench.see(Observation::NodeGone("n1".into()));
    assert!(bench.pods().is_empty());
    bench.see(seen_node(&node("n1")));
    assert_eq!(bench.pods(), ["foreign on n1: cpu:2000,pods:2"]);
    bench.see(Observation::OtherPodGone(plain_pod("p", "n1").id()));
    assert_eq!(bench.pods(), ["foreign on n1: cpu:1000,pods:1"]);
}

#[test]
fn a_pod_made_again_under_its_name_is_another_pod() {
    let mut bench = Bench::furnished();
    let again = pod("p").set("/metadata/uid", json!(uid_of("second")));
    bench.managed(&pod("p"));
    bench.managed(&again);
    assert_eq!(bench.mirror.pods.len(), 2);
    bench.see(Observation::ManagedPodGone(pod("p").id()));
    assert_eq!(bench.mirror.pods.keys().copied().collect::<Vec<_>>(), [again.id()]);
}

#[test]
fn a_pod_that_changes_lists_is_counted_once_whatever_list_is_first() {
    let mut bench = Bench::furnished();
    let (plain, labelled) = (plain_pod("p", "n1"), pod("p").on("n1"));
    bench.other(&plain);
    bench.managed(&labelled);
    assert_eq!(bench.mirror.pods.len(), 1);
    bench.see(Observation::OtherPodGone(plain.id()));
    assert_eq!(bench.mirror.pods.len(), 1);
    bench.other(&plain);
    bench.see(Observation::ManagedPodGone(plain.id()));
    assert_eq!(bench.mirror.pods.len(), 1);
}

#[test]
fn what_a_new_list_does_not_mention_is_gone() {
    let mut bench = Bench::furnished();
    bench.managed(&pod("p"));
    bench.managed(&pod("q"));
    bench.other(&plain_pod("r", "n1"));
    bench.list(Watch::ManagedPods, vec![Observation::ManagedPod(pod("q").seen())]);
    bench.list(Watch::OtherPods, vec![]);
    assert_eq!(bench.pods(), ["ns/q: Gated in Pod/q for house Units"]);
    bench.list(Watch::Nodes, vec![]);
    bench.list(Watch::Queues, vec![]);
    assert!(bench.mirror.nodes.is_empty() && bench.mirror.queues.is_empty());
    bench.list(Watch::Namespaces, vec![]);
    assert_eq!(bench.pods(), ["ns/q: Gated in Pod/q for unnamed Units"]);
}

#[test]
fn a_list_that_broke_off_and_began_again_forgets_what_it_mentioned() {
    let mut bench = Bench::furnished();
    bench.managed(&pod("p"));
    bench.see(Observation::ListStarted(Watch::ManagedPods));
    bench.managed(&pod("p"));
    bench.list(Watch::ManagedPods, vec![]);
    assert!(bench.mirror.pods.is_empty());
}

/// A bench whose lists are complete but for the pods that wait.
fn bench_before_pods() -> Bench {
    let mut bench = Bench::new();
    bench.list(Watch::Namespaces, vec![seen_namespace(&namespace("ns").managed().queue("house"))]);
    bench.list(Watch::Nodes, vec![seen_node(&node("n1"))]);
    bench.list(Watch::Queues, vec![seen_queue(&queue("house"))]);
    bench.list(Watch::OtherPods, vec![]);
    bench
}

fn listed(pod: &Made) -> Observation {
    Observation::ManagedPod(pod.seen())
}

#[rstest]
#[case::waiting(pod("p"))]
#[case::running_without_a_record(pod("p").on("n1"))]
fn synced_waits_for_the_owners_of_pods_in_the_first_lists(#[case] pod: Made) {
    let mut bench = bench_before_pods();
    bench.owner(&owner("Job/j").by("JobSet/s"));
    bench.owner(&owner("JobSet/s"));
    bench.list(Watch::ManagedPods, vec![listed(&pod.by("Job/j"))]);
    for owner in ["Job/j", "JobSet/s"] {
        assert_eq!(bench.mirror.synced, 0, "{owner} is not known");
        let key = bench.asked.pop().unwrap();
        assert_eq!(key.to_string(), owner);
        bench.see(Observation::Owner(key.clone(), bench.answer(&key)));
    }
    assert_eq!(bench.mirror.synced, 1);
}

#[test]
fn synced_waits_neither_for_what_cannot_be_read_nor_for_what_came_later() {
    let mut bench = bench_before_pods();
    let lists = vec![
        listed(&pod("p").by("Job/slow")),
        listed(&pod("gone").by("Job/gone")),
        listed(&pod("runs").by("Job/runs").released("house", "Job/runs")),
    ];
    bench.list(Watch::ManagedPods, lists);
    bench.managed(&pod("late").by("Job/late"));
    let slow = bench.asked.iter().find(|key| key.to_string() == "Job/slow").cloned();
    bench.see(Observation::Owner(slow.unwrap(), Lookup::Pending));
    assert_eq!(bench.mirror.synced, 0);
    bench.see(Observation::ManagedPodGone(pod("gone").id()));
    assert_eq!(bench.mirror.synced, 1);
}

#[test]
fn synced_is_said_once_after_all_first_lists() {
    let mut bench = Bench::new();
    for watch in Watch::ALL {
        assert_eq!(bench.mirror.synced, 0);
        bench.list(watch, vec![]);
    }
    assert_eq!(bench.mirror.synced, 1);
    bench.list(Watch::Nodes, vec![]);
    assert_eq!(bench.mirror.synced, 1);
}

#[test]
fn what_a_queue_used_before_is_told_once_and_last_of_what_was_listed_first() {
    let past = |amount: &str| {
        let past = json!({"asOf": "2026-01-01T00:00:01.500Z", "usage": {"cpu": amount}});
        queue("house").set("/status/pastUsage", past)
    };
    let mut bench = Bench::new();
    for watch in Watch::ALL {
        assert!(bench.mirror.used.is_empty());
        let queues = if watch == Watch::Queues { vec![seen_queue(&past("1500m"))] } else { vec![] };
        bench.list(watch, queues);
    }
    let told = bench.mirror.used.values().next().unwrap().clone();
    assert_eq!(told.at % 60_000, 1_500);
    assert_eq!(told.whole.get(crate::engine::ResourceId::CPU), 1_500_000_000);
    assert!(told.own.is_empty());
    bench.mirror.used.clear();
    bench.translator.start_again();
    for watch in Watch::ALL {
        let queues = if watch == Watch::Queues { vec![seen_queue(&past("9"))] } else { vec![] };
        bench.list(watch, queues);
    }
    assert!(bench.mirror.used.is_empty(), "we know it better by now");
}

#[rstest]
#[case::no_time(json!({"asOf": "soon", "usage": {"cpu": "1"}}))]
#[case::no_amount(json!({"asOf": "2026-01-01T00:00:00Z", "usage": {"cpu": "much"}}))]
#[case::no_object(json!("much"))]
fn a_past_that_cannot_be_read_is_forgotten(#[case] past: serde_json::Value) {
    let queue = queue("house").set("/status/pastUsage", past).set("/spec/weight", json!(3));
    let facts = strip::queue(&queue.typed());
    assert_eq!((facts.past, facts.weight, facts.malformed), (None, 3, None));
}

#[test]
fn after_a_start_again_all_is_listed_anew_and_only_what_changed_is_told() {
    let mut bench = bench_before_pods();
    bench.list(Watch::ManagedPods, vec![listed(&pod("stays")), listed(&pod("opened"))]);
    assert_eq!(bench.mirror.synced, 1);
    let told = bench.pods();
    bench.translator.start_again();
    bench.list(Watch::Namespaces, vec![seen_namespace(&namespace("ns").managed().queue("house"))]);
    bench.list(Watch::Nodes, vec![seen_node(&node("n1"))]);
    bench.list(Watch::OtherPods, vec![]);
    bench.list(Watch::Queues, vec![seen_queue(&queue("house"))]);
    assert_eq!((bench.mirror.synced, bench.pods()), (1, told));
    let opened = pod("opened").released("house", "Pod/opened").on("n1");
    bench.list(Watch::ManagedPods, vec![listed(&opened)]);
    assert_eq!(bench.mirror.synced, 2);
    assert_eq!(bench.pods().len(), 1, "{:?}", bench.pods());
    assert!(bench.pods().iter().all(|pod| pod.starts_with("ns/opened: Bound")));
}

#[test]
fn a_queue_is_closed_to_namespaces_that_it_does_not_select() {
    let mut bench = Bench::furnished();
    bench.managed(&pod("p").queue("a"));
    assert_eq!(bench.pods(), ["ns/p: Gated in Pod/p for a Units"]);
    let selector = json!({"matchLabels": {"team": "x"}});
    bench.see(seen_queue(&queue("a").set("/spec/namespaces", selector)));
    assert_eq!(bench.pods(), ["ns/p: Gated in Pod/p for a forbidden by Namespace Units"]);
    bench.see(seen_namespace(&namespace("ns").managed().label("team", "x")));
    assert_eq!(bench.pods(), ["ns/p: Gated in Pod/p for a Units"]);
    bench.see(Observation::QueueGone("a".into()));
    assert_eq!(bench.pods(), ["ns/p: Gated in Pod/p for a Units"]);
}

#[test]
fn a_queue_is_closed_to_priority_classes_that_it_does_not_list() {
    let mut bench = Bench::furnished();
    bench.see(seen_queue(&queue("house").set("/spec/priorityClasses", json!(["low"]))));
    let classed = |class: &str| pod("p").set("/spec/priorityClassName", json!(class));
    bench.managed(&classed("low"));
    assert_eq!(bench.pods(), ["ns/p: Gated in Pod/p for house Units"]);
    for other in [classed("high"), pod("p")] {
        bench.managed(&other);
        assert_eq!(
            bench.pods(),
            ["ns/p: Gated in Pod/p for house forbidden by PriorityClass Units"]
        );
    }
}

#[rstest]
#[case::negative(json!({"limit": {"cpu": "-1"}}))]
#[case::no_quantity(json!({"guaranteed": {"cpu": "much"}}))]
#[case::no_number(json!({"limit": {"cpu": true}}))]
#[case::unknown_word(json!({"stop": "Explode"}))]
fn a_queue_that_cannot_be_understood_is_malformed_and_not_empty(#[case] spec: serde_json::Value) {
    let mut bench = Bench::new();
    bench.see(seen_queue(&queue("q").set("/spec", spec)));
    assert!(bench.mirror.queues.values().all(|text| text.ends_with("malformed=true")));
}

#[test]
fn a_queue_is_told_with_its_parent_by_name() {
    let mut bench = Bench::new();
    let spec = json!({"parent": "up", "weight": 3, "limit": {"cpu": "1500m", "memory": "1Ki"},
        "guaranteed": {"x.io/gpu": 2}, "order": "Strict", "stop": "Hold"});
    bench.see(seen_queue(&queue("q").set("/spec", spec)));
    assert_eq!(
        bench.mirror.queues.values().collect::<Vec<_>>(),
        [
            "parent=Some(\"up\") weight=3 own=x.io/gpu:2 most=cpu:1500,memory:1024 Strict hold=true malformed=false"
        ]
    );
}

#[test]
fn trees_joined_by_name_are_paid_by_the_queue_of_the_oldest_pod() {
    let mut bench = Bench::furnished();
    let join =
        |name: &str, queue: &str| pod(name).queue(queue).annotated("tidegate.dev/group", "g");
    bench.managed(&join("young", "b").born(9));
    assert_eq!(bench.pods(), ["ns/young: Gated in Pod/young for b Units"]);
    bench.managed(&join("old", "a").born(1).annotated("tidegate.dev/min-count", "2"));
    assert_eq!(
        bench.pods(),
        [
            "ns/old: Gated in Pod/old for a AtLeast(2)",
            "ns/young: Gated in Pod/old for a AtLeast(2)"
        ]
    );
    assert!(bench.warnings().iter().any(|sentence| sentence.contains("different queues (a, b)")));
    assert_eq!(bench.chains(), ["Pod/old", "Pod/young"]);
}

#[test]
fn chains_hold_what_starts_runs_above_the_root() {
    let mut bench = Bench::furnished();
    let schedule = json!({"schedule": "* * * * *"});
    bench.owner(&owner("CronJob/night").set("/spec", schedule));
    bench.owner(&owner("Job/night-1").by("CronJob/night"));
    bench.managed(&pod("a").by("Job/night-1"));
    bench.answer_all();
    assert_eq!(bench.pods(), ["ns/a: Gated in Job/night-1 for house Units"]);
    assert_eq!(bench.chains(), ["CronJob/night Job/night-1"]);
}

#[test]
fn what_keeps_a_pod_from_a_node_is_told_until_it_has_one() {
    let mut bench = Bench::furnished();
    let said = |bench: &Bench| bench.mirror.hindrances.values().cloned().collect::<Vec<_>>();
    let two = json!([{"name": "tidegate.dev/queue"}, {"name": "example.com/a"}]);
    bench.managed(&pod("a").set("/spec/schedulingGates", two));
    assert_eq!(said(&bench), [""; 0], "our own gate says why by itself");
    let foreign = json!([{"name": "example.com/a"}, {"name": "example.com/b"}]);
    bench.managed(&pod("a").set("/spec/schedulingGates", foreign));
    let gates = "held by scheduling gates of others: example.com/a, example.com/b";
    assert_eq!(said(&bench), [gates]);
    let condition = |status: &str| json!([{"type": "PodScheduled", "status": status, "message": "0/3 nodes are available"}]);
    let open = pod("a").released("house", "Pod/a");
    bench.managed(&open);
    assert_eq!(said(&bench), [""; 0], "no scheduler has said anything");
    let stale = json!([{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated",
        "message": "Scheduling is blocked due to non-empty scheduling gates"}]);
    bench.managed(&open.clone().set("/status/conditions", stale));
    assert_eq!(said(&bench), [""; 0], "no scheduler has looked since the gate went");
    bench.managed(&open.clone().set("/status/conditions", condition("False")));
    assert_eq!(said(&bench), ["0/3 nodes are available"]);
    bench.managed(&open.on("n").set("/status/conditions", condition("False")));
    assert_eq!(said(&bench), [""; 0], "a condition lags behind the node");
}

#[test]
fn how_many_started_together_is_known_from_the_release() {
    let mut bench = Bench::furnished();
    let all = |name: &str| pod(name).by("Job/j").annotated("tidegate.dev/gang", "all");
    bench.owner(&owner("Job/j"));
    bench.managed(&all("p"));
    bench.managed(&all("q").born(1));
    bench.answer_all();
    assert_eq!(bench.pods()[1], "ns/q: Gated in Job/j for house All");
    let mut started = all("p").released("house", "Job/j");
    let record = &mut started.0["metadata"]["annotations"]["tidegate.dev/released"];
    *record = record.as_str().unwrap().replace("\"size\":1", "\"size\":2").into();
    bench.managed(&started);
    assert_eq!(bench.pods()[1], "ns/q: Gated in Job/j for house AtLeast(2)");
}

#[test]
fn resources_beyond_the_cap_share_one_number() {
    let mut bench = Bench::furnished();
    let wide = |from: usize| {
        let requests: serde_json::Map<_, _> =
            (from..from + 900).map(|n| (format!("x.io/r{n}"), json!("1"))).collect();
        let containers = json!([{"name": "c", "resources": {"requests": requests}}]);
        pod(&format!("p{from}")).set("/spec/containers", containers)
    };
    for from in [0, 900, 1_800] {
        bench.managed(&wide(from));
    }
    assert_eq!(bench.mirror.resources.len(), 1_001);
    let others: i128 =
        bench.mirror.pods.values().map(|pod| pod.cost.get(crate::engine::ResourceId(1_000))).sum();
    assert_eq!(others, 2_700 - (1_000 - 4));
}

#[test]
fn nothing_is_said_twice() {
    let mut bench = Bench::furnished();
    bench.managed(&pod("p"));
    let again = [
        Observation::ManagedPod(pod("p").phase("Pending").seen()),
        seen_node(&node("n1").label("heartbeat", "2")),
        seen_namespace(&namespace("ns").managed().queue("house")),
        seen_queue(&queue("house")),
    ];
    for observation in again {
        assert!(bench.translator.observe(0, observation).inputs.is_empty());
    }
}

#[test]
fn a_pod_that_is_resized_while_it_waits_costs_the_new_amount() {
    let mut bench = Bench::furnished();
    bench.managed(&pod("p"));
    bench.managed(&pod("p").set("/spec/containers/0/resources/requests/cpu", json!("3")));
    let facts = bench.mirror.facts();
    assert!(facts.iter().any(|fact| fact.contains("cost cpu:3000,pods:1")), "{facts:?}");
}

#[test]
fn pods_move_between_named_groups() {
    let mut bench = Bench::furnished();
    let join = |name: &str, group: &str| pod(name).annotated("tidegate.dev/group", group);
    bench.managed(&join("p", "one"));
    bench.managed(&join("q", "two"));
    bench.managed(&join("p", "two"));
    bench.managed(&join("q", "one"));
    assert_eq!(bench.mirror.groups.len(), 2);
    bench.managed(&join("q", "two"));
    assert_eq!(bench.mirror.groups.len(), 1);
}

#[test]
fn the_record_of_a_release_is_read_or_ignored_whole() {
    let record = |text: &str| {
        let pod: Pod = pod("p").open().annotated("tidegate.dev/released", text).typed();
        strip::pod(&pod).facts.released
    };
    let whole = |pod: &str| {
        json!({"pod": pod, "queue": "a", "root": "u", "group": "Job/j", "size": 3, "time": "t",
            "decision": 1, "x": 1})
        .to_string()
    };
    assert!(record(&whole(&uid_of("Pod/p"))).is_some());
    assert!(record(&whole("another pod's uid")).is_none());
    assert!(record(r#"{"queue":"a"}"#).is_none());
    assert!(record("[]").is_none());
    assert!(record(&"[".repeat(5_000)).is_none());
}

#[test]
fn a_uid_is_its_bits_and_any_other_text_a_hash() {
    let bits = strip::uid("0d2f1a5e-7c3b-4a58-9f10-1234567890ab").0;
    assert_eq!(bits, 0x0d2f_1a5e_7c3b_4a58_9f10_1234_5678_90ab);
    let others = ["", "+", "forged", "0d2f1a5e-7c3b-4a58-9f10-1234567890a", "é"];
    let different: std::collections::BTreeSet<_> = others.map(strip::uid).into_iter().collect();
    assert_eq!(different.len(), others.len());
}

//! A group is treated as it began, whoever joins it later and whatever becomes of its marks.

use serde_json::json;

use super::bench::*;
use crate::engine::Gang;

const GROUP: &str = "tidegate.dev/group";
const MIN_COUNT: &str = "tidegate.dev/min-count";
const PREEMPTIBLE: &str = "tidegate.dev/preemptible";
const SINGLETON: &str = "tidegate.dev/singleton";

/// A pod of group `g`, with a queue of its own.
fn member(name: &str) -> Made {
    pod(name).queue("a").annotated(GROUP, "g")
}

/// Let go at a second of the same minute as two that start together.
fn let_go(pod: Made, second: u8) -> Made {
    recorded(pod, second, json!({ "joined": "g", "minCount": 2, "preemptible": true }))
}

fn recorded(pod: Made, second: u8, terms: serde_json::Value) -> Made {
    let mut pod = pod.released("a", "Pod/p");
    let text = &mut pod.0["metadata"]["annotations"]["tidegate.dev/released"];
    let mut record: serde_json::Value = serde_json::from_str(text.as_str().unwrap()).unwrap();
    record["time"] = json!(format!("2026-01-01T00:01:{second:02}Z"));
    record["terms"] = terms;
    *text = record.to_string().into();
    pod
}

/// How the one group is treated.
fn treated(bench: &Bench) -> (Gang, bool, bool) {
    let groups: Vec<_> = bench.mirror.groups.values().collect();
    let [group] = groups[..] else { panic!("{} groups", groups.len()) };
    (group.gang, group.non_preemptible, group.singleton.is_some())
}

#[test]
fn who_joins_a_group_that_has_begun_changes_nothing_for_the_others() {
    let mut bench = Bench::furnished();
    for (name, second) in [("p", 1), ("q", 2)] {
        bench.managed(&let_go(member(name), second).on("n1"));
    }
    let greedy = member("joins").annotated(MIN_COUNT, "1000").label(PREEMPTIBLE, "false");
    bench.managed(&greedy.label(SINGLETON, "key").born(1));
    assert_eq!(treated(&bench), (Gang::AtLeast(2), false, false));
    let said = "at least 2 together, may be evicted: kept since it began, whoever joined later";
    assert!(bench.evidence().contains(&said.to_owned()), "{:?}", bench.evidence());
}

#[test]
fn while_nothing_has_begun_the_most_that_its_pods_ask_for_counts() {
    let mut bench = Bench::furnished();
    bench.managed(&member("p").annotated(MIN_COUNT, "2"));
    bench.managed(&member("q").annotated(MIN_COUNT, "3").label(PREEMPTIBLE, "false"));
    assert_eq!(treated(&bench), (Gang::AtLeast(3), true, false));
}

#[test]
fn marks_that_change_after_the_start_mean_nothing_before_and_after_a_restart() {
    let marked = |pod: Made| pod.annotated(MIN_COUNT, "9").label(PREEMPTIBLE, "false");
    let before = let_go(member("p"), 1).on("n1");
    let after = marked(before.clone());
    let mut lives_on = Bench::furnished();
    lives_on.managed(&before);
    lives_on.managed(&after);
    let mut restarted = Bench::furnished();
    restarted.managed(&after);
    assert_eq!(treated(&lives_on), (Gang::AtLeast(2), false, false));
    assert_eq!(treated(&restarted), treated(&lives_on));
}

#[test]
fn a_pod_stays_in_the_group_in_which_it_was_let_go_whatever_its_mark_says_now() {
    let mut bench = Bench::furnished();
    bench.managed(&let_go(member("p"), 1).annotated(GROUP, "other").on("n1"));
    bench.managed(&member("q"));
    assert_eq!(treated(&bench), (Gang::AtLeast(2), false, false), "one group of both");
    let alone = json!({ "preemptible": true });
    bench.managed(&recorded(member("r"), 1, alone).on("n1"));
    assert_eq!(bench.mirror.groups.len(), 2, "what joined nobody joins nobody later");
}

#[test]
fn what_it_began_with_is_known_from_the_record_alone() {
    let mut bench = Bench::furnished();
    let terms = json!({ "minCount": 4, "preemptible": false, "singleton": "key", "topology": "x" });
    bench.managed(&recorded(member("p"), 1, terms).on("n1"));
    assert_eq!(treated(&bench), (Gang::AtLeast(4), true, true));
    let group = bench.mirror.groups.values().next().unwrap();
    assert!(group.topology.is_some());
}

#[test]
fn of_several_records_that_of_the_first_release_counts() {
    let mut bench = Bench::furnished();
    let later = json!({ "joined": "g", "minCount": 1000, "preemptible": false });
    bench.managed(&recorded(member("older").born(1), 9, later).on("n1"));
    bench.managed(&let_go(member("younger").born(5), 1).on("n1"));
    assert_eq!(treated(&bench), (Gang::AtLeast(2), false, false));
}

#[test]
fn when_nothing_is_left_of_what_began_those_that_wait_are_asked_again() {
    let mut bench = Bench::furnished();
    let began = let_go(member("p"), 1).on("n1");
    bench.managed(&began);
    bench.managed(&member("q").annotated(MIN_COUNT, "3"));
    bench.see(crate::clusters::facts::Observation::ManagedPodGone(began.id()));
    assert_eq!(treated(&bench), (Gang::AtLeast(3), false, false));
}

#[test]
fn the_record_of_a_version_that_wrote_no_terms_leaves_them_to_the_marks() {
    let mut bench = Bench::furnished();
    let marked = member("p").annotated(MIN_COUNT, "3").label(PREEMPTIBLE, "false");
    bench.managed(&marked.label(SINGLETON, "key").released("a", "Pod/p").on("n1"));
    assert_eq!(treated(&bench), (Gang::AtLeast(3), true, true));
}

#[test]
fn a_gang_that_nobody_decided_on_lacks_nothing_of_its_size() {
    let mut bench = Bench::furnished();
    for name in ["p", "q"] {
        let runs = plain_pod(name, "n1").annotated(GROUP, "g").annotated(MIN_COUNT, "1000");
        bench.other(&runs);
    }
    assert_eq!(treated(&bench), (Gang::AtLeast(2), false, false));
    bench.managed(&member("joins").label(PREEMPTIBLE, "false"));
    assert_eq!(treated(&bench), (Gang::AtLeast(2), false, false));
}

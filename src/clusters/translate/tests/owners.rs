//! Owners are read, read again, and forgotten.

use super::bench::*;
use crate::clusters::facts::Observation;
use crate::grouping::Lookup;

#[test]
fn a_relabelled_root_moves_waiting_work_within_seconds() {
    let mut bench = Bench::furnished();
    bench.owner(&owner("Job/j").queue("a"));
    bench.managed(&pod("p").by("Job/j"));
    bench.answer_all();
    bench.owner(&owner("Job/j").queue("b"));
    bench.pass(1_900);
    assert_eq!(bench.pods(), ["ns/p: Gated in Job/j for a Units"]);
    bench.pass(300);
    assert_eq!(bench.pods(), ["ns/p: Gated in Job/j for b Units"]);
}

#[test]
fn a_root_relabelled_after_the_first_release_moves_nothing() {
    let mut bench = Bench::furnished();
    bench.owner(&owner("Job/j").queue("a"));
    bench.managed(&pod("p").by("Job/j"));
    bench.managed(&pod("q").by("Job/j").born(1));
    bench.answer_all();
    bench.managed(&pod("p").by("Job/j").released("a", "Job/j"));
    bench.owner(&owner("Job/j").queue("b"));
    bench.pass(5_000);
    assert_eq!(
        bench.pods(),
        ["ns/p: Released { held: false } in Job/j for a Units", "ns/q: Gated in Job/j for a Units"]
    );
}

#[test]
fn an_adoption_seen_after_the_first_release_splits_no_group() {
    let mut bench = Bench::furnished();
    bench.owner(&owner("DaskWorkerGroup/w"));
    bench.managed(&pod("p").by("DaskWorkerGroup/w"));
    bench.managed(&pod("q").by("DaskWorkerGroup/w").born(1));
    bench.answer_all();
    bench.now = 5_000;
    let reads = bench.translator.due(bench.now);
    bench.managed(&pod("p").by("DaskWorkerGroup/w").released("house", "DaskWorkerGroup/w"));
    bench.owner(&owner("DaskWorkerGroup/w").by("DaskCluster/c"));
    bench.owner(&owner("DaskCluster/c"));
    bench.asked.extend(reads);
    bench.answer_all();
    assert_eq!(
        bench.pods(),
        [
            "ns/p: Released { held: false } in DaskWorkerGroup/w for house Units",
            "ns/q: Gated in DaskWorkerGroup/w for house Units"
        ]
    );
}

#[test]
fn what_changed_while_work_ran_counts_when_none_of_it_is_left() {
    let mut bench = Bench::furnished();
    bench.owner(&owner("Job/j"));
    bench.managed(&pod("p").by("Job/j").released("house", "Job/j"));
    bench.managed(&pod("q").by("Job/j").born(1));
    bench.answer_all();
    bench.see(seen_namespace(&namespace("ns").managed().queue("other")));
    assert_eq!(bench.pods()[1], "ns/q: Gated in Job/j for house Units");
    bench.see(Observation::ManagedPodGone(pod("p").id()));
    assert_eq!(bench.pods(), ["ns/q: Gated in Job/j for other Units"]);
}

#[test]
fn when_all_that_was_released_is_gone_the_rest_follows_its_root_again() {
    let mut bench = Bench::furnished();
    bench.owner(&owner("Job/j").queue("a"));
    bench.managed(&pod("p").by("Job/j").released("a", "Job/j"));
    bench.managed(&pod("q").by("Job/j").born(1));
    bench.answer_all();
    bench.see(Observation::ManagedPodGone(pod("p").id()));
    bench.owner(&owner("Job/j").queue("b"));
    bench.pass(3_000);
    assert_eq!(bench.pods(), ["ns/q: Gated in Job/j for b Units"]);
}

#[test]
fn late_adoption_merges_the_groups() {
    let mut bench = Bench::furnished();
    bench.owner(&owner("DaskWorkerGroup/w"));
    bench.owner(&owner("DaskCluster/c").queue("a"));
    bench.managed(&pod("worker").by("DaskWorkerGroup/w"));
    bench.managed(&pod("scheduler").by("DaskCluster/c"));
    bench.answer_all();
    assert_eq!(bench.mirror.groups.len(), 2);
    bench.owner(&owner("DaskWorkerGroup/w").by("DaskCluster/c"));
    bench.pass(3_000);
    assert_eq!(
        bench.pods(),
        [
            "ns/scheduler: Gated in DaskCluster/c for a Units",
            "ns/worker: Gated in DaskCluster/c for a Units"
        ]
    );
    assert_eq!(bench.mirror.group_names.len(), 1);
}

#[test]
fn a_deleted_owner_is_noticed() {
    let mut bench = Bench::furnished();
    bench.owner(&owner("Job/j").queue("a"));
    bench.managed(&pod("p").by("Job/j"));
    bench.answer_all();
    bench.owners.clear();
    bench.pass(3_000);
    assert_eq!(bench.pods(), ["ns/p: Gated in Pod/p for house Units"]);
}

#[test]
fn a_right_granted_later_is_used() {
    let mut bench = Bench::furnished();
    bench.owners.insert("Gadget/g".into(), Lookup::Forbidden("the rule".into()));
    bench.managed(&pod("p").by("Gadget/g"));
    bench.answer_all();
    assert_eq!(bench.pods(), ["ns/p: Gated in Gadget/g for house Units"]);
    assert!(bench.evidence().iter().any(|sentence| sentence.contains("the rule")));
    bench.owner(&owner("Gadget/g").queue("a"));
    bench.pass(3_000);
    assert_eq!(bench.pods(), ["ns/p: Gated in Gadget/g for a Units"]);
}

#[test]
fn a_failed_look_up_is_repeated_with_growing_waits_and_loses_nothing() {
    let mut bench = Bench::furnished();
    bench.owners.insert("Job/j".into(), Lookup::Pending);
    bench.managed(&pod("p").by("Job/j"));
    bench.answer_all();
    let mut asked_at = Vec::new();
    for now in (0..60_000).step_by(50) {
        for key in bench.translator.due(now) {
            asked_at.push(now);
            bench.translator.observe(now, Observation::Owner(key, Lookup::Pending));
        }
    }
    let waits: Vec<_> = asked_at.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(waits, [500, 1_000, 2_000, 4_000, 8_000, 16_000]);
    bench.now = 60_000;
    bench.owner(&owner("Job/j").queue("a"));
    bench.pass(31_000);
    assert_eq!(bench.pods(), ["ns/p: Gated in Job/j for a Units"]);
}

#[test]
fn a_failed_second_reading_leaves_what_was_known() {
    let mut bench = Bench::furnished();
    bench.owner(&owner("Job/j").queue("a"));
    bench.managed(&pod("p").by("Job/j"));
    bench.answer_all();
    bench.owners.insert("Job/j".into(), Lookup::Pending);
    bench.pass(10_000);
    assert_eq!(bench.pods(), ["ns/p: Gated in Job/j for a Units"]);
}

#[test]
fn owners_of_many_waiting_groups_are_read_in_turn_and_never_too_often() {
    let mut bench = Bench::furnished();
    for n in 0..100 {
        let job = format!("Job/j{n}");
        bench.owner(&owner(&job));
        bench.managed(&pod(&format!("p{n}")).by(&job));
    }
    bench.answer_all();
    let mut reads = std::collections::BTreeMap::<String, Vec<i64>>::new();
    for now in (1_000..11_000).step_by(100) {
        for key in bench.translator.due(now) {
            reads.entry(key.to_string()).or_default().push(now);
            let answer = bench.answer(&key);
            bench.translator.observe(now, Observation::Owner(key, answer));
        }
    }
    let total: usize = reads.values().map(Vec::len).sum();
    assert!((180..=210).contains(&total), "{total} reads in ten seconds");
    assert_eq!(reads.len(), 100, "some were never read");
    assert!(reads.values().flat_map(|at| at.windows(2)).all(|pair| pair[1] - pair[0] >= 2_000));
}

#[test]
fn nothing_is_read_again_for_groups_that_do_not_wait() {
    let mut bench = Bench::furnished();
    bench.owner(&owner("Job/j"));
    bench.managed(&pod("p").by("Job/j").released("house", "Job/j").on("n1"));
    bench.managed(&pod("q").by("Job/j"));
    bench.other(&plain_pod("r", "n1").by("Job/k"));
    bench.answer_all();
    assert!((0..100).all(|tick| bench.translator.due(tick * 100).is_empty()));
}

#[test]
fn owners_that_nobody_leads_to_any_more_are_forgotten() {
    let mut bench = Bench::furnished();
    bench.owner(&owner("Job/j"));
    bench.managed(&pod("p").by("Job/j"));
    bench.answer_all();
    bench.see(Observation::ManagedPodGone(pod("p").id()));
    assert!(bench.mirror.groups.is_empty() && bench.mirror.group_names.is_empty());
    bench.managed(&pod("q").by("Job/j"));
    assert_eq!(bench.asked.len(), 1, "read anew");
}

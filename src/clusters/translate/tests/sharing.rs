//! What many pods have alike is in memory once: there may be a hundred thousand of them.

use std::sync::Arc;

use super::super::{Group, Pod, Record, Seat, Translator};
use super::bench::{Bench, Made, pod};
use crate::engine::event::{Address, GroupName};
use crate::grouping::{Findings, Resolution};

/// What is said of a pod's place.
fn findings<'a>(translator: &'a Translator, made: &Made) -> &'a Arc<Findings> {
    match &translator.pods[&made.id()].seat {
        Seat::Member(member, _) => &member.face.placement().findings,
        seat => panic!("{seat:?}"),
    }
}

#[test]
fn pods_of_nobody_in_one_namespace_share_all_but_their_names() {
    let mut bench = Bench::furnished();
    let (one, two) = (pod("one"), pod("two"));
    bench.managed(&one);
    bench.managed(&two);
    let translator = &bench.translator;
    assert!(Arc::ptr_eq(findings(translator, &one), findings(translator, &two)));
    let records = [&one, &two].map(|made| translator.pods[&made.id()].managed.as_ref().unwrap());
    let [one, two] = records;
    assert!(Arc::ptr_eq(&one.cost, &two.cost));
    assert!(Arc::ptr_eq(&one.facts.metadata, &two.facts.metadata));
    assert!(Arc::ptr_eq(&one.address.namespace, &two.address.namespace));
}

#[test]
fn a_pod_that_changes_keeps_the_address_that_others_were_told() {
    let mut bench = Bench::furnished();
    let made = pod("one");
    bench.managed(&made);
    let address = |bench: &Bench| {
        let record = bench.translator.pods[&made.id()].managed.as_ref().unwrap();
        (Arc::clone(&record.address), record.facts.priority)
    };
    let before = address(&bench);
    bench.managed(&made.clone().set("/spec/priority", 7.into()));
    let after = address(&bench);
    assert_eq!((before.1, after.1), (0, 7));
    assert!(Arc::ptr_eq(&before.0, &after.0));
}

#[test]
fn what_each_waiting_pod_and_its_group_take_is_no_more_than_it_was() {
    let sizes = [size_of::<Pod>(), size_of::<Record>(), size_of::<Group>()];
    assert!(sizes.iter().sum::<usize>() <= 104 + 88 + 240, "{sizes:?}");
    let shared = [size_of::<Address>(), size_of::<GroupName>(), size_of::<Resolution>()];
    assert!(shared.iter().sum::<usize>() <= 56 + 128 + 104, "{shared:?}");
}

//! What many pods have alike is in memory once: there may be a hundred thousand of them.

use std::sync::Arc;

use super::super::{Seat, Translator};
use super::bench::{Bench, Made, pod};
use crate::grouping::Findings;

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
    assert!(Arc::ptr_eq(&one.facts.key.namespace, &two.facts.key.namespace));
}

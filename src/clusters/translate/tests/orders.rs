//! Whatever way a cluster came to be as it is, the engine knows the same of it.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use serde_json::json;

use super::bench::*;
use crate::clusters::facts::{Observation, Watch};
use crate::grouping::{Lookup, ObjectKey};

/// Something that happens in a cluster or on the way to us. Numbers choose an
/// object and what becomes of it, of the few that there are.
#[derive(Clone, Copy, Debug)]
enum Step {
    Object(Watch, usize, usize),
    Owner(usize, usize),
    /// The watch is cut: nothing of it is seen until it is listed again.
    Cut(Watch),
    List(Watch),
    /// A look-up is answered by what was true when it was asked, or fails.
    Answer(usize, bool),
    Pass(i64),
}

fn watch() -> impl Strategy<Value = Watch> {
    (0..Watch::ALL.len()).prop_map(|at| Watch::ALL[at])
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        10 => (watch(), 0..6_usize, 0..6_usize).prop_map(|(w, at, to)| Step::Object(w, at, to)),
        3 => (0..2_usize, 0..6_usize).prop_map(|(at, to)| Step::Owner(at, to)),
        1 => watch().prop_map(Step::Cut),
        1 => watch().prop_map(Step::List),
        4 => (any::<usize>(), prop::bool::weighted(0.2)).prop_map(|(at, fails)| Step::Answer(at, fails)),
        2 => (0..3_000_i64).prop_map(Step::Pass),
    ]
}

/// What a set of possible objects is made of; `None`: the object is not there.
trait Land {
    fn object(watch: Watch, at: usize, to: usize) -> Option<Made>;
    /// The owner at first, and what may become of it.
    fn owner(at: usize, before: Option<&Lookup>, to: usize) -> Option<(String, Lookup)>;
}

fn found(made: &Made) -> Lookup {
    let mut bench = Bench::new();
    bench.owner(made);
    bench.owners.into_values().next().unwrap()
}

fn common(watch: Watch, at: usize, to: usize) -> Option<Made> {
    match (watch, to) {
        (_, 0) => None,
        (Watch::Namespaces, 1..=3) if at < 2 => {
            Some(namespace(["ns", "other"][at]).managed().queue("a"))
        }
        (Watch::Namespaces, _) if at < 2 => {
            Some(namespace(["ns", "other"][at]).queue("a").label("team", "x"))
        }
        (Watch::Nodes, 1..=3) if at < 2 => Some(node(["n1", "n2"][at])),
        (Watch::Nodes, _) if at < 2 => {
            Some(node(["n1", "n2"][at]).set("/spec/unschedulable", json!(true)))
        }
        (Watch::Queues, 1..=2) if at < 2 => {
            Some(queue(["a", "b"][at]).set("/spec/weight", json!(to)))
        }
        (Watch::Queues, 3) if at < 2 => Some(
            queue(["a", "b"][at]).set("/spec/namespaces", json!({"matchLabels": {"team": "x"}})),
        ),
        (Watch::Queues, _) if at < 2 => Some(
            queue(["a", "b"][at])
                .set("/spec/priorityClasses", json!(["low"]))
                .set("/spec/parent", json!("b")),
        ),
        (Watch::OtherPods, _) if at < 2 => Some(
            plain_pod(["x", "y"][at], ["n1", "n2"][to % 2])
                .set("/metadata/namespace", json!("other")),
        ),
        (Watch::OtherPods, _) if at == 2 => {
            Some(plain_pod("d", ["n1", "n2"][to % 2]).by("DaemonSet/d"))
        }
        _ => None,
    }
}

/// Nothing was let go yet: owners may change in every way.
struct Waiting;

impl Land for Waiting {
    fn object(watch: Watch, at: usize, to: usize) -> Option<Made> {
        if watch != Watch::ManagedPods || to == 0 {
            return common(watch, at, to);
        }
        let name = ["p0", "p1", "p2", "p3", "p4", "p5"][at];
        let pod = pod(name).born(u8::try_from(at).unwrap());
        let pod = match at {
            0 | 1 => pod.by("Workers/w"),
            2 | 3 => pod.by("Cluster/c"),
            4 if to == 5 => pod.deleting(),
            _ => pod,
        };
        Some(match to {
            1 => pod.annotated("tidegate.dev/group", "g"),
            2 => pod.annotated("tidegate.dev/min-count", "3").queue("b"),
            3 => pod.set("/spec/priorityClassName", json!("low")),
            _ => pod,
        })
    }

    fn owner(at: usize, before: Option<&Lookup>, to: usize) -> Option<(String, Lookup)> {
        let name = ["Workers/w", "Cluster/c"][at].to_owned();
        let adopted = found(&owner("Workers/w").by("Cluster/c").queue("b"));
        let label = owner(&name).queue(["a", "b"][to % 2]);
        let lookup = match to {
            // Adoption is for good, as it is in a cluster.
            _ if before == Some(&adopted) => return None,
            0 | 1 => found(&label),
            2 => found(
                &label.set("/spec/schedule", json!("@daily")).annotated("tidegate.dev/gang", "all"),
            ),
            3 => Lookup::Missing,
            4 => Lookup::Forbidden("a rule".into()),
            _ if at == 0 => adopted,
            _ => Lookup::WrongUid,
        };
        Some((name, lookup))
    }
}

/// Pods are let go and end; owners stay as they are, and namespaces there.
struct Running;

impl Land for Running {
    fn object(watch: Watch, at: usize, to: usize) -> Option<Made> {
        let to = if watch == Watch::Namespaces { to.max(1) } else { to };
        if watch != Watch::ManagedPods || to == 0 {
            return common(watch, at, to);
        }
        let name = ["p0", "p1", "p2", "p3", "p4", "p5"][at];
        let pod = pod(name).born(u8::try_from(at).unwrap());
        let (pod, root) = match at {
            0 | 1 => (pod.by("Workers/w"), "Cluster/c".to_owned()),
            2 | 3 => (pod.by("Cluster/c"), "Cluster/c".to_owned()),
            _ => (pod, format!("Pod/{name}")),
        };
        let released = |queue| pod.clone().released(queue, &root);
        Some(match to {
            1 => released("a"),
            2 => released("b").on("n1"),
            3 => released("b").on("n2").phase("Succeeded"),
            _ => pod,
        })
    }

    fn owner(at: usize, before: Option<&Lookup>, _: usize) -> Option<(String, Lookup)> {
        let made = [owner("Workers/w").by("Cluster/c"), owner("Cluster/c").queue("b")][at].clone();
        let name = ["Workers/w", "Cluster/c"][at].to_owned();
        before.is_none().then(|| (name, found(&made)))
    }
}

/// A cluster and what is seen of it.
struct Play {
    bench: Bench,
    truth: BTreeMap<(Watch, usize), Made>,
    cut: BTreeSet<Watch>,
    flying: Vec<(ObjectKey, Lookup)>,
}

fn seen(watch: Watch, made: &Made) -> Observation {
    match watch {
        Watch::Namespaces => seen_namespace(made),
        Watch::Nodes => seen_node(made),
        Watch::Queues => seen_queue(made),
        Watch::ManagedPods => Observation::ManagedPod(made.seen()),
        Watch::OtherPods => Observation::OtherPod(made.seen()),
    }
}

fn gone(watch: Watch, made: &Made) -> Observation {
    let name = made.0["metadata"]["name"].as_str().unwrap().into();
    match watch {
        Watch::Namespaces => Observation::NamespaceGone(name),
        Watch::Nodes => Observation::NodeGone(name),
        Watch::Queues => Observation::QueueGone(name),
        Watch::ManagedPods => Observation::ManagedPodGone(made.id()),
        Watch::OtherPods => Observation::OtherPodGone(made.id()),
    }
}

impl Play {
    fn new<L: Land>() -> Self {
        let mut bench = Bench::new();
        bench.owners = (0..2).filter_map(|at| L::owner(at, None, 0)).collect();
        for watch in Watch::ALL {
            bench.list(watch, vec![]);
        }
        Self { bench, truth: BTreeMap::new(), cut: BTreeSet::new(), flying: Vec::new() }
    }

    fn step<L: Land>(&mut self, step: Step) {
        match step {
            Step::Object(watch, at, to) => self.change(watch, at, L::object(watch, at, to)),
            Step::Owner(at, to) => {
                let name = ["Workers/w", "Cluster/c"][at];
                self.bench.owners.extend(L::owner(at, self.bench.owners.get(name), to));
            }
            Step::Cut(watch) => drop(self.cut.insert(watch)),
            Step::List(watch) => self.list(watch),
            Step::Answer(at, fails) => self.answer(at, fails),
            Step::Pass(millis) => {
                self.bench.now += millis;
                let due = self.bench.translator.due(self.bench.now);
                self.bench.asked.extend(due);
            }
        }
        for key in std::mem::take(&mut self.bench.asked) {
            let answer = self.bench.answer(&key);
            self.flying.push((key, answer));
        }
    }

    fn change(&mut self, watch: Watch, at: usize, made: Option<Made>) {
        let observation = match &made {
            Some(made) => seen(watch, made),
            None => match self.truth.get(&(watch, at)) {
                Some(before) => gone(watch, before),
                None => return,
            },
        };
        match made {
            Some(made) => drop(self.truth.insert((watch, at), made)),
            None => drop(self.truth.remove(&(watch, at))),
        }
        if !self.cut.contains(&watch) {
            self.bench.see(observation);
        }
    }

    fn list(&mut self, watch: Watch) {
        self.cut.remove(&watch);
        let there = self.truth.iter().filter(|((list, _), _)| *list == watch);
        let objects = there.map(|(_, made)| seen(watch, made)).collect();
        self.bench.list(watch, objects);
    }

    fn answer(&mut self, at: usize, fails: bool) {
        if self.flying.is_empty() {
            return;
        }
        let (key, answer) = self.flying.remove(at % self.flying.len());
        let answer = if fails { Lookup::Pending } else { answer };
        self.bench.see(Observation::Owner(key, answer));
    }

    /// Lets everything arrive that is under way.
    fn settle(&mut self) -> BTreeSet<String> {
        for watch in std::mem::take(&mut self.cut) {
            self.list(watch);
        }
        while !self.flying.is_empty() {
            self.answer(0, false);
        }
        self.bench.answer_all();
        self.bench.pass(40_000);
        self.bench.mirror.facts()
    }
}

fn check<L: Land>(steps: Vec<Step>) -> Result<(), TestCaseError> {
    let mut play = Play::new::<L>();
    for step in steps {
        play.step::<L>(step);
    }
    let facts = play.settle();
    let mut fresh = Play::new::<L>();
    fresh.bench.owners = play.bench.owners.clone();
    fresh.truth = play.truth.clone();
    for watch in Watch::ALL {
        fresh.list(watch);
    }
    prop_assert_eq!(facts, fresh.settle());
    Ok(())
}

proptest! {
    #[test]
    fn while_all_waits_only_the_final_state_counts(steps in prop::collection::vec(step(), 0..60)) {
        check::<Waiting>(steps)?;
    }

    #[test]
    fn while_work_runs_only_the_final_state_counts(steps in prop::collection::vec(step(), 0..60)) {
        check::<Running>(steps)?;
    }
}

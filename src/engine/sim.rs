//! Random worlds, in which one scheduler must decide as another does.
//!
//! A seed makes a log: small worlds where ties and collisions are frequent, and whatever may
//! happen to them, late, twice and out of order too. Both schedulers are told the log; where
//! they differ it is cut down to a short one that still tells them apart, and printed.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::event::Event;
use super::model::{Millis, NodeId};
use super::reference::Reference;
use super::{Decided, Engine};

mod invariants;
mod queues;
mod random;
mod remedies;
mod script;
mod seen;
mod shrink;

#[cfg(test)]
mod tests;

use seen::Seen;

/// What decides.
pub(super) trait Scheduler: Default {
    fn apply(&mut self, now: Millis, event: Event);
    /// True when something may start that could not before.
    fn tick(&mut self, now: Millis) -> bool;
    fn decide(&mut self, budget: usize) -> Decided;
    /// Looks what would be decided, and changes nothing.
    fn rehearse(&mut self, _budget: usize) {}
    /// What it shows of its books after it has decided.
    fn seen(&self) -> Seen;
}

impl Scheduler for Reference {
    fn apply(&mut self, now: Millis, event: Event) {
        self.apply(now, event);
    }

    fn tick(&mut self, now: Millis) -> bool {
        self.tick(now)
    }

    fn decide(&mut self, budget: usize) -> Decided {
        self.decide(budget)
    }

    fn seen(&self) -> Seen {
        Seen::of_reference(self)
    }
}

impl Scheduler for Engine {
    fn apply(&mut self, now: Millis, event: Event) {
        self.apply(now, event);
    }

    fn tick(&mut self, now: Millis) -> bool {
        self.tick(now)
    }

    fn decide(&mut self, budget: usize) -> Decided {
        self.decide(budget)
    }

    fn rehearse(&mut self, budget: usize) {
        self.rehearse(budget);
    }

    fn seen(&self) -> Seen {
        Seen::of_engine(self)
    }
}

/// One thing that a scheduler is told or asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Apply(Event),
    Tick,
    Rehearse(usize),
    Decide(usize),
}

pub(super) type Log = Vec<(Millis, Step)>;

/// Panics with the shortest log found where `B` does not decide as `A` does, or sleeps while
/// `A` has something to start, or panics.
pub(super) fn agrees<A: Scheduler, B: Scheduler>(seed: u64) {
    let log = script::write(seed);
    if difference::<A, B>(&log).is_none() {
        return;
    }
    let log = shrink::shrink(log, |log| difference::<A, B>(log).is_some());
    let difference = difference::<A, B>(&log).unwrap_or_default();
    panic!(
        "seed {seed}: {difference}\nafter\n{}\nagain: TIDEGATE_SEED={seed} ./dev test --lib engine::sim",
        text(&log)
    );
}

fn text(log: &Log) -> String {
    let lines: Vec<String> =
        log.iter().map(|(now, step)| format!("    ({now}, {step:?}),")).collect();
    lines.join("\n")
}

/// What tells two schedulers apart first.
fn difference<A: Scheduler, B: Scheduler>(log: &Log) -> Option<String> {
    let mut play = AssertUnwindSafe(Play::<A, B>::default());
    let played = catch_unwind(move || log.iter().find_map(|(now, step)| play.step(*now, step)));
    played.unwrap_or_else(|_| Some("a panic".to_owned()))
}

#[derive(Default)]
struct Play<A, B> {
    a: A,
    b: B,
    nodes: BTreeSet<NodeId>,
    /// A rehearsal has answered; nobody asks again before something happens.
    rehearsed: bool,
}

impl<A: Scheduler, B: Scheduler> Play<A, B> {
    fn step(&mut self, now: Millis, step: &Step) -> Option<String> {
        match step {
            Step::Apply(event) => {
                if is_promised(&mut self.nodes, event) {
                    self.a.apply(now, event.clone());
                    self.b.apply(now, event.clone());
                    self.rehearsed = false;
                }
            }
            Step::Tick => {
                let (a, b) = (self.a.tick(now), self.b.tick(now));
                if a && !b && !self.rehearsed {
                    return Some(format!("at {now} the second sleeps and the first does not"));
                }
            }
            Step::Rehearse(budget) => {
                self.a.rehearse(*budget);
                self.b.rehearse(*budget);
                self.rehearsed = true;
            }
            Step::Decide(budget) => {
                let (a, b) = (self.a.decide(*budget), self.b.decide(*budget));
                if a != b {
                    return Some(format!(
                        "at {now} the first decides\n    {a:?}\nthe second\n    {b:?}"
                    ));
                }
                let (a, b) = (self.a.seen(), self.b.seen());
                if a != b {
                    return Some(format!(
                        "at {now} the first shows\n    {a:?}\nthe second\n    {b:?}"
                    ));
                }
                self.rehearsed = false;
            }
        }
        None
    }
}

/// Whether those who tell would tell this: nobody tells of load on a node that is not there.
fn is_promised(nodes: &mut BTreeSet<NodeId>, event: &Event) -> bool {
    match event {
        Event::NodeChanged(id, _) => drop(nodes.insert(*id)),
        Event::NodeRemoved(id) => drop(nodes.remove(id)),
        Event::ForeignChanged(id, _) => return nodes.contains(id),
        _ => {}
    }
    true
}

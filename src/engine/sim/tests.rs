//! The engine decides as the reference does, whatever happens.

use super::*;

/// Seeds that a run of the tests takes.
const SEEDS: u64 = 300;

/// `TIDEGATE_SEED` names one seed, `TIDEGATE_SEEDS` how many from it on.
fn seeds() -> std::ops::Range<u64> {
    #[expect(clippy::disallowed_methods, reason = "who runs the tests chooses the seeds")]
    let number = |name| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let first = number("TIDEGATE_SEED");
    let count = number("TIDEGATE_SEEDS").unwrap_or(if first.is_some() { 1 } else { SEEDS });
    let first = first.unwrap_or(0);
    first..first + count
}

#[test]
fn the_engine_decides_as_the_reference_does() {
    seeds().for_each(agrees::<Reference, Engine>);
}

#[test]
fn the_reference_keeps_every_promise() {
    for seed in seeds() {
        let log = script::write(seed);
        if let Err(panic) = catch_unwind(|| invariants::hold(&log)) {
            eprintln!("again: TIDEGATE_SEED={seed} ./dev test --lib engine::sim");
            std::panic::resume_unwind(panic);
        }
    }
}

#[test]
fn the_same_log_is_decided_the_same_twice() {
    seeds().for_each(agrees::<Reference, Reference>);
}

#[test]
fn evictions_come_to_an_end_when_nothing_changes() {
    let mut evicted = 0;
    for seed in seeds() {
        let each = invariants::evicted_each_second(&script::write(seed), 60);
        let last: usize = each.iter().rev().take(20).sum();
        assert_eq!(last, 0, "again: TIDEGATE_SEED={seed} ./dev test --lib engine::sim: {each:?}");
        evicted += each.iter().sum::<usize>();
    }
    assert!(evicted > 0, "nothing was ever evicted");
}

#[test]
fn what_is_given_as_missing_is_what_is_missing() {
    let mut ended = 0;
    for seed in seeds() {
        let log = script::write(seed);
        match catch_unwind(|| remedies::end_waits(&log)) {
            Ok(groups) => ended += groups,
            Err(panic) => {
                eprintln!("again: TIDEGATE_SEED={seed} ./dev test --lib engine::sim");
                std::panic::resume_unwind(panic);
            }
        }
    }
    assert!(ended > 0, "nothing started by what it was given");
}

/// An engine that is made anew from its snapshot before every so many steps; never, if 0. `ALL`
/// shows everything it knows and keeps to itself when it wakes, which may be in vain.
#[derive(Default)]
struct Restored<const EVERY: u32, const ALL: bool>(Engine, u32);

impl<const EVERY: u32, const ALL: bool> Restored<EVERY, ALL> {
    fn engine(&mut self) -> &mut Engine {
        self.1 += 1;
        if self.1.is_multiple_of(EVERY) {
            self.0 = self.0.restored();
        }
        &mut self.0
    }
}

impl<const EVERY: u32, const ALL: bool> Scheduler for Restored<EVERY, ALL> {
    fn apply(&mut self, now: Millis, event: Event) {
        self.engine().apply(now, event);
    }

    fn tick(&mut self, now: Millis) -> bool {
        self.engine().tick(now) && !ALL
    }

    fn decide(&mut self, budget: usize) -> Decided {
        let decided = self.engine().decide(budget);
        self.0.entitle();
        decided
    }

    fn rehearse(&mut self, budget: usize) {
        self.engine().rehearse(budget);
    }

    fn seen(&self) -> Seen {
        if ALL { Seen::everything_of(&self.0) } else { Seen::of_engine(&self.0) }
    }
}

#[test]
fn an_engine_made_from_snapshots_decides_as_the_reference_does() {
    seeds().for_each(agrees::<Reference, Restored<7, false>>);
}

#[test]
fn an_engine_made_from_snapshots_explains_as_the_one_that_lived_on() {
    seeds().for_each(agrees::<Restored<0, true>, Restored<1, true>>);
}

/// Decides as the reference does, but never lets this pod go.
#[derive(Default)]
struct Unfair(Reference);

impl Scheduler for Unfair {
    fn apply(&mut self, now: Millis, event: Event) {
        self.0.apply(now, event);
    }

    fn tick(&mut self, now: Millis) -> bool {
        self.0.tick(now)
    }

    fn decide(&mut self, budget: usize) -> Decided {
        let mut decided = self.0.decide(budget);
        decided.started.retain(|decision| decision.pod.0 % 50 != 7);
        decided
    }

    fn seen(&self) -> Seen {
        Seen::of_reference(&self.0)
    }
}

#[test]
fn a_difference_is_found_and_cut_down_to_what_it_takes() {
    let found = (0..300).find_map(|seed| {
        let log = script::write(seed);
        difference::<Reference, Unfair>(&log)?;
        Some(shrink::shrink(log, |log| difference::<Reference, Unfair>(log).is_some()))
    });
    let log = found.unwrap();
    let told = |wanted: fn(&Event) -> bool| {
        log.iter().filter(|(_, step)| matches!(step, Step::Apply(event) if wanted(event))).count()
    };
    assert_eq!(told(|event| matches!(event, Event::PodChanged(..))), 1, "{}", text(&log));
    assert_eq!(log.iter().filter(|(_, step)| matches!(step, Step::Decide(_))).count(), 1);
    assert!(log.len() <= 6, "queue, node, group, pod, synced, decide: {}", text(&log));
}

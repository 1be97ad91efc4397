//! How fast to write to one apiserver, judged by its answers. Pure: time is a number.

use std::time::Duration;

use crate::engine::Millis;
use crate::engine::event::{Pause, Trouble};

use super::circuit::{Circuit, Phase};
use super::latency::Latency;
use super::pace::{Backoff, Window};

/// A PATCH that took so long says that the apiserver or its store suffers.
const SLOW: Millis = 2_000;

/// What the end of a write says of the apiserver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Health {
    /// The write was done and took so many milliseconds.
    Done(Millis),
    /// It answered; whether writes work is not known from that.
    Answered,
    /// It is in trouble, and may have said for how long.
    Trouble(Trouble, Option<Duration>),
}

/// Window, latency and circuit of one apiserver.
#[derive(Debug)]
pub(super) struct Throttle {
    window: Window,
    circuit: Circuit,
    latency: Latency,
}

impl Throttle {
    /// Wide open; never more than `most` (at least one) in flight.
    pub(super) fn new(most: u32, backoff: Backoff) -> Self {
        Self {
            window: Window::new(most),
            circuit: Circuit::new(backoff),
            latency: Latency::default(),
        }
    }

    /// When the next write may start; `None` when one must end first.
    pub(super) fn opens(&self) -> Option<Millis> {
        self.window.has_room().then(|| self.circuit.opens())
    }

    /// Why nothing new should be decided, if so.
    pub(super) fn pause(&self) -> Option<Pause> {
        self.circuit.pause()
    }

    /// Where the circuit stands, and how many writes may be in flight.
    pub(super) fn standing(&self, now: Millis) -> (Phase, u32) {
        (self.circuit.phase(now), self.window.allowed())
    }

    /// A write started.
    pub(super) fn start(&mut self) {
        self.window.start();
    }

    /// Nothing is at hand to write now.
    pub(super) fn has_no_probe(&mut self, now: Millis) {
        self.circuit.has_no_probe(now);
    }

    /// A write ended.
    pub(super) fn ended(&mut self, now: Millis, health: Health) {
        self.window.end();
        match health {
            Health::Done(took) if took >= SLOW => self.met_trouble(now, Trouble::Slow, None),
            Health::Done(took) => {
                self.latency.note(took);
                self.circuit.went_well();
                self.went_well();
            }
            Health::Answered => {
                self.circuit.was_answered();
                self.went_well();
            }
            Health::Trouble(trouble, asked) => self.met_trouble(now, trouble, asked),
        }
    }

    fn went_well(&mut self) {
        if self.circuit.is_closed() {
            self.window.went_well(self.latency.is_rising());
        }
    }

    fn met_trouble(&mut self, now: Millis, trouble: Trouble, asked: Option<Duration>) {
        if self.circuit.met_trouble(now, trouble, asked) {
            self.window.halve();
        }
        if !self.circuit.is_closed() {
            self.window.narrow();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BACKOFF: Backoff =
        Backoff { first: Duration::from_millis(200), most: Duration::from_secs(10) };
    /// Longest that a server may make us wait.
    const PATIENCE: Millis = 60_000;

    fn fill(throttle: &mut Throttle, now: Millis) -> u32 {
        let mut started = 0;
        while throttle.opens().is_some_and(|at| at <= now) {
            throttle.start();
            started += 1;
        }
        started
    }

    #[test]
    fn rising_latency_narrows_it_until_answers_are_quick_again() {
        let mut throttle = Throttle::new(16, BACKOFF);
        let mut round = |took: Millis| {
            let started = fill(&mut throttle, 0);
            (0..started).for_each(|_| throttle.ended(0, Health::Done(took)));
            started
        };
        let widths: Vec<u32> = [20, 20, 800, 800, 800, 800, 800, 800, 800].map(&mut round).into();
        assert_eq!(widths, [16, 16, 16, 12, 9, 6, 4, 3, 2], "then by a quarter each time");
        for _ in 0..20 {
            round(20);
        }
        assert!(round(20) > 12);
    }

    #[test]
    fn answers_that_take_seconds_open_the_circuit_and_quick_ones_close_it() {
        let mut throttle = Throttle::new(4, BACKOFF);
        let mut now = 0;
        while throttle.pause().is_none() {
            now = now.max(throttle.opens().unwrap());
            throttle.start();
            now += SLOW;
            throttle.ended(now, Health::Done(SLOW));
        }
        assert_eq!(throttle.pause().map(|pause| pause.cause), Some(Trouble::Slow));
        for _ in 0..3 {
            now = now.max(throttle.opens().unwrap());
            assert_eq!(fill(&mut throttle, now), 1);
            throttle.ended(now, Health::Done(5));
        }
        assert_eq!(throttle.standing(now), (Phase::Closed, 2));
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Start,
        End(Health),
        NoProbe,
        Later(Millis),
    }

    fn health() -> impl Strategy<Value = Health> {
        let asked = proptest::option::of((0_u64..60).prop_map(Duration::from_secs));
        prop_oneof![
            4 => (0_i64..3_000).prop_map(Health::Done),
            1 => Just(Health::Answered),
            1 => asked.prop_map(|asked| Health::Trouble(Trouble::Overloaded, asked)),
            2 => prop_oneof![Just(Trouble::NoAnswer), Just(Trouble::Failing), Just(Trouble::StoreFull)]
                .prop_map(|trouble| Health::Trouble(trouble, None)),
        ]
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            4 => Just(Step::Start),
            4 => health().prop_map(Step::End),
            1 => Just(Step::NoProbe),
            2 => (0_i64..20_000).prop_map(Step::Later),
        ];
        proptest::collection::vec(step, 0..300)
    }

    /// Applies steps; how many are in flight and the time.
    fn play(
        throttle: &mut Throttle,
        most: u32,
        steps: Vec<Step>,
    ) -> Result<(u32, Millis), TestCaseError> {
        let (mut now, mut flying) = (0, 0);
        for step in steps {
            match step {
                Step::Start if throttle.opens().is_some_and(|at| at <= now) => {
                    let (phase, allowed) = throttle.standing(now);
                    prop_assert!(phase != Phase::Open && (1..=most.max(1)).contains(&allowed));
                    prop_assert!(flying < allowed && (phase == Phase::Closed || flying == 0));
                    throttle.start();
                    flying += 1;
                }
                Step::End(health) if flying > 0 => {
                    throttle.ended(now, health);
                    flying -= 1;
                }
                Step::NoProbe if flying == 0 => throttle.has_no_probe(now),
                Step::Later(by) => now += by,
                _ => {}
            }
            let paused = throttle.pause().is_some();
            prop_assert!(!paused || throttle.standing(now).0 != Phase::Closed);
            prop_assert!(throttle.opens().is_none_or(|at| at <= now + PATIENCE));
        }
        Ok((flying, now))
    }

    proptest! {
        /// Never more in flight than allowed and one at a time while half open; and
        /// whatever was, once the apiserver is well all flows again after a few writes.
        #[test]
        fn it_never_floods_and_always_resumes(most in 0_u32..20, steps in steps()) {
            let mut throttle = Throttle::new(most, BACKOFF);
            let (flying, mut now) = play(&mut throttle, most, steps)?;
            (0..flying).for_each(|_| throttle.ended(now, Health::Done(1)));
            for _ in 0..3 {
                let opens = throttle.opens();
                prop_assert!(opens.is_some_and(|at| at <= now + PATIENCE), "idle and shut for good");
                now = now.max(opens.unwrap());
                throttle.start();
                throttle.ended(now, Health::Done(1));
            }
            prop_assert_eq!((throttle.pause(), throttle.standing(now).0), (None, Phase::Closed));
            prop_assert!(throttle.opens().is_some_and(|at| at <= now));
        }

        /// Without anything to write it is not paused for longer than its wait.
        #[test]
        fn without_probes_it_lets_others_decide(steps in steps()) {
            let mut throttle = Throttle::new(8, BACKOFF);
            let (flying, now) = play(&mut throttle, 8, steps)?;
            (0..flying).for_each(|_| throttle.ended(now, Health::Answered));
            let at = throttle.opens().unwrap().max(now);
            throttle.has_no_probe(at);
            prop_assert_eq!(throttle.pause(), None);
        }
    }
}

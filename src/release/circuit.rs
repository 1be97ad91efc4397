//! The circuit between us and one apiserver: open while it suffers. Pure: time is a number.
//!
//! Closed, trouble shuts it for a moment and a few troubles in a row open it. Open, one
//! probe at a time is let through, at waits that grow, until some in a row went well.
//! When there is nothing to probe with, it goes on by way of trial: the next trouble
//! opens it again. So it is never open for good.

use std::time::Duration;

use crate::engine::Millis;
use crate::engine::event::{Pause, Trouble};

use super::pace::{Backoff, millis};

/// Troubles in a row, none of them while shut for the one before, that open it.
const TROUBLES: u32 = 3;
/// Probes in a row that must go well to close it.
const PROOFS: u32 = 3;

/// Where a circuit stands, as metrics tell it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// Releases flow.
    #[default]
    Closed,
    /// Nothing is sent.
    Open,
    /// One at a time is sent to see whether it works.
    HalfOpen,
}

impl Phase {
    /// All there are.
    pub const ALL: [Self; 3] = [Self::Closed, Self::Open, Self::HalfOpen];

    /// In one word, stable for machines.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half-open",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Closed,
    Open(Pause),
    /// Open, but there was nothing to probe with.
    Trial(Pause),
}

/// Whether to write to one apiserver.
#[derive(Debug)]
pub(super) struct Circuit {
    state: State,
    /// Troubles in a row.
    troubles: u32,
    /// Probes in a row that went well.
    proofs: u32,
    backoff: Backoff,
    shut_until: Millis,
}

impl Circuit {
    /// Closed; waits after troubles are those of `backoff`.
    pub(super) fn new(backoff: Backoff) -> Self {
        Self { state: State::Closed, troubles: 0, proofs: 0, backoff, shut_until: Millis::MIN }
    }

    /// When the next write may start.
    pub(super) fn opens(&self) -> Millis {
        self.shut_until
    }

    /// Whether writes flow freely, not one at a time.
    pub(super) fn is_closed(&self) -> bool {
        self.state == State::Closed
    }

    /// Why nothing new should be decided, if so.
    pub(super) fn pause(&self) -> Option<Pause> {
        match self.state {
            State::Open(pause) => Some(pause),
            State::Closed | State::Trial(_) => None,
        }
    }

    pub(super) fn phase(&self, now: Millis) -> Phase {
        match self.state {
            State::Closed => Phase::Closed,
            _ if now < self.shut_until => Phase::Open,
            State::Open(_) | State::Trial(_) => Phase::HalfOpen,
        }
    }

    /// A write was done.
    pub(super) fn went_well(&mut self) {
        self.proofs = self.proofs.saturating_add(1);
        if self.is_closed() || self.proofs >= PROOFS {
            (self.state, self.troubles) = (State::Closed, 0);
        }
    }

    /// An answer that says neither that writes work nor that they do not.
    pub(super) fn was_answered(&mut self) {
        if self.is_closed() {
            self.troubles = 0;
        }
    }

    /// The apiserver was in trouble, and may have said for how long. True when this is
    /// news: of all writes that were in flight together only the first is.
    pub(super) fn met_trouble(
        &mut self,
        now: Millis,
        cause: Trouble,
        asked: Option<Duration>,
    ) -> bool {
        let news = now >= self.shut_until;
        if news {
            self.troubles = self.troubles.saturating_add(1);
            self.proofs = 0;
            self.shut_until = now.saturating_add(self.backoff.after(self.troubles));
            self.state = self.after_trouble(Pause { since: now, cause });
        }
        let asked = now.saturating_add(asked.map_or(0, millis));
        self.shut_until = self.shut_until.max(asked);
        news
    }

    fn after_trouble(&self, pause: Pause) -> State {
        match self.state {
            State::Open(before) | State::Trial(before) => State::Open(before),
            State::Closed if self.troubles >= TROUBLES || pause.cause == Trouble::StoreFull => {
                State::Open(pause)
            }
            State::Closed => State::Closed,
        }
    }

    /// There is nothing to probe with: once the wait is over, let others decide for some.
    pub(super) fn has_no_probe(&mut self, now: Millis) {
        if let State::Open(pause) = self.state
            && now >= self.shut_until
        {
            self.state = State::Trial(pause);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    const BACKOFF: Backoff =
        Backoff { first: Duration::from_millis(200), most: Duration::from_secs(10) };

    fn trouble(circuit: &mut Circuit, now: Millis, cause: Trouble) -> Millis {
        assert!(circuit.met_trouble(now, cause, None));
        circuit.opens()
    }

    /// Open since 600 ms, shut until 1,400.
    fn open() -> Circuit {
        let mut circuit = Circuit::new(BACKOFF);
        let now = trouble(&mut circuit, 0, Trouble::NoAnswer);
        let now = trouble(&mut circuit, now, Trouble::NoAnswer);
        assert_eq!((now, circuit.phase(now)), (600, Phase::Closed));
        assert_eq!(trouble(&mut circuit, now, Trouble::Overloaded), 1_400);
        circuit
    }

    #[test]
    fn three_troubles_in_a_row_open_it_and_it_says_since_when_and_why() {
        let circuit = open();
        assert_eq!(circuit.pause(), Some(Pause { since: 600, cause: Trouble::Overloaded }));
        assert_eq!(circuit.phase(1_399), Phase::Open);
        assert_eq!(circuit.phase(1_400), Phase::HalfOpen);
    }

    #[test]
    fn a_full_store_opens_it_at_once() {
        let mut circuit = Circuit::new(BACKOFF);
        trouble(&mut circuit, 0, Trouble::StoreFull);
        assert_eq!(circuit.pause(), Some(Pause { since: 0, cause: Trouble::StoreFull }));
    }

    #[rstest]
    #[case::done(Circuit::went_well)]
    #[case::refused(Circuit::was_answered)]
    fn an_answer_in_between_starts_the_count_anew(#[case] answer: fn(&mut Circuit)) {
        let mut circuit = Circuit::new(BACKOFF);
        for now in [0, 1_000, 2_000, 3_000] {
            trouble(&mut circuit, now, Trouble::Failing);
            answer(&mut circuit);
        }
        assert_eq!(circuit.pause(), None);
    }

    #[test]
    fn one_burst_of_trouble_counts_once() {
        let mut circuit = Circuit::new(BACKOFF);
        trouble(&mut circuit, 0, Trouble::NoAnswer);
        (0..50).for_each(|_| assert!(!circuit.met_trouble(100, Trouble::NoAnswer, None)));
        assert_eq!((circuit.pause(), circuit.opens()), (None, 200));
    }

    #[test]
    fn three_probes_in_a_row_close_it_and_a_refusal_is_no_probe() {
        let mut circuit = open();
        circuit.went_well();
        circuit.went_well();
        circuit.was_answered();
        assert!(circuit.pause().is_some());
        trouble(&mut circuit, 1_400, Trouble::Slow);
        circuit.went_well();
        circuit.went_well();
        assert!(circuit.pause().is_some(), "in a row");
        circuit.went_well();
        assert!(circuit.is_closed());
        trouble(&mut circuit, 10_000, Trouble::Slow);
        assert_eq!(circuit.opens(), 10_200, "waits begin anew");
    }

    #[test]
    fn probes_that_fail_wait_longer_and_do_not_change_since_when() {
        let mut circuit = open();
        let mut waits = Vec::new();
        for _ in 0..6 {
            let now = circuit.opens();
            waits.push(trouble(&mut circuit, now, Trouble::Failing) - now);
        }
        assert_eq!(waits, [1_600, 3_200, 6_400, 10_000, 10_000, 10_000]);
        assert_eq!(circuit.pause(), Some(Pause { since: 600, cause: Trouble::Overloaded }));
    }

    #[test]
    fn without_probes_it_goes_on_by_way_of_trial() {
        let mut circuit = open();
        circuit.has_no_probe(1_399);
        assert!(circuit.pause().is_some(), "not before its wait is over");
        circuit.has_no_probe(1_400);
        assert_eq!((circuit.pause(), circuit.phase(1_400)), (None, Phase::HalfOpen));
        trouble(&mut circuit, 1_400, Trouble::Failing);
        assert_eq!(circuit.pause().map(|pause| pause.since), Some(600), "one trouble is enough");
    }

    #[test]
    fn the_server_may_ask_for_more_patience_than_we_had() {
        let mut circuit = Circuit::new(BACKOFF);
        circuit.met_trouble(0, Trouble::Overloaded, Some(Duration::from_secs(1)));
        assert_eq!(circuit.opens(), 1_000);
        circuit.met_trouble(500, Trouble::Overloaded, Some(Duration::from_secs(30)));
        assert_eq!(circuit.opens(), 30_500);
    }
}

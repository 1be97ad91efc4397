//! Whether answers take longer than they used to. Pure: times are numbers.

use std::collections::VecDeque;

use crate::engine::Millis;

/// Answers of which the fastest is "now". One slow answer among them says nothing.
const RECENT: usize = 8;
/// Answers after which what is usual begins to be forgotten: it may have changed for good.
const EPOCH: u32 = 1_024;
/// "Longer" is this many times the usual ...
const FACTOR: Millis = 8;
/// ... and this much more: below it the noise of a busy apiserver begins.
const NOISE: Millis = 250;

/// The fastest of the last answers beside the fastest of many.
#[derive(Debug)]
pub(super) struct Latency {
    recent: VecDeque<Millis>,
    /// Fastest of this epoch and of the one before.
    fastest: (Millis, Millis),
    answers: u32,
}

impl Default for Latency {
    fn default() -> Self {
        Self { recent: VecDeque::new(), fastest: (Millis::MAX, Millis::MAX), answers: 0 }
    }
}

impl Latency {
    /// Takes in how long an answer took, in milliseconds.
    pub(super) fn note(&mut self, took: Millis) {
        let took = took.max(0);
        if self.recent.len() >= RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(took);
        if self.answers >= EPOCH {
            self.answers = 0;
            self.fastest = (Millis::MAX, self.fastest.0);
        }
        self.answers += 1;
        self.fastest.0 = self.fastest.0.min(took);
    }

    /// Even the fastest of the last answers took much longer than is usual.
    pub(super) fn is_rising(&self) -> bool {
        let usual = self.fastest.0.min(self.fastest.1);
        let bound = usual.saturating_mul(FACTOR).saturating_add(NOISE);
        self.recent.len() >= RECENT && self.recent.iter().all(|&took| took > bound)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(answers: impl IntoIterator<Item = Millis>) -> Latency {
        let mut latency = Latency::default();
        answers.into_iter().for_each(|took| latency.note(took));
        latency
    }

    #[test]
    fn eight_slow_answers_in_a_row_are_a_rise_and_one_fast_one_among_them_is_none() {
        let usual = || std::iter::repeat_n(10, 50);
        assert!(!after(usual()).is_rising());
        assert!(!after(usual().chain([400; 7])).is_rising());
        assert!(after(usual().chain([400; 8])).is_rising());
        assert!(!after(usual().chain([400; 20]).chain([12])).is_rising());
        assert!(!after(usual().chain([330; 20])).is_rising(), "not beyond the noise");
    }

    #[test]
    fn what_was_always_slow_is_usual_and_what_stays_slow_becomes_so() {
        assert!(!after([900; 100]).is_rising());
        let lasting =
            |answers| after(std::iter::repeat_n(10, 50).chain(std::iter::repeat_n(900, answers)));
        assert!(lasting(1_500).is_rising());
        assert!(!lasting(2_100).is_rising());
    }

    #[test]
    fn a_clock_that_goes_back_is_no_time_at_all() {
        let latency = after([-5; 8]);
        assert!(!latency.is_rising());
        assert_eq!(latency.fastest.0, 0);
    }
}

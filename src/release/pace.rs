//! How fast to write, and how long to wait after a failure. Pure: time is a number.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::engine::{Millis, PodId};

/// Waits that double with each failure in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// After the first failure.
    pub first: Duration,
    /// Never longer than this.
    pub most: Duration,
}

impl Backoff {
    /// The wait in milliseconds after so many failures in a row; none after none.
    #[must_use]
    pub fn after(self, failures: u32) -> Millis {
        let Some(doublings) = failures.checked_sub(1) else { return 0 };
        let wait = millis(self.first).checked_shl(doublings.min(40)).unwrap_or(Millis::MAX);
        wait.clamp(0, millis(self.most))
    }
}

/// A duration as the engine counts time, at most 2^20 seconds.
pub(super) fn millis(duration: Duration) -> Millis {
    Millis::try_from(duration.min(Duration::from_secs(1 << 20)).as_millis()).unwrap_or(0)
}

/// Writes in flight towards one apiserver: grows by one with each windowful that goes
/// well, halves when the apiserver is in trouble, and then stays shut for a while.
#[derive(Debug)]
pub(super) struct Window {
    most: u32,
    allowed: u32,
    in_flight: u32,
    /// Answers without trouble since the window last grew.
    good: u32,
    /// Times in a row that the window was halved.
    troubles: u32,
    backoff: Backoff,
    shut_until: Millis,
}

impl Window {
    /// Wide open; never more than `most` (at least one) in flight.
    pub(super) fn new(most: u32, backoff: Backoff) -> Self {
        let most = most.max(1);
        Self { most, allowed: most, in_flight: 0, good: 0, troubles: 0, backoff, shut_until: 0 }
    }

    /// When the next write may start; `None` when one must end first.
    pub(super) fn opens(&self) -> Option<Millis> {
        (self.in_flight < self.allowed).then_some(self.shut_until)
    }

    /// A write started.
    pub(super) fn start(&mut self) {
        self.in_flight += 1;
    }

    /// A write ended and the apiserver was well.
    pub(super) fn went_well(&mut self) {
        self.end();
        self.troubles = 0;
        self.good += 1;
        if self.good >= self.allowed {
            self.good = 0;
            self.allowed = self.most.min(self.allowed + 1);
        }
    }

    /// A write ended and the apiserver was in trouble; it may have said for how long.
    ///
    /// Of all writes that were in flight together only the first halves the window.
    pub(super) fn met_trouble(&mut self, now: Millis, asked: Option<Duration>) {
        self.end();
        if now >= self.shut_until {
            self.good = 0;
            self.troubles = self.troubles.saturating_add(1);
            self.allowed = (self.allowed / 2).max(1);
            self.shut_until = now.saturating_add(self.backoff.after(self.troubles));
        }
        let asked = now.saturating_add(asked.map_or(0, millis));
        self.shut_until = self.shut_until.max(asked);
    }

    fn end(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
    }
}

/// Something kept for each of the last so many pods.
#[derive(Debug)]
pub(super) struct Memory<V> {
    most: usize,
    arrivals: u64,
    values: BTreeMap<PodId, (u64, V)>,
    order: BTreeMap<u64, PodId>,
}

impl<V> Memory<V> {
    /// Empty; the oldest is forgotten when there are more than `most`.
    pub(super) fn new(most: usize) -> Self {
        let most = most.max(1);
        Self { most, arrivals: 0, values: BTreeMap::new(), order: BTreeMap::new() }
    }

    /// What is kept for a pod.
    pub(super) fn get(&self, pod: PodId) -> Option<&V> {
        self.values.get(&pod).map(|(_, value)| value)
    }

    /// Keeps something for a pod, which becomes the newest.
    pub(super) fn put(&mut self, pod: PodId, value: V) {
        self.forget(pod);
        self.arrivals += 1;
        self.values.insert(pod, (self.arrivals, value));
        self.order.insert(self.arrivals, pod);
        while self.order.len() > self.most {
            if let Some((_, oldest)) = self.order.pop_first() {
                self.values.remove(&oldest);
            }
        }
    }

    /// Forgets a pod.
    pub(super) fn forget(&mut self, pod: PodId) {
        if let Some((arrival, _)) = self.values.remove(&pod) {
            self.order.remove(&arrival);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Uid;
    use proptest::prelude::*;

    const BACKOFF: Backoff =
        Backoff { first: Duration::from_secs(5), most: Duration::from_mins(5) };

    #[test]
    fn waits_double_up_to_the_most() {
        let waits: Vec<_> = [0, 1, 2, 3, 6, 7, 8, u32::MAX].map(|n| BACKOFF.after(n)).into();
        assert_eq!(waits, [0, 5_000, 10_000, 20_000, 160_000, 300_000, 300_000, 300_000]);
    }

    #[test]
    fn one_burst_of_trouble_halves_once_and_good_answers_open_again() {
        let mut window = Window::new(8, BACKOFF);
        (0..8).for_each(|_| window.start());
        assert_eq!(window.opens(), None);
        (0..8).for_each(|_| window.met_trouble(1_000, None));
        assert_eq!((window.allowed, window.opens()), (4, Some(6_000)));
        (0..4).for_each(|_| window.start());
        assert_eq!(window.opens(), None);
        (0..4).for_each(|_| window.went_well());
        assert_eq!(window.allowed, 5);
    }

    #[test]
    fn trouble_again_and_again_shuts_for_longer_and_leaves_one() {
        let mut window = Window::new(4, BACKOFF);
        let mut now = 0;
        let mut gaps = Vec::new();
        for _ in 0..4 {
            window.start();
            window.met_trouble(now, None);
            gaps.push(window.shut_until - now);
            now = window.shut_until;
        }
        assert_eq!(gaps, [5_000, 10_000, 20_000, 40_000]);
        assert_eq!(window.allowed, 1);
    }

    #[test]
    fn the_server_may_ask_for_more_patience_than_we_had() {
        let mut window = Window::new(4, BACKOFF);
        (0..2).for_each(|_| window.start());
        window.met_trouble(0, Some(Duration::from_secs(1)));
        assert_eq!(window.opens(), Some(5_000));
        window.met_trouble(1_000, Some(Duration::from_secs(30)));
        assert_eq!(window.opens(), Some(31_000));
    }

    #[test]
    fn only_the_newest_pods_are_remembered() {
        let mut memory = Memory::new(2);
        for pod in 1..=3 {
            memory.put(Uid(pod), pod);
        }
        assert_eq!([1, 2, 3].map(|pod| memory.get(Uid(pod)).copied()), [None, Some(2), Some(3)]);
        memory.forget(Uid(3));
        assert_eq!(memory.get(Uid(3)), None);
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Start,
        Well,
        Trouble(Option<u64>),
        Later(Millis),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            4 => Just(Step::Start),
            3 => Just(Step::Well),
            1 => proptest::option::of(0_u64..90).prop_map(Step::Trouble),
            2 => (0_i64..20_000).prop_map(Step::Later),
        ];
        proptest::collection::vec(step, 0..200)
    }

    proptest! {
        #[test]
        fn never_more_in_flight_than_allowed_and_never_shut_for_ever(most in 0_u32..20, steps in steps()) {
            let mut window = Window::new(most, BACKOFF);
            let (mut now, mut flying) = (0, 0);
            for step in steps {
                match step {
                    Step::Start if window.opens().is_some_and(|at| at <= now) => {
                        window.start();
                        flying += 1;
                    }
                    Step::Well if flying > 0 => {
                        window.went_well();
                        flying -= 1;
                    }
                    Step::Trouble(asked) if flying > 0 => {
                        window.met_trouble(now, asked.map(Duration::from_secs));
                        flying -= 1;
                    }
                    Step::Later(by) => now += by,
                    _ => {}
                }
                prop_assert_eq!(window.in_flight, flying);
                prop_assert!(flying <= most.max(1));
                prop_assert!((1..=most.max(1)).contains(&window.allowed));
                prop_assert!(window.shut_until <= now + millis(BACKOFF.most));
                prop_assert!(flying > 0 || window.opens().is_some(), "an idle window is never full");
            }
        }

        #[test]
        fn memory_is_bounded_and_keeps_what_came_last(pods in proptest::collection::vec((0_u128..30, any::<bool>()), 0..200)) {
            let mut memory = Memory::new(10);
            for (pod, keep) in pods {
                if keep {
                    memory.put(Uid(pod), ());
                    prop_assert!(memory.get(Uid(pod)).is_some());
                } else {
                    memory.forget(Uid(pod));
                }
                prop_assert!(memory.order.len() <= 10);
                prop_assert_eq!(memory.values.len(), memory.order.len());
            }
        }
    }
}

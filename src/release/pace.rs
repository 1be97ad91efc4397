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
/// well, shrinks by a quarter with each that took long, halves on trouble.
#[derive(Debug)]
pub(super) struct Window {
    most: u32,
    allowed: u32,
    in_flight: u32,
    /// Answers without trouble since the window last changed.
    good: u32,
}

impl Window {
    /// Wide open; never more than `most` (at least one) in flight.
    pub(super) fn new(most: u32) -> Self {
        let most = most.max(1);
        Self { most, allowed: most, in_flight: 0, good: 0 }
    }

    /// Whether one more write may start.
    pub(super) fn has_room(&self) -> bool {
        self.in_flight < self.allowed
    }

    /// Writes that may be in flight at once.
    pub(super) fn allowed(&self) -> u32 {
        self.allowed
    }

    /// A write started.
    pub(super) fn start(&mut self) {
        self.in_flight += 1;
    }

    /// A write ended.
    pub(super) fn end(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
    }

    /// The apiserver was well; `rising` when its answers take longer than they used to.
    pub(super) fn went_well(&mut self, rising: bool) {
        self.good += 1;
        if self.good >= self.allowed {
            let quarter = self.allowed.div_ceil(4);
            self.set(if rising { self.allowed - quarter } else { self.allowed + 1 });
        }
    }

    /// The apiserver was in trouble.
    pub(super) fn halve(&mut self) {
        self.set(self.allowed / 2);
    }

    /// One at a time from now on.
    pub(super) fn narrow(&mut self) {
        self.set(1);
    }

    fn set(&mut self, allowed: u32) {
        self.good = 0;
        self.allowed = allowed.clamp(1, self.most);
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

    fn windowfuls(window: &mut Window, count: usize, rising: bool) -> Vec<u32> {
        let windowful = |_| {
            let allowed = window.allowed();
            (0..allowed).for_each(|_| window.went_well(rising));
            window.allowed()
        };
        (0..count).map(windowful).collect()
    }

    #[test]
    fn trouble_halves_and_good_answers_open_again_one_by_one() {
        let mut window = Window::new(8);
        window.halve();
        assert_eq!(windowfuls(&mut window, 5, false), [5, 6, 7, 8, 8]);
        (0..9).for_each(|_| window.halve());
        assert_eq!(window.allowed(), 1);
    }

    #[test]
    fn long_answers_close_it_by_a_quarter_and_leave_one() {
        assert_eq!(windowfuls(&mut Window::new(16), 9, true), [12, 9, 6, 4, 3, 2, 1, 1, 1]);
    }

    #[test]
    fn no_more_start_than_allowed_however_many_are_still_in_flight() {
        let mut window = Window::new(4);
        (0..4).for_each(|_| window.start());
        window.halve();
        (0..2).for_each(|_| window.end());
        assert!(!window.has_room());
        window.end();
        assert!(window.has_room());
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

    proptest! {
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

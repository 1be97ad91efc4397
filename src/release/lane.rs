//! The releases of one cluster from decision to outcome. Pure: time is a number
//! and the PATCH itself is somebody else's.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::engine::action::Release;
use crate::engine::event::Outcome;
use crate::engine::{Millis, PodId};

use super::error::{Handling, ReleaseError};
use super::pace::{Backoff, Memory, Window, millis};

/// Releases that may wait in one lane; more are handed back at once.
const WAITING: usize = 4_096;
/// Pods whose release is remembered, so that none is written twice.
const RELEASED: usize = 65_536;
/// Pods whose refusals are counted.
const REFUSED: usize = 16_384;

/// How hard a lane tries.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Patches in flight at once.
    pub in_flight: u32,
    /// Patches for one release before it is handed back.
    pub tries: u32,
    /// Between two tries of a release, and while the apiserver is in trouble.
    pub retry: Backoff,
    /// Between two releases of a pod that was refused.
    pub refusal: Backoff,
}

/// A release on its way.
#[derive(Clone, Debug)]
pub(super) struct Attempt {
    /// What to write.
    pub release: Release,
    /// Tries that failed.
    pub failures: u32,
}

/// What a lane can do now.
#[derive(Debug)]
pub(super) enum Next {
    /// Send this.
    Start(Attempt),
    /// Nothing before this time.
    At(Millis),
    /// Nothing until a PATCH ends or a release comes.
    Idle,
}

/// What a finished PATCH came to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Finished {
    /// It is over.
    Outcome(Outcome),
    /// It is over for now, so many times in a row.
    Refused {
        /// The release that is handed back.
        release: Release,
        /// Why.
        error: ReleaseError,
        /// Not before this time.
        retry_at: Millis,
        /// At least 1.
        times: u32,
    },
    /// It will be repeated because of this.
    Retried(ReleaseError),
}

/// All releases of one cluster.
#[derive(Debug)]
pub(super) struct Lane {
    limits: Limits,
    window: Window,
    waiting: VecDeque<Attempt>,
    delayed: BTreeMap<(Millis, PodId), Attempt>,
    /// Pods waiting, delayed or in flight.
    open: BTreeSet<PodId>,
    released: Memory<()>,
    refusals: Memory<u32>,
}

impl Lane {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            window: Window::new(limits.in_flight, limits.retry),
            waiting: VecDeque::new(),
            delayed: BTreeMap::new(),
            open: BTreeSet::new(),
            released: Memory::new(RELEASED),
            refusals: Memory::new(REFUSED),
        }
    }

    /// Whether one more release would be taken.
    pub(super) fn has_room(&self) -> bool {
        self.open.len() < WAITING
    }

    /// Takes a release in. An outcome when there is nothing to write.
    pub(super) fn accept(&mut self, now: Millis, release: Release) -> Option<Outcome> {
        let pod = release.pod;
        if self.released.get(pod).is_some() {
            return Some(Outcome::Released);
        }
        if self.open.contains(&pod) {
            return None;
        }
        if !self.has_room() {
            let retry_at = now.saturating_add(self.limits.refusal.after(1));
            return Some(Outcome::Refused { retry_at });
        }
        self.open.insert(pod);
        self.waiting.push_back(Attempt { release, failures: 0 });
        None
    }

    /// What can be done now. What is started must be [`Self::finish`]ed.
    pub(super) fn next(&mut self, now: Millis) -> Next {
        let Some(opens) = self.window.opens() else { return Next::Idle };
        let due = match self.delayed.first_key_value() {
            _ if !self.waiting.is_empty() => now,
            Some((&(at, _), _)) => at,
            None => return Next::Idle,
        };
        let at = due.max(opens);
        if at > now {
            return Next::At(at);
        }
        match self.take(now) {
            Some(attempt) => {
                self.window.start();
                Next::Start(attempt)
            }
            None => Next::Idle,
        }
    }

    /// The repeated before the new: they were decided earlier.
    fn take(&mut self, now: Millis) -> Option<Attempt> {
        match self.delayed.first_entry() {
            Some(first) if first.key().0 <= now => Some(first.remove()),
            _ => self.waiting.pop_front(),
        }
    }

    /// Takes in how a PATCH ended.
    pub(super) fn finish(
        &mut self,
        now: Millis,
        attempt: Attempt,
        result: Result<(), ReleaseError>,
    ) -> Finished {
        self.note_health(now, &result);
        let pod = attempt.release.pod;
        let outcome = match result {
            Ok(()) => {
                self.released.put(pod, ());
                Outcome::Released
            }
            Err(ReleaseError::Gone) => Outcome::Gone,
            Err(error) => return self.failed(now, attempt, error),
        };
        self.open.remove(&pod);
        self.refusals.forget(pod);
        Finished::Outcome(outcome)
    }

    fn note_health(&mut self, now: Millis, result: &Result<(), ReleaseError>) {
        match result {
            Err(error) if error.is_overload() => self.window.met_trouble(now, error.retry_after()),
            _ => self.window.went_well(),
        }
    }

    fn failed(&mut self, now: Millis, mut attempt: Attempt, error: ReleaseError) -> Finished {
        attempt.failures += 1;
        if error.handling() == Handling::Retry && attempt.failures < self.limits.tries {
            let at = now.saturating_add(self.wait(attempt.failures, &error));
            self.delayed.insert((at, attempt.release.pod), attempt);
            return Finished::Retried(error);
        }
        let release = attempt.release;
        let pod = release.pod;
        let times = self.refusals.get(pod).copied().unwrap_or(0).saturating_add(1);
        self.refusals.put(pod, times);
        self.open.remove(&pod);
        let retry_at = now.saturating_add(self.limits.refusal.after(times));
        Finished::Refused { release, error, retry_at, times }
    }

    fn wait(&self, failures: u32, error: &ReleaseError) -> Millis {
        self.limits.retry.after(failures).max(error.retry_after().map_or(0, millis))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Uid;
    use crate::release::tests::support::release;
    use proptest::prelude::*;
    use rstest::rstest;
    use std::time::Duration;

    const LIMITS: Limits = Limits {
        in_flight: 4,
        tries: 3,
        retry: Backoff { first: Duration::from_millis(200), most: Duration::from_secs(10) },
        refusal: Backoff { first: Duration::from_secs(5), most: Duration::from_mins(5) },
    };

    fn start(lane: &mut Lane, now: Millis) -> Option<Attempt> {
        match lane.next(now) {
            Next::Start(attempt) => Some(attempt),
            Next::At(_) | Next::Idle => None,
        }
    }

    fn failed() -> Result<(), ReleaseError> {
        Err(ReleaseError::Failed { code: 500, message: String::new() })
    }

    fn refused() -> Result<(), ReleaseError> {
        Err(ReleaseError::Refused { code: 403, message: "no".to_owned() })
    }

    #[test]
    fn a_pod_that_was_released_is_never_written_again() {
        let mut lane = Lane::new(LIMITS);
        assert_eq!(lane.accept(0, release(1)), None);
        let attempt = start(&mut lane, 0).unwrap();
        assert_eq!(lane.accept(0, release(1)), None, "in flight: one outcome will come");
        assert!(start(&mut lane, 0).is_none());
        assert_eq!(lane.finish(0, attempt, Ok(())), Finished::Outcome(Outcome::Released));
        assert_eq!(lane.accept(1, release(1)), Some(Outcome::Released));
        assert!(start(&mut lane, 1).is_none());
    }

    #[test]
    fn a_failure_is_repeated_with_growing_waits_and_then_handed_back() {
        let mut lane = Lane::new(LIMITS);
        lane.accept(0, release(1));
        let mut now = 0;
        for wait in [200, 400] {
            let attempt = start(&mut lane, now).unwrap();
            assert!(matches!(lane.finish(now, attempt, failed()), Finished::Retried(_)));
            assert!(matches!(lane.next(now), Next::At(at) if at == now + wait));
            now += wait;
        }
        let attempt = start(&mut lane, now).unwrap();
        let refused = Finished::Refused {
            release: release(1),
            error: failed().unwrap_err(),
            retry_at: now + 5_000,
            times: 1,
        };
        assert_eq!(lane.finish(now, attempt, failed()), refused);
        assert!(matches!(lane.next(now), Next::Idle));
    }

    #[test]
    fn each_refusal_of_a_pod_waits_longer_until_it_succeeds() {
        let mut lane = Lane::new(LIMITS);
        let mut waits = Vec::new();
        for _ in 0..8 {
            lane.accept(0, release(1));
            let attempt = start(&mut lane, 0).unwrap();
            match lane.finish(0, attempt, refused()) {
                Finished::Refused { retry_at, .. } => waits.push(retry_at),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(waits, [5, 10, 20, 40, 80, 160, 300, 300].map(|seconds| seconds * 1_000));
    }

    #[rstest]
    #[case(Ok(()), Outcome::Released)]
    #[case(Err(ReleaseError::Gone), Outcome::Gone)]
    fn an_end_is_an_end(#[case] result: Result<(), ReleaseError>, #[case] outcome: Outcome) {
        let mut lane = Lane::new(LIMITS);
        lane.accept(0, release(1));
        let attempt = start(&mut lane, 0).unwrap();
        assert_eq!(lane.finish(0, attempt, result), Finished::Outcome(outcome));
        assert!(lane.open.is_empty() && lane.delayed.is_empty() && lane.waiting.is_empty());
    }

    #[test]
    fn an_overloaded_apiserver_gets_nothing_before_it_said() {
        let mut lane = Lane::new(LIMITS);
        (1..=6).for_each(|pod| assert_eq!(lane.accept(0, release(pod)), None));
        let attempt = start(&mut lane, 0).unwrap();
        let after = Some(Duration::from_secs(7));
        lane.finish(0, attempt, Err(ReleaseError::Overloaded { code: 429, after }));
        assert!(matches!(lane.next(6_999), Next::At(7_000)));
        let repeated = start(&mut lane, 7_000).unwrap();
        assert_eq!((repeated.release.pod, repeated.failures), (Uid(1), 1));
        assert_eq!(start(&mut lane, 7_000).unwrap().release.pod, Uid(2));
        assert!(start(&mut lane, 7_000).is_none(), "the window was halved");
    }

    #[test]
    fn a_full_lane_hands_back_at_once() {
        let mut lane = Lane::new(LIMITS);
        for pod in 0..WAITING as u128 {
            assert_eq!(lane.accept(0, release(pod)), None);
        }
        let handed_back = lane.accept(100, release(u128::MAX));
        assert_eq!(handed_back, Some(Outcome::Refused { retry_at: 5_100 }));
    }

    fn results() -> impl Strategy<Value = Result<(), ReleaseError>> {
        let lost = || ReleaseError::NoAnswer("timed out".to_owned());
        prop_oneof![
            4 => Just(Ok(())),
            1 => Just(Err(ReleaseError::Gone)),
            1 => Just(refused()),
            1 => Just(failed()),
            1 => Just(Err(lost())),
            1 => (0_u64..40).prop_map(|s| Err(ReleaseError::Overloaded { code: 429, after: Some(Duration::from_secs(s)) })),
        ]
    }

    proptest! {
        /// However PATCHes end, each accepted release comes to exactly one end, in
        /// bounded time, and no pod sees a PATCH after a good one.
        #[test]
        fn every_release_ends_once(
            arrivals in proptest::collection::vec(0_u128..12, 1..60),
            results in proptest::collection::vec(results(), 200),
        ) {
            let mut lane = Lane::new(LIMITS);
            let mut results = results.into_iter().cycle();
            let (mut open, mut done) = (BTreeSet::new(), BTreeSet::new());
            for pod in arrivals {
                match lane.accept(0, release(pod)) {
                    Some(outcome) => prop_assert_eq!((outcome, done.contains(&pod)), (Outcome::Released, true)),
                    None => { open.insert(pod); }
                }
                if let Next::Start(attempt) = lane.next(0) {
                    let pod = attempt.release.pod.0;
                    prop_assert!(open.contains(&pod) && !done.contains(&pod));
                    let result = results.next().unwrap();
                    if result.is_ok() {
                        done.insert(pod);
                    }
                    if !matches!(lane.finish(0, attempt, result), Finished::Retried(_)) {
                        open.remove(&pod);
                    }
                }
            }
            let mut now = 0;
            for _ in 0..2_000 {
                match lane.next(now) {
                    Next::Start(attempt) => {
                        let pod = attempt.release.pod.0;
                        prop_assert!(open.contains(&pod) && !done.contains(&pod));
                        let result = results.next().unwrap();
                        if result.is_ok() {
                            done.insert(pod);
                        }
                        if !matches!(lane.finish(now, attempt, result), Finished::Retried(_)) {
                            prop_assert!(open.remove(&pod));
                        }
                    }
                    Next::At(at) => {
                        prop_assert!(at > now && at <= now + 60_000);
                        now = at;
                    }
                    Next::Idle => break,
                }
            }
            prop_assert!(open.is_empty() && lane.open.is_empty());
        }
    }
}

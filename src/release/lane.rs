//! The releases of one cluster from decision to outcome. Pure: time is a number
//! and the PATCH itself is somebody else's.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::engine::action::Release;
use crate::engine::event::{Outcome, Pause};
use crate::engine::{Millis, PodId};

use super::circuit::Phase;
use super::error::{Handling, ReleaseError};
use super::pace::{Backoff, Memory, millis};
use super::throttle::{Health, Throttle};

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
    tries: u32,
    /// Those of them that were this write's own failure, not the apiserver's.
    failures: u32,
    /// [`Lane::done`] when it was last sent.
    sent_at: u64,
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
    throttle: Throttle,
    /// Writes that were done.
    done: u64,
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
            throttle: Throttle::new(limits.in_flight, limits.retry),
            done: 0,
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
        self.waiting.push_back(Attempt { release, tries: 0, failures: 0, sent_at: 0 });
        None
    }

    /// Why nothing new should be decided for this cluster, if so.
    pub(super) fn pause(&self) -> Option<Pause> {
        self.throttle.pause()
    }

    /// Where the circuit stands, and how many patches may be in flight.
    pub(super) fn standing(&self, now: Millis) -> (Phase, u32) {
        self.throttle.standing(now)
    }

    /// What can be done now. What is started must be [`Self::finish`]ed.
    pub(super) fn next(&mut self, now: Millis) -> Next {
        let Some(opens) = self.throttle.opens() else { return Next::Idle };
        let due = self.due(now);
        if opens <= now && due.is_none_or(|due| due > now) {
            self.throttle.has_no_probe(now);
        }
        match due {
            Some(due) if due.max(opens) <= now => self.send(now),
            // Shut: look again when it opens, whether or not there is something to send.
            _ if opens > now => Next::At(opens),
            Some(due) => Next::At(due),
            None => Next::Idle,
        }
    }

    /// When the first of what waits may be sent.
    fn due(&self, now: Millis) -> Option<Millis> {
        match self.delayed.first_key_value() {
            _ if !self.waiting.is_empty() => Some(now),
            delayed => delayed.map(|(&(at, _), _)| at),
        }
    }

    fn send(&mut self, now: Millis) -> Next {
        let Some(mut attempt) = self.take(now) else { return Next::Idle };
        self.throttle.start();
        attempt.sent_at = self.done;
        Next::Start(attempt)
    }

    /// The repeated before the new: they were decided earlier.
    fn take(&mut self, now: Millis) -> Option<Attempt> {
        match self.delayed.first_entry() {
            Some(first) if first.key().0 <= now => Some(first.remove()),
            _ => self.waiting.pop_front(),
        }
    }

    /// Takes in how a PATCH ended and how many milliseconds it took.
    pub(super) fn finish(
        &mut self,
        now: Millis,
        attempt: Attempt,
        result: Result<(), ReleaseError>,
        took: Millis,
    ) -> Finished {
        self.throttle.ended(now, health(&result, took));
        let pod = attempt.release.pod;
        let outcome = match result {
            Ok(()) => {
                self.done += 1;
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

    /// Repeats it or hands it back. While the apiserver suffers nothing is handed back:
    /// the gate may be open already, and then its room must not be given to others.
    fn failed(&mut self, now: Millis, mut attempt: Attempt, error: ReleaseError) -> Finished {
        attempt.tries = attempt.tries.saturating_add(1);
        let others_went_well = self.done > attempt.sent_at;
        if error.trouble().is_none() || others_went_well {
            attempt.failures += 1;
        }
        if error.handling() == Handling::Retry && attempt.failures < self.limits.tries {
            let at = now.saturating_add(self.wait(attempt.tries, &error));
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

    /// A write that fails again and again waits longer than the circuit, so that it is not
    /// the only probe there is.
    fn wait(&self, tries: u32, error: &ReleaseError) -> Millis {
        let wait = self.limits.retry.after(tries);
        let wait = if tries > self.limits.tries { wait.saturating_mul(3) } else { wait };
        wait.max(error.retry_after().map_or(0, millis))
    }
}

fn health(result: &Result<(), ReleaseError>, took: Millis) -> Health {
    match result {
        Ok(()) => Health::Done(took),
        Err(error) => match error.trouble() {
            Some(trouble) => Health::Trouble(trouble, error.retry_after()),
            None => Health::Answered,
        },
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

    /// As it is for this write alone.
    fn failed() -> Result<(), ReleaseError> {
        Err(ReleaseError::Failed { code: 409, message: String::new() })
    }

    fn lost() -> Result<(), ReleaseError> {
        Err(ReleaseError::NoAnswer("timed out".to_owned()))
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
        assert_eq!(lane.finish(0, attempt, Ok(()), 1), Finished::Outcome(Outcome::Released));
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
            assert!(matches!(lane.finish(now, attempt, failed(), 1), Finished::Retried(_)));
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
        assert_eq!(lane.finish(now, attempt, failed(), 1), refused);
        assert!(matches!(lane.next(now), Next::Idle));
    }

    #[test]
    fn each_refusal_of_a_pod_waits_longer_until_it_succeeds() {
        let mut lane = Lane::new(LIMITS);
        let mut waits = Vec::new();
        for _ in 0..8 {
            lane.accept(0, release(1));
            let attempt = start(&mut lane, 0).unwrap();
            match lane.finish(0, attempt, refused(), 1) {
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
        assert_eq!(lane.finish(0, attempt, result, 1), Finished::Outcome(outcome));
        assert!(lane.open.is_empty() && lane.delayed.is_empty() && lane.waiting.is_empty());
    }

    #[test]
    fn an_overloaded_apiserver_gets_nothing_before_it_said() {
        let mut lane = Lane::new(LIMITS);
        (1..=6).for_each(|pod| assert_eq!(lane.accept(0, release(pod)), None));
        let attempt = start(&mut lane, 0).unwrap();
        let after = Some(Duration::from_secs(7));
        lane.finish(0, attempt, Err(ReleaseError::Overloaded { code: 429, after }), 1);
        assert!(matches!(lane.next(6_999), Next::At(7_000)));
        let repeated = start(&mut lane, 7_000).unwrap();
        assert_eq!((repeated.release.pod, repeated.tries, repeated.failures), (Uid(1), 1, 0));
        assert_eq!(start(&mut lane, 7_000).unwrap().release.pod, Uid(2));
        assert!(start(&mut lane, 7_000).is_none(), "the window was halved");
    }

    /// Sends what may be sent, each with this result, until the lane has nothing to do
    /// before `until`; how many were sent and at most how many at once.
    fn run(
        lane: &mut Lane,
        mut now: Millis,
        until: Millis,
        result: fn() -> Result<(), ReleaseError>,
    ) -> usize {
        let mut sent = 0;
        while now < until {
            match lane.next(now) {
                Next::Start(attempt) => {
                    sent += 1;
                    lane.finish(now, attempt, result(), 1);
                }
                Next::At(at) => now = at,
                Next::Idle => break,
            }
        }
        sent
    }

    #[test]
    fn while_the_apiserver_suffers_nothing_is_handed_back_and_little_is_sent() {
        let mut lane = Lane::new(LIMITS);
        (1..=100).for_each(|pod| assert_eq!(lane.accept(0, release(pod)), None));
        let sent = run(&mut lane, 0, 600_000, lost);
        assert!((60..80).contains(&sent), "one each ten seconds: {sent}");
        assert_eq!(lane.open.len(), 100);
        assert_eq!(lane.pause().map(|pause| pause.since), Some(600));
        assert_eq!(run(&mut lane, 600_000, 700_000, || Ok(())), 100);
        assert!(lane.open.is_empty() && lane.pause().is_none());
    }

    #[test]
    fn a_write_that_alone_goes_unanswered_among_others_is_handed_back() {
        let mut lane = Lane::new(LIMITS);
        (1..=20).for_each(|pod| assert_eq!(lane.accept(0, release(pod)), None));
        let (mut now, mut tries) = (0, 0);
        let refused = loop {
            match lane.next(now) {
                Next::Start(attempt) if attempt.release.pod == Uid(1) => {
                    // Another one is sent meanwhile and ends well.
                    if let Some(other) = start(&mut lane, now) {
                        lane.finish(now, other, Ok(()), 1);
                    }
                    tries += 1;
                    if let Finished::Refused { .. } = lane.finish(now, attempt, lost(), 1) {
                        break true;
                    }
                }
                Next::Start(attempt) => drop(lane.finish(now, attempt, Ok(()), 1)),
                Next::At(at) => now = at,
                Next::Idle => break false,
            }
            if now > 100 && lane.waiting.is_empty() {
                lane.accept(now, release(1_000 + u128::try_from(now).unwrap()));
            }
        };
        assert!(refused && tries == LIMITS.tries, "{refused} after {tries}");
    }

    /// A pod whose PATCH alone never gets an answer must not keep all others waiting.
    #[test]
    fn a_lone_write_that_fails_for_ever_lets_others_be_decided() {
        let mut lane = Lane::new(LIMITS);
        lane.accept(0, release(1));
        let mut now = 0;
        let mut decided_again = 0;
        while now < 120_000 {
            match lane.next(now) {
                Next::Start(attempt) => drop(lane.finish(now, attempt, lost(), 1)),
                Next::At(at) => now = at,
                Next::Idle => panic!("it is never idle"),
            }
            let trial = lane.pause().is_none() && lane.standing(now).0 == Phase::HalfOpen;
            decided_again += usize::from(trial);
        }
        assert!(decided_again >= 3, "{decided_again}");
        assert!(!lane.open.is_empty(), "its gate may be open: it stays charged");
    }

    #[test]
    fn a_circuit_that_opened_with_an_empty_lane_closes_on_the_next_releases() {
        let mut lane = Lane::new(LIMITS);
        lane.accept(0, release(1));
        let mut now = 0;
        while lane.pause().is_none() {
            match lane.next(now) {
                Next::Start(attempt) => drop(lane.finish(now, attempt, lost(), 1)),
                Next::At(at) => now = at,
                Next::Idle => panic!("it is never idle"),
            }
        }
        run(&mut lane, now, now + 60_000, || Err(ReleaseError::Gone));
        assert!(lane.open.is_empty() && lane.pause().is_none(), "on trial");
        assert_eq!(lane.standing(now + 60_000).0, Phase::HalfOpen);
        (2..=9).for_each(|pod| assert_eq!(lane.accept(now + 60_000, release(pod)), None));
        assert_eq!(run(&mut lane, now + 60_000, now + 61_000, || Ok(())), 8);
        assert_eq!(lane.standing(now + 61_000).0, Phase::Closed);
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
        prop_oneof![
            4 => Just(Ok(())),
            1 => Just(Err(ReleaseError::Gone)),
            1 => Just(refused()),
            1 => Just(failed()),
            2 => Just(lost()),
            1 => (0_u64..40).prop_map(|s| Err(ReleaseError::Overloaded { code: 429, after: Some(Duration::from_secs(s)) })),
        ]
    }

    proptest! {
        /// However PATCHes end, each accepted release comes to exactly one end once the
        /// apiserver is well, in bounded time, and no pod sees a PATCH after a good one.
        #[test]
        fn every_release_ends_once(
            arrivals in proptest::collection::vec(0_u128..12, 1..60),
            results in proptest::collection::vec((results(), 0_i64..3_000), 0..300),
        ) {
            let mut lane = Lane::new(LIMITS);
            let mut results = results.into_iter().chain(std::iter::repeat((Ok(()), 1)));
            let (mut open, mut done) = (BTreeSet::new(), BTreeSet::new());
            let mut arrivals = arrivals.into_iter();
            let mut now = 0;
            for _ in 0..3_000 {
                if let Some(pod) = arrivals.next() {
                    match lane.accept(now, release(pod)) {
                        Some(outcome) => prop_assert_eq!((outcome, done.contains(&pod)), (Outcome::Released, true)),
                        None => { open.insert(pod); }
                    }
                }
                match lane.next(now) {
                    Next::Start(attempt) => {
                        let pod = attempt.release.pod.0;
                        prop_assert!(open.contains(&pod) && !done.contains(&pod));
                        let (result, took) = results.next().unwrap();
                        if result.is_ok() {
                            done.insert(pod);
                        }
                        if !matches!(lane.finish(now, attempt, result, took), Finished::Retried(_)) {
                            prop_assert!(open.remove(&pod));
                        }
                    }
                    Next::At(at) => {
                        prop_assert!(at > now && at <= now + 60_000);
                        now = at;
                    }
                    Next::Idle => {}
                }
            }
            prop_assert!(open.is_empty() && lane.open.is_empty());
            prop_assert_eq!(lane.pause(), None);
        }
    }
}

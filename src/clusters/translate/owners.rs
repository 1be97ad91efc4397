//! What is known of owners, by whom it is used, and when to ask again.

use std::collections::{BTreeMap, BTreeSet};

use crate::engine::{Millis, PodId};
use crate::grouping::{Lookup, ObjectKey, Owners};

/// First wait after a failed look-up; it doubles up to [`LONGEST_WAIT`].
const FIRST_WAIT: Millis = 250;
const LONGEST_WAIT: Millis = 30_000;
/// An owner is not read again sooner than this.
const SHORTEST_AGE: Millis = 2_000;
/// Repeated reads a second, all owners together.
const READS_A_SECOND: Millis = 20;
/// Repeated reads that may come at once after a quiet time.
const BURST: Millis = 10;

/// Owners that some pod's chain leads to; others are forgotten at once.
#[derive(Debug, Default)]
pub(super) struct OwnerCache {
    entries: BTreeMap<ObjectKey, Entry>,
    retries: BTreeSet<(Millis, ObjectKey)>,
    /// Thousandths of a read that may be made now, as of `saved_at`.
    saved: Millis,
    saved_at: Millis,
}

#[derive(Debug)]
struct Entry {
    answer: Lookup,
    users: BTreeSet<PodId>,
    in_flight: bool,
    asked_at: Millis,
    failures: u32,
}

impl Owners for OwnerCache {
    fn look_up(&self, owner: &ObjectKey) -> Lookup {
        self.entries.get(owner).map_or(Lookup::Pending, |entry| entry.answer.clone())
    }
}

impl OwnerCache {
    /// Notes that a pod's chain leads to `new` and no more to `old`; owners that
    /// nobody used before are added to `asks`.
    pub fn track(
        &mut self,
        now: Millis,
        pod: PodId,
        old: &[ObjectKey],
        new: &[ObjectKey],
        asks: &mut Vec<ObjectKey>,
    ) {
        for key in new {
            let entry = self.entries.entry(key.clone()).or_insert_with(|| {
                asks.push(key.clone());
                Entry {
                    answer: Lookup::Pending,
                    users: BTreeSet::new(),
                    in_flight: true,
                    asked_at: now,
                    failures: 0,
                }
            });
            entry.users.insert(pod);
        }
        for key in old.iter().filter(|key| !new.contains(key)) {
            let Some(entry) = self.entries.get_mut(key) else { continue };
            entry.users.remove(&pod);
            if entry.users.is_empty() {
                self.entries.remove(key);
            }
        }
    }

    /// Pods whose chain leads to an owner.
    pub fn users(&self, key: &ObjectKey) -> impl Iterator<Item = PodId> {
        self.entries.get(key).into_iter().flat_map(|entry| &entry.users).copied()
    }

    /// Takes an answer in; the pods whose placement it may change. A failed
    /// look-up changes nothing and is repeated later.
    pub fn answered(&mut self, now: Millis, key: &ObjectKey, answer: Lookup) -> Vec<PodId> {
        let Some(entry) = self.entries.get_mut(key) else { return Vec::new() };
        entry.in_flight = false;
        if answer == Lookup::Pending {
            let wait = FIRST_WAIT << entry.failures.min(10);
            entry.failures += 1;
            self.retries.insert((now + wait.min(LONGEST_WAIT), key.clone()));
            return Vec::new();
        }
        entry.failures = 0;
        if entry.answer == answer {
            return Vec::new();
        }
        entry.answer = answer;
        entry.users.iter().copied().collect()
    }

    /// Whether an owner was never read, although it was tried.
    pub fn has_failed(&self, key: &ObjectKey) -> bool {
        let failed = |entry: &Entry| entry.answer == Lookup::Pending && entry.failures > 0;
        self.entries.get(key).is_some_and(failed)
    }

    /// Look-ups that failed and are to be repeated now.
    pub fn due(&mut self, now: Millis) -> Vec<ObjectKey> {
        let later = self.retries.iter().find(|(at, _)| *at > now).cloned();
        let rest = later.map_or_else(BTreeSet::new, |later| self.retries.split_off(&later));
        let due = std::mem::replace(&mut self.retries, rest);
        due.into_iter().map(|(_, key)| key).filter(|key| self.ask_again(now, key)).collect()
    }

    /// How many owners may be read again now.
    pub fn allowance(&mut self, now: Millis) -> usize {
        let earned = (now - self.saved_at).max(0).saturating_mul(READS_A_SECOND);
        self.saved = self.saved.saturating_add(earned).min(BURST * 1_000);
        self.saved_at = now;
        usize::try_from(self.saved / 1_000).unwrap_or(0)
    }

    /// When an owner was asked for last.
    pub fn asked_at(&self, key: &ObjectKey) -> Millis {
        self.entries.get(key).map_or(0, |entry| entry.asked_at)
    }

    /// Reads an owner again if it is old enough; takes from the allowance.
    pub fn refresh(&mut self, now: Millis, key: &ObjectKey) -> bool {
        let old = self
            .entries
            .get(key)
            .is_some_and(|entry| entry.failures == 0 && now - entry.asked_at >= SHORTEST_AGE);
        let asked = old && self.ask_again(now, key);
        if asked {
            self.saved -= 1_000;
        }
        asked
    }

    fn ask_again(&mut self, now: Millis, key: &ObjectKey) -> bool {
        match self.entries.get_mut(key) {
            Some(entry) if !entry.in_flight => {
                entry.in_flight = true;
                entry.asked_at = now;
                true
            }
            _ => false,
        }
    }
}

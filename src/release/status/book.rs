//! Which queue's status is to be written next. Pure: time is a number.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::api::v1alpha1;
use crate::engine::Millis;
use crate::engine::action::QueueStatus;
use crate::release::error::ReleaseError;
use crate::release::pace::Backoff;

/// Queues that are remembered.
const QUEUES: usize = 10_000;
/// Shortest time between two writes of a queue when what admission goes by has changed.
const URGENT_EVERY: Millis = 200;
/// Waits after failed writes; until one succeeds the newest status stays due.
const RETRY: Backoff = Backoff { first: Duration::from_secs(1), most: Duration::from_mins(1) };

/// What stands in a queue's status, as far as is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Known {
    /// Of this object.
    pub uid: Arc<str>,
    /// This.
    pub status: v1alpha1::QueueStatus,
}

/// One status to write.
#[derive(Debug)]
pub(super) struct Job {
    /// The newest numbers.
    pub status: QueueStatus,
    /// What stands there.
    pub known: Option<Known>,
}

/// The newest status of each queue.
#[derive(Debug)]
pub(super) struct Book {
    every: Millis,
    rows: BTreeMap<Arc<str>, Row>,
    /// Rows with something to write and nobody writing, by when they may be.
    ready: BTreeSet<(Millis, Arc<str>)>,
}

#[derive(Debug, Default)]
struct Row {
    newest: Option<QueueStatus>,
    known: Option<Known>,
    /// When it was last begun to be written.
    begun: Option<Millis>,
    due: Millis,
    busy: bool,
    failures: u32,
}

impl Book {
    /// Empty; a queue is written at most once in `every` milliseconds.
    pub(super) fn new(every: Millis) -> Self {
        Self { every, rows: BTreeMap::new(), ready: BTreeSet::new() }
    }

    /// Takes in a queue's newest numbers; older ones not yet written are forgotten.
    pub(super) fn put(&mut self, status: QueueStatus) {
        let name = status.name.clone();
        if !self.rows.contains_key(&name) {
            self.make_room();
        }
        self.unsettle(&name);
        let every = self.every.min(URGENT_EVERY);
        let row = self.rows.entry(name.clone()).or_default();
        if status.urgent && row.failures == 0 {
            row.due = row.begun.map_or(row.due, |begun| row.due.min(begun.saturating_add(every)));
        }
        row.newest = Some(status);
        self.settle(&name);
    }

    /// Forgets a queue that has nothing to write; it will be read again when it has.
    fn make_room(&mut self) {
        if self.rows.len() < QUEUES {
            return;
        }
        let idle = self.rows.iter().find(|(_, row)| row.newest.is_none() && !row.busy);
        let victim = idle.map(|(name, _)| name.clone());
        if let Some(name) = victim.or_else(|| self.ready.last().map(|(_, name)| name.clone())) {
            self.unsettle(&name);
            self.rows.remove(&name);
        }
    }

    /// When the next status may be written.
    pub(super) fn due(&self) -> Option<Millis> {
        self.ready.first().map(|&(due, _)| due)
    }

    /// What to write now. Must be [`Self::finish`]ed.
    pub(super) fn take(&mut self, now: Millis) -> Option<Job> {
        let (due, name) = self.ready.first().cloned()?;
        if due > now {
            return None;
        }
        self.ready.remove(&(due, name.clone()));
        let row = self.rows.get_mut(&name)?;
        row.busy = true;
        row.begun = Some(now);
        row.due = now.saturating_add(self.every);
        let status = row.newest.take()?;
        Some(Job { status, known: row.known.take() })
    }

    /// Takes in how a write ended.
    pub(super) fn finish(
        &mut self,
        now: Millis,
        status: QueueStatus,
        result: Result<Known, ReleaseError>,
    ) {
        let name = status.name.clone();
        let Some(row) = self.rows.get_mut(&name) else { return };
        row.busy = false;
        match result {
            Ok(known) => {
                row.known = Some(known);
                row.failures = 0;
            }
            Err(ReleaseError::Gone) if row.newest.is_none() => drop(self.rows.remove(&name)),
            Err(ReleaseError::Gone) => row.failures = 0,
            Err(_) => {
                row.failures = row.failures.saturating_add(1);
                row.due = row.due.max(now.saturating_add(RETRY.after(row.failures)));
                row.newest.get_or_insert(status);
            }
        }
        self.settle(&name);
    }

    fn settle(&mut self, name: &Arc<str>) {
        if let Some(row) = self.rows.get(name)
            && row.newest.is_some()
            && !row.busy
        {
            self.ready.insert((row.due, name.clone()));
        }
    }

    fn unsettle(&mut self, name: &Arc<str>) {
        if let Some(row) = self.rows.get(name) {
            self.ready.remove(&(row.due, name.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::release::tests::support::queue_status;
    use proptest::prelude::*;

    fn known() -> Known {
        Known { uid: "uid".into(), status: v1alpha1::QueueStatus::default() }
    }

    fn lost() -> Result<Known, ReleaseError> {
        Err(ReleaseError::NoAnswer(String::new()))
    }

    #[test]
    fn the_newest_numbers_win_and_wait_for_their_second() {
        let mut book = Book::new(1_000);
        book.put(queue_status("a", 1));
        book.put(queue_status("a", 2));
        let job = book.take(0).unwrap();
        assert_eq!(job.status.running, (2, 2));
        book.put(queue_status("a", 3));
        book.put(queue_status("a", 4));
        assert!(book.take(5_000).is_none(), "one write at a time");
        book.finish(10, job.status, Ok(known()));
        assert!(book.take(999).is_none());
        assert_eq!(book.due(), Some(1_000));
        let job = book.take(1_000).unwrap();
        assert_eq!((job.status.running, job.known.is_some()), ((4, 4), true));
        book.finish(1_010, job.status, Ok(known()));
        assert_eq!(book.due(), None);
    }

    #[test]
    fn what_admission_goes_by_does_not_wait_for_the_second() {
        let mut book = Book::new(1_000);
        book.put(queue_status("a", 1));
        let job = book.take(0).unwrap();
        book.finish(10, job.status, Ok(known()));
        book.put(QueueStatus { urgent: true, ..queue_status("a", 2) });
        book.put(queue_status("a", 3));
        assert_eq!(book.due(), Some(URGENT_EVERY), "even when newer numbers came after it");
        assert_eq!(book.ready.len(), 1);
        let job = book.take(URGENT_EVERY).unwrap();
        book.put(QueueStatus { urgent: true, ..queue_status("a", 4) });
        book.finish(URGENT_EVERY + 5, job.status, lost());
        assert_eq!(book.due(), Some(URGENT_EVERY + 5 + 1_000), "a failure is waited out");
        book.put(QueueStatus { urgent: true, ..queue_status("a", 5) });
        assert_eq!(book.due(), Some(URGENT_EVERY + 5 + 1_000));
    }

    #[test]
    fn a_failed_write_is_repeated_later_and_reads_first() {
        let mut book = Book::new(1_000);
        book.put(queue_status("a", 1));
        let mut due = Vec::new();
        for _ in 0..4 {
            let now = book.due().unwrap();
            let job = book.take(now).unwrap();
            assert!(job.known.is_none());
            book.finish(now, job.status, lost());
            due.push(book.due().unwrap() - now);
        }
        assert_eq!(due, [1_000, 2_000, 4_000, 8_000]);
        book.put(queue_status("a", 2));
        assert_eq!(book.take(book.due().unwrap()).unwrap().status.running, (2, 2));
    }

    #[test]
    fn a_queue_that_is_gone_is_forgotten_unless_it_came_back() {
        let mut book = Book::new(1_000);
        for newer in [false, true] {
            book.put(queue_status("a", 1));
            let job = book.take(10_000).unwrap();
            if newer {
                book.put(queue_status("a", 2));
            }
            book.finish(10_000, job.status, Err(ReleaseError::Gone));
            assert_eq!(book.rows.len(), usize::from(newer));
        }
        assert_eq!(book.take(11_000).unwrap().status.running, (2, 2));
    }

    #[test]
    fn no_more_queues_are_remembered_than_the_bound() {
        let mut book = Book::new(1_000);
        for queue in 0..QUEUES + 50 {
            book.put(queue_status(&format!("q{queue}"), 1));
        }
        assert_eq!((book.rows.len(), book.ready.len()), (QUEUES, QUEUES));
    }

    #[derive(Clone, Debug)]
    enum Step {
        Put(u8),
        Take,
        Finish(bool),
        Later(Millis),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            (0_u8..4).prop_map(Step::Put),
            Just(Step::Take),
            any::<bool>().prop_map(Step::Finish),
            (0_i64..2_000).prop_map(Step::Later),
        ];
        proptest::collection::vec(step, 0..150)
    }

    proptest! {
        /// At most one write of a queue at a time and in `every`, and in the end what
        /// was put last has been written last.
        #[test]
        fn what_was_put_last_is_written_last(steps in steps()) {
            let mut book = Book::new(1_000);
            let (mut now, mut number) = (0, 0);
            let (mut put, mut started, mut written) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
            let mut jobs = Vec::<Job>::new();
            let ends = [Step::Finish(true), Step::Later(70_000), Step::Take];
            for step in steps.into_iter().chain(ends.into_iter().cycle().take(60)) {
                match step {
                    Step::Put(queue) => {
                        number += 1;
                        let status = queue_status(&format!("q{queue}"), number);
                        put.insert(status.name.clone(), number);
                        book.put(status);
                    }
                    Step::Take => if let Some(job) = book.take(now) {
                        let name = job.status.name.clone();
                        prop_assert!(jobs.iter().all(|other| other.status.name != name));
                        let last = started.insert(name, now);
                        prop_assert!(last.is_none_or(|last| now >= last + 1_000));
                        jobs.push(job);
                    },
                    Step::Finish(good) => if let Some(job) = jobs.pop() {
                        if good {
                            written.insert(job.status.name.clone(), job.status.running.0);
                        }
                        book.finish(now, job.status, if good { Ok(known()) } else { lost() });
                    },
                    Step::Later(by) => now += by,
                }
            }
            prop_assert_eq!(put, written);
        }
    }
}

//! What is done to an engine, as it is written down, and the same done again.
//!
//! An engine that is told the same decides the same. So a log of what it was told, with a digest
//! of what it decided, is a test: whoever replays it comes to the same digests, or finds the
//! first entry at which something else is decided. Logs hold numbers and no names. One that
//! begins later than its engine begins with what makes an equal one.

use std::ops::Deref;

use serde::{Deserialize, Serialize};

use super::decide::{Cause, Decided, Decision, Eviction};
use super::event::Event;
use super::model::Millis;
use super::snapshot::Past;
use super::world::Engine;

/// One thing that was done to an engine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Entry {
    /// [`Engine::apply`].
    Told(Millis, Event),
    /// [`Engine::tick`].
    Ticked(Millis),
    /// [`Engine::decide`] with this budget, and the digest after it.
    Decided(u64, Digest),
    /// [`Engine::rehearse`] with this budget.
    Rehearsed(u64),
    /// Ends the events that tell what there was when the log began: what no event tells, and
    /// the digest then.
    Recalled(Box<Past>, Digest),
}

/// Of all that was decided so far, in order: FNV-1a in 64 bits (Fowler, Noll, Vo).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Digest(pub u64);

impl Default for Digest {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Digest {
    fn take(&mut self, decided: &Decided) {
        for &Decision { number, pod, group, queue, size, first, node, domain } in &decided.started {
            self.add(&number.to_le_bytes());
            self.add(&pod.0.to_le_bytes());
            self.add(&group.0.to_le_bytes());
            self.add(&queue.0.to_le_bytes());
            self.add(&size.to_le_bytes());
            self.add(&[u8::from(first)]);
            let place = [node.map(|node| node.0), domain.map(|domain| domain.0)];
            for number in place.into_iter().flatten() {
                self.add(&number.to_le_bytes());
            }
        }
        for &Eviction { pod, group, queue, cause } in &decided.evicted {
            self.add(&pod.0.to_le_bytes());
            self.add(&group.0.to_le_bytes());
            self.add(&queue.0.to_le_bytes());
            if let Cause::Claim { by, queue } = cause {
                self.add(&by.0.to_le_bytes());
                self.add(&queue.0.to_le_bytes());
            }
        }
    }

    fn add(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

/// Where entries are written down. It never waits.
pub trait Log: Send {
    /// Takes one entry.
    fn take(&mut self, entry: Entry) -> Next;
    /// Begins anew with entries that make an engine equal to the one that is there now.
    fn begin(&mut self, snapshot: &mut dyn Iterator<Item = Entry>) -> Next;
}

/// What a log takes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// What is done.
    Entry,
    /// What there is, at the next tick at the latest.
    Snapshot,
    /// Nothing any more.
    Nothing,
}

/// An engine that writes down what is done to it. Readers see the engine itself.
#[derive(Default)]
pub struct Logged {
    engine: Engine,
    digest: Digest,
    log: Option<Box<dyn Log>>,
    /// The log is to begin anew.
    is_full: bool,
}

impl Deref for Logged {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        &self.engine
    }
}

impl Logged {
    /// An engine that nothing was done to yet.
    #[must_use]
    pub fn new(log: Option<Box<dyn Log>>) -> Self {
        Self { log, ..Self::default() }
    }

    /// Whether anything is written down.
    #[must_use]
    pub fn is_recorded(&self) -> bool {
        self.log.is_some()
    }

    /// Entries that make an engine equal to this one, but for what its last rehearsal said.
    pub fn snapshot(&self) -> impl Iterator<Item = Entry> + '_ {
        let told = self.engine.told().map(|(now, event)| Entry::Told(now, event));
        let past = || Entry::Recalled(Box::new(self.engine.past()), self.digest);
        told.chain(std::iter::once_with(past))
    }

    /// See [`Engine::apply`].
    pub fn apply(&mut self, now: Millis, event: Event) {
        if self.log.is_some() {
            self.write(Entry::Told(now, event.clone()));
        }
        self.engine.apply(now, event);
    }

    /// See [`Engine::tick`].
    pub fn tick(&mut self, now: Millis) -> bool {
        if self.is_full {
            self.begin_anew();
        }
        self.write(Entry::Ticked(now));
        self.engine.tick(now)
    }

    /// See [`Engine::decide`].
    pub fn decide(&mut self, budget: usize) -> Decided {
        let decided = self.engine.decide(budget);
        self.digest.take(&decided);
        self.write(Entry::Decided(number(budget), self.digest));
        decided
    }

    /// See [`Engine::rehearse`].
    pub fn rehearse(&mut self, budget: usize) {
        self.write(Entry::Rehearsed(number(budget)));
        self.engine.rehearse(budget);
    }

    /// See [`Engine::settle`]; it changes nothing that is decided.
    pub fn settle(&mut self) {
        self.engine.settle();
    }

    /// See [`Engine::entitle`]; it changes nothing that is decided.
    pub fn entitle(&mut self) {
        self.engine.entitle();
    }

    fn write(&mut self, entry: Entry) {
        let Some(log) = &mut self.log else { return };
        match log.take(entry) {
            Next::Entry => {}
            Next::Snapshot => self.is_full = true,
            Next::Nothing => self.log = None,
        }
    }

    fn begin_anew(&mut self) {
        let Some(mut log) = self.log.take() else { return };
        let next = log.begin(&mut self.snapshot());
        self.is_full = next == Next::Snapshot;
        self.log = (next != Next::Nothing).then_some(log);
    }
}

fn number(budget: usize) -> u64 {
    u64::try_from(budget).unwrap_or(u64::MAX)
}

/// An engine to which a log is done again.
#[derive(Debug, Default)]
pub struct Replay {
    engine: Engine,
    digest: Digest,
    counts: Counts,
}

/// What a replay came by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Entries.
    pub entries: u64,
    /// Events among them.
    pub events: u64,
    /// Pods let go.
    pub started: u64,
    /// Pods evicted.
    pub evicted: u64,
}

/// Something else was decided than is written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("entry {entry} decides something else: digest {now:016x}, written down is {written:016x}")]
pub struct Differs {
    /// Number of the entry, from 1.
    pub entry: u64,
    /// The digest in the log.
    pub written: u64,
    /// The digest now.
    pub now: u64,
}

impl Replay {
    /// Does one entry again.
    pub fn step(&mut self, entry: Entry) -> Result<(), Differs> {
        self.counts.entries += 1;
        match entry {
            Entry::Told(now, event) => {
                self.counts.events += 1;
                self.engine.apply(now, event);
            }
            Entry::Ticked(now) => drop(self.engine.tick(now)),
            Entry::Rehearsed(budget) => self.engine.rehearse(size(budget)),
            Entry::Recalled(past, digest) => {
                self.engine.recall(*past);
                self.digest = digest;
            }
            Entry::Decided(budget, written) => {
                let decided = self.engine.decide(size(budget));
                self.counts.started += number(decided.started.len());
                self.counts.evicted += number(decided.evicted.len());
                self.digest.take(&decided);
                if self.digest != written {
                    let entry = self.counts.entries;
                    return Err(Differs { entry, written: written.0, now: self.digest.0 });
                }
            }
        }
        Ok(())
    }

    /// What was done so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// The digest of what was decided so far.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.digest
    }
}

fn size(budget: u64) -> usize {
    usize::try_from(budget).unwrap_or(usize::MAX)
}

//! What is told while it runs: a line a fault, a line a minute.

use std::time::{Duration, Instant};

use crate::{book::Counts, releases::Releases};

/// A look at both controllers' memory in MiB.
type Memory = [u64; 2];

/// Keeps what the summary needs.
#[derive(Debug)]
pub struct Board {
    begin: Instant,
    minutes: u64,
    memory: Vec<Memory>,
    /// Faults that were survived.
    pub faults: usize,
    /// Programs of ours that ended by themselves and were started again.
    pub restarts: usize,
    slowest: (Duration, String),
}

impl Board {
    /// Time counts from now.
    pub fn new() -> Self {
        let slowest = (Duration::ZERO, "none".to_owned());
        Self {
            begin: Instant::now(),
            minutes: 0,
            memory: Vec::new(),
            faults: 0,
            restarts: 0,
            slowest,
        }
    }

    /// Since when.
    pub fn elapsed(&self) -> Duration {
        self.begin.elapsed()
    }

    /// After a fault: how long all that could run took to do so.
    pub fn survived(&mut self, names: &str, count: usize, took: Duration) {
        self.faults += count;
        println!(
            "[{:>4} s] {names}; all well after {:.1} s",
            self.elapsed().as_secs(),
            took.as_secs_f32()
        );
        if took > self.slowest.0 {
            self.slowest = (took, names.to_owned());
        }
    }

    /// A line each minute, and the heads of its columns at first.
    pub fn minute(&mut self, counts: Counts, releases: &Releases, memory: Memory) {
        if self.elapsed().as_secs() / 60 < self.minutes {
            return;
        }
        if self.minutes == 0 {
            println!(
                "{:>8} {:>6} {:>8} {:>6} {:>8} {:>8} {:>6} {:>11}",
                "minute", "made", "released", "ended", "deleted", "refused", "faults", "MiB"
            );
        }
        println!(
            "{:>8} {:>6} {:>8} {:>6} {:>8} {:>8} {:>6} {:>5} {:>5}",
            self.minutes,
            counts.made,
            counts.released,
            counts.ended,
            counts.deleted,
            releases.not_let_in,
            self.faults,
            memory[0],
            memory[1]
        );
        self.minutes = self.elapsed().as_secs() / 60 + 1;
        self.memory.push(memory);
    }

    /// The larger of both controllers at first, in the middle and in the end, in MiB.
    pub fn memory(&self) -> [u64; 3] {
        let at = |index: usize| self.memory.get(index).map_or(0, |memory| memory[0].max(memory[1]));
        let last = self.memory.len().saturating_sub(1);
        [at(0), at(last / 2), at(last)]
    }

    /// After everything.
    pub fn summary(&self, counts: Counts, releases: &Releases) {
        let [first, middle, last] = self.memory();
        println!("\nSUMMARY after {} s", self.elapsed().as_secs());
        println!(
            "  pods {}: released {}, ended {}, deleted before their end {}",
            counts.made, counts.released, counts.ended, counts.deleted
        );
        println!(
            "  PATCHes of ours: {} opened a gate, {} were repeated after a lost answer, {} were refused",
            releases.count(),
            releases.repeated,
            releases.refused
        );
        println!(
            "  creates of pods refused while something was down or full: {}",
            releases.not_let_in
        );
        println!(
            "  faults survived: {}; programs that ended by themselves and were started again: {}",
            self.faults, self.restarts
        );
        println!(
            "  slowest to be well again: {:.1} s, after {}",
            self.slowest.0.as_secs_f32(),
            self.slowest.1
        );
        println!(
            "  memory of a controller: {first} MiB at first, {middle} in the middle, {last} at the end"
        );
        println!("  lost 0, stuck 0, released twice 0, above a limit 0, let in without a gate 0");
    }
}

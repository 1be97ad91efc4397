//! Whatever is sent or stored: nothing panics, nothing slips through, nothing counts wrong.
//!
//! Each target takes bytes. It is fed the corpus in `fuzz/corpus` as it is and changed at
//! random: a few hundred changes, always the same, in an ordinary run; others for so many
//! seconds with `TIDEGATE_FUZZ_SECONDS` (`./dev fuzz SECONDS`). Input on which a target
//! fails is kept and named, so that it can join the corpus.

mod mutate;
mod targets;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use mutate::Random;

/// Changed inputs of each target in an ordinary run.
const CASES: u64 = 400;
/// No input may take longer; real ones take thousandths of it, unless the machine is loaded.
const LONGEST: Duration = Duration::from_mins(2);

/// Tells which input was at work when a target failed.
struct Witness<'a> {
    target: &'static str,
    input: &'a [u8],
    begun: Instant,
}

impl Drop for Witness<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(self.target);
            let kept = std::fs::write(&path, self.input).is_ok();
            eprintln!("{} failed; kept: {kept}, in {}", self.target, path.display());
        }
    }
}

fn try_one(target: &'static str, input: &[u8], check: &impl Fn(&[u8])) {
    let witness = Witness { target, input, begun: Instant::now() };
    check(input);
    assert!(witness.begun.elapsed() < LONGEST, "it took {:?}", witness.begun.elapsed());
}

fn corpus(name: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(name);
    let mut paths: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty());
    paths.iter().map(|path| std::fs::read(path).unwrap()).collect()
}

fn run(target: &'static str, name: &str, check: impl Fn(&[u8])) {
    let corpus = corpus(name);
    for input in corpus.iter().cloned().chain(mutate::largest()) {
        try_one(target, &input, &check);
    }
    let seconds = std::env::var("TIDEGATE_FUZZ_SECONDS").ok().map(|text| text.parse().unwrap());
    let end = seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let first = if end.is_some() { u64::from(std::process::id()) << 32 } else { 0 };
    let goes_on = |&seed: &u64| match end {
        Some(end) => Instant::now() < end,
        None => seed < CASES,
    };
    let seeds = (first..).take_while(goes_on);
    let tried = seeds.map(|seed| {
        let input = mutate::changed(&corpus, &mut Random::of(seed));
        try_one(target, &input, &check);
    });
    eprintln!("{target}: {} changed inputs", tried.count());
}

#[test]
fn a_review_is_answered_or_refused_and_no_pod_is_let_through_ungated() {
    run("reviews", "reviews", targets::reviews());
}

#[test]
fn a_stored_pod_is_gated_if_it_says_so_and_costs_no_less_than_nothing() {
    run("pods", "pods", targets::pod);
}

#[test]
fn a_stored_queue_is_read_or_called_malformed() {
    run("queues", "queues", targets::queue);
}

#[test]
fn quantities_uids_and_our_record_are_written_as_they_are_read() {
    run("texts", "texts", targets::text);
}

#[test]
fn a_log_of_decisions_is_read_as_far_as_it_makes_sense() {
    run("logs", "logs", targets::log);
}

#[test]
fn chains_of_any_owners_end() {
    run("owners", "pods", targets::owners);
}

//! Work of the decision core whose instructions are counted, see `ratchet.rs`.
//!
//! `instructions rounds|ends` prints how many decisions or events it was.
#![allow(
    dead_code,
    clippy::print_stdout,
    reason = "it prints for the test, and uses only some of the core"
)]

extern crate self as tidegate;

#[path = "../../src/engine/mod.rs"]
pub mod engine;
#[path = "../fleet.rs"]
mod fleet;

use std::process::ExitCode;

use fleet::{Fleet, Load};

/// Pods that wait at first.
const PODS: u64 = 10_000;
/// Pods that end one after another.
const ENDS: usize = 1_000;

fn main() -> ExitCode {
    let mut fleet = Fleet::new(PODS, PODS / 10, Load::Pods, None);
    fleet.tell();
    let rounds = counted_rounds(&mut fleet);
    let counted = match std::env::args().nth(1).as_deref() {
        Some("rounds") => rounds,
        Some("ends") => counted_ends(&mut fleet),
        _ => return ExitCode::FAILURE,
    };
    println!("{counted}");
    ExitCode::SUCCESS
}

/// A cold pass: decisions.
#[inline(never)]
fn counted_rounds(fleet: &mut Fleet) -> usize {
    std::iter::from_fn(|| fleet.round()).sum()
}

/// One event after another, each with what it makes room for: events.
#[inline(never)]
fn counted_ends(fleet: &mut Fleet) -> usize {
    (0..ENDS).take_while(|_| fleet.end()).count()
}

//! `./dev soak`: work of all kinds under random faults, on a real control plane.
//!
//! A steady stream of what users do meets one or two faults at a time. After each fault all
//! that can run has to, within a bound; at the end everything has ended. The apiserver's audit
//! log and the order of its watch events judge: no gate was missing or opened twice, no limit
//! passed, nothing lost or stuck.

#![allow(
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "it prints for people, and a step that fails ends it"
)]

// Compiled with it: the support of the integration tests.
#[path = "../it/support/mod.rs"]
mod support;

mod board;
mod book;
mod fault;
mod judge;
mod plant;
mod random;
mod releases;
mod soak;
mod tree;
mod work;

use std::{
    process::ExitCode,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use clap::Parser;

use soak::Soak;

/// Let faults happen to Tidegate while it works.
#[derive(Debug, Parser)]
#[command(name = "./dev soak")]
struct Args {
    /// How long faults go on.
    #[arg(long, default_value_t = 30, value_name = "N")]
    minutes: u64,
    /// What a run chooses by: the same faults in the same order, the same kinds of work.
    #[arg(long, value_name = "S")]
    seed: Option<u64>,
}

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::parse();
    let seed = args.seed.unwrap_or_else(by_the_clock);
    println!("seed {seed}, {} minutes", args.minutes);
    let length = Duration::from_secs(60 * args.minutes);
    match soak(seed, length).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("\nFAILED: {error:#}");
            println!("again: ./dev soak --minutes {} --seed {seed}", args.minutes);
            ExitCode::FAILURE
        }
    }
}

fn by_the_clock() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

async fn soak(seed: u64, length: Duration) -> anyhow::Result<()> {
    let mut soak = Soak::start(seed).await?;
    let ended = soak.run(length).await;
    if ended.is_err() {
        let folder = std::env::temp_dir().join(format!("tidegate-soak-{seed}"));
        soak.keep_logs(&folder)?;
        println!("\nlogs: {}", folder.display());
    }
    ended
}

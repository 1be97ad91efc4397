//! `./dev bench NAME [--json]`: what Tidegate costs, beside what the machine and
//! the apiserver could do without it.
//!
//! Nothing here fails because something is slow: figures are for people, and each
//! run prints them with its sizes and its hardware.
#![allow(
    clippy::cast_precision_loss,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "figures are rounded for people, and a step that fails ends the run"
)]

// Compiled with it: the support of the integration tests.
#[path = "../tests/it/support/mod.rs"]
mod support;

mod engine;
mod figures;
mod path;
mod world;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, ValueEnum};

use figures::Report;

/// What to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Name {
    /// The decision core and the view, without any cluster: half a minute.
    Engine,
    /// The whole path on a real control plane: under three minutes.
    Path,
}

/// Measure what Tidegate costs.
#[derive(Debug, Parser)]
#[command(name = "./dev bench")]
struct Args {
    /// What to measure.
    name: Name,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    /// Measure the core at this size in this process: memory is read from a fresh one.
    #[arg(long, hide = true)]
    size: Option<u64>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    match measure(&args) {
        Ok(report) if args.json => println!("{}", report.json()),
        Ok(report) => print!("{}", report.text()),
        Err(error) => {
            eprintln!("the measurement failed: {error:#}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn measure(args: &Args) -> Result<Report> {
    match (args.name, args.size) {
        (Name::Engine, None) => engine::all_sizes(),
        (Name::Engine, Some(pods)) => engine::one_size(pods),
        (Name::Path, _) => path::run(),
    }
}

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

mod core;
mod engine;
mod figures;
mod fleet;
mod path;
mod peers;
mod timeless;
mod world;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, ValueEnum};

use figures::Report;
use path::kueue::Side;

/// What to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Name {
    /// The decision core and the view, without any cluster: half a minute.
    Engine,
    /// The decision core on whole fleets, up to a million waiting pods: five minutes.
    Core,
    /// The decision core in virtual time, on Kueue's inputs and while demand comes in waves:
    /// three minutes.
    Virtual,
    /// The inputs of benchmarks of Armada and of `YuniKorn`, through them and through the
    /// decision core: two minutes.
    Peers,
    /// What creating a pod costs, and its whole life: two minutes.
    Admission,
    /// What letting pods go costs, and how long it takes: two minutes.
    Release,
    /// What the controller keeps in memory, and how it starts: two minutes.
    Memory,
    /// The same pods through Tidegate and through Kueue, one after the other: three minutes.
    Kueue,
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
    /// Pods of one measurement; by default so many that it takes the time it is said to take.
    #[arg(long)]
    pods: Option<usize>,
    /// How the cost of the core grows with pods and nodes, and what hostile input costs.
    #[arg(long)]
    growth: bool,
    /// Measure the core at this size in this process: memory is read from a fresh one.
    #[arg(long, hide = true)]
    size: Option<u64>,
    /// Nodes, for the core at one size; a tenth of its pods by default.
    #[arg(long, hide = true)]
    nodes: Option<u64>,
    /// What waits, for the core at one size.
    #[arg(long, hide = true)]
    load: Option<fleet::Load>,
    /// Measure one of the two in this process: its cluster ends with it.
    #[arg(long, hide = true)]
    side: Option<Side>,
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
    match args.name {
        Name::Engine => match args.size {
            None => engine::all_sizes(),
            Some(pods) => engine::one_size(pods),
        },
        Name::Core => match args.size {
            None if args.growth => core::growth(),
            None => core::all(args.pods),
            Some(pods) => core::one(
                pods,
                args.nodes.unwrap_or(pods / 10),
                args.load.unwrap_or(fleet::Load::Pods),
            ),
        },
        Name::Virtual => timeless::measure(),
        Name::Peers => peers::measure(),
        Name::Admission => path::run(args.pods, path::admission::measure),
        Name::Release => path::run(args.pods, path::release::measure),
        Name::Memory => path::run(args.pods, path::memory::measure),
        Name::Kueue => match args.side {
            None => path::kueue::both(args.pods),
            Some(side) => path::run(args.pods, async |run| path::kueue::one(side, run).await),
        },
    }
}

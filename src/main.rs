//! The `tidegate` binary.

use std::process::ExitCode;

use clap::Parser;
use tidegate::cli::Cli;

fn main() -> ExitCode {
    // Fails only where one is installed already, which is as good.
    drop(rustls::crypto::ring::default_provider().install_default());
    Cli::parse().run()
}

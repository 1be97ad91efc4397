//! The command line: one binary that runs the parts and answers daily questions.
//!
//! *In:* arguments, the user's kubeconfig. *Out:* text, an exit code. This room wires
//! all others together and is used by none. The reading commands ask the running
//! controller; they never work out an answer of their own.

mod connect;
#[cfg(test)]
mod docs;
mod doctor;
mod failure;
mod home;
mod manifests;
mod output;
mod read;
mod replay;
mod run;
mod uninstall;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;

pub use connect::Connect;
pub use failure::Failure;
use home::Home;
use output::Printed;

/// Queues the pods of any Kubernetes operator fairly, without adapters.
#[derive(Debug, Parser)]
#[command(name = "tidegate", version, after_help = EXIT_CODES)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXIT_CODES: &str =
    "Exit codes: 0 done, 1 error, or something that fails in doctor, 2 wrong usage, 3 not found.";

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs a part of Tidegate until told to stop.
    #[command(subcommand)]
    Run(Box<run::Run>),
    /// Shows queues: what waits, what runs, what each uses.
    Queues(read::Queues),
    /// Shows groups of pods that wait.
    Pending(read::Pending),
    /// Says why an object's pods wait, and behind what.
    Why(read::Why),
    /// Checks an installation and says what to do about what is wrong.
    Doctor(doctor::Doctor),
    /// Does a recorded run again and says whether the same is decided.
    Replay(replay::Replay),
    /// Prints the kinds that Tidegate defines.
    Crds,
    /// Prints the webhook configurations.
    WebhookConfig(manifests::Install),
    /// Prints the admission policies.
    Policies(manifests::Install),
    /// Lets every waiting pod go and stops gating; `helm uninstall` runs it first.
    Uninstall(uninstall::Uninstall),
    /// Prints a completion script for a shell.
    Completion {
        /// The shell.
        shell: Shell,
    },
}

impl Cli {
    /// Does what the arguments say and gives the exit code to end with.
    #[must_use]
    pub fn run(self) -> ExitCode {
        let runtime = match tokio::runtime::Runtime::new() {
            Ok(runtime) => runtime,
            Err(error) => return complain(&Failure::Error(format!("cannot start: {error}"))),
        };
        match runtime.block_on(self.command.execute()) {
            Ok(printed) => printed.write(&mut io::stdout(), &mut io::stderr()),
            Err(failure) => complain(&failure),
        }
    }
}

impl Command {
    async fn execute(self) -> Result<Printed, Failure> {
        match self {
            Self::Run(run) => run::run(*run).await.map(|()| Printed::out(String::new())),
            Self::Queues(queues) => read::queues(&queues).await,
            Self::Pending(pending) => read::pending(&pending).await,
            Self::Why(why) => read::why(&why).await,
            Self::Doctor(args) => doctor::doctor(&args).await,
            Self::Replay(args) => replay::replay(&args),
            Self::Crds => manifests::crds(),
            Self::WebhookConfig(install) => manifests::webhook_config(&install),
            Self::Policies(install) => manifests::policies(&install),
            Self::Uninstall(args) => uninstall::uninstall(&args).await,
            Self::Completion { shell } => Ok(Printed::out(completion(shell))),
        }
    }
}

fn completion(shell: Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "tidegate", &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

fn complain(failure: &Failure) -> ExitCode {
    // Nobody is left to tell when this fails, and the exit code still says it.
    drop(writeln!(io::stderr(), "error: {failure}"));
    failure.exit_code()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_tree_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_shell_has_a_completion() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            assert!(completion(shell).contains("tidegate"), "{shell}");
        }
    }
}

//! Why a command did not do what it was asked.

use std::process::ExitCode;

use thiserror::Error;

/// What went wrong, in words for the person at the terminal. Nothing is retried.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum Failure {
    /// Exit code 1: the cluster or the controller gave no answer, or a refusal.
    #[error("{0}")]
    Error(String),
    /// Exit code 2: the arguments make no sense.
    #[error("{0}")]
    Usage(String),
    /// Exit code 3: what was asked about is not there.
    #[error("{0}")]
    NotFound(String),
}

impl Failure {
    /// The exit code of the process.
    #[must_use]
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::Error(_) => 1,
            Self::Usage(_) => 2,
            Self::NotFound(_) => 3,
        })
    }
}

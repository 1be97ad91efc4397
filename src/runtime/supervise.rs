//! Tasks that live as long as the process, or end it.

use std::fmt::Display;
use std::future::Future;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// How long tasks may take to finish once asked to stop.
const GRACE: Duration = Duration::from_secs(25);

/// A task ended although nobody asked it to. Stop the process.
#[derive(Debug, thiserror::Error)]
#[error("task {task} ended: {why}")]
pub struct TaskEnded {
    task: &'static str,
    why: String,
}

/// Starts tasks and waits for the first to end or for a signal to stop.
#[derive(Debug, Default)]
pub struct Supervisor {
    tasks: JoinSet<TaskEnded>,
    cancel: CancellationToken,
}

impl Supervisor {
    /// Cancelled when the process is to stop.
    #[must_use]
    pub fn token(&self) -> CancellationToken {
        self.cancel.clone()
    }

    /// Starts a task.
    pub fn spawn<F, E>(&mut self, task: &'static str, future: F)
    where
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: Display + Send + 'static,
    {
        self.tasks.spawn(async move {
            let why = match future.await {
                Ok(()) => "finished".to_owned(),
                Err(error) => error.to_string(),
            };
            TaskEnded { task, why }
        });
    }

    /// Runs until SIGTERM or SIGINT (`Ok`) or until a task ends by itself.
    ///
    /// # Errors
    /// The task that ended first.
    pub async fn run(mut self) -> Result<(), TaskEnded> {
        let outcome = tokio::select! {
            ended = self.tasks.join_next() => Err(explain(ended)),
            () = stop_signal() => Ok(()),
        };
        tracing::info!("stopping");
        self.cancel.cancel();
        let all = async { while self.tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(GRACE, all).await.is_err() {
            tracing::warn!(left = self.tasks.len(), "stopping took too long");
        }
        outcome
    }
}

fn explain(ended: Option<Result<TaskEnded, tokio::task::JoinError>>) -> TaskEnded {
    match ended {
        Some(Ok(ended)) => ended,
        Some(Err(panic)) => TaskEnded { task: "unknown", why: panic.to_string() },
        None => TaskEnded { task: "none", why: "nothing to run".to_owned() },
    }
}

/// Waits for SIGTERM or SIGINT; if signals cannot be had, for ever.
async fn stop_signal() {
    let (Ok(mut terminate), Ok(mut interrupt)) =
        (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_task_that_ends_ends_all_and_the_others_may_finish() {
        let mut supervisor = Supervisor::default();
        let token = supervisor.token();
        let finished = CancellationToken::new();
        let told = finished.clone();
        supervisor.spawn("patient", async move {
            token.cancelled().await;
            told.cancel();
            Ok::<_, String>(())
        });
        supervisor.spawn("broken", async { Err::<(), _>("lost its way") });
        let ended = supervisor.run().await.unwrap_err();
        assert_eq!(ended.to_string(), "task broken ended: lost its way");
        assert!(finished.is_cancelled());
    }

    #[tokio::test]
    async fn a_task_that_panics_ends_all() {
        let mut supervisor = Supervisor::default();
        supervisor.spawn("wild", async {
            assert!(std::env::args().count() == usize::MAX, "on purpose");
            Ok::<_, String>(())
        });
        assert!(supervisor.run().await.unwrap_err().to_string().contains("panic"));
    }
}

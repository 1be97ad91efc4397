//! `/livez` and `/readyz`.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;

use crate::view::Published;

/// A question with a yes, or a sentence that says what is wrong.
pub type Probe = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

/// Alive while `heartbeat` (ms since the epoch) is no more than `most` milliseconds
/// behind the clock. 0 means that the first beat is still to come, and is alive.
#[must_use]
pub fn beating(
    heartbeat: Arc<AtomicI64>,
    clock: impl Fn() -> i64 + Send + Sync + 'static,
    most: i64,
) -> Probe {
    Arc::new(move || {
        let last = heartbeat.load(Ordering::Relaxed);
        let age = clock().saturating_sub(last);
        if last == 0 || age <= most {
            return Ok(());
        }
        Err(format!("the control loop last finished a round {} s ago", age / 1000))
    })
}

/// Ready once all first lists are in.
#[must_use]
pub fn synced(view: Published) -> Probe {
    Arc::new(move || {
        let waiting = || "the controller is still reading the cluster".to_owned();
        view.load().synced.then_some(()).ok_or_else(waiting)
    })
}

/// Both probes of a process.
#[derive(Clone)]
pub struct Health {
    /// Whether the process still makes progress; a restart would help if not.
    pub live: Probe,
    /// Whether it can answer for the whole cluster.
    pub ready: Probe,
}

impl Health {
    /// `/healthz` and `/livez` answer for `live`, `/readyz` for `ready`: 200 `ok`
    /// or 503 with the sentence.
    pub fn router<S: Clone + Send + Sync + 'static>(&self) -> Router<S> {
        let (live, also_live, ready) = (self.live.clone(), self.live.clone(), self.ready.clone());
        Router::new()
            .route("/healthz", get(async move || answer(&live)))
            .route("/livez", get(async move || answer(&also_live)))
            .route("/readyz", get(async move || answer(&ready)))
    }
}

fn answer(probe: &Probe) -> (StatusCode, String) {
    match probe() {
        Ok(()) => (StatusCode::OK, "ok".to_owned()),
        Err(problem) => (StatusCode::SERVICE_UNAVAILABLE, problem),
    }
}

impl fmt::Debug for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Health").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_that_stands_still_is_not_alive() {
        let heart = Arc::new(AtomicI64::new(0));
        let live = beating(heart.clone(), || 100_000, 30_000);
        assert_eq!(live(), Ok(()), "before the first beat");
        heart.store(70_000, Ordering::Relaxed);
        assert_eq!(live(), Ok(()));
        heart.store(69_999, Ordering::Relaxed);
        assert_eq!(live(), Err("the control loop last finished a round 30 s ago".to_owned()));
    }

    #[test]
    fn readiness_follows_the_view() {
        let view = crate::view::published();
        let ready = synced(view.clone());
        assert!(ready().is_err());
        view.store(Arc::new(crate::report::tests::view()));
        assert_eq!(ready(), Ok(()));
    }
}

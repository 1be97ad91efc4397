//! `/livez` and `/readyz`.

use std::fmt;
use std::sync::Arc;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;

/// A question with a yes, or a sentence that says what is wrong.
pub type Probe = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

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

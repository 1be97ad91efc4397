//! The HTTPS server around the reviews: limits, deadlines, drain.
//!
//! HTTP/1.1 only. An apiserver keeps up to 25 idle connections for 90 seconds and
//! does not repeat a call whose connection we close at the wrong moment, so ours
//! live longer than that, and at the end of the process they are asked to go.
//! Readiness is asked on this same port: without a certificate no handshake
//! succeeds, so a ready server has one.

mod listen;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Query, Request as HttpRequest, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{get, post};
use tokio::sync::{Semaphore, TryAcquireError};
use tracing::{debug, warn};

use super::backlog::Backlogs;
use super::deadline;
use super::exempt::Exempt;
use super::mutate::pods::{self, Pod};
use super::review::{Answer, Malformed, Request, Review};
use super::validate::namespaces::{self, Namespace};
use super::validate::queues::{self, Queue, Queues};

pub use listen::{Limits, serve};

/// Two objects of three megabytes each and the envelope around them.
const LARGEST_BODY: usize = 7 * 1024 * 1024;
/// Reviews worked on at the same time; more are asked to come back.
const REVIEWS: usize = 64;
/// How often and how long a refusal waits for a view that may trail the truth:
/// a parent and its child made by one command arrive within milliseconds.
const SECOND_LOOKS: u32 = 10;
const BETWEEN_LOOKS: Duration = Duration::from_millis(50);

/// Path of the endpoint that gates pods.
pub const MUTATE_PODS: &str = "/mutate/pods";
/// Path of the endpoint that holds pods back where somebody else gates them.
pub const VALIDATE_PODS: &str = "/validate/pods";
/// Path of the endpoint that checks queues.
pub const VALIDATE_QUEUES: &str = "/validate/queues";
/// Path of the endpoint that looks at namespaces.
pub const VALIDATE_NAMESPACES: &str = "/validate/namespaces";

/// What the endpoints share. Cheap to clone.
#[derive(Clone)]
pub struct Service {
    exempt: Arc<Exempt>,
    queues: Queues,
    backlogs: Backlogs,
    permits: Arc<Semaphore>,
    draining: Arc<AtomicBool>,
}

impl Service {
    /// A service that exempts these accounts and goes by these views.
    #[must_use]
    pub fn new(exempt: Exempt, queues: Queues, backlogs: Backlogs) -> Self {
        Self {
            exempt: Arc::new(exempt),
            queues,
            backlogs,
            permits: Arc::new(Semaphore::new(REVIEWS)),
            draining: Arc::default(),
        }
    }

    /// The endpoints, without TLS.
    pub fn router(&self) -> Router {
        let reviews = Router::new()
            .route(MUTATE_PODS, post(mutate_pods))
            .route(VALIDATE_PODS, post(validate_pods))
            .route(VALIDATE_QUEUES, post(validate_queues))
            .route(VALIDATE_NAMESPACES, post(validate_namespaces))
            .layer(DefaultBodyLimit::max(LARGEST_BODY))
            .layer(middleware::from_fn_with_state(self.clone(), admit));
        Router::new()
            .route("/livez", get(|| async { "ok" }))
            .route("/readyz", get(ready))
            .merge(reviews)
            .layer(middleware::from_fn_with_state(self.clone(), say_goodbye))
            .with_state(self.clone())
    }

    /// From now on: not ready, and each answer closes its connection.
    fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }
}

/// Why a review gets no answer of its own; the webhook's failure policy applies.
#[derive(Debug, thiserror::Error)]
enum Failure {
    /// Not a review. Sending it again is of no use.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// The answer could not be written as JSON.
    #[error("answer: {0}")]
    Answer(#[from] serde_json::Error),
    /// Too much at once. Come back.
    #[error("too many reviews at once")]
    Busy,
    /// Queues are not listed yet. Come back.
    #[error("queues are not known yet")]
    Unsynced,
    /// The apiserver no longer waits.
    #[error("deadline exceeded")]
    Late,
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let status = match self {
            Self::Malformed(_) => StatusCode::BAD_REQUEST,
            Self::Answer(_) => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Busy => StatusCode::TOO_MANY_REQUESTS,
            Self::Unsynced => StatusCode::SERVICE_UNAVAILABLE,
            Self::Late => StatusCode::GATEWAY_TIMEOUT,
        };
        warn!(status = status.as_u16(), error = %self, "review failed");
        let mut response = (status, self.to_string()).into_response();
        if matches!(self, Self::Busy | Self::Unsynced) {
            // The apiserver repeats such calls within its time-out.
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

/// Lets a bounded number of reviews in, each for as long as somebody waits for it.
async fn admit(
    State(service): State<Service>,
    Query(query): Query<deadline::Query>,
    request: HttpRequest,
    next: Next,
) -> Result<Response, Failure> {
    let _permit = service.permits.try_acquire().map_err(|error| match error {
        TryAcquireError::NoPermits | TryAcquireError::Closed => Failure::Busy,
    })?;
    // The body is read inside `next`, so a slow sender is bounded too.
    tokio::time::timeout(query.deadline(), next.run(request)).await.map_err(|_| Failure::Late)
}

/// While draining, pooled connections are closed by their next answer, so that
/// the apiserver opens new ones to other replicas.
async fn say_goodbye(State(service): State<Service>, request: HttpRequest, next: Next) -> Response {
    let mut response = next.run(request).await;
    if service.draining.load(Ordering::Relaxed) {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

async fn ready(State(service): State<Service>) -> (StatusCode, &'static str) {
    if service.draining.load(Ordering::Relaxed) {
        (StatusCode::SERVICE_UNAVAILABLE, "draining")
    } else if service.queues.load().is_none() {
        (StatusCode::SERVICE_UNAVAILABLE, "queues are not known yet")
    } else {
        (StatusCode::OK, "ok")
    }
}

async fn mutate_pods(State(service): State<Service>, body: Bytes) -> Result<Response, Failure> {
    let request = Review::<Pod>::read(&body)?;
    let answer = pods::mutate(&request, &service.exempt, &service.backlogs, Instant::now())?;
    reply(&request, answer)
}

async fn validate_pods(State(service): State<Service>, body: Bytes) -> Result<Response, Failure> {
    let request = Review::<Pod>::read(&body)?;
    let answer = pods::hold_back(&request, &service.exempt, &service.backlogs, Instant::now())?;
    reply(&request, answer)
}

async fn validate_queues(State(service): State<Service>, body: Bytes) -> Result<Response, Failure> {
    let request = Review::<Queue>::read(&body)?;
    let mut answer = judge(&request, &service.queues)?;
    for _ in 0..SECOND_LOOKS {
        if !matches!(answer, Answer::Deny(_)) {
            break;
        }
        tokio::time::sleep(BETWEEN_LOOKS).await;
        answer = judge(&request, &service.queues)?;
    }
    reply(&request, answer)
}

fn judge(request: &Request<Queue>, queues: &Queues) -> Result<Answer, Failure> {
    let tree = queues.load_full().ok_or(Failure::Unsynced)?;
    Ok(queues::validate(request, &tree)?)
}

async fn validate_namespaces(
    State(service): State<Service>,
    body: Bytes,
) -> Result<Response, Failure> {
    let request = Review::<Namespace>::read(&body)?;
    let tree = service.queues.load_full().ok_or(Failure::Unsynced)?;
    let answer = namespaces::validate(&request, &tree)?;
    reply(&request, answer)
}

fn reply<T>(request: &Request<T>, answer: Answer) -> Result<Response, Failure> {
    let Request { namespace, name, .. } = request;
    // With generateName the apiserver has not made the name up yet.
    let name = if name.is_empty() { "(not yet named)" } else { name };
    match &answer {
        Answer::Allow(patch) => debug!(namespace, name, changes = patch.len(), "review allowed"),
        Answer::Warn(warnings) => debug!(namespace, name, ?warnings, "review allowed"),
        Answer::Deny(reason) | Answer::Later(reason) => {
            debug!(namespace, name, reason, "review denied");
        }
    }
    Ok(Json(answer.write(&request.uid)?).into_response())
}

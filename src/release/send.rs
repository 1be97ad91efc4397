//! One write and what its answer means.

use std::time::Duration;

use http::header::{HeaderMap, RETRY_AFTER};
use kube::Client;
use kube::client::Body;
use kube::core::response::Status;

use super::error::{Answer, ReleaseError, budget, classify, cut};

/// Sends a request that names the uid of its object, and waits at most `limit` for its answer.
pub(super) async fn send(
    client: Client,
    request: http::Request<Vec<u8>>,
    limit: Duration,
) -> Result<(), ReleaseError> {
    match tokio::time::timeout(limit, answer(client, request)).await {
        Ok(result) => result,
        Err(_) => Err(ReleaseError::NoAnswer(format!("none within {limit:?}"))),
    }
}

async fn answer(client: Client, request: http::Request<Vec<u8>>) -> Result<(), ReleaseError> {
    let response = client.send(request.map(Body::from)).await.map_err(|error| no_answer(&error))?;
    let (code, retry_after) = (response.status(), retry_after(response.headers()));
    // Read to the end, or the connection could not be used again.
    let bytes = response.into_body().collect_bytes().await;
    if code.is_success() {
        return Ok(());
    }
    let bytes = bytes.map_err(|error| no_answer(&error))?;
    let text = String::from_utf8_lossy(&bytes);
    let status = serde_json::from_str::<Status>(&text).unwrap_or_default();
    let message = if status.message.is_empty() { text.trim() } else { &status.message };
    let (code, reason, budget) = (code.as_u16(), &status.reason, budget(&status));
    Err(classify(Answer { code, reason, message, budget, retry_after }))
}

fn no_answer(error: &kube::Error) -> ReleaseError {
    ReleaseError::NoAnswer(cut(&error.to_string()))
}

/// Seconds of a `Retry-After`; Kubernetes never sends a date.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}

//! Waiting for conditions, never for time.

use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};

/// For things that start.
pub const START: Duration = Duration::from_mins(2);
/// For things that follow from something that already happened.
pub const SOON: Duration = Duration::from_secs(45);
/// Pause between two looks.
const LOOK: Duration = Duration::from_millis(50);

/// Looks until the condition holds. The error of the last look is shown when time is up.
pub async fn until(
    what: &str,
    limit: Duration,
    mut look: impl AsyncFnMut() -> Result<bool>,
) -> Result<()> {
    for_some(what, limit, async || Ok(look().await?.then_some(()))).await
}

/// Looks until there is something.
pub async fn for_some<T>(
    what: &str,
    limit: Duration,
    mut look: impl AsyncFnMut() -> Result<Option<T>>,
) -> Result<T> {
    let end = Instant::now() + limit;
    let mut last = anyhow!("it did not hold");
    while Instant::now() < end {
        match look().await {
            Ok(Some(found)) => return Ok(found),
            Ok(None) => {}
            Err(error) => last = error,
        }
        tokio::time::sleep(LOOK).await;
    }
    bail!("waited {} s in vain: {what}: {last:#}", limit.as_secs())
}

//! Commands that read: `queues`, `pending`, `why`.

mod ask;
mod lookup;
mod pending;
mod queues;
mod shape;
#[cfg(test)]
mod tests;
mod why;

pub use ask::{meaning, unreachable};
pub use pending::{Pending, pending};
pub use queues::{Queues, queues};
pub use why::{Why, why};

use std::time::SystemTime;

use crate::report::human;
use crate::report::visibility::objects::Quantities;

/// `cpu 2, memory 4Gi`.
fn amounts(quantities: &Quantities) -> String {
    let parts: Vec<_> =
        quantities.iter().map(|(resource, amount)| format!("{resource} {amount}")).collect();
    parts.join(", ")
}

/// Milliseconds since the epoch.
fn now() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// How long ago an RFC 3339 time was; `<unknown>` when it cannot be read.
fn ago(time: Option<&str>, now: i64) -> String {
    let then = time.and_then(|time| time.parse::<jiff::Timestamp>().ok());
    then.map_or_else(|| "<unknown>".to_owned(), |then| human(now - then.as_millisecond()))
}

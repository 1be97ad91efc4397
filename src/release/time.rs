//! The engine's milliseconds as Kubernetes writes times.

use std::sync::Arc;

use jiff::Timestamp;

use crate::engine::Millis;

/// Tells the time in milliseconds since the Unix epoch.
pub type Clock = Arc<dyn Fn() -> Millis + Send + Sync>;

/// RFC 3339 in UTC with a fraction when there is one; the epoch for what no calendar has.
pub(super) fn rfc3339(time: Millis) -> String {
    Timestamp::from_millisecond(time).unwrap_or_default().to_string()
}

/// As [`rfc3339`] in whole seconds, as `metav1.Time` is written.
pub(super) fn rfc3339_seconds(time: Millis) -> String {
    rfc3339(time.div_euclid(1_000).saturating_mul(1_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_kubernetes_reads_them() {
        assert_eq!(rfc3339(1_796_040_000_123), "2026-11-30T12:00:00.123Z");
        assert_eq!(rfc3339_seconds(1_796_040_000_999), "2026-11-30T12:00:00Z");
        assert_eq!(rfc3339_seconds(-1), "1969-12-31T23:59:59Z");
        assert_eq!(rfc3339(Millis::MAX), "1970-01-01T00:00:00Z");
    }
}

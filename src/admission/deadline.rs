//! How long a review may take: the apiserver says so in the `timeout` query.

use std::time::Duration;

use serde::Deserialize;

/// When the apiserver does not say, and the most we grant anybody.
const LONGEST: Duration = Duration::from_secs(10);

/// The query of a webhook call.
#[derive(Debug, Default, Deserialize)]
pub struct Query {
    timeout: Option<String>,
}

impl Query {
    /// How long to work on it, at most ten seconds.
    pub fn deadline(&self) -> Duration {
        self.timeout.as_deref().and_then(parse).map_or(LONGEST, |asked| asked.min(LONGEST))
    }
}

/// Reads a duration as Go's `time.Duration` writes it, such as `1m30s` or `1.5s`.
/// Parts below a nanosecond are dropped; what is too large becomes the largest.
fn parse(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut total: u128 = 0;
    while !rest.is_empty() {
        let (nanos, tail) = part(rest)?;
        total = total.saturating_add(nanos);
        rest = tail;
    }
    let total = u64::try_from(total).unwrap_or(u64::MAX);
    (!text.is_empty()).then(|| Duration::from_nanos(total))
}

/// One number with its unit, in nanoseconds, and what follows it.
fn part(text: &str) -> Option<(u128, &str)> {
    let unit_at = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, rest) = text.split_at_checked(unit_at)?;
    let unit_end = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
    let (unit, rest) = rest.split_at_checked(unit_end)?;
    let unit = nanos_of(unit)?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let whole = digits(whole)?.checked_mul(unit)?;
    let fraction = fraction.get(..fraction.len().min(18))?;
    let scale = 10_u128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    Some((whole.checked_add(digits(fraction)?.checked_mul(unit)? / scale)?, rest))
}

fn digits(text: &str) -> Option<u128> {
    if text.is_empty() { Some(0) } else { text.parse().ok() }
}

fn nanos_of(unit: &str) -> Option<u128> {
    Some(match unit {
        "ns" => 1,
        "us" | "µs" | "μs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("2s", Some(2_000))]
    #[case("1m30s", Some(90_000))]
    #[case("1.5s", Some(1_500))]
    #[case(".5s", Some(500))]
    #[case("1h0m0.25s", Some(3_600_250))]
    #[case("750ms", Some(750))]
    #[case("1500µs", Some(1))]
    #[case("", None)]
    #[case("5", None)]
    #[case(".s", None)]
    #[case("-1s", None)]
    #[case("1d", None)]
    #[case("1.2.3s", None)]
    #[case("99999999999999999999999999999999999999999h", None)]
    fn go_durations_are_read(#[case] text: &str, #[case] millis: Option<u128>) {
        assert_eq!(parse(text).map(|duration| duration.as_millis()), millis);
    }

    #[rstest]
    #[case(None, LONGEST)]
    #[case(Some("nonsense"), LONGEST)]
    #[case(Some("30s"), LONGEST)]
    #[case(Some("999999999h"), LONGEST)]
    #[case(Some("2s"), Duration::from_secs(2))]
    fn deadlines_are_bounded(#[case] timeout: Option<&str>, #[case] expected: Duration) {
        let query = Query { timeout: timeout.map(str::to_owned) };
        assert_eq!(query.deadline(), expected);
    }
}

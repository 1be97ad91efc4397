//! Points in time and spans as people read them.

use jiff::Timestamp;

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
const YEAR: i64 = 365 * DAY;

/// A span in milliseconds with the precision kubectl shows: two units while the
/// first is small, one after that. Negative spans (clock skew) are `0s`.
#[must_use]
pub fn human(millis: i64) -> String {
    let seconds = millis.max(0) / 1000;
    match seconds {
        ..120 => format!("{seconds}s"),
        120..600 => two(seconds, (MINUTE, 'm'), (1, 's')),
        600..10_800 => format!("{}m", seconds / MINUTE),
        10_800..28_800 => two(seconds, (HOUR, 'h'), (MINUTE, 'm')),
        28_800..172_800 => format!("{}h", seconds / HOUR),
        172_800..691_200 => two(seconds, (DAY, 'd'), (HOUR, 'h')),
        691_200..63_072_000 => format!("{}d", seconds / DAY),
        _ => two(seconds, (YEAR, 'y'), (DAY, 'd')),
    }
}

fn two(seconds: i64, (large, l): (i64, char), (small, s): (i64, char)) -> String {
    match seconds % large / small {
        0 => format!("{}{l}", seconds / large),
        rest => format!("{}{l}{rest}{s}", seconds / large),
    }
}

/// Milliseconds since the epoch in the apiserver's form, `2026-11-30T19:43:54Z`;
/// empty when no calendar holds it.
#[must_use]
pub fn rfc3339(millis: i64) -> String {
    let second = Timestamp::from_second(millis.div_euclid(1000));
    second.map(|time| time.to_string()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(-5, "0s")]
    #[case(0, "0s")]
    #[case(119, "119s")]
    #[case(120, "2m")]
    #[case(599, "9m59s")]
    #[case(600, "10m")]
    #[case(3 * 3600 - 1, "179m")]
    #[case(3 * 3600 + 120, "3h2m")]
    #[case(8 * 3600, "8h")]
    #[case(2 * 86_400 + 3600, "2d1h")]
    #[case(8 * 86_400, "8d")]
    #[case(730 * 86_400, "2y")]
    #[case(731 * 86_400, "2y1d")]
    fn spans_read_as_in_kubectl(#[case] seconds: i64, #[case] shown: &str) {
        assert_eq!(human(seconds * 1000), shown);
    }

    #[test]
    fn instants_are_whole_seconds_in_utc() {
        assert_eq!(rfc3339(1_796_067_834_999), "2026-11-30T19:43:54Z");
        assert_eq!(rfc3339(i64::MAX), "");
    }
}

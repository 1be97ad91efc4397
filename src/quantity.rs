//! Exact Kubernetes quantities.
//!
//! In: the text of an amount (`900m`, `1.5Gi`, `2e3`) and, for whole units, the
//! name of its resource. Out: the exact value, the integers that the engine
//! counts with, and a short text for people. No floats, no loss, no wrap-around:
//! what is too large stays large ([`Quantity::MAX`]), what is too small stays
//! positive. Must never use another room or guess a resource's meaning beyond
//! its name.
//!
//! Grammar and rounding are those of `k8s.io/apimachinery/pkg/api/resource`.
//! Two of its accidents are left out: texts without any digit (`.`, `M`), which
//! it takes for zero against its own grammar, are refused here, and exponents
//! beyond 32 bits saturate instead of wrapping around.
#![deny(clippy::float_arithmetic)]

mod text;

use std::fmt;
use std::iter::Sum;
use std::ops::Add;

pub use text::{ParseError, format, format_alike, parse};

/// Nano units in one unit.
const NANOS: i128 = 1_000_000_000;
/// Nano units in a thousandth.
const NANOS_PER_MILLI: i128 = 1_000_000;
/// Millionths in one.
const MILLION: i128 = 1_000_000;

/// An exact amount in units of a thousand-millionth (nano), within ±[`Quantity::MAX`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Quantity(i128);

impl Quantity {
    /// Nothing.
    pub const ZERO: Self = Self(0);
    /// 10^27 units, a hundred million times `i64::MAX`: larger amounts count as this.
    /// In thousandths it is 10^30, so that 10^8 of the largest still add up in `i128`.
    pub const MAX: Self = Self(1_000_000_000_000_000_000 * 1_000_000_000_000_000_000);

    /// The amount of so many nano units, capped.
    const fn capped(nanos: i128) -> Self {
        if nanos > Self::MAX.0 {
            Self::MAX
        } else if nanos < -Self::MAX.0 {
            Self(-Self::MAX.0)
        } else {
            Self(nanos)
        }
    }

    /// Nano units.
    #[must_use]
    pub const fn nanos(self) -> i128 {
        self.0
    }

    /// Less than nothing: never valid as a request, a limit or a capacity.
    #[must_use]
    pub const fn is_negative(self) -> bool {
        self.0 < 0
    }

    /// The amount in the engine's units: thousandths for `cpu`, ones for all
    /// others. Rounded away from zero, as kube-scheduler rounds requests.
    #[must_use]
    pub fn engine_units(self, resource: &str) -> i128 {
        let unit = nanos_per_engine_unit(resource);
        let (whole, rest) = (self.0 / unit, self.0 % unit);
        whole + rest.signum()
    }

    /// As [`Self::engine_units`] but rounded down: for capacity, of which a part
    /// of a unit is of no use.
    #[must_use]
    pub fn engine_units_floor(self, resource: &str) -> i128 {
        self.0.div_euclid(nanos_per_engine_unit(resource))
    }

    /// So many millionths of the engine's unit; capped.
    #[must_use]
    pub fn of_millionths(resource: &str, millionths: i128) -> Self {
        let nanos = nanos_per_engine_unit(resource) / MILLION;
        Self::capped(millionths.saturating_mul(nanos))
    }

    /// The amount in millionths of the engine's unit, rounded down.
    #[must_use]
    pub fn millionths(self, resource: &str) -> i128 {
        self.0.div_euclid(nanos_per_engine_unit(resource) / MILLION)
    }
}

/// All digits, without a suffix.
impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, nanos) = (self.0.abs() / NANOS, self.0.abs() % NANOS);
        let sign = if self.is_negative() { "-" } else { "" };
        let fraction = if nanos == 0 { String::new() } else { format!(".{nanos:09}") };
        write!(f, "{sign}{whole}{}", fraction.trim_end_matches('0'))
    }
}

impl Add for Quantity {
    type Output = Self;

    /// The sum, capped.
    fn add(self, other: Self) -> Self {
        // Both are far below what `i128` holds, so the sum is exact before the cap.
        Self::capped(self.0 + other.0)
    }
}

impl Sum for Quantity {
    fn sum<I: Iterator<Item = Self>>(amounts: I) -> Self {
        amounts.fold(Self::ZERO, Add::add)
    }
}

fn nanos_per_engine_unit(resource: &str) -> i128 {
    match resource {
        "cpu" => NANOS_PER_MILLI,
        _ => NANOS,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn amount(text: &str) -> Quantity {
        parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[rstest]
    #[case("cpu", "900m", 900, 900)]
    #[case("cpu", "3", 3000, 3000)]
    #[case("cpu", "1n", 1, 0)]
    #[case("cpu", "1500500u", 1501, 1500)]
    #[case("cpu", "1E", 1_000_000_000_000_000_000_000, 1_000_000_000_000_000_000_000)]
    #[case("memory", "1500m", 2, 1)]
    #[case("memory", "50E", 50_000_000_000_000_000_000, 50_000_000_000_000_000_000)]
    #[case("nvidia.com/gpu", "2", 2, 2)]
    #[case("nvidia.com/gpu", "0", 0, 0)]
    #[case("memory", "-1m", -1, -1)]
    #[case("memory", "-1500m", -2, -2)]
    fn whole_units_round_requests_up_and_capacity_down(
        #[case] resource: &str,
        #[case] text: &str,
        #[case] up: i128,
        #[case] down: i128,
    ) {
        let amount = amount(text);
        assert_eq!(amount.engine_units(resource), up);
        assert_eq!(amount.engine_units_floor(resource), down);
    }

    #[rstest]
    #[case("cpu", 22_927, "0.000022927")]
    #[case("cpu", 1_500_000_000, "1.5")]
    #[case("nvidia.com/gpu", 23, "0.000023")]
    #[case("nvidia.com/gpu", 0, "0")]
    #[case("memory", -1_500_000, "-1.5")]
    fn millionths_are_written_with_all_digits_and_read_again(
        #[case] resource: &str,
        #[case] millionths: i128,
        #[case] text: &str,
    ) {
        assert_eq!(Quantity::of_millionths(resource, millionths).to_string(), text);
        assert_eq!(amount(text).millionths(resource), millionths);
    }

    #[test]
    fn sums_stay_at_the_cap_on_both_sides() {
        let huge = amount("1e400");
        assert_eq!(huge, Quantity::MAX);
        assert_eq!([huge, huge, huge].into_iter().sum::<Quantity>(), Quantity::MAX);
        assert!((amount("-1e400") + amount("-1e400")).is_negative());
        assert_eq!(huge + amount("-1e400"), Quantity::ZERO);
    }
}

//! Text to amount and back.

use thiserror::Error;

use super::{NANOS, Quantity};

/// Amounts with a binary suffix are capped here by apimachinery (not those with a decimal one).
const BINARY_MAX: i128 = i64::MAX as i128;
/// No decimal shift beyond this changes a result: [`Quantity::MAX`] has 37 digits.
const SHIFT_MAX: i64 = 64;

/// Suffixes by what they multiply with: powers of two.
const BINARY: [(&str, u32); 6] =
    [("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("Pi", 50), ("Ei", 60)];
/// Suffixes by what they multiply with: powers of ten.
const DECIMAL: [(&str, i64); 10] = [
    ("n", -9),
    ("u", -6),
    ("m", -3),
    ("", 0),
    ("k", 3),
    ("M", 6),
    ("G", 9),
    ("T", 12),
    ("P", 15),
    ("E", 18),
];

/// Why a text is not a quantity. Nothing to retry: whoever wrote it must change it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ParseError {
    /// No text at all.
    #[error("is empty")]
    Empty,
    /// No digit where the number should be.
    #[error("does not start with a number")]
    Number,
    /// What follows the number is neither a suffix nor an exponent.
    #[error("has an unknown suffix; use n, u, m, k, M, G, T, P, E, Ki, Mi, Gi, Ti, Pi, Ei or e3")]
    Suffix,
}

/// What the number is multiplied with.
#[derive(Clone, Copy)]
enum Scale {
    /// Ten to this power.
    Ten(i64),
    /// Two to this power.
    Two(u32),
}

/// The exact value of a quantity's text.
///
/// Finer than a nano unit is rounded away from zero; a binary amount is capped at
/// `i64::MAX` units as in apimachinery, any other at [`Quantity::MAX`]. Negative
/// amounts parse: whether they make sense is for the caller.
pub fn parse(text: &str) -> Result<Quantity, ParseError> {
    if text.is_empty() {
        return Err(ParseError::Empty);
    }
    let (negative, unsigned) = split_sign(text);
    let (whole, rest) = split_digits(unsigned);
    let (fraction, suffix) = rest.strip_prefix('.').map_or(("", rest), split_digits);
    if whole.is_empty() && fraction.is_empty() {
        return Err(ParseError::Number);
    }
    let nanos = match scale(suffix)? {
        Scale::Ten(power) => decimal_nanos(whole, fraction, power),
        Scale::Two(power) => binary_nanos(whole, fraction, power),
    };
    Ok(Quantity::capped(if negative { -nanos } else { nanos }))
}

fn split_sign(text: &str) -> (bool, &str) {
    match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    }
}

fn split_digits(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text.split_at(end)
}

fn scale(suffix: &str) -> Result<Scale, ParseError> {
    if let Some(&(_, power)) = DECIMAL.iter().find(|(known, _)| *known == suffix) {
        return Ok(Scale::Ten(power));
    }
    if let Some(&(_, power)) = BINARY.iter().find(|(known, _)| *known == suffix) {
        return Ok(Scale::Two(power));
    }
    let exponent = suffix.strip_prefix(['e', 'E']).ok_or(ParseError::Suffix)?;
    exponent.parse().map(Scale::Ten).map_err(|_| ParseError::Suffix)
}

fn digits(text: &str) -> impl DoubleEndedIterator<Item = i128> + '_ {
    text.bytes().map(|byte| i128::from(byte.wrapping_sub(b'0')))
}

/// `whole.fraction` times ten to `power`, in nano units, rounded up, saturating.
///
/// Moves the decimal point over the digits, so that no product is ever needed.
fn decimal_nanos(whole: &str, fraction: &str, power: i64) -> i128 {
    let length = |text: &str| i64::try_from(text.len()).unwrap_or(i64::MAX);
    let point = length(whole).saturating_add(power).saturating_add(9);
    let before = usize::try_from(point).unwrap_or(0);
    let mut all = digits(whole).chain(digits(fraction));
    let kept = all.by_ref().take(before).fold(0, append);
    let missing = point.saturating_sub(length(whole).saturating_add(length(fraction)));
    let padded = (0..missing.min(SHIFT_MAX)).fold(kept, |value, _| append(value, 0));
    padded.saturating_add(i128::from(all.any(|digit| digit != 0)))
}

/// `whole.fraction` times two to `power`, in nano units, rounded up, capped.
fn binary_nanos(whole: &str, fraction: &str, power: u32) -> i128 {
    let unit = NANOS << power;
    // Each place is rounded up on its own, from the last to the first: the same
    // as rounding the exact sum up once, since what is added is whole.
    let part = digits(fraction).rev().fold(0, |part, digit| (digit * unit + part + 9) / 10);
    let whole = digits(whole).fold(0, append).saturating_mul(unit);
    whole.saturating_add(part).min(BINARY_MAX * NANOS)
}

fn append(value: i128, digit: i128) -> i128 {
    value.saturating_mul(10).saturating_add(digit)
}

/// The shortest exact quantity for people and status, from engine units.
///
/// `cpu` in cores or thousandths (`3`, `1250m`); bytes with the suffix, binary or
/// decimal, that leaves the fewest digits (`4Gi`, `512M`); others plain. Parsing it
/// gives the same units for all amounts up to [`Quantity::MAX`].
#[must_use]
pub fn format(resource: &str, units: i128) -> String {
    let [text] = format_alike(resource, [units]);
    text
}

/// Amounts that stand side by side, as [`format()`] writes them but all with one suffix:
/// `2500m` beside `2000m`, `1536Mi` beside `1024Mi`. Where none is exact for all
/// (`1500M` beside `1Gi`) each has its own.
#[must_use]
pub fn format_alike<const N: usize>(resource: &str, units: [i128; N]) -> [String; N] {
    let scale = match resource {
        "cpu" if units.iter().all(|units| units % 1000 == 0) => Some((1000, "")),
        "cpu" => Some((1, "m")),
        _ if counts_bytes(resource) => best_suffix(&units),
        _ => Some((1, "")),
    };
    units.map(|amount| match scale.or_else(|| best_suffix(&[amount])) {
        _ if amount == 0 => "0".to_owned(),
        Some((unit, suffix)) => format!("{}{suffix}", amount / unit),
        None => amount.to_string(),
    })
}

fn counts_bytes(resource: &str) -> bool {
    matches!(resource, "memory" | "ephemeral-storage" | "storage")
        || resource.starts_with("hugepages-")
}

/// The suffix, with its unit, that is exact for all amounts and leaves the fewest digits.
fn best_suffix(amounts: &[i128]) -> Option<(i128, &'static str)> {
    // A binary suffix beyond `BINARY_MAX` would be read back as the cap.
    let within = amounts.iter().all(|bytes| bytes.unsigned_abs() <= BINARY_MAX.unsigned_abs());
    let binary = BINARY.iter().filter(|_| within).map(|&(suffix, power)| (1_i128 << power, suffix));
    let decimal = DECIMAL
        .iter()
        .filter(|(suffix, _)| !suffix.is_empty())
        .filter_map(|&(suffix, power)| Some((10_i128.pow(u32::try_from(power).ok()?), suffix)));
    binary
        .chain(decimal)
        .filter(|(unit, _)| amounts.iter().all(|bytes| bytes % unit == 0))
        .max_by_key(|&(unit, _)| unit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rstest::rstest;

    fn nanos(text: &str) -> i128 {
        parse(text).unwrap_or_else(|error| panic!("{text}: {error}")).nanos()
    }

    /// Vectors of apimachinery's `TestQuantityParse`, as nano units.
    #[rstest]
    #[case("0", 0)]
    #[case("0n", 0)]
    #[case("0Ki", 0)]
    #[case("0T", 0)]
    #[case("1", NANOS)]
    #[case("+1", NANOS)]
    #[case("8Ki", 8 * 1024 * NANOS)]
    #[case("7Mi", 7 * 1024 * 1024 * NANOS)]
    #[case("6Gi", (6 * NANOS) << 30)]
    #[case("100Ti", (100 * NANOS) << 40)]
    #[case("4Pi", (4 * NANOS) << 50)]
    #[case("3Ei", (3 * NANOS) << 60)]
    #[case("5n", 5)]
    #[case("4u", 4_000)]
    #[case("3m", 3_000_000)]
    #[case("50k", 50_000 * NANOS)]
    #[case("7M", 7_000_000 * NANOS)]
    #[case("6G", 6_000_000_000 * NANOS)]
    #[case("300T", 300_000_000_000_000 * NANOS)]
    #[case("2P", 2_000_000_000_000_000 * NANOS)]
    #[case("1E", 1_000_000_000_000_000_000 * NANOS)]
    #[case("1E-3", 1_000_000)]
    #[case("1e3", 1000 * NANOS)]
    #[case("1E3", 1000 * NANOS)]
    #[case("1E18", 1_000_000_000_000_000_000 * NANOS)]
    #[case("1e14", 100_000_000_000_000 * NANOS)]
    #[case("100.035k", 100_035 * NANOS)]
    #[case("0.0005k", NANOS / 2)]
    #[case("0.05000", 50_000_000)]
    #[case("0.5e-2", 5_000_000)]
    #[case("1.3E+6", 1_300_000 * NANOS)]
    #[case("1.7E18", 1_700_000_000_000_000_000 * NANOS)]
    #[case("6.987654321G", 6_987_654_321 * NANOS)]
    #[case("1.01E", 1_010_000_000_000_000_000 * NANOS)]
    #[case("12E", 12_000_000_000_000_000_000 * NANOS)]
    #[case("50E", 50_000_000_000_000_000_000 * NANOS)]
    #[case("3.001n", 4)]
    #[case("1.1E-9", 2)]
    #[case("0.0000000001", 1)]
    #[case("0.00000000050", 1)]
    #[case("0.9n", 1)]
    #[case("0.00000012345", 124)]
    #[case("9Ei", BINARY_MAX * NANOS)]
    #[case("50Ei", BINARY_MAX * NANOS)]
    #[case("9223372036854775807Ki", BINARY_MAX * NANOS)]
    #[case("100.035Ki", 102_435_840_000_000)]
    #[case("0.05Gi", 53_687_091_200_000_000)]
    #[case("0.025Ti", 27_487_790_694_400_000_000)]
    #[case("0.000000000001Ki", 2)]
    #[case(".001", 1_000_000)]
    #[case(".5", NANOS / 2)]
    #[case("5.", 5 * NANOS)]
    #[case("1.G", 1_000_000_000 * NANOS)]
    #[case(".0001k", NANOS / 10)]
    #[case("-1.5Gi", -((3 * NANOS) << 29))]
    #[case("-0.1n", -1)]
    #[case("-9Ei", -BINARY_MAX * NANOS)]
    fn written_amounts_have_their_exact_value(#[case] text: &str, #[case] expected: i128) {
        assert_eq!(nanos(text), expected);
    }

    #[rstest]
    #[case("", ParseError::Empty)]
    #[case("aoeu", ParseError::Number)]
    #[case(" 1", ParseError::Number)]
    #[case(".", ParseError::Number)]
    #[case("-", ParseError::Number)]
    #[case("M", ParseError::Number)]
    #[case("--1", ParseError::Number)]
    #[case("1 ", ParseError::Suffix)]
    #[case("1.1.M", ParseError::Suffix)]
    #[case("1+1.0M", ParseError::Suffix)]
    #[case("0.1mi", ParseError::Suffix)]
    #[case("0.1am", ParseError::Suffix)]
    #[case("1i", ParseError::Suffix)]
    #[case(".5i", ParseError::Suffix)]
    #[case("4g", ParseError::Suffix)]
    #[case("1K", ParseError::Suffix)]
    #[case("1e", ParseError::Suffix)]
    #[case("-3.01e-", ParseError::Suffix)]
    #[case("1e3.0", ParseError::Suffix)]
    #[case("1e3m", ParseError::Suffix)]
    #[case("1Ei3", ParseError::Suffix)]
    #[case("1e99999999999999999999", ParseError::Suffix)]
    #[case("１", ParseError::Number)]
    fn texts_outside_the_grammar_are_refused(#[case] text: &str, #[case] expected: ParseError) {
        assert_eq!(parse(text), Err(expected));
    }

    #[rstest]
    #[case("1e28")]
    #[case("1e4294967296")]
    #[case("1e9223372036854775807")]
    #[case("99999999999999999999999999999999999999999999999999E")]
    #[case("0.000000000000000000000000000000000000000000000001e9223372036854775807")]
    fn amounts_far_beyond_int64_saturate(#[case] text: &str) {
        assert_eq!(parse(text), Ok(Quantity::MAX));
        assert_eq!(parse(&format!("-{text}")).map(|q| -q.nanos()), Ok(Quantity::MAX.nanos()));
    }

    #[rstest]
    #[case("0e9223372036854775807", 0)]
    #[case("1e-9223372036854775808", 1)]
    #[case("0.0e-4294967296", 0)]
    #[case("000000000000000000000000000000000000000000000000000000000000000000001", NANOS)]
    #[case("10000000000000000000000000000000000000000000000000000000e-50", 100_000 * NANOS)]
    fn long_texts_and_exponents_neither_vanish_nor_grow(#[case] text: &str, #[case] value: i128) {
        assert_eq!(nanos(text), value);
    }

    #[rstest]
    #[case("cpu", 900, "900m")]
    #[case("cpu", 3000, "3")]
    #[case("cpu", 1250, "1250m")]
    #[case("cpu", 0, "0")]
    #[case("memory", 0, "0")]
    #[case("memory", 4 << 30, "4Gi")]
    #[case("memory", 8601 << 20, "8601Mi")]
    #[case("memory", 1 << 63, "9223372036854775808")]
    #[case("memory", 512_000_000, "512M")]
    #[case("memory", 50_000_000_000_000_000_000, "50E")]
    #[case("memory", 1001, "1001")]
    #[case("ephemeral-storage", 10_000_000_000_000_000, "10P")]
    #[case("hugepages-2Mi", 2 << 20, "2Mi")]
    #[case("nvidia.com/gpu", 8000, "8000")]
    #[case("pods", 1024, "1024")]
    #[case("memory", -(1 << 30), "-1Gi")]
    fn units_are_written_short_and_whole(
        #[case] resource: &str,
        #[case] units: i128,
        #[case] text: &str,
    ) {
        assert_eq!(format(resource, units), text);
    }

    #[rstest]
    #[case("cpu", [2500, 2000], ["2500m", "2000m"])]
    #[case("cpu", [3000, 2000], ["3", "2"])]
    #[case("cpu", [0, 2500], ["0", "2500m"])]
    #[case("memory", [1536 << 20, 1 << 30], ["1536Mi", "1024Mi"])]
    #[case("memory", [0, 4 << 30], ["0", "4Gi"])]
    #[case("memory", [1_500_000_000, 1 << 30], ["1500M", "1Gi"])]
    #[case("pods", [110, 9], ["110", "9"])]
    fn amounts_side_by_side_have_one_suffix_where_one_is_exact(
        #[case] resource: &str,
        #[case] units: [i128; 2],
        #[case] texts: [&str; 2],
    ) {
        assert_eq!(format_alike(resource, units), texts);
    }

    fn resources() -> impl Strategy<Value = &'static str> {
        prop::sample::select(vec!["cpu", "memory", "hugepages-1Gi", "nvidia.com/gpu", "pods"])
    }

    fn units() -> impl Strategy<Value = i128> {
        let most = 10_i128.pow(27);
        prop_oneof![
            -most..=most,
            -5000_i128..5000,
            (any::<i32>(), 0_u32..50).prop_map(|(n, shift)| i128::from(n) << shift),
            (any::<i32>(), 0_u32..17).prop_map(|(n, power)| i128::from(n) * 10_i128.pow(power)),
        ]
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back_to_the_unit(resource in resources(), units in units()) {
            let read = parse(&format(resource, units)).map(|q| q.engine_units(resource));
            prop_assert_eq!(read, Ok(units));
        }

        #[test]
        fn no_text_panics_and_positive_stays_positive(text in "[+]?[0-9.]{1,60}[eEinumkKMGTP]{0,2}[-+]?[0-9]{0,22}") {
            if let Ok(amount) = parse(&text) {
                let (number, _) = text.split_at(text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len()));
                let some = number.bytes().any(|b| (b'1'..=b'9').contains(&b));
                prop_assert_eq!(amount > Quantity::ZERO, some);
                prop_assert!(amount <= Quantity::MAX);
                prop_assert_eq!(parse(&format!("-{}", text.trim_start_matches('+'))).map(|q| -q.nanos()), Ok(amount.nanos()));
            }
        }

        #[test]
        fn any_text_is_refused_or_read(text in ".*") {
            let _outcome = parse(&text);
        }

        #[test]
        fn rounding_up_and_down_enclose_the_amount(n in any::<i64>(), resource in resources()) {
            let amount = Quantity(i128::from(n));
            let unit = super::super::nanos_per_engine_unit(resource);
            let (up, down) = (amount.engine_units(resource), amount.engine_units_floor(resource));
            prop_assert!(down * unit <= amount.nanos());
            prop_assert!(up.abs() * unit >= amount.nanos().abs());
            prop_assert!(up - down <= 1);
        }
    }
}

//! Exact shares: fractions of whole numbers, compared without rounding.

use std::cmp::Ordering;

/// A non-negative fraction; a zero denominator stands for infinity.
#[derive(Clone, Copy, Debug)]
pub struct Fraction {
    /// Above the line.
    pub numerator: u128,
    /// Below the line.
    pub denominator: u128,
}

impl Fraction {
    /// Nothing.
    pub const ZERO: Self = Self { numerator: 0, denominator: 1 };

    /// Thousandths, rounded down, at most `u64::MAX`.
    #[must_use]
    pub fn per_mille(self) -> u64 {
        if self.denominator == 0 {
            return u64::MAX;
        }
        let whole = self.numerator / self.denominator;
        let rest = self.numerator % self.denominator;
        let part = if rest <= u128::MAX / 1000 {
            rest * 1000 / self.denominator
        } else {
            rest / (self.denominator / 1000)
        };
        u64::try_from(whole.saturating_mul(1000).saturating_add(part)).unwrap_or(u64::MAX)
    }
}

impl PartialEq for Fraction {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Fraction {}

impl PartialOrd for Fraction {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Fraction {
    /// Compares by continued fractions (Euclid), so no product can overflow.
    fn cmp(&self, other: &Self) -> Ordering {
        let (mut a, mut b) = (*self, *other);
        loop {
            match (a.denominator, b.denominator) {
                (0, 0) => return Ordering::Equal,
                (0, _) => return Ordering::Greater,
                (_, 0) => return Ordering::Less,
                _ => {}
            }
            let whole = (a.numerator / a.denominator).cmp(&(b.numerator / b.denominator));
            if whole != Ordering::Equal {
                return whole;
            }
            // a = w + ra/da and b = w + rb/db: compare ra/da with rb/db by their
            // inverses, which turns the order round.
            let (ra, rb) = (a.numerator % a.denominator, b.numerator % b.denominator);
            let inverse_a = Self { numerator: a.denominator, denominator: ra };
            let inverse_b = Self { numerator: b.denominator, denominator: rb };
            (a, b) = (inverse_b, inverse_a);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fraction(numerator: u128, denominator: u128) -> Fraction {
        Fraction { numerator, denominator }
    }

    #[test]
    fn fractions_far_beyond_what_a_product_could_hold_still_compare() {
        let huge = u128::MAX;
        assert!(fraction(huge - 1, huge) < fraction(1, 1));
        assert!(fraction(huge - 2, huge) < fraction(huge - 1, huge));
        assert_eq!(fraction(huge, huge), fraction(7, 7));
        assert!(fraction(1, 0) > fraction(huge, 1));
    }

    proptest! {
        #[test]
        fn small_fractions_compare_as_their_cross_products(
            a in 0u64.., b in 1u64.., c in 0u64.., d in 1u64..
        ) {
            let [a, b, c, d] = [a, b, c, d].map(u128::from);
            prop_assert_eq!(fraction(a, b).cmp(&fraction(c, d)), (a * d).cmp(&(c * b)));
        }
    }
}

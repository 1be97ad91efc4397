//! Shares, in whole units of 2⁻⁶⁰ of the capacity.

use super::amounts::{Amounts, Axis};

/// A part of the capacity; 2⁶⁰ is all of it.
pub(super) type Share = u64;

const ALL: u32 = 60;

/// Dominant share (Ghodsi et al. 2011) by weight: the largest part that `usage` is of the
/// capacity, over all resources that there are, divided by `weight` and rounded down.
pub(super) fn dominant(usage: &Amounts, capacity: &Amounts, weight: u32) -> Share {
    let weight = u128::from(weight.max(1));
    let mut most = 0;
    for ((_, used), (_, all)) in usage.iter().zip(capacity.iter()) {
        if used > 0 && all > 0 {
            most = most.max(part(used.unsigned_abs(), all.unsigned_abs(), weight));
        }
    }
    most
}

/// The part that an amount is of the capacity.
pub(super) fn part_of(axis: Axis, amount: i128, capacity: &Amounts) -> Share {
    let all = capacity.get(axis);
    if amount > 0 && all > 0 { part(amount.unsigned_abs(), all.unsigned_abs(), 1) } else { 0 }
}

fn part(used: u128, all: u128, weight: u128) -> Share {
    if used >> (u128::BITS - ALL) != 0 {
        return Share::MAX;
    }
    match all.checked_mul(weight) {
        Some(whole) => Share::try_from((used << ALL) / whole).unwrap_or(Share::MAX),
        None => Share::try_from((used << ALL) / all / weight).unwrap_or(Share::MAX),
    }
}

/// Thousandths, rounded down.
pub(super) fn per_mille(share: Share) -> u64 {
    u64::try_from((u128::from(share) * 1000) >> ALL).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amounts(of: &[i128]) -> Amounts {
        let mut amounts = Amounts::default();
        (0..).zip(of).for_each(|(axis, &amount)| *amounts.at(axis) = amount);
        amounts
    }

    #[test]
    fn the_largest_part_by_weight_counts_and_what_there_is_none_of_does_not() {
        let all = amounts(&[8, 100, 0]);
        let share = |used: &[i128], weight| dominant(&amounts(used), &all, weight);
        assert_eq!(share(&[2, 50, 7], 1), 1 << 59);
        assert_eq!(share(&[2, 50, 7], 2), 1 << 58);
        assert_eq!(per_mille(share(&[1, 0, 0], 1)), 125);
        assert_eq!(share(&[-1, 0, 5], 1), 0);
    }

    #[test]
    fn shares_beyond_what_can_be_counted_are_the_largest() {
        let all = amounts(&[1, i128::MAX]);
        assert_eq!(dominant(&amounts(&[1 << 70, 0]), &all, 1), Share::MAX);
        assert_eq!(dominant(&amounts(&[0, 1 << 60]), &all, u32::MAX), 0);
    }
}

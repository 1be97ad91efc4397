//! What each of several siblings is entitled to of one resource: weighted water-filling
//! with a floor and a cap for each.
//!
//! With a level λ, a sibling gets `clamp(λ · weight, floor, cap)`. The sum grows with λ in
//! straight pieces. The λ at which it is exactly what there is comes from the sorted points
//! at which a sibling leaves its floor or reaches its cap, or, faster, from the λ of last
//! time by Newton's method.

use std::cmp::Ordering;

/// One sibling's part in a division. `0 <= floor <= cap`, `1 <= weight`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) weight: u32,
    pub(super) floor: i128,
    pub(super) cap: i128,
}

/// How a whole was divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Level {
    /// Everybody has all it can use, and so much is left.
    Caps { left: i128 },
    /// Not even the floors could be met: `whole / floors` of each.
    Floors { whole: i128, floors: i128 },
    /// λ as `rest / weights`.
    Water { rest: i128, weights: i128 },
}

/// Steps of Newton's method before the points are sorted.
const STEPS: usize = 6;

impl Level {
    /// What one sibling gets, rounded down.
    pub(super) fn gives(self, claim: Claim) -> i128 {
        match self {
            Self::Caps { .. } => claim.cap,
            Self::Floors { floors: 0, .. } => 0,
            Self::Floors { whole, floors } => scale(claim.floor, whole, floors),
            Self::Water { rest, weights } => match side(claim, rest, weights) {
                Side::Floor => claim.floor,
                Side::Cap => claim.cap,
                Side::Between => scale(i128::from(claim.weight), rest, weights),
            },
        }
    }

    /// The same level when one sibling claims something else, if it is the same.
    pub(super) fn keeps(self, before: Claim, after: Claim) -> Option<Self> {
        match self {
            Self::Caps { left } => {
                let left = left + before.cap - after.cap;
                (left >= 0 && after.floor == before.floor).then_some(Self::Caps { left })
            }
            Self::Floors { .. } => (before.floor == after.floor).then_some(self),
            Self::Water { rest, weights } => {
                let sides = (side(before, rest, weights), side(after, rest, weights));
                let same = match sides {
                    (Side::Between, Side::Between) => before.weight == after.weight,
                    (Side::Floor, Side::Floor) => before.floor == after.floor,
                    (Side::Cap, Side::Cap) => before.cap == after.cap,
                    _ => false,
                };
                same.then_some(self)
            }
        }
    }
}

/// Where a sibling stands at a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Floor,
    Between,
    Cap,
}

fn side(claim: Claim, rest: i128, weights: i128) -> Side {
    let water = product(rest, i128::from(claim.weight));
    if water <= product(claim.floor, weights) {
        Side::Floor
    } else if water >= product(claim.cap, weights) {
        Side::Cap
    } else {
        Side::Between
    }
}

/// Divides `whole` among siblings. `last` is the level of last time.
pub(super) fn divide(whole: i128, claims: &[Claim], last: Option<Level>) -> Level {
    let floors: i128 = claims.iter().map(|claim| claim.floor).sum();
    let caps: i128 = claims.iter().map(|claim| claim.cap).sum();
    if floors >= whole {
        return Level::Floors { whole, floors };
    }
    if caps <= whole {
        return Level::Caps { left: whole - caps };
    }
    last.and_then(|last| step(whole, claims, last)).unwrap_or_else(|| sorted(whole, claims))
}

/// Newton's method from a λ nearby, if it ends soon.
fn step(whole: i128, claims: &[Claim], last: Level) -> Option<Level> {
    let Level::Water { mut rest, mut weights } = last else { return None };
    for _ in 0..STEPS {
        let (mut fixed, mut between) = (0, 0);
        for &claim in claims {
            match side(claim, rest, weights) {
                Side::Floor => fixed += claim.floor,
                Side::Cap => fixed += claim.cap,
                Side::Between => between += i128::from(claim.weight),
            }
        }
        let next = (whole - fixed, between);
        if between == 0 || next.0 <= 0 {
            return None;
        }
        if product(next.0, weights) == product(rest, between) {
            return Some(Level::Water { rest: next.0, weights: between });
        }
        (rest, weights) = next;
    }
    None
}

fn sorted(whole: i128, claims: &[Claim]) -> Level {
    // Where λ passes `amount / weight`, the sibling leaves its floor or reaches its cap.
    let mut turns: Vec<(i128, u32, bool)> = Vec::with_capacity(claims.len() * 2);
    for claim in claims {
        turns.push((claim.floor, claim.weight, false));
        turns.push((claim.cap, claim.weight, true));
    }
    turns.sort_unstable_by(|&(a, v, a_caps), &(b, w, b_caps)| {
        compare(a, v, b, w).then(a_caps.cmp(&b_caps))
    });
    let (mut fixed, mut weights): (i128, i128) = (claims.iter().map(|c| c.floor).sum(), 0);
    for (amount, weight, caps) in turns {
        let weight = i128::from(weight);
        // The sum at this λ, times its denominator.
        let sum = product(fixed, weight).saturating_add(product(weights, amount));
        if weights > 0 && sum >= product(whole, weight) {
            break;
        }
        let (amount, weight) = if caps { (amount, -weight) } else { (-amount, weight) };
        (fixed, weights) = (fixed + amount, weights + weight);
    }
    Level::Water { rest: whole - fixed, weights }
}

/// `a / v` against `b / w`.
fn compare(a: i128, v: u32, b: i128, w: u32) -> Ordering {
    product(a, i128::from(w)).cmp(&product(b, i128::from(v)))
}

fn product(a: i128, b: i128) -> i128 {
    a.saturating_mul(b)
}

/// `amount * part / whole`, rounded down; about that where the product is beyond counting.
fn scale(amount: i128, part: i128, whole: i128) -> i128 {
    match amount.checked_mul(part) {
        Some(product) => product.div_euclid(whole),
        None => (amount / whole).saturating_mul(part),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn claim(weight: u32, floor: i128, cap: i128) -> Claim {
        Claim { weight, floor, cap }
    }

    fn gets(whole: i128, claims: &[Claim]) -> Vec<i128> {
        let level = divide(whole, claims, None);
        claims.iter().map(|&claim| level.gives(claim)).collect()
    }

    #[test]
    fn what_one_cannot_use_goes_to_the_others_by_weight() {
        let claims = [claim(1, 0, 10), claim(1, 0, 100), claim(2, 0, 100)];
        assert_eq!(gets(100, &claims), [10, 30, 60]);
    }

    #[test]
    fn a_floor_is_met_first_and_floors_beyond_the_whole_shrink_alike() {
        assert_eq!(gets(100, &[claim(1, 70, 100), claim(1, 0, 100)]), [70, 30]);
        assert_eq!(gets(100, &[claim(1, 150, 200), claim(9, 50, 100)]), [75, 25]);
        assert_eq!(gets(0, &[claim(1, 0, 5)]), [0]);
    }

    fn claims() -> impl Strategy<Value = Vec<Claim>> {
        let claim = (1u32..9, 0i128..50, 0i128..100)
            .prop_map(|(weight, floor, more)| claim(weight, floor, floor + more));
        prop::collection::vec(claim, 1..12)
    }

    proptest! {
        #[test]
        fn nobody_gets_more_than_there_is_and_no_more_than_one_each_is_lost(
            whole in 0i128..800, claims in claims()
        ) {
            let gets = gets(whole, &claims);
            let sum: i128 = gets.iter().sum();
            let caps: i128 = claims.iter().map(|claim| claim.cap).sum();
            prop_assert!(sum <= whole.min(caps));
            prop_assert!(sum > whole.min(caps) - i128::try_from(claims.len()).unwrap() - 1);
        }

        #[test]
        fn from_wherever_it_starts_the_level_is_the_same(
            whole in 1i128..800, claims in claims(), rest in 1i128..500, weights in 1i128..20
        ) {
            let last = Some(Level::Water { rest, weights });
            let (near, far) = (divide(whole, &claims, last), divide(whole, &claims, None));
            for &claim in &claims {
                prop_assert_eq!(near.gives(claim), far.gives(claim));
            }
        }

        #[test]
        fn a_level_that_keeps_is_the_one_that_would_be_found(
            whole in 1i128..800, claims in claims(), one in any::<prop::sample::Index>(), cap in 0i128..150
        ) {
            let level = divide(whole, &claims, None);
            let mut after = claims.clone();
            let one = one.index(claims.len());
            after[one] = Claim { floor: claims[one].floor.min(cap), cap, ..claims[one] };
            if let Some(kept) = level.keeps(claims[one], after[one]) {
                let found = divide(whole, &after, None);
                for &claim in &after {
                    prop_assert_eq!(kept.gives(claim), found.gives(claim));
                }
            }
        }
    }
}

//! What each of several siblings is entitled to of one resource: weighted water-filling
//! with a floor and a cap for each.
//!
//! With a level λ, a sibling gets `clamp(λ · weight, floor, cap)`. The sum grows with λ in
//! straight pieces, so the λ at which it is exactly what there is comes from the sorted
//! points at which a sibling leaves its floor or reaches its cap.

use std::cmp::Ordering;

/// One sibling's part in a division. `0 <= floor <= cap`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) weight: u32,
    pub(super) floor: i128,
    pub(super) cap: i128,
}

/// How a whole was divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Level {
    /// Everybody has all it can use.
    Caps,
    /// Not even the floors could be met: `whole / floors` of each.
    Floors { whole: i128, floors: i128 },
    /// λ as `rest / weights`.
    Water { rest: i128, weights: i128 },
}

impl Level {
    /// What one sibling gets, rounded down.
    pub(super) fn gives(self, claim: Claim) -> i128 {
        match self {
            Self::Caps => claim.cap,
            Self::Floors { floors: 0, .. } => 0,
            Self::Floors { whole, floors } => scale(claim.floor, whole, floors),
            Self::Water { rest, weights } => {
                let share = scale(i128::from(claim.weight), rest, weights);
                share.clamp(claim.floor, claim.cap)
            }
        }
    }
}

/// Divides `whole` among siblings.
pub(super) fn divide(whole: i128, claims: &[Claim]) -> Level {
    let floors: i128 = claims.iter().map(|claim| claim.floor).sum();
    let caps: i128 = claims.iter().map(|claim| claim.cap).sum();
    if floors >= whole {
        return Level::Floors { whole, floors };
    }
    if caps <= whole {
        return Level::Caps;
    }
    // Where λ passes `amount / weight`, the sibling leaves its floor or reaches its cap.
    let mut turns: Vec<(i128, u32, bool)> = Vec::with_capacity(claims.len() * 2);
    for claim in claims {
        turns.push((claim.floor, claim.weight, false));
        turns.push((claim.cap, claim.weight, true));
    }
    turns.sort_unstable_by(|&(a, v, a_caps), &(b, w, b_caps)| {
        compare(a, v, b, w).then(a_caps.cmp(&b_caps))
    });
    let (mut fixed, mut weights) = (floors, 0);
    for (amount, weight, caps) in turns {
        // The sum at this λ, times its denominator.
        let sum = fixed.saturating_mul(i128::from(weight)).saturating_add(product(weights, amount));
        if weights > 0 && sum >= whole.saturating_mul(i128::from(weight)) {
            break;
        }
        if caps {
            (fixed, weights) = (fixed + amount, weights - i128::from(weight));
        } else {
            (fixed, weights) = (fixed - amount, weights + i128::from(weight));
        }
    }
    Level::Water { rest: whole - fixed, weights }
}

fn product(a: i128, b: i128) -> i128 {
    a.saturating_mul(b)
}

/// `a / v` against `b / w`.
fn compare(a: i128, v: u32, b: i128, w: u32) -> Ordering {
    product(a, i128::from(w)).cmp(&product(b, i128::from(v)))
}

/// `amount * part / whole`, rounded down, without overflow for what amounts there are.
fn scale(amount: i128, part: i128, whole: i128) -> i128 {
    match amount.checked_mul(part) {
        Some(product) => product.div_euclid(whole),
        None => (amount / whole).saturating_mul(part),
    }
}

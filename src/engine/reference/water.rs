//! Water that fills vessels of different width, in whole drops.

/// What one vessel takes: level × weight, at least the floor, at most the cap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) weight: u32,
    pub(super) floor: i128,
    /// Not below the floor.
    pub(super) cap: i128,
}

/// A height of water: so much for each unit of weight.
#[derive(Clone, Copy, Debug)]
struct Level {
    water: i128,
    weight: i128,
}

impl Claim {
    /// What is in the vessel at a level, times the level's weight.
    fn taken(&self, level: Level) -> i128 {
        let (floor, cap) = (self.floor * level.weight, self.cap * level.weight);
        (level.water * i128::from(self.weight)).clamp(floor, cap)
    }

    /// Whether more comes in when the water rises above a level.
    fn rises_from(&self, level: Level) -> bool {
        let water = level.water * i128::from(self.weight);
        self.floor * level.weight <= water && water < self.cap * level.weight
    }
}

/// What each claim gets of an amount.
pub(super) fn fill(amount: i128, claims: &[Claim]) -> Vec<i128> {
    let floors: i128 = claims.iter().map(|claim| claim.floor).sum();
    if floors >= amount {
        return claims.iter().map(|claim| claim.floor * amount / floors.max(1)).collect();
    }
    if claims.iter().map(|claim| claim.cap).sum::<i128>() <= amount {
        return claims.iter().map(|claim| claim.cap).collect();
    }
    let level = level(amount, claims);
    let part = |claim: &Claim| claim.taken(level) / level.weight;
    claims.iter().map(part).collect()
}

/// The level at which exactly the amount is taken, be it between two drops. Floors take
/// less than the amount and caps take more.
fn level(amount: i128, claims: &[Claim]) -> Level {
    let turns = claims.iter().flat_map(|claim| {
        let weight = i128::from(claim.weight);
        [claim.floor, claim.cap].map(|water| Level { water, weight })
    });
    // Up to the next turn the same vessels rise from here: those that share what the rest leave.
    let from = turns
        .filter(|&level| taken(claims, level) <= amount * level.weight)
        .max_by(|a, b| (a.water * b.weight).cmp(&(b.water * a.weight)))
        .unwrap();
    let (rising, still): (Vec<Claim>, Vec<Claim>) =
        claims.iter().partition(|claim| claim.rises_from(from));
    Level {
        water: amount - taken(&still, from) / from.weight,
        weight: rising.iter().map(|claim| i128::from(claim.weight)).sum(),
    }
}

fn taken(claims: &[Claim], level: Level) -> i128 {
    claims.iter().map(|claim| claim.taken(level)).sum()
}

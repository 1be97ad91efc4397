//! What was used before, as far as it still counts.

use std::collections::BTreeMap;

use super::super::event::{self, QueueConfig};
use super::super::model::{Millis, QueueId, ResourceId, Vector};
use super::books::Books;
use super::{Amounts, Reference, Spot};

/// The weight at the beginning of a period.
const ONE: i128 = 1 << 40;

/// What is more counts as this.
const MOST: i128 = 1 << 85;

/// What was used from one time to another.
#[derive(Clone, Debug)]
pub(super) struct Used {
    from: Millis,
    until: Millis,
    usage: Amounts,
}

/// What somebody remembers of use, and what was used when that was told.
#[derive(Clone, Debug)]
pub(super) struct Remembered {
    at: Millis,
    average: Vector,
    usage: Vector,
}

impl Reference {
    /// Moves time on.
    pub(super) fn pass(&mut self, now: Millis) {
        if now > self.now && self.queues.values().any(|queue| queue.half_life.is_some()) {
            let mut usage = self.books().usage;
            for amounts in usage.values_mut() {
                *amounts = amounts.iter().filter(|(r, _)| self.counts(*r)).collect();
            }
            self.used.push(Used { from: self.now, until: now, usage });
        }
        self.now = self.now.max(now);
    }

    /// Histories that begin anew with a change of a queue.
    pub(super) fn begin_histories(&mut self, id: QueueId, config: Option<&QueueConfig>) {
        let before = self.queues.get(&id);
        let mut anew = Vec::new();
        if before.map(|queue| queue.parent) != config.map(|queue| queue.parent) {
            anew.push(Spot::Queue(id));
        }
        if before.map(|queue| queue.half_life) != config.map(|queue| queue.half_life) {
            let below = self.queues.iter().filter(|(_, queue)| queue.parent == Some(id));
            anew.extend(below.map(|(&below, _)| Spot::Queue(below)));
            anew.push(Spot::Line(id));
        }
        for spot in anew {
            self.begun.insert(spot, self.now);
            self.remembered.remove(&spot);
        }
    }

    /// A history begins with what somebody remembers.
    pub(super) fn used_before(&mut self, id: QueueId, used: event::Used) {
        let usage = self.books().usage;
        for (spot, average) in [(Spot::Queue(id), used.whole), (Spot::Line(id), used.own)] {
            let usage = usage.get(&spot).cloned().unwrap_or_default();
            let known = |amounts: Vector| amounts.iter().filter(|(r, _)| self.counts(*r)).collect();
            let (average, usage) = (known(average), known(usage));
            let remembered = Remembered { at: used.at.min(self.now), average, usage };
            self.remembered.insert(spot, remembered);
            self.begun.insert(spot, self.now);
        }
    }

    fn counts(&self, resource: ResourceId) -> bool {
        resource == ResourceId::PODS || self.known.contains(&resource)
    }

    /// Of the children of queues with a half-life.
    pub(super) fn past_shares(&self, books: &Books) -> BTreeMap<Spot, u64> {
        let points = points();
        let mut shares = BTreeMap::new();
        for (&queue, config) in &self.queues {
            let (Some(half_life), Some(_)) = (config.half_life, self.path(queue)) else { continue };
            for child in self.children(Some(queue)) {
                shares.insert(child, self.past_share(child, half_life, books, &points));
            }
        }
        shares
    }

    fn past_share(&self, spot: Spot, half_life: Millis, books: &Books, points: &[i128]) -> u64 {
        let there_is = books.capacity.iter().filter(|&(_, capacity)| capacity > 0);
        let part = |(resource, capacity): (ResourceId, i128)| {
            let sum = self.history(spot, resource, half_life, points);
            let whole = weight(self.now, half_life, points) * capacity.min(MOST);
            let (mut steps, mut rest) = (sum / whole, sum % whole);
            for _ in 0..3 {
                (steps, rest) =
                    (steps.checked_mul(1 << 20)? + (rest << 20) / whole, (rest << 20) % whole);
            }
            u64::try_from(steps / i128::from(self.weight(spot))).ok()
        };
        there_is.map(|each| part(each).unwrap_or(u64::MAX)).max().unwrap_or(0)
    }

    fn history(
        &self,
        spot: Spot,
        resource: ResourceId,
        half_life: Millis,
        points: &[i128],
    ) -> i128 {
        let begun = self.begun.get(&spot).copied().unwrap_or(Millis::MIN);
        let uses = |mut sum: i128, mut at: Millis, until: Millis, usage: i128| {
            while at < until {
                let end = (at.div_euclid(half_life) + 1) * half_life;
                let from = weight(at, half_life, points);
                if end <= until {
                    sum += usage.clamp(0, MOST) * (2 * ONE - from);
                    sum /= 2;
                    at = end;
                } else {
                    sum += usage.clamp(0, MOST) * (weight(until, half_life, points) - from);
                    at = until;
                }
            }
            sum
        };
        let mut sum = 0;
        if let Some(Remembered { at, average, usage }) = self.remembered.get(&spot) {
            let average = average.get(resource).clamp(0, MOST * 1_000_000);
            let (whole, rest) = (average / 1_000_000, average % 1_000_000);
            let weight = weight(*at, half_life, points);
            sum = whole * weight + rest * weight / 1_000_000;
            sum = uses(sum, *at, begun, usage.get(resource));
        }
        for used in self.used.iter().filter(|used| used.from >= begun) {
            let usage = used.usage.get(&spot).map_or(0, |usage| usage.get(resource));
            sum = uses(sum, used.from, used.until, usage);
        }
        sum
    }
}

/// The weights at each 256th of a period.
fn points() -> Vec<i128> {
    let mut points = vec![ONE, 2 * ONE];
    for _ in 0..8 {
        let middles = points.windows(2).map(|pair| (pair[0] * pair[1]).isqrt());
        let both = points.iter().zip(middles.collect::<Vec<_>>());
        points = both.flat_map(|(&point, middle)| [point, middle]).chain([2 * ONE]).collect();
    }
    points
}

fn weight(at: Millis, half_life: Millis, points: &[i128]) -> i128 {
    let passed = i128::from(at.rem_euclid(half_life)) * 256;
    let length = i128::from(half_life);
    let before = usize::try_from(passed / length).unwrap();
    let (low, high) = (points[before], points[before + 1]);
    low + (high - low) * (passed % length) / length
}

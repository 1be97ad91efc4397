//! What was used before, as far as it still counts: forward decay (Cormode, Shkapenyuk,
//! Srivastava, Xu, ICDE 2009) in whole numbers.
//!
//! Not the past fades: what is used weighs the more the later it is, twice as much after each
//! half-life, for all alike. So nothing has to be done while time passes, and what was used
//! between two changes is added when the second one comes. Periods of one half-life begin at whole
//! multiples of it; with each one all is measured anew, by a weight half as great.

use super::amounts::Amounts;
use super::model::Millis;
use super::share::Share;

/// The weight at the beginning of a period.
const ONE: i128 = 1 << 40;

/// So often a period is halved to find the weight at a time within it.
const HALVINGS: u32 = 8;

/// What is more counts as this, so that no sum overflows.
const MOST: i128 = 1 << 85;

/// Averages are told in millionths.
const MILLION: i128 = 1_000_000;

/// The sum of who used so many millionths on average, by the weight at its end.
pub(super) fn sum_of(average: i128, weight: i128) -> i128 {
    times(average.clamp(0, MOST * MILLION), weight, MILLION)
}

/// `amount` × `by` ÷ `of`, rounded down, for factors below 2^42.
fn times(amount: i128, by: i128, of: i128) -> i128 {
    amount / of * by + amount % of * by / of
}

/// No sum is more.
pub(super) const FULL: i128 = 2 * MOST * ONE;

/// A time, and what use weighs then.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    at: Millis,
    pub(super) weight: i128,
}

impl Moment {
    pub(super) fn new(at: Millis, half_life: Millis) -> Self {
        Self { at, weight: weight(at, half_life.max(1)) }
    }
}

/// What somebody used, by axis.
#[derive(Clone, Debug)]
pub(super) struct History {
    half_life: Millis,
    /// Until then all is added.
    until: Moment,
    /// In use since.
    usage: Amounts,
    /// Amounts by weight.
    sum: Amounts,
}

impl History {
    /// Of somebody who has used as much by `at` as `sum` says.
    pub(super) fn new(half_life: Millis, at: Millis, sum: Amounts) -> Self {
        let until = Moment::new(at, half_life);
        Self { half_life: half_life.max(1), until, usage: Amounts::default(), sum }
    }

    /// Takes in what is used from now on.
    pub(super) fn uses(&mut self, now: Millis, usage: &Amounts) {
        self.pass(now);
        self.usage.clone_from(usage);
    }

    /// Adds what was used until now.
    pub(super) fn pass(&mut self, now: Millis) {
        if now > self.until.at {
            self.pass_to(Moment::new(now, self.half_life));
        }
    }

    /// The same, by who knows what use weighs now.
    pub(super) fn pass_to(&mut self, now: Moment) {
        if now.at <= self.until.at {
            return;
        }
        let begun = now.at.div_euclid(self.half_life).saturating_mul(self.half_life);
        while self.until.at < begun {
            let (from, before) = (self.until.weight, self.sum.clone());
            self.add(2 * ONE - from);
            self.sum.halve();
            // What was used for so long that it changes nothing any more stays as it is.
            let is_steady = from == ONE && self.sum == before;
            let next = self.until.at.div_euclid(self.half_life).saturating_add(1);
            let at = if is_steady { begun } else { next.saturating_mul(self.half_life) };
            self.until = Moment { at, weight: ONE };
        }
        self.add(now.weight - self.until.weight);
        self.until = now;
    }

    fn add(&mut self, weight: i128) {
        for (axis, used) in self.usage.iter().filter(|&(_, used)| used > 0) {
            *self.sum.at(axis) += used.min(MOST) * weight;
        }
    }

    /// What was used until `at`, by weight.
    pub(super) fn sum(&self) -> &Amounts {
        &self.sum
    }

    /// What was used on average, in millionths.
    pub(super) fn average(&self) -> Amounts {
        let mut average = Amounts::default();
        for (axis, sum) in self.sum.iter().filter(|&(_, sum)| sum > 0) {
            *average.at(axis) = times(sum, MILLION, self.until.weight);
        }
        average
    }

    /// What was used on average is such a share of the capacity, by weight of the queue.
    pub(super) fn share(&self, capacity: &Amounts, of_queue: u32) -> Share {
        let now = self.until.weight;
        let whole = capacity.iter().map(|(axis, all)| (self.sum.get(axis), all));
        let parts = whole.filter(|&(sum, all)| sum > 0 && all > 0);
        let part = |(sum, all): (i128, i128)| {
            let part =
                fraction(sum.unsigned_abs(), now.unsigned_abs() * all.min(MOST).unsigned_abs());
            Share::try_from(part / u128::from(of_queue.max(1))).unwrap_or(Share::MAX)
        };
        parts.map(part).max().unwrap_or(0)
    }
}

/// The weight at a time: 2^40 at the beginning of a period, twice that at its end. In the middle
/// between two times it is the root of the product of theirs, rounded down; when the period was
/// halved eight times, what is between grows evenly.
fn weight(at: Millis, half_life: Millis) -> i128 {
    let passed = i128::from(at.rem_euclid(half_life)) << HALVINGS;
    let (mut from, mut length) = (0, i128::from(half_life) << HALVINGS);
    let (mut low, mut high) = (ONE, 2 * ONE);
    for _ in 0..HALVINGS {
        length >>= 1;
        let middle = (low * high).isqrt();
        if passed < from + length {
            high = middle;
        } else {
            (low, from) = (middle, from + length);
        }
    }
    low + (high - low) * (passed - from) / length
}

/// `part` ÷ `whole` in steps of 2^-60, rounded down; `whole` is below 2^127.
fn fraction(part: u128, whole: u128) -> u128 {
    let (mut quotient, mut rest) = (part / whole, part % whole);
    if quotient >> 67 != 0 {
        return u128::MAX;
    }
    let mut left = 60;
    while left > 0 {
        let step = whole.leading_zeros().min(left);
        quotient = (quotient << step) | ((rest << step) / whole);
        rest = (rest << step) % whole;
        left -= step;
    }
    quotient
}

#[cfg(test)]
mod tests {
    use super::*;

    const WEEK: Millis = 7 * 24 * 3_600_000;

    fn cpus(units: i128) -> Amounts {
        let mut amounts = Amounts::default();
        *amounts.at(2) = units;
        amounts
    }

    /// Of who used `units` from the first time on, until the second, seen at the third.
    fn used(units: i128, half_life: Millis, [from, until, now]: [Millis; 3]) -> History {
        let mut history = History::new(half_life, from, Amounts::default());
        history.uses(from, &cpus(units));
        history.uses(until, &Amounts::default());
        history.pass(now);
        history
    }

    #[test]
    fn weights_double_in_a_half_life_evenly_by_factors_and_never_fall() {
        for half_life in [1, 7, 1_000, WEEK, 52 * WEEK] {
            let at = |step| weight(3 * half_life + half_life * step / 1_000, half_life);
            assert_eq!(at(0), ONE);
            assert!((1..1_000).all(|step| at(step - 1) <= at(step)));
            for step in (0..500).filter(|_| half_life > 100) {
                // What is twice as late weighs the square, to within a few millionths.
                let miss = at(step) * at(step) - ONE * at(2 * step);
                assert!(miss.abs() < ONE * at(2 * step) / 250_000, "{half_life}: {step}");
            }
        }
    }

    #[test]
    fn what_was_used_counts_half_as_much_after_a_half_life() {
        let all = cpus(8_000);
        let share = |now| used(4_000, WEEK, [0, 5 * WEEK, now]).share(&all, 1);
        let (then, later) = (share(5 * WEEK), share(6 * WEEK));
        assert_eq!(then / 2, later);
        // Five half-lives of half of it: 31 of 32 parts.
        assert_eq!(then, (1 << 59) / 32 * 31);
    }

    #[test]
    fn the_least_for_one_half_life_leaves_something_that_grows() {
        for half_life in [1, 1_000, WEEK, 52 * WEEK] {
            let sum = |until| used(1, half_life, [0, until, until]).sum().get(2);
            assert!(0 < sum(half_life) && sum(half_life) < sum(2 * half_life), "{half_life}");
        }
    }

    #[test]
    fn nothing_overflows_and_no_gap_takes_long() {
        let mut history = used(i128::MAX, 1, [Millis::MIN, Millis::MAX - 9, Millis::MAX]);
        history.uses(Millis::MAX, &cpus(i128::MIN));
        assert!(history.share(&cpus(1), 0) > 0);
        assert!(history.share(&cpus(i128::MAX), 1) <= 1 << 60);
        assert_eq!(used(1, WEEK, [0, 1, Millis::MAX]).sum().get(2), 0);
    }

    proptest::proptest! {
        #[test]
        fn it_does_not_matter_when_it_is_added_up(
            half_life in 1_i64..5_000,
            mut times in proptest::collection::vec(0_i64..20_000, 2..9),
            units in 0_i128..1_000_000,
        ) {
            times.sort_unstable();
            let (from, now) = (times[0], times[times.len() - 1]);
            let mut often = History::new(half_life, from, Amounts::default());
            for &at in &times {
                often.uses(at, &cpus(units));
            }
            assert_eq!(often.sum(), used(units, half_life, [from, now, now]).sum());
        }
    }
}

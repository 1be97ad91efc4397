//! Sets of small numbers, as bits.

/// A set of small numbers. What is beyond its words is not in it.
#[derive(Clone, Debug, Default)]
pub(super) struct Mask(Vec<u64>);

const BITS: u32 = u64::BITS;

impl Mask {
    pub(super) fn has(&self, bit: u32) -> bool {
        self.0.get((bit / BITS) as usize).is_some_and(|word| word >> (bit % BITS) & 1 == 1)
    }

    pub(super) fn set(&mut self, bit: u32) {
        let word = (bit / BITS) as usize;
        if word >= self.0.len() {
            self.0.resize(word + 1, 0);
        }
        if let Some(word) = self.0.get_mut(word) {
            *word |= 1 << (bit % BITS);
        }
    }

    pub(super) fn unset(&mut self, bit: u32) {
        if let Some(word) = self.0.get_mut((bit / BITS) as usize) {
            *word &= !(1 << (bit % BITS));
        }
    }

    pub(super) fn clear(&mut self) {
        self.0.fill(0);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(|&word| word == 0)
    }

    /// Makes this what is in `a` and `b` and not in `not`; true when that is anything.
    pub(super) fn assign(&mut self, a: &Self, b: &Self, not: &Self) -> bool {
        self.0.clear();
        self.0.extend(a.0.iter().zip(&b.0).map(|(a, b)| a & b));
        for (word, not) in self.0.iter_mut().zip(&not.0) {
            *word &= !not;
        }
        !self.is_empty()
    }

    pub(super) fn len(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    /// Keeps what passes.
    pub(super) fn retain(&mut self, keep: impl Fn(u32) -> bool) {
        for (at, word) in (0..).zip(&mut self.0) {
            for bit in bits(*word).filter(|bit| !keep(at * BITS + bit)) {
                *word &= !(1 << bit);
            }
        }
    }

    pub(super) fn add(&mut self, other: &Self) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        self.0.iter_mut().zip(&other.0).for_each(|(word, more)| *word |= more);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        (0..).zip(&self.0).flat_map(|(at, &word)| bits(word).map(move |bit| at * BITS + bit))
    }
}

/// The bits of a word, the lowest first.
fn bits(word: u64) -> impl Iterator<Item = u32> {
    let mut rest = word;
    std::iter::from_fn(move || {
        (rest != 0).then(|| {
            let bit = rest.trailing_zeros();
            rest &= rest - 1;
            bit
        })
    })
}

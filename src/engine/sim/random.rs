//! Random numbers from a seed: splitmix64 (Steele, Lea, Flood 2014).

#[derive(Clone, Debug)]
pub(super) struct Random(pub(super) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// One of 0 up to `bound`, without it.
    pub(super) fn below(&mut self, bound: u32) -> u32 {
        u32::try_from(self.next() % u64::from(bound.max(1))).unwrap_or(0)
    }

    /// One of `least` up to `most`, both included.
    pub(super) fn within(&mut self, least: u32, most: u32) -> u32 {
        least + self.below(most - least + 1)
    }

    /// True once in so many times.
    pub(super) fn one_in(&mut self, times: u32) -> bool {
        self.below(times) == 0
    }

    pub(super) fn pick<T: Clone>(&mut self, from: &[T]) -> Option<T> {
        let index = self.below(u32::try_from(from.len()).unwrap_or(u32::MAX));
        from.get(usize::try_from(index).unwrap_or(0)).cloned()
    }

    /// One of several, each as often as its weight says.
    pub(super) fn weighted<T: Copy>(&mut self, from: &[(u32, T)]) -> Option<T> {
        let mut left = self.below(from.iter().map(|&(weight, _)| weight).sum());
        from.iter().find_map(|&(weight, one)| match left.checked_sub(weight) {
            None => Some(one),
            Some(rest) => {
                left = rest;
                None
            }
        })
    }
}

//! Equal things, kept once.

use std::collections::BTreeSet;
use std::sync::Arc;

/// Things that are kept before it is looked for some that nobody uses any more.
const FIRST_SWEEP: usize = 64;

/// Things that are mostly the same for many pods, each in memory once.
#[derive(Debug)]
pub(super) struct Pool<T: ?Sized> {
    kept: BTreeSet<Arc<T>>,
    sweep_at: usize,
}

impl<T: ?Sized + Ord> Default for Pool<T> {
    fn default() -> Self {
        Self { kept: BTreeSet::new(), sweep_at: FIRST_SWEEP }
    }
}

impl<T: ?Sized + Ord> Pool<T> {
    /// The equal one that is in use already, else this one.
    pub fn share(&mut self, thing: Arc<T>) -> Arc<T> {
        if let Some(kept) = self.kept.get(&thing) {
            return Arc::clone(kept);
        }
        if self.kept.len() >= self.sweep_at {
            self.kept.retain(|kept| Arc::strong_count(kept) > 1);
            self.sweep_at = FIRST_SWEEP.max(2 * self.kept.len());
        }
        self.kept.insert(Arc::clone(&thing));
        thing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_things_are_one_and_those_that_nobody_uses_are_forgotten() {
        let mut pool = Pool::<str>::default();
        let used = pool.share("used".into());
        assert!(Arc::ptr_eq(&used, &pool.share("used".into())));
        for number in 0..10 * FIRST_SWEEP {
            pool.share(number.to_string().into());
        }
        assert!(pool.kept.len() <= FIRST_SWEEP, "{}", pool.kept.len());
        assert!(Arc::ptr_eq(&used, &pool.share("used".into())));
    }
}

//! How many of each.

use std::collections::BTreeMap;

/// Counts equal things; knows only those that are there.
#[derive(Clone, Debug)]
pub(super) struct Tally<T>(BTreeMap<T, usize>);

impl<T> Default for Tally<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T: Ord + Clone> Tally<T> {
    pub fn add(&mut self, thing: &T) {
        *self.0.entry(thing.clone()).or_default() += 1;
    }

    pub fn remove(&mut self, thing: &T) {
        if let Some(count) = self.0.get_mut(thing) {
            *count -= 1;
            if *count == 0 {
                self.0.remove(thing);
            }
        }
    }

    /// The thing as it was first added.
    pub fn get(&self, thing: &T) -> Option<&T> {
        self.0.get_key_value(thing).map(|(known, _)| known)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Different things, in order.
    pub fn kinds(&self) -> impl Iterator<Item = &T> {
        self.0.keys()
    }

    pub fn last(&self) -> Option<&T> {
        self.0.last_key_value().map(|(thing, _)| thing)
    }
}

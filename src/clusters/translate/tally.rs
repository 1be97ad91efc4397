//! How many of each.

/// Counts equal things; knows only those that are there.
///
/// A sorted vector: nearly always there is one kind or a few, and there is a
/// tally or more for each group of a cluster.
#[derive(Clone, Debug)]
pub(super) struct Tally<T>(Vec<(T, u32)>);

impl<T> Default for Tally<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Ord + Clone> Tally<T> {
    pub fn add(&mut self, thing: &T) {
        match self.find(thing) {
            Ok(at) => {
                if let Some((_, count)) = self.0.get_mut(at) {
                    *count += 1;
                }
            }
            Err(at) => {
                if self.0.is_empty() {
                    self.0.reserve_exact(1);
                }
                self.0.insert(at, (thing.clone(), 1));
            }
        }
    }

    pub fn remove(&mut self, thing: &T) {
        let Ok(at) = self.find(thing) else { return };
        let Some((_, count)) = self.0.get_mut(at) else { return };
        *count -= 1;
        if *count == 0 {
            self.0.remove(at);
        }
    }

    /// The thing as it was first added.
    pub fn get(&self, thing: &T) -> Option<&T> {
        self.find(thing).ok().and_then(|at| self.0.get(at)).map(|(known, _)| known)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Different things, in order.
    pub fn kinds(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|(thing, _)| thing)
    }

    pub fn last(&self) -> Option<&T> {
        self.0.last().map(|(thing, _)| thing)
    }

    fn find(&self, thing: &T) -> Result<usize, usize> {
        self.0.binary_search_by(|(known, _)| known.cmp(thing))
    }
}

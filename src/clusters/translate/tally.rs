//! How many of each.

/// Counts equal things; knows only those that are there.
///
/// Nearly always there is one kind or none, and there are several tallies for each group
/// of a cluster: so a single kind needs no memory of its own. More are a sorted vector.
#[derive(Clone, Debug)]
pub(super) enum Tally<T> {
    One(Option<(T, u32)>),
    Many(Vec<(T, u32)>),
}

impl<T> Default for Tally<T> {
    fn default() -> Self {
        Self::One(None)
    }
}

impl<T: Ord + Clone> Tally<T> {
    pub fn add(&mut self, thing: &T) {
        let at = match self.find(thing) {
            Ok(at) => {
                if let Some((_, count)) = self.kept_mut().get_mut(at) {
                    *count += 1;
                }
                return;
            }
            Err(at) => at,
        };
        let new = (thing.clone(), 1);
        match self {
            Self::One(none @ None) => *none = Some(new),
            Self::One(only) => {
                let mut many: Vec<_> = only.take().into_iter().collect();
                many.insert(at, new);
                *self = Self::Many(many);
            }
            Self::Many(many) => many.insert(at, new),
        }
    }

    pub fn remove(&mut self, thing: &T) {
        let Ok(at) = self.find(thing) else { return };
        let Some((_, count)) = self.kept_mut().get_mut(at) else { return };
        *count -= 1;
        if *count > 0 {
            return;
        }
        match self {
            Self::One(only) => *only = None,
            Self::Many(many) => {
                many.remove(at);
                if many.len() <= 1 {
                    *self = Self::One(many.pop());
                }
            }
        }
    }

    /// The thing as it was first added.
    pub fn get(&self, thing: &T) -> Option<&T> {
        self.find(thing).ok().and_then(|at| self.kept().get(at)).map(|(known, _)| known)
    }

    pub fn is_empty(&self) -> bool {
        self.kept().is_empty()
    }

    /// All of them, also those that are alike.
    pub fn len(&self) -> u32 {
        self.kept().iter().map(|(_, count)| count).sum()
    }

    /// Different things, in order.
    pub fn kinds(&self) -> impl Iterator<Item = &T> {
        self.kept().iter().map(|(thing, _)| thing)
    }

    pub fn last(&self) -> Option<&T> {
        self.kept().last().map(|(thing, _)| thing)
    }

    fn find(&self, thing: &T) -> Result<usize, usize> {
        self.kept().binary_search_by(|(known, _)| known.cmp(thing))
    }

    fn kept(&self) -> &[(T, u32)] {
        match self {
            Self::One(only) => only.as_slice(),
            Self::Many(many) => many,
        }
    }

    fn kept_mut(&mut self) -> &mut [(T, u32)] {
        match self {
            Self::One(only) => only.as_mut_slice(),
            Self::Many(many) => many,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn it_counts_as_a_map_does(steps in proptest::collection::vec((0_u8..4, any::<bool>()), 0..60)) {
            let (mut tally, mut map) = (Tally::default(), BTreeMap::<u8, u32>::new());
            for (thing, add) in steps {
                if add {
                    tally.add(&thing);
                    *map.entry(thing).or_default() += 1;
                } else {
                    tally.remove(&thing);
                    map.entry(thing).and_modify(|count| *count -= 1);
                    map.retain(|_, count| *count > 0);
                }
                prop_assert!(tally.kinds().eq(map.keys()));
                prop_assert_eq!(tally.len(), map.values().sum::<u32>());
                prop_assert_eq!(tally.last(), map.keys().next_back());
                prop_assert_eq!(tally.get(&thing), map.get_key_value(&thing).map(|(known, _)| known));
                prop_assert!(map.len() > 1 || matches!(tally, Tally::One(_)));
            }
        }
    }
}

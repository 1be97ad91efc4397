//! An ordered map that nearly always holds one entry or none.

use std::collections::BTreeMap;

/// A map costs as much for its first entry as for eleven, and there is one for each group of
/// a cluster: so a single entry needs no memory of its own.
#[derive(Debug)]
pub(super) enum Few<K, V> {
    One(Option<(K, V)>),
    Many(BTreeMap<K, V>),
}

impl<K, V> Default for Few<K, V> {
    fn default() -> Self {
        Self::One(None)
    }
}

impl<K: Ord, V> Few<K, V> {
    pub fn insert(&mut self, key: K, value: V) {
        match self {
            Self::Many(map) => drop(map.insert(key, value)),
            Self::One(only) => match only.take() {
                Some(first) if first.0 != key => {
                    *self = Self::Many([first, (key, value)].into());
                }
                _ => *only = Some((key, value)),
            },
        }
    }

    pub fn remove(&mut self, key: &K) {
        match self {
            Self::One(only) => {
                only.take_if(|only| only.0 == *key);
            }
            Self::Many(map) => {
                map.remove(key);
                if map.len() <= 1 {
                    *self = Self::One(map.pop_first());
                }
            }
        }
    }

    pub fn is_empty(&self) -> bool {
        matches!(self, Self::One(None))
    }

    /// In order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        let (one, many) = match self {
            Self::One(only) => (only.as_ref(), None),
            Self::Many(map) => (None, Some(map)),
        };
        one.map(|(key, value)| (key, value)).into_iter().chain(many.into_iter().flatten())
    }

    pub fn first(&self) -> Option<(&K, &V)> {
        self.iter().next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_is_a_map(steps in proptest::collection::vec((0_u8..4, any::<Option<u8>>()), 0..40)) {
            let (mut few, mut map) = (Few::default(), BTreeMap::new());
            for (key, value) in steps {
                if let Some(value) = value {
                    few.insert(key, value);
                    map.insert(key, value);
                } else {
                    few.remove(&key);
                    map.remove(&key);
                }
                prop_assert!(few.iter().eq(&map));
                prop_assert_eq!((few.first(), few.is_empty()), (map.first_key_value(), map.is_empty()));
                prop_assert!(map.len() > 1 || matches!(few, Few::One(_)));
            }
        }
    }
}

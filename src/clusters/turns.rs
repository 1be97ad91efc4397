//! Whose owner is read next.
//!
//! Namespaces take turns, so that one with very many owners delays the others by one read
//! each. Of one API version only some may be read at once, so that one whose server hangs
//! leaves room for the rest.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::grouping::ObjectKey;

/// Owners that are read at the same time.
const READS_AT_ONCE: usize = 8;
/// Of these, owners of one API version.
const READS_OF_A_VERSION: usize = 4;

/// Owners to be read; each is here once, since it is asked for once until it is answered.
#[derive(Debug, Default)]
pub(super) struct Turns {
    lines: BTreeMap<Arc<str>, Line>,
    order: VecDeque<Arc<str>>,
    /// Reads that run, by API version.
    running: BTreeMap<Arc<str>, usize>,
}

/// What one namespace waits for, by API version.
type Line = BTreeMap<Arc<str>, VecDeque<ObjectKey>>;

impl Turns {
    /// Puts owners at the end of the lines of their namespaces.
    pub fn extend(&mut self, keys: impl IntoIterator<Item = ObjectKey>) {
        for key in keys {
            let namespace = Arc::clone(&key.namespace);
            let line = self.lines.entry(Arc::clone(&namespace)).or_default();
            if line.is_empty() {
                self.order.push_back(namespace);
            }
            line.entry(Arc::clone(&key.api_version)).or_default().push_back(key);
        }
    }

    /// The owner to read now, if one may be: it then counts as being read until it is
    /// [`done`](Self::done).
    pub fn next(&mut self) -> Option<ObjectKey> {
        if self.running.values().sum::<usize>() >= READS_AT_ONCE {
            return None;
        }
        for _ in 0..self.order.len() {
            let namespace = self.order.pop_front()?;
            let key = self.lines.get_mut(&namespace).and_then(|line| first(line, &self.running));
            if self.lines.get(&namespace).is_some_and(|line| !line.is_empty()) {
                self.order.push_back(namespace);
            } else {
                self.lines.remove(&namespace);
            }
            if let Some(key) = key {
                *self.running.entry(Arc::clone(&key.api_version)).or_default() += 1;
                return Some(key);
            }
        }
        None
    }

    /// An owner was read, with whatever answer.
    pub fn done(&mut self, key: &ObjectKey) {
        let Some(count) = self.running.get_mut(&key.api_version) else { return };
        *count = count.saturating_sub(1);
        if *count == 0 {
            self.running.remove(&key.api_version);
        }
    }
}

/// Takes the first owner whose version may be read. Passes over at most the few versions
/// that are being read as often as they may.
fn first(line: &mut Line, running: &BTreeMap<Arc<str>, usize>) -> Option<ObjectKey> {
    let may = |version: &Arc<str>| running.get(version).is_none_or(|n| *n < READS_OF_A_VERSION);
    let version = line.keys().find(|version| may(version)).cloned()?;
    let keys = line.get_mut(&version)?;
    let key = keys.pop_front();
    if keys.is_empty() {
        line.remove(&version);
    }
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(namespace: &str, version: &str, number: usize) -> ObjectKey {
        ObjectKey {
            api_version: version.into(),
            kind: "Kind".into(),
            namespace: namespace.into(),
            name: number.to_string().into(),
            uid: "uid".into(),
        }
    }

    fn names(turns: &mut Turns) -> Vec<String> {
        let keys = std::iter::from_fn(|| turns.next());
        keys.map(|key| format!("{}/{}/{}", key.namespace, key.api_version, key.name)).collect()
    }

    #[test]
    fn namespaces_take_turns_however_much_one_asks_for() {
        let mut turns = Turns::default();
        turns.extend((0..5_000).map(|number| key("loud", "a", number)));
        turns.extend([key("calm", "b", 0), key("calm", "b", 1)]);
        assert_eq!(
            names(&mut turns),
            ["loud/a/0", "calm/b/0", "loud/a/1", "calm/b/1", "loud/a/2", "loud/a/3"]
        );
        turns.done(&key("loud", "a", 0));
        assert_eq!(names(&mut turns), ["loud/a/4"]);
    }

    #[test]
    fn a_version_whose_server_hangs_leaves_room_for_the_others() {
        let mut turns = Turns::default();
        turns.extend((0..100).map(|number| key("team", "hangs", number)));
        assert_eq!(names(&mut turns).len(), READS_OF_A_VERSION);
        turns.extend([key("team", "well", 0), key("other", "well", 1)]);
        assert_eq!(names(&mut turns), ["team/well/0", "other/well/1"]);
    }

    #[test]
    fn no_more_are_read_at_once_than_may_be_and_all_are_read_in_the_end() {
        let mut turns = Turns::default();
        turns.extend(
            (0..60).map(|number| {
                key(&format!("n{}", number % 7), ["a", "b", "c"][number % 3], number)
            }),
        );
        let mut read = 0;
        let mut running = VecDeque::new();
        loop {
            running.extend(std::iter::from_fn(|| turns.next()));
            assert!(running.len() <= READS_AT_ONCE);
            let Some(key) = running.pop_front() else { break };
            turns.done(&key);
            read += 1;
        }
        assert_eq!(read, 60);
        assert!(turns.lines.is_empty() && turns.order.is_empty() && turns.running.is_empty());
    }
}

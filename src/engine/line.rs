//! A queue's line: the offers of its own groups, one lane for each class, and the groups
//! that cannot offer anything now.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::amounts::Amounts;
use super::model::{GroupId, Growth, Millis, Order, Placement, QueueId, SingletonId, Uid};
use super::shapes::ClassId;
use super::slab::NONE;

/// By so much older gangs that grow count.
const GROWTH_LEAD: Millis = 300_000;

/// Place in a queue's line: gangs cut in two first, then priority, age of the oldest waiting pod,
/// uid of the root. Smaller is earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    cut: Reverse<bool>,
    priority: Reverse<i32>,
    since: Millis,
    root: [u64; 2],
    pub(super) group: GroupId,
    /// It counts as older than it is.
    leads: bool,
}

/// By what queues of the same share take turns: age of the oldest pod and uid of the root
/// of their first group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Head {
    pub(super) oldest: Millis,
    root: [u64; 2],
}

impl Head {
    pub(super) fn new(oldest: Millis, root: Uid) -> Self {
        Self { oldest, root: halves(root) }
    }
}

impl Place {
    pub(super) fn new(cut: bool, priority: i32, grows: bool, head: Head, group: GroupId) -> Self {
        let since = head.oldest.saturating_sub(if grows { GROWTH_LEAD } else { 0 });
        let (cut, priority) = (Reverse(cut), Reverse(priority));
        Self { cut, priority, since, root: head.root, group, leads: grows }
    }

    /// Where it would stand if gangs that grow went where their age puts them.
    pub(super) fn fair(self) -> Self {
        Self { since: self.head().oldest, leads: false, ..self }
    }

    pub(super) fn head(&self) -> Head {
        let lead = if self.leads { GROWTH_LEAD } else { 0 };
        Head { oldest: self.since.saturating_add(lead), root: self.root }
    }
}

/// The same order in half the alignment.
#[expect(clippy::cast_possible_truncation, reason = "each half is what it is cut to")]
pub(super) fn halves(uid: Uid) -> [u64; 2] {
    [(uid.0 >> 64) as u64, uid.0 as u64]
}

/// Places in order. Most rows are short: those are kept without the cost of a tree.
#[derive(Debug)]
pub(super) enum Row {
    Short(Vec<Place>),
    Long(BTreeSet<Place>),
}

/// Longer rows become trees.
const SHORT: usize = 24;

impl Default for Row {
    fn default() -> Self {
        Self::Short(Vec::new())
    }
}

impl Row {
    pub(super) fn insert(&mut self, place: Place) {
        match self {
            Self::Short(places) => {
                if let Err(at) = places.binary_search(&place) {
                    if places.is_empty() {
                        places.reserve_exact(1);
                    }
                    places.insert(at, place);
                }
                if places.len() > SHORT {
                    *self = Self::Long(places.iter().copied().collect());
                }
            }
            Self::Long(places) => drop(places.insert(place)),
        }
    }

    pub(super) fn remove(&mut self, place: &Place) {
        match self {
            Self::Short(places) => {
                if let Ok(at) = places.binary_search(place) {
                    places.remove(at);
                }
            }
            Self::Long(places) => {
                places.remove(place);
                if places.len() < SHORT / 2 {
                    *self = Self::Short(places.iter().copied().collect());
                }
            }
        }
    }

    pub(super) fn first(&self) -> Option<&Place> {
        match self {
            Self::Short(places) => places.first(),
            Self::Long(places) => places.first(),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Place> {
        let (short, long) = match self {
            Self::Short(places) => (Some(places), None),
            Self::Long(places) => (None, Some(places)),
        };
        short.into_iter().flatten().chain(long.into_iter().flatten())
    }
}

/// Offers of one class.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) class: ClassId,
    /// The first of its row, kept at hand.
    pub(super) first: Place,
    /// Whatever ends, it does not fit: it is passed over, even in a strict queue.
    pub(super) hopeless: bool,
    row: Row,
}

/// A queue's own groups, without those of the queues below. It outlives its queue.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) queue: QueueId,
    /// Its node in the tree, while the queue is valid.
    pub(super) node: u32,
    /// Nothing of it may start: the queue or one above it is stopped.
    pub(super) stopped: bool,
    pub(super) order: Order,
    pub(super) placement: Placement,
    pub(super) growth: Growth,
    /// The only lanes that count in a strict queue: where it has a right, and where it borrows.
    pub(super) strict: [Option<ClassId>; 2],
    /// Sorted by class.
    pub(super) lanes: Vec<Lane>,
    /// Groups that wait and have nothing to offer now.
    pub(super) parked: Row,
    /// What its groups are charged.
    pub(super) usage: Amounts,
    /// What of that takes from the capacity.
    pub(super) load: Amounts,
    /// What its waiting pods ask.
    pub(super) waiting: Amounts,
    /// Groups with a singleton key: those that wait, and how many are charged.
    pub(super) keys: BTreeMap<SingletonId, Key>,
    /// Pods that wait.
    pub(super) pending: u64,
    /// Groups that name its queue.
    pub(super) groups: u32,
    /// Its offers or its usage have changed and the tree does not know it.
    pub(super) is_touched: bool,
}

/// Groups of one singleton key in one queue.
#[derive(Debug, Default)]
pub(super) struct Key {
    pub(super) charged: u32,
    pub(super) waiting: BTreeSet<u32>,
}

impl Line {
    pub(super) fn new(queue: QueueId) -> Self {
        Self {
            queue,
            node: NONE,
            stopped: false,
            order: Order::default(),
            placement: Placement::default(),
            growth: Growth::default(),
            strict: [None; 2],
            lanes: Vec::new(),
            parked: Row::default(),
            usage: Amounts::default(),
            load: Amounts::default(),
            waiting: Amounts::default(),
            keys: BTreeMap::new(),
            pending: 0,
            groups: 0,
            is_touched: false,
        }
    }

    /// Every group that waits, in order.
    pub(super) fn places(&self) -> BTreeSet<Place> {
        let lanes = self.lanes.iter().flat_map(|lane| lane.row.iter());
        lanes.chain(self.parked.iter()).copied().collect()
    }

    /// Puts an offer into its lane; true when the lane is new.
    pub(super) fn insert(&mut self, class: ClassId, place: Place) -> bool {
        match self.lanes.binary_search_by_key(&class, |lane| lane.class) {
            Ok(at) => {
                if let Some(lane) = self.lanes.get_mut(at) {
                    lane.row.insert(place);
                    lane.first = lane.first.min(place);
                }
                false
            }
            Err(at) => {
                let mut row = Row::default();
                row.insert(place);
                self.lanes.insert(at, Lane { class, first: place, hopeless: false, row });
                true
            }
        }
    }

    pub(super) fn remove(&mut self, class: ClassId, place: &Place) {
        let Ok(at) = self.lanes.binary_search_by_key(&class, |lane| lane.class) else { return };
        let Some(lane) = self.lanes.get_mut(at) else { return };
        lane.row.remove(place);
        match lane.row.first() {
            Some(&first) => lane.first = first,
            None => drop(self.lanes.remove(at)),
        }
    }

    pub(super) fn lane_mut(&mut self, class: ClassId) -> Option<&mut Lane> {
        let at = self.lanes.binary_search_by_key(&class, |lane| lane.class).ok()?;
        self.lanes.get_mut(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_no_larger_than_it_was() {
        assert_eq!(size_of::<Place>(), 40, "each waiting group has two");
    }
}

//! In what order children take turns where what they used before counts.

use std::collections::{BTreeMap, BTreeSet};

use super::super::amounts::Amounts;
use super::super::history::{History, Moment};
use super::super::model::{Millis, QueueId};
use super::{Band, Key, NONE, Node, ROOT, Tree};

/// A queue, or its own line.
pub(in super::super) type Place = (QueueId, bool);

/// What the children of queues with a half-life used. They outlive the tree.
#[derive(Debug, Default)]
pub(in super::super) struct Histories {
    pub(in super::super) now: Millis,
    pub(in super::super) of: BTreeMap<Place, History>,
}

/// Children with offers in the order of their turns, by share and past share.
#[derive(Debug, Default)]
pub(super) struct Later {
    /// As of then, if it was ever worked out.
    at: Option<Millis>,
    pub(super) turns: BTreeSet<(Key, u32)>,
    keys: BTreeMap<u32, Key>,
}

impl Band {
    /// Above what is guaranteed.
    pub(super) fn goes_by_past(self) -> bool {
        matches!(self, Self::Entitled | Self::Borrowing)
    }
}

impl Node {
    /// Children with offers, in the order of their turns.
    pub(super) fn turns_of(&mut self, by_past: bool) -> &mut BTreeSet<(Key, u32)> {
        match &mut self.later {
            Some(later) if by_past => &mut later.turns,
            _ => &mut self.turns,
        }
    }
}

impl Tree {
    /// Takes in what is used where, after the tree was made anew.
    pub(in super::super) fn resume(&mut self, histories: Histories) {
        self.histories = histories;
        let now = self.histories.now;
        self.histories.of.values_mut().for_each(|history| history.uses(now, &Amounts::default()));
        for at in (1..).take(self.nodes.len() - 1) {
            for (place, half_life) in self.places(at) {
                let new = || History::new(half_life, now, Amounts::default());
                let history = self.histories.of.entry(place).or_insert_with(new);
                history.uses(now, &self.nodes[at as usize].usage);
            }
        }
    }

    /// Takes in that something else is used at a node and those above.
    pub(super) fn remember(&mut self, from: u32) {
        if self.histories.of.is_empty() {
            return;
        }
        let mut at = from;
        while at != ROOT && at != NONE {
            for (place, _) in self.places(at) {
                if let Some(history) = self.histories.of.get_mut(&place) {
                    history.uses(self.histories.now, &self.nodes[at as usize].usage);
                }
            }
            at = self.node(at).parent;
        }
    }

    /// Whose history what is used at a node belongs to: a queue without queues below is its own
    /// line too.
    fn places(&self, at: u32) -> impl Iterator<Item = (Place, Millis)> + use<> {
        let node = self.node(at);
        let of_parent = self.node(node.parent).half_life;
        let own = node.half_life.filter(|_| node.is_line() && !node.is_own);
        let place = of_parent.map(|half_life| ((node.queue, node.is_own), half_life));
        place.into_iter().chain(own.map(|half_life| ((node.queue, true), half_life)))
    }

    /// Puts the children of a node in order as of now.
    pub(super) fn sort_by_past(&mut self, at: u32, capacity: &Amounts) {
        let now = self.histories.now;
        let node = self.node_mut(at);
        let (Some(mut later), Some(half_life)) = (node.later.take(), node.half_life) else {
            return;
        };
        if later.at != Some(now) {
            let now = Moment::new(now, half_life);
            let turns: Vec<(Key, u32)> = self.node(at).turns.iter().copied().collect();
            let keys = turns
                .into_iter()
                .map(|(key, child)| (child, self.with_past(child, key, now, capacity)));
            later.keys = keys.collect();
            later.turns = later.keys.iter().map(|(&child, &key)| (key, child)).collect();
            later.at = Some(self.histories.now);
        }
        self.node_mut(at).later = Some(later);
    }

    /// Has the children of the same parent put in order anew when it is asked for.
    pub(in super::super) fn sort_again(&mut self, child: u32) {
        let parent = self.node(child).parent;
        if parent != NONE
            && let Some(later) = &mut self.node_mut(parent).later
        {
            later.at = None;
        }
    }

    /// Puts one child where it belongs, as far as there is an order as of now.
    pub(super) fn rank_by_past(&mut self, child: u32, key: Option<Key>, capacity: &Amounts) {
        let parent = self.node(child).parent;
        let above = self.node(parent);
        let is_now = |later: &Later| later.at == Some(self.histories.now);
        let Some(half_life) = above.half_life else { return };
        if !above.later.as_deref().is_some_and(is_now) {
            return;
        }
        let now = Moment::new(self.histories.now, half_life);
        let key = key.map(|key| self.with_past(child, key, now, capacity));
        let Some(later) = &mut self.node_mut(parent).later else { return };
        let before = match key {
            Some(key) => later.keys.insert(child, key),
            None => later.keys.remove(&child),
        };
        before.map(|before| later.turns.remove(&(before, child)));
        later.turns.extend(key.map(|key| (key, child)));
    }

    fn with_past(&mut self, at: u32, key: Key, now: Moment, capacity: &Amounts) -> Key {
        let (share, head, spot) = key;
        let node = &self.nodes[at as usize];
        let Some(history) = self.histories.of.get_mut(&(node.queue, node.is_own)) else {
            return key;
        };
        history.pass_to(now);
        (share.saturating_add(history.share(capacity, node.weight)), head, spot)
    }
}

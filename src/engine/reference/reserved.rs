//! What is reserved for whom.

use std::collections::BTreeMap;

use super::super::model::{GroupId, Millis, QueueId, ResourceId};
use super::offers::Offer;
use super::round::{Band, Round};
use super::{Reference, Spot};

/// Reservations that there may be at a time.
const RESERVATIONS: usize = 8;

/// How long the oldest pod of a group has to wait before.
const RESERVE_AFTER: Millis = 300_000;

/// Who leaves alone what is reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Reach {
    Everybody,
    /// This queue and those below.
    Below(QueueId),
}

impl Reach {
    pub(in super::super) fn has(self, path: &[QueueId]) -> bool {
        match self {
            Self::Everybody => true,
            Self::Below(queue) => path.contains(&queue),
        }
    }
}

impl Reference {
    /// The offers that have a reservation now, in the order in which those were made, and how far
    /// each reaches.
    pub(in super::super) fn reserved_offers(
        &self,
        lines: &BTreeMap<QueueId, Vec<Offer>>,
    ) -> Vec<(Offer, Reach)> {
        let first = |&(group, reach): &(GroupId, Reach)| {
            let mut firsts = lines.values().filter_map(|line| line.first());
            Some((firsts.find(|offer| offer.group == group)?.clone(), reach))
        };
        self.reserved.iter().filter_map(first).collect()
    }
}

impl Round<'_> {
    /// The first that has a reservation and fits now.
    pub(super) fn reserved_that_fits(&self) -> Option<Offer> {
        let mut reserved = self.reserved.iter().enumerate();
        let there = reserved.find(|(at, (offer, _))| {
            let may = offer.preemptible || self.reach(offer).is_some();
            may && self.fits_beside(&self.reserved[..*at], offer)
        });
        there.map(|(_, (offer, _))| offer.clone())
    }

    /// The groups that have a reservation from this look on.
    pub(super) fn reservations(&self) -> Vec<(GroupId, Reach)> {
        let due = |(offer, _): &(Offer, _)| Some((offer.group, self.reach(offer)?));
        let mut reserved: Vec<_> = self.reserved.iter().filter_map(due).collect();
        self.reserve_below(None, &mut reserved);
        reserved
    }

    fn reserve_below(&self, above: Option<QueueId>, reserved: &mut Vec<(GroupId, Reach)>) {
        let mut children = self.of.children(above);
        children.retain(|&child| self.head(child).is_some());
        children.sort_by_key(|&child| self.precedence(child));
        for child in children {
            match child {
                Spot::Queue(queue) => self.reserve_below(Some(queue), reserved),
                Spot::Line(queue) => {
                    let first = self.lines[&queue].first().filter(|first| self.may_reserve(first));
                    let new = first.filter(|first| reserved.iter().all(|r| r.0 != first.group));
                    let new = new.filter(|_| reserved.len() < RESERVATIONS);
                    reserved.extend(new.and_then(|new| Some((new.group, self.reach(new)?))));
                }
            }
        }
    }

    fn may_reserve(&self, offer: &Offer) -> bool {
        let would_fit = |(r, need): (ResourceId, i128)| {
            let there = self.books.capacity.get(r) - self.books.stray.get(r);
            r == ResourceId::GROUPS || need <= there - self.of.withheld(offer.queue, r, &|_| 0)
        };
        let since = offer.head().0;
        since.saturating_add(RESERVE_AFTER) <= self.of.now
            && offer.needs().all(would_fit)
            && self.plan_on_empty(offer).is_some()
    }

    /// How far a reservation would reach, if it is due.
    fn reach(&self, offer: &Offer) -> Option<Reach> {
        if self.is_in(Band::Completing, offer) || self.is_in(Band::Guaranteed, offer) {
            return Some(Reach::Everybody);
        }
        let is_more = |spot: &Spot| {
            let entitled = self.entitled.get(spot);
            !self.stays_within(offer, *spot, |r| entitled?.mentioned(r))
        };
        match self.path(offer).into_iter().find(is_more) {
            _ if !offer.preemptible => None,
            None => Some(Reach::Everybody),
            Some(Spot::Queue(queue)) => Some(Reach::Below(queue)),
            Some(Spot::Line(_)) => None,
        }
    }
}

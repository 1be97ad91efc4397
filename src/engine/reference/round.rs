//! One choice.

use std::collections::BTreeMap;

use super::super::model::{Millis, Order, QueueId, ResourceId, Uid};
use super::books::Books;
use super::offers::Offer;
use super::reserved::Reach;
use super::{Amounts, Reference, Spot};

/// By what right an offer may start, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Band {
    Completing,
    Guaranteed,
    Entitled,
    Borrowing,
}

impl Band {
    /// All but the last.
    pub(super) const OF_RIGHT: [Self; 3] = [Self::Completing, Self::Guaranteed, Self::Entitled];
}

/// The state of things when a choice is made.
pub(super) struct Round<'a> {
    pub(super) of: &'a Reference,
    pub(super) entitled: &'a Amounts,
    past: &'a BTreeMap<Spot, u64>,
    pub(super) books: Books,
    pub(super) lines: BTreeMap<QueueId, Vec<Offer>>,
    /// Offers that have a reservation, and how far that reaches.
    pub(super) reserved: Vec<(Offer, Reach)>,
}

impl<'a> Round<'a> {
    pub(super) fn new(
        of: &'a Reference,
        entitled: &'a Amounts,
        past: &'a BTreeMap<Spot, u64>,
    ) -> Self {
        let lines = of.lines();
        let reserved = of.reserved_offers(&lines);
        Self { of, entitled, past, books: of.books(), lines, reserved }
    }

    /// What starts next, by one of these rights.
    pub(super) fn choose(&self, bands: &[Band]) -> Option<Offer> {
        bands.iter().find_map(|&band| {
            let offers = self.lines.keys().flat_map(|&queue| self.in_line(queue, band));
            let in_band: Vec<&Offer> = offers
                .filter(|offer| self.fits_in(band, offer) && self.is_in(band, offer))
                .collect();
            self.pick(None, band, &in_band).cloned()
        })
    }

    /// The offers of a queue that may be chosen once they fit, in line.
    fn in_line(&self, queue: QueueId, band: Band) -> Vec<&Offer> {
        let mut line: Vec<&Offer> = self.lines[&queue].iter().collect();
        line.sort_by_key(|offer| offer.order(band == Band::Borrowing));
        if self.of.queues[&queue].order == Order::Strict {
            line.truncate(1);
        }
        line
    }

    /// Goes down from a queue to the first offer of the child whose turn it is.
    fn pick<'b>(
        &self,
        above: Option<QueueId>,
        band: Band,
        offers: &[&'b Offer],
    ) -> Option<&'b Offer> {
        let mut children = self.of.children(above);
        children.retain(|&child| offers.iter().any(|offer| self.path(offer).contains(&child)));
        let next = children.into_iter().min_by_key(|&child| {
            let (share, head, spot) = self.precedence(child);
            (share.saturating_add(self.past_share(band, child)), head, spot)
        })?;
        match next {
            Spot::Line(queue) => offers.iter().find(|offer| offer.queue == queue).copied(),
            Spot::Queue(queue) => self.pick(Some(queue), band, offers),
        }
    }

    fn past_share(&self, band: Band, spot: Spot) -> u64 {
        match band {
            Band::Completing | Band::Guaranteed => 0,
            Band::Entitled | Band::Borrowing => self.past.get(&spot).copied().unwrap_or(0),
        }
    }

    /// Who goes before whom among siblings: smaller first.
    pub(super) fn precedence(&self, spot: Spot) -> (u64, Option<(Millis, Uid)>, Spot) {
        (self.share(spot), self.head(spot), spot)
    }

    /// Of the offer that would come first here if every offer fitted.
    pub(super) fn head(&self, spot: Spot) -> Option<(Millis, Uid)> {
        match spot {
            Spot::Line(queue) => self.lines.get(&queue)?.first().map(Offer::head),
            Spot::Queue(queue) => {
                let children = self.of.children(Some(queue)).into_iter();
                let heads = children.filter_map(|child| {
                    let head = self.head(child)?;
                    Some((self.share(child), head, child))
                });
                heads.min().map(|(_, head, _)| head)
            }
        }
    }

    /// The largest part that its usage is of the capacity, by weight, in steps of 2^-60.
    fn share(&self, spot: Spot) -> u64 {
        self.share_of(spot, |resource| self.books.used(spot, resource))
    }

    /// The share of a place that uses so much.
    pub(super) fn share_of(&self, spot: Spot, used: impl Fn(ResourceId) -> i128) -> u64 {
        let weight = u128::from(self.of.weight(spot));
        let part = |(resource, capacity): (ResourceId, i128)| {
            let used = u128::try_from(used(resource)).unwrap_or(0);
            let whole = u128::try_from(capacity).ok().filter(|&whole| whole > 0)?;
            let part = used.checked_mul(1 << 60).map(|used| used / (whole * weight));
            Some(part.and_then(|part| u64::try_from(part).ok()).unwrap_or(u64::MAX))
        };
        self.books.capacity.iter().filter_map(part).max().unwrap_or(0)
    }

    pub(super) fn path(&self, offer: &Offer) -> Vec<Spot> {
        self.of.spots(offer.queue)
    }

    fn fits_in(&self, band: Band, offer: &Offer) -> bool {
        match band {
            Band::Completing | Band::Guaranteed => self.fits(offer),
            Band::Entitled | Band::Borrowing => self.fits_beside(&self.reserved, offer),
        }
    }

    pub(super) fn fits(&self, offer: &Offer) -> bool {
        self.fits_beside(&[], offer)
    }

    /// Whether an offer would fit if what these others need were used.
    pub(super) fn fits_beside(&self, others: &[(Offer, Reach)], offer: &Offer) -> bool {
        let reached = self.of.path(offer.queue).unwrap_or_default();
        let reserved = |r: ResourceId, at: Option<Spot>| -> i128 {
            let there = |other: &&(Offer, Reach)| {
                at.is_none_or(|spot| self.path(&other.0).contains(&spot)) && other.1.has(&reached)
            };
            others.iter().filter(there).map(|(other, _)| other.need.get(r).max(0)).sum()
        };
        let free = |r| {
            let used = |spot| self.books.used(spot, r);
            let free = self.books.capacity.get(r) - self.books.load.get(r);
            free - self.of.withheld(offer.queue, r, &used) - reserved(r, None)
        };
        let is_free = offer.needs().all(|(r, need)| r == ResourceId::GROUPS || need <= free(r));
        let is_within = |spot| {
            let limit = self.of.limit(spot);
            self.stays_within(offer, spot, |r| Some(limit.mentioned(r)? - reserved(r, Some(spot))))
        };
        is_free && self.path(offer).into_iter().all(is_within) && self.plan(offer).is_some()
    }

    pub(super) fn is_in(&self, band: Band, offer: &Offer) -> bool {
        match band {
            Band::Completing => offer.completes,
            Band::Guaranteed => self.is_guaranteed(offer),
            Band::Entitled => offer.preemptible && self.is_entitled(offer),
            Band::Borrowing => offer.preemptible,
        }
    }

    fn is_guaranteed(&self, offer: &Offer) -> bool {
        let line = self.of.given(Spot::Line(offer.queue));
        let is_given = offer.needs().any(|(r, _)| line.mentioned(r).is_some());
        let is_within = |spot| {
            let given = self.of.given(spot);
            self.stays_within(offer, spot, |r| given.mentioned(r))
        };
        is_given && self.path(offer).into_iter().all(is_within)
    }

    fn is_entitled(&self, offer: &Offer) -> bool {
        self.path(offer).into_iter().all(|spot| {
            let entitled = self.entitled.get(&spot);
            !self.books.uses_anything(spot)
                || self.stays_within(offer, spot, |r| entitled?.mentioned(r))
        })
    }

    /// Whether usage and need are within `most` for each resource needed that it knows.
    pub(super) fn stays_within(
        &self,
        offer: &Offer,
        spot: Spot,
        most: impl Fn(ResourceId) -> Option<i128>,
    ) -> bool {
        offer
            .needs()
            .all(|(r, need)| most(r).is_none_or(|most| self.books.used(spot, r) + need <= most))
    }
}

//! What becomes free is reserved for offers that have waited for long.
//!
//! Looked at once a second, after nobody claims any more. A reservation charges nothing: it is
//! what others leave alone, so that claims and guarantees are not delayed by it.

use std::cell::OnceCell;

use serde::{Deserialize, Serialize};

use super::amounts::{GROUPS, Need};
use super::model::{GroupId, Millis, QueueId};
use super::pools::Pools;
use super::shapes::ClassId;
use super::slab::NONE;
use super::tree::{Chosen, ROOT, Reserved, first_of_all};
use super::world::Engine;

/// Reservations that there may be at a time.
const RESERVATIONS: usize = 8;

/// How long the oldest pod of a group has to wait before.
const RESERVE_AFTER: Millis = 300_000;

/// A group that waits for what becomes free.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Reservation {
    group: GroupId,
    reach: Reach,
}

/// Who leaves alone what is reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Reach {
    Everybody,
    /// This queue and those below.
    Below(QueueId),
}

impl Engine {
    /// Brings up to date what is reserved where.
    pub(super) fn mark_reserved(&mut self) {
        let reserved = self.reserved_offers().into_iter().map(|(chosen, reach)| {
            let (line, need) = self.asked_at(&chosen);
            let reach = match reach {
                Reach::Everybody => ROOT,
                Reach::Below(queue) => self.tree.at(queue).unwrap_or(ROOT),
            };
            Reserved { line, need, reach }
        });
        let reserved = reserved.collect();
        self.tree.reserve(reserved);
    }

    /// The reserved offer that is let go next. Brings up to date what is reserved.
    pub(super) fn next_reserved(&mut self) -> Option<Chosen> {
        self.mark_reserved();
        if self.reserved.is_empty() {
            return None;
        }
        let free = self.free();
        let fits = |&(at, (chosen, _)): &(usize, (Chosen, Reach))| {
            let (line, need) = self.asked_at(&chosen);
            self.tree.fits_after(at, line, &need, &free) && self.plan_class(chosen.class).is_ok()
        };
        let offers = self.reserved_offers().into_iter().enumerate();
        let fitting: Vec<Chosen> = offers.filter(fits).map(|(_, (chosen, _))| chosen).collect();
        let may = |chosen: &Chosen| {
            !self.classes.get(chosen.class).kind.pinned || self.reach(chosen).is_some()
        };
        fitting.into_iter().find(may)
    }

    /// Ends reservations and makes new ones.
    pub(super) fn renew_reservations(&mut self) {
        if self.reserved.is_empty() && !self.tree.has_offers() {
            return;
        }
        let offers = self.reserved_offers();
        self.reserved.clear();
        for (chosen, _) in offers {
            self.reserve(&chosen);
        }
        let mut lines = Vec::new();
        self.tree.in_turn(ROOT, &mut |line| lines.push(line));
        let empty = OnceCell::new();
        for line in lines {
            if self.reserved.len() == RESERVATIONS {
                break;
            }
            let may = |first: &Chosen| self.may_reserve(first, &empty);
            if let Some(first) = self.first_of(line).filter(may) {
                self.reserve(&first);
            }
        }
        self.mark_reserved();
    }

    fn reserve(&mut self, chosen: &Chosen) {
        let group = chosen.place.group;
        if let Some(reach) = self.reach(chosen) {
            self.reserved.push(Reservation { group, reach });
        }
    }

    /// Whether what becomes free is reserved for a group.
    pub(super) fn has_reservation(&self, group: GroupId) -> bool {
        self.reserved.iter().any(|reserved| reserved.group == group)
    }

    pub(super) fn end_reservation(&mut self, group: GroupId) {
        self.reserved.retain(|reserved| reserved.group != group);
    }

    /// Whether a reservation is of a group of this line.
    pub(super) fn has_reserved(&self, line: u32) -> bool {
        self.reserved.iter().any(|reserved| self.line_of_group(reserved.group) == Some(line))
    }

    /// The offers that have a reservation now, in the order in which those were made.
    fn reserved_offers(&self) -> Vec<(Chosen, Reach)> {
        let first = |reserved: &Reservation| {
            let first = self.first_of(self.line_of_group(reserved.group)?)?;
            (first.place.group == reserved.group).then_some((first, reserved.reach))
        };
        self.reserved.iter().filter_map(first).collect()
    }

    fn line_of_group(&self, group: GroupId) -> Option<u32> {
        let slot = self.group_slots.get(&group)?;
        Some(self.groups[slot].line).filter(|&line| line != NONE)
    }

    /// The first offer of a line that may start.
    fn first_of(&self, slot: u32) -> Option<Chosen> {
        let line = self.lines.get(slot).filter(|line| line.node != NONE && !line.stopped)?;
        let first = first_of_all(line, &|place, class| self.front(place, class))?;
        Some(Chosen { line: slot, class: first.class, place: first.first })
    }

    /// The node of an offer's line, and what it needs.
    fn asked_at(&self, chosen: &Chosen) -> (u32, Need) {
        (self.lines[chosen.line].node, self.classes.get(chosen.class).need.clone())
    }

    /// Whether it has waited for long, and would fit if nothing ran but what is stray: also on
    /// nodes, which are `empty` then, if its queue looks for any.
    fn may_reserve(&self, chosen: &Chosen, empty: &OnceCell<Pools>) -> bool {
        let would_fit = || {
            let (line, need) = self.asked_at(chosen);
            need.iter().filter(|&(axis, _)| axis != GROUPS).all(|(axis, amount)| {
                let there = self.fleet.capacity.get(axis) - self.stray.get(axis);
                amount <= there - self.tree.withheld_when(line, axis, &|_, _| 0)
            })
        };
        chosen.place.head().oldest.saturating_add(RESERVE_AFTER) <= self.now
            && !self.has_reservation(chosen.place.group)
            && would_fit()
            && self.fits_on(empty, chosen.class)
    }

    fn fits_on(&self, empty: &OnceCell<Pools>, class: ClassId) -> bool {
        let class = self.classes.get(class);
        let nodes = || empty.get_or_init(|| Pools::new(&self.axes, &self.fleet));
        class.kind.site.is_none() || self.plan_in(nodes(), &class.kind, &class.need).is_ok()
    }

    /// How far a reservation reaches, if the offer is due.
    fn reach(&mut self, chosen: &Chosen) -> Option<Reach> {
        let (line, need) = self.asked_at(chosen);
        let kind = &self.classes.get(chosen.class).kind;
        let (completes, pinned) = (kind.completes, kind.pinned);
        if completes || self.tree.up(line).all(|(_, node)| node.guarantees(&need)) {
            return Some(Reach::Everybody);
        }
        match self.tree.first_beyond(line, &need) {
            _ if pinned => None,
            None => Some(Reach::Everybody),
            Some(at) if at == line => None,
            Some(at) => Some(Reach::Below(self.tree.node(at).queue)),
        }
    }
}

//! Who is next: from the root, the child whose turn it is among those that have something
//! that fits.

use super::super::amounts::{Amounts, Need};
use super::super::group::Turn;
use super::super::line::{Lane, Line, Place};
use super::super::mask::Mask;
use super::super::model::Order;
use super::super::shapes::{ClassId, Classes};
use super::super::slab::Slab;
use super::{Band, ROOT, Tree};

/// What was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Chosen {
    pub(in super::super) line: u32,
    pub(in super::super) class: ClassId,
    pub(in super::super) place: Place,
}

/// What a search looks at beside the tree.
pub(in super::super) struct Seen<'a> {
    pub(in super::super) lines: &'a Slab<Line>,
    pub(in super::super) classes: &'a Classes,
    pub(in super::super) free: &'a Amounts,
    pub(in super::super) capacity: &'a Amounts,
    /// Classes that may fit what is free.
    pub(in super::super) fitting: &'a mut Mask,
    /// First pod of an offer, to tell offers of one group apart.
    pub(in super::super) front: &'a dyn Fn(&Place, ClassId) -> Option<Turn>,
    /// Whether there are nodes for a class of offers.
    pub(in super::super) placed: &'a dyn Fn(ClassId) -> bool,
}

/// When no more classes than this may fit what is free, it is found out at once which do.
const FEW: u32 = 64;

/// Who does not let an offer in.
#[derive(Clone, Copy)]
enum Refusal {
    /// There is not so much free.
    Free,
    /// A node on its path, by its bounds.
    At(u32),
}

impl Tree {
    /// The next offer to let go, in the first of these bands that has one.
    pub(in super::super) fn next(&mut self, bands: &[Band], seen: &mut Seen) -> Option<Chosen> {
        if seen.fitting.len() <= FEW {
            seen.fitting.retain(|class| seen.classes.get(class).need.fits(seen.free));
        }
        for &band in bands {
            if self.exhausted[band as usize] {
                continue;
            }
            let mut masks = std::mem::take(&mut self.scratch);
            let found = self.search(band, seen, &mut masks);
            self.scratch = masks;
            if found.is_some() {
                return found;
            }
            self.exhausted[band as usize] = true;
        }
        None
    }

    fn search(&mut self, band: Band, seen: &mut Seen, masks: &mut Vec<Mask>) -> Option<Chosen> {
        let may = match band {
            Band::Completing => &seen.classes.completing,
            Band::Entitled | Band::Borrowing => &seen.classes.loose,
            Band::Guaranteed => &*seen.fitting,
        };
        masks.resize_with(masks.len().max(1), Mask::default);
        masks[0].assign(seen.fitting, may, &Mask::default());
        if band.leaves_reserved() && !self.reserved.is_empty() {
            let left = self.unreserved(seen.free);
            masks[0].retain(|class| seen.classes.get(class).need.fits(&left));
        }
        self.descend(ROOT, band, seen, masks, 1)
    }

    /// Looks at a node and below. `masks[depth]` is what may be there, those before it what
    /// may be at the nodes above.
    fn descend(
        &mut self,
        at: u32,
        band: Band,
        seen: &mut Seen,
        masks: &mut Vec<Mask>,
        depth: usize,
    ) -> Option<Chosen> {
        masks.resize_with(masks.len().max(depth + 1), Mask::default);
        let node = &self.nodes[at as usize];
        if at != ROOT && !node.may_admit(band) {
            return None;
        }
        let (above, here) = masks.split_at_mut(depth);
        if !here[0].assign(&above[depth - 1], &node.have, &node.closed[band as usize]) {
            return None;
        }
        if node.is_line() {
            return self.pick(at, band, seen, masks, depth);
        }
        if band == Band::Entitled {
            self.divide(at);
        }
        let by_past = band.goes_by_past();
        if by_past {
            self.sort_by_past(at, seen.capacity);
        }
        let turns = std::mem::take(self.node_mut(at).turns_of(by_past));
        let mut next = turns.iter();
        let found = loop {
            let Some(&(_, child)) = next.next().filter(|_| !masks[depth].is_empty()) else {
                break None;
            };
            let found = self.descend(child, band, seen, masks, depth + 1);
            if found.is_some() {
                break found;
            }
        };
        let node = self.node_mut(at);
        *node.turns_of(by_past) = turns;
        if found.is_none() {
            // Nobody below takes what is left: not looked at again until something comes back.
            node.closed[band as usize].add(&masks[depth]);
        }
        found
    }

    /// The first offer of a line that fits.
    fn pick(
        &mut self,
        at: u32,
        band: Band,
        seen: &mut Seen,
        masks: &mut [Mask],
        depth: usize,
    ) -> Option<Chosen> {
        let slot = self.node(at).line;
        let line = &seen.lines[slot];
        let next = |mask: &Mask| {
            let strict = line.order == Order::Strict;
            let may = |class| strict || mask.has(class);
            first_lane(line, may, band == Band::Borrowing, seen.front)
                .filter(|first| mask.has(first.class))
        };
        let chosen = |lane: &Lane| Chosen { line: slot, class: lane.class, place: lane.first };
        let first = next(&masks[depth])?;
        let Some(refusal) = self.refuses(at, band, first.class, seen) else {
            return Some(chosen(first));
        };
        self.close(at, band, first.class, refusal, seen, masks, depth);
        // Where one does not fit, many do not: all are tried before the first is sought.
        for lane in line.lanes.iter().filter(|lane| !lane.hopeless) {
            if masks[depth].has(lane.class)
                && let Some(refusal) = self.refuses(at, band, lane.class, seen)
            {
                self.close(at, band, lane.class, refusal, seen, masks, depth);
            }
        }
        next(&masks[depth]).map(chosen)
    }

    /// Who does not let an offer in, or that no node has room for it.
    fn refuses(&self, at: u32, band: Band, class: ClassId, seen: &Seen) -> Option<Refusal> {
        let refusal = self.refusal(at, band, &seen.classes.get(class).need, seen.free);
        refusal.or_else(|| (!(seen.placed)(class)).then_some(Refusal::Free))
    }

    /// Whether an offer of a line fits, whatever is reserved for others.
    pub(in super::super) fn fits(&self, line: u32, need: &Need, free: &Amounts) -> bool {
        self.refusal(line, Band::Completing, need, free).is_none()
    }

    fn refusal(&self, at: u32, band: Band, need: &Need, free: &Amounts) -> Option<Refusal> {
        if !need.fits(free) {
            return Some(Refusal::Free);
        }
        if !self.lets(at, need, free) {
            return Some(Refusal::At(at));
        }
        let refuses = self.up(at).filter(|(_, node)| !node.admits(band, need));
        let reserved = || {
            let leaves = band.leaves_reserved() && !self.reserved.is_empty();
            if leaves { self.reserved_from(at, need, free) } else { None }
        };
        refuses.map(|(at, _)| at).last().or_else(reserved).map(Refusal::At)
    }

    /// Remembers a refusal where it arose, and does not look for that class there again.
    #[expect(clippy::too_many_arguments, reason = "the state of one search")]
    fn close(
        &mut self,
        line: u32,
        band: Band,
        class: ClassId,
        refusal: Refusal,
        seen: &mut Seen,
        masks: &mut [Mask],
        depth: usize,
    ) {
        let top = match refusal {
            Refusal::Free => {
                seen.fitting.unset(class);
                0
            }
            Refusal::At(node) => {
                self.node_mut(node).closed[band as usize].set(class);
                let below = self.up(line).take_while(|&(at, _)| at != node).count();
                depth - below
            }
        };
        masks[top..=depth].iter_mut().for_each(|mask| mask.unset(class));
    }
}

/// The lane with the earliest offer of those that may be chosen; `fair` is without precedence
/// of gangs that grow.
fn first_lane<'a>(
    line: &'a Line,
    may: impl Fn(ClassId) -> bool,
    fair: bool,
    front: &dyn Fn(&Place, ClassId) -> Option<Turn>,
) -> Option<&'a Lane> {
    let place = |lane: &Lane| if fair { lane.first.fair() } else { lane.first };
    let open = line.lanes.iter().filter(|lane| !lane.hopeless && may(lane.class));
    open.reduce(|first, lane| match place(lane).cmp(&place(first)) {
        std::cmp::Ordering::Less => lane,
        std::cmp::Ordering::Greater => first,
        std::cmp::Ordering::Equal => {
            let turn = |lane: &Lane| front(&lane.first, lane.class);
            if turn(lane) < turn(first) { lane } else { first }
        }
    })
}

/// A line's first offer of all.
pub(in super::super) fn first_of_all<'a>(
    line: &'a Line,
    front: &dyn Fn(&Place, ClassId) -> Option<Turn>,
) -> Option<&'a Lane> {
    first_lane(line, |_| true, false, front)
}

/// A line's first offer of all where it borrows.
pub(in super::super) fn first_to_borrow<'a>(
    line: &'a Line,
    front: &dyn Fn(&Place, ClassId) -> Option<Turn>,
) -> Option<&'a Lane> {
    first_lane(line, |_| true, true, front)
}

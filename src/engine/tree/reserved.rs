//! What is reserved where: what the last two bands leave alone.

use super::super::amounts::{Amounts, GROUPS, Need};
use super::{Band, Mask, ROOT, Tree};

/// What the first offer of a line needs and others leave alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct Reserved {
    pub(in super::super) line: u32,
    pub(in super::super) need: Need,
    /// Who leaves it alone: this node and those below.
    pub(in super::super) reach: u32,
}

impl Band {
    /// Whether what is reserved for others is left alone.
    pub(super) fn leaves_reserved(self) -> bool {
        matches!(self, Self::Entitled | Self::Borrowing)
    }
}

impl Tree {
    /// Takes in what is reserved, in the order in which that was done.
    pub(in super::super) fn reserve(&mut self, reserved: Vec<Reserved>) {
        if reserved == self.reserved {
            return;
        }
        self.open_reserved();
        for Reserved { line, .. } in std::mem::replace(&mut self.reserved, reserved) {
            let path: Vec<u32> = self.up(line).map(|(at, _)| at).collect();
            for at in path {
                self.open(at);
            }
        }
        self.look_again();
        self.open_all();
    }

    /// What is reserved, in the order in which that was done.
    pub(in super::super) fn reserved(&self) -> &[Reserved] {
        &self.reserved
    }

    /// What was refused because of a reservation may fit when more is free anywhere.
    pub(in super::super) fn open_reserved(&mut self) {
        for at in 0..self.reserved.len() {
            self.open(self.reserved[at].reach);
            self.open(ROOT);
            self.exhausted = Default::default();
        }
    }

    fn open(&mut self, at: u32) {
        self.node_mut(at).closed.iter_mut().for_each(Mask::clear);
    }

    /// What is free and not reserved from everybody.
    pub(super) fn unreserved(&self, free: &Amounts) -> Amounts {
        let mut left = free.clone();
        let all = self.reserved.iter().filter(|reserved| reserved.reach == ROOT);
        all.for_each(|reserved| left.sub(&reserved.need));
        left
    }

    /// The node at and below which an offer, or another like it, has to leave too much alone.
    pub(super) fn reserved_from(&self, line: u32, need: &Need, free: &Amounts) -> Option<u32> {
        let reached: Vec<&Reserved> =
            self.reserved.iter().filter(|reserved| self.reaches(reserved, line)).collect();
        let (place, reach) = self.too_much(&reached, line, need, free)?;
        let own = |at: u32| self.up(at).count();
        Some(match place {
            _ if self.keeps => line,
            place if own(place) > own(reach) => place,
            _ => reach,
        })
    }

    /// Whether a reserved offer fits beside those that were reserved before it.
    pub(in super::super) fn fits_after(
        &self,
        earlier: usize,
        line: u32,
        need: &Need,
        free: &Amounts,
    ) -> bool {
        let earlier = self.reserved.get(..earlier).unwrap_or_default();
        let reached: Vec<&Reserved> =
            earlier.iter().filter(|reserved| self.reaches(reserved, line)).collect();
        self.fits(line, need, free) && self.too_much(&reached, line, need, free).is_none()
    }

    pub(in super::super) fn reaches(&self, reserved: &Reserved, line: u32) -> bool {
        reserved.reach == ROOT || self.up(line).any(|(at, _)| at == reserved.reach)
    }

    /// A place with too little room beside what is reserved there, and the deepest reach of that.
    fn too_much(
        &self,
        reserved: &[&Reserved],
        line: u32,
        need: &Need,
        free: &Amounts,
    ) -> Option<(u32, u32)> {
        if reserved.is_empty() {
            return None;
        }
        let places = self.up(line).map(|(at, _)| at).chain([ROOT]);
        let mut short = places.filter(|&place| {
            let passes = |of: u32| place == ROOT || self.up(of).any(|(at, _)| at == place);
            let there = || reserved.iter().filter(|reserved| passes(reserved.line));
            need.iter().any(|(axis, amount)| {
                let taken = || there().map(|reserved| reserved.need.get(axis)).sum::<i128>();
                match place {
                    ROOT if axis == GROUPS => false,
                    ROOT => amount > free.get(axis) - self.withheld(line, axis) - taken(),
                    _ => {
                        let node = self.node(place);
                        !node.limit.admit_on(axis, &node.usage, amount + taken())
                    }
                }
            })
        });
        let place = short.next()?;
        let reach = reserved.iter().map(|reserved| reserved.reach);
        Some((place, reach.max_by_key(|&at| self.up(at).count())?))
    }

    /// The first place from a line up that is not entitled to so much more.
    pub(in super::super) fn first_beyond(&mut self, line: u32, need: &Need) -> Option<u32> {
        let mut above: Vec<u32> = self.up(line).map(|(_, node)| node.parent).collect();
        above.reverse();
        for at in above {
            self.divide(at);
        }
        let beyond = |(_, node): &(u32, &super::Node)| !node.entitled.admit(&node.usage, need);
        self.up(line).find(beyond).map(|(at, _)| at)
    }
}

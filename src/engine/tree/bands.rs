//! In what order of right work starts.

use super::super::amounts::{GROUPS, Need};
use super::Node;

/// With what right an offer may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Band {
    /// A gang that has begun lacks it: it was decided with the rest.
    Completing,
    /// Everything on its path stays within what it is given.
    Guaranteed,
    /// Everything on its path stays within what it is entitled to.
    Entitled,
    /// It uses what nobody else wants.
    Borrowing,
}

/// Every band, the strongest right first.
pub(in super::super) const BANDS: [Band; 4] =
    [Band::Completing, Band::Guaranteed, Band::Entitled, Band::Borrowing];

/// Every band but the last.
pub(in super::super) const BANDS_OF_RIGHT: [Band; 3] =
    [Band::Completing, Band::Guaranteed, Band::Entitled];

impl Node {
    /// Whether `need` more may start here by this right.
    pub(super) fn admits(&self, band: Band, need: &Need) -> bool {
        self.limit.admit(&self.usage, need)
            && match band {
                Band::Completing | Band::Borrowing => true,
                Band::Guaranteed => self.guarantees(need),
                Band::Entitled => self.entitles(need),
            }
    }

    /// Judged by the resources of which it is given something; a line without any has no right.
    pub(in super::super) fn guarantees(&self, need: &Need) -> bool {
        self.given.admit(&self.usage, need) && (!self.is_line() || self.is_given_some(need))
    }

    /// Whether anything at all of what is here and below might start by this right. It may
    /// say yes where the answer is no.
    pub(super) fn may_admit(&self, band: Band) -> bool {
        self.least.may_enter(&self.usage, &self.limit)
            && match band {
                Band::Completing | Band::Borrowing => true,
                Band::Guaranteed => {
                    !self.given.is_empty() && self.least.may_enter(&self.usage, &self.given)
                }
                Band::Entitled => {
                    self.usage.is_zero() || self.least.may_enter(&self.usage, &self.entitled)
                }
            }
    }

    pub(in super::super) fn is_line(&self) -> bool {
        self.line != super::NONE
    }

    fn is_given_some(&self, need: &Need) -> bool {
        need.iter().any(|(axis, _)| self.given.has(axis))
    }

    /// Where nothing runs, the first group may be larger than what the queue is entitled to:
    /// it would never have a turn otherwise.
    fn entitles(&self, need: &Need) -> bool {
        self.usage.is_zero() || self.entitled.admit(&self.usage, need)
    }

    /// What is asked of GROUPS is nobody's right.
    pub(super) fn is_shared(axis: u16) -> bool {
        axis != GROUPS
    }
}

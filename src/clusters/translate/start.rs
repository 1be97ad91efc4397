//! When enough of a cluster is known to decide on it.

use std::collections::BTreeSet;

use crate::engine::PodId;

/// How far the first look at a cluster has come.
///
/// Work that waits and whose owners are not known is passed by, and what such work costs
/// while it runs is charged to nobody: whoever decided right after the lists would let the
/// wrong work go, and too much of it.
#[derive(Debug)]
pub(super) enum Start {
    /// A list is not complete.
    Listing,
    /// These pods of the first lists have owners of which nothing was heard yet, not even
    /// a failure.
    Resolving(BTreeSet<PodId>),
    /// Of all it was.
    Done,
}

impl Start {
    /// Notes that a pod needs no look-up, or that its look-up failed.
    pub fn settled(&mut self, pod: PodId) {
        if let Self::Resolving(pods) = self {
            pods.remove(&pod);
        }
    }

    /// Moves on as far as possible; true once, when it is done.
    pub fn advance(&mut self, listed: bool, unheard: impl FnOnce() -> BTreeSet<PodId>) -> bool {
        if listed && matches!(self, Self::Listing) {
            *self = Self::Resolving(unheard());
        }
        let done = matches!(self, Self::Resolving(pods) if pods.is_empty());
        if done {
            *self = Self::Done;
        }
        done
    }
}

//! A pod: where it stands, how far its release is, and what it is charged.

use std::cmp::Reverse;

use serde::{Deserialize, Serialize};

use super::group::Turn;
use super::line::halves;
use super::model::{Millis, NodeId, PodId, PodState, Uid};
use super::plan::node_at;
use super::shapes::ShapeId;
use super::slab::NONE;

/// How far our own release of a pod has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum ReleaseState {
    /// Not decided.
    None,
    /// Charged; room is being made for it.
    Claimed,
    /// Decided; the write is under way.
    Sent,
    /// The apiserver said yes: whatever an older watch event says, its gate is open.
    Done,
    /// There was no such pod any more: its deletion is on its way from the watch.
    Gone,
}

/// A pod as it was last seen.
#[derive(Debug)]
pub(super) struct Pod {
    uid: [u64; 2],
    pub(super) group: u32,
    pub(super) shape: ShapeId,
    pub(super) created: Millis,
    /// When it was let go, or [`Self::UNKNOWN`].
    pub(super) started: Millis,
    pub(super) priority: i32,
    pub(super) never_preempts: bool,
    pub(super) state: PodState,
    pub(super) release: ReleaseState,
    pub(super) charge: Option<Charge>,
    /// Number of the node that was found for it, or [`NONE`].
    pub(super) planned: u32,
    /// The next and the previous pod of its group.
    pub(super) next: u32,
    pub(super) previous: u32,
}

/// What a pod was charged, so that the same is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Charge {
    /// Slot of the line that pays, or [`NONE`].
    pub(super) line: u32,
    pub(super) shape: ShapeId,
    /// Number of the node that it takes from, or [`NONE`] where nobody knows that.
    pub(super) node: u32,
    pub(super) takes_capacity: bool,
}

impl Charge {
    pub(super) fn node(self) -> Option<NodeId> {
        node_at(self.node)
    }
}

impl Pod {
    /// Nobody knows when.
    pub(super) const UNKNOWN: Millis = Millis::MIN;

    pub(super) fn new(uid: Uid, group: u32, shape: ShapeId) -> Self {
        Self {
            uid: halves(uid),
            group,
            shape,
            created: 0,
            started: Self::UNKNOWN,
            priority: 0,
            never_preempts: false,
            state: PodState::Dropped,
            release: ReleaseState::None,
            charge: None,
            planned: NONE,
            next: NONE,
            previous: NONE,
        }
    }

    pub(super) fn id(&self) -> PodId {
        Uid(u128::from(self.uid[0]) << 64 | u128::from(self.uid[1]))
    }

    pub(super) fn turn(&self, slot: u32) -> Turn {
        Turn {
            priority: Reverse(self.priority),
            created: self.created,
            uid: self.uid,
            shape: self.shape,
            pod: slot,
        }
    }

    pub(super) fn waits(&self) -> bool {
        self.state == PodState::Gated && self.release == ReleaseState::None
    }

    /// Let go, and nobody has seen its gate open yet.
    pub(super) fn is_unseen(&self) -> bool {
        self.state == PodState::Gated && self.has_started()
    }

    /// Whether we let it go, or somebody else did.
    pub(super) fn has_started(&self) -> bool {
        matches!(self.release, ReleaseState::Sent | ReleaseState::Done)
    }
}

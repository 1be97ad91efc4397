//! Why work waits: one closed list, with numbers.

use super::event::{Pause, Trouble};
use super::model::{Forbidden, Millis, QueueId, ResourceId};

/// Why a group's next pods are not let go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// First lists of the cluster are not in yet.
    ClusterNotSynced,
    /// Owners are being looked up.
    ResolvingOwners,
    /// Neither the root object nor the namespace names a queue.
    NoQueue,
    /// The named queue does not exist.
    UnknownQueue(QueueId),
    /// The named queue may not be used from here.
    QueueForbidden(QueueId, Forbidden),
    /// The queue or one above it has an unknown parent, a cycle or something that cannot be read.
    QueueInvalid(QueueId),
    /// The queue or one above it is stopped.
    QueueStopped(QueueId),
    /// Fewer pods have arrived than must start together.
    WaitingForMembers {
        /// Pods here.
        have: u32,
        /// Pods needed.
        need: u32,
    },
    /// All pods that arrive must start together and some may still come.
    Settling {
        /// Looked at again then.
        until: Millis,
    },
    /// Asks more than the queue's limit, whatever else runs.
    LargerThanQueue(Shortage, QueueId),
    /// Asks more than any one node has.
    LargerThanAnyNode(Shortage),
    /// The queue's limit is used up.
    QueueLimit(Shortage, QueueId),
    /// The fleet is used up.
    Capacity(Shortage),
    /// Enough is free in all, but its queue looks for nodes and these have no room for all of it.
    NoNode {
        /// Pods for which there is one, in the domain with most of them.
        placed: u32,
        /// Pods that start together.
        pods: u32,
    },
    /// What is left is reserved for work of this queue that has waited for long.
    RoomReserved(Shortage, QueueId),
    /// It may not be preempted later, and the queue has not so much of its own.
    BeyondGuarantee(Shortage, QueueId),
    /// Another group of its singleton key runs in the queue.
    SingletonRunning,
    /// Its room is kept until what uses it is gone.
    MakingRoom {
        /// Pods that were evicted for it.
        evicted: u32,
    },
    /// None of this many nodes is ready and schedulable.
    NoUsableNode(u32),
    /// The queue is strict and this is not its first.
    BehindInStrictQueue(QueueId),
    /// The release was refused; tried again later.
    ReleaseRefused {
        /// Not before this time.
        retry_at: Millis,
    },
    /// No gate is opened in its cluster while the apiserver suffers.
    ReleasesPaused(Pause),
    /// It may start; the controller that leads lets it go, and this one does not lead.
    NextInLine,
    /// More work was at hand than one round decides; it goes on at once.
    NextRound,
}

/// Which resource is short and by how much.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Shortage {
    /// The resource.
    pub resource: ResourceId,
    /// Asked.
    pub need: i128,
    /// In use already.
    pub used: i128,
    /// The most there may be.
    pub most: i128,
}

impl Shortage {
    /// How much more room would be needed, at least 1.
    #[must_use]
    pub fn missing(&self) -> i128 {
        self.used + self.need - self.most
    }
}

impl Reason {
    /// The reason in one word, stable for machines.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::ClusterNotSynced => "ClusterNotSynced",
            Self::ResolvingOwners => "ResolvingOwners",
            Self::NoQueue => "NoQueue",
            Self::UnknownQueue(_) => "UnknownQueue",
            Self::QueueForbidden(_, Forbidden::Namespace) => "NamespaceNotAllowed",
            Self::QueueForbidden(_, Forbidden::PriorityClass) => "PriorityClassNotAllowed",
            Self::QueueInvalid(_) => "QueueInvalid",
            Self::QueueStopped(_) => "QueueStopped",
            Self::WaitingForMembers { .. } => "WaitingForMembers",
            Self::Settling { .. } => "Settling",
            Self::LargerThanQueue(..) => "LargerThanQueue",
            Self::LargerThanAnyNode(_) => "LargerThanAnyNode",
            Self::QueueLimit(..) => "QueueLimit",
            Self::Capacity(_) => "Capacity",
            Self::NoNode { .. } => "NoNode",
            Self::RoomReserved(..) => "RoomReserved",
            Self::BeyondGuarantee(..) => "BeyondGuarantee",
            Self::SingletonRunning => "SingletonRunning",
            Self::MakingRoom { .. } => "MakingRoom",
            Self::NoUsableNode(_) => "NoUsableNode",
            Self::BehindInStrictQueue(_) => "BehindInStrictQueue",
            Self::ReleaseRefused { .. } => "ReleaseRefused",
            Self::ReleasesPaused(_) => "ReleasesPaused",
            Self::NextInLine => "NextInLine",
            Self::NextRound => "NextRound",
        }
    }

    /// Whether it says nothing of the work itself: it was not looked at in full.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        matches!(
            self,
            Self::ClusterNotSynced
                | Self::ResolvingOwners
                | Self::Settling { .. }
                | Self::ReleasesPaused(_)
                | Self::NextInLine
                | Self::NextRound
        )
    }

    /// Whether somebody must act before this can end by itself.
    #[must_use]
    pub fn needs_action(&self) -> bool {
        matches!(
            self,
            Self::NoQueue
                | Self::UnknownQueue(_)
                | Self::QueueForbidden(..)
                | Self::QueueInvalid(_)
                | Self::LargerThanQueue(..)
                | Self::LargerThanAnyNode(_)
        )
    }
}

impl Trouble {
    /// The cause in one word, stable for machines.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::Overloaded => "ApiserverOverloaded",
            Self::NoAnswer => "ApiserverSilent",
            Self::Failing => "ApiserverFailing",
            Self::Slow => "ApiserverSlow",
            Self::StoreFull => "StoreFull",
        }
    }
}

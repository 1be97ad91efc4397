//! Where a pod belongs: the answer's shape.

use std::sync::Arc;

use super::object::{Metadata, ObjectKey};

/// A pod to place.
#[derive(Clone, Copy, Debug)]
pub struct Member<'a> {
    /// The pod itself.
    pub key: &'a ObjectKey,
    /// Its marks and owner.
    pub metadata: &'a Metadata,
    /// The queue label of its namespace.
    pub namespace_queue: Option<&'a Arc<str>>,
}

/// Where a pod belongs, or what to look up first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Resolution {
    /// The last owner that was asked for must be looked up; the placement is what is
    /// known until then and chooses no queue.
    Needs(Placement),
    /// All that can be read was read.
    Placed(Placement),
}

impl Resolution {
    /// Whether nothing is left to look up.
    #[must_use]
    pub fn is_final(&self) -> bool {
        matches!(self, Self::Placed(_))
    }

    /// The owner that must be looked up.
    #[must_use]
    pub fn needed(&self) -> Option<&ObjectKey> {
        match self {
            Self::Needs(placement) => placement.findings.asked.last(),
            Self::Placed(_) => None,
        }
    }

    /// The placement, be it for good or until more is known.
    #[must_use]
    pub fn placement(&self) -> &Placement {
        match self {
            Self::Needs(placement) | Self::Placed(placement) => placement,
        }
    }
}

/// Identity of a group inside its cluster. Never spans namespaces.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GroupKey {
    /// All pods of one run.
    Run {
        /// Their namespace.
        namespace: Arc<str>,
        /// Uid of the run's root.
        root: Arc<str>,
    },
    /// All pods that name the same group by annotation.
    Named {
        /// Their namespace.
        namespace: Arc<str>,
        /// The annotation's value.
        name: Arc<str>,
    },
}

/// Where a pod belongs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Placement {
    /// Its group.
    pub group: Arc<GroupKey>,
    /// The run's root: the highest object that is one run, maybe the pod itself.
    pub root: ObjectKey,
    /// What the objects above it say, mostly the same for many pods.
    pub findings: Arc<Findings>,
}

/// What was found on the way up from a pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Findings {
    /// Its owners, top first, as `Kind/name`, with those above the root.
    pub chain: Vec<Arc<str>>,
    /// The queue that was chosen for it.
    pub queue: Option<QueueChoice>,
    /// What must start together.
    pub gang: Gang,
    /// It may not be evicted.
    pub non_preemptible: bool,
    /// While another group of this key runs in its queue, it waits.
    pub singleton: Option<Arc<str>>,
    /// The label of nodes that all its pods' nodes agree in.
    pub topology: Option<Arc<str>>,
    /// Where all this comes from and what could not be read, a sentence each.
    pub evidence: Vec<Arc<str>>,
    /// What somebody wrote that means nothing, a sentence each.
    pub warnings: Vec<Arc<str>>,
    /// The owners that were asked for, nearest first: when one changes, this may.
    pub asked: Vec<ObjectKey>,
}

/// A queue by name and who named it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct QueueChoice {
    /// The queue's name.
    pub name: Arc<str>,
    /// Where the name was found.
    pub found: FoundAt,
}

/// Where a queue's name was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FoundAt {
    /// On the object at the top of the chain.
    Root,
    /// On the namespace.
    Namespace,
}

/// How many pods of a group start together; where pods of one group differ,
/// the greatest counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Gang {
    /// Each pod on its own.
    Units,
    /// All that arrive.
    All,
    /// At least this many first.
    AtLeast(u32),
}

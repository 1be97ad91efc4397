//! Ids and amounts.

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use serde::{Deserialize, Serialize};

/// Milliseconds since the Unix epoch, as a number that came with an event.
pub type Millis = i64;

macro_rules! id {
    ($(#[$doc:meta] $name:ident($inner:ty);)*) => {$(
        #[$doc]
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        pub struct $name(pub $inner);
    )*};
}

id! {
    /// A member cluster.
    ClusterId(u16);
    /// A queue name; the queue itself may or may not exist.
    QueueId(u32);
    /// Pods that belong together.
    GroupId(u64);
    /// A node of a cluster.
    NodeId(u32);
    /// A label of nodes by which they are near each other, as a zone or a rack.
    TopologyId(u16);
    /// One value of such a label: the nodes that have it.
    DomainId(u32);
    /// A resource name. Amounts of CPU are in thousandths, all others in ones.
    ResourceId(u16);
    /// The uid the apiserver gave an object, as its 128 bits.
    Uid(u128);
}

/// A singleton key, hashed; in one queue one group of it runs at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SingletonId(pub NonZeroU64);

/// A pod is its uid: one never comes back under another pod.
pub type PodId = Uid;

impl ResourceId {
    /// `cpu`, in thousandths of a core.
    pub const CPU: Self = Self(0);
    /// `memory`, in bytes.
    pub const MEMORY: Self = Self(1);
    /// `pods`: every pod costs one.
    pub const PODS: Self = Self(2);
    /// `groups`: every group with a charged pod costs one, in its queue alone.
    pub const GROUPS: Self = Self(3);
}

/// Amounts by resource; absent means zero.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Vector(BTreeMap<ResourceId, i128>);

impl Vector {
    /// The amount of one resource.
    #[must_use]
    pub fn get(&self, resource: ResourceId) -> i128 {
        self.0.get(&resource).copied().unwrap_or(0)
    }

    /// The amount of one resource if it is mentioned, be it zero.
    #[must_use]
    pub fn mentioned(&self, resource: ResourceId) -> Option<i128> {
        self.0.get(&resource).copied()
    }

    /// Sets one amount; zero stays mentioned.
    pub fn set(&mut self, resource: ResourceId, amount: i128) {
        self.0.insert(resource, amount);
    }

    /// All mentioned amounts in order of resource.
    pub fn iter(&self) -> impl Iterator<Item = (ResourceId, i128)> + '_ {
        self.0.iter().map(|(&resource, &amount)| (resource, amount))
    }

    /// Adds every amount of `other`.
    pub fn add(&mut self, other: &Self) {
        for (resource, amount) in other.iter() {
            *self.0.entry(resource).or_default() += amount;
        }
    }

    /// Takes every amount of `other` away.
    pub fn sub(&mut self, other: &Self) {
        for (resource, amount) in other.iter() {
            *self.0.entry(resource).or_default() -= amount;
        }
    }

    /// Whether nothing is mentioned.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether every amount asked here is there in `room`; zero asks nothing.
    #[must_use]
    pub fn fits(&self, room: &Self) -> bool {
        self.iter().all(|(resource, amount)| amount <= 0 || amount <= room.get(resource))
    }
}

impl FromIterator<(ResourceId, i128)> for Vector {
    fn from_iter<T: IntoIterator<Item = (ResourceId, i128)>>(amounts: T) -> Self {
        let mut vector = Self::default();
        for (resource, amount) in amounts {
            *vector.0.entry(resource).or_default() += amount;
        }
        vector
    }
}

/// What happens when the first of a queue does not fit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Order {
    /// Later work that fits goes ahead of it.
    #[default]
    BestEffort,
    /// Everything behind it waits.
    Strict,
}

/// What is looked at before a queue's work starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Placement {
    /// Whether the sum of what is free is enough.
    #[default]
    Quota,
    /// Whether there is a node for each pod, and all of them in one domain where the group wants
    /// that.
    Domain,
    /// The same; the scheduler is told the node.
    Node,
}

/// Where more pods of gangs that run stand in their queue's line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Growth {
    /// As if they were five minutes older than gangs that have not begun, of the same priority,
    /// while the queue is within what it is entitled to.
    #[default]
    First,
    /// Where their age puts them.
    Fair,
}

/// What of other queues may be taken back for a queue's waiting work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Reclaim {
    /// Nothing.
    Never,
    /// What it is guaranteed.
    #[default]
    Guaranteed,
    /// All that it is entitled to.
    Entitled,
}

/// What of a queue's own running work may be taken back for its waiting work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum WithinQueue {
    /// Nothing.
    #[default]
    Never,
    /// Work of lower priority.
    LowerPriority,
}

/// Which queue pays for a group, as far as is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Assignment {
    /// Owners are still being looked up.
    Unresolved,
    /// Neither the root nor the namespace names a queue.
    Unnamed,
    /// This queue was named; whether it exists the engine knows.
    Queue(QueueId),
    /// This queue was named and may not be used.
    Forbidden(QueueId, Forbidden),
}

/// Why a named queue may not be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Forbidden {
    /// The queue's `namespaces` does not select the namespace.
    Namespace,
    /// The queue's `priorityClasses` does not list the pods' class.
    PriorityClass,
}

/// How many pods of a group start together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Gang {
    /// Each pod on its own.
    Units,
    /// At least this many first, later ones each on its own.
    AtLeast(u32),
    /// All that have arrived, once arrivals have been quiet for a while.
    All,
}

/// Where a pod stands, as last seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PodState {
    /// Our gate is there.
    Gated,
    /// Our gate is gone, no node yet; `held` when another owner's gate remains.
    Released {
        /// A scheduling gate of somebody else is still there.
        held: bool,
    },
    /// On a node. `terminating` when deletion was asked for.
    Bound {
        /// The node.
        node: NodeId,
        /// A deletion timestamp is set.
        terminating: bool,
    },
    /// Succeeded or failed: costs nothing any more.
    Ended,
    /// Deleted or failed behind our gate: it never ran and never will.
    Dropped,
}

impl PodState {
    /// Whether our gate is open and the pod has no node.
    #[must_use]
    pub fn is_released(self) -> bool {
        matches!(self, Self::Released { .. })
    }
}

//! Kinds of `tidegate.dev/v1alpha1`.

mod queue;
mod stored;

pub use queue::{
    Amount, Backlog, Count, Growth, LabelSelector, LabelSelectorRequirement, MaxPending,
    MaxRunning, Order, PastUsage, Placement, Preemption, Queue, QueueCondition, QueueSpec,
    QueueStatus, Reclaim, Resources, SelectorOperator, Stop, WithinQueue,
};
pub use stored::{StoredQueue, read_queue};

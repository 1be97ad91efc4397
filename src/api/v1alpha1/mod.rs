//! Kinds of `tidegate.dev/v1alpha1`.

mod queue;
mod stored;

pub use queue::{
    Amount, Backlog, Count, LabelSelector, LabelSelectorRequirement, MaxPending, Order, Queue,
    QueueCondition, QueueSpec, QueueStatus, Resources, SelectorOperator, Stop,
};
pub use stored::{StoredQueue, read_queue};

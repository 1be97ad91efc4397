//! Kinds of `tidegate.dev/v1alpha1`.

mod queue;

pub use queue::{
    Amount, Count, LabelSelector, LabelSelectorRequirement, Order, Queue, QueueCondition,
    QueueSpec, QueueStatus, Resources, SelectorOperator, Stop,
};

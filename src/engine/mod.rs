//! The decision core: state and events in, decisions and reasons out.
//!
//! Pure and deterministic. Integers only; no clock, no I/O, no randomness, no
//! names, no hash order. Time enters as a number inside events. The same events
//! give the same decisions, byte for byte.
//!
//! [`Engine::apply`] updates the state, [`Engine::decide`] runs until nothing
//! more may start or the step budget is spent, and what it leaves waiting has a
//! [`Reason`] from one closed list.
#![deny(clippy::float_arithmetic, clippy::disallowed_types, clippy::disallowed_methods)]
#![expect(clippy::indexing_slicing, reason = "a slot is used while its slab knows it")]

pub mod action;
mod amounts;
mod backlog;
mod charge;
mod claim;
mod decide;
mod demand;
mod directory;
mod entitle;
pub mod event;
mod explain;
mod fleet;
mod group;
mod history;
mod line;
pub mod log;
mod mask;
mod membership;
mod model;
mod past;
mod plan;
mod pod;
mod pools;
mod reason;
mod reserve;
mod settle;
mod shapes;
mod share;
mod slab;
mod snapshot;
mod summary;
mod tree;
mod world;

#[cfg(test)]
mod reference;
#[cfg(test)]
mod sim;
#[cfg(test)]
mod tests;

pub use decide::{Cause, Decided, Decision, Eviction};
pub use model::{
    Assignment, ClusterId, DomainId, Forbidden, Gang, GroupId, Growth, Millis, NodeId, Order,
    Placement, PodId, PodState, QueueId, Reclaim, ResourceId, SingletonId, TopologyId, Uid, Vector,
    WithinQueue,
};
pub use reason::{Reason, Shortage};
pub use summary::{GroupSummary, QueueSummary};
pub use world::Engine;

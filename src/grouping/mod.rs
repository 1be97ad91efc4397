//! Which pods belong together, and which queue pays for them.
//!
//! In: metadata of a pod, the queue label of its namespace, and its owners by
//! the one-method trait [`Owners`]. Out: a [`Resolution`], either the next owner
//! to look up or a [`Placement`], with the evidence in sentences.
//!
//! Pure: the same facts give the same placement. Knows no kind by name. Must
//! never read an API, refuse a pod, or take silence for an answer: what could
//! not be read is said in the evidence.

mod chain;
mod evidence;
mod marks;
mod object;
mod place;
mod placement;

#[cfg(test)]
mod tests;

pub use marks::Marks;
pub use object::{Above, Lookup, Metadata, ObjectKey, Owner, Owners, Reference, starts_runs};
pub use place::resolve;
pub use placement::{
    Findings, FoundAt, Gang, GroupKey, Member, Placement, QueueChoice, Resolution,
};

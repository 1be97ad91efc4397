//! Every name Tidegate puts on or reads from an object, and its own kinds.
//!
//! A leaf: this room uses no other. Both sides of every boundary (webhook and
//! policy, controller and chart) are generated from what stands here.

pub mod names;
pub mod refusals;
pub mod released;
pub mod v1alpha1;

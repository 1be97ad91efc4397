//! What people and machines may read: the aggregated API, metrics and health.
//!
//! *In:* the published [`View`](crate::view::View), who asks (front-proxy headers
//! behind a verified certificate), and the apiserver's word on what they may see.
//! *Out:* HTTP answers. Nothing here decides, recomputes a decision, or writes to
//! a cluster; a slow reader holds a snapshot and never the control loop.

mod age;
pub mod explain;
pub mod frontproxy;
pub mod health;
pub mod metrics;
pub mod serve;
#[cfg(test)]
pub(crate) mod tests;
pub mod visibility;

pub use age::{human, rfc3339};

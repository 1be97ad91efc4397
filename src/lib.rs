//! Tidegate queues the pods of any Kubernetes operator fairly.
//!
//! Each module is a room with one job; `ARCHITECTURE.md` has the plan, and
//! `tests/it/tidy.rs` holds the rooms to who may use whom.

pub mod admission;
pub mod api;
pub mod certs;
pub mod cli;
pub mod clusters;
pub mod control;
pub mod engine;
pub mod grouping;
pub mod leader;
pub mod manifests;
pub mod quantity;
pub mod record;
pub mod release;
pub mod report;
pub mod runtime;
pub mod view;

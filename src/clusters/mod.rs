//! Watches member clusters and tells the engine what changed.

pub mod cost;

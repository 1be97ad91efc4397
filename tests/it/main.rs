//! The one integration test binary.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a step that fails is a test that fails"
)]

mod support;
mod tidy;

mod accounting;
mod admission;
mod adversary;
mod backlog;
mod bad_input;
mod charts;
mod clusters;
mod dev;
mod doctor;
mod faces;
mod faults;
mod fuzz;
mod image;
mod kinds;
mod lifecycle;
mod newer;
mod placement;
mod policy_gate;
mod preemption;
mod replicas;
mod restart;
mod rights;
mod rotation;
mod turns;
mod uninstall;
mod upgrade;
mod visibility;
mod webhooks;
mod writer;

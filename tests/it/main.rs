//! The one integration test binary.

mod support;
mod tidy;

mod accounting;
mod admission;
mod bad_input;
mod charts;
mod clusters;
mod kinds;
mod visibility;
mod writer;

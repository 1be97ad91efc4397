//! The one integration test binary.

mod support;
mod tidy;

mod accounting;
mod bad_input;
mod kinds;
mod writer;

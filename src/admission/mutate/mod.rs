//! Changes to objects as they are made.

pub mod pods;

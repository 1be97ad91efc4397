//! What every long-running command needs: logs, an orderly end, watched tasks.
//!
//! A task that ends, for whatever reason, ends the process: nothing may die
//! quietly while the process looks healthy.

mod supervise;
pub mod telemetry;

pub use supervise::{Supervisor, TaskEnded};

//! What a schema cannot check: rules that span several objects, and likely mistakes.

pub mod namespaces;
pub mod queues;
mod resources;

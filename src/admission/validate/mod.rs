//! What a schema cannot check: rules that span several objects.

pub mod queues;

//! The webhook: gates pods as they are made, checks queues as they are changed.
//!
//! In: an `AdmissionReview` and what it carries, also a [`QueueTree`] and [`Backlogs`]
//! that somebody else keeps fresh. Out: an answer, with a JSON patch where one is
//! due. Each change to a pod and each check of a queue is a small pure function;
//! [`server`] puts them behind TLS.
//!
//! Must never: read or write the API, look up owners, decide about capacity, keep
//! anything of a review (it may be a dry run), log a body, answer with a redirect.
//! Callers are not authenticated, so an answer tells nothing that the request did
//! not hold, except the names and amounts of queues.

mod backlog;
mod deadline;
mod exempt;
mod mutate;
mod review;
pub mod server;
mod validate;

pub use backlog::{Backlogs, LAPSE};
pub use exempt::Exempt;
pub use validate::queues::{QueueTree, Queues};

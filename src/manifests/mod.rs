//! What is installed besides processes: kinds, webhooks, policies, roles.
//!
//! In: the names of `api` and a few [`Values`] that differ between clusters. Out:
//! manifests, as values and as the text of files that are committed and tested for
//! drift ([`files`]). The chart's files hold Helm placeholders instead of values.
//!
//! The same input gives the same bytes: no time, no randomness, no certificate.
//! Must never: talk to a cluster.

mod gate;
mod guard;
pub mod names;
pub mod rights;
mod roles;
mod text;
mod values;
mod webhooks;

use kube::CustomResourceExt as _;
use serde_json::Value;

use crate::api::v1alpha1::Queue;

pub use gate::gate_policy;
pub use guard::guard;
pub use names::{CONFIGURATION, VISIBILITY_SERVICE, WEBHOOK_SERVICE};
pub use roles::owners;
pub use text::{Error, files, yaml};
pub use values::Values;
pub use webhooks::{mutating, validating, validating_with_pods};

/// The kinds of our own.
pub fn crds() -> serde_json::Result<Vec<Value>> {
    Ok(vec![serde_json::to_value(Queue::crd())?])
}

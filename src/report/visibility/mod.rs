//! The aggregated API `visibility.tidegate.dev`: groups and why they wait, for
//! `kubectl get`, with the apiserver's own access rules.
//!
//! *In:* the published view and, for each request, an [`Identity`] that somebody
//! else has verified ([`super::frontproxy`]). *Out:* JSON objects, tables and
//! `Status` errors. Nothing is stored, watched or computed here, and nothing is
//! shown that the [`Authorizer`] did not allow for this very request.

pub mod accept;
pub mod access;
mod discovery;
mod identity;
pub mod objects;
mod page;
mod refusal;
pub mod select;
mod server;
mod table;

pub use access::{Apiserver, Authorizer};
pub use identity::Identity;
pub use refusal::Refusal;
pub use server::{Visibility, router};

/// The resource, plural.
pub const GROUPS: &str = "groups";
/// The subresource that explains one.
pub const EXPLANATION: &str = "explanation";

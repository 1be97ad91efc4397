//! Who we are on the wire: an authority of our own, a leaf, and what serves it.
//!
//! In: a Secret in our namespace, or certificate files that somebody mounts; the
//! time. Out: the [`Resolver`] that TLS servers ask at each handshake, the Secret
//! kept fresh, the bundle of our authority in the objects by which the apiserver
//! calls us.
//!
//! The authority lives for years and its leaf for weeks, so renewing the leaf
//! never touches a bundle. Authorities follow each other in stages ([`rotation`]).
//! With cert-manager only [`files`] is used: nothing here then writes.
//!
//! Must never: write anything but that Secret and the bundle fields; put the
//! authority's key where the webhook can read it; serve a pair that does not match;
//! take from callers an authority whose leaf may still be shown.

mod authority;
pub mod files;
pub mod inject;
mod resolver;
pub mod rotation;
mod secret;
pub mod store;

pub use authority::{Authority, Names, SKEW, Standing};
pub use resolver::Resolver;
pub use rotation::{Held, Pace, Step};
pub use secret::Home;

/// What can go wrong with certificates.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The apiserver refused or could not be reached. Retry.
    #[error("apiserver: {0}")]
    Api(#[from] kube::Error),
    /// Somebody else changed the Secret again and again. Retry.
    #[error("the Secret kept changing under us")]
    Contended,
    /// Somebody deleted the Secret; it will be back. Retry.
    #[error("the Secret is not there")]
    Absent,
    /// Certificate files cannot be read. Retry: a volume may not be filled yet.
    #[error("certificate files: {0}")]
    Files(#[from] std::io::Error),
    /// A certificate or key makes no sense, or they do not belong together. Drop it.
    #[error("certificate: {0}")]
    Unusable(String),
    /// Making a certificate failed. Stop: the configured names are wrong.
    #[error("issuing: {0}")]
    Issue(#[from] rcgen::Error),
}

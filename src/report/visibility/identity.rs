//! Who asks.

use std::collections::BTreeMap;

/// A user as the front proxy vouches for it. Only [`super::super::frontproxy`] makes
/// one from a request, after it has verified the proxy's certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Identity {
    /// User name; never empty.
    pub user: String,
    /// Uid; may be empty.
    pub uid: String,
    /// Groups, in the order given.
    pub groups: Vec<String>,
    /// Anything else the authenticator said.
    pub extra: BTreeMap<String, Vec<String>>,
}

/// The group that may do everything, even when no authorizer answers.
const MASTERS: &str = "system:masters";

impl Identity {
    /// Whether the user may do everything.
    #[must_use]
    pub fn is_master(&self) -> bool {
        self.groups.iter().any(|group| group == MASTERS)
    }
}

//! Whose pods are never gated.

use std::collections::BTreeSet;

use super::review::UserInfo;
use crate::api::names::{GROUP_NODES, USER_DAEMON_SET_CONTROLLER};

/// Accounts whose pods pass as they are. Judged by who asks, never by what a pod
/// says of itself: labels and owner references can be forged.
#[derive(Clone, Debug, Default)]
pub struct Exempt {
    accounts: BTreeSet<String>,
}

impl Exempt {
    /// Kubelets, the `DaemonSet` controller and these accounts besides, by full user name.
    pub fn new(accounts: impl IntoIterator<Item = String>) -> Self {
        Self { accounts: accounts.into_iter().collect() }
    }

    /// Whether pods made by this user pass as they are.
    #[must_use]
    pub fn covers(&self, user: &UserInfo) -> bool {
        user.username == USER_DAEMON_SET_CONTROLLER
            || self.accounts.contains(&user.username)
            || user.groups.iter().flatten().any(|group| group == GROUP_NODES)
    }
}

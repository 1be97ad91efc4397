//! Reads owners of any kind.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kube::api::{Api, DynamicObject};
use kube::core::{GroupVersion, discovery::ApiResource, discovery::Scope};
use kube::{Client, Error, ResourceExt, discovery};
use tokio::time::{Instant, timeout};

use crate::grouping::{Lookup, ObjectKey};

use super::strip;

/// Longest wait for one answer of the apiserver.
const PATIENCE: Duration = Duration::from_secs(10);
/// A kind that was not served is asked for again after this.
const UNKNOWN_FOR: Duration = Duration::from_secs(10);
/// Group versions whose kinds are remembered.
const MOST_VERSIONS: usize = 200;

/// What is served of a kind.
#[derive(Clone, Debug)]
struct Served {
    resource: ApiResource,
    namespaced: bool,
}

/// What is known of a group version.
#[derive(Clone, Debug)]
struct Version {
    kinds: Arc<BTreeMap<String, Served>>,
    read_at: Instant,
}

/// Looks owners up by discovery and GET.
#[derive(Clone)]
pub(super) struct Reader {
    client: Client,
    versions: Arc<Mutex<BTreeMap<String, Version>>>,
}

impl Reader {
    pub fn new(client: Client) -> Self {
        Self { client, versions: Arc::default() }
    }

    /// Reads one owner. [`Lookup::Pending`] when the apiserver gave no usable answer.
    pub async fn read(&self, key: &ObjectKey) -> Lookup {
        match timeout(PATIENCE, self.try_read(key)).await {
            Ok(Ok(lookup)) => lookup,
            Ok(Err(error)) => {
                tracing::warn!(owner = %key, namespace = %key.namespace, %error, "owner not read");
                Lookup::Pending
            }
            Err(_) => {
                tracing::warn!(owner = %key, namespace = %key.namespace, "owner read timed out");
                Lookup::Pending
            }
        }
    }

    async fn try_read(&self, key: &ObjectKey) -> Result<Lookup, Error> {
        if !is_segment(&key.name) {
            return Ok(Lookup::Missing);
        }
        let Some(served) = self.served(&key.api_version, &key.kind).await? else {
            return Ok(Lookup::UnknownKind);
        };
        let Served { resource, namespaced } = &served;
        let api: Api<DynamicObject> = match (*namespaced, &*key.namespace) {
            // A cluster-scoped object cannot be owned by one that lives in a namespace.
            (true, "") => return Ok(Lookup::Missing),
            (true, namespace) => Api::namespaced_with(self.client.clone(), namespace, resource),
            (false, _) => Api::all_with(self.client.clone(), resource),
        };
        match api.get(&key.name).await {
            Ok(object) if object.uid().as_deref() == Some(&key.uid) => {
                Ok(Lookup::Found(strip::owner(&object, *namespaced)))
            }
            Ok(_) => Ok(Lookup::WrongUid),
            Err(Error::Api(status)) if status.code == 404 => Ok(Lookup::Missing),
            Err(Error::Api(status)) if status.code == 403 => Ok(Lookup::Forbidden(rule(resource))),
            Err(error) => Err(error),
        }
    }

    /// How a kind is served, from memory or by discovery.
    async fn served(&self, api_version: &str, kind: &str) -> Result<Option<Served>, Error> {
        if let Some(version) = self.remembered(api_version) {
            let served = version.kinds.get(kind).cloned();
            if served.is_some() || version.read_at.elapsed() < UNKNOWN_FOR {
                return Ok(served);
            }
        }
        let kinds = Arc::new(self.discover(api_version).await?);
        self.remember(api_version, Arc::clone(&kinds));
        Ok(kinds.get(kind).cloned())
    }

    fn remembered(&self, api_version: &str) -> Option<Version> {
        let versions = self.versions.lock().unwrap_or_else(PoisonError::into_inner);
        versions.get(api_version).cloned()
    }

    /// Forgets the version that was read first when there are too many: anybody may
    /// write any version into an owner reference.
    fn remember(&self, api_version: &str, kinds: Arc<BTreeMap<String, Served>>) {
        let mut versions = self.versions.lock().unwrap_or_else(PoisonError::into_inner);
        if versions.len() >= MOST_VERSIONS {
            let oldest = versions.iter().min_by_key(|(_, version)| version.read_at);
            let oldest = oldest.map(|(name, _)| name.clone());
            oldest.map(|name| versions.remove(&name));
        }
        versions.insert(api_version.to_owned(), Version { kinds, read_at: Instant::now() });
    }

    async fn discover(&self, api_version: &str) -> Result<BTreeMap<String, Served>, Error> {
        let version = api_version.parse::<GroupVersion>().ok();
        let named = |version: &GroupVersion| {
            is_segment(&version.version) && (version.group.is_empty() || is_segment(&version.group))
        };
        let Some(version) = version.filter(named) else { return Ok(BTreeMap::new()) };
        let group = match discovery::pinned_group(&self.client, &version).await {
            Ok(group) => group,
            Err(Error::Api(status)) if status.code == 404 => return Ok(BTreeMap::new()),
            Err(Error::Discovery(_)) => return Ok(BTreeMap::new()),
            Err(error) => return Err(error),
        };
        let kinds = group.versioned_resources(&version.version).into_iter();
        Ok(kinds
            .map(|(resource, capabilities)| {
                let namespaced = capabilities.scope == Scope::Namespaced;
                (resource.kind.clone(), Served { resource, namespaced })
            })
            .collect())
    }
}

/// Whether a text is one plain segment of a path, as every name is. Nobody checks what an
/// owner reference says, and it must not lead our request elsewhere.
fn is_segment(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:@!$&'()*+,;=".contains(&byte);
    !matches!(text, "" | "." | "..") && text.bytes().all(plain)
}

/// The rule that a role must hold for a kind to be read.
fn rule(resource: &ApiResource) -> Arc<str> {
    format!(
        "{{apiGroups: [\"{}\"], resources: [\"{}\"], verbs: [\"get\"]}}",
        resource.group, resource.plural
    )
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("job-1.a", true)]
    #[case("system:node", true)]
    #[case("", false)]
    #[case(".", false)]
    #[case("..", false)]
    #[case("../secrets/s", false)]
    #[case("p/proxy", false)]
    #[case("p%2fproxy", false)]
    #[case("p?watch=1", false)]
    #[case("p#", false)]
    #[case("a b", false)]
    #[case("ä", false)]
    fn what_an_owner_reference_says_stays_one_segment(#[case] name: &str, #[case] plain: bool) {
        assert_eq!(is_segment(name), plain);
    }
}

//! Our authority's certificate in the objects by which the apiserver calls us.
//!
//! Only the field `caBundle`, only when it differs, by a patch that states the
//! version it saw. A tool that puts the object back without it causes one
//! event here and one write. What is written is read from the Secret at that
//! moment, so two processes never write different bundles against each other.

use std::fmt::Debug;
use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration, WebhookClientConfig,
};
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::api::{ListParams, Patch, PatchParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::Error;
use super::secret::{self, Home};
use crate::api::names::FIELD_MANAGER;

/// A write that failed is tried again after this time, and so is a look at an
/// object that did not change.
const RETRY: Duration = Duration::from_secs(2);

/// A cluster-scoped object of ours with places for a bundle.
pub trait Bundled:
    Resource<DynamicType = (), Scope = k8s_openapi::ClusterResourceScope>
    + Clone
    + Debug
    + DeserializeOwned
    + Send
    + Sync
    + 'static
{
    /// What the one is called that we look after.
    fn name(home: &Home) -> &str;

    /// The bundles that it carries.
    fn bundles(&self) -> Vec<&ByteString>;

    /// The strategic merge patch that puts the bundle where it is missing, if it is.
    fn missing(&self, bundle: &[u8]) -> Option<Value>;
}

impl Bundled for MutatingWebhookConfiguration {
    fn name(home: &Home) -> &str {
        &home.configuration
    }

    fn bundles(&self) -> Vec<&ByteString> {
        let configs = self.webhooks.iter().flatten().map(|webhook| &webhook.client_config);
        configs.filter_map(|config| config.ca_bundle.as_ref()).collect()
    }

    fn missing(&self, bundle: &[u8]) -> Option<Value> {
        let webhooks = self.webhooks.iter().flatten();
        of_webhooks(webhooks.map(|webhook| (&webhook.name, &webhook.client_config)), bundle)
    }
}

impl Bundled for ValidatingWebhookConfiguration {
    fn name(home: &Home) -> &str {
        &home.configuration
    }

    fn bundles(&self) -> Vec<&ByteString> {
        let configs = self.webhooks.iter().flatten().map(|webhook| &webhook.client_config);
        configs.filter_map(|config| config.ca_bundle.as_ref()).collect()
    }

    fn missing(&self, bundle: &[u8]) -> Option<Value> {
        let webhooks = self.webhooks.iter().flatten();
        of_webhooks(webhooks.map(|webhook| (&webhook.name, &webhook.client_config)), bundle)
    }
}

impl Bundled for APIService {
    fn name(home: &Home) -> &str {
        &home.api_service
    }

    fn bundles(&self) -> Vec<&ByteString> {
        self.spec.iter().filter_map(|spec| spec.ca_bundle.as_ref()).collect()
    }

    fn missing(&self, bundle: &[u8]) -> Option<Value> {
        let spec = self.spec.as_ref()?;
        // Served by the apiserver itself: there is nobody to trust.
        spec.service.as_ref()?;
        let same = spec.ca_bundle.as_ref().is_some_and(|current| current.0 == bundle);
        (!same).then(|| json!({"spec": {"caBundle": ByteString(bundle.to_vec())}}))
    }
}

fn of_webhooks<'a>(
    webhooks: impl Iterator<Item = (&'a String, &'a WebhookClientConfig)>,
    bundle: &[u8],
) -> Option<Value> {
    let lacks = |config: &WebhookClientConfig| {
        config.ca_bundle.as_ref().is_none_or(|current| current.0 != bundle)
    };
    let entries: Vec<_> = webhooks
        .filter(|(_, config)| lacks(config))
        .map(|(name, _)| {
            json!({"name": name, "clientConfig": {"caBundle": ByteString(bundle.to_vec())}})
        })
        .collect();
    (!entries.is_empty()).then(|| json!({"webhooks": entries}))
}

/// Whether all three objects carry the bundle, those that there are.
pub(super) async fn is_carried(client: &Client, home: &Home, bundle: &str) -> Result<bool, Error> {
    Ok(carries::<MutatingWebhookConfiguration>(client, home, bundle).await?
        && carries::<ValidatingWebhookConfiguration>(client, home, bundle).await?
        && carries::<APIService>(client, home, bundle).await?)
}

async fn carries<K: Bundled>(client: &Client, home: &Home, bundle: &str) -> Result<bool, Error> {
    let object = find::<K>(client, home).await?;
    Ok(object.is_none_or(|object| object.missing(bundle.as_bytes()).is_none()))
}

/// What the three objects carry.
pub(super) async fn bundles(client: &Client, home: &Home) -> Result<Vec<String>, Error> {
    let mut all = found::<MutatingWebhookConfiguration>(client, home).await?;
    all.append(&mut found::<ValidatingWebhookConfiguration>(client, home).await?);
    all.append(&mut found::<APIService>(client, home).await?);
    Ok(all)
}

async fn found<K: Bundled>(client: &Client, home: &Home) -> Result<Vec<String>, Error> {
    let object = find::<K>(client, home).await?;
    let bundles = object.iter().flat_map(Bundled::bundles);
    Ok(bundles.map(|bundle| String::from_utf8_lossy(&bundle.0).into_owned()).collect())
}

/// By a list of that name, which is a right we need for the watch anyway.
async fn find<K: Bundled>(client: &Client, home: &Home) -> Result<Option<K>, Error> {
    let by_name = ListParams::default().fields(&format!("metadata.name={}", K::name(home)));
    Ok(Api::<K>::all(client.clone()).list(&by_name).await?.items.pop())
}

/// Keeps the bundle in the object of this kind, when there is one, until cancelled.
/// `bundle` tells of a new one. Needs `list`, `watch` and `patch` on that name only.
pub async fn keep<K: Bundled>(
    client: Client,
    home: Home,
    mut bundle: watch::Receiver<Option<String>>,
    stop: CancellationToken,
) {
    let name = K::name(&home);
    let api = Api::<K>::all(client.clone());
    let by_name = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let mut objects = watcher(api, by_name).default_backoff().applied_objects().boxed();
    let mut object: Option<K> = None;
    loop {
        // Taken out first: a borrow must not be held while writing.
        let known = bundle.borrow_and_update().clone();
        let lacks = |object: &&K| known.is_some_and(|b| object.missing(b.as_bytes()).is_some());
        let written = match object.as_ref().filter(lacks) {
            Some(object) => fill(&client, &home, object).await,
            None => Ok(()),
        };
        if let Err(error) = &written {
            warn!(kind = %K::kind(&()), name, %error, "bundle not written");
        }
        tokio::select! {
            () = stop.cancelled() => return,
            next = objects.try_next() => match next {
                Ok(newer) => object = newer.or(object),
                Err(error) => debug!(kind = %K::kind(&()), name, %error, "watch failed"),
            },
            changed = bundle.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(RETRY), if written.is_err() => {
                object = find(&client, &home).await.unwrap_or(object);
            }
        }
    }
}

async fn fill<K: Bundled>(client: &Client, home: &Home, object: &K) -> Result<(), Error> {
    let bundle = secret::bundle(client, home).await?;
    write(&Api::all(client.clone()), object, bundle.as_bytes()).await
}

async fn write<K: Bundled>(api: &Api<K>, object: &K, bundle: &[u8]) -> Result<(), Error> {
    let Some(mut patch) = object.missing(bundle) else { return Ok(()) };
    let name = object.meta().name.clone().unwrap_or_default();
    if let Some(fields) = patch.as_object_mut() {
        // The version: an entry that is gone by now must not come back from a patch.
        let version = json!({"resourceVersion": object.meta().resource_version});
        fields.insert("metadata".to_owned(), version);
    }
    let params =
        PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..Default::default() };
    api.patch(&name, &params, &Patch::Strategic(patch)).await?;
    info!(kind = %K::kind(&()), name, "bundle written");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn webhooks(bundles: &[Option<&str>]) -> ValidatingWebhookConfiguration {
        let entry = |(n, bundle): (usize, Option<&str>)| {
            let bundle = bundle.map(|text| ByteString(text.as_bytes().to_vec()));
            json!({"name": format!("w{n}.tidegate.dev"), "clientConfig": {"caBundle": bundle},
                "sideEffects": "None", "admissionReviewVersions": ["v1"]})
        };
        let entries: Vec<_> = bundles.iter().copied().enumerate().map(entry).collect();
        serde_json::from_value(json!({"webhooks": entries})).unwrap()
    }

    #[test]
    fn only_entries_without_the_bundle_are_patched() {
        assert_eq!(webhooks(&[Some("new"), Some("new")]).missing(b"new"), None);
        let patch = webhooks(&[Some("new"), None, Some("old")]).missing(b"new").unwrap();
        assert_eq!(
            patch,
            json!({"webhooks": [
                {"name": "w1.tidegate.dev", "clientConfig": {"caBundle": "bmV3"}},
                {"name": "w2.tidegate.dev", "clientConfig": {"caBundle": "bmV3"}},
            ]})
        );
    }

    #[test]
    fn an_api_service_is_patched_when_it_has_a_backend() {
        let service =
            |spec: Value| -> APIService { serde_json::from_value(json!({"spec": spec})).unwrap() };
        let mut spec = json!({"groupPriorityMinimum": 1, "versionPriority": 1});
        assert_eq!(service(spec.clone()).missing(b"new"), None);
        spec["service"] = json!({"name": "tidegate"});
        assert_eq!(
            service(spec.clone()).missing(b"new"),
            Some(json!({"spec": {"caBundle": "bmV3"}}))
        );
        spec["caBundle"] = json!("bmV3");
        assert_eq!(service(spec).missing(b"new"), None);
    }
}

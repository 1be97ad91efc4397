//! The apiserver in front of the visibility API: whom to believe about who asks.
//!
//! The apiserver authenticates users and passes their names on in headers, over a
//! connection with its own client certificate. Which CA, which names and which
//! headers that is, it publishes in a `ConfigMap` in `kube-system`.

mod tls;
mod trust;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::api::Api;
use thiserror::Error;
use tracing::{info, warn};

pub use tls::{authenticated, server_config};
pub use trust::{FrontProxy, Headers, Rejected, Settings};

/// Where the apiserver says how it proves itself. Role
/// `extension-apiserver-authentication-reader` lets us read it.
pub const CONFIG_NAMESPACE: &str = "kube-system";
/// Name of that `ConfigMap`.
pub const CONFIG_NAME: &str = "extension-apiserver-authentication";

const REFRESH: Duration = Duration::from_mins(1);
const RETRY: Duration = Duration::from_secs(2);
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// Why the settings could not be used. Read them again later; what was known before
/// stays in force.
#[derive(Debug, Error)]
pub enum Error {
    /// The `ConfigMap` could not be read.
    #[error("{CONFIG_NAMESPACE}/{CONFIG_NAME}: {0}")]
    Read(#[from] kube::Error),
    /// It took too long.
    #[error("{CONFIG_NAMESPACE}/{CONFIG_NAME}: no answer in {} s", READ_TIMEOUT.as_secs())]
    Timeout,
    /// A key is missing: the apiserver runs without an aggregation layer.
    #[error(
        "{CONFIG_NAMESPACE}/{CONFIG_NAME} has no {0}: is the apiserver's aggregation layer on?"
    )]
    Missing(&'static str),
    /// A key's value is not what it should be.
    #[error("{CONFIG_NAMESPACE}/{CONFIG_NAME}: {key}: {problem}")]
    Malformed {
        /// The key.
        key: &'static str,
        /// What is wrong with it.
        problem: String,
    },
}

/// Reads the settings once and puts them in force.
pub async fn load(client: &Client, proxy: &FrontProxy) -> Result<(), Error> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), CONFIG_NAMESPACE);
    let map = tokio::time::timeout(READ_TIMEOUT, api.get(CONFIG_NAME));
    let map = map.await.map_err(|_| Error::Timeout)??;
    if proxy.set(&Settings::read(&map.data.unwrap_or_default())?)? {
        info!("frontproxy.settings_loaded");
    }
    Ok(())
}

/// Keeps the settings current, for as long as it is polled. Until the first are in,
/// nobody is believed.
pub async fn keep_current(client: Client, proxy: Arc<FrontProxy>) {
    loop {
        let pause = match load(&client, &proxy).await {
            Ok(()) => REFRESH,
            Err(error) => {
                warn!(%error, "frontproxy.settings_unusable");
                if proxy.is_loaded() { REFRESH } else { RETRY }
            }
        };
        tokio::time::sleep(pause).await;
    }
}

#[cfg(test)]
mod tests;

//! The Secret that holds our authority and leaf: made when absent, renewed when due.
//!
//! Every write states what it replaces, so of two writers one wins and the other
//! adopts what it finds.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{Authority, Error, Names, Resolver, Standing};
use crate::api::names::FIELD_MANAGER;

/// How often the Secret is looked at: soon enough for whoever deletes it to rotate.
const PERIOD: Duration = Duration::from_mins(1);
/// After a failure.
const RETRY: Duration = Duration::from_secs(2);
/// Lost races before giving up until the next look.
const ATTEMPTS: usize = 5;

/// Where the authority is kept and for whom its leaf is.
#[derive(Clone, Debug)]
pub struct Home {
    /// Our own namespace.
    pub namespace: String,
    /// Name of the Secret.
    pub secret: String,
    /// Names of the leaf.
    pub names: Names,
}

/// Keeps the Secret good, serves its leaf by `resolver` and tells the authority's
/// certificate to `bundle`, until cancelled.
pub async fn keep(
    client: Client,
    home: Home,
    resolver: Arc<Resolver>,
    bundle: watch::Sender<Option<String>>,
    stop: CancellationToken,
) {
    loop {
        let outcome = look(&client, &home, &resolver, &bundle).await;
        if let Err(error) = &outcome {
            warn!(secret = home.secret, %error, "authority not kept");
        }
        let period = if outcome.is_ok() { PERIOD } else { RETRY };
        if stop.run_until_cancelled(tokio::time::sleep(period)).await.is_none() {
            return;
        }
    }
}

async fn look(
    client: &Client,
    home: &Home,
    resolver: &Resolver,
    bundle: &watch::Sender<Option<String>>,
) -> Result<(), Error> {
    let authority = ensure(client, home, Timestamp::now()).await?;
    if resolver.set(authority.tls_crt.as_bytes(), authority.tls_key.as_bytes())? {
        info!(secret = home.secret, "certificate loaded");
    }
    bundle.send_if_modified(|current| {
        let changed = current.as_deref() != Some(authority.ca_crt.as_str());
        *current = Some(authority.ca_crt);
        changed
    });
    Ok(())
}

/// Makes the Secret hold what is good at this time and returns it.
pub async fn ensure(client: &Client, home: &Home, now: Timestamp) -> Result<Authority, Error> {
    let secrets = Api::<Secret>::namespaced(client.clone(), &home.namespace);
    for _ in 0..ATTEMPTS {
        let stored = secrets.get_opt(&home.secret).await?;
        match attempt(&secrets, home, stored, now).await {
            // 409: exists by now, or is another version by now. Look again.
            Err(Error::Api(kube::Error::Api(status))) if status.code == 409 => {}
            outcome => return outcome,
        }
    }
    Err(Error::Contended)
}

async fn attempt(
    secrets: &Api<Secret>,
    home: &Home,
    stored: Option<Secret>,
    now: Timestamp,
) -> Result<Authority, Error> {
    let post =
        PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
    let Some(mut secret) = stored else {
        let authority = Authority::issue(&home.names, now)?;
        let mut secret =
            Secret { type_: Some("kubernetes.io/tls".to_owned()), ..Secret::default() };
        secret.metadata.name = Some(home.secret.clone());
        secret.data = Some(data(&authority));
        secrets.create(&post, &secret).await?;
        info!(secret = home.secret, "authority made");
        return Ok(authority);
    };
    let current = read(&secret);
    let renewed = match current.standing(&home.names, now) {
        Standing::Good => return Ok(current),
        Standing::LeafDue(why) => {
            info!(secret = home.secret, why, "leaf renewed");
            current.with_new_leaf(&home.names, now)?
        }
        Standing::AuthorityDue(why) => {
            warn!(secret = home.secret, why, "authority replaced");
            Authority::issue(&home.names, now)?
        }
    };
    // The version read above travels with it: a racing writer makes this a conflict.
    secret.data.get_or_insert_default().append(&mut data(&renewed));
    secrets.replace(&home.secret, &post, &secret).await?;
    Ok(renewed)
}

fn data(authority: &Authority) -> BTreeMap<String, ByteString> {
    let Authority { ca_crt, ca_key, tls_crt, tls_key } = authority;
    [("ca.crt", ca_crt), ("ca.key", ca_key), ("tls.crt", tls_crt), ("tls.key", tls_key)]
        .map(|(key, text)| (key.to_owned(), ByteString(text.clone().into_bytes())))
        .into()
}

/// What a Secret holds; what is missing is empty, and so is found not to stand.
fn read(secret: &Secret) -> Authority {
    let text = |key: &str| {
        let bytes = secret.data.as_ref().and_then(|data| data.get(key));
        bytes.map(|bytes| String::from_utf8_lossy(&bytes.0).into_owned()).unwrap_or_default()
    };
    Authority {
        ca_crt: text("ca.crt"),
        ca_key: text("ca.key"),
        tls_crt: text("tls.crt"),
        tls_key: text("tls.key"),
    }
}

//! The Secret: where it is and how its bytes are read and written.
//!
//! `tls.crt`, `tls.key` and `ca.crt` as any `kubernetes.io/tls` Secret has them, `ca.key`;
//! `next-ca.crt` and `next-ca.key` between introduction and switch; `old-ca.crt`
//! between switch and drop.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};

use super::{Authority, Error, Held, Names};
use crate::api::names::ANNOTATION_ROTATE;

const CA_CRT: &str = "ca.crt";
const CA_KEY: &str = "ca.key";
const TLS_CRT: &str = "tls.crt";
const TLS_KEY: &str = "tls.key";
const NEXT_CRT: &str = "next-ca.crt";
const NEXT_KEY: &str = "next-ca.key";
const OLD_CRT: &str = "old-ca.crt";
const KEYS: [&str; 7] = [CA_CRT, CA_KEY, TLS_CRT, TLS_KEY, NEXT_CRT, NEXT_KEY, OLD_CRT];

/// Where the authority is kept, for whom its leaf is and who must trust it.
#[derive(Clone, Debug)]
pub struct Home {
    /// Our own namespace.
    pub namespace: String,
    /// Name of the Secret.
    pub secret: String,
    /// Names of the leaf.
    pub names: Names,
    /// Name of the mutating and of the validating webhook configuration.
    pub configuration: String,
    /// Name of the APIService.
    pub api_service: String,
}

impl Home {
    pub(super) fn secrets(&self, client: &Client) -> Api<Secret> {
        Api::namespaced(client.clone(), &self.namespace)
    }
}

/// The bundle as the Secret has it at this moment.
pub(super) async fn bundle(client: &Client, home: &Home) -> Result<String, Error> {
    let secret = home.secrets(client).get_opt(&home.secret).await?.ok_or(Error::Absent)?;
    Ok(read(&secret).bundle())
}

/// A Secret that does not exist yet.
pub(super) fn new(home: &Home, held: &Held) -> Secret {
    let mut secret = Secret { type_: Some("kubernetes.io/tls".to_owned()), ..Secret::default() };
    secret.metadata.name = Some(home.secret.clone());
    write(&mut secret, held);
    secret
}

/// What a Secret holds; what is missing is empty, and so is found not to stand.
pub(super) fn read(secret: &Secret) -> Held {
    let entry = |key: &str| {
        let bytes = secret.data.as_ref()?.get(key)?;
        Some(String::from_utf8_lossy(&bytes.0).into_owned())
    };
    let text = |key: &str| entry(key).unwrap_or_default();
    let next = entry(NEXT_CRT).map(|ca_crt| Authority {
        ca_crt,
        ca_key: text(NEXT_KEY),
        tls_crt: String::new(),
        tls_key: String::new(),
    });
    let authority = Authority {
        ca_crt: text(CA_CRT),
        ca_key: text(CA_KEY),
        tls_crt: text(TLS_CRT),
        tls_key: text(TLS_KEY),
    };
    let annotations = secret.metadata.annotations.as_ref();
    let asked = annotations.is_some_and(|annotations| annotations.contains_key(ANNOTATION_ROTATE));
    Held { authority, next, old: entry(OLD_CRT), asked }
}

/// Puts it into a Secret; what others keep there stays.
pub(super) fn write(secret: &mut Secret, held: &Held) {
    let data = secret.data.get_or_insert_default();
    data.retain(|key, _| !KEYS.contains(&key.as_str()));
    data.append(&mut entries(held));
    if let Some(annotations) = secret.metadata.annotations.as_mut().filter(|_| !held.asked) {
        annotations.remove(ANNOTATION_ROTATE);
    }
}

fn entries(held: &Held) -> BTreeMap<String, ByteString> {
    let Held { authority: Authority { ca_crt, ca_key, tls_crt, tls_key }, next, old, .. } = held;
    let always = [(CA_CRT, ca_crt), (CA_KEY, ca_key), (TLS_CRT, tls_crt), (TLS_KEY, tls_key)];
    let next = next.iter().flat_map(|next| [(NEXT_CRT, &next.ca_crt), (NEXT_KEY, &next.ca_key)]);
    let old = old.iter().map(|old| (OLD_CRT, old));
    let all = always.into_iter().chain(next).chain(old);
    all.map(|(key, text)| (key.to_owned(), ByteString(text.clone().into_bytes()))).collect()
}

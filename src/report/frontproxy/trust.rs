//! Which certificates and headers are believed.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use axum::http::{HeaderMap, HeaderName};
use rustls::RootCertStore;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;

use super::Error;
use crate::report::visibility::Identity;

const CLIENT_CA: &str = "requestheader-client-ca-file";
const ALLOWED_NAMES: &str = "requestheader-allowed-names";
const USER_HEADERS: &str = "requestheader-username-headers";
const UID_HEADERS: &str = "requestheader-uid-headers";
const GROUP_HEADERS: &str = "requestheader-group-headers";
const EXTRA_PREFIXES: &str = "requestheader-extra-headers-prefix";

/// How the apiserver proves itself, as it publishes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// PEM of the CAs its client certificate comes from.
    pub client_ca: String,
    /// Common names that certificate may have; empty means any.
    pub allowed_names: Vec<String>,
    /// Where it writes who asks.
    pub headers: Headers,
}

/// Names of the headers that say who asks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headers {
    /// The user's name; the first that is there counts.
    pub user: Vec<HeaderName>,
    /// The user's uid; the first that is there counts.
    pub uid: Vec<HeaderName>,
    /// One group each; all count.
    pub groups: Vec<HeaderName>,
    /// What follows such a prefix is a key of the extra information; lower case.
    pub extra_prefixes: Vec<String>,
}

impl Settings {
    /// Reads the data of the `ConfigMap`.
    pub fn read(data: &BTreeMap<String, String>) -> Result<Self, Error> {
        Ok(Self {
            client_ca: data.get(CLIENT_CA).ok_or(Error::Missing(CLIENT_CA))?.clone(),
            allowed_names: strings(data, ALLOWED_NAMES)?,
            headers: Headers {
                user: required(header_names(data, USER_HEADERS)?, USER_HEADERS)?,
                uid: header_names(data, UID_HEADERS)?,
                groups: header_names(data, GROUP_HEADERS)?,
                extra_prefixes: strings(data, EXTRA_PREFIXES)?
                    .into_iter()
                    .map(|prefix| prefix.to_lowercase())
                    .collect(),
            },
        })
    }
}

fn required<T>(list: Vec<T>, key: &'static str) -> Result<Vec<T>, Error> {
    if list.is_empty() { Err(Error::Missing(key)) } else { Ok(list) }
}

/// A JSON list of strings; an absent key is an empty one.
fn strings(data: &BTreeMap<String, String>, key: &'static str) -> Result<Vec<String>, Error> {
    let text = data.get(key).map_or("[]", String::as_str);
    serde_json::from_str(text).map_err(|error| malformed(key, &error))
}

fn header_names(
    data: &BTreeMap<String, String>,
    key: &'static str,
) -> Result<Vec<HeaderName>, Error> {
    let names = strings(data, key)?;
    let names = names.iter().map(|name| name.parse::<HeaderName>());
    names.collect::<Result<_, _>>().map_err(|error| malformed(key, &error))
}

fn malformed(key: &'static str, problem: &dyn fmt::Display) -> Error {
    Error::Malformed { key, problem: problem.to_string() }
}

/// Why a request is from nobody. All are answered with 401; the words are for logs.
#[derive(Debug, thiserror::Error)]
pub enum Rejected {
    /// The settings are not loaded yet.
    #[error("the front proxy's CA is not known yet")]
    NotLoaded,
    /// No client certificate was presented.
    #[error("no client certificate")]
    NoCertificate,
    /// It is not from the front proxy's CA, or not valid now.
    #[error("client certificate: {0}")]
    Certificate(#[from] rustls::Error),
    /// It cannot be read.
    #[error("client certificate is malformed")]
    Unreadable,
    /// Its common name is not the front proxy's.
    #[error("client certificate is of {0:?}, which is not a front proxy")]
    Name(String),
    /// The front proxy did not say who asks.
    #[error("no user in the front proxy's headers")]
    NoUser,
}

/// The settings in force. Shared by the TLS handshake and by every request.
#[derive(Default)]
pub struct FrontProxy(ArcSwapOption<Trust>);

struct Trust {
    settings: Settings,
    verifier: Arc<dyn ClientCertVerifier>,
}

impl FrontProxy {
    /// Puts settings in force and tells whether they are new. On an error the old
    /// ones stay.
    pub fn set(&self, settings: &Settings) -> Result<bool, Error> {
        if self.0.load().as_ref().is_some_and(|trust| trust.settings == *settings) {
            return Ok(false);
        }
        let verifier = verifier(&settings.client_ca)?;
        self.0.store(Some(Arc::new(Trust { settings: settings.clone(), verifier })));
        Ok(true)
    }

    /// Whether anybody can be believed.
    #[must_use]
    pub fn is_loaded(&self) -> bool {
        self.0.load().is_some()
    }

    fn current(&self) -> Result<Arc<Trust>, Rejected> {
        self.0.load_full().ok_or(Rejected::NotLoaded)
    }

    /// Whether this chain, leaf first, is the front proxy's now.
    pub(super) fn verify(
        &self,
        leaf: &CertificateDer<'_>,
        rest: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), Rejected> {
        self.current()?.verify(leaf, rest, now)
    }

    /// Who asks, by the headers of a request whose connection presented `chain` (DER,
    /// leaf first). The chain is verified again: a connection may outlive a CA.
    pub fn identify(&self, chain: &[Vec<u8>], headers: &HeaderMap) -> Result<Identity, Rejected> {
        let chain: Vec<_> = chain.iter().map(|der| CertificateDer::from(&**der)).collect();
        let (leaf, rest) = chain.split_first().ok_or(Rejected::NoCertificate)?;
        let trust = self.current()?;
        trust.verify(leaf, rest, UnixTime::now())?;
        trust.settings.headers.identity(headers).ok_or(Rejected::NoUser)
    }
}

impl Trust {
    fn verify(
        &self,
        leaf: &CertificateDer<'_>,
        rest: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), Rejected> {
        self.verifier.verify_client_cert(leaf, rest, now)?;
        let allowed = &self.settings.allowed_names;
        let name = common_name(leaf)?;
        if allowed.is_empty() || allowed.contains(&name) {
            Ok(())
        } else {
            Err(Rejected::Name(name))
        }
    }
}

impl fmt::Debug for FrontProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FrontProxy").field("loaded", &self.is_loaded()).finish()
    }
}

fn verifier(pem: &str) -> Result<Arc<dyn ClientCertVerifier>, Error> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        let certificate = certificate.map_err(|error| malformed(CLIENT_CA, &error))?;
        roots.add(certificate).map_err(|error| malformed(CLIENT_CA, &error))?;
    }
    let provider = Arc::new(ring::default_provider());
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    let verifier = builder.build().map_err(|error| malformed(CLIENT_CA, &error))?;
    Ok(verifier)
}

fn common_name(certificate: &CertificateDer<'_>) -> Result<String, Rejected> {
    let (_, parsed) =
        x509_parser::parse_x509_certificate(certificate).map_err(|_| Rejected::Unreadable)?;
    let name = parsed.subject().iter_common_name().next().and_then(|name| name.as_str().ok());
    Ok(name.unwrap_or_default().to_owned())
}

impl Headers {
    fn identity(&self, headers: &HeaderMap) -> Option<Identity> {
        let user = first(headers, &self.user).filter(|user| !user.is_empty())?;
        let groups = self.groups.iter().flat_map(|name| headers.get_all(name));
        Some(Identity {
            user,
            uid: first(headers, &self.uid).unwrap_or_default(),
            groups: groups.filter_map(text).collect(),
            extra: self.extra(headers),
        })
    }

    fn extra(&self, headers: &HeaderMap) -> BTreeMap<String, Vec<String>> {
        let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (name, value) in headers {
            let mut prefixes = self.extra_prefixes.iter();
            let key = prefixes.find_map(|prefix| name.as_str().strip_prefix(&**prefix));
            if let (Some(key), Some(value)) = (key, text(value)) {
                extra.entry(unescape(key)).or_default().push(value);
            }
        }
        extra
    }
}

fn first(headers: &HeaderMap, names: &[HeaderName]) -> Option<String> {
    names.iter().find_map(|name| headers.get(name)).and_then(text)
}

fn text(value: &axum::http::HeaderValue) -> Option<String> {
    std::str::from_utf8(value.as_bytes()).ok().map(str::to_owned)
}

/// Undoes percent-encoding; what is not valid stays as it is.
fn unescape(key: &str) -> String {
    let mut bytes = Vec::with_capacity(key.len());
    let mut rest = key.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        let encoded = tail.get(..2).filter(|_| byte == b'%').and_then(hex);
        bytes.push(encoded.unwrap_or(byte));
        rest = if encoded.is_some() { tail.get(2..).unwrap_or_default() } else { tail };
    }
    String::from_utf8(bytes).unwrap_or_else(|_| key.to_owned())
}

fn hex(digits: &[u8]) -> Option<u8> {
    let digits = std::str::from_utf8(digits).ok()?;
    u8::from_str_radix(digits, 16).ok()
}

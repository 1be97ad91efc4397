//! What TLS servers ask at each handshake.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use super::Error;

/// Holds the newest good certificate. New handshakes see a new one at once; open
/// connections keep theirs. Without any, handshakes fail.
#[derive(Debug, Default)]
pub struct Resolver(ArcSwapOption<CertifiedKey>);

impl Resolver {
    /// Serves this chain and key from now on, or keeps what it has if they are not a
    /// pair. Tells whether anything changed.
    pub fn set(&self, chain: &[u8], key: &[u8]) -> Result<bool, Error> {
        let new = pair(chain, key)?;
        // Each leaf of a renewal is another certificate, so the key need not be compared.
        let same = self.0.load().as_ref().is_some_and(|current| current.cert == new.cert);
        if !same {
            self.0.store(Some(Arc::new(new)));
        }
        Ok(!same)
    }

    /// Whether handshakes can succeed.
    #[must_use]
    pub fn is_loaded(&self) -> bool {
        self.0.load().is_some()
    }
}

impl ResolvesServerCert for Resolver {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.load_full()
    }
}

/// A PEM chain, leaf first, and its PEM key, if they belong together.
pub(super) fn pair(chain: &[u8], key: &[u8]) -> Result<CertifiedKey, Error> {
    let unusable = |error: &dyn std::fmt::Display| Error::Unusable(error.to_string());
    let chain: Vec<_> = CertificateDer::pem_slice_iter(chain)
        .collect::<Result<_, _>>()
        .map_err(|error| unusable(&error))?;
    if chain.is_empty() {
        return Err(unusable(&"no certificate in tls.crt"));
    }
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| unusable(&error))?;
    CertifiedKey::from_der(chain, key, &ring::default_provider()).map_err(|error| unusable(&error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certs::{Authority, Names};
    use jiff::Timestamp;

    fn issue() -> Authority {
        Authority::issue(&Names::of_services("ns", &["s"], &[]), Timestamp::UNIX_EPOCH).unwrap()
    }

    #[test]
    fn a_good_pair_is_taken_once_and_a_bad_one_never() {
        let (first, second) = (issue(), issue());
        let resolver = Resolver::default();
        assert!(!resolver.is_loaded());
        let set = |crt: &str, key: &str| resolver.set(crt.as_bytes(), key.as_bytes());
        assert!(set(&first.tls_crt, &first.tls_key).unwrap());
        assert!(!set(&first.tls_crt, &first.tls_key).unwrap());
        for (crt, key) in [
            (second.tls_crt.as_str(), first.tls_key.as_str()),
            (second.tls_crt.as_str(), ""),
            ("", second.tls_key.as_str()),
            ("-----BEGIN CERTIFICATE-----\nAAAA", second.tls_key.as_str()),
        ] {
            assert!(matches!(set(crt, key), Err(Error::Unusable(_))));
        }
        assert!(!set(&first.tls_crt, &first.tls_key).unwrap(), "the first is still there");
        assert!(set(&second.tls_crt, &second.tls_key).unwrap());
    }
}

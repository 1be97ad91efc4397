//! An authority and its leaf as text, and what is due at a given time. Pure.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use rustls::RootCertStore;
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;

use super::Error;

const DAY: SignedDuration = SignedDuration::from_hours(24);
/// Ten years: the bundle is in objects that others also write, so it rarely changes.
const AUTHORITY_LIFE: SignedDuration = SignedDuration::from_hours(24 * 3652);
/// An authority is followed by another well before its last leaf would be cut short.
const AUTHORITY_MARGIN: SignedDuration = SignedDuration::from_hours(24 * 180);
/// Ninety days, of which the last third is for renewal.
const LEAF_LIFE: SignedDuration = SignedDuration::from_hours(24 * 90);
const LEAF_MARGIN: SignedDuration = SignedDuration::from_hours(24 * 30);
/// Clocks of a cluster differ: certificates are valid a day before they are made.
pub const SKEW: SignedDuration = DAY;

/// The DNS names that a leaf must carry, shortest use first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names(Vec<String>);

impl Names {
    /// Names of Services of one namespace as the apiserver and others call them,
    /// and further names such as `localhost`.
    #[must_use]
    pub fn of_services(namespace: &str, services: &[&str], further: &[&str]) -> Self {
        let both = |service: &&str| {
            [
                format!("{service}.{namespace}.svc"),
                format!("{service}.{namespace}.svc.cluster.local"),
            ]
        };
        let further = further.iter().map(|&name| name.to_owned());
        Self(services.iter().flat_map(both).chain(further).collect())
    }
}

/// Certificates and keys as PEM, under the names that `kubernetes.io/tls` Secrets use.
#[derive(Clone, PartialEq, Eq)]
pub struct Authority {
    /// `ca.crt`: what callers must trust.
    pub ca_crt: String,
    /// `ca.key`: never leaves the Secret.
    pub ca_key: String,
    /// `tls.crt`: the leaf that servers show; empty before the authority signs its first.
    pub tls_crt: String,
    /// `tls.key`: the leaf's key.
    pub tls_key: String,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority").field("ca_crt", &self.ca_crt).finish_non_exhaustive()
    }
}

/// What is due, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Nothing.
    Good,
    /// A new leaf; the authority stays.
    LeafDue(String),
    /// Another authority. The leaf can be shown until that one is trusted.
    AuthorityDue(String),
    /// Another authority, and there is no leaf to show meanwhile.
    Lost(String),
}

impl Authority {
    /// A new authority with its first leaf.
    pub fn issue(names: &Names, now: Timestamp) -> Result<Self, Error> {
        Self::without_leaf(now)?.with_new_leaf(names, now)
    }

    /// A new authority that has signed nothing yet.
    pub fn without_leaf(now: Timestamp) -> Result<Self, Error> {
        let key = KeyPair::generate()?;
        let mut params = params("tidegate authority", now, now + AUTHORITY_LIFE);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let ca_crt = params.self_signed(&key)?.pem();
        let empty = String::new;
        Ok(Self { ca_crt, ca_key: key.serialize_pem(), tls_crt: empty(), tls_key: empty() })
    }

    /// The same authority with a new leaf.
    pub fn with_new_leaf(&self, names: &Names, now: Timestamp) -> Result<Self, Error> {
        let issuer = Issuer::from_ca_cert_pem(&self.ca_crt, KeyPair::from_pem(&self.ca_key)?)?;
        let key = KeyPair::generate()?;
        let end = (now + LEAF_LIFE).min(expiry(&self.ca_crt)?);
        let mut params = params("tidegate", now, end);
        params.subject_alt_names = CertificateParams::new(names.0.clone())?.subject_alt_names;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let tls_crt = params.signed_by(&key, &issuer)?.pem();
        Ok(Self { tls_crt, tls_key: key.serialize_pem(), ..self.clone() })
    }

    /// What is due at this time for a server of these names.
    #[must_use]
    pub fn standing(&self, names: &Names, now: Timestamp) -> Standing {
        match (self.leaf_lasts(names, now), self.signs(now)) {
            (Ok(()), Ok(end)) if end <= now + AUTHORITY_MARGIN => {
                Standing::AuthorityDue("the authority comes to its end".to_owned())
            }
            (Ok(()), Ok(_)) => Standing::Good,
            (Err(why), Ok(_)) => Standing::LeafDue(why.to_string()),
            (_, Err(why)) if self.serves(names, now) => Standing::AuthorityDue(why.to_string()),
            (_, Err(why)) => Standing::Lost(why.to_string()),
        }
    }

    /// Whether the authority can sign; if so, when it ends. Whether it has time for a whole
    /// leaf is of no matter: a shorter leaf is better than none.
    pub(super) fn signs(&self, now: Timestamp) -> Result<Timestamp, Error> {
        let end = expiry(&self.ca_crt)?;
        if end <= now + DAY {
            return Err(Error::Unusable("the authority ends within a day".to_owned()));
        }
        let key = KeyPair::from_pem(&self.ca_key)?;
        let public = rcgen::PublicKeyData::subject_public_key_info(&key);
        if public != spki(&self.ca_crt)? {
            return Err(Error::Unusable("ca.key does not belong to ca.crt".to_owned()));
        }
        Ok(end)
    }

    /// Whether callers that trust the authority accept the leaf at this time.
    pub(super) fn serves(&self, names: &Names, now: Timestamp) -> bool {
        self.leaf_holds(names, &[now]).is_ok()
    }

    /// The leaf is good and will be until well before it ends.
    fn leaf_lasts(&self, names: &Names, now: Timestamp) -> Result<(), Error> {
        let margin = LEAF_MARGIN.min(expiry(&self.ca_crt)?.duration_since(now) / 2);
        self.leaf_holds(names, &[now, now + margin])
    }

    /// The leaf matches its key, carries each name, and is signed by the authority and
    /// valid at these times.
    fn leaf_holds(&self, names: &Names, times: &[Timestamp]) -> Result<(), Error> {
        super::resolver::pair(self.tls_crt.as_bytes(), self.tls_key.as_bytes())?;
        let leaf = certificate(&self.tls_crt)?;
        let leaf = ParsedCertificate::try_from(&leaf).map_err(unusable)?;
        let mut roots = RootCertStore::empty();
        roots.add(certificate(&self.ca_crt)?).map_err(unusable)?;
        for &time in times {
            let algorithms = ring::default_provider().signature_verification_algorithms.all;
            verify_server_cert_signed_by_trust_anchor(&leaf, &roots, &[], unix(time), algorithms)
                .map_err(unusable)?;
        }
        names.0.iter().try_for_each(|name| {
            let name = ServerName::try_from(name.as_str()).map_err(unusable)?;
            verify_server_name(&leaf, &name).map_err(unusable)
        })
    }
}

/// When the first certificate of a PEM text ends.
fn expiry(pem: &str) -> Result<Timestamp, Error> {
    let der = certificate(pem)?;
    let (_, x509) = x509_parser::parse_x509_certificate(&der).map_err(unusable)?;
    Timestamp::from_second(x509.validity().not_after.timestamp()).map_err(unusable)
}

/// Whether this is one certificate that has not ended.
pub(super) fn is_certificate(pem: &str, now: Timestamp) -> bool {
    expiry(pem).is_ok_and(|end| end > now)
}

fn spki(pem: &str) -> Result<Vec<u8>, Error> {
    let der = certificate(pem)?;
    let (_, x509) = x509_parser::parse_x509_certificate(&der).map_err(unusable)?;
    Ok(x509.public_key().raw.to_vec())
}

fn certificate(pem: &str) -> Result<CertificateDer<'static>, Error> {
    CertificateDer::from_pem_slice(pem.as_bytes()).map_err(unusable)
}

fn unusable(error: impl std::fmt::Display) -> Error {
    Error::Unusable(error.to_string())
}

fn params(common_name: &str, now: Timestamp, end: Timestamp) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    params.not_before = date_time_ymd(1970, 1, 1) + since_epoch(now - SKEW);
    params.not_after = date_time_ymd(1970, 1, 1) + since_epoch(end);
    params.use_authority_key_identifier_extension = true;
    params
}

fn unix(time: Timestamp) -> UnixTime {
    UnixTime::since_unix_epoch(since_epoch(time))
}

/// Certificates before 1970 do not occur.
fn since_epoch(time: Timestamp) -> Duration {
    Duration::from_secs(u64::try_from(time.as_second()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names {
        Names::of_services("tidegate-system", &["tidegate-webhook", "tidegate"], &["localhost"])
    }

    fn day(n: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000).unwrap() + DAY * i32::try_from(n).unwrap()
    }

    fn fresh() -> Authority {
        Authority::issue(&names(), day(0)).unwrap()
    }

    #[test]
    fn a_leaf_is_good_for_sixty_days() {
        let authority = fresh();
        assert_eq!(authority.standing(&names(), day(59)), Standing::Good);
        assert!(matches!(authority.standing(&names(), day(61)), Standing::LeafDue(_)));
        assert!(matches!(authority.standing(&names(), day(500)), Standing::LeafDue(_)));
    }

    #[rstest::rstest]
    #[case(1)]
    #[case(-1)]
    fn what_a_clock_an_hour_off_makes_is_good_for_all_others(#[case] hours: i64) {
        let maker = day(0) + SignedDuration::from_hours(hours);
        let authority = Authority::issue(&names(), maker).unwrap();
        for reader in [-1, 0, 1].map(|hours| day(0) + SignedDuration::from_hours(hours)) {
            assert_eq!(authority.standing(&names(), reader), Standing::Good);
        }
    }

    #[test]
    fn a_new_leaf_keeps_the_authority() {
        let old = fresh();
        let new = old.with_new_leaf(&names(), day(61)).unwrap();
        assert_eq!((&new.ca_crt, &new.ca_key), (&old.ca_crt, &old.ca_key));
        assert_ne!(new.tls_key, old.tls_key);
        assert_eq!(new.standing(&names(), day(61)), Standing::Good);
    }

    #[test]
    fn another_name_needs_another_leaf() {
        let more = Names::of_services("tidegate-system", &["tidegate-webhook"], &["example.org"]);
        assert!(matches!(fresh().standing(&more, day(1)), Standing::LeafDue(_)));
    }

    #[test]
    fn an_authority_is_followed_before_its_end_and_lost_after_it() {
        let authority = fresh();
        let late = |n| authority.with_new_leaf(&names(), day(n)).unwrap();
        assert_eq!(late(3400).standing(&names(), day(3400)), Standing::Good);
        let last = late(3640);
        assert!(matches!(last.standing(&names(), day(3640)), Standing::AuthorityDue(_)));
        assert!(matches!(last.standing(&names(), day(3651)), Standing::AuthorityDue(_)));
        assert!(matches!(last.standing(&names(), day(3653)), Standing::Lost(_)));
    }

    #[test]
    fn an_authority_that_cannot_sign_is_followed_while_its_leaf_holds() {
        let authority = fresh();
        for ca_key in ["x".to_owned(), fresh().ca_key] {
            let broken = Authority { ca_key, ..authority.clone() };
            assert!(matches!(broken.standing(&names(), day(1)), Standing::AuthorityDue(_)));
            assert!(matches!(broken.standing(&names(), day(91)), Standing::Lost(_)));
        }
        let broken = Authority { ca_crt: String::new(), ..authority };
        assert!(matches!(broken.standing(&names(), day(1)), Standing::Lost(_)));
    }

    #[test]
    fn a_leaf_of_another_authority_or_key_is_replaced() {
        let (authority, other) = (fresh(), fresh());
        for broken in [
            Authority { tls_key: other.tls_key.clone(), ..authority.clone() },
            Authority { tls_crt: other.tls_crt, tls_key: other.tls_key, ..authority.clone() },
            Authority { tls_crt: String::new(), ..authority.clone() },
        ] {
            assert!(matches!(broken.standing(&names(), day(1)), Standing::LeafDue(_)));
        }
    }

    #[test]
    fn keys_are_not_printed() {
        let authority = fresh();
        let printed = format!("{authority:?}");
        assert!(printed.contains("BEGIN CERTIFICATE") && !printed.contains("PRIVATE KEY"));
    }
}

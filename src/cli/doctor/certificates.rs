//! Whether the apiserver trusts us, and for how long.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use serde_json::Value;
use x509_parser::pem::Pem;

use super::finding::Finding;
use super::installed::Installation;
use super::{Site, unreadable};
use crate::certs::SKEW;
use crate::report::human;

const SECRET: &str = "tidegate-tls";
const BUNDLES: &str = "bundles";
const LEAF: &str = "certificate";
/// The part of its life that a leaf has left when it should long have been renewed: both
/// we and cert-manager do so when a third is left.
const LATE: i64 = 4;
/// An authority with less to live than this is worth a look, in milliseconds.
const AUTHORITY_SOON: i64 = 30 * 24 * 3_600_000;

/// Looks at all bundles and, if it may, at the Secret of our certificates.
pub async fn check(site: &Site, installation: &Installation) -> Vec<Finding> {
    let now = Timestamp::now().as_millisecond();
    let own = installation.own_certificates();
    let bundles: Vec<_> =
        installation.bundles().into_iter().map(|(name, text)| (name, decode(&text))).collect();
    let secrets: Api<Secret> = Api::namespaced(site.client.clone(), &site.namespace);
    match secrets.get_opt(SECRET).await {
        Ok(Some(secret)) => {
            let entry = |key: &str| entry(&secret, key);
            vec![trust(&bundles, &entry("ca.crt"), own, now), leaf(&entry("tls.crt"), own, now)]
        }
        Ok(None) => vec![
            trust(&bundles, "", own, now),
            Finding::fail(LEAF, format!("Secret {SECRET} is missing"), keeper(own)),
        ],
        Err(error) => vec![trust(&bundles, "", own, now), unreadable(LEAF, SECRET, &error)],
    }
}

fn decode(base64: &str) -> String {
    let bytes = serde_json::from_value::<ByteString>(Value::String(base64.to_owned()));
    bytes.map(|bytes| String::from_utf8_lossy(&bytes.0).into_owned()).unwrap_or_default()
}

fn entry(secret: &Secret, key: &str) -> String {
    let bytes = secret.data.as_ref().and_then(|data| data.get(key));
    bytes.map(|bytes| String::from_utf8_lossy(&bytes.0).into_owned()).unwrap_or_default()
}

fn keeper(own: bool) -> &'static str {
    if own {
        "the controller makes it within seconds: see whether it runs, and its log"
    } else {
        "cert-manager makes it: kubectl describe certificate tidegate-tls"
    }
}

/// Whether each place that holds a bundle holds the authority of the Secret. With an empty
/// `authority` that cannot be told.
fn trust(bundles: &[(String, String)], authority: &str, own: bool, now: i64) -> Finding {
    let named = |is: &dyn Fn(&str) -> bool| {
        let names = bundles.iter().filter(|(_, bundle)| is(bundle)).map(|(name, _)| name.as_str());
        let mut names: Vec<_> = names.collect();
        names.dedup();
        names.join(", ")
    };
    let ends = |bundle: &str| lives(bundle).into_iter().map(|(_, end)| end).max().unwrap_or(0);
    let empty = named(&|bundle| lives(bundle).is_empty());
    let strange = named(&|bundle| !bundle.contains(authority.trim()));
    let expired = named(&|bundle| ends(bundle) <= now);
    let ending = named(&|bundle| ends(bundle) <= now + AUTHORITY_SOON);
    let distinct = bundles.iter().any(|(_, bundle)| bundles.iter().any(|(_, b)| b != bundle));
    let fail =
        |what: &str, names: &str| Finding::fail(BUNDLES, format!("{what}: {names}"), keeper(own));
    match () {
        () if bundles.is_empty() => Finding::warn(
            BUNDLES,
            "nothing that holds one could be read",
            "see the checks of the gate and of queue checks",
        ),
        () if !empty.is_empty() => fail("no authority is trusted by", &empty),
        () if !strange.is_empty() => {
            fail("another authority than the Secret's is trusted by", &strange)
        }
        () if !expired.is_empty() => fail("only expired authorities are trusted by", &expired),
        () if distinct => Finding::warn(
            BUNDLES,
            "not all places trust the same authorities",
            "while one authority follows another this is so for seconds: look again",
        ),
        () if !ending.is_empty() => {
            let what = format!("authorities end within a month: {ending}");
            Finding::warn(BUNDLES, what, keeper(own))
        }
        () => Finding::ok(
            BUNDLES,
            format!("the same authority is trusted in {} places", bundles.len()),
        ),
    }
}

/// Whether the leaf that servers show is valid and was renewed in time. Our own is valid since
/// some time before it was made.
fn leaf(pem: &str, own: bool, now: i64) -> Finding {
    let Some((begin, end)) = lives(pem).into_iter().next() else {
        let remedy = "delete the Secret: the controller makes another";
        return Finding::fail(
            LEAF,
            format!("tls.crt in Secret {SECRET} is no certificate"),
            remedy,
        );
    };
    let made = if own { begin.saturating_add(millis(SKEW)) } else { begin };
    let age = human(now.saturating_sub(made).max(0));
    let said = format!("made {age} ago, ends in {}", human(end - now));
    if end <= now {
        return Finding::fail(LEAF, format!("ended {} ago", human(now - end)), keeper(true));
    }
    if begin > now {
        let remedy = "the clock of the controller, or of this machine, is wrong";
        return Finding::fail(LEAF, format!("begins in {}", human(begin - now)), remedy);
    }
    if (end - now).saturating_mul(LATE) < end - begin {
        return Finding::warn(LEAF, format!("{said}: it is late to be renewed"), keeper(true));
    }
    Finding::ok(LEAF, said)
}

/// Begin and end of each certificate, in milliseconds since the epoch.
fn lives(pem: &str) -> Vec<(i64, i64)> {
    let blocks = Pem::iter_from_buffer(pem.as_bytes()).filter_map(Result::ok);
    let life = |block: Pem| {
        let certificate = block.parse_x509().ok()?;
        let validity = certificate.validity();
        let millis = |time: x509_parser::time::ASN1Time| time.timestamp().saturating_mul(1000);
        Some((millis(validity.not_before), millis(validity.not_after)))
    };
    blocks.filter_map(life).collect()
}

fn millis(duration: SignedDuration) -> i64 {
    duration.as_secs().saturating_mul(1000)
}

#[cfg(test)]
mod tests {
    use super::super::finding::Verdict;
    use super::*;
    use crate::certs::{Authority, Names};
    use rstest::rstest;

    fn authority(days_ago: i64) -> Authority {
        let made = Timestamp::now() - SignedDuration::from_hours(24 * days_ago);
        Authority::issue(&Names::of_services("ns", &["s"], &[]), made).unwrap()
    }

    fn now() -> i64 {
        Timestamp::now().as_millisecond()
    }

    #[rstest]
    #[case::new(0, Verdict::Ok)]
    #[case::before_its_renewal(59, Verdict::Ok)]
    #[case::late(80, Verdict::Warn)]
    #[case::over(91, Verdict::Fail)]
    #[case::not_yet(-2, Verdict::Fail)]
    fn a_leaf_is_judged_by_its_age(#[case] days: i64, #[case] verdict: Verdict) {
        let found = leaf(&authority(days).tls_crt, true, now());
        assert_eq!(found.verdict, verdict, "{found:?}");
    }

    #[test]
    fn what_is_no_certificate_is_told() {
        assert_eq!(leaf("", true, now()).verdict, Verdict::Fail);
        let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n";
        assert_eq!(leaf(broken, true, now()).verdict, Verdict::Fail);
    }

    #[test]
    fn the_age_of_a_leaf_is_told_from_when_it_was_made() {
        let pem = authority(0).tls_crt;
        let (begin, _) = lives(&pem)[0];
        let said = |own| leaf(&pem, own, begin + millis(SKEW) + 5_000).message;
        assert!(said(true).starts_with("made 5s ago"), "{}", said(true));
        // One of somebody else begins when it was made.
        assert!(said(false).starts_with("made 24h ago"), "{}", said(false));
    }

    #[test]
    fn every_place_must_trust_the_authority_of_the_secret() {
        let (ours, other) = (authority(0).ca_crt, authority(0).ca_crt);
        let judge = |bundles: &[&str], authority: &str| {
            let named =
                |(at, bundle): (usize, &&str)| (format!("place {at}"), (*bundle).to_owned());
            let bundles: Vec<_> = bundles.iter().enumerate().map(named).collect();
            let found = trust(&bundles, authority, true, now());
            (found.verdict, found.message)
        };
        let both = format!("{ours}{other}");
        assert_eq!(judge(&[&ours, &ours], &ours).0, Verdict::Ok);
        assert_eq!(judge(&[&both, &both], &ours).0, Verdict::Ok);
        assert_eq!(judge(&[&ours, &both], &ours).0, Verdict::Warn);
        let (verdict, said) = judge(&[&ours, &other], &ours);
        assert!(verdict == Verdict::Fail && said.ends_with("trusted by: place 1"), "{said}");
        let (verdict, said) = judge(&["", &ours], "");
        assert!(verdict == Verdict::Fail && said.contains("no authority"), "{said}");
        let ended = authority(4000).ca_crt;
        assert_eq!(judge(&[&ended], &ended).0, Verdict::Fail);
    }
}

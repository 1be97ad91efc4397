//! Whether our programs run where the chart puts them, and what time it is there.

use std::time::Duration;

use http::Request;
use http::header::DATE;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::client::Body;
use kube::{Api, Error};

use super::finding::Finding;
use super::{Site, unreadable};
use crate::api::names::{EPOCH_KEY, EPOCH_OBJECT, LEASE};
use crate::report::human;

const CHECK: &str = "programs";
const CLOCK: &str = "clock";
const EPOCH: &str = "epoch";
/// Both Deployments of the chart.
const DEPLOYMENTS: [&str; 2] = ["tidegate-controller", "tidegate-webhook"];
/// Clocks that differ by no more than this are as good as equal.
const SKEW: Duration = Duration::from_secs(5);

/// Deployments, and what the election keeps.
pub async fn check(site: &Site) -> Vec<Finding> {
    let mut findings = Vec::new();
    for name in DEPLOYMENTS {
        findings.push(deployment(site, name).await);
    }
    findings.push(lease(site).await);
    findings.push(epoch(site).await);
    findings
}

async fn deployment(site: &Site, name: &str) -> Finding {
    let api: Api<Deployment> = Api::namespaced(site.client.clone(), &site.namespace);
    let found = match api.get_opt(name).await {
        Ok(Some(found)) => found,
        Ok(None) => {
            let what = format!("Deployment {name} is not in namespace {}", site.namespace);
            let remedy = "name the namespace of the installation with -n, or install the chart";
            return Finding::fail(CHECK, what, remedy);
        }
        Err(error) => return unreadable(CHECK, &format!("Deployment {name}"), &error),
    };
    let wanted = found.spec.and_then(|spec| spec.replicas).unwrap_or(1);
    let ready = found.status.and_then(|status| status.ready_replicas).unwrap_or(0);
    replicas(site, name, ready, wanted)
}

fn replicas(site: &Site, name: &str, ready: i32, wanted: i32) -> Finding {
    let remedy =
        format!("kubectl -n {} describe deployment {name}, and its pods' logs", site.namespace);
    let said = format!("{name}: {ready} of {wanted} ready");
    match ready {
        _ if wanted == 0 => Finding::ok(CHECK, format!("{name}: runs outside the cluster")),
        _ if ready >= wanted => Finding::ok(CHECK, said),
        0 => Finding::fail(CHECK, said, remedy),
        _ => Finding::warn(CHECK, said, remedy),
    }
}

/// Whoever leads renews its Lease all the time.
async fn lease(site: &Site) -> Finding {
    let api: Api<Lease> = Api::namespaced(site.client.clone(), &site.namespace);
    let spec = match api.get_opt(LEASE).await {
        Ok(lease) => lease.and_then(|lease| lease.spec).unwrap_or_default(),
        Err(error) => return unreadable("lease", LEASE, &error),
    };
    let Some(renewed) = spec.renew_time.map(|time| time.0.as_millisecond()) else {
        return Finding::warn(
            "lease",
            format!("Lease {LEASE} is not there: no controller leads, or one without election"),
            "see whether the controllers run, and their logs: the next leader makes it",
        );
    };
    let holder = spec.holder_identity.filter(|holder| !holder.is_empty());
    let age = Timestamp::now().as_millisecond() - renewed;
    let most = i64::from(spec.lease_duration_seconds.unwrap_or(15)).saturating_mul(1000);
    judge_lease(holder.as_deref(), age, most)
}

/// The number that releases of earlier leaders are refused by.
async fn epoch(site: &Site) -> Finding {
    let api: Api<ConfigMap> = Api::namespaced(site.client.clone(), &site.namespace);
    match api.get_opt(EPOCH_OBJECT).await {
        Ok(object) => judge_epoch(object.as_ref()),
        Err(error) => unreadable(EPOCH, EPOCH_OBJECT, &error),
    }
}

fn judge_epoch(object: Option<&ConfigMap>) -> Finding {
    let written = object.and_then(|object| object.data.as_ref()?.get(EPOCH_KEY));
    match written.and_then(|text| text.parse::<u64>().ok()) {
        Some(epoch) => {
            Finding::ok(EPOCH, format!("releases of leaders before {epoch} are refused"))
        }
        None => Finding::warn(
            EPOCH,
            format!(
                "ConfigMap {EPOCH_OBJECT} holds no number: a leader that was replaced is not fenced off"
            ),
            "the leader puts it back within seconds: see whether a controller runs, and its log",
        ),
    }
}

fn judge_lease(holder: Option<&str>, age: i64, most: i64) -> Finding {
    let check = "lease";
    let skew = i64::try_from(SKEW.as_millis()).unwrap_or(i64::MAX);
    let remedy = "see whether the controllers run, and their logs";
    match holder {
        None => Finding::fail(check, "no controller leads", remedy),
        Some(holder) if age > most + skew => {
            Finding::fail(check, format!("{holder} renewed it {} ago", human(age)), remedy)
        }
        Some(holder) if age < -skew => Finding::warn(
            check,
            format!("{holder} renewed it {} from now", human(-age)),
            "its clock, or that of this machine, is wrong: see the check of the clock",
        ),
        Some(holder) => Finding::ok(check, format!("{holder} leads")),
    }
}

/// The apiserver's clock against this machine's.
pub async fn clock(site: &Site) -> Vec<Finding> {
    let before = Timestamp::now();
    let date = date(site).await;
    let after = Timestamp::now();
    vec![match date {
        Ok(Some(theirs)) => judge_clock(theirs, before, after),
        Ok(None) => {
            Finding::warn(CLOCK, "the apiserver tells no time", "look at its clock yourself")
        }
        Err(error) => unreadable(CLOCK, "the apiserver's time", &error),
    }]
}

async fn date(site: &Site) -> Result<Option<Timestamp>, Error> {
    let request = Request::get("/version").body(Body::empty()).map_err(Error::HttpError)?;
    let response = site.client.send(request).await?;
    let header = response.headers().get(DATE).and_then(|date| date.to_str().ok());
    let read = header.and_then(|date| jiff::fmt::rfc2822::parse(date).ok());
    Ok(read.map(|time| time.timestamp()))
}

/// A `Date` has whole seconds and was written some time between question and answer.
fn judge_clock(theirs: Timestamp, before: Timestamp, after: Timestamp) -> Finding {
    let [theirs, before, after] = [theirs, before, after].map(Timestamp::as_millisecond);
    let behind = (before - theirs - 1000).max(0);
    let ahead = (theirs - after).max(0);
    let off = behind.max(ahead);
    if u128::try_from(off).unwrap_or(0) <= SKEW.as_millis() {
        return Finding::ok(CLOCK, "this machine and the apiserver agree to within seconds");
    }
    let which = if behind > 0 { "behind" } else { "ahead of" };
    Finding::warn(
        CLOCK,
        format!("the apiserver's clock is {} {which} this machine's", human(off)),
        "ages here are wrong by as much; certificates bear an hour: set the clock that is off",
    )
}

#[cfg(test)]
mod tests {
    use super::super::finding::Verdict;
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::same(0, Verdict::Ok)]
    #[case::cut_to_seconds(-999, Verdict::Ok)]
    #[case::a_little(4_000, Verdict::Ok)]
    #[case::ahead(60_000, Verdict::Warn)]
    #[case::behind(-60_000, Verdict::Warn)]
    fn clocks_are_compared_with_the_time_the_question_took(
        #[case] off: i64,
        #[case] verdict: Verdict,
    ) {
        let now = Timestamp::now();
        let theirs = Timestamp::from_millisecond(now.as_millisecond() + off).unwrap();
        let found = judge_clock(theirs, now, now + jiff::SignedDuration::from_millis(200));
        assert_eq!(found.verdict, verdict, "{found:?}");
    }

    #[rstest]
    #[case::emptied(None, Verdict::Warn)]
    #[case::no_number(Some("-1"), Verdict::Warn)]
    #[case::whole(Some("7"), Verdict::Ok)]
    fn without_an_epoch_nobody_is_fenced_off(#[case] text: Option<&str>, #[case] verdict: Verdict) {
        let data = text.map(|text| [(EPOCH_KEY.to_owned(), text.to_owned())].into());
        let object = ConfigMap { data, ..ConfigMap::default() };
        assert_eq!(judge_epoch(Some(&object)).verdict, verdict);
        assert_eq!(judge_epoch(None).verdict, Verdict::Warn);
    }

    #[rstest]
    #[case::fresh(Some("a"), 2_000, Verdict::Ok)]
    #[case::old(Some("a"), 60_000, Verdict::Fail)]
    #[case::of_the_future(Some("a"), -60_000, Verdict::Warn)]
    #[case::given_back(None, 1_000, Verdict::Fail)]
    fn a_lease_must_be_renewed(
        #[case] holder: Option<&str>,
        #[case] age: i64,
        #[case] verdict: Verdict,
    ) {
        assert_eq!(judge_lease(holder, age, 15_000).verdict, verdict);
    }
}

//! What waits, and namespaces whose labels do not do what was meant.

use std::collections::BTreeSet;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::ListParams;
use kube::{Api, Error, ResourceExt};

use super::finding::Finding;
use super::trials::is_gated;
use super::{Site, unreadable};
use crate::api::names::{LABEL_MANAGED, LABEL_QUEUE, MANAGED};
use crate::api::v1alpha1::Queue;
use crate::report::human;

const WAITING: &str = "waiting pods";
const NAMESPACES: &str = "namespaces";
/// Pods asked for at a time, and how often: a count beyond is a lower bound.
const PAGE: u32 = 500;
const PAGES: usize = 40;
/// Mistakes that are named.
const NAMED: usize = 5;

/// Counts what waits; whether the controller `answers` says if it will go on.
pub async fn check(site: &Site, answers: bool) -> Vec<Finding> {
    vec![waiting(site, answers).await, namespaces(site).await]
}

#[derive(Debug, Default)]
struct Count {
    pods: usize,
    more: bool,
    oldest: Option<Timestamp>,
}

async fn waiting(site: &Site, answers: bool) -> Finding {
    match count(site).await {
        Ok(count) => judge(&count, answers, Timestamp::now()),
        Err(error) => unreadable(WAITING, "pods", &error),
    }
}

async fn count(site: &Site) -> Result<Count, Error> {
    let api: Api<Pod> = Api::all(site.client.clone());
    let mut count = Count::default();
    let managed = ListParams::default().labels(&format!("{LABEL_MANAGED}={MANAGED}")).limit(PAGE);
    let mut token: Option<String> = None;
    for _ in 0..PAGES {
        let page = match &token {
            Some(token) => managed.clone().continue_token(token),
            None => managed.clone(),
        };
        let list = api.list(&page).await?;
        for pod in list.items.iter().filter(|pod| is_gated(pod)) {
            count.pods += 1;
            let created = pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
            count.oldest = count.oldest.into_iter().chain(created).min();
        }
        token = list.metadata.continue_.filter(|token| !token.is_empty());
        if token.is_none() {
            return Ok(count);
        }
    }
    Ok(Count { more: true, ..count })
}

fn judge(count: &Count, answers: bool, now: Timestamp) -> Finding {
    let Count { pods, more, oldest } = count;
    let least = if *more { "at least " } else { "" };
    let age = |oldest: &Timestamp| human(now.as_millisecond() - oldest.as_millisecond());
    let oldest = oldest.as_ref().map(|oldest| format!(", the oldest for {}", age(oldest)));
    let said = format!("{least}{pods} wait{}", oldest.unwrap_or_default());
    if *pods > 0 && !answers {
        let remedy = "nothing lets them go until a controller runs: see the check of programs";
        return Finding::fail(WAITING, format!("{said}, and no controller answers"), remedy);
    }
    Finding::ok(WAITING, said)
}

async fn namespaces(site: &Site) -> Finding {
    let all: Api<Namespace> = Api::all(site.client.clone());
    let labelled = match all.list(&ListParams::default().labels(LABEL_MANAGED)).await {
        Ok(list) => list.items,
        Err(error) => return unreadable(NAMESPACES, "namespaces", &error),
    };
    let queues: Api<Queue> = Api::all(site.client.clone());
    let queues = match queues.list_metadata(&ListParams::default()).await {
        Ok(list) => list.iter().map(ResourceExt::name_any).collect(),
        Err(error) => return unreadable(NAMESPACES, "queues", &error),
    };
    judge_namespaces(&labelled, &queues)
}

fn judge_namespaces(labelled: &[Namespace], queues: &BTreeSet<String>) -> Finding {
    let mut mistakes: Vec<_> = labelled.iter().filter_map(|one| mistake(one, queues)).collect();
    let opted_in = labelled.iter().filter(|namespace| is_opted_in(namespace)).count();
    if mistakes.is_empty() {
        return Finding::ok(NAMESPACES, format!("{opted_in} opted in"));
    }
    let more = mistakes.len().saturating_sub(NAMED);
    mistakes.truncate(NAMED);
    if more > 0 {
        mistakes.push(format!("and {more} more"));
    }
    let remedy = "kubectl label namespace NAME --overwrite tidegate.dev/managed=true tidegate.dev/queue=QUEUE";
    Finding::warn(NAMESPACES, format!("{opted_in} opted in; {}", mistakes.join("; ")), remedy)
}

fn is_opted_in(namespace: &Namespace) -> bool {
    namespace.labels().get(LABEL_MANAGED).is_some_and(|value| value == MANAGED)
}

fn mistake(namespace: &Namespace, queues: &BTreeSet<String>) -> Option<String> {
    let (name, labels) = (namespace.name_any(), namespace.labels());
    if !is_opted_in(namespace) {
        let value = labels.get(LABEL_MANAGED).map(String::as_str).unwrap_or_default();
        return Some(format!("{name} has {LABEL_MANAGED}={value:?}, which does nothing"));
    }
    let queue = labels.get(LABEL_QUEUE).filter(|queue| !queue.is_empty())?;
    let missing = !queues.contains(queue);
    missing.then(|| format!("{name} names queue {queue:?}, which does not exist"))
}

#[cfg(test)]
mod tests {
    use super::super::finding::Verdict;
    use super::*;
    use jiff::SignedDuration;
    use rstest::rstest;
    use serde_json::{Value, json};

    #[rstest]
    #[case::nothing(0, false, Verdict::Ok, "0 wait")]
    #[case::controlled(3, true, Verdict::Ok, "3 wait, the oldest for 90s")]
    #[case::forgotten(3, false, Verdict::Fail, "no controller answers")]
    fn what_waits_needs_a_controller(
        #[case] pods: usize,
        #[case] answers: bool,
        #[case] verdict: Verdict,
        #[case] said: &str,
    ) {
        let now = Timestamp::now();
        let oldest = (pods > 0).then(|| now - SignedDuration::from_secs(90));
        let found = judge(&Count { pods, more: false, oldest }, answers, now);
        assert!(found.verdict == verdict && found.message.contains(said), "{found:?}");
        let more = judge(&Count { pods: 20_000, more: true, oldest }, true, now);
        assert!(more.message.starts_with("at least 20000 wait"), "{more:?}");
    }

    #[test]
    fn labels_that_do_nothing_are_named() {
        let namespace = |name: &str, labels: Value| -> Namespace {
            serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}})).unwrap()
        };
        let managed = |value: &str, queue: &str| json!({LABEL_MANAGED: value, LABEL_QUEUE: queue});
        let queues = BTreeSet::from(["a".to_owned()]);
        let good = namespace("good", managed("true", "a"));
        let none = namespace("none", json!({LABEL_MANAGED: "true"}));
        let both = [good.clone(), none];
        assert_eq!(judge_namespaces(&both, &queues), Finding::ok(NAMESPACES, "2 opted in"));
        let bad =
            [good, namespace("yes", managed("yes", "a")), namespace("typo", managed("true", "b"))];
        let found = judge_namespaces(&bad, &queues);
        assert_eq!(found.verdict, Verdict::Warn);
        for said in ["2 opted in", "yes has tidegate.dev/managed=\"yes\"", "typo names queue \"b\""]
        {
            assert!(found.message.contains(said), "{found:?}");
        }
    }
}

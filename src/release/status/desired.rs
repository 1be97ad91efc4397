//! The engine's numbers as a queue's status. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::api::v1alpha1::{self, Backlog, Count, QueueCondition};
use crate::engine::Millis;
use crate::engine::action::{Full, PastUsage, QueueStatus};
use crate::quantity::{self, Quantity};
use crate::release::time::{rfc3339, rfc3339_seconds};

/// What should stand there, given what stands there now.
pub(super) fn status(
    seen: &QueueStatus,
    old: &v1alpha1::QueueStatus,
    now: Millis,
) -> v1alpha1::QueueStatus {
    v1alpha1::QueueStatus {
        observed_generation: Some(seen.generation),
        pending: count(seen.pending),
        running: count(seen.running),
        usage: amounts(&seen.usage),
        entitlement: amounts(&seen.entitlement),
        past_usage: seen.past.as_ref().map(past),
        share: percent(seen.share),
        oldest_pending: seen.oldest.map(rfc3339_seconds),
        backlog: seen.full.as_ref().map(backlog),
        conditions: [ready(seen), over_limit(seen), beyond_capacity(seen), releasing(seen)]
            .into_iter()
            .chain(backlog_full(seen))
            .map(|condition| since(condition, old, now))
            .collect(),
    }
}

fn amounts(units: &BTreeMap<Arc<str>, i128>) -> BTreeMap<String, String> {
    let amount = |(name, &units): (&Arc<str>, _)| (name.to_string(), quantity::format(name, units));
    units.iter().map(amount).collect()
}

fn past(past: &PastUsage) -> v1alpha1::PastUsage {
    v1alpha1::PastUsage {
        as_of: rfc3339(past.at),
        usage: millionths(&past.whole),
        own: millionths(&past.own),
    }
}

fn millionths(amounts: &BTreeMap<Arc<str>, i128>) -> BTreeMap<String, String> {
    let text = |(name, &amount): (&Arc<str>, _)| {
        (name.to_string(), Quantity::of_millionths(name, amount).to_string())
    };
    amounts.iter().map(text).collect()
}

fn backlog(full: &Full) -> Backlog {
    let texts = |names: &[Arc<str>]| names.iter().map(ToString::to_string).collect();
    Backlog {
        pods: whole(full.pods),
        renewed: rfc3339_seconds(full.renewed),
        owners: texts(&full.owners),
        namespaces: texts(&full.namespaces),
    }
}

fn whole(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn count((groups, pods): (u64, u64)) -> Count {
    Count { groups: whole(groups), pods: whole(pods) }
}

/// Thousandths as percent. Without a fleet there is no share of it.
fn percent(per_mille: u64) -> Option<String> {
    (per_mille < u64::MAX).then(|| format!("{}.{}%", per_mille / 10, per_mille % 10))
}

fn ready(seen: &QueueStatus) -> QueueCondition {
    match &seen.ready {
        Ok(()) => condition("Ready", true, "Accepting", "waiting work may start"),
        Err((reason, message)) => condition("Ready", false, reason, message),
    }
}

fn over_limit(seen: &QueueStatus) -> QueueCondition {
    match &seen.over_limit {
        Some(message) => condition("OverLimit", true, "LimitExceeded", message),
        None => condition("OverLimit", false, "WithinLimit", "no more is charged than the limit"),
    }
}

fn beyond_capacity(seen: &QueueStatus) -> QueueCondition {
    let type_ = "GuaranteedBeyondCapacity";
    match &seen.beyond_capacity {
        Some(message) => condition(type_, true, "CapacityExceeded", message),
        None => condition(type_, false, "WithinCapacity", "no more is guaranteed than there is"),
    }
}

fn releasing(seen: &QueueStatus) -> QueueCondition {
    match seen.releasing {
        Ok(()) => {
            condition("Releasing", true, "NotPaused", "gates of work that may start are opened")
        }
        Err((reason, message)) => {
            let message = format!("releases are paused: {message}");
            condition("Releasing", false, reason, &message)
        }
    }
}

/// Said only of queues that have a most.
fn backlog_full(seen: &QueueStatus) -> Option<QueueCondition> {
    let most = seen.max_pending?;
    Some(match &seen.full {
        Some(full) => {
            let message = format!(
                "{} pods wait and spec.maxPending is {most}: new pods of those who own them are \
                 refused until a tenth has gone",
                full.pods
            );
            condition("BacklogFull", true, "MaxPendingReached", &message)
        }
        None => condition("BacklogFull", false, "Open", "fewer pods wait than spec.maxPending"),
    })
}

fn condition(type_: &str, holds: bool, reason: &str, message: &str) -> QueueCondition {
    QueueCondition {
        type_: type_.to_owned(),
        status: if holds { "True" } else { "False" }.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        last_transition_time: String::new(),
    }
}

/// The time of the last change of `status`: that of the old condition, else now.
fn since(new: QueueCondition, old: &v1alpha1::QueueStatus, now: Millis) -> QueueCondition {
    let same = |old: &&QueueCondition| old.type_ == new.type_ && old.status == new.status;
    let last_transition_time = match old.conditions.iter().find(same) {
        Some(old) => old.last_transition_time.clone(),
        None => rfc3339_seconds(now),
    };
    QueueCondition { last_transition_time, ..new }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::release::tests::support::queue_status;
    use rstest::rstest;

    const NOON: Millis = 1_796_040_000_000;

    #[test]
    fn numbers_become_what_people_read() {
        let mut seen = queue_status("a", 3);
        seen.usage = [("cpu", 1_250), ("memory", 4 << 30), ("nvidia.com/gpu", 8)]
            .map(|(name, units)| (name.into(), units))
            .into();
        seen.oldest = Some(NOON - 61_500);
        seen.share = 125;
        seen.over_limit = Some("cpu 1250m of 1".to_owned());
        let status = status(&seen, &v1alpha1::QueueStatus::default(), NOON);
        insta::assert_snapshot!(serde_json::to_string_pretty(&status).unwrap(), @r#"
        {
          "observedGeneration": 4,
          "pending": {
            "groups": 1,
            "pods": 2
          },
          "running": {
            "groups": 3,
            "pods": 3
          },
          "usage": {
            "cpu": "1250m",
            "memory": "4Gi",
            "nvidia.com/gpu": "8"
          },
          "share": "12.5%",
          "oldestPending": "2026-11-30T11:58:58Z",
          "conditions": [
            {
              "type": "Ready",
              "status": "True",
              "reason": "Accepting",
              "message": "waiting work may start",
              "lastTransitionTime": "2026-11-30T12:00:00Z"
            },
            {
              "type": "OverLimit",
              "status": "True",
              "reason": "LimitExceeded",
              "message": "cpu 1250m of 1",
              "lastTransitionTime": "2026-11-30T12:00:00Z"
            },
            {
              "type": "GuaranteedBeyondCapacity",
              "status": "False",
              "reason": "WithinCapacity",
              "message": "no more is guaranteed than there is",
              "lastTransitionTime": "2026-11-30T12:00:00Z"
            },
            {
              "type": "Releasing",
              "status": "True",
              "reason": "NotPaused",
              "message": "gates of work that may start are opened",
              "lastTransitionTime": "2026-11-30T12:00:00Z"
            }
          ]
        }
        "#);
    }

    #[test]
    fn a_full_backlog_is_told_to_admission_and_to_people() {
        let mut seen = queue_status("a", 0);
        seen.max_pending = Some(100);
        let wrote = |seen: &QueueStatus| status(seen, &v1alpha1::QueueStatus::default(), NOON);
        let open = wrote(&seen);
        assert_eq!((open.backlog, open.conditions[4].status.as_str()), (None, "False"));
        seen.full = Some(Full {
            pods: 117,
            renewed: NOON,
            owners: vec!["u-1".into()],
            namespaces: vec!["lab".into()],
        });
        let full = wrote(&seen);
        insta::assert_snapshot!(serde_json::to_string(&full.backlog).unwrap(), @r#"{"pods":117,"renewed":"2026-11-30T12:00:00Z","owners":["u-1"],"namespaces":["lab"]}"#);
        let QueueCondition { reason, message, .. } = &full.conditions[4];
        insta::assert_snapshot!(format!("{reason}: {message}"), @"MaxPendingReached: 117 pods wait and spec.maxPending is 100: new pods of those who own them are refused until a tenth has gone");
    }

    #[rstest]
    #[case(0, Some("0.0%"))]
    #[case(1, Some("0.1%"))]
    #[case(1000, Some("100.0%"))]
    #[case(u64::MAX, None)]
    fn shares_are_percents_of_a_fleet(#[case] per_mille: u64, #[case] text: Option<&str>) {
        assert_eq!(percent(per_mille).as_deref(), text);
    }

    #[test]
    fn a_condition_keeps_its_time_until_its_status_turns() {
        let mut seen = queue_status("a", 0);
        let first = status(&seen, &v1alpha1::QueueStatus::default(), NOON);
        assert_eq!(status(&seen, &first, NOON + 5_000), first);

        seen.ready = Err(("QueueInvalid", "its parent is unknown".to_owned()));
        let closed = status(&seen, &first, NOON + 10_000);
        let times = |status: &v1alpha1::QueueStatus| {
            status.conditions.iter().map(|c| c.last_transition_time.clone()).collect::<Vec<_>>()
        };
        let (noon, later) = ("2026-11-30T12:00:00Z", "2026-11-30T12:00:10Z");
        assert_eq!(times(&closed), [later, noon, noon, noon]);

        seen.ready = Err(("QueueStopped", "held".to_owned()));
        let stopped = status(&seen, &closed, NOON + 20_000);
        assert_eq!(times(&stopped), times(&closed), "another reason is no transition");

        seen.releasing = Err(("ApiserverSilent", "the apiserver does not answer"));
        let paused = status(&seen, &stopped, NOON + 30_000);
        let releasing = paused.conditions.last().unwrap();
        assert_eq!(releasing.status, "False");
        assert_eq!(releasing.message, "releases are paused: the apiserver does not answer");
        assert_eq!(releasing.last_transition_time, "2026-11-30T12:00:30Z");
    }
}

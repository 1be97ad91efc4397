//! The Lease object: read, written over the version that was seen, watched.

use std::time::Duration;

use futures::stream::BoxStream;
use futures::{StreamExt as _, TryStreamExt as _};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};

use super::election::{Record, Stored, Write};
use crate::api::names::{FIELD_MANAGER, LEASE};

/// The one Lease.
#[derive(Clone)]
pub(super) struct Store {
    api: Api<Lease>,
}

impl Store {
    pub(super) fn new(client: Client, namespace: &str) -> Self {
        Self { api: Api::namespaced(client, namespace) }
    }

    pub(super) async fn read(&self) -> Result<Option<Stored>, kube::Error> {
        Ok(self.api.get_opt(LEASE).await?.map(stored))
    }

    /// Stores a record, unless something else than was seen is stored by now (409).
    pub(super) async fn write(&self, write: &Write) -> Result<Stored, kube::Error> {
        let manager = Some(FIELD_MANAGER.to_owned());
        let lease = if let Some(version) = &write.over {
            let params = PatchParams { field_manager: manager, ..PatchParams::default() };
            let metadata = json!({"resourceVersion": version});
            let patch = Patch::Merge(json!({"metadata": metadata, "spec": spec(&write.record)}));
            self.api.patch(LEASE, &params, &patch).await?
        } else {
            let mut lease = Lease::default();
            lease.metadata.name = Some(LEASE.to_owned());
            lease.spec = serde_json::from_value::<LeaseSpec>(spec(&write.record)).ok();
            let params = PostParams { field_manager: manager, ..PostParams::default() };
            self.api.create(&params, &lease).await?
        };
        Ok(stored(lease))
    }

    /// What is stored, each time that it changes. Never ends.
    pub(super) fn changes(&self) -> BoxStream<'static, Option<Stored>> {
        let ours = watcher::Config::default().fields(&format!("metadata.name={LEASE}"));
        let events = watcher(self.api.clone(), ours).default_backoff();
        let seen = events.try_filter_map(async |event| {
            Ok(match event {
                Event::Apply(lease) | Event::InitApply(lease) => Some(Some(stored(lease))),
                Event::Delete(_) => Some(None),
                Event::Init | Event::InitDone => None,
            })
        });
        let seen = seen.filter_map(async |seen| match seen {
            Ok(seen) => Some(seen),
            Err(error) => {
                tracing::debug!(%error, "lease_watch_broke");
                None
            }
        });
        seen.boxed()
    }
}

fn spec(record: &Record) -> Value {
    let micro = |time: Option<Timestamp>| time.map(MicroTime);
    json!({
        "holderIdentity": Some(&record.holder).filter(|holder| !holder.is_empty()),
        "leaseDurationSeconds": record.duration.as_secs().max(1),
        "leaseTransitions": record.transitions,
        "acquireTime": micro(record.acquired),
        "renewTime": micro(record.renewed),
    })
}

fn stored(lease: Lease) -> Stored {
    let version = lease.resource_version().unwrap_or_default();
    let spec = lease.spec.unwrap_or_default();
    let record = Record {
        holder: spec.holder_identity.unwrap_or_default(),
        duration: spec.lease_duration_seconds.map_or(Duration::ZERO, seconds),
        transitions: spec.lease_transitions.and_then(|n| u64::try_from(n).ok()).unwrap_or(0),
        acquired: spec.acquire_time.map(|time| time.0),
        renewed: spec.renew_time.map(|time| time.0),
    };
    Stored { record, version }
}

fn seconds(seconds: i32) -> Duration {
    Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_stored_as_other_electors_of_kubernetes_write_it() {
        let time = Timestamp::from_millisecond(1_796_067_834_123).unwrap();
        let record = Record {
            holder: "a_1".to_owned(),
            duration: Duration::from_secs(15),
            transitions: 3,
            acquired: Some(time),
            renewed: Some(time),
        };
        insta::assert_snapshot!(
            spec(&record),
            @r#"{"acquireTime":"2026-11-30T19:43:54.123000Z","holderIdentity":"a_1","leaseDurationSeconds":15,"leaseTransitions":3,"renewTime":"2026-11-30T19:43:54.123000Z"}"#
        );
        let spec = serde_json::from_value(spec(&record)).unwrap();
        let lease = Lease { spec: Some(spec), ..Lease::default() };
        assert_eq!(stored(lease).record, record);
    }

    #[test]
    fn what_nobody_holds_has_no_holder() {
        let free = spec(&Record::default());
        assert!(free["holderIdentity"].is_null() && free["leaseDurationSeconds"] == 1);
        assert_eq!(stored(Lease::default()).record, Record::default());
    }
}

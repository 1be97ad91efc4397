//! Events: what people see in `kubectl describe` and `kubectl get events`.
//!
//! Written as `events.k8s.io/v1`, which is the same stored object as the older
//! `v1` Event and shown by both commands, but is validated more strictly and
//! folds repetitions into one object's `series` instead of writing new ones.
//! One at a time, never repeated: an Event that fails is counted and dropped.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::api::names::FIELD_MANAGER;
use crate::engine::ClusterId;
use crate::engine::action::Notice;
use crate::engine::event::ObjectRef;

use super::counters::{Counters, count};
use super::error::{cut, shorten};

/// Longest note that the API takes, in bytes.
const NOTE_BYTES: usize = 1_024;
/// Longest wait for one Event.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Events after which a recorder is made anew: it keeps the Events of six minutes for
/// its series and knows no other bound.
const RECORDER_EVENTS: u32 = 2_000;

/// Writes Events until cancelled or until nobody can send any more.
pub(super) async fn run(
    mut scribes: Scribes,
    mut notices: mpsc::Receiver<Notice>,
    counters: &Counters,
    stop: CancellationToken,
) {
    loop {
        let notice = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            notice = notices.recv() => notice,
        };
        let Some(notice) = notice else { return };
        match scribes.write(&notice).await {
            Ok(()) => count(&counters.events),
            Err(why) => {
                count(&counters.events_dropped);
                tracing::debug!(uid = %notice.about.address.uid, reason = notice.reason, why, "event_dropped");
            }
        }
    }
}

/// One recorder for each cluster.
pub(super) struct Scribes {
    reporter: Reporter,
    clusters: BTreeMap<ClusterId, Scribe>,
}

struct Scribe {
    client: Client,
    recorder: Recorder,
    written: u32,
}

impl Scribes {
    pub(super) fn new(clients: &BTreeMap<ClusterId, Client>, instance: Option<String>) -> Self {
        let reporter = Reporter { controller: FIELD_MANAGER.to_owned(), instance };
        let scribe = |client: &Client| Scribe {
            client: client.clone(),
            recorder: Recorder::new(client.clone(), reporter.clone()),
            written: 0,
        };
        let clusters = clients.iter().map(|(&id, client)| (id, scribe(client))).collect();
        Self { reporter, clusters }
    }

    async fn write(&mut self, notice: &Notice) -> Result<(), String> {
        let cluster = notice.about.address.cluster;
        let scribe = self.clusters.get_mut(&cluster).ok_or("unknown cluster")?;
        if scribe.written >= RECORDER_EVENTS {
            scribe.recorder = Recorder::new(scribe.client.clone(), self.reporter.clone());
            scribe.written = 0;
        }
        scribe.written += 1;
        let (event, about) = (event(notice), reference(&notice.about));
        match tokio::time::timeout(TIMEOUT, scribe.recorder.publish(&event, &about)).await {
            Ok(result) => result.map_err(|error| cut(&error.to_string())),
            Err(_) => Err("no answer in time".to_owned()),
        }
    }
}

fn event(notice: &Notice) -> Event {
    Event {
        type_: if notice.warning { EventType::Warning } else { EventType::Normal },
        reason: notice.reason.to_owned(),
        note: Some(shorten(&notice.message, NOTE_BYTES).to_owned()),
        action: notice.reason.to_owned(),
        secondary: None,
    }
}

fn reference(about: &ObjectRef) -> ObjectReference {
    let address = &about.address;
    ObjectReference {
        api_version: Some(about.api_version.to_string()),
        kind: Some(about.kind.to_string()),
        name: Some(address.name.to_string()),
        namespace: (!address.namespace.is_empty()).then(|| address.namespace.to_string()),
        uid: Some(address.uid.to_string()),
        ..ObjectReference::default()
    }
}

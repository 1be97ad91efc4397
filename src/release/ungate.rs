//! One PATCH opens one gate.
//!
//! Strategic merge: our entry is deleted by its name, everything else stays. The
//! uid makes it fail for another pod of the same name. Sent twice it changes
//! nothing the second time and is answered with 200 as before, so a lost answer
//! is no danger: the same bytes are simply sent again.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use kube::{Client, Resource};
use serde_json::{Value, json};

use crate::api::names::{ANNOTATION_EPOCH, ANNOTATION_RELEASED, FIELD_MANAGER, GATE};
use crate::api::released::{Released, Terms};
use crate::engine::action::{self, Release};
use crate::engine::event::Address;

use super::error::{ReleaseError, cut};
use super::send::send;
use super::time::rfc3339;

/// Opens the gate of one pod; at most one request, at most `limit` long.
pub(super) async fn open(
    client: Client,
    release: &Release,
    epoch: u64,
    limit: Duration,
) -> Result<(), ReleaseError> {
    send(client, request(&release.address, body(release, epoch))?, limit).await
}

/// The same without a decision behind it, so nothing is recorded on the pod.
pub(super) async fn open_undecided(
    client: Client,
    address: &Address,
    limit: Duration,
) -> Result<(), ReleaseError> {
    let body = json!({ "metadata": { "uid": &*address.uid }, "spec": without_gate() });
    send(client, request(address, body)?, limit).await
}

fn request(address: &Address, body: Value) -> Result<http::Request<Vec<u8>>, ReleaseError> {
    let path = Pod::url_path(&(), Some(&address.namespace));
    let params =
        PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    let body = Patch::Strategic(body);
    // Only metadata is sent back: the answer is not read and a pod can be large.
    kube::core::Request::new(path)
        .patch_metadata(&address.name, &params, &body)
        .map_err(|error| ReleaseError::Refused { code: 0, message: cut(&error.to_string()) })
}

fn body(release: &Release, epoch: u64) -> Value {
    json!({
        "metadata": {
            "uid": &*release.address.uid,
            "annotations": {
                ANNOTATION_RELEASED: annotation(release),
                ANNOTATION_EPOCH: epoch.to_string(),
            },
        },
        "spec": placed(release),
    })
}

/// Without our gate, bound to a domain and drawn to a node where these were found. A node is no
/// more than preferred: what is required could not be undone when it dies.
fn placed(release: &Release) -> Value {
    let mut spec = without_gate();
    let Some((place, fields)) = release.place.as_ref().zip(spec.as_object_mut()) else {
        return spec;
    };
    if let Some((key, value)) = &place.domain {
        fields.insert("nodeSelector".to_owned(), json!({ &**key: &**value }));
    }
    if let Some(node) = &place.node {
        let field = json!({ "key": "metadata.name", "operator": "In", "values": [&**node] });
        let preferred = json!([{ "weight": 100, "preference": { "matchFields": [field] } }]);
        let affinity = json!({
            "nodeAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": preferred },
        });
        fields.insert("affinity".to_owned(), affinity);
    }
    spec
}

fn without_gate() -> Value {
    json!({ "schedulingGates": [{ "$patch": "delete", "name": GATE }] })
}

fn annotation(release: &Release) -> String {
    let released = Released {
        pod: release.address.uid.to_string(),
        queue: release.queue.to_string(),
        group: release.group.to_string(),
        root: release.root.to_string(),
        size: release.size,
        time: rfc3339(release.time),
        decision: release.decision,
        terms: Some(terms(&release.terms)),
    };
    // A struct of texts and numbers always has a JSON form.
    serde_json::to_string(&released).unwrap_or_default()
}

fn terms(terms: &action::Terms) -> Terms {
    let text = |text: &Option<Arc<str>>| text.as_deref().map(str::to_owned);
    Terms {
        joined: text(&terms.joined),
        min_count: terms.min_count,
        preemptible: terms.preemptible,
        singleton: text(&terms.singleton),
        topology: text(&terms.topology),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::support::release;
    use super::*;
    use crate::engine::action::Place;

    #[test]
    fn the_patch_removes_our_gate_only_and_names_the_uid() {
        let release = release(1);
        let request = request(&release.address, body(&release, 7)).unwrap();
        assert_eq!(request.method(), http::Method::PATCH);
        assert_eq!(request.uri(), "/api/v1/namespaces/team-a/pods/pod-1?&fieldManager=tidegate");
        assert_eq!(request.headers()["content-type"], "application/strategic-merge-patch+json");
        let body: Value = serde_json::from_slice(request.body()).unwrap();
        insta::assert_snapshot!(serde_json::to_string_pretty(&body).unwrap(), @r#"
        {
          "metadata": {
            "annotations": {
              "tidegate.dev/epoch": "7",
              "tidegate.dev/released": "{\"pod\":\"uid-1\",\"queue\":\"q\",\"group\":\"Job/j\",\"root\":\"root-uid\",\"size\":2,\"time\":\"2026-11-30T12:00:00.123Z\",\"decision\":5,\"terms\":{\"minCount\":2,\"preemptible\":true}}"
            },
            "uid": "uid-1"
          },
          "spec": {
            "schedulingGates": [
              {
                "$patch": "delete",
                "name": "tidegate.dev/queue"
              }
            ]
          }
        }
        "#);
    }

    #[test]
    fn a_place_that_was_found_goes_with_the_same_patch() {
        let domain = Some(("topology.kubernetes.io/zone".into(), "a".into()));
        let place = Some(Box::new(Place { node: Some("node-1".into()), domain }));
        let placed = Release { place, ..release(1) };
        let spec = &body(&placed, 7)["spec"];
        assert_eq!(spec["nodeSelector"], json!({ "topology.kubernetes.io/zone": "a" }));
        insta::assert_snapshot!(serde_json::to_string(&spec["affinity"]["nodeAffinity"]).unwrap(), @r#"{"preferredDuringSchedulingIgnoredDuringExecution":[{"preference":{"matchFields":[{"key":"metadata.name","operator":"In","values":["node-1"]}]},"weight":100}]}"#);
    }

    #[test]
    fn an_address_that_cannot_be_written_to_is_refused_not_repeated() {
        let mut nameless = release(1);
        nameless.address.name = "".into();
        let request = request(&nameless.address, body(&nameless, 7));
        assert!(matches!(request, Err(ReleaseError::Refused { code: 0, .. })));
    }
}

//! The webhook as the apiserver meets it.

mod bench;
mod endpoints;
mod rules;
mod tls;

use serde_json::{Value, json};
use tidegate::admission::server::Service;
use tidegate::admission::{Backlogs, Exempt, QueueTree, Queues};
use tidegate::api::v1alpha1::Queue;

/// A webhook that knows these queues, and the handle on what it knows.
fn service(queues: &[Queue]) -> (Service, Queues) {
    let known = Queues::default();
    known.store(Some(queues.iter().collect::<QueueTree>().into()));
    (Service::new(Exempt::default(), known.clone(), Backlogs::default()), known)
}

/// What an operator's account sends through an old apiserver: no namespace in the
/// object, and no name anywhere.
fn pod_review() -> Value {
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "3d7c1a1e-0000-4000-8000-000000000013",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "namespace": "case-013", "operation": "CREATE", "dryRun": false,
        "userInfo": {"username": "system:serviceaccount:operators:some-operator"},
        "object": {
            "apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "worker-"},
            "spec": {"containers": [{"name": "app", "image": "pause"}]},
        },
    }})
}

fn queue_review(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "r-1", "name": name, "operation": "CREATE",
        "resource": {"group": "tidegate.dev", "version": "v1alpha1", "resource": "queues"},
        "object": {"metadata": {"name": name}, "spec": spec},
    }})
}

/// The patch of an answer.
fn patch(answer: &Value) -> json_patch::Patch {
    let encoded = answer["response"]["patch"].clone();
    let decoded: k8s_openapi::ByteString = serde_json::from_value(encoded).unwrap();
    serde_json::from_slice(&decoded.0).unwrap()
}

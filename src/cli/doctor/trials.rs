//! Things tried dry: whether what is installed also answers.

use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::api::{ListParams, PostParams};
use kube::{Api, Error, ResourceExt as _};
use serde_json::json;

use super::finding::Finding;
use super::{Site, text, unreadable};
use crate::api::names::{
    GATE, LABEL_MANAGED, MANAGED, SYSTEM_NAMESPACES, VERSION, VISIBILITY_GROUP,
};
use crate::api::v1alpha1::{Queue, QueueSpec};
use crate::cli::read;

const QUEUES: &str = "queue webhook";
const GATING: &str = "gating";
const VISIBILITY: &str = "visibility API";
/// A queue that nobody makes.
const NOBODY: &str = "tidegate-doctor-nobody";
/// Opted-in namespaces asked for; any that is not about to go will do.
const NAMESPACES: u32 = 20;

fn dry() -> PostParams {
    PostParams { dry_run: true, ..PostParams::default() }
}

/// A queue below one that does not exist must be refused by our webhook.
pub async fn queue(site: &Site) -> Vec<Finding> {
    let api: Api<Queue> = Api::all(site.client.clone());
    let parent = Some(NOBODY.to_owned());
    let bad =
        Queue::new("tidegate-doctor", QueueSpec { parent, weight: 1, ..QueueSpec::default() });
    vec![judge_queue(api.create(&dry(), &bad).await.map(drop))]
}

fn judge_queue(outcome: Result<(), Error>) -> Finding {
    match outcome {
        Ok(()) => Finding::fail(
            QUEUES,
            "a queue with an unknown parent was taken",
            "the webhook configuration does not lead to the webhook: apply the chart again",
        ),
        Err(Error::Api(status)) if status.message.contains(NOBODY) => {
            Finding::ok(QUEUES, "answers: a bad queue, tried dry, was refused")
        }
        Err(error) => called(QUEUES, "a queue could not be tried", &error),
    }
}

/// A pod in a namespace that opted in must come out gated.
pub async fn pod(site: &Site) -> Vec<Finding> {
    let namespaces: Api<Namespace> = Api::all(site.client.clone());
    let opted_in =
        ListParams::default().labels(&format!("{LABEL_MANAGED}={MANAGED}")).limit(NAMESPACES);
    let list = match namespaces.list(&opted_in).await {
        Ok(list) => list,
        Err(error) => return vec![unreadable(GATING, "namespaces", &error)],
    };
    let usable = |namespace: &&Namespace| {
        let name = namespace.name_any();
        namespace.metadata.deletion_timestamp.is_none()
            && name != site.namespace
            && !SYSTEM_NAMESPACES.contains(&name.as_str())
    };
    let Some(namespace) = list.iter().find(usable) else {
        return vec![Finding::ok(GATING, "no namespace has opted in yet: nothing to try")];
    };
    let name = namespace.name_any();
    let api: Api<Pod> = Api::namespaced(site.client.clone(), &name);
    let outcome = match trial_pod() {
        Ok(pod) => api.create(&dry(), &pod).await,
        Err(error) => Err(Error::SerdeError(error)),
    };
    vec![judge_pod(&name, outcome)]
}

/// Small, and within what the strictest Pod Security Standard takes.
fn trial_pod() -> serde_json::Result<Pod> {
    let nothing = json!({
        "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]},
    });
    serde_json::from_value(json!({
        "metadata": {"generateName": "tidegate-doctor-"},
        "spec": {
            "securityContext": {"runAsNonRoot": true, "runAsUser": 65532,
                "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{"name": "c", "image": "pause", "securityContext": nothing,
                "resources": {"requests": {"cpu": "1m", "memory": "1Mi"},
                    "limits": {"cpu": "1m", "memory": "1Mi"}}}],
        },
    }))
}

fn judge_pod(namespace: &str, outcome: Result<Pod, Error>) -> Finding {
    match outcome {
        Ok(pod) if is_gated(&pod) => {
            Finding::ok(GATING, format!("a pod tried dry in namespace {namespace} came out gated"))
        }
        Ok(_) => Finding::fail(
            GATING,
            format!("a pod tried dry in namespace {namespace} came out without the gate"),
            "see the check of the gate; you may also be an exempt account",
        ),
        Err(error) => {
            called(GATING, &format!("no pod can be made in namespace {namespace}"), &error)
        }
    }
}

/// Whether our gate is on a pod.
pub fn is_gated(pod: &Pod) -> bool {
    let gates = pod.spec.as_ref().and_then(|spec| spec.scheduling_gates.as_ref());
    gates.is_some_and(|gates| gates.iter().any(|gate| gate.name == GATE))
}

/// What an error of a trial means: our part failed, or somebody else said no.
fn called(check: &'static str, what: &str, error: &Error) -> Finding {
    let Error::Api(status) = error else { return unreadable(check, what, error) };
    let said = format!("{what}: {}", status.message);
    if status.message.contains("failed calling webhook") || status.message.contains(GATE) {
        let remedy = "see the checks of programs and bundles, and the webhook's log";
        return Finding::fail(check, said, remedy);
    }
    Finding::warn(check, said, "that is not Tidegate's answer: try again as somebody who may")
}

/// Whether the aggregated API answers, and what was found.
pub async fn visibility(site: &Site) -> (bool, Finding) {
    let path = format!("/apis/{VISIBILITY_GROUP}/{VERSION}/groups?limit=1");
    let request = http::Request::get(path).body(Vec::new()).map_err(Error::HttpError);
    let answer = match request {
        Ok(request) => site.client.request::<serde_json::Value>(request).await,
        Err(error) => Err(error),
    };
    match answer {
        Ok(list) if text(&list, "/kind") == "GroupList" => (true, available(site).await),
        Ok(_) => (false, Finding::fail(VISIBILITY, "answers something else", "see who serves it")),
        Err(Error::Api(status)) if status.code == 403 => {
            (true, unreadable(VISIBILITY, "groups", &Error::Api(status)))
        }
        Err(error) => {
            let remedy = "see the checks of programs and bundles, and the controller's log";
            (false, Finding::fail(VISIBILITY, read::meaning(&error).to_string(), remedy))
        }
    }
}

/// An APIService that is not Available holds up namespaces that are being deleted.
async fn available(site: &Site) -> Finding {
    let services: Api<APIService> = Api::all(site.client.clone());
    let service = match services.get(&format!("{VERSION}.{VISIBILITY_GROUP}")).await {
        Ok(service) => service,
        Err(error) => return unreadable(VISIBILITY, "its APIService", &error),
    };
    let conditions = service.status.and_then(|status| status.conditions).unwrap_or_default();
    match conditions.into_iter().find(|condition| condition.type_ == "Available") {
        Some(condition) if condition.status == "True" => {
            Finding::ok(VISIBILITY, "answers and is Available")
        }
        Some(condition) => Finding::fail(
            VISIBILITY,
            format!("is not Available: {}", condition.message.unwrap_or_default()),
            "see the checks of programs and bundles",
        ),
        None => Finding::warn(VISIBILITY, "the apiserver has not looked yet", "look again"),
    }
}

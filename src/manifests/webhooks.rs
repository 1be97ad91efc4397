//! Webhook configurations: which requests come to us.

use serde_json::{Value, json};

use super::names::{
    CHECK_NAMESPACES, CHECK_QUEUES, CONFIGURATION, GATE_PODS, HOLD_PODS, WEBHOOK_SERVICE,
};
use super::values::{Values, with};
use crate::api::names::{GROUP, LABEL_MANAGED, LABEL_QUEUE, VERSION};

/// Gating is in the way of each pod, so it answers fast or the pod is tried again.
const GATE_SECONDS: u8 = 2;
/// Checking a queue may look twice at a view that trails the truth.
const CHECK_SECONDS: u8 = 5;
/// A word of warning is not worth a long wait.
const WARN_SECONDS: u8 = 1;
/// Holding back is worth no wait: without an answer the pod is let in.
const HOLD_SECONDS: u8 = 1;

/// The configuration that sends new pods of opted-in namespaces to be gated.
#[must_use]
pub fn mutating(values: &Values) -> Value {
    let rules = json!([rule(&["CREATE"], "", "v1", "pods", "Namespaced")]);
    let webhook = webhook(values, GATE_PODS, "/mutate/pods", GATE_SECONDS, &rules);
    let webhook = with(webhook, "namespaceSelector", values.opted_in());
    let webhook = with(webhook, "reinvocationPolicy", json!("IfNeeded"));
    configuration(values, "MutatingWebhookConfiguration", &[webhook])
}

/// The configuration that sends changes of queues to be checked, and namespaces whose
/// labels of ours change to be looked at: they are warned about, never refused.
#[must_use]
pub fn validating(values: &Values) -> Value {
    let webhooks = [check_queues(values), check_namespaces(values)];
    configuration(values, "ValidatingWebhookConfiguration", &webhooks)
}

/// The same where a policy gates pods: sends new pods too, to be refused when the backlog
/// of their queue is full. Nothing stops when nobody answers.
#[must_use]
pub fn validating_with_pods(values: &Values) -> Value {
    let webhooks = [check_queues(values), check_namespaces(values), hold_pods(values)];
    configuration(values, "ValidatingWebhookConfiguration", &webhooks)
}

fn check_queues(values: &Values) -> Value {
    let operations = ["CREATE", "UPDATE", "DELETE"];
    let rules = json!([rule(&operations, GROUP, VERSION, "queues", "Cluster")]);
    webhook(values, CHECK_QUEUES, "/validate/queues", CHECK_SECONDS, &rules)
}

fn check_namespaces(values: &Values) -> Value {
    let rules = json!([rule(&["CREATE", "UPDATE"], "", "v1", "namespaces", "Cluster")]);
    let path = "/validate/namespaces";
    let webhook = webhook(values, CHECK_NAMESPACES, path, WARN_SECONDS, &rules);
    let webhook = with(webhook, "failurePolicy", json!("Ignore"));
    let changed = json!([{"name": "labels-of-ours-change", "expression": labels_change()}]);
    with(webhook, "matchConditions", changed)
}

fn hold_pods(values: &Values) -> Value {
    let rules = json!([rule(&["CREATE"], "", "v1", "pods", "Namespaced")]);
    let webhook = webhook(values, HOLD_PODS, "/validate/pods", HOLD_SECONDS, &rules);
    let webhook = with(webhook, "namespaceSelector", values.opted_in());
    with(webhook, "failurePolicy", json!("Ignore"))
}

/// CEL: a label of ours is not as it was.
fn labels_change() -> String {
    let label = |object: &str| format!("{object}.metadata.?labels[?key].orValue('')");
    format!(
        "['{LABEL_MANAGED}', '{LABEL_QUEUE}'].exists(key,\n\
         {} != (oldObject == null ? '' : {}))",
        label("object"),
        label("oldObject"),
    )
}

fn configuration(values: &Values, kind: &str, webhooks: &[Value]) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": CONFIGURATION, "annotations": values.injection},
        "webhooks": webhooks,
    })
}

/// A webhook without `caBundle`: that field is not ours to render.
fn webhook(values: &Values, name: &str, path: &str, seconds: u8, rules: &Value) -> Value {
    json!({
        "name": name,
        "admissionReviewVersions": ["v1"],
        "clientConfig": {"service": {
            "name": WEBHOOK_SERVICE, "namespace": values.namespace,
            "path": path, "port": values.port,
        }},
        "failurePolicy": "Fail",
        "matchPolicy": "Equivalent",
        "sideEffects": "None",
        "timeoutSeconds": seconds,
        "rules": rules,
    })
}

pub(super) fn rule(
    operations: &[&str],
    group: &str,
    version: &str,
    resource: &str,
    scope: &str,
) -> Value {
    json!({
        "operations": operations, "apiGroups": [group], "apiVersions": [version],
        "resources": [resource], "scope": scope,
    })
}

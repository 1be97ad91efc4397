//! The policy that gates pods inside the apiserver (from Kubernetes 1.36).
//!
//! Says in CEL what `admission::mutate::pods` does in Rust. Patches are RFC 6902:
//! an apply configuration would refuse pods with repeated list keys.

use serde_json::{Value, json};

use super::names::GATE_PODS;
use super::values::Values;
use super::webhooks::rule;
use crate::api::names::{
    ANNOTATION_CREATED_BY, ANNOTATION_EPOCH, ANNOTATION_RELEASED, EXTRA_POD_NAME, EXTRA_POD_UID,
    GATE, GROUP_NODES, LABEL_MANAGED, MANAGED, USER_DAEMON_SET_CONTROLLER,
};

const API: &str = "admissionregistration.k8s.io/v1";

/// The policy that gates new pods, and its binding.
#[must_use]
pub fn gate_policy(values: &Values) -> Vec<Value> {
    // One list of patches: for each mutation of its own, even one that changes nothing, the
    // apiserver writes the whole pod as JSON and reads it again.
    let patches = [
        drop_marker(ANNOTATION_EPOCH),
        drop_marker(ANNOTATION_RELEASED),
        created_by(),
        managed_label(),
        gate(),
    ];
    let expression = patches.map(|patches| format!("({patches})")).join("\n+ ");
    let policy = json!({
        "apiVersion": API,
        "kind": "MutatingAdmissionPolicy",
        "metadata": {"name": GATE_PODS},
        "spec": {
            "failurePolicy": "Fail",
            "reinvocationPolicy": "IfNeeded",
            "matchConstraints": new_pods(values),
            "variables": new_pod_variables(values),
            "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}],
        },
    });
    let binding = json!({
        "apiVersion": API,
        "kind": "MutatingAdmissionPolicyBinding",
        "metadata": {"name": GATE_PODS},
        "spec": {"policyName": GATE_PODS},
    });
    vec![policy, binding]
}

/// Selects the creation of pods in namespaces that opted in.
pub(super) fn new_pods(values: &Values) -> Value {
    json!({
        "matchPolicy": "Equivalent",
        "namespaceSelector": values.opted_in(),
        "resourceRules": [rule(&["CREATE"], "", "v1", "pods", "Namespaced")],
    })
}

/// What both the gate and its guard must know of a new pod and of who makes it.
pub(super) fn new_pod_variables(values: &Values) -> Value {
    json!([
        {"name": "exempt", "expression": is_exempt(values)},
        {"name": "namesNode", "expression": "object.spec.?nodeName.orValue('') != ''"},
        {"name": "gates", "expression": "object.spec.?schedulingGates.orValue([]).map(gate, gate.name)"},
        {"name": "annotations", "expression": "object.metadata.?annotations.orValue({})"},
        {"name": "labels", "expression": "object.metadata.?labels.orValue({})"},
        {"name": "creatorUids", "expression": extra(EXTRA_POD_UID)},
        {"name": "creatorNames", "expression": extra(EXTRA_POD_NAME)},
        {"name": "creator", "expression": creator("variables.creatorUids", "variables.creatorNames")},
    ])
}

/// Whether the maker's pods are never gated.
pub(super) fn is_exempt(values: &Values) -> String {
    let accounts = if values.exempt.is_empty() {
        format!("'{USER_DAEMON_SET_CONTROLLER}'")
    } else {
        format!("'{USER_DAEMON_SET_CONTROLLER}', {}", values.exempt)
    };
    format!(
        "request.userInfo.username in [{accounts}]\n\
         || request.userInfo.?groups.orValue([]).exists(group, group == '{GROUP_NODES}')"
    )
}

/// The pod whose token makes the pod, as the marker tells it; empty when there is none.
pub(super) fn creator(uids: &str, names: &str) -> String {
    format!(
        "{uids}.size() == 1 && {names}.size() == 1\n\
         && {uids}[0].matches('^[0-9a-fA-F-]{{36}}$')\n\
         && {names}[0].matches('^[a-z0-9.-]{{1,253}}$')\n\
         ? '{{\"uid\":\"' + {uids}[0] + '\",\"name\":\"' + {names}[0] + '\"}}'\n\
         : ''"
    )
}

pub(super) fn extra(key: &str) -> String {
    format!("request.userInfo.?extra[?'{key}'].orValue([])")
}

fn drop_marker(key: &str) -> String {
    format!("'{key}' in variables.annotations ?\n[{}] : []", remove(key))
}

fn created_by() -> String {
    let key = ANNOTATION_CREATED_BY;
    let put = put("annotations", key, "variables.creator");
    format!(
        "variables.creator != '' ?\n{put}\n\
         : '{key}' in variables.annotations ?\n[{}] : []",
        remove(key)
    )
}

fn managed_label() -> String {
    let put = put("labels", LABEL_MANAGED, &format!("'{MANAGED}'"));
    format!("variables.exempt || variables.namesNode ? [] :\n{put}")
}

fn gate() -> String {
    format!(
        "variables.exempt || variables.namesNode || '{GATE}' in variables.gates ? [] :\n\
         has(object.spec.schedulingGates) ?\n\
         [JSONPatch{{op: 'add', path: '/spec/schedulingGates/-', value: {{'name': '{GATE}'}}}}] :\n\
         [JSONPatch{{op: 'add', path: '/spec/schedulingGates', value: [{{'name': '{GATE}'}}]}}]"
    )
}

/// Sets one key of a map of the metadata, making the map if there is none.
fn put(map: &str, key: &str, value: &str) -> String {
    format!(
        "(has(object.metadata.{map}) ?\n\
         [JSONPatch{{op: 'add', path: '/metadata/{map}/' + jsonpatch.escapeKey('{key}'), value: {value}}}] :\n\
         [JSONPatch{{op: 'add', path: '/metadata/{map}', value: {{'{key}': {value}}}}}])"
    )
}

fn remove(key: &str) -> String {
    format!(
        "JSONPatch{{op: 'remove', path: '/metadata/annotations/' + jsonpatch.escapeKey('{key}')}}"
    )
}

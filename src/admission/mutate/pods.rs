//! What happens to a pod as it is made: a gate, a label, no forged markers.
//!
//! `manifests::gate` says the same in CEL; a change here is a change there.

use std::time::Instant;

use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, Patch, PatchOperation, RemoveOperation};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::admission::backlog::Backlogs;
use crate::admission::exempt::Exempt;
use crate::admission::review::{Answer, Malformed, Operation, Request, UserInfo};
use crate::api::names::{
    ANNOTATION_CREATED_BY, ANNOTATION_EPOCH, ANNOTATION_RELEASED, EXTRA_POD_NAME, EXTRA_POD_UID,
    GATE, LABEL_MANAGED, LABEL_QUEUE, MANAGED,
};
use crate::api::refusals;

/// The parts of a pod that admission looks at.
#[derive(Debug, Default, Deserialize)]
pub struct Pod {
    metadata: Option<Metadata>,
    spec: Option<Spec>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    labels: Option<Map<String, Value>>,
    annotations: Option<Map<String, Value>>,
    owner_references: Option<Vec<OwnerReference>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    node_name: Option<String>,
    scheduling_gates: Option<Vec<Gate>>,
}

#[derive(Debug, Deserialize)]
struct Gate {
    #[serde(default)]
    name: String,
}

impl Pod {
    fn labels(&self) -> Option<&Map<String, Value>> {
        self.metadata.as_ref()?.labels.as_ref()
    }

    fn annotations(&self) -> Option<&Map<String, Value>> {
        self.metadata.as_ref()?.annotations.as_ref()
    }

    /// What its references say of who owns it.
    pub(in crate::admission) fn owners(&self) -> &[OwnerReference] {
        self.metadata.as_ref().and_then(|meta| meta.owner_references.as_deref()).unwrap_or_default()
    }

    /// The queue that it names itself.
    pub(in crate::admission) fn queue(&self) -> Option<&str> {
        self.labels()?.get(LABEL_QUEUE)?.as_str().filter(|queue| !queue.is_empty())
    }

    fn gates(&self) -> Option<&[Gate]> {
        self.spec.as_ref()?.scheduling_gates.as_deref()
    }

    fn names_node(&self) -> bool {
        self.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).is_some_and(|n| !n.is_empty())
    }
}

/// Gates a new pod. Anything but the creation of a pod passes untouched.
///
/// Pods of exempt accounts keep their shape; markers that only we write are taken
/// off them as off every other pod.
pub fn mutate(
    request: &Request<Pod>,
    exempt: &Exempt,
    backlogs: &Backlogs,
    now: Instant,
) -> Result<Answer, Malformed> {
    if !is_new_pod(request) {
        return Ok(Answer::allow());
    }
    let pod = request.object.as_ref().ok_or(Malformed::NoObject)?;
    let exempt = exempt.covers(&request.user_info);
    if pod.names_node() && !exempt {
        return Ok(Answer::Deny(refusals::NODE_NAME.to_owned()));
    }
    if !exempt && let Some(refusal) = backlogs.refuse(pod, &request.namespace, now) {
        return Ok(Answer::Later(refusal));
    }
    let mut changes: Vec<_> =
        forget_release(pod).chain(created_by(pod, &request.user_info)).collect();
    if !exempt {
        changes.extend(managed_label(pod).into_iter().chain(gate(pod)));
    }
    if !changes.is_empty() {
        changes.splice(0..0, parents(pod));
    }
    Ok(Answer::Allow(Patch(changes)))
}

/// Refuses a new pod of those whose queue's backlog is full, for clusters in which
/// somebody else adds the gate. Changes nothing.
pub fn hold_back(
    request: &Request<Pod>,
    exempt: &Exempt,
    backlogs: &Backlogs,
    now: Instant,
) -> Result<Answer, Malformed> {
    if !is_new_pod(request) || exempt.covers(&request.user_info) {
        return Ok(Answer::allow());
    }
    let pod = request.object.as_ref().ok_or(Malformed::NoObject)?;
    let refusal = backlogs.refuse(pod, &request.namespace, now);
    Ok(refusal.map_or_else(Answer::allow, Answer::Later))
}

fn is_new_pod(request: &Request<Pod>) -> bool {
    request.operation == Operation::Create && request.is_for("", "v1", "pods")
}

/// What the other changes stand on.
fn parents(pod: &Pod) -> impl Iterator<Item = PatchOperation> {
    let metadata = pod.metadata.is_none().then(|| add(["metadata"], json!({})));
    let spec = pod.spec.is_none().then(|| add(["spec"], json!({})));
    metadata.into_iter().chain(spec)
}

/// Markers of an earlier release, as backups carry them, mean nothing on a new pod.
fn forget_release(pod: &Pod) -> impl Iterator<Item = PatchOperation> {
    [ANNOTATION_EPOCH, ANNOTATION_RELEASED]
        .into_iter()
        .filter(|key| has(pod.annotations(), key))
        .map(|key| remove(["metadata", "annotations", key]))
}

/// Notes which pod made this one, or takes a forged note away.
fn created_by(pod: &Pod, user: &UserInfo) -> Option<PatchOperation> {
    let annotations = pod.annotations();
    match creator(user) {
        Some(creator) => put(annotations, "annotations", ANNOTATION_CREATED_BY, &creator),
        None => has(annotations, ANNOTATION_CREATED_BY)
            .then(|| remove(["metadata", "annotations", ANNOTATION_CREATED_BY])),
    }
}

/// Uid and name of the pod whose bound token was used, as compact JSON.
fn creator(user: &UserInfo) -> Option<String> {
    let uid = only(user, EXTRA_POD_UID)
        .filter(|uid| uid.len() == 36 && uid.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-'))?;
    let name = only(user, EXTRA_POD_NAME).filter(|name| {
        (1..=253).contains(&name.len())
            && name
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-.".contains(&b))
    })?;
    Some(format!(r#"{{"uid":"{uid}","name":"{name}"}}"#))
}

fn only<'a>(user: &'a UserInfo, key: &str) -> Option<&'a str> {
    match user.extra.as_ref()?.get(key)?.as_slice() {
        [value] => Some(value),
        _ => None,
    }
}

fn managed_label(pod: &Pod) -> Option<PatchOperation> {
    put(pod.labels(), "labels", LABEL_MANAGED, MANAGED)
}

/// Appends our gate behind those of others, once.
fn gate(pod: &Pod) -> Option<PatchOperation> {
    let ours = json!({"name": GATE});
    match pod.gates() {
        Some(gates) if gates.iter().any(|gate| gate.name == GATE) => None,
        Some(_) => Some(add(["spec", "schedulingGates", "-"], ours)),
        None => Some(add(["spec", "schedulingGates"], json!([ours]))),
    }
}

fn has(map: Option<&Map<String, Value>>, key: &str) -> bool {
    map.is_some_and(|map| map.contains_key(key))
}

/// Sets one key of a map of the metadata, making the map if there is none.
fn put(
    map: Option<&Map<String, Value>>,
    field: &str,
    key: &str,
    value: &str,
) -> Option<PatchOperation> {
    match map {
        None => Some(add(["metadata", field], json!({key: value}))),
        Some(map) if map.get(key).and_then(Value::as_str) == Some(value) => None,
        Some(_) => Some(add(["metadata", field, key], json!(value))),
    }
}

fn add<const N: usize>(path: [&str; N], value: Value) -> PatchOperation {
    PatchOperation::Add(AddOperation { path: PointerBuf::from_tokens(path), value })
}

fn remove<const N: usize>(path: [&str; N]) -> PatchOperation {
    PatchOperation::Remove(RemoveOperation { path: PointerBuf::from_tokens(path) })
}

#[cfg(test)]
mod tests;

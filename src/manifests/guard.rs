//! Policies that keep gates and markers in our hands, whoever adds the gate.
//!
//! Who may do what we forbid is decided by RBAC: the verbs `release` and `use` on
//! `queues.tidegate.dev`. No account is named here.
//!
//! A policy's match condition selects what it is going to refuse, and its validations say
//! why. For the validations of a policy the apiserver makes maps of the whole object, old
//! and new, three times more than for its match conditions, and for those once for each
//! policy: so changes of a pod are looked at only where it has our label, before or after.

use serde_json::{Value, json};

use super::gate::{creator, extra, is_exempt, new_pod_variables, new_pods};
use super::names::{GUARD_EPOCH, GUARD_GATE, GUARD_NEW_PODS, GUARD_PODS, GUARD_RESIZE, USE_QUEUES};
use super::values::{Values, with};
use crate::api::names::{
    ANNOTATION_CREATED_BY, ANNOTATION_EPOCH, ANNOTATION_RELEASED, EPOCH_KEY, EPOCH_OBJECT,
    EXTRA_POD_NAME, EXTRA_POD_UID, GATE, GROUP, LABEL_MANAGED, LABEL_QUEUE, MANAGED, VERB_RELEASE,
    VERB_USE,
};
use crate::api::refusals;

const API: &str = "admissionregistration.k8s.io/v1";

/// Every guard policy with its binding.
#[must_use]
pub fn guard(values: &Values) -> Vec<Value> {
    [
        new_pods_are_gated(values),
        no_gate_where_no_queue_rules(values),
        stored_pods_keep(values),
        releases_are_of_the_leader(values),
        waiting_pods_do_not_grow(values),
        queues_are_used_by_right(values),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// A pod is stored in an opted-in namespace with gate and label and without
/// markers, unless its maker is exempt.
fn new_pods_are_gated(values: &Values) -> [Value; 2] {
    policy(
        GUARD_NEW_PODS,
        json!({
            "matchConstraints": new_pods(values),
            "matchConditions": [{"name": "not-as-we-leave-it", "expression": format!("!({})", as_we_leave_it(values))}],
            "variables": new_pod_variables(values),
            "validations": [
                check("variables.exempt || !variables.namesNode", refusals::NODE_NAME),
                check(
                    &format!(
                        "variables.exempt || variables.namesNode\n\
                         || ('{GATE}' in variables.gates && variables.labels[?'{LABEL_MANAGED}'].orValue('') == '{MANAGED}')"
                    ),
                    refusals::NOT_GATED,
                ),
                check(
                    &format!(
                        "!('{ANNOTATION_RELEASED}' in variables.annotations)\n\
                         && !('{ANNOTATION_EPOCH}' in variables.annotations)\n\
                         && variables.annotations[?'{ANNOTATION_CREATED_BY}'].orValue('') == variables.creator"
                    ),
                    refusals::FORGED_MARKER,
                ),
            ],
        }),
    )
}

/// Our gate on a pod where nothing is queued would hold it for good, or charge a queue
/// that its maker may not use.
fn no_gate_where_no_queue_rules(values: &Values) -> [Value; 2] {
    policy(
        GUARD_GATE,
        json!({
            "matchConstraints": {
                "matchPolicy": "Equivalent",
                "namespaceSelector": values.not_opted_in(),
                "resourceRules": [{
                    "operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"],
                    "resources": ["pods"], "scope": "Namespaced",
                }],
            },
            "matchConditions": [{"name": "has-our-gate", "expression": format!("'{GATE}' in {}", gate_names("object"))}],
            "validations": [check("false", refusals::GATE_ELSEWHERE)],
        }),
    )
}

/// Only who may release drops our gate or touches markers. Holds in any namespace, so that
/// removing its opt-in frees nothing that waits. A pod without our label is nobody's business:
/// what is written on it means nothing, and the label cannot be added later.
fn stored_pods_keep(values: &Values) -> [Value; 2] {
    let (gate, markers) = (gate_is_kept(), markers_are_kept());
    policy(
        GUARD_PODS,
        json!({
            "matchConstraints": pod_updates(values, &["pods", "pods/status", "pods/ephemeralcontainers", "pods/resize"]),
            "matchConditions": [{"name": "takes-what-is-ours", "expression": format!(
                "!({gate}\n&& {markers})\n\
                 && !authorizer.group('{GROUP}').resource('queues').check('{VERB_RELEASE}').allowed()"
            )}],
            "variables": [
                {"name": "others", "expression": format!("{}.filter(name, name != '{GATE}')", gate_names("oldObject"))},
            ],
            "validations": [
                {
                    "expression": gate,
                    "message": refusals::GATE_DROPPED.trim_end(),
                    "messageExpression": gate_dropped(),
                    "reason": "Forbidden",
                },
                check(&markers, refusals::MARKER_CHANGED),
            ],
        }),
    )
}

/// A release carries its leader's epoch and none smaller than the one that stands in the
/// parameter. A gate opened by hand carries none.
///
/// A parameter that is not there must not deny: it would deny before any match condition is
/// looked at, and so every change of every pod of ours, its Job's among them.
fn releases_are_of_the_leader(values: &Values) -> [Value; 2] {
    let (before, after) =
        (annotation("oldObject", ANNOTATION_EPOCH), annotation("object", ANNOTATION_EPOCH));
    let opens = format!("{after} != ''\n&& ({after} != {before} || !{})", gate_is_kept());
    let current = format!("params.data['{EPOCH_KEY}']");
    let in_time =
        format!("({after}.matches('^[0-9]{{1,18}}$')\n&& int({after}) >= int({current}))");
    let [policy, mut binding] = policy(
        GUARD_EPOCH,
        json!({
            "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
            "matchConstraints": pod_updates(values, &["pods"]),
            "matchConditions": [{"name": "is-a-release-too-late", "expression": format!("{opens}\n&& !{in_time}")}],
            "validations": [{
                "expression": "false",
                "message": refusals::FENCED,
                "messageExpression": format!(
                    "'{} (epoch ' + {after} + ', now ' + {current} + ')'", refusals::FENCED
                ),
                "reason": "Forbidden",
            }],
        }),
    );
    let parameter = json!({
        "name": EPOCH_OBJECT, "namespace": values.namespace, "parameterNotFoundAction": "Allow",
    });
    if let Some(spec) = binding.get_mut("spec") {
        *spec = with(spec.take(), "paramRef", parameter);
    }
    [policy, binding]
}

/// The queue has counted what a waiting pod asks for.
fn waiting_pods_do_not_grow(values: &Values) -> [Value; 2] {
    policy(
        GUARD_RESIZE,
        json!({
            "matchConstraints": pod_updates(values, &["pods/resize"]),
            "matchConditions": [{"name": "waiting", "expression": format!("'{GATE}' in {}", gate_names("oldObject"))}],
            "validations": [check(
                &format!(
                    "{}\n&& {}\n&& {}",
                    containers_do_not_grow("containers"),
                    containers_do_not_grow("initContainers"),
                    does_not_grow("object.spec", "oldObject.spec"),
                ),
                refusals::RESIZED,
            )],
        }),
    )
}

/// A queue's label on an object that nobody owns is put there by who may use the
/// queue. Copies on owned objects choose nothing, so they are not asked about.
fn queues_are_used_by_right(values: &Values) -> [Value; 2] {
    let owned = |object: &str| format!("{object}.metadata.?ownerReferences.orValue([]).size() > 0");
    let queue = |object: &str| format!("{object}.metadata.?labels[?'{LABEL_QUEUE}'].orValue('')");
    let changed = format!(
        "oldObject == null || {} != {}\n|| {}",
        queue("oldObject"),
        queue("object"),
        owned("oldObject"),
    );
    let may = |verb: &str, name: &str| {
        format!("authorizer.group('{GROUP}').resource('queues'){name}.check('{verb}').allowed()")
    };
    policy(
        USE_QUEUES,
        json!({
            "matchConstraints": {
                "matchPolicy": "Equivalent",
                "namespaceSelector": values.opted_in(),
                "objectSelector": {"matchExpressions": [{"key": LABEL_QUEUE, "operator": "Exists"}]},
                "resourceRules": [{
                    "operations": ["CREATE", "UPDATE"], "apiGroups": ["*"], "apiVersions": ["*"],
                    "resources": ["*/*"], "scope": "Namespaced",
                }],
            },
            "matchConditions": [
                {"name": "names-a-queue", "expression": format!("{} != ''", queue("object"))},
                {"name": "nobody-owns-it", "expression": format!("!({})", owned("object"))},
                {"name": "is-new", "expression": changed},
            ],
            "variables": [{"name": "queue", "expression": queue("object")}],
            "validations": [{
                "expression": format!(
                    "{}\n|| {}",
                    may(VERB_USE, ".namespace(request.namespace).name(variables.queue)"),
                    may(VERB_RELEASE, ""),
                ),
                "messageExpression": format!(
                    "request.userInfo.username + ' may not use queue \"' + variables.queue + '\": choose another one \
                     in the label {LABEL_QUEUE}, or ask an administrator for the verb {VERB_USE} on queues.{GROUP} \"' \
                     + variables.queue + '\"'"
                ),
                "reason": "Forbidden",
            }],
        }),
    )
}

fn policy(name: &str, spec: Value) -> [Value; 2] {
    let spec = with(spec, "failurePolicy", json!("Fail"));
    let policy = json!({
        "apiVersion": API, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name}, "spec": spec,
    });
    let binding = json!({
        "apiVersion": API, "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": ["Deny"]},
    });
    [policy, binding]
}

fn check(expression: &str, message: &str) -> Value {
    json!({"expression": expression, "message": message, "reason": "Forbidden"})
}

/// Changes of pods that have our label or had it.
fn pod_updates(values: &Values, resources: &[&str]) -> Value {
    json!({
        "matchPolicy": "Equivalent",
        "namespaceSelector": values.touchable(),
        "objectSelector": {"matchExpressions": [{"key": LABEL_MANAGED, "operator": "Exists"}]},
        "resourceRules": [{
            "operations": ["UPDATE"], "apiGroups": [""], "apiVersions": ["v1"],
            "resources": resources, "scope": "Namespaced",
        }],
    })
}

fn gate_names(object: &str) -> String {
    format!("{object}.spec.?schedulingGates.orValue([]).map(gate, gate.name)")
}

fn annotation(object: &str, key: &str) -> String {
    format!("{object}.metadata.?annotations[?'{key}'].orValue('')")
}

fn managed(object: &str) -> String {
    format!("{object}.metadata.?labels[?'{LABEL_MANAGED}'].orValue('')")
}

const MARKERS: [&str; 3] = [ANNOTATION_RELEASED, ANNOTATION_EPOCH, ANNOTATION_CREATED_BY];

/// A new pod that is gated, or whose maker is exempt, and that carries no marker but the
/// one of its maker.
fn as_we_leave_it(values: &Values) -> String {
    let (annotations, gates) = ("object.metadata.?annotations.orValue({})", gate_names("object"));
    format!(
        "({not_named} && '{GATE}' in {gates} && {managed} == '{MANAGED}'\n|| {exempt})\n\
         && !('{ANNOTATION_RELEASED}' in {annotations})\n&& !('{ANNOTATION_EPOCH}' in {annotations})\n\
         && {told} == ({creator})",
        not_named = "object.spec.?nodeName.orValue('') == ''",
        managed = managed("object"),
        exempt = is_exempt(values),
        told = annotation("object", ANNOTATION_CREATED_BY),
        creator = creator(&extra(EXTRA_POD_UID), &extra(EXTRA_POD_NAME)),
    )
}

fn gate_is_kept() -> String {
    let (before, after) = (gate_names("oldObject"), gate_names("object"));
    format!("(!('{GATE}' in {before}) || '{GATE}' in {after})")
}

fn markers_are_kept() -> String {
    let kept = MARKERS
        .map(|key| format!("{} == {}", annotation("oldObject", key), annotation("object", key)));
    format!("({} == {}\n&& {})", managed("oldObject"), managed("object"), kept.join("\n&& "))
}

/// Tells a controller with gates of its own how to remove those only.
fn gate_dropped() -> String {
    let (told, example) = (refusals::GATE_DROPPED, "variables.others[0]");
    format!(
        "'{told}' + (variables.others.size() == 0\n\
         ? 'See why it waits: tidegate why pod/' + object.metadata.name\n\
         : 'Remove only ' + variables.others.join(', ') + ', for example: kubectl patch pod ' + object.metadata.name\n\
         + ' --type=strategic -p \\'{{\"spec\":{{\"schedulingGates\":[{{\"$patch\":\"delete\",\"name\":\"' + {example} + '\"}}]}}}}\\'')"
    )
}

/// Each container of the list asks for no more than the one of its name did.
fn containers_do_not_grow(list: &str) -> String {
    format!(
        "object.spec.?{list}.orValue([]).all(new, oldObject.spec.?{list}.orValue([]).exists(old,\n\
         old.name == new.name && {}))",
        does_not_grow("new", "old"),
    )
}

/// The `resources` of one thing ask for no more than those of another. What is
/// absent asks for nothing.
fn does_not_grow(new: &str, old: &str) -> String {
    let side = |field: &str| {
        format!(
            "{new}.?resources.?{field}.orValue({{}}).all(name,\n\
             !quantity({new}.resources.{field}[name])\
             .isGreaterThan(quantity({old}.?resources.?{field}[?name].orValue('0'))))"
        )
    };
    format!("{}\n&& {}", side("requests"), side("limits"))
}

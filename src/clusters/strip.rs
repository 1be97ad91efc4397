//! Objects as the apiserver sends them, reduced to what is kept.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Namespace, Node};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::DynamicObject;
use kube::core::Duration;

use crate::api::names;
use crate::api::released::Released;
use crate::api::v1alpha1::{self, Resources, Stop, StoredQueue};
use crate::engine::event::{MaxRunning, Preemption};
use crate::engine::{Growth, Millis, Order, Placement, Reclaim, Uid, WithinQueue};
use crate::grouping::{self, Metadata, ObjectKey, Owner};
use crate::quantity;

use super::cost::effective_request;
use super::facts::{
    Access, NamespaceFacts, NodeFacts, PastFacts, PodFacts, QueueFacts, SeenPod, Stage,
};
use super::pod::{Pod, PodSpec};

/// Longest `tidegate.dev/released` that is read; ours are under 1,500 bytes.
const LONGEST_RECORD: usize = 4_096;
/// Gates of others that are named.
const GATES_SHOWN: usize = 8;
/// Characters kept of what a scheduler says.
const MESSAGE_SHOWN: usize = 400;

/// A uid as 128 bits: those that it writes, else a hash of its text (FNV-1a), since
/// a reference may hold any text.
#[must_use]
pub fn uid(text: &str) -> Uid {
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    match u128::from_str_radix(&digits, 16) {
        Ok(bits) if digits.len() == 32 && text.len() == 36 => Uid(bits),
        _ => Uid(text.bytes().fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d, |hash, byte| {
            (hash ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b)
        })),
    }
}

fn text(text: Option<&String>) -> Arc<str> {
    text.map(String::as_str).unwrap_or_default().into()
}

/// Keeps a namespace's labels.
#[must_use]
pub fn namespace(namespace: &Namespace) -> NamespaceFacts {
    NamespaceFacts {
        name: text(namespace.metadata.name.as_ref()),
        labels: namespace.metadata.labels.clone().unwrap_or_default(),
    }
}

/// Keeps what a node offers.
#[must_use]
pub fn node(node: &Node) -> NodeFacts {
    let status = node.status.as_ref();
    let allocatable = status.and_then(|status| status.allocatable.as_ref());
    let conditions = status.and_then(|status| status.conditions.as_ref());
    NodeFacts {
        name: text(node.metadata.name.as_ref()),
        allocatable: allocatable.map(offered).unwrap_or_default(),
        ready: conditions.into_iter().flatten().any(|c| c.type_ == "Ready" && c.status == "True"),
        schedulable: node.spec.as_ref().and_then(|spec| spec.unschedulable) != Some(true),
        domains: node.metadata.labels.as_ref().map(domains).unwrap_or_default(),
    }
}

/// Most such labels of one node that are kept.
const DOMAINS: usize = 16;

/// The labels of a node that tell which nodes are near it.
fn domains(labels: &BTreeMap<String, String>) -> BTreeMap<Arc<str>, Arc<str>> {
    let near = |key: &str| key.contains(names::TOPOLOGY) || key == names::LABEL_HOSTNAME;
    let domains = labels.iter().filter(|(key, _)| near(key)).take(DOMAINS);
    domains.map(|(key, value)| (Arc::from(&**key), Arc::from(&**value))).collect()
}

/// Amounts rounded down; what has no meaning offers nothing.
fn offered(amounts: &BTreeMap<String, Text>) -> BTreeMap<String, i128> {
    let units = |name: &String, text: &Text| {
        let amount = quantity::parse(&text.0).ok()?;
        (!amount.is_negative()).then(|| amount.engine_units_floor(name))
    };
    amounts.iter().filter_map(|(name, text)| Some((name.clone(), units(name, text)?))).collect()
}

/// Keeps a queue's configuration. A queue that cannot be read is malformed, never absent.
#[must_use]
pub fn queue(queue: &DynamicObject) -> QueueFacts {
    let StoredQueue { queue, unreadable } = v1alpha1::read_queue(queue.clone());
    let (metadata, spec) = (queue.metadata, queue.spec);
    let mut malformed = unreadable;
    let mut units = |field: &str, written: &Resources| {
        amounts(written).unwrap_or_else(|name| {
            malformed.get_or_insert_with(|| format!("spec.{field}.{name} is no amount"));
            BTreeMap::new()
        })
    };
    QueueFacts {
        name: text(metadata.name.as_ref()),
        uid: text(metadata.uid.as_ref()),
        generation: metadata.generation.unwrap_or(0),
        parent: spec.parent.as_deref().map(Arc::from),
        weight: u32::try_from(spec.weight.max(1)).unwrap_or(u32::MAX),
        guaranteed: units("guaranteed", &spec.guaranteed),
        lendable: units("lendable", &spec.lendable),
        limit: units("limit", &spec.limit),
        malformed: malformed.map(Arc::from),
        order: match spec.order {
            v1alpha1::Order::BestEffort => Order::BestEffort,
            v1alpha1::Order::Strict => Order::Strict,
        },
        growth: match spec.growth {
            v1alpha1::Growth::First => Growth::First,
            v1alpha1::Growth::Fair => Growth::Fair,
        },
        half_life: spec.usage_half_life.map(millis),
        hold: spec.stop != Stop::None,
        drain: spec.stop == Stop::HoldAndDrain,
        max_pending: spec.max_pending.map(|most| u64::try_from(most.pods.max(1)).unwrap_or(1)),
        max_running: max_running(spec.max_running),
        preemption: preemption(&spec.preemption),
        placement: match spec.placement {
            v1alpha1::Placement::Quota => Placement::Quota,
            v1alpha1::Placement::Domain => Placement::Domain,
            v1alpha1::Placement::Node => Placement::Node,
        },
        access: Access {
            namespaces: spec.namespaces,
            priority_classes: spec.priority_classes.into(),
        },
        past: queue.status.and_then(|status| past(&status.past_usage?)),
    }
}

/// As it was written by us; whatever cannot be read is forgotten as a whole.
fn past(written: &v1alpha1::PastUsage) -> Option<PastFacts> {
    let at = written.as_of.parse::<jiff::Timestamp>().ok()?.as_millisecond();
    let units = |amounts: &BTreeMap<String, String>| -> Option<BTreeMap<String, i128>> {
        let unit = |(name, amount): (&String, &String)| {
            Some((name.clone(), quantity::parse(amount).ok()?.millionths(name)))
        };
        amounts.iter().map(unit).collect()
    };
    Some(PastFacts { at, whole: units(&written.usage)?, own: units(&written.own)? })
}

fn max_running(most: Option<v1alpha1::MaxRunning>) -> MaxRunning {
    let number = |most: i64| u64::try_from(most).unwrap_or(0);
    let most = most.unwrap_or_default();
    MaxRunning { groups: most.groups.map(number), pods: most.pods.map(number) }
}

fn preemption(written: &v1alpha1::Preemption) -> Preemption {
    Preemption {
        reclaim: match written.reclaim {
            v1alpha1::Reclaim::Never => Reclaim::Never,
            v1alpha1::Reclaim::Guaranteed => Reclaim::Guaranteed,
            v1alpha1::Reclaim::Entitled => Reclaim::Entitled,
        },
        within_queue: match written.within_queue {
            v1alpha1::WithinQueue::Never => WithinQueue::Never,
            v1alpha1::WithinQueue::LowerPriority => WithinQueue::LowerPriority,
        },
        min_runtime: written.min_runtime.map(millis),
    }
}

fn millis(written: Duration) -> Millis {
    Millis::try_from(std::time::Duration::from(written).as_millis()).unwrap_or(Millis::MAX)
}

/// Amounts rounded down; or the resource whose amount is no quantity or negative.
fn amounts(written: &Resources) -> Result<BTreeMap<String, i128>, &str> {
    let units = written.iter().map(|(name, amount)| {
        let amount = quantity::parse(&amount.0).ok().filter(|amount| !amount.is_negative());
        Ok((name.clone(), amount.ok_or(name.as_str())?.engine_units_floor(name)))
    });
    units.collect()
}

/// Keeps a pod's cost, standing, marks and owner.
#[must_use]
pub fn pod(pod: &Pod) -> SeenPod {
    let key = pod_key(&pod.metadata);
    SeenPod { id: uid(&key.uid), key, cost: effective_request(pod), facts: facts(pod) }
}

fn facts(pod: &Pod) -> PodFacts {
    let spec = pod.spec.as_ref();
    let gated = spec.is_some_and(|spec| gates(spec).any(|gate| gate == names::GATE));
    PodFacts {
        created: created(&pod.metadata),
        metadata: Arc::new(Metadata::from(&pod.metadata)),
        priority: spec.and_then(|spec| spec.priority).unwrap_or(0),
        never_preempts: spec.is_some_and(|spec| spec.preemption_policy.as_deref() == Some("Never")),
        prefers_nodes: spec.is_some_and(PodSpec::prefers_nodes),
        priority_class: spec
            .and_then(|spec| spec.priority_class_name.as_deref())
            .filter(|class| !class.is_empty())
            .map(Arc::from),
        stage: stage(pod, gated),
        open: !gated,
        exempt: is_exempt(&pod.metadata),
        released: if gated { None } else { record(&pod.metadata).map(Box::new) },
    }
}

fn pod_key(meta: &ObjectMeta) -> ObjectKey {
    ObjectKey::of_pod(
        text(meta.namespace.as_ref()),
        text(meta.name.as_ref()),
        text(meta.uid.as_ref()),
    )
}

fn created(meta: &ObjectMeta) -> Millis {
    meta.creation_timestamp.as_ref().map_or(0, |time| time.0.as_millisecond())
}

fn gates(spec: &PodSpec) -> impl Iterator<Item = &str> {
    spec.scheduling_gates.iter().flatten().map(|gate| gate.name.as_str())
}

/// Read from the gates, never from conditions: those lag behind. A pod that is
/// deleted before it has a node never gets one, whatever finalizer still keeps it: the
/// apiserver refuses to bind it. So it takes no room, gated or let go meanwhile.
fn stage(pod: &Pod, gated: bool) -> Stage {
    let spec = pod.spec.as_ref();
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let terminating = pod.metadata.deletion_timestamp.is_some();
    let node = spec.and_then(|spec| spec.node_name.as_deref()).filter(|node| !node.is_empty());
    match (phase, node) {
        (Some("Succeeded" | "Failed"), _) => Stage::Ended,
        (_, Some(node)) => {
            let (terminating, ends_slowly) = (terminating && !pod.lingers(), pod.ends_slowly());
            Stage::Bound { node: node.into(), terminating, ends_slowly }
        }
        (_, None) if terminating => Stage::Ended,
        (_, None) if gated => Stage::Gated,
        (_, None) => {
            let held = spec.is_some_and(|spec| gates(spec).next().is_some());
            Stage::Released { held, hindrance: hindrance(pod) }
        }
    }
}

/// Gates of others, else what a scheduler said of a pod that it found no node for.
fn hindrance(pod: &Pod) -> Option<Arc<str>> {
    let spec = pod.spec.as_ref()?;
    let gates: Vec<&str> = gates(spec).take(GATES_SHOWN).collect();
    if !gates.is_empty() {
        return Some(format!("held by scheduling gates of others: {}", gates.join(", ")).into());
    }
    let conditions = pod.status.as_ref()?.conditions.iter().flatten();
    let scheduled = conditions.into_iter().find(|condition| condition.type_ == "PodScheduled")?;
    // Until the scheduler has looked again, the condition still speaks of gates that are gone.
    let stale = scheduled.reason.as_deref() == Some("SchedulingGated");
    let said = scheduled.message.as_deref().filter(|_| scheduled.status == "False" && !stale)?;
    Some(said.chars().take(MESSAGE_SHOWN).collect::<String>().into())
}

/// Mirror pods and daemons live and die with their node and never queue.
fn is_exempt(meta: &ObjectMeta) -> bool {
    let mirror =
        meta.annotations.as_ref().is_some_and(|a| a.contains_key(names::ANNOTATION_MIRROR));
    let owners = meta.owner_references.iter().flatten();
    mirror
        || owners.into_iter().any(|owner| {
            owner.controller == Some(true)
                && owner.kind == "DaemonSet"
                && owner.api_version.starts_with("apps/")
        })
}

/// What we wrote on this very pod: a record made for another is nobody's word.
fn record(meta: &ObjectMeta) -> Option<Released> {
    let text = meta.annotations.as_ref()?.get(names::ANNOTATION_RELEASED)?;
    let record: Released =
        (text.len() <= LONGEST_RECORD).then(|| serde_json::from_str(text).ok())??;
    (meta.uid.as_ref() == Some(&record.pod)).then_some(record)
}

/// Keeps of an owner what grouping reads.
#[must_use]
pub fn owner(object: &DynamicObject, namespaced: bool) -> Owner {
    let spec = object.data.get("spec").and_then(serde_json::Value::as_object);
    Owner {
        metadata: Metadata::from(&object.metadata),
        namespaced,
        starts_runs: spec.is_some_and(grouping::starts_runs),
    }
}

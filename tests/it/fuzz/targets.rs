//! What must hold of any input.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Instant;

use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode};
use kube::api::DynamicObject;
use serde_json::Value;
use tidegate::admission::server::{
    MUTATE_PODS, Service, VALIDATE_NAMESPACES, VALIDATE_PODS, VALIDATE_QUEUES,
};
use tidegate::admission::{Backlogs, Exempt, QueueTree, Queues};
use tidegate::api::names::{GATE, LABEL_MANAGED, USER_DAEMON_SET_CONTROLLER};
use tidegate::api::{
    released::Released,
    v1alpha1::{Queue, StoredQueue, read_queue},
};
use tidegate::clusters::facts::Stage;
use tidegate::clusters::pod::Pod;
use tidegate::clusters::strip;
use tidegate::engine::log::Replay;
use tidegate::grouping::{
    Above, Lookup, Member, Metadata, ObjectKey, Owner, Owners, Reference, resolve,
};
use tidegate::quantity;
use tidegate::record::Logs;
use tokio::runtime::Runtime;
use tower::ServiceExt as _;

use super::mutate::Random;

/// Sums of so many amounts of this size still fit the engine's integers.
const MOST_UNITS: i128 = 1 << 100;

/// A review is answered, called malformed or too late; a pod that may pass has our gate.
pub fn reviews() -> impl Fn(&[u8]) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let queues = Queues::default();
    queues.store(Some(Arc::new(QueueTree::default())));
    let service = Service::new(Exempt::default(), queues, Backlogs::default());
    move |input| {
        for path in [MUTATE_PODS, VALIDATE_PODS, VALIDATE_QUEUES, VALIDATE_NAMESPACES] {
            review(&runtime, &service, path, input);
        }
    }
}

fn review(runtime: &Runtime, service: &Service, path: &str, input: &[u8]) {
    // A refusal of a queue is looked at again and again until somebody is tired of it.
    let uri = if path == VALIDATE_QUEUES { format!("{path}?timeout=1ms") } else { path.into() };
    let request = Request::post(uri).body(Body::from(input.to_vec())).unwrap();
    let (status, body) = runtime.block_on(async {
        let response = service.router().oneshot(request).await.unwrap();
        (response.status(), to_bytes(response.into_body(), usize::MAX).await.unwrap())
    });
    match status {
        StatusCode::OK if path == MUTATE_PODS => {
            is_gated_if_let_in(input, &serde_json::from_slice(&body).unwrap());
        }
        StatusCode::OK | StatusCode::BAD_REQUEST => {}
        StatusCode::GATEWAY_TIMEOUT if path == VALIDATE_QUEUES => {}
        other => panic!("{path} answers {other}"),
    }
}

fn is_gated_if_let_in(input: &[u8], answer: &Value) {
    // Admission skips over broken text in fields that it does not read; no apiserver sends it.
    let Ok(review) = serde_json::from_slice::<Value>(input) else { return };
    let request = &review["request"];
    if answer["response"]["allowed"] != true || !is_new_pod(request) || is_exempt(request) {
        return;
    }
    let mut pod = request["object"].clone();
    let is_pod = serde_json::from_value::<Pod>(pod.clone()).is_ok();
    if let Some(patch) = answer["response"].get("patch") {
        let patch: k8s_openapi::ByteString = serde_json::from_value(patch.clone()).unwrap();
        let patch: json_patch::Patch = serde_json::from_slice(&patch.0).unwrap();
        // A patch that fits nothing is refused by the apiserver.
        let fits = json_patch::patch(&mut pod, &patch).is_ok();
        assert!(fits || !is_pod, "the patch does not fit a pod");
    }
    if is_pod {
        let pod: Pod = serde_json::from_value(pod).expect("what was a pod is one no more");
        assert!(has_gate(&pod), "let in without our gate");
        let labels = pod.metadata.labels.unwrap_or_default();
        assert_eq!(labels.get(LABEL_MANAGED).map(String::as_str), Some("true"));
    }
}

fn is_new_pod(request: &Value) -> bool {
    let resource = &request["resource"];
    let sub = request["subResource"].as_str().unwrap_or_default();
    (&resource["group"], &resource["version"], &resource["resource"])
        == (&Value::from(""), &Value::from("v1"), &Value::from("pods"))
        && request["operation"] == "CREATE"
        && sub.is_empty()
}

fn is_exempt(request: &Value) -> bool {
    let user = &request["userInfo"];
    let groups = user["groups"].as_array().map(Vec::as_slice).unwrap_or_default();
    user["username"] == USER_DAEMON_SET_CONTROLLER
        || groups.iter().any(|group| group == "system:nodes")
}

fn has_gate(pod: &Pod) -> bool {
    let gates = pod.spec.as_ref().and_then(|spec| spec.scheduling_gates.as_deref());
    gates.unwrap_or_default().iter().any(|gate| gate.name == GATE)
}

/// A gate that is there is never read as absent, costs are sane, a record is believed only
/// where it names its pod, and what is passed over in reading means nothing.
pub fn pod(input: &[u8]) {
    let Ok(pod) = serde_json::from_slice::<Pod>(input) else { return };
    let seen = strip::pod(&pod);
    let facts = &seen.facts;
    assert_eq!(facts.open, !has_gate(&pod));
    assert!(facts.open || !matches!(facts.stage, Stage::Released { .. }));
    for (resource, units) in &seen.cost {
        assert!((0..MOST_UNITS).contains(units), "{resource} costs {units}");
    }
    assert!(seen.cost.get("pods").is_some_and(|&pods| pods >= 1));
    if let Some(record) = &facts.released {
        assert!(facts.open && pod.metadata.uid.as_ref() == Some(&record.pod));
    }
    // The same by way of the whole pod, where that can be read.
    if let Ok(whole) = serde_json::from_slice::<k8s_openapi::api::core::v1::Pod>(input) {
        let again: Pod = serde_json::from_value(serde_json::to_value(&whole).unwrap()).unwrap();
        assert_eq!(strip::pod(&again), seen);
    }
}

/// A queue is read with sane numbers or called malformed, by whoever reads it.
pub fn queue(input: &[u8]) {
    if let Ok(object) = serde_json::from_slice::<DynamicObject>(input) {
        let facts = strip::queue(&object);
        assert!(facts.weight >= 1 && facts.max_pending != Some(0));
        for units in facts.guaranteed.values().chain(facts.limit.values()) {
            assert!((0..MOST_UNITS).contains(units), "{units}");
        }
        let StoredQueue { queue, unreadable } = read_queue(object);
        assert!(unreadable.is_none() || facts.malformed.is_some());
        assert_eq!(queue.metadata.name.as_deref().unwrap_or_default(), &*facts.name);
    }
    if let Ok(queue) = serde_json::from_slice::<Queue>(input) {
        drop([&queue].into_iter().collect::<QueueTree>());
        Backlogs::default().observe([&queue].into_iter(), Instant::now());
        let again: Queue = serde_json::from_value(serde_json::to_value(&queue).unwrap()).unwrap();
        assert_eq!((again.spec, again.status), (queue.spec, queue.status));
    }
}

/// Texts that are read are written back as they were.
pub fn text(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    assert_eq!(strip::uid(text), strip::uid(text));
    if let Ok(record) = serde_json::from_str::<Released>(text) {
        let written = serde_json::to_string(&record).unwrap();
        assert_eq!(serde_json::from_str::<Released>(&written).unwrap(), record);
    }
    let Ok(amount) = quantity::parse(text) else { return };
    for resource in ["cpu", "memory", "nvidia.com/gpu"] {
        let (units, floor) = (amount.engine_units(resource), amount.engine_units_floor(resource));
        assert!(floor <= units && units - floor <= 1, "{floor} {units}");
        assert!(units.abs() < MOST_UNITS);
        let again = quantity::parse(&quantity::format(resource, units)).unwrap();
        assert_eq!(again.engine_units(resource), units);
    }
}

/// A fleet in which everybody owns somebody, however absurd.
struct Absurd {
    /// Read for each of them, but for whose they are.
    like: Owner,
    asked: Cell<u64>,
}

impl Owners for Absurd {
    fn look_up(&self, owner: &ObjectKey) -> Lookup {
        self.asked.set(self.asked.get() + 1);
        let seed = owner.uid.bytes().fold(0, |sum: u64, byte| sum * 31 % 65_537 + u64::from(byte));
        let mut random = Random::of(seed);
        match random.below(12) {
            0 => return Lookup::Pending,
            1 => return Lookup::WrongUid,
            2 => return Lookup::Forbidden("a rule".into()),
            3 => return Lookup::Missing,
            _ => {}
        }
        let above = Reference {
            api_version: owner.api_version.clone(),
            kind: owner.kind.clone(),
            name: format!("above-{}", owner.name).into(),
            uid: format!("uid-{}", random.below(40)).into(),
        };
        let above = if seed % 2 == 0 { Above::Controller(above) } else { Above::Only(above) };
        let metadata = Metadata { above, ..self.like.metadata.clone() };
        Lookup::Found(Owner { metadata, ..self.like.clone() })
    }
}

/// Following owners ends soon and says the same each time, whatever they say of each other.
pub fn owners(input: &[u8]) {
    let Ok(object) = serde_json::from_slice::<DynamicObject>(input) else { return };
    let fleet = Absurd { like: strip::owner(&object, true), asked: Cell::new(0) };
    let Ok(pod) = serde_json::from_slice::<Pod>(input) else { return };
    let seen = strip::pod(&pod);
    let queue = Arc::from("default");
    let member =
        Member { key: &seen.key, metadata: &seen.facts.metadata, namespace_queue: Some(&queue) };
    let first = resolve(&member, &fleet);
    assert!(fleet.asked.replace(0) <= 20, "it asks on and on");
    assert_eq!(resolve(&member, &fleet), first);
    assert!(first.placement().findings.evidence.len() <= 100);
}

/// A log has an end, and nothing is read after what is no entry. What it says that makes no sense
/// is decided otherwise, or not noticed.
pub fn log(input: &[u8]) {
    let Ok(mut logs) = Logs::of(input) else { return };
    let mut replay = Replay::default();
    let mut same = true;
    let bad = logs.by_ref().filter_map(|entry| match entry {
        Ok(entry) => {
            same = same && replay.step(entry).is_ok();
            None
        }
        Err(error) => Some(error),
    });
    assert!(bad.count() + usize::from(logs.cut) <= 1 && logs.next().is_none());
}

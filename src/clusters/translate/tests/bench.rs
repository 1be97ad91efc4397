//! A translator on a bench: objects in, the facts that the engine would have out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Namespace, Node};
use kube::api::DynamicObject;
use serde_json::{Value, json};

use super::super::{Output, Translator};
use crate::clusters::facts::{Observation, SeenPod, Watch};
use crate::clusters::pod::Pod;
use crate::clusters::strip;
use crate::engine::event::{
    Event, GroupConfig, GroupName, Input, Name, NodeConfig, PodConfig, Used,
};
use crate::engine::{
    Assignment, ClusterId, DomainId, GroupId, Millis, NodeId, PodId, PodState, QueueId, ResourceId,
    Vector,
};
use crate::grouping::{Lookup, ObjectKey};

/// A uid for a name: as the apiserver writes them.
pub fn uid_of(name: &str) -> String {
    let hex = format!("{:032x}", strip::uid(name).0);
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

/// An object as JSON, changed step by step.
#[derive(Clone, Debug)]
pub struct Made(pub Value);

impl Made {
    pub fn new(api_version: &str, kind: &str, namespace: &str, name: &str) -> Self {
        Self(json!({
            "apiVersion": api_version, "kind": kind,
            "metadata": {
                "name": name, "namespace": namespace, "uid": uid_of(&format!("{kind}/{name}")),
                "labels": {}, "annotations": {}, "ownerReferences": [],
                "creationTimestamp": "2026-01-01T00:00:00Z",
            },
            "spec": {}, "status": {},
        }))
    }

    pub fn set(mut self, pointer: &str, value: Value) -> Self {
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        self.0.pointer_mut(parent).unwrap()[key] = value;
        self
    }

    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.0["metadata"]["labels"][key] = value.into();
        self
    }

    pub fn queue(self, queue: &str) -> Self {
        self.label("tidegate.dev/queue", queue)
    }

    pub fn managed(self) -> Self {
        self.label("tidegate.dev/managed", "true")
    }

    pub fn annotated(mut self, key: &str, value: &str) -> Self {
        self.0["metadata"]["annotations"][key] = value.into();
        self
    }

    /// Owned by `Kind/name`; a controller.
    pub fn by(mut self, owner: &str) -> Self {
        let (kind, name) = owner.split_once('/').unwrap();
        let api_version = if kind == "DaemonSet" { "apps/v1" } else { "v1" };
        self.0["metadata"]["ownerReferences"].as_array_mut().unwrap().push(json!({
            "apiVersion": api_version, "kind": kind, "name": name,
            "uid": uid_of(owner), "controller": true,
        }));
        self
    }

    pub fn born(self, second: u8) -> Self {
        self.set("/metadata/creationTimestamp", json!(format!("2026-01-01T00:00:{second:02}Z")))
    }

    pub fn gated(self) -> Self {
        self.set("/spec/schedulingGates", json!([{"name": "tidegate.dev/queue"}]))
    }

    pub fn open(self) -> Self {
        self.set("/spec/schedulingGates", json!([]))
    }

    pub fn on(self, node: &str) -> Self {
        self.open().set("/spec/nodeName", json!(node))
    }

    pub fn phase(self, phase: &str) -> Self {
        self.set("/status/phase", json!(phase))
    }

    pub fn deleting(self) -> Self {
        self.set("/metadata/deletionTimestamp", json!("2026-01-01T00:01:00Z"))
    }

    /// As our release leaves it.
    pub fn released(self, queue: &str, group: &str) -> Self {
        let record = json!({
            "pod": self.0["metadata"]["uid"], "queue": queue, "group": group, "root": uid_of(group), "size": 1,
            "time": "2026-01-01T00:00:30Z", "decision": 7,
        });
        self.open().annotated("tidegate.dev/released", &record.to_string())
    }

    pub fn typed<K: serde::de::DeserializeOwned>(&self) -> K {
        serde_json::from_value(self.0.clone()).unwrap()
    }

    pub fn seen(&self) -> SeenPod {
        strip::pod(&self.typed::<Pod>())
    }

    pub fn id(&self) -> PodId {
        strip::uid(self.0["metadata"]["uid"].as_str().unwrap())
    }

    fn name(&self) -> String {
        format!(
            "{}/{}",
            self.0["kind"].as_str().unwrap(),
            self.0["metadata"]["name"].as_str().unwrap()
        )
    }
}

/// A pod of one core in namespace `ns`, with our label and gate.
pub fn pod(name: &str) -> Made {
    let containers = json!([{"name": "c", "resources": {"requests": {"cpu": "1"}}}]);
    Made::new("v1", "Pod", "ns", name).managed().gated().set("/spec/containers", containers)
}

/// The same as it is where nothing was gated.
pub fn plain_pod(name: &str, node: &str) -> Made {
    let mut pod = pod(name).on(node);
    pod.0["metadata"]["labels"].as_object_mut().unwrap().remove("tidegate.dev/managed");
    pod
}

pub fn namespace(name: &str) -> Made {
    Made::new("v1", "Namespace", "", name)
}

pub fn node(name: &str) -> Made {
    Made::new("v1", "Node", "", name)
        .set("/status/allocatable", json!({"cpu": "8", "memory": "16Gi", "pods": "110"}))
        .set("/status/conditions", json!([{"type": "Ready", "status": "True"}]))
}

pub fn queue(name: &str) -> Made {
    Made::new("tidegate.dev/v1alpha1", "Queue", "", name)
}

pub fn owner(is: &str) -> Made {
    let (kind, name) = is.split_once('/').unwrap();
    Made::new("v1", kind, "ns", name)
}

pub fn seen_namespace(made: &Made) -> Observation {
    Observation::Namespace(strip::namespace(&made.typed::<Namespace>()))
}

pub fn seen_node(made: &Made) -> Observation {
    Observation::Node(strip::node(&made.typed::<Node>()))
}

pub fn seen_queue(made: &Made) -> Observation {
    Observation::Queue(strip::queue(&made.typed::<DynamicObject>()))
}

/// What an engine would hold, checked as it comes.
#[derive(Debug, Default)]
pub struct Mirror {
    pub resources: BTreeMap<ResourceId, String>,
    pub queue_names: BTreeMap<QueueId, (String, bool)>,
    pub queues: BTreeMap<QueueId, String>,
    pub used: BTreeMap<QueueId, Used>,
    pub node_names: BTreeMap<NodeId, String>,
    domain_names: BTreeMap<DomainId, String>,
    pub nodes: BTreeMap<NodeId, NodeConfig>,
    pub foreign: BTreeMap<NodeId, Vector>,
    pub group_names: BTreeMap<GroupId, Arc<GroupName>>,
    pub groups: BTreeMap<GroupId, GroupConfig>,
    pub pod_names: BTreeMap<PodId, String>,
    pub pods: BTreeMap<PodId, PodConfig>,
    pub hindrances: BTreeMap<PodId, String>,
    pub synced: usize,
}

impl Mirror {
    pub fn take(&mut self, input: Input) {
        match input {
            Input::Name(name) => self.name(name),
            Input::Event(event) => self.event(event),
            Input::Refusal(..) | Input::Spared(..) => panic!("only the writer tells of refusals"),
            Input::Lead(_) => panic!("only the follower says who leads"),
        }
    }

    fn name(&mut self, name: Name) {
        match name {
            Name::Resource(id, name) => {
                assert!(self.resources.insert(id, name.to_string()).is_none(), "named twice");
            }
            Name::Queue(id, name) => {
                let known = (name.name.to_string(), name.object.is_some());
                self.queue_names.insert(id, known);
            }
            Name::Node(id, name) => drop(self.node_names.insert(id, name.to_string())),
            Name::Group(id, name) => drop(self.group_names.insert(id, name)),
            Name::GroupGone(id) => {
                assert!(self.group_names.remove(&id).is_some(), "an unknown group is gone");
                assert!(!self.groups.contains_key(&id), "a group with pods is gone");
            }
            Name::Pod(id, address, _) => {
                self.pod_names.insert(id, format!("{}/{}", address.namespace, address.name));
            }
            Name::PrefersNodes(id) | Name::EndsSlowly(id) => {
                assert!(self.pod_names.contains_key(&id), "before its name");
            }
            Name::Domain(id, Some((key, value))) => {
                let label = format!("{key}={value}");
                assert!(self.domain_names.insert(id, label).is_none(), "named twice");
            }
            Name::Domain(id, None) => {
                assert!(self.domain_names.remove(&id).is_some(), "an unknown domain is gone");
            }
            Name::Hindrance(id, why) => {
                assert!(self.pod_names.contains_key(&id), "a pod is hindered before its name");
                match why {
                    Some(why) => drop(self.hindrances.insert(id, why.to_string())),
                    None => drop(self.hindrances.remove(&id)),
                }
            }
        }
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::QueueChanged(id, config) => {
                assert!(self.queue_names[&id].1, "a queue is configured before its identity");
                config.parent.iter().for_each(|parent| drop(self.queue_names[parent].clone()));
                let (own, most) = (self.amounts(&config.guaranteed), self.amounts(&config.limit));
                let parent = config.parent.map(|parent| self.queue_names[&parent].0.clone());
                let text = format!(
                    "parent={parent:?} weight={} own={own} most={most} {:?} hold={} malformed={}",
                    config.weight, config.order, config.hold, config.malformed
                );
                self.queues.insert(id, text);
            }
            Event::QueueRemoved(id) => assert!(self.queues.remove(&id).is_some()),
            Event::NodeChanged(id, config) => {
                assert!(self.node_names.contains_key(&id));
                self.amounts(&config.allocatable);
                self.nodes.insert(id, config);
            }
            Event::NodeRemoved(id) => {
                assert!(self.nodes.remove(&id).is_some());
                self.foreign.remove(&id);
            }
            Event::ForeignChanged(id, load) => {
                assert!(self.nodes.contains_key(&id));
                self.amounts(&load);
                self.foreign.insert(id, load);
            }
            Event::GroupChanged(id, config) => {
                assert!(self.group_names.contains_key(&id), "a group before its name");
                self.queue_of(&config);
                self.groups.insert(id, config);
            }
            Event::PodChanged(id, config) => self.pod_changed(id, &config),
            Event::PodRemoved(id) => {
                let pod = self.pods.remove(&id).expect("an unknown pod is gone");
                self.pod_names.remove(&id);
                self.hindrances.remove(&id);
                self.forget_if_empty(pod.group);
            }
            Event::Synced(_) => self.synced += 1,
            Event::UsedBefore(id, used) => drop(self.used.insert(id, used)),
            Event::Outcome(..) | Event::Paused(..) | Event::Resumed(_) => {
                panic!("not ours to say")
            }
        }
    }

    fn pod_changed(&mut self, id: PodId, config: &PodConfig) {
        assert!(self.pod_names.contains_key(&id), "a pod before its name");
        assert!(self.groups.contains_key(&config.group), "a pod before its group");
        self.amounts(&config.cost);
        if let PodState::Bound { node, .. } = config.state {
            assert!(self.node_names.contains_key(&node));
        }
        let before = self.pods.insert(id, config.clone());
        if let Some(before) = before.filter(|before| before.group != config.group) {
            self.forget_if_empty(before.group);
        }
    }

    /// As the engine does.
    fn forget_if_empty(&mut self, group: GroupId) {
        if self.pods.values().all(|pod| pod.group != group) {
            self.groups.remove(&group);
        }
    }

    fn amounts(&self, vector: &Vector) -> String {
        let one = |(id, amount)| format!("{}:{amount}", self.resources[&id]);
        vector.iter().map(one).collect::<Vec<_>>().join(",")
    }

    fn queue_of(&self, config: &GroupConfig) -> String {
        let name = |id| self.queue_names[&id].0.clone();
        match config.queue {
            Assignment::Unresolved => "unresolved".to_owned(),
            Assignment::Unnamed => "unnamed".to_owned(),
            Assignment::Queue(id) => name(id),
            Assignment::Forbidden(id, why) => format!("{} forbidden by {why:?}", name(id)),
        }
    }

    /// One line a fact, the same whatever numbers were given out.
    pub fn facts(&self) -> BTreeSet<String> {
        let mut lines = BTreeSet::new();
        for (id, text) in &self.queues {
            lines.insert(format!("queue {} {text}", self.queue_names[id].0));
        }
        for (id, config) in &self.nodes {
            let name = &self.node_names[id];
            let offer = self.amounts(&config.allocatable);
            lines.insert(format!("node {name} {offer} {} {}", config.ready, config.schedulable));
        }
        for (id, load) in self.foreign.iter().filter(|(_, load)| !load.is_empty()) {
            lines.insert(format!("foreign {} {}", self.node_names[id], self.amounts(load)));
        }
        for (id, pod) in &self.pods {
            let hindrance = self.hindrances.get(id);
            let text = self.pod_text(pod);
            lines.insert(format!("pod {} {text} {hindrance:?}", self.pod_names[id]));
        }
        for group in self.groups.keys() {
            let name = &self.group_names[group];
            lines.insert(format!(
                "group {} {:?} {:?} {:?}",
                self.group(*group),
                name.origin.chains,
                name.origin.evidence,
                name.origin.warnings
            ));
        }
        lines.insert(format!("synced {}", self.synced));
        lines
    }

    fn pod_text(&self, pod: &PodConfig) -> String {
        let state = match pod.state {
            PodState::Bound { node, terminating } => {
                format!("Bound {} {terminating}", self.node_names[&node])
            }
            state => format!("{state:?}"),
        };
        format!(
            "{state} in {} cost {} priority {} created {}",
            self.group(pod.group),
            self.amounts(&pod.cost),
            pod.priority,
            pod.created
        )
    }

    fn group(&self, id: GroupId) -> String {
        let (config, name) = (&self.groups[&id], &self.group_names[&id]);
        format!(
            "{}/{} for {} {:?}",
            name.root.kind,
            name.root.address.name,
            self.queue_of(config),
            config.gang
        )
    }
}

/// A translator, its owners, and what came out of it.
#[derive(Debug)]
pub struct Bench {
    pub translator: Translator,
    pub mirror: Mirror,
    /// Answers to look-ups; what is not here is missing.
    pub owners: BTreeMap<String, Lookup>,
    pub asked: Vec<ObjectKey>,
    pub now: Millis,
}

impl Bench {
    pub fn new() -> Self {
        Self {
            translator: Translator::new(ClusterId(0)),
            mirror: Mirror::default(),
            owners: BTreeMap::new(),
            asked: Vec::new(),
            now: 0,
        }
    }

    /// With namespace `ns` of queue `house`, opted in, node `n1` and queue `house`.
    pub fn furnished() -> Self {
        let mut bench = Self::new();
        bench.see(seen_namespace(&namespace("ns").managed().queue("house")));
        bench.see(seen_node(&node("n1")));
        bench.see(seen_queue(&queue("house")));
        bench
    }

    pub fn see(&mut self, observation: Observation) {
        let Output { inputs, look_ups } = self.translator.observe(self.now, observation);
        for input in inputs {
            self.mirror.take(input);
        }
        self.asked.extend(look_ups);
    }

    pub fn managed(&mut self, pod: &Made) {
        self.see(Observation::ManagedPod(pod.seen()));
    }

    pub fn other(&mut self, pod: &Made) {
        self.see(Observation::OtherPod(pod.seen()));
    }

    pub fn owner(&mut self, made: &Made) {
        let object: DynamicObject = made.typed();
        self.owners.insert(made.name(), Lookup::Found(strip::owner(&object, true)));
    }

    pub fn answer(&self, key: &ObjectKey) -> Lookup {
        self.owners.get(&key.to_string()).cloned().unwrap_or(Lookup::Missing)
    }

    /// Answers all look-ups until there are none.
    pub fn answer_all(&mut self) {
        while let Some(key) = self.asked.pop() {
            let answer = self.answer(&key);
            self.see(Observation::Owner(key, answer));
        }
    }

    /// Lets time go by, with all look-ups that come due answered.
    pub fn pass(&mut self, millis: Millis) {
        let end = self.now + millis;
        while self.now < end {
            self.now += 100;
            self.asked.extend(self.translator.due(self.now));
            self.answer_all();
        }
    }

    pub fn list(&mut self, watch: Watch, observations: Vec<Observation>) {
        self.see(Observation::ListStarted(watch));
        for observation in observations {
            self.see(observation);
        }
        self.see(Observation::ListDone(watch));
    }

    /// Facts about pods and foreign load, without costs and times.
    pub fn pods(&self) -> Vec<String> {
        let mirror = &self.mirror;
        let pods = mirror.pods.iter().map(|(id, pod)| {
            let text = mirror.pod_text(pod);
            let short = text.split(" cost ").next().unwrap().to_owned();
            format!("{}: {short}", mirror.pod_names[id])
        });
        let load = mirror.foreign.iter().filter(|(_, load)| !load.is_empty());
        let foreign = load.map(|(id, load)| {
            format!("foreign on {}: {}", mirror.node_names[id], mirror.amounts(load))
        });
        let mut lines: Vec<String> = pods.chain(foreign).collect();
        lines.sort();
        lines
    }

    pub fn evidence(&self) -> Vec<String> {
        let names = self.mirror.group_names.values();
        names.flat_map(|name| name.origin.evidence.iter().map(ToString::to_string)).collect()
    }

    pub fn warnings(&self) -> Vec<String> {
        let names = self.mirror.group_names.values();
        names.flat_map(|name| name.origin.warnings.iter().map(ToString::to_string)).collect()
    }

    /// Owner chains of all groups, each on one line.
    pub fn chains(&self) -> Vec<String> {
        let names = self.mirror.group_names.values();
        names.flat_map(|name| name.origin.chains.iter().map(|chain| chain.join(" "))).collect()
    }
}

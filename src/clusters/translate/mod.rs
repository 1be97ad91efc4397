//! The translator: observations in, inputs for the engine and look-ups out.
//!
//! A pure state machine. Times come in as parameters; the same final state of
//! the cluster gives the same facts to the engine, whatever way it came about.

mod domains;
mod few;
mod groups;
mod intern;
mod lists;
mod nodes;
mod owners;
mod placing;
mod pool;
mod queues;
mod start;
mod tally;
mod telling;
mod terms;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::api::names;
use crate::engine::event::{Address, Event, Input, Origin};
use crate::engine::{ClusterId, GroupId, Millis, NodeId, PodId, PodState, Vector};
use crate::grouping::{Findings, Lookup, Metadata, ObjectKey};

use super::facts::{
    NamespaceFacts, NodeFacts, Observation, PastFacts, PodFacts, QueueFacts, SeenPod, Stage, Watch,
};
use groups::{Group, Groups, Membership, address};
use intern::Resources;
use lists::{Lists, Mention};
use nodes::Nodes;
use owners::OwnerCache;
use pool::Pool;
use queues::Queues;
use start::Start;

/// What an observation leads to.
#[derive(Debug, Default)]
pub struct Output {
    /// For the engine, in this order.
    pub inputs: Vec<Input>,
    /// Owners to be read; each is answered by an [`Observation::Owner`].
    pub look_ups: Vec<ObjectKey>,
}

/// All that is known of one cluster.
#[derive(Debug)]
pub struct Translator {
    cluster: ClusterId,
    lists: Lists,
    start: Start,
    namespaces: BTreeMap<Arc<str>, NamespaceFacts>,
    queues: Queues,
    /// What queues used before, until that was told.
    pasts: Option<BTreeMap<Arc<str>, PastFacts>>,
    nodes: Nodes,
    resources: Resources,
    owners: OwnerCache,
    /// Boxed, since a third of such a map is empty.
    pods: BTreeMap<PodId, Box<Pod>>,
    by_namespace: BTreeMap<Arc<str>, BTreeSet<PodId>>,
    groups: Groups,
    shared: Shared,
    findings: Pool<Findings>,
    origins: Pool<Origin>,
    /// Pods that may have to be told.
    dirty: BTreeSet<PodId>,
    /// The open group whose owners were read again last.
    cursor: GroupId,
    now: Millis,
    out: Output,
}

/// A pod in one list or both: its label may have changed between them.
#[derive(Debug, Default)]
struct Pod {
    managed: Slot,
    other: Slot,
    seat: Seat,
    /// As the engine knows it.
    told: Option<Told>,
}

/// A pod's place in one list. Most pods are in one only.
type Slot = Option<Box<Record>>;

/// What of a pod's configuration changes while its record does not.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Told {
    group: GroupId,
    state: PodState,
    /// The record has changed since.
    stale: bool,
}

/// A pod as one list has it.
#[derive(Debug, PartialEq)]
struct Record {
    address: Arc<Address>,
    cost: Arc<Vector>,
    facts: PodFacts,
}

/// What many records hold alike.
#[derive(Debug, Default)]
struct Shared {
    texts: Pool<str>,
    metadata: Pool<Metadata>,
    costs: Pool<Vector>,
}

impl Shared {
    fn record(&mut self, mut address: Address, cost: Vector, mut facts: PodFacts) -> Record {
        let texts = &mut self.texts;
        let mut share = |text: &mut Arc<str>| *text = texts.share(Arc::clone(text));
        share(&mut address.namespace);
        facts.priority_class.iter_mut().for_each(&mut share);
        if let Stage::Bound { node, .. } = &mut facts.stage {
            share(node);
        }
        facts.metadata = self.metadata.share(facts.metadata);
        let cost = self.costs.share(Arc::new(cost));
        Record { address: Arc::new(address), cost, facts }
    }
}

/// How a pod counts.
#[derive(Debug, Default)]
enum Seat {
    /// Not at all.
    #[default]
    Nowhere,
    /// As foreign load of its node.
    Foreign(NodeId, Arc<Vector>),
    /// As a member of a group, maybe on a node.
    Member(Membership, Option<NodeId>),
}

impl Translator {
    /// Knows nothing yet.
    #[must_use]
    pub fn new(cluster: ClusterId) -> Self {
        Self {
            cluster,
            lists: Lists::default(),
            start: Start::Listing,
            namespaces: BTreeMap::new(),
            queues: Queues::default(),
            pasts: Some(BTreeMap::new()),
            nodes: Nodes::default(),
            resources: Resources::default(),
            owners: OwnerCache::default(),
            pods: BTreeMap::new(),
            by_namespace: BTreeMap::new(),
            groups: Groups::default(),
            shared: Shared::default(),
            findings: Pool::default(),
            origins: Pool::default(),
            dirty: BTreeSet::new(),
            cursor: GroupId::default(),
            now: 0,
            out: Output::default(),
        }
    }

    /// Takes one observation in, made at `now` by any clock that does not go back.
    pub fn observe(&mut self, now: Millis, observation: Observation) -> Output {
        self.now = self.now.max(now);
        self.lists.note(&observation);
        match observation {
            Observation::ListStarted(watch) => self.lists.start(watch),
            Observation::ListDone(watch) => self.list_done(watch),
            Observation::Namespace(facts) => self.namespace(facts),
            Observation::NamespaceGone(name) => self.namespace_gone(&name),
            Observation::Node(facts) => self.node(&facts),
            Observation::NodeGone(name) => self.node_gone(&name),
            Observation::Queue(facts) => self.queue(facts),
            Observation::QueueGone(name) => self.queue_gone(&name),
            Observation::ManagedPod(seen) => self.pod(seen, |pod| &mut pod.managed),
            Observation::ManagedPodGone(id) => self.pod_gone(id, |pod| &mut pod.managed),
            Observation::OtherPod(seen) => self.pod(seen, |pod| &mut pod.other),
            Observation::OtherPodGone(id) => self.pod_gone(id, |pod| &mut pod.other),
            Observation::Owner(key, answer) => self.answered(&key, answer),
        }
        self.tell();
        std::mem::take(&mut self.out)
    }

    /// Forgets that the lists were complete, and nothing else: all of them will begin again,
    /// and when they are done [`Event::Synced`] is said once more.
    pub fn start_again(&mut self) {
        self.lists = Lists::default();
        self.start = Start::Listing;
    }

    /// Owners to be read at `now`: failed look-ups whose wait is over, then, of
    /// groups that wait, the owner at the top of each chain in turn. There a label may
    /// be changed, an adoption seen, or a right have been granted.
    pub fn due(&mut self, now: Millis) -> Vec<ObjectKey> {
        self.now = self.now.max(now);
        let mut due = self.owners.due(self.now);
        let most = due.len() + self.owners.allowance(self.now);
        let open: Vec<GroupId> = self.groups.open_after(self.cursor).collect();
        for id in open {
            if due.len() >= most {
                break;
            }
            self.cursor = id;
            let tops = self.groups.get(id).into_iter().flat_map(Group::tops);
            let mut tops: Vec<&ObjectKey> = tops.collect();
            tops.sort_by_key(|top| self.owners.asked_at(top));
            for top in tops {
                if due.len() < most && self.owners.refresh(self.now, top) {
                    due.push(top.clone());
                }
            }
        }
        due
    }

    fn list_done(&mut self, watch: Watch) {
        let mentioned = self.lists.finish(watch);
        let mut vanished = self.known_names(watch);
        vanished.retain(|name| !mentioned.contains(&Mention::Name(Arc::clone(name))));
        match watch {
            Watch::Namespaces => vanished.iter().for_each(|name| self.namespace_gone(name)),
            Watch::Nodes => vanished.iter().for_each(|name| self.node_gone(name)),
            Watch::Queues => vanished.iter().for_each(|name| self.queue_gone(name)),
            Watch::ManagedPods => self.pods_vanished(&mentioned, |pod| &mut pod.managed),
            Watch::OtherPods => self.pods_vanished(&mentioned, |pod| &mut pod.other),
        }
    }

    fn known_names(&self, watch: Watch) -> Vec<Arc<str>> {
        match watch {
            Watch::Namespaces => self.namespaces.keys().cloned().collect(),
            Watch::Nodes => self.nodes.names().cloned().collect(),
            Watch::Queues => self.queues.existing().cloned().collect(),
            Watch::ManagedPods | Watch::OtherPods => Vec::new(),
        }
    }

    fn answered(&mut self, key: &ObjectKey, answer: Lookup) {
        if answer == Lookup::Pending {
            self.owners.users(key).for_each(|pod| self.start.settled(pod));
        }
        for pod in self.owners.answered(self.now, key, answer) {
            self.settle(pod);
        }
    }

    fn node(&mut self, facts: &NodeFacts) {
        let Self { cluster, nodes, resources, out, .. } = self;
        nodes.applied(*cluster, facts, resources, &mut out.inputs);
    }

    fn node_gone(&mut self, name: &str) {
        self.nodes.gone(name, &mut self.out.inputs);
    }

    fn namespace(&mut self, facts: NamespaceFacts) {
        let name = Arc::clone(&facts.name);
        if self.namespaces.get(&name) != Some(&facts) {
            self.namespaces.insert(Arc::clone(&name), facts);
            self.namespace_changed(&name);
        }
    }

    fn namespace_gone(&mut self, name: &Arc<str>) {
        if self.namespaces.remove(name).is_some() {
            self.namespace_changed(name);
        }
    }

    fn namespace_changed(&mut self, name: &str) {
        for pod in self.by_namespace.get(name).cloned().into_iter().flatten() {
            self.settle(pod);
        }
    }

    /// Whether pods there that were never gated are charged to a queue.
    fn opted_in(&self, namespace: &str) -> bool {
        let label = |facts: &NamespaceFacts| {
            facts.labels.get(names::LABEL_MANAGED).is_some_and(|value| value == names::MANAGED)
        };
        !names::SYSTEM_NAMESPACES.contains(&namespace)
            && self.namespaces.get(namespace).is_some_and(label)
    }

    fn queue(&mut self, mut facts: QueueFacts) {
        let name = Arc::clone(&facts.name);
        if let (Some(past), Some(pasts)) = (facts.past.take(), &mut self.pasts) {
            pasts.insert(Arc::clone(&name), past);
        }
        let Self { queues, resources, out, .. } = self;
        if queues.applied(facts, resources, &mut out.inputs) {
            self.groups.touch_queue(&name);
        }
    }

    fn queue_gone(&mut self, name: &Arc<str>) {
        if self.queues.gone(name, &mut self.out.inputs) {
            self.groups.touch_queue(name);
        }
    }

    fn pod(&mut self, seen: SeenPod, list: impl Fn(&mut Pod) -> &mut Slot) {
        let id = seen.id;
        let cost = self.resources.vector(&seen.cost, &mut self.out.inputs);
        let mut record = self.shared.record(address(self.cluster, &seen.key), cost, seen.facts);
        let namespace = Arc::clone(&record.address.namespace);
        self.by_namespace.entry(namespace).or_default().insert(id);
        let pod = self.pods.entry(id).or_default();
        if let Some((known, _)) = pod.record().filter(|(known, _)| known.address == record.address)
        {
            record.address = Arc::clone(&known.address);
        }
        let record = Some(Box::new(record));
        if *list(pod) != record {
            *list(pod) = record;
            pod.outdate();
            self.settle(id);
        }
    }

    fn pod_gone(&mut self, id: PodId, list: impl Fn(&mut Pod) -> &mut Slot) {
        let Some(pod) = self.pods.get_mut(&id) else { return };
        if let Some(gone) = list(pod).take() {
            pod.outdate();
            self.settle(id);
            self.forget_address(id, &gone.address.namespace);
        }
    }

    fn forget_address(&mut self, id: PodId, namespace: &Arc<str>) {
        let there = self.pods.get(&id).is_some_and(|pod| pod.record().is_some());
        if there {
            return;
        }
        if let Some(pods) = self.by_namespace.get_mut(namespace) {
            pods.remove(&id);
            if pods.is_empty() {
                self.by_namespace.remove(namespace);
            }
        }
    }

    fn pods_vanished(
        &mut self,
        mentioned: &BTreeSet<Mention>,
        list: impl Fn(&mut Pod) -> &mut Slot + Copy,
    ) {
        let ids: Vec<PodId> = self.pods.keys().copied().collect();
        for id in ids.into_iter().filter(|&id| !mentioned.contains(&Mention::Pod(id))) {
            self.pod_gone(id, list);
        }
    }

    fn say(&mut self, event: Event) {
        self.out.inputs.push(Input::Event(event));
    }
}

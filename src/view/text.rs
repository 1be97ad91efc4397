//! Ids to names, amounts to quantities, reasons to sentences.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::engine::event::{Address, GroupName, Maker, Name, Pause, QueueName, Spared, Trouble};
use crate::engine::{
    DomainId, Eviction, Forbidden, GroupId, Millis, NodeId, PodId, QueueId, Reason, ResourceId,
    Shortage, Vector,
};
use crate::quantity;

use super::Amounts;
use super::spared::Evictions;

/// Digits of a root's uid that make a group's name unique in its namespace.
const UID_DIGITS: usize = 8;
/// Longest name of a Kubernetes object.
const NAME_MAX: usize = 253;

/// Who the ids stand for.
#[derive(Clone, Debug, Default)]
pub struct Names {
    resources: BTreeMap<ResourceId, Arc<str>>,
    queues: BTreeMap<QueueId, QueueName>,
    nodes: BTreeMap<NodeId, Arc<str>>,
    groups: BTreeMap<GroupId, Known>,
    pods: BTreeMap<PodId, (Arc<Address>, Maker)>,
    /// Pods that say themselves which nodes they would rather have.
    choosy: BTreeSet<PodId>,
    /// Pods that ask for longer to end than whoever is evicted gets.
    slow: BTreeSet<PodId>,
    pub(super) evictions: Evictions,
    domains: BTreeMap<DomainId, (Arc<str>, Arc<str>)>,
    hindrances: BTreeMap<PodId, Arc<str>>,
    refusals: BTreeMap<GroupId, Arc<str>>,
}

/// Who a group is.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) who: Arc<GroupName>,
    /// What the group is called as an object.
    pub(super) row: Arc<str>,
}

impl Names {
    /// Learns, or forgets, who an id stands for.
    pub fn learn(&mut self, name: Name) {
        match name {
            Name::Resource(id, name) => drop(self.resources.insert(id, name)),
            Name::Queue(id, name) => drop(self.queues.insert(id, name)),
            Name::Node(id, name) => drop(self.nodes.insert(id, name)),
            Name::Group(id, who) => {
                let row = row_name(&who);
                self.groups.insert(id, Known { who, row });
            }
            Name::GroupGone(id) => {
                self.groups.remove(&id);
                self.refusals.remove(&id);
            }
            Name::Pod(id, address, maker) => drop(self.pods.insert(id, (address, maker))),
            Name::PrefersNodes(id) => drop(self.choosy.insert(id)),
            Name::EndsSlowly(id) => drop(self.slow.insert(id)),
            Name::Domain(id, Some(label)) => drop(self.domains.insert(id, label)),
            Name::Domain(id, None) => drop(self.domains.remove(&id)),
            Name::Hindrance(id, Some(why)) => drop(self.hindrances.insert(id, why)),
            Name::Hindrance(id, None) => drop(self.hindrances.remove(&id)),
        }
    }

    /// Remembers why a release of a group was last refused.
    pub fn refused(&mut self, group: GroupId, why: Arc<str>) {
        self.refusals.insert(group, why);
    }

    /// Remembers for whom a pod is evicted.
    pub fn evicting(&mut self, eviction: Eviction) {
        self.evictions.decided(eviction);
    }

    /// The pod leaves: by which eviction that was asked for and not refused, if any.
    pub fn evicted(&mut self, id: PodId) -> Option<Eviction> {
        self.evictions.left(id)
    }

    /// Remembers why a pod was not evicted.
    pub fn spared(&mut self, id: PodId, spared: Spared) {
        self.evictions.spared(id, spared);
    }

    /// Forgets a pod that is gone.
    pub fn forget_pod(&mut self, id: PodId) {
        self.evictions.left(id);
        self.slow.remove(&id);
        self.pods.remove(&id);
        self.hindrances.remove(&id);
        self.choosy.remove(&id);
    }

    /// A node's name.
    #[must_use]
    pub fn node(&self, id: NodeId) -> Option<&Arc<str>> {
        self.nodes.get(&id)
    }

    /// The label that nodes of a domain have, key and value.
    #[must_use]
    pub fn domain(&self, id: DomainId) -> Option<&(Arc<str>, Arc<str>)> {
        self.domains.get(&id)
    }

    /// Whether a pod says itself which nodes it would rather have.
    #[must_use]
    pub fn prefers_nodes(&self, id: PodId) -> bool {
        self.choosy.contains(&id)
    }

    /// Whether a pod asks for longer to end than whoever is evicted gets.
    #[must_use]
    pub fn ends_slowly(&self, id: PodId) -> bool {
        self.slow.contains(&id)
    }

    /// Forgets a node that is gone.
    pub fn forget_node(&mut self, id: NodeId) {
        self.nodes.remove(&id);
    }

    /// Where a pod is.
    #[must_use]
    pub fn pod(&self, id: PodId) -> Option<&Address> {
        self.pods.get(&id).map(|(address, _)| &**address)
    }

    /// Where a pod is and who made it.
    #[must_use]
    pub fn made(&self, id: PodId) -> Option<(&Address, &Maker)> {
        self.pods.get(&id).map(|(address, maker)| (&**address, maker))
    }

    /// What keeps a pod that was let go from a node.
    #[must_use]
    pub fn hindrance(&self, id: PodId) -> Option<&Arc<str>> {
        self.hindrances.get(&id)
    }

    /// Who a group is.
    #[must_use]
    pub fn group(&self, id: GroupId) -> Option<&Arc<GroupName>> {
        self.known(id).map(|known| &known.who)
    }

    pub(super) fn known(&self, id: GroupId) -> Option<&Known> {
        self.groups.get(&id)
    }

    /// A queue's name and identity.
    #[must_use]
    pub fn queue(&self, id: QueueId) -> QueueName {
        self.queues.get(&id).cloned().unwrap_or_default()
    }

    fn queue_name(&self, id: QueueId) -> Arc<str> {
        self.queue(id).name
    }

    /// A resource's name.
    #[must_use]
    pub fn resource(&self, id: ResourceId) -> Arc<str> {
        self.resources.get(&id).cloned().unwrap_or_else(|| "unknown resource".into())
    }

    /// Amounts that are not zero, as quantities.
    #[must_use]
    pub fn amounts(&self, vector: &Vector) -> Amounts {
        self.mentioned(vector).into_iter().filter(|(_, amount)| amount != "0").collect()
    }

    /// All mentioned amounts, zeros too, as quantities.
    #[must_use]
    pub fn mentioned(&self, vector: &Vector) -> Amounts {
        let name = |id| self.resource(id);
        vector.iter().map(|(id, units)| (name(id), quantity::format(&name(id), units))).collect()
    }

    /// Why a group waits, as a sentence with its numbers.
    #[must_use]
    pub fn wait(&self, group: GroupId, reason: &Reason, now: Millis) -> String {
        let sentence = self.sentence(reason, now);
        match (reason, self.refusals.get(&group)) {
            (Reason::ReleaseRefused { .. }, Some(why)) => format!("{sentence}: {why}"),
            _ => sentence,
        }
    }

    /// A reason as a sentence with its numbers.
    #[must_use]
    pub fn sentence(&self, reason: &Reason, now: Millis) -> String {
        match reason {
            Reason::ClusterNotSynced => "the controller is still reading the cluster".into(),
            Reason::ResolvingOwners => "its owners are being looked up".into(),
            Reason::NoQueue => "neither its root object nor its namespace names a queue".into(),
            Reason::UnknownQueue(queue) => {
                format!("queue {:?} does not exist", self.queue_name(*queue))
            }
            Reason::QueueForbidden(queue, why) => self.forbidden(*queue, *why),
            Reason::QueueInvalid(queue) => format!(
                "queue {:?} has an unknown parent, is in a cycle of parents or has something in it that cannot be read",
                self.queue_name(*queue)
            ),
            Reason::QueueStopped(queue) => {
                format!("queue {:?} is stopped (spec.stop)", self.queue_name(*queue))
            }
            Reason::WaitingForMembers { have, need } => {
                format!("{have} of the {need} pods that must start together have arrived")
            }
            Reason::Settling { .. } => {
                "all its pods must start together and some may still arrive".into()
            }
            Reason::LargerThanQueue(shortage, queue) => {
                let queue = self.queue_name(*queue);
                format!("larger than queue {queue:?}: {}", self.too_large(shortage))
            }
            Reason::LargerThanAnyNode(shortage) => {
                format!("larger than any node: {}", self.too_large(shortage))
            }
            Reason::QueueLimit(shortage, queue) => {
                format!("limit of queue {:?}: {}", self.queue_name(*queue), self.short(shortage))
            }
            Reason::Capacity(shortage) => format!("the cluster is full: {}", self.short(shortage)),
            Reason::NoNode { placed, pods } => no_node(*placed, *pods),
            Reason::RoomReserved(shortage, queue) => self.room_reserved(shortage, *queue),
            Reason::BeyondGuarantee(shortage, queue) => format!(
                "may not be preempted and is more than queue {:?} has of its own: {}",
                self.queue_name(*queue),
                self.short(shortage)
            ),
            Reason::SingletonRunning => {
                "another group of its singleton key runs in the queue".into()
            }
            Reason::MakingRoom { evicted: 0 } => {
                "its room is kept until what is leaving it is gone".into()
            }
            Reason::MakingRoom { evicted } => {
                format!("its room is kept until what is evicted for it is gone: pods: {evicted}")
            }
            Reason::NoUsableNode(0) => "the cluster has no nodes".into(),
            Reason::NoUsableNode(nodes) => {
                format!("no node is ready and schedulable: nodes not ready or cordoned: {nodes}")
            }
            Reason::BehindInStrictQueue(queue) => {
                format!("queue {:?} is strict and others are first", self.queue_name(*queue))
            }
            Reason::ReleaseRefused { retry_at } => format!(
                "its release was refused by the apiserver or another admission plugin; tried again in {} s",
                retry_at.saturating_sub(now).max(0).div_euclid(1000)
            ),
            Reason::ReleasesPaused(pause) => {
                format!("releases are paused since {}: {}", time(pause.since), cause(pause))
            }
            Reason::NextInLine => "its turn has come: the controller that leads, which is not the \
                one that was asked, lets it go or says in an Event why it cannot"
                .into(),
            Reason::NextRound => "about to be decided".into(),
        }
    }

    fn room_reserved(&self, shortage: &Shortage, queue: QueueId) -> String {
        format!(
            "what is free is reserved for work of queue {:?} that has waited for long: {}",
            self.queue_name(queue),
            self.short(shortage)
        )
    }

    fn forbidden(&self, queue: QueueId, why: Forbidden) -> String {
        let queue = self.queue_name(queue);
        match why {
            Forbidden::Namespace => {
                format!("queue {queue:?} may not be used from this namespace (spec.namespaces)")
            }
            Forbidden::PriorityClass => {
                format!("queue {queue:?} does not list its priority class (spec.priorityClasses)")
            }
        }
    }

    fn too_large(&self, shortage: &Shortage) -> String {
        let name = self.resource(shortage.resource);
        let [need, most] = quantity::format_alike(&name, [shortage.need, shortage.most]);
        format!("needs {need} {name}, the most is {most}")
    }

    fn short(&self, shortage: &Shortage) -> String {
        let name = self.resource(shortage.resource);
        let amounts = [shortage.need, shortage.used, shortage.most, shortage.missing()];
        let [need, used, most, missing] = quantity::format_alike(&name, amounts);
        format!("needs {need} {name}, {used} of {most} in use, {missing} missing")
    }

    /// `2500m of 2000m cpu`.
    #[must_use]
    pub fn part(&self, resource: ResourceId, part: i128, whole: i128) -> String {
        let name = self.resource(resource);
        let [part, whole] = quantity::format_alike(&name, [part, whole]);
        format!("{part} of {whole} {name}")
    }

    /// What somebody can do about a reason that does not end by itself.
    #[must_use]
    pub fn remedy(&self, reason: &Reason) -> Option<String> {
        let more = |shortage: &Shortage| {
            let name = self.resource(shortage.resource);
            (quantity::format(&name, shortage.missing()), name)
        };
        match reason {
            Reason::NoQueue => Some(
                "put the label tidegate.dev/queue on the root object, or on the namespace as its default".into(),
            ),
            Reason::UnknownQueue(queue) => {
                Some(format!("create queue {:?} or name another one", self.queue_name(*queue)))
            }
            Reason::QueueForbidden(..) => {
                Some("name a queue that is open to it, or ask whoever owns the queue".into())
            }
            Reason::QueueInvalid(queue) => Some(format!(
                "see the conditions of queue {:?} and of those above it",
                self.queue_name(*queue)
            )),
            Reason::LargerThanQueue(shortage, queue) => {
                let (amount, name) = more(shortage);
                let queue = self.queue_name(*queue);
                Some(format!("ask less, or raise the limit of queue {queue:?} by {amount} {name}"))
            }
            Reason::LargerThanAnyNode(shortage) => {
                let (amount, name) = more(shortage);
                Some(format!("ask less, or add a node with {amount} {name} more than the largest"))
            }
            Reason::QueueLimit(shortage, queue) => {
                let (amount, name) = more(shortage);
                let queue = self.queue_name(*queue);
                Some(format!("starts when queue {queue:?} has {amount} {name} more"))
            }
            Reason::BeyondGuarantee(shortage, queue) => {
                let (amount, name) = more(shortage);
                let queue = self.queue_name(*queue);
                Some(format!("starts when queue {queue:?} is guaranteed {amount} {name} more, or uses so much less"))
            }
            Reason::RoomReserved(shortage, queue) => {
                let (amount, name) = more(shortage);
                let queue = self.queue_name(*queue);
                Some(format!("starts when that of queue {queue:?} has, or {amount} {name} more become free"))
            }
            Reason::NoNode { .. } => Some(
                "starts when more is free on one node, or in one domain of its topology".into(),
            ),
            Reason::SingletonRunning => Some("starts when that group has ended".into()),
            Reason::Capacity(shortage) if shortage.need > shortage.most => {
                let name = self.resource(shortage.resource);
                let amount = quantity::format(&name, shortage.need - shortage.most);
                Some(format!("never fits as things are: ask less, or add nodes with {amount} {name} more"))
            }
            Reason::Capacity(shortage) => {
                let (amount, name) = more(shortage);
                Some(format!("starts when {amount} {name} more become free"))
            }
            Reason::NoUsableNode(_) => {
                Some("starts when a node is ready and not cordoned: kubectl get nodes".into())
            }
            Reason::ReleasesPaused(Pause { cause: Trouble::StoreFull, .. }) => {
                Some("free space in etcd: compact, defragment, disarm the alarm".into())
            }
            Reason::ReleasesPaused(_) => Some("goes on by itself when the apiserver is well".into()),
            Reason::WaitingForMembers { .. } => Some(
                "starts when its other pods are created; tidegate.dev/min-count says how many".into(),
            ),
            _ => None,
        }
    }
}

/// RFC 3339 in UTC, in whole seconds; the epoch for what no calendar has.
fn time(millis: Millis) -> String {
    let seconds = millis.div_euclid(1000);
    jiff::Timestamp::from_second(seconds).unwrap_or_default().to_string()
}

/// What the apiserver suffers from.
pub(super) fn cause(pause: &Pause) -> &'static str {
    match pause.cause {
        Trouble::Overloaded => "the apiserver is overloaded and asks for less",
        Trouble::NoAnswer => "the apiserver does not answer",
        Trouble::Failing => "the apiserver answers with errors",
        Trouble::Slow => "the apiserver takes seconds to answer",
        Trouble::StoreFull => "the apiserver's store (etcd) is full and takes no writes",
    }
}

/// `job-pi-1a2b3c4d`: kind, name and the first digits of the uid of the root. Trees that
/// joined by name may share a root with others: they are `group-NAME` and a hash of it.
fn row_name(group: &GroupName) -> Arc<str> {
    let root = &group.root;
    let (kind, name, digits) = match &group.joined {
        Some(joined) => ("group", plain(joined), format!("{:08x}", fnv1a(joined))),
        None => (&*root.kind, root.address.name.to_string(), uid_digits(&root.address.uid)),
    };
    let mut name = format!("{}-{name}", kind.to_lowercase());
    while name.len() > NAME_MAX - UID_DIGITS - 1 {
        name.pop();
    }
    format!("{name}-{digits}").into()
}

fn uid_digits(uid: &str) -> String {
    let digits = uid.chars().filter(char::is_ascii_alphanumeric).take(UID_DIGITS);
    digits.map(|digit| digit.to_ascii_lowercase()).collect()
}

/// Any text as a part of an object's name.
fn plain(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' })
        .collect()
}

fn fnv1a(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

fn no_node(placed: u32, pods: u32) -> String {
    match pods {
        1 => "enough is free in all, but no node that it may run on has room for it".to_owned(),
        _ => format!(
            "enough is free in all, but nodes have room for only {placed} of the {pods} pods \
             that must start together"
        ),
    }
}

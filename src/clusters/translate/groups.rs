//! Groups: who is in them and what that says about queue, gang and name.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::engine::event::{Address, GroupConfig, GroupName, ObjectRef, Origin};
use crate::engine::{ClusterId, GroupId, Millis, PodId, Uid};
use crate::grouping::{Findings, GroupKey, ObjectKey, Placement, Resolution};

use super::few::Few;
use super::pool::Pool;
use super::tally::Tally;
use super::terms::{Kept, Terms, Wishes};

/// Placements of a group that its name and evidence are made from: the pods of
/// one group differ little, and a Dask worker has a chain of its own.
const FACES_SHOWN: usize = 16;
/// Sentences of a group's evidence.
const LINES_SHOWN: usize = 32;

/// Where a pod sits in its group.
#[derive(Clone, Debug)]
pub(super) struct Membership {
    pub group: GroupId,
    pub created: Millis,
    pub face: Arc<Resolution>,
    pub part: Part,
    /// All that the face depends on was known.
    pub informed: bool,
}

/// A time and uid: the order inside a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Age {
    at: Millis,
    /// The uid in two halves, which need half the alignment.
    uid: [u64; 2],
}

impl Age {
    #[expect(clippy::cast_possible_truncation, reason = "each half is what it is cut to")]
    fn new(at: Millis, Uid(uid): PodId) -> Self {
        Self { at, uid: [(uid >> 64) as u64, uid as u64] }
    }

    fn pod(&self) -> PodId {
        let [high, low] = self.uid.map(u128::from);
        Uid(high << 64 | low)
    }
}

/// What a pod means for its group.
#[derive(Clone, Debug)]
pub(super) enum Part {
    /// It waits, with this priority class.
    Waiting(Option<Arc<str>>),
    /// Its gate was opened at this time, as far as was written down, and so was this.
    Started(Millis, Option<Arc<Kept>>),
    /// It runs, or ran, and never had a gate of ours.
    Bystander,
    /// It never ran and never will.
    Dropped,
}

impl Part {
    pub fn has_started(&self) -> bool {
        matches!(self, Self::Started(..))
    }

    /// Its release was written down.
    pub fn is_recorded(&self) -> bool {
        matches!(self, Self::Started(_, Some(_)))
    }
}

/// What runs, or ran, of a group.
#[derive(Debug, Default)]
struct Begun {
    /// By when they were let go.
    let_go: Few<Age, Option<Arc<Kept>>>,
    /// Of pods of which nothing was written down.
    wishes: Wishes,
}

impl Begun {
    fn add(&mut self, pod: PodId, part: &Part, findings: &Findings) {
        if let Part::Started(at, kept) = part {
            self.let_go.insert(Age::new(*at, pod), kept.clone());
        }
        if !part.is_recorded() {
            self.wishes.add(findings);
        }
    }

    fn remove(&mut self, pod: PodId, part: &Part, findings: &Findings) {
        if let Part::Started(at, _) = part {
            self.let_go.remove(&Age::new(*at, pod));
        }
        if !part.is_recorded() {
            self.wishes.remove(findings);
        }
    }
}

/// One group.
#[derive(Debug)]
pub(super) struct Group {
    pub key: Arc<GroupKey>,
    /// By age.
    members: Few<Age, Arc<Resolution>>,
    /// None while all of it waits.
    begun: Option<Box<Begun>>,
    faces: Tally<Arc<Resolution>>,
    /// Of waiting pods.
    wishes: Wishes,
    /// Priority classes of waiting pods.
    pub classes: Tally<Option<Arc<str>>>,
    /// Of waiting pods with owners, if there are any.
    owned: Option<Box<Tally<Arc<Findings>>>>,
    /// As of the last refresh.
    pub was_frozen: bool,
    pub queue_name: Option<Arc<str>>,
    pub config: Option<GroupConfig>,
    pub name: Option<Arc<GroupName>>,
}

impl Group {
    fn new(key: Arc<GroupKey>) -> Self {
        Self {
            key,
            members: Few::default(),
            faces: Tally::default(),
            wishes: Wishes::default(),
            begun: None,
            classes: Tally::default(),
            owned: None,
            was_frozen: false,
            queue_name: None,
            config: None,
            name: None,
        }
    }

    pub fn namespace(&self) -> &Arc<str> {
        match &*self.key {
            GroupKey::Run { namespace, .. } | GroupKey::Named { namespace, .. } => namespace,
        }
    }

    /// A pod was let go and is still there: the queue stays what it was.
    pub fn is_frozen(&self) -> bool {
        self.begun.as_ref().is_some_and(|begun| !begun.let_go.is_empty())
    }

    /// Pods wait, and what is read of their owners may still change everything about them.
    pub fn is_open(&self) -> bool {
        !self.is_frozen() && self.owned.is_some()
    }

    /// The last owners that waiting pods asked for.
    pub fn tops(&self) -> impl Iterator<Item = &ObjectKey> {
        let owned = self.owned.iter().flat_map(|owned| owned.kinds());
        owned.filter_map(|findings| findings.asked.last())
    }

    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    pub fn pods(&self) -> impl Iterator<Item = PodId> {
        self.members.iter().map(|(age, _)| age.pod())
    }

    /// What was written down with its first release, as far as its pods are left to tell.
    pub fn kept(&self) -> Option<&Arc<Kept>> {
        self.begun.as_ref()?.let_go.iter().find_map(|(_, kept)| kept.as_ref())
    }

    /// What it began with, whoever joined it since; else what it would begin with.
    pub fn terms(&self) -> Terms {
        match (self.kept(), &self.begun) {
            (Some(kept), _) => kept.terms.clone(),
            (None, Some(begun)) => begun.wishes.terms_of_running(),
            (None, None) => self.wishes.terms(),
        }
    }

    /// What the oldest pod says.
    pub fn leader(&self) -> Option<&Resolution> {
        self.members.first().map(|(_, face)| face.as_ref())
    }

    fn shown(&self) -> impl Iterator<Item = &Placement> {
        self.faces.kinds().take(FACES_SHOWN).map(|face| face.placement())
    }

    fn findings(&self) -> impl Iterator<Item = &Findings> {
        self.shown().map(|face| &*face.findings)
    }

    /// The object that stands for the group: its run's root, for a named group that of the oldest pod.
    pub fn root(&self) -> Option<&ObjectKey> {
        let leader = self.leader()?.placement();
        let wanted = &leader.root.uid;
        let known =
            self.shown().find(|face| face.root.uid == *wanted && !face.root.api_version.is_empty());
        Some(&known.unwrap_or(leader).root)
    }

    /// How people know the group.
    pub fn describe(&self, cluster: ClusterId, origins: &mut Pool<Origin>) -> Option<GroupName> {
        let root = self.root()?;
        let mut evidence = Vec::new();
        let terms = self.terms();
        if let Some(kept) = self.kept() {
            evidence.push(format!("queue {}: kept since the first release", kept.queue).into());
        }
        if self.asks_for_else(&terms) {
            evidence.push(format!("{terms}: kept since it began, whoever joined later").into());
        }
        evidence.extend(self.findings().flat_map(|found| found.evidence.iter().cloned()));
        let warnings = self.findings().flat_map(|found| found.warnings.iter().cloned());
        let joined = match &*self.key {
            GroupKey::Named { name, .. } => Some(Arc::clone(name)),
            GroupKey::Run { .. } => None,
        };
        Some(GroupName {
            namespace: Arc::clone(self.namespace()),
            joined,
            root: ObjectRef {
                address: address(cluster, root),
                api_version: Arc::clone(&root.api_version),
                kind: Arc::clone(&root.kind),
            },
            origin: origins.share(Arc::new(Origin {
                chains: self.chains(root),
                evidence: lines(evidence.into_iter()),
                warnings: lines(self.disagreement().into_iter().chain(warnings)),
                singleton: terms.singleton,
                topology: terms.topology,
            })),
        })
    }

    /// Those that lead to the root first.
    fn chains(&self, root: &ObjectKey) -> Vec<Vec<Arc<str>>> {
        let alone = matches!(*self.key, GroupKey::Run { .. });
        if alone && self.findings().all(|found| found.chain.is_empty()) {
            return Vec::new();
        }
        let top: Arc<str> = root.to_string().into();
        let (own, others): (Vec<_>, Vec<_>) =
            self.shown().map(path).partition(|path| path.contains(&top));
        distinct(own.into_iter().chain(others))
    }

    /// Whether pods that wait ask to be treated in another way than the group is.
    fn asks_for_else(&self, terms: &Terms) -> bool {
        self.begun.is_some() && !self.wishes.is_empty() && self.wishes.terms() != *terms
    }

    /// Said when trees that joined by name were given different queues.
    fn disagreement(&self) -> Option<Arc<str>> {
        let names: BTreeSet<&str> = self
            .findings()
            .map(|found| found.queue.as_ref().map_or("none", |queue| queue.name.as_ref()))
            .collect();
        let names: Vec<&str> = names.into_iter().collect();
        (names.len() > 1 && !self.is_frozen()).then(|| {
            format!(
                "its pods name different queues ({}): that of the oldest counts",
                names.join(", ")
            )
            .into()
        })
    }

    fn add(&mut self, pod: PodId, member: &Membership) {
        let age = Age::new(member.created, pod);
        let findings = &member.face.placement().findings;
        self.members.insert(age, Arc::clone(&member.face));
        self.faces.add(&member.face);
        match &member.part {
            Part::Waiting(class) => {
                self.wishes.add(findings);
                self.classes.add(class);
                if !findings.asked.is_empty() {
                    self.owned.get_or_insert_default().add(findings);
                }
            }
            Part::Started(..) | Part::Bystander => {
                self.begun.get_or_insert_default().add(pod, &member.part, findings);
            }
            Part::Dropped => {}
        }
    }

    fn remove(&mut self, pod: PodId, member: &Membership) {
        let age = Age::new(member.created, pod);
        let findings = &member.face.placement().findings;
        self.members.remove(&age);
        self.faces.remove(&member.face);
        match &member.part {
            Part::Waiting(class) => {
                self.wishes.remove(findings);
                self.classes.remove(class);
                if let Some(owned) = &mut self.owned {
                    owned.remove(findings);
                }
                self.owned.take_if(|owned| owned.is_empty());
            }
            Part::Started(..) | Part::Bystander => {
                if let Some(begun) = &mut self.begun {
                    begun.remove(pod, &member.part, findings);
                }
                self.begun.take_if(|begun| begun.let_go.is_empty() && begun.wishes.is_empty());
            }
            Part::Dropped => {}
        }
    }
}

/// The chain of a pod with its root, which may be the pod itself or be known from the
/// record of a release only.
fn path(placement: &Placement) -> Vec<Arc<str>> {
    let chain = &placement.findings.chain;
    let root: Arc<str> = placement.root.to_string().into();
    let end = (!chain.contains(&root)).then_some(root);
    let mut path = Vec::with_capacity(chain.len() + usize::from(end.is_some()));
    path.extend(chain.iter().cloned().chain(end));
    path
}

/// Different ones, in order.
fn distinct<T: PartialEq>(all: impl Iterator<Item = T>) -> Vec<T> {
    let mut kept: Vec<T> = Vec::new();
    for one in all {
        if !kept.contains(&one) {
            kept.push(one);
        }
    }
    kept.shrink_to_fit();
    kept
}

/// The first few different lines, in order; the last says when there are more.
fn lines(all: impl Iterator<Item = Arc<str>>) -> Vec<Arc<str>> {
    let mut lines = distinct(all);
    if lines.len() > LINES_SHOWN {
        let more = lines.len() - LINES_SHOWN;
        lines.truncate(LINES_SHOWN);
        lines.push(format!("and {more} more that are not shown").into());
    }
    lines
}

pub(super) fn address(cluster: ClusterId, key: &ObjectKey) -> Address {
    Address {
        cluster,
        namespace: Arc::clone(&key.namespace),
        name: Arc::clone(&key.name),
        uid: Arc::clone(&key.uid),
    }
}

/// All groups with a pod.
#[derive(Debug, Default)]
pub(super) struct Groups {
    ids: BTreeMap<Arc<GroupKey>, GroupId>,
    /// Boxed, since the leaves of a map that only grows are half empty.
    table: BTreeMap<GroupId, Box<Group>>,
    by_queue: BTreeMap<Arc<str>, BTreeSet<GroupId>>,
    /// Groups whose owners are read again, see [`Group::is_open`].
    open: BTreeSet<GroupId>,
    /// Groups to be looked at.
    dirty: BTreeSet<GroupId>,
    last: GroupId,
}

impl Groups {
    pub fn get(&self, id: GroupId) -> Option<&Group> {
        self.table.get(&id).map(|group| &**group)
    }

    pub fn get_mut(&mut self, id: GroupId) -> Option<&mut Group> {
        self.table.get_mut(&id).map(|group| &mut **group)
    }

    /// The group of that identity, made if need be.
    pub fn id(&mut self, cluster: ClusterId, key: &Arc<GroupKey>) -> GroupId {
        if let Some(&id) = self.ids.get(key) {
            return id;
        }
        // Groups of different clusters never share a number.
        let first = u64::from(cluster.0) << 48;
        self.last = GroupId(self.last.0.max(first) + 1);
        self.ids.insert(Arc::clone(key), self.last);
        self.table.insert(self.last, Box::new(Group::new(Arc::clone(key))));
        self.last
    }

    /// The same face as the group has it already, so that equal ones are kept once.
    pub fn shared(&self, id: GroupId, face: Arc<Resolution>) -> Arc<Resolution> {
        let known = self.table.get(&id).and_then(|group| group.faces.get(&face));
        known.cloned().unwrap_or(face)
    }

    /// The same record as the group has it already, so that equal ones are kept once.
    pub fn shared_kept(&self, id: GroupId, kept: Kept) -> Arc<Kept> {
        let known = self.table.get(&id).and_then(|group| group.kept());
        known.filter(|known| ***known == kept).cloned().unwrap_or_else(|| Arc::new(kept))
    }

    pub fn join(&mut self, pod: PodId, member: &Membership) {
        if let Some(group) = self.table.get_mut(&member.group) {
            group.add(pod, member);
            self.dirty.insert(member.group);
        }
    }

    pub fn leave(&mut self, pod: PodId, member: &Membership) {
        if let Some(group) = self.table.get_mut(&member.group) {
            group.remove(pod, member);
            self.dirty.insert(member.group);
        }
    }

    /// Has a look at every group that names a queue.
    pub fn touch_queue(&mut self, queue: &str) {
        self.dirty.extend(self.by_queue.get(queue).into_iter().flatten());
    }

    pub fn take_dirty(&mut self) -> BTreeSet<GroupId> {
        std::mem::take(&mut self.dirty)
    }

    /// Brings the indexes in line with a group after it changed.
    pub fn index(&mut self, id: GroupId, queue: Option<Arc<str>>) {
        let Some(group) = self.table.get_mut(&id) else { return };
        if group.is_open() {
            self.open.insert(id);
        } else {
            self.open.remove(&id);
        }
        if group.queue_name == queue {
            return;
        }
        let before = std::mem::replace(&mut group.queue_name, queue.clone());
        if let Some(before) = before
            && let Some(groups) = self.by_queue.get_mut(&before)
        {
            groups.remove(&id);
            if groups.is_empty() {
                self.by_queue.remove(&before);
            }
        }
        if let Some(queue) = queue {
            self.by_queue.entry(queue).or_default().insert(id);
        }
    }

    /// Forgets an empty group; whether anybody was told of it.
    pub fn forget(&mut self, id: GroupId) -> bool {
        self.index(id, None);
        let Some(group) = self.table.remove(&id) else { return false };
        self.ids.remove(&group.key);
        group.name.is_some()
    }

    /// Open groups after `cursor`, once round.
    pub fn open_after(&self, cursor: GroupId) -> impl Iterator<Item = GroupId> {
        let after = (std::ops::Bound::Excluded(cursor), std::ops::Bound::Unbounded);
        self.open.range(after).chain(self.open.range(..=cursor)).copied()
    }
}

//! What the engine is told, in an order in which every name comes before its use.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::api::released::Released;
use crate::engine::event::{Event, GroupConfig, Input, Maker, Name, PodConfig, Used};
use crate::engine::{Assignment, GroupId, Millis, PodId, PodState, Vector};
use crate::grouping::{Above, Metadata, ObjectKey, Resolution};

use super::super::facts::Stage;
use super::super::strip::uid;
use super::groups::Group;
use super::{Pod, Seat, Told, Translator};

impl Translator {
    /// Tells all that changed: groups before their pods, new charges before the end of
    /// old ones, so that nothing looks free for a moment that is not.
    pub(super) fn tell(&mut self) {
        let emptied = self.refresh_groups();
        let dirty = std::mem::take(&mut self.dirty);
        let (here, gone): (Vec<PodId>, Vec<PodId>) =
            dirty.into_iter().partition(|id| self.pods.get(id).is_some_and(|pod| pod.is_member()));
        for id in here {
            self.tell_pod(id);
        }
        self.nodes.tell_foreign(&mut self.out.inputs);
        for id in gone {
            self.tell_absence(id);
        }
        for id in emptied {
            if self.groups.get(id).is_some_and(Group::is_empty) && self.groups.forget(id) {
                self.out.inputs.push(Input::Name(Name::GroupGone(id)));
            }
        }
        if self.starts() {
            self.tell_pasts();
            self.say(Event::Synced(self.cluster));
        }
    }

    /// What queues used before this process: told once, when all that they use now is known.
    fn tell_pasts(&mut self) {
        let Self { pasts, queues, resources, out, .. } = self;
        for (name, past) in pasts.take().into_iter().flatten() {
            let inputs = &mut out.inputs;
            let [whole, own] =
                [&past.whole, &past.own].map(|amounts| resources.vector(amounts, inputs));
            let used = Used { at: past.at, whole, own };
            let queue = queues.id(&name, inputs);
            inputs.push(Input::Event(Event::UsedBefore(queue, used)));
        }
    }

    fn starts(&mut self) -> bool {
        let Self { start, lists, pods, owners, .. } = self;
        let unheard = |pod: &Pod| pod.needed_owner().is_some_and(|owner| !owners.has_failed(owner));
        start.advance(lists.all_complete(), || {
            pods.iter().filter(|(_, pod)| unheard(pod)).map(|(&id, _)| id).collect()
        })
    }

    /// Works out anew what changed about groups; those that are empty now.
    fn refresh_groups(&mut self) -> BTreeSet<GroupId> {
        let mut emptied = BTreeSet::new();
        loop {
            let dirty = self.groups.take_dirty();
            if dirty.is_empty() {
                return emptied;
            }
            for id in dirty {
                if self.groups.get(id).is_some_and(Group::is_empty) {
                    self.groups.index(id, None);
                    emptied.insert(id);
                } else {
                    self.refresh_group(id);
                }
            }
        }
    }

    fn refresh_group(&mut self, id: GroupId) {
        let (queue, assignment) = self.assignment(id);
        self.groups.index(id, queue);
        let cluster = self.cluster;
        let Some(group) = self.groups.get_mut(id) else { return };
        let terms = group.terms();
        let topology = terms.topology.as_ref().map(|key| self.nodes.topology(key));
        let thawed = group.was_frozen && !group.is_frozen();
        group.was_frozen = group.is_frozen();
        let name = group.describe(cluster, &mut self.origins);
        if group.name.as_deref() != name.as_ref() {
            let name = name.map(Arc::new);
            group.name.clone_from(&name);
            self.out.inputs.extend(name.map(|name| Input::Name(Name::Group(id, name))));
        }
        let root = group.root().map(|root| uid(&root.uid)).unwrap_or_default();
        let config = Some(GroupConfig {
            cluster,
            root,
            queue: assignment,
            gang: terms.gang,
            singleton: terms.key(),
            non_preemptible: terms.non_preemptible,
            topology,
        });
        if group.config != config {
            group.config.clone_from(&config);
            self.out.inputs.extend(config.map(|c| Input::Event(Event::GroupChanged(id, c))));
        }
        if thawed {
            let pods: Vec<PodId> = self.groups.get(id).into_iter().flat_map(Group::pods).collect();
            for pod in pods {
                self.settle(pod);
            }
        }
    }

    /// Which queue pays for a group, and the name of the queue that it asks for.
    fn assignment(&mut self, id: GroupId) -> (Option<Arc<str>>, Assignment) {
        let Some(group) = self.groups.get(id) else { return (None, Assignment::Unresolved) };
        let out = &mut self.out.inputs;
        if let Some(kept) = group.kept() {
            let assignment = Assignment::Queue(self.queues.id(&kept.queue, out));
            return (Some(Arc::clone(&kept.queue)), assignment);
        }
        let Some(Resolution::Placed(placement)) = group.leader() else {
            return (None, Assignment::Unresolved);
        };
        let Some(choice) = &placement.findings.queue else { return (None, Assignment::Unnamed) };
        let name = Some(Arc::clone(&choice.name));
        let Some(namespace) = self.namespaces.get(group.namespace()) else {
            return (name, Assignment::Unresolved);
        };
        let queue = self.queues.id(&choice.name, out);
        let forbidden = self.queues.forbids(&choice.name, &namespace.labels, &group.classes);
        let assignment = match forbidden {
            Some(why) => Assignment::Forbidden(queue, why),
            None => Assignment::Queue(queue),
        };
        (name, assignment)
    }

    fn tell_pod(&mut self, id: PodId) {
        let Some(pod) = self.pods.get(&id) else { return };
        let (Some(told), Some((record, _))) = (pod.to_tell(), pod.record()) else { return };
        if pod.told == Some(told) {
            return;
        }
        let config = PodConfig {
            group: told.group,
            cost: Vector::clone(&record.cost),
            priority: record.facts.priority,
            created: record.facts.created,
            started: record.facts.released.as_deref().and_then(started),
            never_preempts: record.facts.never_preempts,
            state: told.state,
        };
        if pod.told.is_none() {
            let name = Name::Pod(id, Arc::clone(&record.address), maker(&record.facts.metadata));
            self.out.inputs.push(Input::Name(name));
            if record.facts.prefers_nodes {
                self.out.inputs.push(Input::Name(Name::PrefersNodes(id)));
            }
        }
        if record.facts.stage.ends_slowly() {
            self.out.inputs.push(Input::Name(Name::EndsSlowly(id)));
        }
        // What was said of a pod is taken back once it has a node or has ended.
        let hindrance = record.facts.stage.hindrance().cloned();
        if hindrance.is_some() || pod.told.is_some_and(|told| told.state.is_released()) {
            self.out.inputs.push(Input::Name(Name::Hindrance(id, hindrance)));
        }
        if let Some(pod) = self.pods.get_mut(&id) {
            pod.told = Some(told);
        }
        self.say(Event::PodChanged(id, config));
    }

    /// A pod that is foreign now or that is gone.
    fn tell_absence(&mut self, id: PodId) {
        let Some(pod) = self.pods.get_mut(&id) else { return };
        let told = pod.told.take();
        if pod.record().is_none() {
            self.pods.remove(&id);
        }
        if told.is_some() {
            self.say(Event::PodRemoved(id));
        }
    }
}

/// When a pod was let go, as its record says.
pub(super) fn started(record: &Released) -> Option<Millis> {
    record.time.parse::<jiff::Timestamp>().ok().map(jiff::Timestamp::as_millisecond)
}

/// What admission could see of where a pod comes from; it follows references as we do.
fn maker(metadata: &Metadata) -> Maker {
    match &metadata.above {
        Above::Controller(owner) | Above::Only(owner) => Maker::Owner(Arc::clone(&owner.uid)),
        Above::Nobody | Above::Several(_) if metadata.marks.queue.is_some() => Maker::Label,
        Above::Nobody | Above::Several(_) => Maker::Namespace,
    }
}

impl Pod {
    fn is_member(&self) -> bool {
        matches!(self.seat, Seat::Member(..))
    }

    /// The owner without which nobody knows the pod's queue.
    pub(super) fn needed_owner(&self) -> Option<&ObjectKey> {
        let Seat::Member(member, _) = &self.seat else { return None };
        if member.part.is_recorded() { None } else { member.face.needed() }
    }

    /// What the engine should know of the pod beside its record.
    fn to_tell(&self) -> Option<Told> {
        let Seat::Member(member, node) = &self.seat else { return None };
        let (record, _) = self.record()?;
        let state = match (&record.facts.stage, node) {
            (Stage::Gated, _) => PodState::Gated,
            (Stage::Ended, _) if !record.facts.open => PodState::Dropped,
            (Stage::Released { held, .. }, _) => PodState::Released { held: *held },
            (Stage::Bound { terminating, .. }, Some(node)) => {
                PodState::Bound { node: *node, terminating: *terminating }
            }
            (Stage::Bound { .. } | Stage::Ended, _) => PodState::Ended,
        };
        Some(Told { group: member.group, state, stale: false })
    }
}

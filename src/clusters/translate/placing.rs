//! Where each pod sits: nowhere, as foreign load, or in a group.

use std::sync::Arc;

use crate::api::names;
use crate::api::released::Released;
use crate::engine::event::Address;
use crate::engine::{GroupId, NodeId, PodId};
use crate::grouping::{self, GroupKey, Member, ObjectKey, Placement, Resolution};

use super::super::facts::{PodFacts, Stage};
use super::groups::{Membership, Part};
use super::telling::started;
use super::terms::Kept;
use super::{Pod, Record, Seat, Translator};

impl Pod {
    /// The record that counts; whether it is that of a managed pod.
    pub(super) fn record(&self) -> Option<(&Record, bool)> {
        let managed = self.managed.as_deref().map(|record| (record, true));
        managed.or_else(|| self.other.as_deref().map(|record| (record, false)))
    }

    /// Notes that a record changed.
    pub(super) fn outdate(&mut self) {
        if let Some(told) = &mut self.told {
            told.stale = true;
        }
    }
}

impl Record {
    fn key(&self) -> ObjectKey {
        let Address { namespace, name, uid, .. } = &*self.address;
        ObjectKey::of_pod(Arc::clone(namespace), Arc::clone(name), Arc::clone(uid))
    }
}

impl Translator {
    /// Seats a pod anew after anything about it may have changed.
    pub(super) fn settle(&mut self, id: PodId) {
        let Some(mut pod) = self.pods.remove(&id) else { return };
        let before = std::mem::take(&mut pod.seat);
        let seat = match pod.record() {
            None => Seat::Nowhere,
            Some((record, managed)) if self.is_ours(record, managed) => {
                let member = self.member(record, managed, &before);
                Seat::Member(member, self.enter_node(&record.facts))
            }
            Some((record, _)) => match self.enter_node(&record.facts) {
                Some(node) => Seat::Foreign(node, Arc::clone(&record.cost)),
                None => Seat::Nowhere,
            },
        };
        self.owners.track(self.now, id, asked(&before), asked(&seat), &mut self.out.look_ups);
        // The node was entered already, so that leaving it does not forget it.
        self.leave(id, &before);
        self.take(id, &seat);
        pod.seat = seat;
        if pod.needed_owner().is_none() {
            self.start.settled(id);
        }
        self.pods.insert(id, pod);
        self.dirty.insert(id);
    }

    /// Where queues rule, every pod is, but those of kubelets and daemons. Elsewhere our
    /// label means nothing: what waits behind our gate, or was let go by us, is from
    /// before the namespace opted out.
    fn is_ours(&self, record: &Record, managed: bool) -> bool {
        let facts = &record.facts;
        let rules = self.opted_in(&record.address.namespace);
        if managed {
            rules || !facts.open || facts.released.is_some()
        } else {
            rules && !facts.exempt
        }
    }

    fn enter_node(&mut self, facts: &PodFacts) -> Option<NodeId> {
        let Stage::Bound { node, .. } = &facts.stage else { return None };
        Some(self.nodes.enter(node, &mut self.out.inputs))
    }

    fn take(&mut self, id: PodId, seat: &Seat) {
        match seat {
            Seat::Nowhere => {}
            Seat::Foreign(node, cost) => self.nodes.add_foreign(*node, cost),
            Seat::Member(member, _) => self.groups.join(id, member),
        }
    }

    fn leave(&mut self, id: PodId, seat: &Seat) {
        match seat {
            Seat::Nowhere => {}
            Seat::Foreign(node, cost) => {
                self.nodes.sub_foreign(*node, cost);
                self.nodes.leave(*node);
            }
            Seat::Member(member, node) => {
                self.groups.leave(id, member);
                if let Some(node) = node {
                    self.nodes.leave(*node);
                }
            }
        }
    }

    fn member(&mut self, record: &Record, managed: bool, before: &Seat) -> Membership {
        let facts = &record.facts;
        let namespace_known = self.namespaces.contains_key(&record.address.namespace);
        let has_started = managed && facts.open;
        let kept = self.kept_face(before, has_started);
        let informed = kept.is_some() || namespace_known;
        let face = kept.unwrap_or_else(|| self.face(record, managed));
        let group = self.groups.id(self.cluster, &face.placement().group);
        let face = self.groups.shared(group, face);
        let informed = informed && face.is_final();
        let part = self.part(facts, has_started, group, &face);
        Membership { group, created: facts.created, face, part, informed }
    }

    /// What a pod means for its group.
    fn part(&self, facts: &PodFacts, opened: bool, group: GroupId, face: &Resolution) -> Part {
        match (&facts.stage, facts.released.as_deref()) {
            (_, Some(record)) if opened => {
                let kept = Kept::new(record, &face.placement().findings);
                let kept = self.groups.shared_kept(group, kept);
                Part::Started(started(record).unwrap_or(facts.created), Some(kept))
            }
            (_, None) if opened => Part::Started(facts.created, None),
            (Stage::Gated, _) => Part::Waiting(facts.priority_class.clone()),
            _ if facts.open => Part::Bystander,
            _ => Part::Dropped,
        }
    }

    /// From the first release on a group keeps its members and their queue, whatever
    /// becomes of its owners.
    fn kept_face(&self, before: &Seat, has_started: bool) -> Option<Arc<Resolution>> {
        let Seat::Member(member, _) = before else { return None };
        let frozen = self.groups.get(member.group)?.is_frozen();
        let same = member.part.has_started() == has_started;
        (frozen && same && member.informed).then(|| Arc::clone(&member.face))
    }

    fn face(&mut self, record: &Record, managed: bool) -> Arc<Resolution> {
        let (key, facts) = (record.key(), &record.facts);
        let namespace = self.namespaces.get(&key.namespace);
        let label = namespace.and_then(|facts| facts.labels.get(names::LABEL_QUEUE));
        let namespace_queue =
            label.filter(|queue| !queue.is_empty()).map(|q| Arc::from(q.as_str()));
        let member = Member {
            key: &key,
            metadata: &facts.metadata,
            namespace_queue: namespace_queue.as_ref(),
        };
        let resolution = grouping::resolve(&member, &self.owners);
        let resolution = match facts.released.as_deref().filter(|_| managed) {
            Some(record) => as_recorded(resolution, record, &key),
            None => resolution,
        };
        Arc::new(match resolution {
            Resolution::Needs(placement) => Resolution::Needs(self.shared(placement)),
            Resolution::Placed(placement) => Resolution::Placed(self.shared(placement)),
        })
    }

    fn shared(&mut self, placement: Placement) -> Placement {
        Placement { findings: self.findings.share(placement.findings), ..placement }
    }
}

fn asked(seat: &Seat) -> &[ObjectKey] {
    match seat {
        Seat::Member(member, _) => &member.face.placement().findings.asked,
        _ => &[],
    }
}

/// What was written with a release outlives its owners: it says which run the pod is of.
fn as_recorded(resolution: Resolution, record: &Released, pod: &ObjectKey) -> Resolution {
    match resolution {
        Resolution::Needs(placement) => Resolution::Needs(recorded(placement, record, pod)),
        Resolution::Placed(placement) => Resolution::Placed(recorded(placement, record, pod)),
    }
}

fn recorded(mut placement: Placement, record: &Released, pod: &ObjectKey) -> Placement {
    let namespace = Arc::clone(&pod.namespace);
    let joined = match &record.terms {
        Some(terms) => terms.joined.as_deref().map(Arc::from),
        None => match &*placement.group {
            GroupKey::Named { name, .. } => Some(Arc::clone(name)),
            GroupKey::Run { .. } => None,
        },
    };
    if let Some(name) = joined {
        placement.group = Arc::new(GroupKey::Named { namespace, name });
        return placement;
    }
    if *placement.root.uid != *record.root {
        placement.root = recorded_root(record, pod);
    }
    let root = Arc::clone(&placement.root.uid);
    placement.group = Arc::new(GroupKey::Run { namespace, root });
    placement
}

fn recorded_root(record: &Released, pod: &ObjectKey) -> ObjectKey {
    let (kind, name) = record.group.split_once('/').unwrap_or(("", &record.group));
    ObjectKey {
        api_version: "".into(),
        kind: kind.into(),
        namespace: Arc::clone(&pod.namespace),
        name: name.into(),
        uid: record.root.as_str().into(),
    }
}

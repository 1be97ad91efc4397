//! An engine as the shortest log that makes an equal one: events that tell what is there, then
//! once what no event tells ([`Past`]). Whatever follows from these is worked out anew.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::claim::Claim;
use super::event::{Event, GroupConfig, PodConfig};
use super::fleet::Node;
use super::group::Group;
use super::model::{GroupId, Millis, NodeId, PodId, PodState, QueueId, ResourceId, Vector};
use super::plan::node_at;
use super::pod::{Pod, ReleaseState};
use super::reserve::Reservation;
use super::shapes::{Kind, Parts};
use super::slab::NONE;
use super::world::Engine;

/// What an engine knows that no event tells.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Past {
    now: Millis,
    decided: u64,
    /// Whatever a node had or a queue spoke of.
    resources: Vec<ResourceId>,
    /// Backlogs stay full until a tenth has gone.
    full: Vec<QueueId>,
    pods: Vec<Mark>,
    /// What was told of groups that are on their way.
    groups: Vec<(GroupId, GroupConfig)>,
    /// In the order in which they were made.
    claims: Vec<Claimed>,
    claims_at: Millis,
    claims_made_now: u32,
    /// In the order in which they were made.
    reserved: Vec<Reservation>,
    /// What queues used, and their own lines, by weight: see `history`.
    used: Vec<(QueueId, bool, Vector)>,
}

/// What became of a pod by what was decided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Mark {
    pod: PodId,
    release: ReleaseState,
    retry_at: Option<Millis>,
    evicting: bool,
    spared: Option<Millis>,
    planned: Option<NodeId>,
}

/// A group for which room is being made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Claimed {
    group: GroupId,
    /// In turn.
    pods: Vec<PodId>,
    adds_group: bool,
    evicted: u32,
}

impl Engine {
    /// Events that tell what is there, and when each is to be told.
    pub(super) fn told(&self) -> impl Iterator<Item = (Millis, Event)> + '_ {
        let queue = |(&id, queue): (&QueueId, _)| Event::QueueChanged(id, Clone::clone(queue));
        let queues = self.queues.iter().map(queue);
        let known = self.fleet.iter().filter(|(_, node)| node.known);
        let nodes = known.flat_map(|(id, node)| tell_node(id, node));
        let synced = self.synced.iter().map(|&cluster| Event::Synced(cluster));
        let paused = self.paused.iter().map(|(&cluster, &pause)| Event::Paused(cluster, pause));
        let gone = self.fleet.iter().filter(|(_, node)| node.gone);
        let gone = gone.map(|(id, _)| Event::NodeRemoved(id));
        let first = queues.chain(nodes).chain(synced).chain(paused).map(|event| (0, event));
        first.chain(self.tell_groups()).chain(gone.map(|event| (self.now, event)))
    }

    /// A group arrives when its last pod does: the one that was quiet longest is told first.
    fn tell_groups(&self) -> impl Iterator<Item = (Millis, Event)> + '_ {
        let mut groups: Vec<(Millis, u32)> =
            self.groups.iter().map(|(slot, group)| (group.arrived, slot)).collect();
        groups.sort_unstable();
        groups.into_iter().flat_map(move |(arrived, slot)| {
            let group = &self.groups[slot];
            let pod = |pod| Event::PodChanged(self.pods[pod].id(), self.told_of(pod));
            let pods = self.pods_of(slot).map(pod);
            let itself = Event::GroupChanged(group.id, group.config.clone());
            std::iter::once(itself).chain(pods).map(move |event| (arrived, event))
        })
    }

    /// What was told of a pod last.
    pub(super) fn told_of(&self, slot: u32) -> PodConfig {
        let pod = &self.pods[slot];
        PodConfig {
            group: self.groups[pod.group].id,
            cost: self.shapes.get(pod.shape).cost.clone(),
            priority: pod.priority,
            created: pod.created,
            started: Some(pod.started).filter(|&started| started != Pod::UNKNOWN),
            never_preempts: pod.never_preempts,
            state: pod.state,
        }
    }

    /// What no event tells.
    pub(super) fn past(&self) -> Past {
        Past {
            now: self.now,
            decided: self.decided,
            resources: self.axes.all().map(|(_, resource)| resource).collect(),
            full: self.full.iter().copied().collect(),
            pods: self.pods.iter().filter_map(|(_, pod)| self.mark(pod)).collect(),
            groups: self.groups.iter().filter_map(|(_, group)| told_since(group)).collect(),
            claims: self.claims.made.iter().map(|claim| self.claimed_by(claim)).collect(),
            claims_at: self.claims.at,
            claims_made_now: self.claims.made_now,
            reserved: self.reserved.clone(),
            used: self.histories(),
        }
    }

    fn mark(&self, pod: &Pod) -> Option<Mark> {
        let id = pod.id();
        let release = match pod.release {
            ReleaseState::Claimed => ReleaseState::None,
            release => release,
        };
        let mark = Mark {
            pod: id,
            release,
            retry_at: self.retries.get(&id).copied(),
            evicting: self.claims.evicting.contains(&id),
            spared: self.claims.spared.get(&id).copied(),
            planned: node_at(pod.planned),
        };
        let is_told = release == told_by(pod.state)
            && mark.retry_at.is_none()
            && !mark.evicting
            && mark.spared.is_none()
            && mark.planned.is_none();
        (!is_told).then_some(mark)
    }

    fn claimed_by(&self, claim: &Claim) -> Claimed {
        Claimed {
            group: self.groups[claim.group].id,
            pods: claim.pods.iter().map(|&pod| self.pods[pod].id()).collect(),
            adds_group: self.classes.get(claim.class).kind.adds_group,
            evicted: claim.evicted,
        }
    }

    /// Takes in what no event tells, after the events.
    pub(super) fn recall(&mut self, past: Past) {
        self.now = past.now;
        self.decided = past.decided;
        self.todo.axes |= self.axes.learn(past.resources.into_iter());
        self.full.extend(past.full);
        for mark in past.pods {
            self.recall_pod(&mark);
        }
        for (group, told) in past.groups {
            let group = self.group_slot(group);
            self.groups[group].told = Some(Box::new(told));
        }
        for claim in past.claims {
            self.recall_claim(&claim);
        }
        self.claims.at = past.claims_at;
        self.claims.made_now = past.claims_made_now;
        self.reserved = past.reserved;
        self.recall_histories(past.used);
    }

    fn recall_pod(&mut self, mark: &Mark) {
        let Some(slot) = self.slot_of(mark.pod) else { return };
        self.dequeue(slot);
        self.pods[slot].release = mark.release;
        self.pods[slot].planned = mark.planned.map_or(NONE, |node| node.0);
        self.retries.extend(mark.retry_at.map(|at| (mark.pod, at)));
        self.claims.evicting.extend(mark.evicting.then_some(mark.pod));
        self.claims.spared.extend(mark.spared.map(|until| (mark.pod, until)));
        self.enqueue(slot);
        self.recharge(slot);
    }

    fn recall_claim(&mut self, claim: &Claimed) {
        let Some(slot) = self.group_slots.get(&claim.group) else { return };
        let line = self.groups[slot].line;
        let pods: Vec<u32> = claim.pods.iter().filter_map(|&pod| self.slot_of(pod)).collect();
        let may = |&pod: &u32| self.pods[pod].group == slot && self.pods[pod].waits();
        if line == NONE || pods.is_empty() || !pods.iter().all(may) {
            return;
        }
        let mut counts = BTreeMap::new();
        for &pod in &pods {
            *counts.entry(self.pods[pod].shape).or_default() += 1;
            self.dequeue(pod);
            self.pods[pod].release = ReleaseState::Claimed;
            self.groups[slot].claimed += 1;
            self.enqueue(pod);
            self.recharge(pod);
        }
        let kind = self.groups[slot].kind(Parts::of(counts), self.site(&self.groups[slot]));
        let class = self.hold_class(Kind { adds_group: claim.adds_group, ..kind });
        self.claims.made.push(Claim { group: slot, line, class, pods, evicted: claim.evicted });
    }
}

#[cfg(test)]
impl Engine {
    /// An equal one, made from its snapshot.
    pub(super) fn restored(&self) -> Self {
        let mut again = Self::default();
        self.told().for_each(|(now, event)| again.apply(now, event));
        again.recall(self.past());
        again
    }
}

fn tell_node(id: NodeId, node: &Node) -> impl Iterator<Item = Event> {
    let foreign = Some(&node.foreign).filter(|foreign| !foreign.is_empty());
    let foreign = foreign.map(|foreign| Event::ForeignChanged(id, foreign.clone()));
    std::iter::once(Event::NodeChanged(id, node.config.clone())).chain(foreign)
}

fn told_since(group: &Group) -> Option<(GroupId, GroupConfig)> {
    group.told.as_ref().map(|told| (group.id, GroupConfig::clone(told)))
}

/// What a pod that is told in a state is known to be.
fn told_by(state: PodState) -> ReleaseState {
    match state {
        PodState::Gated | PodState::Dropped => ReleaseState::None,
        PodState::Released { .. } | PodState::Bound { .. } | PodState::Ended => ReleaseState::Done,
    }
}

//! Who offers what, and in which line.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::super::model::{
    Assignment, Gang, GroupId, Growth, Millis, PodId, PodState, QueueId, ResourceId, Uid, Vector,
};
use super::{Pod, Reference, Release};

/// How long no pod of a group may have arrived before all of it is known.
const SETTLE: Millis = 2_000;

/// Different costs of one group of which a pod is offered at a time.
const COSTS_OFFERED: usize = 32;

/// Place of a waiting pod in its group: priority, age, uid.
pub(in super::super) type Turn = (Reverse<i32>, Millis, PodId);

/// By so much older gangs that grow count in line.
const GROWTH_LEAD: Millis = 300_000;

/// Place of a group in its queue's line: cut, priority, age, uid of its root.
pub(in super::super) type Place = (Reverse<bool>, Reverse<i32>, Millis, Uid, GroupId);

/// Pods of one group that start together or not at all.
#[derive(Clone, Debug)]
pub(in super::super) struct Offer {
    pub(in super::super) group: GroupId,
    pub(in super::super) queue: QueueId,
    /// In turn.
    pub(in super::super) pods: Vec<PodId>,
    pub(in super::super) need: Vector,
    /// It is of a gang that was cut.
    pub(super) completes: bool,
    pub(super) preemptible: bool,
    place: Place,
    /// Creation of the oldest pod of its group.
    oldest: Millis,
    turn: Turn,
}

impl Offer {
    /// The age of its group and the uid of its root.
    pub(super) fn head(&self) -> (Millis, Uid) {
        (self.oldest, self.place.3)
    }

    /// By what offers stand in line; `fair` is without precedence of gangs that grow.
    pub(super) fn order(&self, fair: bool) -> (Place, Turn) {
        let (cut, priority, since, root, group) = self.place;
        let since = if fair { self.oldest } else { since };
        ((cut, priority, since, root, group), self.turn)
    }

    /// That of its first pod.
    pub(super) fn priority(&self) -> i32 {
        self.turn.0.0
    }

    /// The resources it needs any of, and how much.
    pub(super) fn needs(&self) -> impl Iterator<Item = (ResourceId, i128)> + '_ {
        self.need.iter().filter(|&(_, need)| need > 0)
    }
}

impl Reference {
    /// The offers of each queue that may be chosen once they fit, in line.
    pub(in super::super) fn lines(&self) -> BTreeMap<QueueId, Vec<Offer>> {
        let mut lines = BTreeMap::<_, Vec<Offer>>::new();
        for &id in self.groups.keys() {
            for offer in self.offers(id).into_iter().filter(|offer| !self.is_hopeless(offer)) {
                lines.entry(offer.queue).or_default().push(offer);
            }
        }
        for line in lines.values_mut() {
            line.sort_by_key(|offer| offer.order(false));
        }
        lines
    }

    fn offers(&self, id: GroupId) -> Vec<Offer> {
        let Some(queue) = self.may_offer(id) else { return Vec::new() };
        let waiting = self.waiting(id);
        let due = |turn: &&Turn| self.pods[&turn.2].retry_at.is_none_or(|at| at <= self.now);
        let due: Vec<Turn> = waiting.iter().filter(due).copied().collect();
        match self.together(id) {
            Some(count) if due.len() < count => Vec::new(),
            Some(count) => vec![self.offer(id, queue, &due[..count])],
            None => {
                let mut seen = BTreeSet::new();
                let first = |turn: &&Turn| seen.insert(&self.pods[&turn.2].config.cost);
                let firsts = due.iter().filter(first).take(COSTS_OFFERED);
                firsts.map(|turn| self.offer(id, queue, &[*turn])).collect()
            }
        }
    }

    /// The queue of a group of which something waits, unless it is parked.
    fn may_offer(&self, id: GroupId) -> Option<QueueId> {
        let group = &self.groups[&id];
        let Assignment::Queue(queue) = group.config.queue else { return None };
        let cluster = group.config.cluster;
        let may = self.is_open(queue)
            && self.claims.iter().all(|claim| claim.group != id)
            && self.synced.contains(&cluster)
            && !self.paused.contains(&cluster)
            && self.is_settled(id)
            && self.is_alone(id, queue)
            && !self.waiting(id).is_empty();
        may.then_some(queue)
    }

    /// Whether no other group of its singleton key is charged in its queue.
    fn is_alone(&self, id: GroupId, queue: QueueId) -> bool {
        let Some(key) = self.groups[&id].config.singleton else { return true };
        self.charged_groups().iter().all(|other| {
            *other == id
                || self.groups[other].config.singleton != Some(key)
                || self.payer(*other) != Some(queue)
        })
    }

    /// How many pods start together; none when each pod starts on its own.
    fn together(&self, id: GroupId) -> Option<usize> {
        match self.groups[&id].config.gang {
            _ if self.has_begun(id) => None,
            Gang::Units | Gang::AtLeast(0 | 1) => None,
            Gang::AtLeast(need) => Some(usize::try_from(need).unwrap()),
            Gang::All => Some(self.waiting(id).len()),
        }
    }

    fn offer(&self, group: GroupId, queue: QueueId, turns: &[Turn]) -> Offer {
        let pods: Vec<PodId> = turns.iter().map(|turn| turn.2).collect();
        let mut need = Vector::default();
        for pod in &pods {
            need.add(&self.pods[pod].config.cost);
        }
        if !self.charged_groups().contains(&group) {
            need.add(&[(ResourceId::GROUPS, 1)].into_iter().collect());
        }
        let completes = self.is_cut(group);
        let preemptible = !self.groups[&group].config.non_preemptible;
        let (place, oldest, turn) = (self.place(group), self.oldest(group), turns[0]);
        Offer { group, queue, pods, need, completes, preemptible, place, oldest, turn }
    }

    /// All pods that wait count for the place, also those that are not to be tried yet.
    pub(in super::super) fn place(&self, id: GroupId) -> Place {
        let waiting = self.waiting(id);
        let (priority, ..) = waiting[0];
        let goes_first = self.grows(id) && self.growth(id) == Growth::First;
        let lead = if goes_first { GROWTH_LEAD } else { 0 };
        let since = self.oldest(id).saturating_sub(lead);
        (Reverse(self.is_cut(id)), priority, since, self.groups[&id].config.root, id)
    }

    fn oldest(&self, id: GroupId) -> Millis {
        self.waiting(id).iter().map(|&(_, created, _)| created).min().unwrap()
    }

    /// Whether an offer can never start as things are, whatever else ends.
    fn is_hopeless(&self, offer: &Offer) -> bool {
        self.is_beyond_limits(offer.queue, &offer.need) || self.are_beyond_nodes(&offer.pods)
    }

    fn is_beyond_limits(&self, queue: QueueId, need: &Vector) -> bool {
        self.spots(queue).into_iter().any(|spot| {
            let limit = self.limit(spot);
            let beyond = |(r, need): (_, i128)| limit.mentioned(r).is_some_and(|most| need > most);
            need.iter().filter(|&(_, need)| need > 0).any(beyond)
        })
    }

    /// Whether one of them is.
    fn are_beyond_nodes(&self, pods: &[PodId]) -> bool {
        let beyond = |pod| {
            let cost = &self.pods[pod].config.cost;
            !self.nodes.values().any(|node| cost.fits(&node.allocatable))
        };
        !self.nodes.is_empty() && pods.iter().any(beyond)
    }

    /// Pods of a group that wait in earnest.
    pub(super) fn in_earnest(&self, id: GroupId, queue: QueueId) -> Vec<PodId> {
        let waiting: Vec<PodId> = self.waiting(id).into_iter().map(|(.., pod)| pod).collect();
        let in_vain = |pods: &[PodId]| {
            let mut need = Vector::default();
            for pod in pods {
                need.add(&self.pods[pod].config.cost);
            }
            self.is_beyond_limits(queue, &need) || self.are_beyond_nodes(pods)
        };
        if self.claims.iter().all(|claim| claim.group != id)
            && let Some(count) = self.together(id)
            && (!self.is_settled(id) || waiting.len() < count || in_vain(&waiting[..count]))
        {
            return Vec::new();
        }
        waiting.into_iter().filter(|&pod| !in_vain(&[pod])).collect()
    }

    fn is_settled(&self, id: GroupId) -> bool {
        let group = &self.groups[&id];
        group.config.gang != Gang::All
            || self.has_begun(id)
            || group.arrived.saturating_add(SETTLE) <= self.now
    }

    /// Pods of a group that wait, in turn.
    pub(in super::super) fn waiting(&self, id: GroupId) -> Vec<Turn> {
        let waits = self.pods.iter().filter(|(_, pod)| pod.config.group == id && pod.waits());
        let mut turns: Vec<Turn> = waits
            .map(|(&id, pod)| (Reverse(pod.config.priority), pod.config.created, id))
            .collect();
        turns.sort_unstable();
        turns
    }

    pub(in super::super) fn has_begun(&self, id: GroupId) -> bool {
        self.started(id) > 0
    }

    fn is_cut(&self, id: GroupId) -> bool {
        let Gang::AtLeast(need) = self.groups[&id].config.gang else { return false };
        (1..usize::try_from(need).unwrap()).contains(&self.started(id))
    }

    fn grows(&self, id: GroupId) -> bool {
        let is_gang = self.groups[&id].config.gang != Gang::Units;
        is_gang && self.has_begun(id) && !self.is_cut(id) && self.charged_groups().contains(&id)
    }

    fn growth(&self, id: GroupId) -> Growth {
        let queue = self.payer(id).and_then(|queue| self.queues.get(&queue));
        queue.map_or(Growth::default(), |queue| queue.growth)
    }

    fn started(&self, id: GroupId) -> usize {
        self.pods.values().filter(|pod| pod.config.group == id && pod.has_started()).count()
    }
}

impl Pod {
    pub(in super::super) fn waits(&self) -> bool {
        self.config.state == PodState::Gated && self.release == Release::None
    }

    pub(in super::super) fn has_started(&self) -> bool {
        matches!(self.release, Release::Sent | Release::Done)
    }
}

//! What may start now, in which order, and why the rest may not.
//!
//! Before anything else goes what a gang that has begun lacks of its size: it was decided
//! with the rest. From the root down, the next to go is the sibling within its guarantee,
//! then the one with the lowest dominant share ÷ weight (weighted, hierarchical DRF).
//! Inside a queue it is priority, then age, then uid. Usage only grows within a
//! round, so what was refused once in a round stays refused for its rest.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Bound;

use super::model::{Assignment, Gang, GroupId, Millis, Order, PodId, QueueId, Uid, Vector};
use super::reason::{Reason, Shortage};
use super::share::Fraction;
use super::world::{Engine, Group, Place, Pod, ReleaseState, SETTLE, Turn};

/// Costs of which it is remembered whether a node is large enough.
const WIDEST_REMEMBERED: usize = 65_536;

/// After every pod of a group.
const LAST_TURN: Turn = (Reverse(i32::MIN), Millis::MAX, Uid(u128::MAX));

/// Let this pod go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Grows by one with each decision.
    pub number: u64,
    /// The pod.
    pub pod: PodId,
    /// Its group.
    pub group: GroupId,
    /// The queue that pays.
    pub queue: QueueId,
    /// How many pods start together with it.
    pub size: u32,
    /// Nothing of its group was let go before, as far as pods are left to tell.
    pub first: bool,
}

/// Pods of one group that go together or not at all.
#[derive(Clone, Debug)]
struct Offer {
    group: GroupId,
    pods: Vec<PodId>,
    cost: Vector,
    /// Where the group's next offer starts, if this one is refused.
    last: Option<Turn>,
    /// It completes a gang that was cut in two.
    completes: bool,
    /// Age and root of the group, the last tie-break between queues.
    age: (Millis, Uid),
}

/// One queue's line during a round.
#[derive(Debug, Default)]
struct Lane {
    /// The group last looked at; everything before it is done with.
    at: Option<Place>,
    /// The last pod of that group that was refused in this round.
    after: Option<Turn>,
    /// Costs refused in this round.
    refused: BTreeMap<Vector, Reason>,
    offer: Option<Offer>,
    closed: bool,
}

type Lanes = BTreeMap<QueueId, Lane>;

/// Who goes before whom among siblings: smaller first.
type Precedence = (bool, bool, Fraction, (Millis, Uid));

impl Engine {
    /// Decides until nothing more may start or about `budget` pods do.
    ///
    /// What is decided counts as started at once. When the budget ends the
    /// round, [`Engine::tick`] stays true and the next call goes on.
    pub fn decide(&mut self, budget: usize) -> Vec<Decision> {
        self.dirty = false;
        self.wake = None;
        self.heads.clear();
        let mut decisions = Vec::new();
        let mut lanes = self.open_lanes();
        while decisions.len() < budget {
            let Some(queue) = self.next_queue(None, &lanes).map(|(queue, _)| queue) else {
                return decisions;
            };
            let Some(lane) = lanes.get_mut(&queue) else { return decisions };
            self.step(queue, lane, &mut decisions);
        }
        self.dirty = true;
        decisions
    }

    /// Looks what [`Self::decide`] would let go, and takes it back: for whoever does not
    /// lead. Nothing is charged afterwards. What would start says [`Reason::NextInLine`],
    /// what would wait says why.
    pub fn rehearse(&mut self, budget: usize) {
        let decided = self.decided;
        let decisions = self.decide(budget);
        for decision in &decisions {
            self.take_back(decision.pod);
        }
        for decision in decisions {
            if let Some(group) = self.groups.get_mut(&decision.group) {
                group.refusal = Some(Reason::NextInLine);
            }
        }
        self.decided = decided;
        self.dirty = false;
    }

    fn take_back(&mut self, id: PodId) {
        self.dequeue(id);
        if let Some(pod) = self.pods.get_mut(&id) {
            pod.release = ReleaseState::None;
        }
        self.enter_group(id);
        self.recharge(id);
    }

    fn open_lanes(&mut self) -> Lanes {
        let open: Vec<QueueId> = self
            .lines
            .keys()
            .copied()
            .filter(|&queue| self.tree.problem(queue).is_none())
            .collect();
        let mut lanes = Lanes::new();
        for queue in open {
            let mut lane = Lane::default();
            self.advance(queue, &mut lane);
            lanes.insert(queue, lane);
        }
        lanes
    }

    /// Lets the offer of one lane go and finds the next. It did fit when it was found;
    /// what started since may have taken its room.
    fn step(&mut self, queue: QueueId, lane: &mut Lane, decisions: &mut Vec<Decision>) {
        let Some(offer) = lane.offer.take() else { return };
        match self.refusal(queue, &offer) {
            None => self.commit(queue, &offer, decisions),
            Some(reason) => self.refuse(queue, lane, &offer, reason),
        }
        self.advance(queue, lane);
    }

    fn refuse(&mut self, queue: QueueId, lane: &mut Lane, offer: &Offer, reason: Reason) {
        self.set_refusal(offer.group, reason);
        let strict = self.queues.get(&queue).is_some_and(|q| q.order == Order::Strict);
        // Work that can never fit must not stop a strict queue for ever.
        if strict && !reason.needs_action() {
            lane.closed = true;
            self.heads.insert(queue, offer.group);
        }
        // The members of a gang that go first are the first ones: no others are tried.
        let same = self.groups.get(&offer.group).is_some_and(Group::is_uniform);
        lane.after = if same || offer.pods.len() > 1 { Some(LAST_TURN) } else { offer.last };
        // Whether a node is large enough depends on each pod, not on their sum.
        if !matches!(reason, Reason::LargerThanAnyNode(_)) {
            lane.refused.insert(offer.cost.clone(), reason);
        }
    }

    /// The first reason for a group in a round is the one to show.
    fn set_refusal(&mut self, group: GroupId, reason: Reason) {
        if let Some(group) = self.groups.get_mut(&group) {
            group.refusal.get_or_insert(reason);
        }
    }

    fn commit(&mut self, queue: QueueId, offer: &Offer, decisions: &mut Vec<Decision>) {
        let size = u32::try_from(offer.pods.len()).unwrap_or(u32::MAX);
        let first = self.groups.get(&offer.group).is_some_and(|group| group.started.is_empty());
        for &pod in &offer.pods {
            self.dequeue(pod);
            if let Some(pod) = self.pods.get_mut(&pod) {
                pod.release = ReleaseState::Sent;
                pod.retry_at = None;
            }
            self.enter_group(pod);
            self.recharge(pod);
            self.decided += 1;
            let number = self.decided;
            decisions.push(Decision { number, pod, group: offer.group, queue, size, first });
        }
        if let Some(group) = self.groups.get_mut(&offer.group) {
            group.refusal = None;
        }
    }

    /// Moves a lane to its next offer that fits. What does not is passed over here, once
    /// a round, so that however much of it there is, it delays nobody else's turn.
    fn advance(&mut self, queue: QueueId, lane: &mut Lane) {
        while lane.offer.is_none() && !lane.closed {
            let Some(place) = self.place_from(queue, lane) else { return };
            if lane.at != Some(place) {
                self.move_to(lane, place);
            }
            match self.offer(place.4, lane) {
                Ok(offer) => {
                    let known = lane.refused.get(&offer.cost).copied();
                    match known.or_else(|| self.refusal(queue, &offer)) {
                        None => lane.offer = Some(offer),
                        Some(reason) => self.refuse(queue, lane, &offer, reason),
                    }
                }
                Err(reason) => {
                    if let Some(reason) = reason {
                        self.set_refusal(place.4, reason);
                    }
                    self.skip(queue, lane, place);
                }
            }
        }
    }

    /// The group to look at: the one at hand while it still waits, else the one after it.
    fn place_from(&self, queue: QueueId, lane: &Lane) -> Option<Place> {
        let places = self.lines.get(&queue)?;
        match lane.at {
            None => places.first().copied(),
            Some(at) => places.range(at..).next().copied(),
        }
    }

    fn skip(&mut self, queue: QueueId, lane: &mut Lane, place: Place) {
        let after = (Bound::Excluded(place), Bound::Unbounded);
        match self.lines.get(&queue).and_then(|line| line.range(after).next().copied()) {
            None => lane.closed = true,
            Some(next) => self.move_to(lane, next),
        }
    }

    /// A group is looked at for the first time in this round: why it waited before does
    /// not matter any more.
    fn move_to(&mut self, lane: &mut Lane, place: Place) {
        lane.at = Some(place);
        lane.after = None;
        if let Some(group) = self.groups.get_mut(&place.4) {
            group.refusal = None;
        }
    }

    /// What a group would let go next; `Err` says why it has nothing to offer,
    /// `Err(None)` that all it has was refused in this round.
    fn offer(&mut self, id: GroupId, lane: &Lane) -> Result<Offer, Option<Reason>> {
        let group = self.groups.get(&id).ok_or(None)?;
        if !self.synced.contains(&group.config.cluster) {
            return Err(Some(Reason::ClusterNotSynced));
        }
        if let Some(&pause) = self.paused.get(&group.config.cluster) {
            return Err(Some(Reason::ReleasesPaused(pause)));
        }
        let together = together(group, self.now).map_err(|reason| {
            if let Reason::Settling { until } = reason {
                self.wake = Some(earlier(self.wake, until));
            }
            Some(reason)
        })?;
        let from = lane.after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut turns = Vec::new();
        let mut retry_at: Option<Millis> = None;
        for &turn in group.waiting.range((from, Bound::Unbounded)) {
            match self.pods.get(&turn.2).and_then(|pod| pod.retry_at) {
                Some(at) if at > self.now => retry_at = Some(earlier(retry_at, at)),
                _ => turns.push(turn),
            }
            if turns.len() == together {
                break;
            }
        }
        if let Some(at) = retry_at {
            self.wake = Some(earlier(self.wake, at));
        }
        if turns.len() < together {
            return Err(retry_at.map(|retry_at| Reason::ReleaseRefused { retry_at }));
        }
        let age = (group.waiting.first().map_or(0, |&(_, created, _)| created), group.config.root);
        let pods: Vec<PodId> = turns.iter().map(|&(.., pod)| pod).collect();
        let (completes, last) = (group.is_cut(), turns.last().copied());
        Ok(Offer { group: id, cost: self.sum(&pods), pods, last, completes, age })
    }

    fn sum(&self, pods: &[PodId]) -> Vector {
        let mut cost = Vector::default();
        for pod in pods.iter().filter_map(|pod| self.pods.get(pod)) {
            cost.add(&pod.config.cost);
        }
        cost
    }

    /// Goes down from `above` to the queue whose offer is next.
    fn next_queue(&self, above: Option<QueueId>, lanes: &Lanes) -> Option<(QueueId, Precedence)> {
        let own = above.and_then(|queue| self.own_turn(queue, lanes));
        let below = self.tree.children(above).iter().filter_map(|&child| {
            let (leaf, _) = self.next_queue(Some(child), lanes)?;
            Some((leaf, self.precedence(child, lanes.get(&leaf)?.offer.as_ref()?)))
        });
        own.into_iter().chain(below).min_by(|(_, a), (_, b)| a.cmp(b))
    }

    /// A queue's own work competes with the queues below it as if it were one more of weight 1.
    fn own_turn(&self, queue: QueueId, lanes: &Lanes) -> Option<(QueueId, Precedence)> {
        let offer = lanes.get(&queue)?.offer.as_ref()?;
        let share = self.books.dominant_share(self.books.direct.get(&queue), 1);
        Some((queue, (!offer.completes, true, share, offer.age)))
    }

    fn precedence(&self, queue: QueueId, offer: &Offer) -> Precedence {
        let usage = self.books.usage.get(&queue);
        let weight = self.queues.get(&queue).map_or(1, |queue| queue.weight);
        let share = self.books.dominant_share(usage, weight);
        (!offer.completes, !self.within_guarantee(queue, &offer.cost), share, offer.age)
    }

    /// Whether a queue stays within what is its own, judged by the resources it is given.
    fn within_guarantee(&self, queue: QueueId, cost: &Vector) -> bool {
        let Some(config) = self.queues.get(&queue) else { return false };
        let used = |resource| self.books.usage.get(&queue).map_or(0, |usage| usage.get(resource));
        let mut given = cost
            .iter()
            .filter(|&(_, need)| need > 0)
            .filter_map(|(r, need)| Some((r, need, config.guaranteed.mentioned(r)?)))
            .peekable();
        given.peek().is_some() && given.all(|(r, need, own)| used(r) + need <= own)
    }

    /// Why an offer may not go now.
    fn refusal(&mut self, queue: QueueId, offer: &Offer) -> Option<Reason> {
        self.larger_than_queue(queue, &offer.cost)
            .or_else(|| offer.pods.iter().find_map(|&pod| self.larger_than_any_node(pod)))
            .or_else(|| self.over_limit(queue, &offer.cost))
            .or_else(|| self.over_capacity(&offer.cost))
    }

    fn larger_than_queue(&self, queue: QueueId, cost: &Vector) -> Option<Reason> {
        self.tree.path(queue).iter().find_map(|&above| {
            let limit = &self.queues.get(&above)?.limit;
            let shortage = shortage(cost, |_| 0, |resource| limit.mentioned(resource))?;
            Some(Reason::LargerThanQueue(shortage, above))
        })
    }

    fn over_limit(&self, queue: QueueId, cost: &Vector) -> Option<Reason> {
        self.tree.path(queue).iter().find_map(|&above| {
            let limit = &self.queues.get(&above)?.limit;
            let usage = self.books.usage.get(&above);
            let used = |resource| usage.map_or(0, |usage| usage.get(resource));
            let shortage = shortage(cost, used, |resource| limit.mentioned(resource))?;
            Some(Reason::QueueLimit(shortage, above))
        })
    }

    fn over_capacity(&self, cost: &Vector) -> Option<Reason> {
        let used = |resource| self.books.load.get(resource);
        let most = |resource| Some(self.books.capacity.get(resource));
        let books = &self.books;
        shortage(cost, used, most).map(|shortage| match books.usable {
            0 => Reason::NoUsableNode(books.nodes),
            _ => Reason::Capacity(shortage),
        })
    }

    /// Whether a pod asks more than any node has, be it cordoned or not ready now.
    fn larger_than_any_node(&mut self, pod: PodId) -> Option<Reason> {
        let cost = self.pods.get(&pod)?.config.cost.clone();
        if let Some(known) = self.widest.get(&cost) {
            return *known;
        }
        let mut nearest: Option<Shortage> = None;
        let mut misses = usize::MAX;
        for node in self.nodes.values().filter(|node| node.known) {
            let room = &node.config.allocatable;
            let most = |resource| Some(room.get(resource));
            let missing = cost.iter().filter(|&(r, need)| need > 0 && need > room.get(r)).count();
            match shortage(&cost, |_| 0, most) {
                None => {
                    nearest = None;
                    break;
                }
                Some(miss) if missing < misses => (nearest, misses) = (Some(miss), missing),
                Some(_) => {}
            }
        }
        let reason = nearest.map(Reason::LargerThanAnyNode);
        if self.widest.len() >= WIDEST_REMEMBERED {
            self.widest.clear();
        }
        self.widest.insert(cost, reason);
        reason
    }

    /// Why a group's next pods wait, or those that were decided and not let go yet.
    pub(super) fn reason(&self, group: &Group) -> Option<Reason> {
        let paused = || self.paused.get(&group.config.cluster).copied().map(Reason::ReleasesPaused);
        if group.waiting.is_empty() {
            return paused().filter(|_| self.is_being_written(group));
        }
        let standing = match group.config.queue {
            Assignment::Unresolved => Some(Reason::ResolvingOwners),
            Assignment::Unnamed => Some(Reason::NoQueue),
            Assignment::Forbidden(queue, why) => Some(
                self.queues
                    .get(&queue)
                    .map_or(Reason::UnknownQueue(queue), |_| Reason::QueueForbidden(queue, why)),
            ),
            Assignment::Queue(queue) => self.tree.problem(queue),
        };
        if !self.synced.contains(&group.config.cluster) {
            return Some(standing.unwrap_or(Reason::ClusterNotSynced));
        }
        let round = || self.behind(group).or(group.refusal).unwrap_or(Reason::NextRound);
        Some(standing.or_else(paused).unwrap_or_else(round))
    }

    fn is_being_written(&self, group: &Group) -> bool {
        let mut started = group.started.iter().filter_map(|pod| self.pods.get(pod));
        started.any(Pod::is_being_written)
    }

    /// Whether a strict queue was closed by a group ahead of this one.
    fn behind(&self, group: &Group) -> Option<Reason> {
        let (queue, place) = group.place?;
        let (_, head) = self.groups.get(self.heads.get(&queue)?)?.place?;
        (head < place).then_some(Reason::BehindInStrictQueue(queue))
    }

    /// What a group's next pod or gang asks.
    pub(super) fn asks(&self, group: &Group) -> Vector {
        let count = match together(group, Millis::MAX) {
            Ok(count) => count,
            Err(_) => group.waiting.len(),
        };
        let pods: Vec<PodId> = group.waiting.iter().take(count).map(|&(.., pod)| pod).collect();
        self.sum(&pods)
    }
}

fn earlier(known: Option<Millis>, other: Millis) -> Millis {
    known.map_or(other, |known| known.min(other))
}

/// How many waiting pods must go together.
fn together(group: &Group, now: Millis) -> Result<usize, Reason> {
    let have = group.waiting.len();
    match group.config.gang {
        _ if !group.started.is_empty() => Ok(1),
        Gang::Units => Ok(1),
        Gang::AtLeast(need) => match usize::try_from(need) {
            Ok(need) if have >= need => Ok(need.max(1)),
            _ => Err(Reason::WaitingForMembers {
                have: u32::try_from(have).unwrap_or(u32::MAX),
                need,
            }),
        },
        Gang::All => match group.arrived.saturating_add(SETTLE) {
            until if until > now => Err(Reason::Settling { until }),
            _ => Ok(have.max(1)),
        },
    }
}

/// The first resource of `cost` that does not fit; a `most` of `None` is no bound.
fn shortage(
    cost: &Vector,
    used: impl Fn(super::ResourceId) -> i128,
    most: impl Fn(super::ResourceId) -> Option<i128>,
) -> Option<Shortage> {
    cost.iter().filter(|&(_, need)| need > 0).find_map(|(resource, need)| {
        let (used, most) = (used(resource), most(resource)?);
        (used + need > most).then_some(Shortage { resource, need, used, most })
    })
}

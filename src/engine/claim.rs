//! Room that is made by evictions, for an offer that has a better right to it.
//!
//! Looked at once a second, when nobody else starts by right: who claims what is a walk over
//! the lines that have offers, and what each would take is found from the root down.

mod prey;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::amounts::{Amounts, Bounds, GROUPS, Need};
use super::decide::{Cause, Decision, Eviction};
use super::event::{Event, Preemption};
use super::group::Turn;
use super::model::{ClusterId, GroupId, Millis, PodId, PodState, QueueId, Reclaim};
use super::pod::{Charge, Pod, ReleaseState};
use super::reason::Reason;
use super::shapes::ClassId;
use super::slab::NONE;
use super::tree::{Chosen, Node, ROOT};
use super::world::Engine;

use prey::Taking;

/// Least time between two looks at who may claim.
const CLAIM_EVERY: Millis = 1_000;

/// Claims that there may be at a time.
const CLAIMS: usize = 1_000;

/// Claims that are made at one look.
const CLAIMS_A_LOOK: u32 = 32;

/// Pods of drained queues that are evicted at a time.
const DRAINED: usize = 64;

/// How long work is let run where no queue says.
const MIN_RUNTIME: Millis = 600_000;

/// What is being taken back, and for whom.
#[derive(Debug, Default)]
pub(super) struct Claims {
    /// In the order in which they were made.
    pub(super) made: Vec<Claim>,
    /// When the next may be made.
    pub(super) at: Millis,
    /// Made at this look.
    pub(super) made_now: u32,
    /// Some were made since it was last seen which may start.
    are_new: bool,
    /// A rehearsal has answered: time alone changes nothing for whoever does not decide.
    pub(super) is_rehearsed: bool,
    /// Pods whose eviction was decided.
    pub(super) evicting: BTreeSet<PodId>,
    /// Pods that could not be evicted, and until when that is not tried again.
    pub(super) spared: BTreeMap<PodId, Millis>,
    /// Slots of pods that are charged and on their way out.
    leaving: BTreeSet<u32>,
}

/// An offer that is charged and whose room is being made.
#[derive(Debug)]
pub(super) struct Claim {
    pub(super) group: u32,
    pub(super) line: u32,
    pub(super) class: ClassId,
    /// Slots of its pods, in turn.
    pub(super) pods: Vec<u32>,
    /// Pods that were evicted for it.
    pub(super) evicted: u32,
}

/// What is charged for claims, by node of the tree, and at the root for all.
pub(super) type Claimed = BTreeMap<u32, Amounts>;

/// What is leaving, by node of the tree and of the load.
#[derive(Clone, Debug, Default)]
struct Leaving {
    usage: BTreeMap<u32, Amounts>,
    load: Amounts,
}

impl Engine {
    /// Whether it is time to look who may claim.
    pub(super) fn may_claim(&self) -> bool {
        self.claims.at <= self.now
    }

    /// Whether time alone may bring a claim.
    pub(super) fn claims_are_due(&self) -> bool {
        let may = self.may_claim() && !self.claims.is_rehearsed;
        may && (self.tree.has_offers() || self.is_draining())
    }

    /// Whether anything runs in a queue that is drained.
    fn is_draining(&self) -> bool {
        self.queues
            .iter()
            .filter(|(_, queue)| queue.drain)
            .any(|(&queue, _)| self.tree.of_queue(queue).is_some_and(|node| !node.usage.is_zero()))
    }

    /// Whether claims were made that may start already: in room that others have claimed.
    pub(super) fn claims_are_new(&self) -> bool {
        self.claims.are_new
    }

    /// Makes the claim that is next; when there is none, goes on with draining and puts the next
    /// look off.
    pub(super) fn claim(&mut self, evictions: &mut Vec<Eviction>) {
        if let Some((chosen, victims)) = self.next_claim() {
            self.claims.made_now += 1;
            self.claims.are_new = true;
            return self.make(chosen, &victims, evictions);
        }
        self.renew_reservations();
        if self.is_draining() {
            self.drain(evictions);
        }
        self.claims.made_now = 0;
        self.claims.at = self.now.saturating_add(CLAIM_EVERY);
    }

    fn next_claim(&mut self) -> Option<(Chosen, BTreeSet<u32>)> {
        let may = self.claims.made.len() < CLAIMS && self.claims.made_now < CLAIMS_A_LOOK;
        if !may || !self.tree.has_offers() {
            return None;
        }
        self.tree.divide_everything();
        let mut lines = Vec::new();
        self.tree.in_turn(ROOT, &mut |line| lines.push(line));
        let leaving = self.leaving();
        let running = std::cell::OnceCell::new();
        lines.into_iter().find_map(|line| {
            let chosen = self.first_offer(line)?;
            let victims = Taking::new(self, &chosen, &leaving, &running)?.victims()?;
            Some((chosen, victims))
        })
    }

    /// The first offer of a line whose queue takes anything back, unless it fits.
    fn first_offer(&self, slot: u32) -> Option<Chosen> {
        let line = &self.lines[slot];
        if self.preemption(line.queue).is_never() {
            return None;
        }
        let front = |place: &_, class| self.front(place, class);
        let first = super::tree::first_of_all(line, &front)?;
        let class = self.classes.get(first.class);
        if class.kind.site.is_some() {
            return None;
        }
        let need = &class.need;
        let fits = self.tree.fits(line.node, need, &self.free());
        let group = need.iter().find(|&(axis, _)| axis == GROUPS);
        let runs_one_more = group.is_none_or(|(axis, one)| {
            self.tree.up(line.node).all(|(_, node)| node.limit.admit_on(axis, &node.usage, one))
        });
        let chosen = Chosen { line: slot, class: first.class, place: first.first };
        (!fits && runs_one_more && self.may_evict(&chosen)).then_some(chosen)
    }

    /// Whether every pod of an offer lets others be evicted for it.
    fn may_evict(&self, chosen: &Chosen) -> bool {
        let Some(slot) = self.group_slots.get(&chosen.place.group) else { return false };
        let kind = &self.classes.get(chosen.class).kind;
        let turns = self.groups[slot].offered(kind, |turn| self.is_ready(turn));
        turns.iter().all(|turn| !self.pods[turn.pod].never_preempts)
    }

    fn make(&mut self, chosen: Chosen, victims: &BTreeSet<u32>, evictions: &mut Vec<Eviction>) {
        let Chosen { line, class, place } = chosen;
        let Some(slot) = self.group_slots.get(&place.group) else { return };
        let kind = self.classes.get(class).kind.clone();
        let turns = self.groups[slot].offered(&kind, |turn| self.is_ready(turn));
        let group = &self.groups[slot];
        let begins = if group.charged == 0 { group.config.singleton } else { None };
        self.classes.hold(&mut self.shapes, kind);
        self.start_charges(line, slot, &turns, class);
        for turn in &turns {
            self.set_aside(slot, turn);
        }
        self.hold_key(line, begins, 1);
        let cause = Cause::Claim { by: place.group, queue: self.lines[line].queue };
        let mut evicted: Vec<Eviction> =
            victims.iter().map(|&victim| self.evict(victim, cause)).collect();
        evicted.sort_unstable_by_key(|eviction| eviction.pod);
        evictions.append(&mut evicted);
        let pods = turns.iter().map(|turn| turn.pod).collect();
        let evicted = u32::try_from(victims.len()).unwrap_or(u32::MAX);
        self.claims.made.push(Claim { group: slot, line, class, pods, evicted });
        self.look_at(slot);
        self.touch(line);
        self.bring_up_to_date();
    }

    /// A waiting pod is charged though it is not let go yet.
    fn set_aside(&mut self, group: u32, turn: &Turn) {
        let line = self.groups[group].line;
        let pod = &mut self.pods[turn.pod];
        pod.release = ReleaseState::Claimed;
        pod.planned = NONE;
        pod.charge = Some(Charge { line, shape: turn.shape, node: NONE, takes_capacity: true });
        self.shapes.hold_again(turn.shape);
        let group = &mut self.groups[group];
        group.waiting.remove(turn);
        group.claimed += 1;
    }

    fn evict(&mut self, slot: u32, cause: Cause) -> Eviction {
        let pod = &self.pods[slot];
        let (id, group) = (pod.id(), &self.groups[pod.group]);
        self.claims.evicting.insert(id);
        self.claims.leaving.insert(slot);
        let queue = self.lines.get(group.line).map(|line| line.queue).unwrap_or_default();
        Eviction { pod: id, group: group.id, queue, cause }
    }

    /// Evicts some of what runs in queues that are drained, or below.
    fn drain(&mut self, evictions: &mut Vec<Eviction>) {
        let mut pods: Vec<_> = self
            .groups
            .iter()
            .filter(|(_, group)| group.charged > 0 && !group.config.non_preemptible)
            .filter(|(_, group)| self.is_drained(group.line))
            .flat_map(|(slot, _)| self.pods_of(slot))
            .filter(|&pod| self.may_go(pod))
            .map(|slot| {
                let pod = &self.pods[slot];
                ((pod.priority, Reverse(pod.started), Reverse(pod.id())), slot)
            })
            .collect();
        pods.sort_unstable();
        pods.truncate(DRAINED);
        evictions.extend(pods.into_iter().map(|(_, pod)| self.evict(pod, Cause::Drain)));
    }

    fn is_drained(&self, line: u32) -> bool {
        let Some(line) = self.lines.get(line) else { return false };
        let drains = |node: &Node| self.queues.get(&node.queue).is_some_and(|queue| queue.drain);
        self.tree.path(line.queue).any(drains)
    }

    /// Whether a pod runs for certain and its eviction may be asked for.
    fn may_go(&self, slot: u32) -> bool {
        let pod = &self.pods[slot];
        let is_open = matches!(pod.state, PodState::Released { .. } | PodState::Bound { .. });
        let spared = || self.claims.spared.get(&pod.id()).copied();
        is_open
            && pod.started != Pod::UNKNOWN
            && pod.charge.is_some()
            && !self.claims.leaving.contains(&slot)
            && (self.claims.spared.is_empty() || spared().is_none_or(|until| until <= self.now))
    }

    /// Gives up the claims that are not worth waiting for, and starts those whose room is
    /// there; true when any claim ended.
    pub(super) fn keep_claims(&mut self, decisions: &mut Vec<Decision>) -> bool {
        self.claims.are_new = false;
        let before = self.claims.made.len();
        if before == 0 {
            return false;
        }
        let leaving = self.leaving();
        for at in (0..before).rev() {
            if !self.is_coming(at, &leaving) {
                self.give_up(at);
            }
        }
        let (mut at, mut charged) = (0, self.claimed());
        while at < self.claims.made.len() {
            if self.is_there(at, &charged) {
                self.begin(at, decisions);
                charged = self.claimed();
            } else {
                at += 1;
            }
        }
        self.claims.made.len() < before
    }

    /// Whether, of all that a claim needs, what is leaving makes up for what is not there.
    fn is_coming(&self, at: usize, leaving: &Leaving) -> bool {
        let claim = &self.claims.made[at];
        let free = self.free();
        self.classes.get(claim.class).need.iter().all(|(axis, _)| {
            let comes = axis == GROUPS || free.get(axis) + leaving.load.get(axis) >= 0;
            comes
                && self
                    .tree
                    .up(self.lines[claim.line].node)
                    .all(|(at, node)| node.limit.get(axis) >= leaving.net(at, node, axis))
        })
    }

    /// What is charged for claims.
    pub(super) fn claimed(&self) -> Claimed {
        let mut charged = Claimed::new();
        for claim in &self.claims.made {
            let need = &self.classes.get(claim.class).need;
            charged.entry(ROOT).or_default().add(need);
            for (at, _) in self.tree.up(self.lines[claim.line].node) {
                charged.entry(at).or_default().add(need);
            }
        }
        charged
    }

    /// Whether the need of a claim would fit if no claim were charged.
    fn is_there(&self, at: usize, charged: &Claimed) -> bool {
        let claim = &self.claims.made[at];
        let need = &self.classes.get(claim.class).need;
        let of_claims = |node, axis| charged.get(&node).map_or(0, |charged| charged.get(axis));
        let free = self.free();
        need.iter().all(|(axis, amount)| {
            let used = |at: u32, node: &Node| node.usage.get(axis) - of_claims(at, axis);
            let room = free.get(axis) + of_claims(ROOT, axis)
                - self.tree.withheld_when(self.lines[claim.line].node, axis, &used);
            let is_free = axis == GROUPS || amount <= room;
            is_free
                && self.tree.up(self.lines[claim.line].node).all(|(at, node)| {
                    let used = node.usage.get(axis) - of_claims(at, axis);
                    !node.limit.has(axis) || used + amount <= node.limit.get(axis)
                })
        })
    }

    /// Lets the pods of a claim go.
    fn begin(&mut self, at: usize, decisions: &mut Vec<Decision>) {
        let claim = self.claims.made.remove(at);
        let size = u32::try_from(claim.pods.len()).unwrap_or(u32::MAX);
        let group = &mut self.groups[claim.group];
        let (id, first) = (group.id, group.started == 0);
        group.claimed -= size;
        group.set_out(size);
        self.end_reservation(id);
        for slot in claim.pods {
            let pod = &mut self.pods[slot];
            (pod.release, pod.started) = (ReleaseState::Sent, self.now);
            self.decided += 1;
            let (number, pod, queue) = (self.decided, pod.id(), self.lines[claim.line].queue);
            decisions.push(Decision {
                number,
                pod,
                group: id,
                queue,
                size,
                first,
                node: None,
                domain: None,
            });
        }
        self.classes.release(claim.class);
        self.look_at(claim.group);
        self.bring_up_to_date();
    }

    /// Takes back what a claim is charged; its pods wait again.
    fn give_up(&mut self, at: usize) {
        let claim = self.claims.made.remove(at);
        self.groups[claim.group].claimed = 0;
        for slot in claim.pods {
            self.pods[slot].release = ReleaseState::None;
            self.enqueue(slot);
            self.recharge(slot);
        }
        self.classes.release(claim.class);
        self.claims.at = self.claims.at.min(self.now);
    }

    /// Gives up the claims that an event has to do with.
    pub(super) fn give_up_told(&mut self, event: &Event) {
        if self.claims.made.is_empty() {
            return;
        }
        let group_of = |id: &PodId| Some(self.groups[self.pods[self.slot_of(*id)?].group].id);
        let (mut groups, mut cluster, mut all): ([Option<GroupId>; 2], Option<ClusterId>, bool) =
            Default::default();
        match event {
            Event::QueueChanged(..) | Event::QueueRemoved(_) => all = true,
            Event::GroupChanged(id, _) => groups = [Some(*id), None],
            Event::PodChanged(id, config) => groups = [Some(config.group), group_of(id)],
            Event::PodRemoved(id) | Event::Outcome(id, _) => groups = [group_of(id), None],
            Event::Synced(of) | Event::Paused(of, _) | Event::Resumed(of) => cluster = Some(*of),
            Event::NodeChanged(..)
            | Event::NodeRemoved(_)
            | Event::ForeignChanged(..)
            | Event::UsedBefore(..) => return,
        }
        for at in (0..self.claims.made.len()).rev() {
            let group = &self.groups[self.claims.made[at].group];
            if all || groups.contains(&Some(group.id)) || cluster == Some(group.config.cluster) {
                self.give_up(at);
            }
        }
    }

    /// Why a group whose room is being made waits.
    pub(super) fn claim_of(&self, group: GroupId) -> Option<Reason> {
        let slot = self.group_slots.get(&group)?;
        let claim = self.claims.made.iter().find(|claim| claim.group == slot)?;
        Some(Reason::MakingRoom { evicted: claim.evicted })
    }

    /// An eviction was refused.
    pub(super) fn spare(&mut self, slot: u32, retry_at: Millis) {
        let id = self.pods[slot].id();
        if self.claims.evicting.remove(&id) {
            self.claims.spared.insert(id, retry_at);
            self.mark_leaving(slot, self.pods[slot].charge);
        }
    }

    /// Forgets what was known of a pod that is gone.
    pub(super) fn forget_claims_of(&mut self, id: PodId) {
        self.claims.evicting.remove(&id);
        self.claims.spared.remove(&id);
    }

    /// Takes in whether a pod that is charged so is on its way out.
    pub(super) fn mark_leaving(&mut self, slot: u32, charge: Option<Charge>) {
        let pod = &self.pods[slot];
        let is_deleted = matches!(pod.state, PodState::Bound { terminating: true, .. });
        let leaves = charge.is_some() && (is_deleted || self.is_evicting(pod.id()));
        if leaves {
            self.claims.leaving.insert(slot);
        } else if !self.claims.leaving.is_empty() {
            self.claims.leaving.remove(&slot);
        }
    }

    fn is_evicting(&self, id: PodId) -> bool {
        !self.claims.evicting.is_empty() && self.claims.evicting.contains(&id)
    }

    fn leaving(&self) -> Leaving {
        let mut leaving = Leaving::default();
        for &slot in &self.claims.leaving {
            leaving.count(self, slot, Amounts::add);
        }
        leaving
    }

    fn preemption(&self, queue: QueueId) -> Preemption {
        self.queues.get(&queue).map(|queue| queue.preemption).unwrap_or_default()
    }

    /// How long the work of a queue is let run.
    fn min_runtime(&self, queue: QueueId) -> Millis {
        let said = |node: &Node| self.preemption(node.queue).min_runtime;
        self.tree.path(queue).find_map(said).unwrap_or(MIN_RUNTIME)
    }
}

impl Leaving {
    /// Counts a charged pod in or out.
    fn count(&mut self, engine: &Engine, slot: u32, change: fn(&mut Amounts, &Need)) {
        let Some(paid) = engine.pods[slot].charge else { return };
        let need = engine.shapes.need(paid.shape);
        if paid.takes_capacity {
            change(&mut self.load, need);
        }
        let line = engine.lines.get(paid.line).map_or(NONE, |line| line.node);
        for (at, _) in engine.tree.up(line) {
            change(self.usage.entry(at).or_default(), need);
        }
    }

    /// What a node uses without what is leaving.
    fn net(&self, at: u32, node: &Node, axis: u16) -> i128 {
        node.usage.get(axis) - self.usage.get(&at).map_or(0, |leaving| leaving.get(axis))
    }
}

impl Preemption {
    fn is_never(self) -> bool {
        self.reclaim == Reclaim::Never && self.within_queue == super::model::WithinQueue::Never
    }
}

/// Whether so much more, net, is within bounds.
fn admits(bounds: &Bounds, net: impl Fn(u16) -> i128, need: &Need) -> bool {
    let mut shared = need.iter().filter(|&(axis, _)| axis != GROUPS);
    shared.all(|(axis, amount)| !bounds.has(axis) || net(axis) + amount <= bounds.get(axis))
}

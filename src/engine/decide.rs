//! What may start now, in which order.
//!
//! One choice after another, each from the root down: in the first band of right in which
//! anything fits, the child with the lowest dominant share ÷ weight (weighted, hierarchical
//! DRF), and in a queue's line the first in order. What was chosen counts as started at once.

use super::amounts::Need;
use super::group::Turn;
use super::line::Place;
use super::model::{DomainId, GroupId, NodeId, Placement, PodId, QueueId};
use super::pod::{Charge, ReleaseState};
use super::shapes::ClassId;
use super::slab::NONE;
use super::tree::{BANDS, BANDS_OF_RIGHT, Band, Chosen, Seen};
use super::world::Engine;

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
    /// The node that was found for it, where its queue tells that.
    pub node: Option<NodeId>,
    /// The domain that its group runs in, if it wants one.
    pub domain: Option<DomainId>,
}

/// Take this pod back: something else has a better right to what it uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Eviction {
    /// The pod.
    pub pod: PodId,
    /// Its group.
    pub group: GroupId,
    /// The queue that pays for it.
    pub queue: QueueId,
    /// Why.
    pub cause: Cause,
}

/// Why a pod is taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A group waits for what it uses.
    Claim {
        /// That group.
        by: GroupId,
        /// Its queue.
        queue: QueueId,
    },
    /// Its queue, or one above, is drained.
    Drain,
}

/// What was decided in one round.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decided {
    /// Pods to let go, in order.
    pub started: Vec<Decision>,
    /// Pods to evict.
    pub evicted: Vec<Eviction>,
}

impl Engine {
    /// Decides until nothing more may start or about `budget` pods do.
    ///
    /// What is decided counts as started at once. When the budget ends the
    /// round, [`Engine::tick`] stays true and the next call goes on.
    pub fn decide(&mut self, budget: usize) -> Decided {
        self.rehearsal.clear();
        self.claims.is_rehearsed = false;
        self.wake();
        self.settle();
        let mut decided = Decided::default();
        if self.keep_claims(&mut decided.started) {
            self.settle();
        }
        let mut renewed = true;
        while decided.started.len() + decided.evicted.len() < budget {
            let may_claim = self.may_claim();
            let bands: &[Band] = if may_claim { &BANDS_OF_RIGHT } else { &BANDS };
            let reserved = if renewed { self.next_reserved() } else { None };
            match reserved.or_else(|| self.choose(bands)) {
                Some(chosen) => {
                    renewed = self.has_reserved(chosen.line);
                    self.commit(chosen, &mut decided.started);
                }
                None if may_claim => {
                    self.claim(&mut decided.evicted);
                    renewed = true;
                }
                None => {
                    self.todo.decide = self.claims_are_new();
                    return decided;
                }
            }
        }
        self.todo.decide = true;
        decided
    }

    /// Looks what [`Self::decide`] would let go, and takes it back: for whoever does not
    /// lead. Nothing is charged afterwards. What would start says [`Reason::NextInLine`],
    /// what would wait says why.
    ///
    /// [`Reason::NextInLine`]: super::Reason::NextInLine
    pub fn rehearse(&mut self, budget: usize) {
        let (decided, reserved) = (self.decided, self.reserved.clone());
        let decisions = self.decide_only(budget);
        self.remember(&decisions);
        for decision in &decisions {
            self.take_back(decision.pod);
        }
        (self.decided, self.reserved) = (decided, reserved);
        self.settle();
        self.todo.decide = false;
        self.claims.is_rehearsed = true;
    }

    /// What would be let go if nobody claimed anything.
    fn decide_only(&mut self, budget: usize) -> Vec<Decision> {
        self.rehearsal.clear();
        self.wake();
        self.settle();
        let mut decisions = Vec::new();
        while decisions.len() < budget
            && let Some(chosen) = self.choose(&BANDS)
        {
            self.commit(chosen, &mut decisions);
        }
        decisions
    }

    fn take_back(&mut self, id: PodId) {
        let Some(slot) = self.slot_of(id) else { return };
        self.dequeue(slot);
        let pod = &mut self.pods[slot];
        (pod.release, pod.planned) = (ReleaseState::None, NONE);
        let group = pod.group;
        self.enqueue(slot);
        self.recharge(slot);
        self.arrive(group);
    }

    fn choose(&mut self, bands: &[Band]) -> Option<Chosen> {
        let free = self.free();
        let mut tree = std::mem::take(&mut self.tree);
        let mut fitting = std::mem::take(&mut self.fitting);
        let front = |place: &Place, class: ClassId| self.front(place, class);
        let placed = |class: ClassId| self.plan_class(class).is_ok();
        let mut seen = Seen {
            lines: &self.lines,
            classes: &self.classes,
            free: &free,
            capacity: &self.fleet.capacity,
            fitting: &mut fitting,
            front: &front,
            placed: &placed,
        };
        let chosen = tree.next(bands, &mut seen);
        (self.tree, self.fitting) = (tree, fitting);
        chosen
    }

    fn commit(&mut self, chosen: Chosen, decisions: &mut Vec<Decision>) {
        let Some(slot) = self.group_slots.get(&chosen.place.group) else { return };
        let class = self.classes.get(chosen.class);
        let group = &self.groups[slot];
        let turns = group.offered(&class.kind, |turn| self.is_ready(turn));
        let nodes = self.plan_class(chosen.class).unwrap_or_default().nodes(&turns);
        let tells = self.lines[chosen.line].placement == Placement::Node;
        let topology = group.config.topology;
        let size = u32::try_from(turns.len()).unwrap_or(u32::MAX);
        let (id, first, queue) = (group.id, group.started == 0, self.lines[chosen.line].queue);
        let begins = if group.charged == 0 { group.config.singleton } else { None };
        self.end_reservation(id);
        self.groups[slot].set_out(size);
        self.start_charges(chosen.line, slot, &turns, chosen.class);
        for (turn, node) in turns.iter().zip(nodes) {
            self.let_go(slot, turn, node);
            self.decided += 1;
            let (number, pod) = (self.decided, self.pods[turn.pod].id());
            let domain = node.and_then(|node| self.domain_at(node, topology?));
            let node = node.filter(|_| tells);
            decisions.push(Decision { number, pod, group: id, queue, size, first, node, domain });
        }
        self.hold_key(chosen.line, begins, 1);
        self.look_at(slot);
        self.touch(chosen.line);
        self.bring_up_to_date();
    }

    /// Charges an offer. What waited runs: nobody is entitled to anything else by that.
    pub(super) fn start_charges(&mut self, line: u32, group: u32, turns: &[Turn], class: ClassId) {
        let need = &self.classes.get(class).need;
        let pods = turns.iter().map(|turn| (self.shapes.need(turn.shape), 1));
        let waited = Need::sum(pods);
        self.load.add(&waited);
        let at = &mut self.lines[line];
        at.usage.add(need);
        at.load.add(&waited);
        at.waiting.sub(&waited);
        if at.node != NONE {
            self.tree.start(at.node, need, &waited);
        }
        let count = u32::try_from(turns.len()).unwrap_or(u32::MAX);
        self.groups[group].charged += count;
    }

    /// A waiting pod of a group is decided; its charge is in the books already.
    fn let_go(&mut self, group: u32, turn: &Turn, node: Option<NodeId>) {
        let line = self.groups[group].line;
        let node = node.map_or(NONE, |node| node.0);
        let charge = Charge { line, shape: turn.shape, node, takes_capacity: true };
        let pod = &mut self.pods[turn.pod];
        (pod.release, pod.started, pod.planned) = (ReleaseState::Sent, self.now, node);
        pod.charge = Some(charge);
        let cost = self.shapes.need(turn.shape).clone();
        self.fill(charge, |free| free.sub(&cost));
        self.shapes.hold_again(turn.shape);
        self.groups[group].waiting.remove(turn);
    }
}

//! Why something waits, judged when somebody asks.

use std::collections::{BTreeMap, BTreeSet};

use super::amounts::{Amounts, GROUPS, Need};
use super::decide::Decision;
use super::group::{Group, Turn};
use super::line::Place;
use super::model::{Assignment, GroupId, Order, ResourceId, Vector};
use super::pod::ReleaseState;
use super::reason::{Reason, Shortage};
use super::shapes::{Kind, measure};
use super::tree::{self, Node, Reserved};
use super::world::Engine;

/// What the last rehearsal would have let go, so that whoever asks is told what would be
/// left for the rest.
#[derive(Debug, Default)]
pub(super) struct Rehearsal {
    groups: BTreeSet<GroupId>,
    load: Amounts,
    /// By node of the tree.
    usage: BTreeMap<u32, Amounts>,
}

impl Rehearsal {
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

impl Engine {
    /// Keeps what was decided in a rehearsal and is taken back.
    pub(super) fn remember(&mut self, decisions: &[Decision]) {
        let mut rehearsal = Rehearsal::default();
        let one = Need::one_group();
        for decision in decisions {
            let Some(pod) = self.slot_of(decision.pod).map(|slot| &self.pods[slot]) else {
                continue;
            };
            let need = self.shapes.need(pod.shape);
            let group = &self.groups[pod.group];
            let adds_group = rehearsal.groups.insert(decision.group) && decision.first;
            rehearsal.load.add(need);
            let node = self.lines.get(group.line).map_or(super::slab::NONE, |line| line.node);
            for (at, _) in self.tree.up(node) {
                let usage = rehearsal.usage.entry(at).or_default();
                usage.add(need);
                if adds_group {
                    usage.add(&one);
                }
            }
        }
        self.rehearsal = rehearsal;
    }

    /// Why a group's next pods wait, or those that were decided and not let go yet.
    #[must_use]
    pub fn reason(&self, group: GroupId) -> Option<Reason> {
        self.reason_of(&self.groups[self.group_slots.get(&group)?])
    }

    pub(super) fn reason_of(&self, group: &Group) -> Option<Reason> {
        let paused = || self.paused.get(&group.config.cluster).copied().map(Reason::ReleasesPaused);
        if group.claimed > 0 {
            return self.claim_of(group.id);
        }
        if group.waiting.len() == 0 {
            return paused().filter(|_| group.unseen > 0);
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
        standing.or_else(|| self.parked(group)).or_else(|| self.refusal(group))
    }

    /// Why the first that a group offers is not let go.
    fn refusal(&self, group: &Group) -> Option<Reason> {
        if self.rehearsal.groups.contains(&group.id) {
            return Some(Reason::NextInLine);
        }
        let together = group.together(self.now).ok()?;
        let kinds = group.kinds(together, self.site(group), |turn| self.is_ready(turn));
        let kind = kinds.first()?;
        let cost = self.cost(kind);
        let path: Vec<(u32, &Node)> = match self.lines.get(group.line) {
            Some(line) => self.tree.up(line.node).collect(),
            None => Vec::new(),
        };
        let need = measure(&self.shapes, kind);
        self.larger_than_queue(&path, &need)
            .or_else(|| self.larger_than_any_node(kind))
            .or_else(|| self.behind(group))
            .or_else(|| self.over_limit(&path, &need))
            .or_else(|| self.over_capacity(&cost, path.first().map(|&(at, _)| at)))
            .or_else(|| self.beyond_guarantee(kind, &path, &need))
            .or_else(|| self.room_reserved(group, &path, &need))
            .or_else(|| self.no_node(kind, &need))
            .or(Some(Reason::NextRound))
    }

    /// What all pods of an offer ask.
    fn cost(&self, kind: &Kind) -> Vector {
        let mut cost = Vector::default();
        for (shape, count) in kind.parts.iter() {
            let one = &self.shapes.get(shape).cost;
            cost.add(&one.iter().map(|(r, amount)| (r, amount * i128::from(count))).collect());
        }
        cost
    }

    fn larger_than_queue(&self, path: &[(u32, &Node)], need: &Need) -> Option<Reason> {
        path.iter().find_map(|(_, node)| {
            let most = |axis| Some(node.limit.get(axis)).filter(|_| node.limit.has(axis));
            let shortage = self.shortage(need, |_| 0, most)?;
            Some(Reason::LargerThanQueue(shortage, node.queue))
        })
    }

    fn larger_than_any_node(&self, kind: &Kind) -> Option<Reason> {
        // In an order that does not depend on what was told when, as numbers of costs do.
        let costs: BTreeSet<&Vector> =
            kind.parts.iter().map(|(shape, _)| &self.shapes.get(shape).cost).collect();
        let misses = |cost: &Vector| self.fleet.nearest_miss(cost);
        costs.into_iter().find_map(misses).map(Reason::LargerThanAnyNode)
    }

    fn over_limit(&self, path: &[(u32, &Node)], need: &Need) -> Option<Reason> {
        path.iter().find_map(|(at, node)| {
            let more = self.rehearsal.usage.get(at);
            let used = |axis| node.usage.get(axis) + more.map_or(0, |more| more.get(axis));
            let most = |axis| Some(node.limit.get(axis)).filter(|_| node.limit.has(axis));
            let shortage = self.shortage(need, used, most)?;
            Some(Reason::QueueLimit(shortage, node.queue))
        })
    }

    /// What others keep to themselves counts as used.
    fn over_capacity(&self, cost: &Vector, line: Option<u32>) -> Option<Reason> {
        let held = |resource: ResourceId| match (line, self.axes.of(resource)) {
            (Some(line), Some(axis)) => self.tree.withheld(line, axis),
            _ => 0,
        };
        let of = |amounts: &Amounts, resource: ResourceId| {
            self.axes.of(resource).map_or(0, |axis| amounts.get(axis))
        };
        let short = cost.iter().filter(|&(_, need)| need > 0).find_map(|(resource, need)| {
            let most = of(&self.fleet.capacity, resource);
            let used = of(&self.load, resource) + of(&self.rehearsal.load, resource);
            let used = used + held(resource);
            (used + need > most).then_some(Shortage { resource, need, used, most })
        })?;
        Some(match self.fleet.usable {
            0 => Reason::NoUsableNode(self.fleet.known),
            _ => Reason::Capacity(short),
        })
    }

    /// For whom what is free, or a limit on its path, is reserved.
    fn room_reserved(&self, group: &Group, path: &[(u32, &Node)], need: &Need) -> Option<Reason> {
        let &(line, _) = path.first()?;
        let own = self.has_reservation(group.id);
        let others = self.tree.reserved().iter().take_while(|other| !own || other.line != line);
        let others: Vec<&Reserved> =
            others.filter(|other| self.tree.reaches(other, line)).collect();
        let mut places = path.iter().filter_map(|&(at, node)| {
            let passes = |other: &&Reserved| self.tree.up(other.line).any(|(up, _)| up == at);
            let there: Vec<&Reserved> = others.iter().copied().filter(passes).collect();
            let most = |axis| Some(node.limit.get(axis)).filter(|_| node.limit.has(axis));
            self.beside(&there, need, |axis| node.usage.get(axis), most)
        });
        let used = |axis| self.load.get(axis) + self.tree.withheld(line, axis);
        let most = |axis| Some(self.fleet.capacity.get(axis)).filter(|_| axis != GROUPS);
        places.next().or_else(|| self.beside(&others, need, used, most))
    }

    /// That its queue looks for nodes and there is none for some of its pods.
    fn no_node(&self, kind: &Kind, need: &Need) -> Option<Reason> {
        let unplaced = self.plan(kind, need).err()?;
        Some(Reason::NoNode { placed: unplaced.placed, pods: unplaced.pods })
    }

    /// What is short when what others have reserved counts as used, and the first of them.
    fn beside(
        &self,
        others: &[&Reserved],
        need: &Need,
        used: impl Fn(u16) -> i128,
        most: impl Fn(u16) -> Option<i128>,
    ) -> Option<Reason> {
        let reserved = |axis| others.iter().map(|other| other.need.get(axis)).sum::<i128>();
        let short = self.shortage(need, |axis| used(axis) + reserved(axis), most)?;
        let axis = self.axes.of(short.resource)?;
        let first = others.iter().find(|other| other.need.get(axis) > 0)?;
        Some(Reason::RoomReserved(short, self.tree.node(first.line).queue))
    }

    /// Of work that may not be preempted, which queue on its path has not so much of its own.
    fn beyond_guarantee(&self, kind: &Kind, path: &[(u32, &Node)], need: &Need) -> Option<Reason> {
        if !kind.pinned || kind.completes {
            return None;
        }
        path.iter().filter(|(_, node)| !node.guarantees(need)).find_map(|(_, node)| {
            let own = |axis| if node.given.has(axis) { Some(node.given.get(axis)) } else { None };
            let nothing = |_| Some(0);
            let used = |axis| node.usage.get(axis);
            let shortage = self.shortage(need, used, own);
            let shortage = shortage.or_else(|| self.shortage(need, |_| 0, nothing))?;
            Some(Reason::BeyondGuarantee(shortage, node.queue))
        })
    }

    /// Whether a strict queue waits for a group ahead of this one.
    fn behind(&self, group: &Group) -> Option<Reason> {
        let line = self.lines.get(group.line).filter(|line| line.order == Order::Strict)?;
        let front = |place: &Place, class| self.front(place, class);
        let own = group.place(line.growth)?;
        let first = tree::first_of_all(line, &front)?.first;
        let to_borrow = tree::first_to_borrow(line, &front)?.first;
        let ahead = first < own && to_borrow.fair() < own.fair();
        let goes = self.rehearsal.groups.contains(&first.group);
        (ahead && !goes).then_some(Reason::BehindInStrictQueue(line.queue))
    }

    /// The first that does not fit; a `most` of `None` is no bound.
    fn shortage(
        &self,
        need: &Need,
        used: impl Fn(u16) -> i128,
        most: impl Fn(u16) -> Option<i128>,
    ) -> Option<Shortage> {
        let short = need.iter().filter_map(|(axis, need)| {
            let (used, most) = (used(axis), most(axis)?);
            let resource = self.axes.resource(axis);
            (used + need > most).then_some(Shortage { resource, need, used, most })
        });
        short.min_by_key(|shortage| shortage.resource)
    }

    /// What a group's next pod or gang asks.
    pub(super) fn asks(&self, slot: u32) -> Vector {
        let (group, waiting) = (&self.groups[slot], self.waiting(slot));
        let have = group.have();
        let count = match group.claimed {
            0 if have == 0 => 0,
            0 => group.together(super::Millis::MAX).unwrap_or(have).min(have),
            claimed => claimed,
        };
        let mut cost = Vector::default();
        for turn in waiting.iter().take(usize::try_from(count).unwrap_or(usize::MAX)) {
            cost.add(&self.shapes.get(turn.shape).cost);
        }
        cost
    }

    /// Pods of a group that wait, those first for which room is being made.
    pub(super) fn waiting(&self, slot: u32) -> Vec<Turn> {
        let group = &self.groups[slot];
        let mut claimed = Vec::new();
        if group.claimed > 0 {
            let of = |&pod: &u32| self.pods[pod].release == ReleaseState::Claimed;
            claimed.extend(self.pods_of(slot).filter(of).map(|pod| self.pods[pod].turn(pod)));
            claimed.sort_unstable();
        }
        claimed.extend(group.waiting.iter());
        claimed
    }
}

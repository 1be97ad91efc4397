//! What would be taken for one offer.

use std::cell::OnceCell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::super::amounts::{Amounts, Axis, GROUPS, Need};
use super::super::line::halves;
use super::super::model::{Gang, GroupId, Millis, Reclaim, WithinQueue};
use super::super::share;
use super::super::tree::{Chosen, Node, ROOT};
use super::super::world::Engine;
use super::{Leaving, admits};

/// Groups with charged pods, by line.
pub(super) type Running = BTreeMap<u32, Vec<u32>>;

/// Pods that are taken together or not at all.
#[derive(Clone, Debug)]
struct Prey {
    /// Slots.
    pods: Vec<u32>,
    /// Slot of their group.
    group: u32,
    order: Rank,
}

/// What of a line may be taken, in order: of what is no gang each pod, of each gang what would be
/// taken first. It is worked out when a line is first looked at and kept for one claim.
type Preys = BTreeMap<Rank, Prey>;

/// What is taken first: low priority, what a gang does not need, what runs since shortly.
type Rank = (i32, Worth, Reverse<Millis>, Reverse<[u64; 2]>);

/// What is lost with a prey: the less the earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Worth {
    /// A gang does not need it.
    Surplus,
    /// Work.
    Work,
}

/// The search for what is taken.
pub(super) struct Taking<'a> {
    engine: &'a Engine,
    need: &'a Need,
    group: GroupId,
    line: u32,
    /// Priority of the offer's first pod.
    priority: i32,
    /// Nodes of its path, the line first.
    path: Vec<u32>,
    /// The first of them that does not owe it.
    end: Option<u32>,
    leaving: Leaving,
    running: &'a OnceCell<Running>,
    /// By line.
    preys: BTreeMap<u32, Preys>,
    taken: Vec<Prey>,
    /// How many of what is taken hold a pod.
    held: BTreeMap<u32, u32>,
}

impl<'a> Taking<'a> {
    pub(super) fn new(
        engine: &'a Engine,
        chosen: &Chosen,
        leaving: &Leaving,
        running: &'a OnceCell<Running>,
    ) -> Option<Self> {
        let class = engine.classes.get(chosen.class);
        let node = engine.lines[chosen.line].node;
        let mut taking = Self {
            engine,
            need: &class.need,
            group: chosen.place.group,
            line: chosen.line,
            priority: engine.front(&chosen.place, chosen.class)?.priority.0,
            path: engine.tree.up(node).map(|(at, _)| at).collect(),
            end: None,
            leaving: leaving.clone(),
            running,
            preys: BTreeMap::new(),
            taken: Vec::new(),
            held: BTreeMap::new(),
        };
        taking.end = taking.path.iter().copied().find(|&at| !taking.owes(at, class.kind.pinned));
        Some(taking)
    }

    /// Slots of the pods to evict; none of them when what is leaving is enough.
    pub(super) fn victims(mut self) -> Option<BTreeSet<u32>> {
        let is_unowed = self.end.is_some_and(|end| self.engine.tree.node(end).is_line());
        if is_unowed && self.within() == WithinQueue::Never {
            return None;
        }
        loop {
            let short = self.short();
            if short.is_empty() {
                break;
            }
            let prey = match self.end {
                Some(end) if self.engine.tree.node(end).is_line() => self.first_of(end, &short),
                end => self.prey_below(end.unwrap_or(ROOT), &short),
            };
            self.catch(prey?, &short);
        }
        if self.taken.is_empty() && is_unowed {
            return None;
        }
        self.spare();
        Some(self.held.into_keys().collect())
    }

    fn within(&self) -> WithinQueue {
        self.engine.preemption(self.engine.lines[self.line].queue).within_queue
    }

    fn owes(&self, at: u32, pinned: bool) -> bool {
        let node = self.engine.tree.node(at);
        let net = |axis| self.leaving.net(at, node, axis);
        let is_given = || self.need.iter().any(|(axis, _)| axis != GROUPS && node.given.has(axis));
        let is_guaranteed =
            || admits(&node.given, net, self.need) && (!node.is_line() || is_given());
        let is_right = match self.engine.preemption(self.engine.lines[self.line].queue).reclaim {
            Reclaim::Never => false,
            Reclaim::Entitled if !pinned => true,
            Reclaim::Guaranteed | Reclaim::Entitled => is_guaranteed(),
        };
        let mut shared = self.need.iter().filter(|&(axis, _)| axis != GROUPS);
        is_right
            && admits(&node.limit, net, self.need)
            && shared.all(|(axis, _)| node.entitled().has(axis))
            && admits(node.entitled(), net, self.need)
    }

    /// Of what is missing yet.
    fn short(&self) -> Vec<Axis> {
        let free = self.engine.free();
        let is_short = |&(axis, need): &(Axis, i128)| {
            let is_beyond = |&at: &u32| {
                let node = self.engine.tree.node(at);
                let net = self.leaving.net(at, node, axis);
                node.limit.has(axis) && net + need > node.limit.get(axis)
            };
            let line = self.engine.lines[self.line].node;
            let coming = free.get(axis) + self.leaving.load.get(axis);
            need > coming - self.engine.tree.withheld(line, axis) || self.path.iter().any(is_beyond)
        };
        let shared = self.need.iter().filter(|&(axis, _)| axis != GROUPS);
        shared.filter(is_short).map(|(axis, _)| axis).collect()
    }

    fn prey_below(&mut self, above: u32, short: &[Axis]) -> Option<Prey> {
        let tree = &self.engine.tree;
        let may = |&at: &u32| self.path.contains(&at) || self.is_over(at, short);
        let children = tree.children(above).iter().copied().filter(may);
        let mut children: Vec<_> =
            children.map(|at| (self.net_share(at), tree.node(at).spot(), at)).collect();
        children.sort_unstable_by(|a, b| b.cmp(a));
        children.into_iter().find_map(|(.., at)| {
            if self.engine.tree.node(at).is_line() {
                self.first_of(at, short)
            } else {
                self.prey_below(at, short)
            }
        })
    }

    fn is_over(&self, at: u32, short: &[Axis]) -> bool {
        let node = self.engine.tree.node(at);
        short.iter().any(|&axis| {
            let entitled = node.entitled();
            entitled.has(axis) && self.leaving.net(at, node, axis) > entitled.get(axis)
        })
    }

    fn net_share(&self, at: u32) -> share::Share {
        let node = self.engine.tree.node(at);
        let mut net: Amounts = node.usage.clone();
        if let Some(leaving) = self.leaving.usage.get(&at) {
            net.sub_all(leaving);
        }
        share::dominant(&net, &self.engine.fleet.capacity, node.weight())
    }

    /// What is taken first of a line.
    fn first_of(&mut self, at: u32, short: &[Axis]) -> Option<Prey> {
        let slot = self.engine.tree.node(at).line;
        if slot == self.line && self.within() == WithinQueue::Never {
            return None;
        }
        let mut preys = match self.preys.remove(&slot) {
            Some(preys) => preys,
            None => self.preys_of(slot, short),
        };
        let first = loop {
            let Some(first) = preys.first_entry() else { break None };
            if self.helps(first.get(), short) {
                break Some(first.remove());
            }
            // Less and less is short: what does not help now never will, but for other pods
            // of the same gang.
            let group = first.remove().group;
            if self.is_gang(group) {
                self.put(&mut preys, self.preys(group), short);
            }
        };
        self.preys.insert(slot, preys);
        first
    }

    fn preys_of(&self, slot: u32, short: &[Axis]) -> Preys {
        let running = self.running.get_or_init(|| self.engine.running());
        let mut preys = Preys::new();
        for &group in running.get(&slot).into_iter().flatten() {
            self.put(&mut preys, self.preys(group), short);
        }
        preys
    }

    /// Adds what may be taken of one group and helps.
    fn put(&self, preys: &mut Preys, of_group: Vec<Prey>, short: &[Axis]) {
        let may = |prey: &Prey| self.is_below(prey) && self.helps(prey, short);
        let mut may = of_group.into_iter().filter(may);
        let Some(first) = may.next() else { return };
        if self.is_gang(first.group) {
            let first = may.fold(first, |a, b| if b.order < a.order { b } else { a });
            preys.insert(first.order, first);
        } else {
            preys.extend([first].into_iter().chain(may).map(|prey| (prey.order, prey)));
        }
    }

    fn is_gang(&self, group: u32) -> bool {
        !matches!(self.engine.groups[group].config.gang, Gang::Units | Gang::AtLeast(0 | 1))
    }

    /// Of its own line it takes only what has a lower priority.
    fn is_below(&self, prey: &Prey) -> bool {
        let line = self.engine.groups[prey.group].line;
        line != self.line || prey.order.0 < self.priority
    }

    fn helps(&self, prey: &Prey, short: &[Axis]) -> bool {
        prey.pods.iter().any(|&slot| {
            let mut need = self.engine.shapes.need(self.engine.pods[slot].shape).iter();
            need.any(|(axis, _)| short.contains(&axis))
        })
    }

    /// What of a group may be taken, in any order.
    fn preys(&self, slot: u32) -> Vec<Prey> {
        let group = &self.engine.groups[slot];
        if group.config.non_preemptible || group.id == self.group {
            return Vec::new();
        }
        let least = self.engine.lines.get(group.line).map(|line| line.queue).unwrap_or_default();
        let until = self.engine.now.saturating_sub(self.engine.min_runtime(least));
        let stays = |&slot: &u32| {
            let pod = &self.engine.pods[slot];
            pod.has_started() && pod.charge.is_some() && !self.engine.claims.leaving.contains(&slot)
        };
        let members: Vec<u32> = self.engine.pods_of(slot).filter(stays).collect();
        let may = |&pod: &u32| self.may_take(pod, until);
        let left = members.iter().copied().filter(|pod| !self.held.contains_key(pod));
        let left: Vec<u32> = left.collect();
        let most = match group.config.gang {
            Gang::Units | Gang::AtLeast(0 | 1) => {
                let single = |pod| self.prey(slot, vec![pod], Worth::Work, None);
                return left.into_iter().filter(may).filter_map(single).collect();
            }
            Gang::AtLeast(need) => usize::try_from(need).unwrap_or(usize::MAX),
            Gang::All => usize::MAX,
        };
        let highest = members.iter().map(|&pod| self.engine.pods[pod].priority).max();
        let whole = (!left.is_empty() && members.iter().all(may))
            .then(|| self.prey(slot, members.clone(), Worth::Work, highest))
            .flatten();
        let has_surplus = left.len() > most;
        let surplus = left.into_iter().filter(|_| has_surplus).filter(may);
        let surplus = surplus.filter_map(|pod| self.prey(slot, vec![pod], Worth::Surplus, highest));
        surplus.chain(whole).collect()
    }

    fn prey(
        &self,
        group: u32,
        pods: Vec<u32>,
        worth: Worth,
        priority: Option<i32>,
    ) -> Option<Prey> {
        let pod = |&slot: &u32| &self.engine.pods[slot];
        let newest = |slot: &u32| (pod(slot).started, halves(pod(slot).id()));
        let (since, id) = pods.iter().map(newest).max()?;
        let priority = priority.or_else(|| pods.first().map(|slot| pod(slot).priority))?;
        Some(Prey { order: (priority, worth, Reverse(since), Reverse(id)), group, pods })
    }

    fn may_take(&self, slot: u32, until: Millis) -> bool {
        let pod = &self.engine.pods[slot];
        self.engine.may_go(slot)
            && pod.charge.is_some_and(|charge| charge.takes_capacity)
            && pod.started <= until
    }

    /// Takes it, and has another look at what is left of its gang.
    fn catch(&mut self, prey: Prey, short: &[Axis]) {
        let group = prey.group;
        self.take(prey);
        let line = self.engine.groups[group].line;
        if self.is_gang(group)
            && let Some(mut preys) = self.preys.remove(&line)
        {
            self.put(&mut preys, self.preys(group), short);
            self.preys.insert(line, preys);
        }
    }

    fn take(&mut self, prey: Prey) {
        for &slot in &prey.pods {
            let held = self.held.entry(slot).or_default();
            *held += 1;
            if *held == 1 {
                self.leaving.count(self.engine, slot, Amounts::add);
            }
        }
        self.taken.push(prey);
    }

    fn let_be(&mut self, prey: &Prey) {
        for &slot in &prey.pods {
            let held = self.held.entry(slot).or_default();
            *held -= 1;
            if *held == 0 {
                self.held.remove(&slot);
                self.leaving.count(self.engine, slot, Amounts::sub);
            }
        }
    }

    /// Lets be what is not needed, the last that was taken first.
    fn spare(&mut self) {
        for prey in std::mem::take(&mut self.taken).into_iter().rev() {
            self.let_be(&prey);
            if !self.short().is_empty() {
                self.take(prey);
            }
        }
    }
}

impl Engine {
    fn running(&self) -> Running {
        let mut running = Running::new();
        for (slot, group) in self.groups.iter().filter(|(_, group)| group.charged > 0) {
            running.entry(group.line).or_default().push(slot);
        }
        running
    }
}

impl Node {
    /// Among siblings of the same share the last is taken from first.
    fn spot(&self) -> (bool, super::super::model::QueueId) {
        (!self.is_own(), self.queue)
    }
}

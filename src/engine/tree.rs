//! The queue tree: what is used where, and who is next.
//!
//! Under the root are the queues; each has its own line of work as one more child, of weight
//! one. Of every node is known what is used there and below, which classes of offers are
//! there, and in which order its children take turns. What was found not to fit somewhere is
//! remembered there as closed, until something is given back.

mod bands;
mod build;
mod hold;
mod past;
mod reserved;
mod search;
mod split;

use std::collections::{BTreeMap, BTreeSet};

use super::amounts::{Amounts, Bounds, Least, Need};
use super::entitle::Claim;
use super::event::QueueConfig;
use super::line::Head;
use super::mask::Mask;
use super::model::{Millis, QueueId};
use super::reason::Reason;
use super::shapes::{ClassId, Classes};
use super::share::{self, Share};
use super::slab::NONE;

use past::Later;
use split::{Division, Part};

pub(super) use bands::{BANDS, BANDS_OF_RIGHT, Band};
pub(super) use past::{Histories, Place};
pub(super) use reserved::Reserved;
pub(super) use search::{Chosen, Seen, first_of_all, first_to_borrow};

/// The root's place among the nodes.
pub(super) const ROOT: u32 = 0;

/// Derived from the queues' configuration, built anew when one changes.
#[derive(Debug)]
pub(super) struct Tree {
    nodes: Vec<Node>,
    /// Node of each valid queue.
    by_queue: BTreeMap<QueueId, u32>,
    problems: BTreeMap<QueueId, Reason>,
    /// Some queue does not lend all that it is guaranteed.
    keeps: bool,
    /// In the order in which that was done.
    reserved: Vec<Reserved>,
    /// Nothing more was found in the band, and nothing has come back since.
    exhausted: [bool; BANDS.len()],
    /// What there is for all queues.
    whole: Amounts,
    pub(super) histories: Histories,
    /// Masks of the nodes that a search is in.
    scratch: Vec<Mask>,
    /// Classes that come or go.
    changed: Mask,
}

/// A queue, a queue's own line, or the root. A queue without queues below is its own line.
#[derive(Debug, Default)]
pub(super) struct Node {
    pub(super) queue: QueueId,
    /// Slot of the line, or [`NONE`].
    pub(super) line: u32,
    /// It is the own line of the queue above.
    is_own: bool,
    pub(super) parent: u32,
    weight: u32,
    children: Vec<u32>,
    pub(super) limit: Bounds,
    /// What is its own, where that was said.
    pub(super) given: Bounds,
    /// What it may have when everybody who asks is served in turn.
    entitled: Bounds,
    pub(super) usage: Amounts,
    /// What waits here and below and may start.
    waiting: Amounts,
    /// What it keeps for itself and those below, and what of that those below hold now.
    keep: Amounts,
    held_below: Amounts,
    /// What it and those below would hold if they used nothing.
    kept: Amounts,
    /// What of both is demanded in vain: a limit below this node keeps it out.
    vain: Amounts,
    /// Pods that wait here and below.
    pub(super) pending: u64,
    /// Children with offers, in the order of their turns.
    turns: BTreeSet<(Key, u32)>,
    key: Option<Key>,
    /// How long it takes until what its children used counts half as much.
    half_life: Option<Millis>,
    /// There where that counts.
    later: Option<Box<Later>>,
    /// Classes that have offers here or below.
    have: Mask,
    /// By class: children that have it.
    counts: Vec<u32>,
    /// By band: classes that were found not to fit here or anywhere below.
    closed: [Mask; BANDS.len()],
    /// No more than the least that any offer here or below asks.
    least: Least,
    /// What is known of what its children are entitled to.
    division: Division,
    /// How it was divided, by resource.
    parts: Vec<Part>,
    /// What it claimed itself, in the same order.
    claims: Vec<Claim>,
}

/// Who goes before whom among siblings: smaller first.
type Key = (Share, Head, (bool, QueueId));

impl Default for Tree {
    fn default() -> Self {
        Self {
            nodes: vec![Node { line: NONE, parent: NONE, ..Node::default() }],
            by_queue: BTreeMap::new(),
            problems: BTreeMap::new(),
            keeps: false,
            reserved: Vec::new(),
            exhausted: Default::default(),
            whole: Amounts::default(),
            histories: Histories::default(),
            scratch: Vec::new(),
            changed: Mask::default(),
        }
    }
}

impl Node {
    pub(super) fn entitled(&self) -> &Bounds {
        &self.entitled
    }

    pub(super) fn weight(&self) -> u32 {
        self.weight
    }

    pub(super) fn is_own(&self) -> bool {
        self.is_own
    }
}

impl Tree {
    pub(super) fn node(&self, node: u32) -> &Node {
        &self.nodes[node as usize]
    }

    fn node_mut(&mut self, node: u32) -> &mut Node {
        &mut self.nodes[node as usize]
    }

    /// A node, the one above it, and so on; not the root.
    pub(super) fn up(&self, node: u32) -> impl Iterator<Item = (u32, &Node)> {
        let known = |at: u32| Some(at).filter(|&at| at != ROOT && at != NONE);
        std::iter::successors(known(node), move |&at| known(self.node(at).parent))
            .map(|at| (at, self.node(at)))
    }

    /// The queue itself first, then those above; empty for an unknown or invalid queue.
    pub(super) fn path(&self, queue: QueueId) -> impl Iterator<Item = &Node> {
        let node = self.at(queue).unwrap_or(NONE);
        self.up(node).map(|(_, node)| node)
    }

    /// The node of a valid queue.
    pub(super) fn at(&self, queue: QueueId) -> Option<u32> {
        self.by_queue.get(&queue).copied()
    }

    pub(super) fn of_queue(&self, queue: QueueId) -> Option<&Node> {
        self.at(queue).map(|node| self.node(node))
    }

    /// Why nothing of a queue may start, whatever is free.
    pub(super) fn problem(&self, queue: QueueId) -> Option<Reason> {
        match self.problems.get(&queue) {
            None if !self.by_queue.contains_key(&queue) => Some(Reason::UnknownQueue(queue)),
            problem => problem.copied(),
        }
    }

    /// Takes in that `need` was charged below `node`.
    pub(super) fn charge(&mut self, node: u32, need: &Need) {
        self.climb(node, |node| node.usage.add(need));
        self.remember(node);
    }

    /// Takes in that `need` was given back below `node`: all that was closed on the way to
    /// the root may be open.
    pub(super) fn give_back(&mut self, node: u32, need: &Need) {
        self.climb(node, |node| {
            node.usage.sub(need);
            node.closed.iter_mut().for_each(Mask::clear);
        });
        self.exhausted = Default::default();
        self.open_reserved();
        self.remember(node);
    }

    /// Takes in that so much more waits below `node`, or less.
    pub(super) fn ask(&mut self, node: u32, change: impl Fn(&mut Amounts)) {
        self.climb(node, |node| change(&mut node.waiting));
    }

    /// Takes in that so many more pods wait below `node`, or less.
    pub(super) fn pend(&mut self, node: u32, change: impl Fn(u64) -> u64) {
        let mut at = node;
        while at != NONE {
            let node = self.node_mut(at);
            node.pending = change(node.pending);
            at = node.parent;
        }
    }

    /// What is used or asked below `from` changes what its siblings, and those of the nodes
    /// above, are entitled to.
    fn climb(&mut self, from: u32, change: impl Fn(&mut Node)) {
        self.exhausted[Band::Entitled as usize] = false;
        let (mut at, mut below) = (from, NONE);
        let mut vain = Amounts::default();
        while at != NONE {
            let node = self.node_mut(at);
            let before = node.all_vain();
            change(node);
            node.vain.add_all(&vain);
            vain = node.all_vain();
            vain.sub_all(&before);
            node.undivide(Division::But(below));
            (at, below) = (node.parent, at);
        }
        self.hold_again(from);
    }

    /// Takes in that what waited below `node` was let go: nobody is entitled to anything else.
    pub(super) fn start(&mut self, node: u32, need: &Need, waited: &Need) {
        let mut at = node;
        while at != NONE {
            let node = self.node_mut(at);
            node.usage.add(need);
            node.waiting.sub(waited);
            at = node.parent;
        }
        self.hold_again(node);
        self.remember(node);
    }

    /// Whether anything is offered.
    pub(super) fn has_offers(&self) -> bool {
        !self.node(ROOT).have.is_empty()
    }

    pub(super) fn children(&self, at: u32) -> &[u32] {
        &self.node(at).children
    }

    /// Lines with offers, in the order of their turns.
    pub(super) fn in_turn(&self, at: u32, seen: &mut impl FnMut(u32)) {
        if self.node(at).is_line() {
            seen(self.node(at).line);
        }
        self.node(at).turns.iter().for_each(|&(_, child)| self.in_turn(child, seen));
    }

    /// Nothing is known any more of which band has nothing left.
    pub(super) fn look_again(&mut self) {
        self.exhausted = Default::default();
    }

    /// Takes in which classes a line has offers of, and which of its offers is first.
    pub(super) fn refresh(
        &mut self,
        node: u32,
        open: &Mask,
        head: Option<Head>,
        capacity: &Amounts,
        classes: &Classes,
    ) {
        let mut changed = std::mem::take(&mut self.changed);
        if changed.assign(open, open, &self.node(node).have) {
            for class in changed.iter() {
                self.opened(node, class, &classes.get(class).need);
            }
        }
        let have = &self.node(node).have;
        if changed.assign(have, have, open) {
            changed.iter().for_each(|class| self.left(node, class));
        }
        self.changed = changed;
        self.rank(node, head, capacity);
    }

    fn opened(&mut self, line: u32, class: ClassId, need: &Need) {
        self.exhausted = Default::default();
        let (mut at, mut new) = (line, true);
        while at != NONE {
            let node = self.node_mut(at);
            node.closed.iter_mut().for_each(|closed| closed.unset(class));
            node.least.lower(need);
            let parent = node.parent;
            if new {
                node.have.set(class);
                new = parent != NONE && {
                    let count = self.count(parent, class);
                    *count += 1;
                    *count == 1
                };
            }
            at = parent;
        }
    }

    fn left(&mut self, line: u32, class: ClassId) {
        let mut at = line;
        loop {
            let node = self.node_mut(at);
            node.have.unset(class);
            if node.have.is_empty() {
                node.least.forget();
            }
            at = node.parent;
            if at == NONE {
                return;
            }
            let count = self.count(at, class);
            *count -= 1;
            if *count > 0 {
                return;
            }
        }
    }

    fn count(&mut self, node: u32, class: ClassId) -> &mut u32 {
        let counts = &mut self.node_mut(node).counts;
        let at = class as usize;
        if at >= counts.len() {
            counts.resize(at + 1, 0);
        }
        &mut counts[at]
    }

    /// Puts a node and those above it where they belong among their siblings.
    fn rank(&mut self, line: u32, head: Option<Head>, capacity: &Amounts) {
        let (mut at, mut head) = (line, head);
        loop {
            let node = self.node(at);
            let parent = node.parent;
            if parent == NONE {
                return;
            }
            let key = head.map(|head| {
                let share = share::dominant(&node.usage, capacity, node.weight);
                (share, head, (!node.is_own, node.queue))
            });
            let before = std::mem::replace(&mut self.node_mut(at).key, key);
            let above = self.node_mut(parent);
            if before != key {
                before.map(|before| above.turns.remove(&(before, at)));
                key.map(|key| above.turns.insert((key, at)));
            }
            if above.half_life.is_some() {
                self.rank_by_past(at, key, capacity);
            }
            let above = self.node(parent);
            head = above.turns.first().map(|&((_, head, _), _)| head);
            at = parent;
        }
    }
}

/// What a queue's own line and its queue node are made from.
fn limits(config: &QueueConfig) -> impl Iterator<Item = (super::ResourceId, i128)> + '_ {
    use super::ResourceId;
    let running = [
        (ResourceId::GROUPS, config.max_running.groups),
        (ResourceId::PODS, config.max_running.pods),
    ];
    let running = running.into_iter().filter_map(|(r, most)| Some((r, i128::from(most?))));
    config.limit.iter().chain(running)
}

/// Every resource that a queue speaks of.
pub(super) fn resources(config: &QueueConfig) -> impl Iterator<Item = super::ResourceId> + '_ {
    let own = config.guaranteed.iter().chain(config.lendable.iter());
    limits(config).chain(own).map(|(resource, _)| resource)
}

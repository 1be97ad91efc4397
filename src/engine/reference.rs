//! The rule of decision, in a form to read and in a form to run.
//!
//! This page is the specification. The code below it says the same, as plainly as it can: it
//! keeps what it was told and works everything out anew for each choice. The engine must
//! decide the same from the same events; `sim` compares the two. Amounts are whole numbers,
//! and a resource that something asks none of never keeps it waiting.
//!
//! # What is charged
//!
//! * A pod is charged its cost, to its group's queue, from the decision on until it has
//!   ended or is gone. One on a node whose object is gone costs nothing. Nor does one that is
//!   being deleted on a node that is not ready, nor one that was dropped behind its gate.
//! * A group costs one of `groups` while one of its pods is charged.
//! * The **usage** of a queue is what is charged to it and to all queues below it.
//! * The **capacity** is what usable nodes, ready and not cordoned, have to allocate, less
//!   what is foreign on each. A charge takes from it until its pod is on a node that is not
//!   usable. What the charges leave of it is **free**.
//! * A charge is **stray** when no queue with a path to the root pays for it.
//!
//! # The tree
//!
//! Every queue has, beside the queues below it, one more child: its **own line**, where its
//! own groups wait. The line has weight 1 and no limit; what the queue's own groups are
//! charged is its usage. A queue whose path to the root meets an unknown parent, a cycle or
//! something malformed is not in the tree. One that is held, or is below one that is held, is
//! in the tree and **stopped**.
//!
//! * **limit**: what the queue lists. `maxRunning` is a limit on `pods` and on `groups`.
//! * **given**, by resource: the queue's guarantee; where it lists none, the sum of what the
//!   queues directly below are given. Its line is given what those leave of it.
//! * **held**, by resource that the queue lists as lendable: what of its guarantee it does not
//!   lend, less what it uses; but at least what the queues directly below hold together.
//! * **demand**: of a line, its usage and, unless its queue is stopped, the cost of what waits
//!   there in earnest; of a queue, the sum of its children's, each as far as its limit lets it.
//!   A pod waits in vain that costs more than a limit on its path or than each node has, usable
//!   or not. So do all pods of a gang that has not begun and is not claimed for, while it lacks
//!   members or has not been quiet for long enough, and if those that would start together cost
//!   more than a limit, or one of them more than each node has.
//! * **entitled**: for each resource that there is, the capacity less what is stray is shared
//!   out from the root down. At each place what it is entitled to is split among its children
//!   as water fills vessels of different width: each gets level × weight, but at least its
//!   floor (what it is given, as far as it demands that and its limit lets it) and at most its
//!   cap (what it demands, as far as its limit lets it); both are at least what it would hold if
//!   it used nothing. Where the floors are more than there is, they all shrink by the same
//!   factor; where the caps are less, each gets its cap. A part that is its cap, or all that is
//!   split, stays what it is. Any other is rounded down to a multiple of the largest power of two
//!   that is at most 2^-20 of what there is for all, or to a whole unit, but never from its
//!   floor or above to below it: a trifle that comes or goes does not change what
//!   everybody is entitled to. It is worked out once for a call of `decide`: what is let
//!   go moves from waiting to usage and changes no demand.
//!
//! # Who offers
//!
//! Pods of a group take turns: by priority, then age, then uid. A group has **begun** when a
//! pod of it that is still there was let go, whether that pod has ended or not. A gang of at
//! least so many is **cut** when it has begun and fewer than so many were let go.
//!
//! A group is **on its way** while the gate of a pod that was let go was not seen open yet. What
//! is told of the group meanwhile counts when it no longer is: nobody changes what was decided
//! before it is written down. Until then a gang of all that have arrived is one of at least as
//! many as began.
//!
//! * A gang that has not begun offers as many pods as start together, the first in turn.
//! * Units, groups that have begun, and gangs of one offer one pod of each different cost,
//!   the first in turn; of the first 32 different costs, no more.
//! * Pods that were refused and are to be tried again later are left out.
//! * An offer **needs** the sum of its pods' costs, and one of `groups` when nothing of its
//!   group is charged.
//! * A group is **parked**, and offers nothing, while its queue is not in the tree or stopped,
//!   its cluster is not synced or its releases are paused, it lacks pods that must start
//!   together, it has not been quiet for long enough, or another group of its singleton key
//!   is charged in the same queue.
//! * An offer is **hopeless**, and left out, when it needs more than a limit on its path, or
//!   one of its pods costs more than each node has, usable or not. No node at all is no
//!   judgement.
//!
//! A gang **grows** when it has begun, is not cut and has a pod that is charged.
//!
//! Offers of a queue stand in line: of a cut gang first, then by priority of the first pod
//! that waits, then by age of the oldest, then by uid of the root, then by group; offers of
//! one group by the turn of their first pod. Where the queue says `growth: First`, gangs that grow
//! stand as if they were older by five minutes. For the place every pod that waits counts, also
//! one that is not to be tried again yet. What borrows (see below) has no precedence because
//! it grows: in the last band the line stands as if all queues said `growth: Fair`. Of a strict
//! queue only the first offer in line counts.
//!
//! # One choice
//!
//! An offer **fits** when for each resource it needs, what it needs is free, without what siblings
//! of the places on its path hold, and at each queue on its path usage and need together are within
//! the limit. Those that fit are looked at in
//! four **bands**; the first band that has any is the one to choose from:
//!
//! 1. **Completing**: offers of cut gangs. What they hold already may be of no use without.
//! 2. **Guaranteed**: at each place on the path, from the line up, usage and need are within
//!    what is given, judged by the resources given there; the line is given at least one.
//! 3. **Entitled**: at each place on the path that uses anything, usage and need are within
//!    what it is entitled to. Who uses nothing yet is always within: else a gang larger than
//!    its queue's part would never have its turn.
//! 4. **Borrowing**: whatever fits.
//!
//! Work that is not preemptible never goes by the last two.
//!
//! An offer of a queue that **plans**, because of its placement, fits only when each of its pods has
//! a node as well (see below).
//!
//! What is reserved for others (see below) an offer of the last two bands leaves alone: it fits
//! there when that much more would fit.
//!
//! From the root down, the choice goes to the child with the lowest **share** among those with
//! an offer in the band, and takes the first such offer in line. A share is the largest part
//! that a child's usage is of the capacity, over all resources, divided by its weight, in
//! steps of 2^-60. Among equal shares the older **head** goes first, then the smaller uid of
//! the head's root, then the line before queues, then the smaller queue id. The head of a line
//! is the group of its first offer, whether that fits or not and in whatever band; the head of a
//! queue is that of the child which would go first if every offer fitted.
//!
//! Below a queue with a half-life the choice goes, in the last two bands, to the child with the
//! lowest sum of its share and its **past share** (see below).
//!
//! Its pods are charged at once, in turn, and the next choice is made, until none is left or
//! as many pods were decided as asked for. A gang is never cut by that.
//!
//! # What was used before
//!
//! Below a queue with a half-life each child has a **history**, an amount of each resource. For a
//! half-life H a period of H milliseconds begins at each multiple of H, and each time has a
//! **weight**: 2^40 where a period begins, twice that where it ends. In the middle between two
//! times it is the root of the product of theirs, rounded down; after eight such steps it grows
//! evenly from one time to the next, rounded down. While so much is used from one time to another
//! of the same period, that is added to the history, times the difference of the weights. Where
//! a period ends the history is halved, rounded down. What is less than nothing counts as nothing,
//! what is more than 2^85 as 2^85, and a resource counts from when a node has it or a queue
//! speaks of it.
//!
//! The **past share** is the largest part, over all resources, that the history, divided by
//! the weight at the time of the decision, is of the capacity; divided by the child's weight, each
//! rounded down, in steps of 2^-60. A history begins with nothing when its queue is given another
//! half-life, and when the child comes below another queue. Somebody may remember what was used
//! on average until a time, no later than now, in millionths: then the history at that time is so
//! much times its weight, rounded down, and from then until now as much was used as is used now.
//!
//! # What is taken back
//!
//! A pod is **leaving** while it is charged and being deleted, or its eviction was decided and
//! not refused. **Net** usage is usage less what is leaving; **coming** is what is free and
//! the load of what is leaving. Pods are not counted in `groups` here.
//!
//! What others hold is not coming either. Once a second, when nothing is left in the first three bands and before anything is lent,
//! the first offer of each line may **claim**: line by line, from the root down in the order of
//! shares, 32 of them at one look and 1,000 at a time. One that fits has no need to; one that a limit on `groups` refuses may not, nor one
//! of which a pod never preempts. A
//! place on its path **owes** it when net usage and need are within the limit and within what
//! the place is entitled to, which is nothing of what there is none of; where its queue reclaims only what is guaranteed, or the work is
//! not preemptible, also within what is given, as in the second band. No place owes anything
//! to a queue that reclaims nothing. From the line up, the first place that does not owe is
//! where the claim ends: pods of that place and below may be taken, those of the whole tree if
//! every place owes.
//!
//! The claim is **short** of a resource by what its need is more than what is coming, or by
//! what net usage and need are more than a limit on its path. While it is short of any, a
//! **prey** that has some of that is taken, or the claim is not made. The way to it leads down
//! to the child with the greatest share by net usage, among equal ones to the last, that has
//! one and is on the claim's own path or **over**: of a resource that is short it uses, net,
//! more than it is entitled to. At the end, from the last prey taken to the first, each is
//! spared that the claim is not short without.
//!
//! * Nothing of the claim's own group is prey.
//! * Of the claim's own line only what has a lower priority is prey, and only if the queue
//!   takes within itself.
//! * A pod may be taken if it takes from the capacity, was let go by us, for certain, and is not
//!   leaving, has run since for as long as its queue lets it (as the next queue above says that
//!   says anything, else ten minutes), its work is preemptible, and no eviction of it was refused
//!   that is not to be tried again yet.
//! * A gang is of more than one, or of all that have arrived. Its members are the pods that
//!   were let go, are charged and are not leaving. Of a gang that has more members than must
//!   start together any one is prey. So are all of any gang, as one, with those that are taken
//!   for the same claim already, if each may be taken. Of what is no gang each pod is prey.
//! * The prey of lowest priority is taken first, in a gang that of its highest; then what a
//!   gang does not need; then what has run for the shortest time, then the greater uid, both
//!   of its newest pod.
//!
//! When nobody claims any more at that look, of what may be taken in queues that are **drained**,
//! or below one, 64 pods are evicted: lowest priority first, then what runs for the shortest time,
//! then the greater uid. It may be taken however short it has run, and from whatever node.
//!
//! An offer whose claim is short of nothing is charged from then on, as if it had been let go:
//! the room it waits for is nobody else's. Its group offers nothing else. A claim whose line
//! does not owe it and that takes nothing is not made. Before the first choice of each call,
//! from the last to the first, claims are given up of a resource of which less than nothing
//! is coming, or more is used, net, than a limit on their path lets; then, from the first to
//! the last, those start whose need fits as if no claim were charged. A claim is also given up
//! when anything is told of its group or a pod of it, of any queue, or of its cluster. When one
//! was given up the next call may claim at once.

//!
//! # What is reserved
//!
//! An offer that waits for long has what becomes free **reserved**, else smaller work would take
//! every bit of it. At the same look, when nobody claims any more, a reservation may be made
//! for the first offer of each line: line by line in the order of shares, for 8 groups at a
//! time. The oldest pod of the group has waited for five minutes, the offer would fit if nothing
//! ran but what is stray, with a plan on nodes of which nothing is charged, and it **is due**: it is of a cut gang, or within what is given as in
//! the second band, or preemptible and with its need its line is within what it is entitled to,
//! also where it uses nothing yet. In the last case the reservation **reaches** as far as the
//! first place from there up of which that is not so; else it reaches everybody.
//!
//! As long as an offer of that group is the first of its line, what it needs is reserved of what
//! is free and of the limit of each queue on its path: every other offer of the last two bands
//! whose path the reservation reaches leaves that alone, and so do those whose own was made
//! later. Before each choice, the first of those that fit beside what is reserved for those
//! before it is let go, if it is preemptible or due. A reservation ends when anything of the
//! group is let go. At each look, before others are made, those end whose group is not the first
//! of its line or whose offer is not due any more, and it is seen how far the others reach.

//!
//! # On which nodes
//!
//! On a **node** what it has to allocate, less what is foreign, is free but for the charges of pods
//! that are on it, and of those that were planned on it and have no node yet. The usable nodes of
//! a group's cluster are filled in this order: first those with fewer kinds of resources, then
//! those with less to allocate (compared resource by resource), then by id. Of an offer those
//! pods are planned first whose cost is the largest part of the capacity, of any resource, then
//! those of the greater cost, then by turn; each on the first node that has all of its cost free.
//!
//! Where the group wants a topology all nodes are of one **domain** of it. That is the smallest of
//! those that its charged pods are in, if there is any. Else all are tried, beginning with the
//! one that has least free, all its nodes together but no less than nothing on each, of the
//! resource of which the offer needs the largest part of the capacity (the last such in the order
//! of resources), then by id.
//!
//! Nothing is evicted for offers that are planned, and no victims are chosen by node.

use std::collections::{BTreeMap, BTreeSet};

use super::event::{GroupConfig, NodeConfig, PodConfig, QueueConfig};
use super::model::{ClusterId, GroupId, Millis, NodeId, PodId, QueueId, ResourceId, Vector};
use super::{Cause, Decided, Decision, Eviction};

mod books;
mod claims;
mod entitled;
mod history;
mod offers;
mod planned;
mod reserved;
mod round;
mod told;
mod water;

#[cfg(test)]
mod tests;

use claims::Claim;
use history::{Remembered, Used};
use offers::Offer;
use reserved::Reach;
use round::{Band, Round};

/// What was told, and what was decided on it.
#[derive(Clone, Debug, Default)]
pub(super) struct Reference {
    pub(super) now: Millis,
    pub(super) queues: BTreeMap<QueueId, QueueConfig>,
    pub(super) nodes: BTreeMap<NodeId, NodeConfig>,
    /// Nodes whose object is gone, while a pod is said to be on them.
    pub(super) gone: BTreeSet<NodeId>,
    pub(super) foreign: BTreeMap<NodeId, Vector>,
    pub(super) groups: BTreeMap<GroupId, Group>,
    pub(super) pods: BTreeMap<PodId, Pod>,
    pub(super) synced: BTreeSet<ClusterId>,
    pub(super) paused: BTreeSet<ClusterId>,
    /// In the order in which they were made.
    pub(super) claims: Vec<Offer>,
    /// When the next may be made.
    claims_at: Millis,
    /// Made at this look.
    claims_now: usize,
    /// Pods whose eviction was decided.
    pub(super) evicting: BTreeSet<PodId>,
    /// Pods that could not be evicted, and until when that is not tried again.
    pub(super) spared: BTreeMap<PodId, Millis>,
    /// Groups that have a reservation and how far it reaches, in the order in which they were made.
    pub(super) reserved: Vec<(GroupId, Reach)>,
    /// While any queue has a half-life.
    used: Vec<Used>,
    remembered: BTreeMap<Spot, Remembered>,
    /// When a history began, if not with the first that was used.
    begun: BTreeMap<Spot, Millis>,
    /// Resources that a node has had or a queue has spoken of.
    known: BTreeSet<ResourceId>,
    decided: u64,
}

/// Least time between two looks at who may claim.
const CLAIM_EVERY: Millis = 1_000;

/// Claims that there may be at a time, and that are made at one look.
const CLAIMS: usize = 1_000;
const CLAIMS_A_LOOK: usize = 32;

/// Pods of drained queues that are evicted at a time.
const DRAINED: usize = 64;

#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) config: GroupConfig,
    /// What was told since, and counts when it is no longer on its way.
    pub(super) told: Option<GroupConfig>,
    /// When a pod of it was last seen for the first time.
    pub(super) arrived: Millis,
}

#[derive(Clone, Debug)]
pub(super) struct Pod {
    pub(super) config: PodConfig,
    pub(super) release: Release,
    pub(super) retry_at: Option<Millis>,
    /// When it was let go, if that is known.
    pub(super) started: Option<Millis>,
    /// The node that was found for it.
    pub(super) planned: Option<NodeId>,
}

/// How far our release of a pod has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Release {
    None,
    /// Room is being made for it.
    Claimed,
    Sent,
    Done,
    Gone,
}

/// A place in the tree, in the order of the last tie-break between siblings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Spot {
    /// The own line of a queue.
    Line(QueueId),
    /// A queue with all below it.
    Queue(QueueId),
}

/// Amounts by place; absent means nothing.
pub(super) type Amounts = BTreeMap<Spot, Vector>;

impl Reference {
    /// Decides until nothing more may start or at least `budget` pods do.
    pub(super) fn decide(&mut self, budget: usize) -> Decided {
        let entitled = self.entitled();
        let past = self.past_shares(&self.books());
        let mut decided = Decided::default();
        self.keep_claims(&mut decided.started);
        while decided.started.len() + decided.evicted.len() < budget {
            let round = Round::new(self, &entitled, &past);
            let plan = |offer: &Offer| round.plan(offer).unwrap_or_default();
            if let Some(offer) =
                round.reserved_that_fits().or_else(|| round.choose(&Band::OF_RIGHT))
            {
                let plan = plan(&offer);
                self.commit(&offer, &plan, &mut decided.started);
                continue;
            }
            if self.claims_at <= self.now {
                if let Some(claim) = round.claim() {
                    self.claims_now += 1;
                    self.make(claim, &mut decided.evicted);
                    continue;
                }
                let reserved = round.reservations();
                (self.reserved, self.claims_now) = (reserved, 0);
                self.drain(&mut decided.evicted);
                self.claims_at = self.now.saturating_add(CLAIM_EVERY);
                continue;
            }
            let Some(offer) = round.choose(&[Band::Borrowing]) else { break };
            let plan = plan(&offer);
            self.commit(&offer, &plan, &mut decided.started);
        }
        decided
    }

    fn commit(
        &mut self,
        offer: &Offer,
        plan: &BTreeMap<PodId, NodeId>,
        decisions: &mut Vec<Decision>,
    ) {
        let size = u32::try_from(offer.pods.len()).unwrap();
        let first = !self.has_begun(offer.group);
        self.set_out(offer.group, size);
        self.reserved.retain(|&(group, _)| group != offer.group);
        for &id in &offer.pods {
            let pod = self.pods.get_mut(&id).unwrap();
            (pod.release, pod.retry_at) = (Release::Sent, None);
            pod.started = Some(self.now);
            pod.planned = plan.get(&id).copied();
            let (node, domain) = self.told_of_place(id);
            self.decided += 1;
            let (number, group, queue) = (self.decided, offer.group, offer.queue);
            decisions.push(Decision { number, pod: id, group, queue, size, first, node, domain });
        }
    }

    fn make(&mut self, claim: Claim, evictions: &mut Vec<Eviction>) {
        let Claim { offer, victims } = claim;
        for &id in &offer.pods {
            self.pods.get_mut(&id).unwrap().release = Release::Claimed;
        }
        for pod in victims {
            self.evicting.insert(pod);
            let group = self.pods[&pod].config.group;
            let queue = self.payer(group).unwrap();
            let cause = Cause::Claim { by: offer.group, queue: offer.queue };
            evictions.push(Eviction { pod, group, queue, cause });
        }
        self.claims.push(offer);
    }
}

//! The rule of decision, in a form to read and in a form to run.
//!
//! This page is the specification. The code below it says the same, as plainly as it can: it
//! keeps what it was told and works everything out anew for each choice. The engine must
//! decide the same from the same events; `sim` compares the two. Amounts are whole numbers,
//! and a resource that something asks none of never keeps it waiting. Nothing that runs is
//! taken back.
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
//! * **demand**: usage, and the cost of all that waits in the queue and below it in queues
//!   that are not stopped.
//! * **entitled**: for each resource that there is, the capacity less what is stray is shared
//!   out from the root down. At each place what it is entitled to is split among its children
//!   as water fills vessels of different width: each gets level × weight, but at least its
//!   floor (what it is given, as far as it demands that and its limit lets it) and at most its
//!   cap (what it demands, as far as its limit lets it). Where the floors are more than there
//!   is, they all shrink by the same factor; where the caps are less, each gets its cap. Each
//!   part is rounded down to a multiple of the largest power of two that is at most 2^-20 of
//!   what there is for all, or to a whole unit: a trifle that comes or goes does not change
//!   what everybody is entitled to. It is worked out once for a call of `decide`: what is let
//!   go moves from waiting to usage and changes no demand.
//!
//! # Who offers
//!
//! Pods of a group take turns: by priority, then age, then uid. A group has **begun** when a
//! pod of it that is still there was let go, whether that pod has ended or not. A gang of at
//! least so many is **cut** when it has begun and fewer than so many were let go.
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
//! Offers of a queue stand in line: of a cut gang first, then by priority of the first pod
//! that waits, then by age of the oldest, then by uid of the root, then by group; offers of
//! one group by the turn of their first pod. For the place every pod that waits counts, also
//! one that is not to be tried again yet. Of a strict queue only the first offer in line
//! counts.
//!
//! # One choice
//!
//! An offer **fits** when for each resource it needs, what it needs is free, and at each queue
//! on its path usage and need together are within the limit. Those that fit are looked at in
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
//! From the root down, the choice goes to the child with the lowest **share** among those with
//! an offer in the band, and takes the first such offer in line. A share is the largest part
//! that a child's usage is of the capacity, over all resources, divided by its weight, in
//! steps of 2^-60. Among equal shares the older **head** goes first, then the smaller uid of
//! the head's root, then the line before queues, then the smaller queue id. The head of a line
//! is the group of its first offer, whether that fits or not; the head of a queue is that of
//! the child which would go first if every offer fitted.
//!
//! Its pods are charged at once, in turn, and the next choice is made, until none is left or
//! as many pods were decided as asked for. A gang is never cut by that.

use std::collections::{BTreeMap, BTreeSet};

use super::event::{GroupConfig, NodeConfig, PodConfig, QueueConfig};
use super::model::{ClusterId, GroupId, Millis, NodeId, PodId, QueueId, Vector};
use super::{Decided, Decision};

mod books;
mod entitled;
mod offers;
mod round;
mod told;
mod water;

#[cfg(test)]
mod tests;

use offers::Offer;
use round::Round;

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
    decided: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) config: GroupConfig,
    /// When a pod of it was last seen for the first time.
    pub(super) arrived: Millis,
}

#[derive(Clone, Debug)]
pub(super) struct Pod {
    pub(super) config: PodConfig,
    pub(super) release: Release,
    pub(super) retry_at: Option<Millis>,
}

/// How far our release of a pod has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Release {
    None,
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
        let mut decided = Decided::default();
        while decided.started.len() < budget {
            let Some(offer) = Round::new(self, &entitled).choose() else { break };
            self.commit(&offer, &mut decided.started);
        }
        decided
    }

    fn commit(&mut self, offer: &Offer, decisions: &mut Vec<Decision>) {
        let size = u32::try_from(offer.pods.len()).unwrap();
        let first = !self.has_begun(offer.group);
        for &id in &offer.pods {
            let pod = self.pods.get_mut(&id).unwrap();
            (pod.release, pod.retry_at) = (Release::Sent, None);
            self.decided += 1;
            let (number, group, queue) = (self.decided, offer.group, offer.queue);
            decisions.push(Decision { number, pod: id, group, queue, size, first });
        }
    }
}

//! What is taken back, for whom.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::super::event::Event;
use super::super::model::{
    Gang, GroupId, Millis, PodId, PodState, QueueId, Reclaim, ResourceId, Uid, Vector, WithinQueue,
};
use super::super::{Cause, Decision, Eviction};
use super::books::Books;
use super::offers::Offer;
use super::round::Round;
use super::{CLAIMS, CLAIMS_A_LOOK, DRAINED, Pod, Reference, Release, Spot};

/// How long work is let run where no queue says.
const MIN_RUNTIME: Millis = 600_000;

/// An offer for which room is made by evictions.
#[derive(Debug)]
pub(super) struct Claim {
    pub(super) offer: Offer,
    pub(super) victims: BTreeSet<PodId>,
}

/// Pods that are taken together or not at all.
#[derive(Debug)]
struct Prey {
    pods: Vec<PodId>,
    order: (i32, Worth, Reverse<Option<Millis>>, Reverse<Uid>),
}

/// What is lost with a prey: the less the earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Worth {
    /// A gang does not need it.
    Surplus,
    Work,
}

impl Round<'_> {
    /// The claim that is made next.
    pub(super) fn claim(&self) -> Option<Claim> {
        let may = self.of.claims.len() < CLAIMS && self.of.claims_now < CLAIMS_A_LOOK;
        if may { self.claim_below(None) } else { None }
    }

    fn claim_below(&self, above: Option<QueueId>) -> Option<Claim> {
        let mut children = self.of.children(above);
        children.retain(|&child| self.head(child).is_some());
        children.sort_by_key(|&child| self.precedence(child));
        children.into_iter().find_map(|child| match child {
            Spot::Queue(queue) => self.claim_below(Some(queue)),
            Spot::Line(queue) => {
                let offer = self.lines[&queue].first()?;
                let victims = Taking::new(self, offer).victims()?;
                Some(Claim { offer: offer.clone(), victims })
            }
        })
    }
}

/// What would be taken for one offer.
struct Taking<'a> {
    round: &'a Round<'a>,
    of: &'a Reference,
    offer: &'a Offer,
    path: Vec<Spot>,
    books: Books,
    taken: Vec<Prey>,
}

impl<'a> Taking<'a> {
    fn new(round: &'a Round, offer: &'a Offer) -> Self {
        let (path, books) = (round.path(offer), round.books.clone());
        Self { round, of: round.of, offer, path, books, taken: Vec::new() }
    }

    fn victims(mut self) -> Option<BTreeSet<PodId>> {
        let polite = |id: &PodId| self.of.pods[id].config.never_preempts;
        if self.of.plans(self.offer.queue)
            || self.round.fits(self.offer)
            || !self.may_run_one_more()
            || self.offer.pods.iter().any(polite)
        {
            return None;
        }
        let end = self.path.iter().copied().find(|&spot| !self.owes(spot));
        while !self.short().is_empty() {
            let prey = match end {
                Some(Spot::Line(queue)) => self.first_of(queue),
                Some(Spot::Queue(queue)) => self.prey_below(Some(queue)),
                None => self.prey_below(None),
            };
            self.taken.push(prey?);
            self.count();
        }
        if self.taken.is_empty() && end == Some(self.path[0]) {
            return None;
        }
        self.spare();
        Some(self.pods_taken())
    }

    fn may_run_one_more(&self) -> bool {
        let groups = ResourceId::GROUPS;
        let need = self.offer.need.get(groups);
        self.path.iter().all(|&spot| {
            let most = self.of.limit(spot).mentioned(groups);
            need == 0 || most.is_none_or(|most| self.books.used(spot, groups) + need <= most)
        })
    }

    /// The resources that can be taken.
    fn needs(&self) -> impl Iterator<Item = (ResourceId, i128)> + '_ {
        self.offer.needs().filter(|&(resource, _)| resource != ResourceId::GROUPS)
    }

    fn owes(&self, spot: Spot) -> bool {
        let within = |most: &Vector| {
            self.needs().all(|(resource, need)| {
                let net = self.books.net(spot, resource);
                most.mentioned(resource).is_none_or(|most| net + need <= most)
            })
        };
        let given = self.of.given(spot);
        let is_given = || self.needs().any(|(resource, _)| given.mentioned(resource).is_some());
        let is_guaranteed = within(&given) && (!matches!(spot, Spot::Line(_)) || is_given());
        let is_right = match self.of.queues[&self.offer.queue].preemption.reclaim {
            Reclaim::Never => false,
            Reclaim::Guaranteed => is_guaranteed,
            Reclaim::Entitled => self.offer.preemptible || is_guaranteed,
        };
        let entitled = self.round.entitled.get(&spot).cloned().unwrap_or_default();
        let is_there = self.needs().all(|(resource, _)| entitled.mentioned(resource).is_some());
        is_right && within(&self.of.limit(spot)) && is_there && within(&entitled)
    }

    /// What is missing yet.
    fn short(&self) -> BTreeSet<ResourceId> {
        let is_short = |&(resource, need): &(ResourceId, i128)| {
            let beyond = |&spot: &Spot| {
                let most = self.of.limit(spot).mentioned(resource);
                most.is_some_and(|most| self.books.net(spot, resource) + need > most)
            };
            let used = |spot| self.books.used(spot, resource);
            let withheld = self.of.withheld(self.offer.queue, resource, &used);
            need > self.books.coming(resource) - withheld || self.path.iter().any(beyond)
        };
        self.needs().filter(is_short).map(|(resource, _)| resource).collect()
    }

    fn prey_below(&self, above: Option<QueueId>) -> Option<Prey> {
        let mut children = self.of.children(above);
        let share = |spot| self.round.share_of(spot, |resource| self.books.net(spot, resource));
        children.sort_by_key(|&child| Reverse((share(child), child)));
        children.retain(|child| self.path.contains(child) || self.is_over(*child));
        children.into_iter().find_map(|child| match child {
            Spot::Line(queue) => self.first_of(queue),
            Spot::Queue(queue) => self.prey_below(Some(queue)),
        })
    }

    fn is_over(&self, spot: Spot) -> bool {
        let Some(entitled) = self.round.entitled.get(&spot) else { return false };
        self.short().into_iter().any(|resource| {
            entitled.mentioned(resource).is_some_and(|most| self.books.net(spot, resource) > most)
        })
    }

    /// What is taken first of a queue's own groups.
    fn first_of(&self, queue: QueueId) -> Option<Prey> {
        let short = self.short();
        let helps = |prey: &Prey| {
            let costs = prey.pods.iter().map(|pod| &self.of.pods[pod].config.cost);
            costs.into_iter().any(|cost| short.iter().any(|&resource| cost.get(resource) > 0))
        };
        let own = queue == self.offer.queue;
        let within = self.of.queues[&queue].preemption.within_queue;
        let is_below = |prey: &Prey| {
            !own || (within == WithinQueue::LowerPriority && prey.order.0 < self.offer.priority())
        };
        let groups = self.of.groups.keys().filter(|&&group| self.of.payer(group) == Some(queue));
        let preys = groups.flat_map(|&group| self.preys(group));
        preys.filter(|prey| helps(prey) && is_below(prey)).min_by_key(|prey| prey.order)
    }

    fn preys(&self, group: GroupId) -> Vec<Prey> {
        let config = &self.of.groups[&group].config;
        if config.non_preemptible || group == self.offer.group {
            return Vec::new();
        }
        let charged = |(_, pod): &(&PodId, &Pod)| {
            pod.config.group == group && pod.has_started() && self.of.is_charged(pod)
        };
        let stays = |(id, _): &(&PodId, &Pod)| !self.of.is_leaving(id);
        let members: Vec<PodId> =
            self.of.pods.iter().filter(charged).filter(stays).map(|(&id, _)| id).collect();
        let taken = self.pods_taken();
        let left: Vec<PodId> = members.iter().copied().filter(|id| !taken.contains(id)).collect();
        let may = |id: &PodId| self.may_take(*id);
        let each = |worth| left.iter().filter(|id| may(id)).map(move |&id| (vec![id], worth));
        let mut preys: Vec<(Vec<PodId>, bool)> = Vec::new();
        let is_gang = match config.gang {
            Gang::Units | Gang::AtLeast(0 | 1) => false,
            Gang::AtLeast(need) => {
                if left.len() > usize::try_from(need).unwrap() {
                    preys.extend(each(true));
                }
                true
            }
            Gang::All => true,
        };
        if !is_gang {
            preys.extend(each(false));
        } else if !left.is_empty() && members.iter().all(may) {
            preys.push((members.clone(), false));
        }
        let highest = members.iter().map(|id| self.of.pods[id].config.priority).max();
        let prey = |(pods, surplus): (Vec<PodId>, bool)| {
            let own = self.of.pods[&pods[0]].config.priority;
            let priority = if is_gang { highest.unwrap() } else { own };
            let newest = pods.iter().map(|id| (self.of.pods[id].started, *id)).max().unwrap();
            let worth = if surplus { Worth::Surplus } else { Worth::Work };
            Prey { order: (priority, worth, Reverse(newest.0), Reverse(newest.1)), pods }
        };
        preys.into_iter().map(prey).collect()
    }

    fn may_take(&self, id: PodId) -> bool {
        let pod = &self.of.pods[&id];
        let least = self.of.min_runtime(pod.config.group);
        self.of.may_go(id)
            && self.of.takes_capacity(pod)
            && pod.started.is_some_and(|at| at.saturating_add(least) <= self.of.now)
    }

    fn spare(&mut self) {
        for at in (0..self.taken.len()).rev() {
            let prey = self.taken.remove(at);
            self.count();
            if !self.short().is_empty() {
                self.taken.insert(at, prey);
                self.count();
            }
        }
    }

    fn pods_taken(&self) -> BTreeSet<PodId> {
        self.taken.iter().flat_map(|prey| prey.pods.iter().copied()).collect()
    }

    /// Counts what is taken as leaving.
    fn count(&mut self) {
        self.books = self.round.books.clone();
        for id in self.pods_taken() {
            let config = &self.of.pods[&id].config;
            self.books.leave(self.of.payers(config.group), &config.cost);
        }
    }
}

impl Reference {
    /// Whether a pod was let go by us for certain and its eviction may be asked for.
    fn may_go(&self, id: PodId) -> bool {
        let Pod { config, started, .. } = &self.pods[&id];
        started.is_some()
            && matches!(config.state, PodState::Released { .. } | PodState::Bound { .. })
            && self.is_charged(&self.pods[&id])
            && !self.is_leaving(&id)
            && self.spared.get(&id).is_none_or(|&until| until <= self.now)
    }

    /// Evicts some of what runs in queues that are drained, or below.
    pub(super) fn drain(&mut self, evictions: &mut Vec<Eviction>) {
        let may = |(id, pod): &(&PodId, &Pod)| {
            let group = pod.config.group;
            let path = self.payer(group).and_then(|queue| self.path(queue)).unwrap_or_default();
            path.iter().any(|queue| self.queues[queue].drain)
                && !self.groups[&group].config.non_preemptible
                && self.may_go(**id)
        };
        let order =
            |(&id, pod): (&PodId, &Pod)| (pod.config.priority, Reverse(pod.started), Reverse(id));
        let mut pods: Vec<_> = self.pods.iter().filter(may).map(order).collect();
        pods.sort_unstable();
        pods.truncate(DRAINED);
        for (.., Reverse(pod)) in pods {
            self.evicting.insert(pod);
            let group = self.pods[&pod].config.group;
            let queue = self.payer(group).unwrap();
            evictions.push(Eviction { pod, group, queue, cause: Cause::Drain });
        }
    }

    /// Gives up the claims that are not worth waiting for, and starts those whose room is there.
    pub(super) fn keep_claims(&mut self, decisions: &mut Vec<Decision>) {
        for at in (0..self.claims.len()).rev() {
            if !self.is_coming(&self.claims[at]) {
                self.give_up(at);
            }
        }
        let mut at = 0;
        while let Some(claim) = self.claims.get(at).cloned() {
            if self.is_there(&claim) {
                self.claims.remove(at);
                self.commit(&claim, &BTreeMap::new(), decisions);
            } else {
                at += 1;
            }
        }
    }

    fn is_coming(&self, claim: &Offer) -> bool {
        let books = self.books();
        let most = |spot, resource| self.limit(spot).mentioned(resource);
        claim.needs().all(|(resource, _)| {
            let within = |&spot: &Spot| {
                most(spot, resource).is_none_or(|most| books.net(spot, resource) <= most)
            };
            (resource == ResourceId::GROUPS || books.coming(resource) >= 0)
                && self.spots(claim.queue).iter().all(within)
        })
    }

    /// Whether its need would fit if no claim were charged.
    fn is_there(&self, claim: &Offer) -> bool {
        Round::new(&self.without_claims(), &super::Amounts::new(), &BTreeMap::new()).fits(claim)
    }

    /// As if nobody claimed anything.
    pub(in super::super) fn without_claims(&self) -> Self {
        let mut without = self.clone();
        while !without.claims.is_empty() {
            without.give_up(0);
        }
        without
    }

    fn give_up(&mut self, at: usize) {
        for id in self.claims.remove(at).pods {
            if let Some(pod) = self.pods.get_mut(&id) {
                pod.release = Release::None;
            }
        }
        self.claims_at = self.claims_at.min(self.now);
    }

    /// Gives up the claims that an event has to do with.
    pub(super) fn give_up_told(&mut self, event: &Event) {
        let group_of = |id: &PodId| self.pods.get(id).map(|pod| pod.config.group);
        let (groups, cluster) = match event {
            Event::GroupChanged(id, _) => (vec![*id], None),
            Event::PodChanged(id, config) => {
                (group_of(id).into_iter().chain([config.group]).collect(), None)
            }
            Event::PodRemoved(id) | Event::Outcome(id, _) => {
                (group_of(id).into_iter().collect(), None)
            }
            Event::Synced(cluster) | Event::Paused(cluster, _) | Event::Resumed(cluster) => {
                (Vec::new(), Some(*cluster))
            }
            Event::QueueChanged(..) | Event::QueueRemoved(_) => {
                (self.groups.keys().copied().collect(), None)
            }
            Event::NodeChanged(..)
            | Event::NodeRemoved(_)
            | Event::ForeignChanged(..)
            | Event::UsedBefore(..) => return,
        };
        for at in (0..self.claims.len()).rev() {
            let group = self.claims[at].group;
            let there = self.groups.get(&group).map(|group| group.config.cluster);
            if groups.contains(&group) || (cluster.is_some() && there == cluster) {
                self.give_up(at);
            }
        }
    }

    /// How long the work of a group is let run.
    pub(in super::super) fn min_runtime(&self, group: GroupId) -> Millis {
        let path = self.payer(group).and_then(|queue| self.path(queue)).unwrap_or_default();
        let said = |queue: &QueueId| self.queues[queue].preemption.min_runtime;
        path.iter().find_map(said).unwrap_or(MIN_RUNTIME)
    }
}

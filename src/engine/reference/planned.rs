//! On which nodes an offer would start.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::super::event::NodeConfig;
use super::super::model::{
    DomainId, GroupId, NodeId, Placement, PodId, QueueId, ResourceId, TopologyId, Vector,
};
use super::Reference;
use super::books::is_usable;
use super::offers::Offer;
use super::round::Round;

impl Round<'_> {
    /// The node of each pod of an offer; no answer where some pod has none. Empty where its queue
    /// does not plan.
    pub(super) fn plan(&self, offer: &Offer) -> Option<BTreeMap<PodId, NodeId>> {
        self.plan_beside(&self.books.on_nodes, offer)
    }

    /// The same, if nothing were charged.
    pub(super) fn plan_on_empty(&self, offer: &Offer) -> Option<BTreeMap<PodId, NodeId>> {
        self.plan_beside(&BTreeMap::new(), offer)
    }

    fn plan_beside(
        &self,
        charged: &BTreeMap<NodeId, Vector>,
        offer: &Offer,
    ) -> Option<BTreeMap<PodId, NodeId>> {
        if !self.of.plans(offer.queue) {
            return Some(BTreeMap::new());
        }
        let nodes = self.nodes_for(offer.group);
        let Some(topology) = self.of.groups[&offer.group].config.topology else {
            return self.plan_on(charged, offer, &nodes);
        };
        self.domains(charged, offer, &nodes, topology).into_iter().find_map(|domain| {
            let inside = |id: &&NodeId| self.of.nodes[id].domain(topology) == Some(domain);
            let nodes: Vec<NodeId> = nodes.iter().filter(inside).copied().collect();
            self.plan_on(charged, offer, &nodes)
        })
    }

    /// The usable nodes of a group's cluster, in the order in which they are filled.
    fn nodes_for(&self, group: GroupId) -> Vec<NodeId> {
        let cluster = self.of.groups[&group].config.cluster;
        let may = |(_, node): &(&NodeId, &NodeConfig)| is_usable(node) && node.cluster == cluster;
        let mut nodes: Vec<_> = self.of.nodes.iter().filter(may).collect();
        nodes.sort_by_key(|(id, node)| {
            let kinds = node.allocatable.iter().filter(|&(_, amount)| amount > 0).count();
            (kinds, node.allocatable.clone(), **id)
        });
        nodes.into_iter().map(|(&id, _)| id).collect()
    }

    /// The domains to try, in order.
    fn domains(
        &self,
        charged: &BTreeMap<NodeId, Vector>,
        offer: &Offer,
        nodes: &[NodeId],
        topology: TopologyId,
    ) -> Vec<DomainId> {
        if let Some(domain) = self.of.domain_of(offer.group) {
            return vec![domain];
        }
        let parts = offer.needs().map(|(resource, need)| (self.part(resource, need), resource));
        let scarcest = parts.max().map(|(_, resource)| resource);
        let domain = |id: &NodeId| self.of.nodes[id].domain(topology);
        let all: BTreeSet<DomainId> = nodes.iter().filter_map(domain).collect();
        let free = |of: DomainId| -> i128 {
            let inside = nodes.iter().filter(|id| domain(id) == Some(of));
            let amount = |id: &NodeId| {
                scarcest.map_or(0, |resource| self.free_on(charged, *id).get(resource).max(0))
            };
            inside.map(amount).sum()
        };
        let mut domains: Vec<DomainId> = all.into_iter().collect();
        domains.sort_by_key(|&domain| (free(domain), domain));
        domains
    }

    fn plan_on(
        &self,
        charged: &BTreeMap<NodeId, Vector>,
        offer: &Offer,
        nodes: &[NodeId],
    ) -> Option<BTreeMap<PodId, NodeId>> {
        let mut pods = offer.pods.clone();
        let cost = |id: &PodId| &self.of.pods[id].config.cost;
        pods.sort_by_key(|id| {
            let part = cost(id).iter().map(|(resource, need)| self.part(resource, need)).max();
            Reverse((part.unwrap_or(0), cost(id).clone()))
        });
        let mut free: BTreeMap<NodeId, Vector> =
            nodes.iter().map(|&id| (id, self.free_on(charged, id))).collect();
        let mut plan = BTreeMap::new();
        for pod in pods {
            let node = nodes.iter().find(|id| cost(&pod).fits(&free[id]))?;
            free.get_mut(node).unwrap().sub(cost(&pod));
            plan.insert(pod, *node);
        }
        Some(plan)
    }

    fn free_on(&self, charged: &BTreeMap<NodeId, Vector>, id: NodeId) -> Vector {
        let foreign = self.of.foreign.get(&id).cloned().unwrap_or_default();
        let left = |(r, amount): (_, i128)| (r, (amount - foreign.get(r)).max(0));
        let mut free: Vector = self.of.nodes[&id].allocatable.iter().map(left).collect();
        free.sub(charged.get(&id).unwrap_or(&Vector::default()));
        free
    }

    /// The part that an amount is of the capacity, in steps of 2^-60.
    fn part(&self, resource: ResourceId, amount: i128) -> u64 {
        let (part, whole) = (u128::try_from(amount), self.books.capacity.get(resource));
        let Some(whole) = u128::try_from(whole).ok().filter(|&whole| whole > 0) else { return 0 };
        let part = part.unwrap_or(0).checked_mul(1 << 60).map(|part| part / whole);
        part.and_then(|part| u64::try_from(part).ok()).unwrap_or(u64::MAX)
    }
}

impl Reference {
    /// Whether nodes are looked for.
    pub(in super::super) fn plans(&self, queue: QueueId) -> bool {
        self.queues.get(&queue).is_some_and(|queue| queue.placement != Placement::Quota)
    }

    /// The domain in which a group runs.
    fn domain_of(&self, group: GroupId) -> Option<DomainId> {
        let topology = self.groups[&group].config.topology?;
        let of_group = self.pods.values().filter(|pod| pod.config.group == group);
        let charged = of_group.filter(|pod| self.is_charged(pod));
        let nodes = charged.filter_map(|pod| self.nodes.get(&pod.config.node().or(pod.planned)?));
        nodes.filter_map(|node| node.domain(topology)).min()
    }

    /// What is told of the place that was found for a pod: its node and its group's domain.
    pub(super) fn told_of_place(&self, id: PodId) -> (Option<NodeId>, Option<DomainId>) {
        let pod = &self.pods[&id];
        let planned = pod.planned.and_then(|node| self.nodes.get(&node));
        let topology = self.groups[&pod.config.group].config.topology;
        let domain = planned.and_then(|node| node.domain(topology?));
        let placement = self.payer(pod.config.group).map(|queue| self.queues[&queue].placement);
        (pod.planned.filter(|_| placement == Some(Placement::Node)), domain)
    }
}

//! Nodes for offers of queues that look for them.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::amounts::{Amounts, Axes, Need};
use super::group::{Group, Turn};
use super::model::{ClusterId, DomainId, NodeId, Placement, TopologyId};
use super::pools::{Domain, Pool, Pools, copies};
use super::shapes::{ClassId, Kind, Parts, ShapeId, Shapes};
use super::share::{self, Share};
use super::slab::NONE;
use super::world::Engine;

/// Where the nodes of an offer have to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Site {
    cluster: ClusterId,
    topology: Option<TopologyId>,
    /// The domain in which the group runs already.
    domain: Option<DomainId>,
}

/// Nodes for the pods of an offer, by cost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    nodes: BTreeMap<ShapeId, Vec<NodeId>>,
}

impl Plan {
    /// The node of each pod, in the order of the turns.
    pub(super) fn nodes(mut self, turns: &[Turn]) -> Vec<Option<NodeId>> {
        self.nodes.values_mut().for_each(|nodes| nodes.reverse());
        let next = |turn: &Turn| self.nodes.get_mut(&turn.shape)?.pop();
        turns.iter().map(next).collect()
    }
}

/// How many pods of an offer have no node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unplaced {
    pub(super) placed: u32,
    pub(super) pods: u32,
}

/// What a plan is made from.
struct Planner<'a> {
    pools: &'a Pools,
    axes: &'a Axes,
    shapes: &'a Shapes,
    capacity: &'a Amounts,
}

impl Planner<'_> {
    fn plan(&self, site: Site, parts: &Parts, need: &Need) -> Result<Plan, Unplaced> {
        let pods = parts.iter().map(|(_, count)| count).sum();
        let nothing = Unplaced { placed: 0, pods };
        let pool = self.pools.of(site.cluster).ok_or(nothing)?;
        let Some(topology) = site.topology else {
            return self.plan_on(pool, None, parts);
        };
        let mut best = nothing;
        for domain in self.domains(pool, site, topology, need) {
            match self.plan_on(pool, Some(domain), parts) {
                Ok(plan) => return Ok(plan),
                Err(unplaced) if unplaced.placed > best.placed => best = unplaced,
                Err(_) => {}
            }
        }
        Err(best)
    }

    /// The domains to try, in order.
    fn domains<'a>(
        &self,
        pool: &'a Pool,
        site: Site,
        topology: TopologyId,
        need: &Need,
    ) -> Vec<&'a Domain> {
        let Some(all) = pool.domains(topology) else { return Vec::new() };
        if let Some(domain) = site.domain {
            return all.get(&domain).into_iter().collect();
        }
        let parts = need.iter().map(|(axis, amount)| {
            (share::part_of(axis, amount, self.capacity), self.axes.resource(axis), axis)
        });
        let scarcest = parts.max().map_or(0, |(.., axis)| axis);
        let mut domains: Vec<(i128, DomainId, &Domain)> =
            all.iter().map(|(&id, domain)| (domain.free.get(scarcest), id, domain)).collect();
        domains.sort_unstable_by_key(|&(free, id, _)| (free, id));
        domains.into_iter().map(|(.., domain)| domain).collect()
    }

    fn plan_on(
        &self,
        pool: &Pool,
        domain: Option<&Domain>,
        parts: &Parts,
    ) -> Result<Plan, Unplaced> {
        let mut parts: Vec<(ShapeId, u32)> = parts.iter().collect();
        parts.sort_by_cached_key(|&(shape, _)| {
            let shape = self.shapes.get(shape);
            Reverse((self.part(&shape.need), shape.cost.clone()))
        });
        let pods = parts.iter().map(|&(_, count)| count).sum();
        let mut filling = Filling { pool, domain, taken: BTreeMap::new() };
        let mut plan = Plan::default();
        let mut placed = 0;
        for (shape, count) in parts {
            let nodes = filling.place(self.shapes.need(shape), count);
            let found = u32::try_from(nodes.len()).unwrap_or(u32::MAX);
            placed += found;
            if found < count {
                return Err(Unplaced { placed, pods });
            }
            plan.nodes.insert(shape, nodes);
        }
        Ok(plan)
    }

    /// The largest part that a need is of the capacity.
    fn part(&self, need: &Need) -> Share {
        let parts = need.iter().map(|(axis, amount)| share::part_of(axis, amount, self.capacity));
        parts.max().unwrap_or(0)
    }
}

/// Nodes while an offer is planned on them.
struct Filling<'a> {
    pool: &'a Pool,
    /// All nodes, if none.
    domain: Option<&'a Domain>,
    /// What is left on those that were planned on.
    taken: BTreeMap<usize, Amounts>,
}

impl Filling<'_> {
    /// So many pods alike, each on the first node that has room; fewer when there is no more.
    fn place(&mut self, need: &Need, count: u32) -> Vec<NodeId> {
        let mut nodes = Vec::new();
        let mut from = 0;
        while let Some(at) = self.next(from, need) {
            let left = count - u32::try_from(nodes.len()).unwrap_or(count);
            if left == 0 {
                break;
            }
            let free = self.taken.entry(at).or_insert_with(|| self.pool.free(at).clone());
            let fits = copies(need, free).min(left.into());
            for _ in 0..fits {
                free.sub(need);
                nodes.push(self.pool.id(at));
            }
            from = at + 1;
        }
        nodes
    }

    /// The next node that had room before anything was planned.
    fn next(&self, from: usize, need: &Need) -> Option<usize> {
        let Some(domain) = self.domain else { return self.pool.first(from, need) };
        let first = domain.nodes.partition_point(|&at| at < from);
        let rest = domain.nodes.get(first..).unwrap_or_default();
        rest.iter().copied().find(|&at| need.fits(self.pool.free(at)))
    }
}

impl Engine {
    /// Where the nodes of a group's offers have to be, if its queue looks for any.
    pub(super) fn site(&self, group: &Group) -> Option<Site> {
        let line = self.lines.get(group.line)?;
        if line.placement == Placement::Quota {
            return None;
        }
        let topology = group.config.topology;
        let domain = topology.and_then(|topology| self.domain_of(group, topology));
        Some(Site { cluster: group.config.cluster, topology, domain })
    }

    /// The smallest domain in which a pod of a group is charged.
    fn domain_of(&self, group: &Group, topology: TopologyId) -> Option<DomainId> {
        if group.charged == 0 {
            return None;
        }
        let slot = self.group_slots.get(&group.id)?;
        let nodes = self.pods_of(slot).filter_map(|pod| self.pods[pod].charge?.node());
        nodes.filter_map(|node| self.domain_at(node, topology)).min()
    }

    pub(super) fn domain_at(&self, node: NodeId, topology: TopologyId) -> Option<DomainId> {
        self.fleet.get(node).filter(|node| node.known)?.config.domain(topology)
    }

    /// Makes anew what is known of nodes, if any queue looks for them.
    pub(super) fn pool_nodes(&mut self) {
        let plans = self.queues.values().any(|queue| queue.placement != Placement::Quota);
        if !plans {
            self.pools = None;
            return;
        }
        if self.pools.is_some() {
            return;
        }
        let mut pools = Pools::new(&self.axes, &self.fleet);
        for (_, pod) in self.pods.iter() {
            let Some(charge) = pod.charge else { continue };
            let need = self.shapes.need(charge.shape);
            charge.node().into_iter().for_each(|node| pools.change(node, |free| free.sub(need)));
        }
        self.pools = Some(pools);
        self.look_at_topologies();
    }

    /// Nodes for what an offer needs; an empty plan where none are looked for.
    ///
    /// # Errors
    ///
    /// How many of its pods have none, where most have one.
    pub(super) fn plan(&self, kind: &Kind, need: &Need) -> Result<Plan, Unplaced> {
        match &self.pools {
            Some(pools) => self.plan_in(pools, kind, need),
            None => Ok(Plan::default()),
        }
    }

    /// The same with so much free on nodes.
    pub(super) fn plan_in(
        &self,
        pools: &Pools,
        kind: &Kind,
        need: &Need,
    ) -> Result<Plan, Unplaced> {
        let Some(site) = kind.site else { return Ok(Plan::default()) };
        let capacity = &self.fleet.capacity;
        let planner = Planner { pools, axes: &self.axes, shapes: &self.shapes, capacity };
        planner.plan(site, &kind.parts, need)
    }

    pub(super) fn plan_class(&self, class: ClassId) -> Result<Plan, Unplaced> {
        let class = self.classes.get(class);
        self.plan(&class.kind, &class.need)
    }

    /// Groups that want a topology are looked at again: some node may be in other domains.
    fn look_at_topologies(&mut self) {
        let wants = |(slot, group): (u32, &Group)| group.config.topology.map(|_| slot);
        let groups: Vec<u32> = self.groups.iter().filter_map(wants).collect();
        for group in groups {
            self.look_at(group);
        }
    }
}

/// A node by number, or [`NONE`].
pub(super) fn node_at(number: u32) -> Option<NodeId> {
    Some(NodeId(number)).filter(|_| number != NONE)
}

//! What is free on each node, and the first that has room.
//!
//! The usable nodes of a cluster are kept in the order in which they are filled, under a tree of
//! the most that is free below each of its nodes, so that the first with room for something is
//! found without looking at those that have none.

use std::collections::BTreeMap;

use super::amounts::{Amounts, Axes, Axis, GROUPS, Need};
use super::fleet::{Fleet, Node};
use super::model::{ClusterId, DomainId, NodeId, TopologyId};

/// Children of a node of the tree.
const FAN: usize = 16;

/// The nodes of every cluster.
#[derive(Debug, Default)]
pub(super) struct Pools {
    by_cluster: BTreeMap<ClusterId, Pool>,
    /// Where each node is.
    seats: BTreeMap<NodeId, (ClusterId, usize)>,
}

/// The usable nodes of a cluster, in the order in which they are filled.
#[derive(Debug, Default)]
pub(super) struct Pool {
    nodes: Vec<Seat>,
    /// The most that is free of each resource among so many nodes; the leaves first.
    most: Vec<Vec<Amounts>>,
    domains: BTreeMap<TopologyId, BTreeMap<DomainId, Domain>>,
}

#[derive(Debug)]
struct Seat {
    id: NodeId,
    domains: Vec<(TopologyId, DomainId)>,
}

/// The nodes of a domain.
#[derive(Debug, Default)]
pub(super) struct Domain {
    /// In the order in which they are filled.
    pub(super) nodes: Vec<usize>,
    /// What is free on all of them, nothing where it is less than that.
    pub(super) free: Amounts,
}

impl Pools {
    /// Of empty nodes.
    pub(super) fn new(axes: &Axes, fleet: &Fleet) -> Self {
        let mut by_cluster = BTreeMap::<ClusterId, Vec<(NodeId, &Node)>>::new();
        for (id, node) in fleet.iter().filter(|(_, node)| node.usable()) {
            by_cluster.entry(node.config.cluster).or_default().push((id, node));
        }
        let mut pools = Self::default();
        for (cluster, mut nodes) in by_cluster {
            nodes.sort_by_cached_key(|&(id, node)| {
                let allocatable = &node.config.allocatable;
                let kinds = allocatable.iter().filter(|&(_, amount)| amount > 0).count();
                (kinds, allocatable.clone(), id)
            });
            let seats = nodes.iter().enumerate();
            pools.seats.extend(seats.map(|(at, &(id, _))| (id, (cluster, at))));
            pools.by_cluster.insert(cluster, Pool::new(axes, &nodes));
        }
        pools
    }

    pub(super) fn of(&self, cluster: ClusterId) -> Option<&Pool> {
        self.by_cluster.get(&cluster)
    }

    /// Changes what is free on a node.
    pub(super) fn change(&mut self, node: NodeId, change: impl Fn(&mut Amounts)) {
        if let Some((cluster, at)) = self.seats.get(&node)
            && let Some(pool) = self.by_cluster.get_mut(cluster)
        {
            pool.change(*at, change);
        }
    }
}

impl Pool {
    fn new(axes: &Axes, nodes: &[(NodeId, &Node)]) -> Self {
        let mut pool = Self::default();
        let mut leaves = Vec::new();
        for (at, (id, node)) in nodes.iter().enumerate() {
            let free: Amounts = node.free(axes);
            let domains = node.config.domains.clone();
            for &(topology, domain) in &domains {
                let domain = pool.domains.entry(topology).or_default().entry(domain).or_default();
                domain.nodes.push(at);
                domain.free.add_all(&free);
            }
            pool.nodes.push(Seat { id: *id, domains });
            leaves.push(free);
        }
        pool.most.push(leaves);
        while let Some(below) = pool.most.last().filter(|below| below.len() > 1) {
            let above = below.chunks(FAN).map(most_of).collect();
            pool.most.push(above);
        }
        pool
    }

    pub(super) fn id(&self, at: usize) -> NodeId {
        self.nodes[at].id
    }

    pub(super) fn free(&self, at: usize) -> &Amounts {
        &self.most[0][at]
    }

    pub(super) fn domains(&self, topology: TopologyId) -> Option<&BTreeMap<DomainId, Domain>> {
        self.domains.get(&topology)
    }

    fn change(&mut self, at: usize, change: impl Fn(&mut Amounts)) {
        let free = &mut self.most[0][at];
        let before = free.clone();
        change(free);
        for &(topology, domain) in &self.nodes[at].domains {
            let domain = self.domains.get_mut(&topology).and_then(|all| all.get_mut(&domain));
            let Some(domain) = domain else { continue };
            for (axis, amount) in free.iter() {
                *domain.free.at(axis) += amount.max(0) - before.get(axis).max(0);
            }
        }
        let mut at = at;
        for level in 1..self.most.len() {
            let first = at / FAN * FAN;
            let below = &self.most[level - 1];
            let most = most_of(&below[first..below.len().min(first + FAN)]);
            at /= FAN;
            if self.most[level][at] == most {
                return;
            }
            self.most[level][at] = most;
        }
    }

    /// The first node from `from` on that has so much free.
    pub(super) fn first(&self, from: usize, need: &Need) -> Option<usize> {
        self.first_below(self.most.len().checked_sub(1)?, 0, from, need)
    }

    fn first_below(&self, level: usize, at: usize, from: usize, need: &Need) -> Option<usize> {
        let width = FAN.pow(u32::try_from(level).unwrap_or(0));
        let most = self.most[level].get(at)?;
        if (at + 1) * width <= from || !need.fits(most) {
            return None;
        }
        if level == 0 {
            return Some(at);
        }
        let below = at * FAN..self.most[level - 1].len().min((at + 1) * FAN);
        below.into_iter().find_map(|child| self.first_below(level - 1, child, from, need))
    }
}

fn most_of(of: &[Amounts]) -> Amounts {
    let mut most = Amounts::default();
    for (index, amounts) in of.iter().enumerate() {
        for (axis, amount) in amounts.iter() {
            let at = most.at(axis);
            *at = if index == 0 { amount } else { (*at).max(amount) };
        }
    }
    most
}

/// How many times a need is there.
pub(super) fn copies(need: &Need, free: &Amounts) -> i128 {
    let asked = need.iter().filter(|&(axis, _): &(Axis, i128)| axis != GROUPS);
    asked.map(|(axis, amount)| free.get(axis).max(0) / amount).min().unwrap_or(i128::MAX)
}

//! What is configured in a random world: queues, nodes, groups and what pods cost.

use std::num::NonZeroU64;

use super::super::event::{GroupConfig, MaxRunning, NodeConfig, Preemption, QueueConfig};
use super::super::model::{
    Assignment, ClusterId, DomainId, Forbidden, Gang, Growth, Millis, Order, Placement, QueueId,
    Reclaim, ResourceId, SingletonId, TopologyId, Uid, Vector, WithinQueue,
};
use super::random::Random;

const GPU: ResourceId = ResourceId(9);
const FPGA: ResourceId = ResourceId(10);
/// Deepest queue below the root.
const DEPTH: usize = 4;

/// How much of what a world has. Most are small: that is enough for nearly everything.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    queues: u32,
    costs: u32,
    /// Most that a pod costs of a resource.
    dearest: u32,
    pub(super) groups: u32,
    /// Pods that come at a time, at most.
    pub(super) arrive: u32,
    /// More pods than this at a time show nothing more.
    pub(super) pods: usize,
}

const SMALL: Size = Size { queues: 9, costs: 4, dearest: 3, groups: 10, arrive: 4, pods: 60 };

/// How often which size. A group may have more costs than it offers at a time, a line many
/// groups, a queue many below it.
const SIZES: &[(u32, Size)] = &[
    (32, SMALL),
    (2, Size { costs: 90, dearest: 60, arrive: 47, ..SMALL }),
    (2, Size { queues: 2, costs: 1, groups: 150, arrive: 1, pods: 150, ..SMALL }),
    (1, Size { queues: 40, groups: 50, ..SMALL }),
];

/// How often which placement, where any queue plans.
const PLACEMENTS: &[(u32, Placement)] =
    &[(1, Placement::Quota), (1, Placement::Domain), (2, Placement::Node)];

/// What differs from one random world to the next.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is one thing that is so or not")]
pub(super) struct Shape {
    /// What there is beside pods.
    resources: Vec<ResourceId>,
    pub(super) size: Size,
    /// What a pod may cost.
    costs: Vec<Vector>,
    /// Of how many amounts one is, in each resource; some are no multiple of any power of two.
    unit: i128,
    queues: Vec<QueueId>,
    clusters: u16,
    /// How much is listed of guarantees, of limits and of what may run, in quarters.
    dense: [u32; 3],
    /// Most that one node has of a resource, and most that one queue is guaranteed.
    most: [u32; 2],
    /// Whether something is odd: unknown queues, cycles, weight 0, faults.
    pub(super) odd: bool,
    /// Whether anything is evicted.
    pub(super) takes_back: bool,
    /// Whether any queue lends less than it has.
    keeps: bool,
    /// Whether nodes are looked for.
    plans: bool,
    /// Whether what was used before counts anywhere.
    remembers: bool,
}

impl Shape {
    pub(super) fn random(random: &mut Random) -> Self {
        let mut resources = vec![ResourceId::CPU];
        for resource in [ResourceId::MEMORY, GPU, FPGA] {
            if random.one_in(2) {
                resources.push(resource);
            }
        }
        let size = random.weighted(SIZES).unwrap_or(SMALL);
        let mut shape = Self {
            resources,
            size,
            costs: Vec::new(),
            unit: random.weighted(&[(8, 1), (1, (1 << 40) + 1), (1, 1 << 58)]).unwrap_or(1),
            queues: (1..=random.within(1, size.queues)).map(QueueId).collect(),
            clusters: if random.one_in(3) { 2 } else { 1 },
            dense: [(); 3].map(|()| random.below(4)),
            most: [random.within(3, 12), random.within(3, 20)],
            odd: random.one_in(2),
            takes_back: random.one_in(2),
            keeps: random.one_in(3),
            plans: random.one_in(2),
            remembers: random.one_in(3),
        };
        let costs = random.within(1, size.costs);
        shape.costs = (0..costs).map(|_| shape.new_cost(random)).collect();
        shape
    }

    fn new_cost(&self, random: &mut Random) -> Vector {
        let mut cost = Vector::default();
        for &resource in &self.resources {
            if resource == ResourceId::CPU || random.one_in(2) {
                cost.set(resource, self.amount(random, self.size.dearest));
            }
        }
        if !(self.odd && random.one_in(8)) {
            cost.set(ResourceId::PODS, 1);
        }
        cost
    }

    fn amount(&self, random: &mut Random, most: u32) -> i128 {
        i128::from(random.within(0, most)) * self.unit
    }

    pub(super) fn cost(&self, random: &mut Random) -> Vector {
        if self.odd && random.one_in(12) {
            return self.new_cost(random);
        }
        random.pick(&self.costs).unwrap_or_default()
    }

    pub(super) fn cluster(&self, random: &mut Random) -> ClusterId {
        ClusterId(u16::try_from(random.below(u32::from(self.clusters))).unwrap_or(0))
    }

    pub(super) fn clusters(&self) -> impl Iterator<Item = ClusterId> + use<> {
        (0..self.clusters).map(ClusterId)
    }

    pub(super) fn queues(&self) -> &[QueueId] {
        &self.queues
    }

    pub(super) fn queue(&self, random: &mut Random) -> QueueId {
        random.pick(&self.queues).unwrap_or_default()
    }

    /// Listed amounts of some resources, or of none.
    fn listed(&self, random: &mut Random, dense: u32, most: u32) -> Vector {
        let mut listed = Vector::default();
        if random.below(4) >= dense {
            return listed;
        }
        for &resource in &self.resources {
            if random.one_in(2) {
                listed.set(resource, self.amount(random, most));
            }
        }
        if random.one_in(4) {
            listed.set(ResourceId::PODS, i128::from(random.within(0, most)));
        }
        listed
    }

    pub(super) fn queue_config(&self, random: &mut Random, id: QueueId) -> QueueConfig {
        let [given, limited, dense] = self.dense;
        let running = |random: &mut Random, most| {
            let least = u32::from(!random.one_in(8));
            (random.below(8) < dense).then(|| u64::from(random.within(least, most)))
        };
        let hold = random.one_in(if self.odd { 10 } else { 40 });
        QueueConfig {
            parent: self.parent(random, id),
            weight: if self.odd && random.one_in(30) { 0 } else { random.within(1, 4) },
            guaranteed: self.listed(random, given, self.most[1]),
            lendable: self.listed(random, if self.keeps { 2 } else { 0 }, self.most[1]),
            limit: self.listed(random, limited, 12),
            order: if random.one_in(3) { Order::Strict } else { Order::BestEffort },
            half_life: self.remembers(random),
            growth: if random.one_in(4) { Growth::Fair } else { Growth::First },
            hold,
            drain: hold && random.one_in(2),
            malformed: self.odd && random.one_in(40),
            max_pending: random.one_in(4).then(|| u64::from(random.within(1, 5))),
            max_running: MaxRunning { groups: running(random, 3), pods: running(random, 7) },
            preemption: self.preemption(random),
            placement: random.weighted(PLACEMENTS).filter(|_| self.plans).unwrap_or_default(),
        }
    }

    fn remembers(&self, random: &mut Random) -> Option<Millis> {
        if !self.remembers || random.one_in(3) {
            return None;
        }
        random.pick(&[777, 60_000, 3_600_000])
    }

    fn preemption(&self, random: &mut Random) -> Preemption {
        let reclaim = [Reclaim::Never, Reclaim::Guaranteed, Reclaim::Entitled, Reclaim::Entitled];
        let within = [WithinQueue::Never, WithinQueue::LowerPriority];
        Preemption {
            reclaim: random.pick(&reclaim).filter(|_| self.takes_back).unwrap_or(Reclaim::Never),
            within_queue: random.pick(&within).filter(|_| self.takes_back).unwrap_or_default(),
            min_runtime: (!random.one_in(6)).then(|| Millis::from(random.below(4)) * 500),
        }
    }

    /// A queue of a smaller id, not too deep; now and then one that makes no sense.
    fn parent(&self, random: &mut Random, id: QueueId) -> Option<QueueId> {
        if self.odd && random.one_in(20) {
            return Some(QueueId(random.within(1, 12)));
        }
        let depth = u32::try_from(DEPTH).unwrap_or(u32::MAX);
        (id.0 % depth != 1 && !random.one_in(4)).then(|| {
            let least = (id.0 - 1) / depth * depth + 1;
            QueueId(random.within(least, id.0.max(least + 1) - 1))
        })
    }

    pub(super) fn node_config(&self, random: &mut Random) -> NodeConfig {
        let mut allocatable = Vector::default();
        for &resource in &self.resources {
            if !random.one_in(8) {
                allocatable.set(resource, self.amount(random, self.most[0]));
            }
        }
        let pods = if random.one_in(4) { random.within(1, 5) } else { 110 };
        allocatable.set(ResourceId::PODS, i128::from(pods));
        NodeConfig {
            cluster: self.cluster(random),
            allocatable,
            ready: !random.one_in(8),
            schedulable: !random.one_in(8),
            domains: self.domains(random),
        }
    }

    /// A zone and a rack, or less.
    fn domains(&self, random: &mut Random) -> Vec<(TopologyId, DomainId)> {
        let mut domains = Vec::new();
        for (topology, count) in [(1, 2), (2, 3)] {
            if self.plans && !random.one_in(8) {
                let domain = u32::from(topology) * 10 + random.within(1, count);
                domains.push((TopologyId(topology), DomainId(domain)));
            }
        }
        domains
    }

    pub(super) fn foreign(&self, random: &mut Random) -> Vector {
        self.listed(random, 4, 4)
    }

    pub(super) fn group_config(&self, random: &mut Random) -> GroupConfig {
        let queue = self.queue(random);
        let gang = match random.below(8) {
            0 => Gang::All,
            1..=3 => {
                let least = u32::from(!random.one_in(4));
                Gang::AtLeast(random.within(least, 4))
            }
            _ => Gang::Units,
        };
        let forbidden = random.pick(&[Forbidden::Namespace, Forbidden::PriorityClass]);
        GroupConfig {
            cluster: self.cluster(random),
            root: Uid(u128::from(random.within(1, 6))),
            queue: match random.below(if self.odd { 30 } else { 90 }) {
                0 => Assignment::Unresolved,
                1 => Assignment::Unnamed,
                2 => Assignment::Queue(QueueId(random.within(10, 12))),
                3 => forbidden.map_or(Assignment::Unnamed, |why| Assignment::Forbidden(queue, why)),
                _ => Assignment::Queue(queue),
            },
            gang,
            singleton: random
                .one_in(6)
                .then(|| SingletonId(NonZeroU64::MIN.saturating_add(random.below(2).into()))),
            non_preemptible: random.one_in(8),
            topology: (self.plans && random.one_in(2))
                .then(|| TopologyId(1 + u16::from(random.one_in(2)))),
        }
    }
}

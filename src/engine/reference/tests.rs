//! The rule, a case for each clause.

use std::num::NonZeroU64;

use proptest::prelude::*;

use super::super::event::{
    Event, GroupConfig, MaxRunning, NodeConfig, Outcome, PodConfig, QueueConfig,
};
use super::super::model::{
    Assignment, ClusterId, Gang, GroupId, NodeId, Order, PodId, PodState, QueueId, ResourceId,
    SingletonId, Uid, Vector,
};
use super::water::{Claim, fill};
use super::{Reference, Spot};

const CPU: ResourceId = ResourceId::CPU;
const MEMORY: ResourceId = ResourceId::MEMORY;
const PODS: ResourceId = ResourceId::PODS;
const HERE: ClusterId = ClusterId(0);
const RUNS: PodState = PodState::Released { held: false };

fn cpu(units: i128) -> Vector {
    [(CPU, units)].into_iter().collect()
}

fn cost(units: i128) -> Vector {
    [(CPU, units), (PODS, 1)].into_iter().collect()
}

/// A world with one node. Each group is older than the next, each pod than the next.
#[derive(Clone, Default)]
struct World {
    reference: Reference,
    next: u32,
}

impl World {
    fn new(units: i128) -> Self {
        let mut world = Self::default();
        world.node(1, [(CPU, units), (PODS, 100)].into_iter().collect());
        world.tell(Event::Synced(HERE));
        world
    }

    fn tell(&mut self, event: Event) {
        self.reference.apply(0, event);
    }

    fn node(&mut self, id: u32, allocatable: Vector) {
        let config = NodeConfig {
            cluster: HERE,
            allocatable,
            ready: true,
            schedulable: true,
            ..NodeConfig::default()
        };
        self.tell(Event::NodeChanged(NodeId(id), config));
    }

    fn queue(&mut self, id: u32, change: impl FnOnce(&mut QueueConfig)) -> QueueId {
        let mut config = QueueConfig { weight: 1, ..QueueConfig::default() };
        change(&mut config);
        self.tell(Event::QueueChanged(QueueId(id), config));
        QueueId(id)
    }

    fn group(&mut self, queue: QueueId, change: impl FnOnce(&mut GroupConfig)) -> GroupId {
        self.next += 1;
        let mut config = GroupConfig {
            cluster: HERE,
            root: Uid(u128::from(self.next)),
            queue: Assignment::Queue(queue),
            gang: Gang::Units,
            singleton: None,
            non_preemptible: false,
            topology: None,
        };
        change(&mut config);
        let id = GroupId(u64::from(self.next));
        self.tell(Event::GroupChanged(id, config));
        id
    }

    fn pod(&mut self, group: GroupId, change: impl FnOnce(&mut PodConfig)) -> PodId {
        self.next += 1;
        let id = Uid(u128::from(self.next));
        let (cost, created) = (cost(1), i64::from(self.next));
        let mut config = PodConfig {
            group,
            cost,
            priority: 0,
            created,
            started: None,
            never_preempts: false,
            state: PodState::Gated,
        };
        change(&mut config);
        self.tell(Event::PodChanged(id, config));
        id
    }

    /// A group of one pod that costs so much CPU.
    fn single(&mut self, queue: QueueId, units: i128) -> PodId {
        let group = self.group(queue, |_| {});
        self.pod(group, |pod| pod.cost = cost(units))
    }

    /// So many pods of one CPU, each a group.
    fn singles(&mut self, queue: QueueId, count: usize) {
        for _ in 0..count {
            self.single(queue, 1);
        }
    }

    fn running(&mut self, queue: QueueId, units: i128) -> PodId {
        let group = self.group(queue, |_| {});
        self.pod(group, |pod| (pod.cost, pod.state) = (cost(units), RUNS))
    }

    fn gang(&mut self, queue: QueueId, pods: u32) -> Vec<PodId> {
        let group = self.group(queue, |group| group.gang = Gang::AtLeast(pods));
        (0..pods).map(|_| self.pod(group, |_| {})).collect()
    }

    fn see(&mut self, pod: PodId, state: PodState) {
        let config = self.reference.pods[&pod].config.clone();
        self.tell(Event::PodChanged(pod, PodConfig { state, ..config }));
    }

    fn end(&mut self, pod: PodId) {
        self.see(pod, PodState::Ended);
    }

    fn decide(&mut self) -> Vec<PodId> {
        self.reference.decide(usize::MAX).started.into_iter().map(|decision| decision.pod).collect()
    }

    fn entitled(&self, spot: Spot, resource: ResourceId) -> Option<i128> {
        self.reference.entitled().get(&spot)?.mentioned(resource)
    }
}

fn below(parent: QueueId) -> impl FnOnce(&mut QueueConfig) {
    move |queue| queue.parent = Some(parent)
}

#[test]
fn a_pod_is_charged_until_it_has_ended_or_is_lost_with_its_node() {
    let bound = |node, terminating| PodState::Bound { node: NodeId(node), terminating };
    // Charged to its queue, and taken from the capacity.
    let cases = [
        (RUNS, 1, 1),
        (PodState::Ended, 0, 0),
        (PodState::Dropped, 0, 0),
        (bound(1, false), 1, 1),
        (bound(1, true), 1, 1),
        (bound(2, false), 1, 0),
        (bound(2, true), 0, 0),
        (bound(3, false), 1, 0),
        (bound(3, true), 1, 0),
        (bound(4, false), 0, 0),
    ];
    for (state, charged, taken) in cases {
        let mut world = World::new(10);
        let queue = world.queue(1, |_| {});
        let pod = world.running(queue, 1);
        let dead = NodeConfig { ready: false, schedulable: true, ..NodeConfig::default() };
        world.tell(Event::NodeChanged(NodeId(2), dead));
        let other = world.running(queue, 0);
        world.see(other, bound(4, false));
        world.tell(Event::NodeRemoved(NodeId(4)));
        world.see(pod, state);
        let books = world.reference.books();
        assert_eq!(books.used(Spot::Queue(queue), CPU), charged, "{state:?}");
        assert_eq!(books.load.get(CPU), taken, "{state:?}");
    }
}

#[test]
fn what_is_foreign_takes_from_its_own_node_alone() {
    let mut world = World::new(10);
    world.node(2, cpu(5));
    world.tell(Event::ForeignChanged(NodeId(1), cpu(3)));
    world.tell(Event::ForeignChanged(NodeId(2), cpu(7)));
    for (id, ready, schedulable) in [(3, false, true), (4, true, false)] {
        let config = NodeConfig {
            cluster: HERE,
            allocatable: cpu(5),
            ready,
            schedulable,
            ..NodeConfig::default()
        };
        world.tell(Event::NodeChanged(NodeId(id), config));
    }
    assert_eq!(world.reference.books().capacity.get(CPU), 7);
    world.tell(Event::NodeRemoved(NodeId(1)));
    world.node(1, cpu(10));
    assert_eq!(world.reference.books().capacity.get(CPU), 10, "forgotten with the node");
}

#[test]
fn what_is_on_a_node_that_comes_back_is_charged_again() {
    let mut world = World::new(10);
    let queue = world.queue(1, |_| {});
    let pod = world.running(queue, 1);
    world.see(pod, PodState::Bound { node: NodeId(1), terminating: false });
    world.tell(Event::NodeRemoved(NodeId(1)));
    assert_eq!(world.reference.books().used(Spot::Queue(queue), CPU), 0);
    world.node(1, cpu(10));
    assert_eq!(world.reference.books().used(Spot::Queue(queue), CPU), 1);
}

#[test]
fn a_queue_is_in_the_tree_only_by_a_path_that_makes_sense() {
    let mut world = World::new(10);
    let good = world.queue(1, |_| {});
    let odd = [
        world.queue(2, |q| q.malformed = true),
        world.queue(3, below(QueueId(2))),
        world.queue(4, below(QueueId(99))),
        world.queue(5, below(QueueId(6))),
        world.queue(6, below(QueueId(5))),
    ];
    for queue in odd {
        world.single(queue, 1);
        world.running(queue, 1);
    }
    let pod = world.single(good, 1);
    assert_eq!(world.decide(), [pod]);
    assert_eq!(world.reference.books().stray.get(CPU), 5);
}

#[test]
fn all_of_a_group_starts_when_no_pod_has_arrived_for_two_seconds() {
    let mut world = World::new(10);
    let queue = world.queue(1, |_| {});
    let group = world.group(queue, |group| group.gang = Gang::All);
    let first = world.pod(group, |_| {});
    world.reference.tick(1_000);
    let second = world.pod(group, |_| {});
    assert!(!world.reference.tick(2_999));
    assert!(world.reference.tick(3_000));
    assert_eq!(world.decide(), [first, second]);
    let late = world.pod(group, |_| {});
    assert_eq!(world.decide(), [late], "it has begun");
}

#[test]
fn a_pod_that_was_refused_is_left_out_until_its_time_and_keeps_the_place_of_its_group() {
    let mut world = World::new(10);
    let queue = world.queue(1, |_| {});
    let group = world.group(queue, |_| {});
    let refused = world.pod(group, |_| {});
    assert_eq!(world.decide(), [refused]);
    world.tell(Event::Outcome(refused, Outcome::Refused { retry_at: 10 }));
    let other = world.single(queue, 1);
    let later = world.pod(group, |pod| pod.created = 99);
    assert_eq!(world.decide(), [later, other]);
    assert!(!world.reference.tick(9));
    assert!(world.reference.tick(10));
    assert_eq!(world.decide(), [refused]);
}

#[test]
fn who_uses_nothing_may_start_a_first_group_larger_than_its_entitlement() {
    let mut world = World::new(10);
    let (many, large) = (world.queue(1, |_| {}), world.queue(2, |_| {}));
    let singles: Vec<PodId> = (0..10).map(|_| world.single(many, 1)).collect();
    let gang = world.gang(large, 8);
    let mut order = vec![singles[0]];
    order.extend(gang);
    order.push(singles[1]);
    assert_eq!(world.decide(), order);
}

#[test]
fn who_uses_anything_at_all_has_had_its_first_group() {
    let memory = |units| [(MEMORY, units), (PODS, 1)].into_iter().collect();
    let mut world = World::new(10);
    world.node(1, [(CPU, 10), (MEMORY, 10), (PODS, 100)].into_iter().collect());
    let (busy, other) = (world.queue(1, |_| {}), world.queue(2, |_| {}));
    let running = world.group(busy, |_| {});
    world.pod(running, |pod| (pod.cost, pod.state) = (memory(1), RUNS));
    world.running(other, 4);
    let (large, small) = (world.single(busy, 6), world.single(other, 1));
    world.single(other, 9);
    assert_eq!(world.entitled(Spot::Queue(busy), CPU), Some(5));
    assert_eq!(world.decide(), [small], "{large:?} is more than its queue is entitled to");
}

#[test]
fn who_stays_within_its_entitlement_goes_before_a_lower_share_that_borrows() {
    let mut world = World::new(11);
    let (low, high) = (world.queue(1, |_| {}), world.queue(2, |_| {}));
    world.running(low, 3);
    world.running(high, 4);
    let (borrows, within) = (world.single(low, 3), world.single(high, 1));
    world.single(high, 4);
    assert_eq!(world.entitled(Spot::Queue(low), CPU), Some(5));
    assert_eq!(world.decide(), [within, borrows]);
}

#[test]
fn what_is_guaranteed_goes_before_a_lower_share_and_must_be_so_on_the_whole_path() {
    let mut world = World::new(20);
    let top = world.queue(1, |q| q.guaranteed = cpu(2));
    let [child, other] =
        [2, 3].map(|id| world.queue(id, |q| (q.parent, q.guaranteed) = (Some(top), cpu(2))));
    let rich = world.queue(4, |q| q.guaranteed = cpu(8));
    world.running(other, 2);
    world.running(rich, 7);
    let beyond = world.single(child, 1);
    let within = world.single(rich, 1);
    assert_eq!(world.decide(), [within, beyond]);
}

#[test]
fn a_queue_without_a_guarantee_is_given_what_those_below_are_and_its_line_nothing() {
    let mut world = World::new(20);
    let top = world.queue(1, |_| {});
    let child = world.queue(2, |q| (q.parent, q.guaranteed) = (Some(top), cpu(2)));
    let poor = world.queue(3, |_| {});
    world.running(child, 1);
    let given = |spot| world.reference.given(spot).mentioned(CPU);
    assert_eq!(
        [Spot::Queue(top), Spot::Line(top), Spot::Line(child)].map(given),
        [Some(2), Some(0), Some(2)]
    );
    assert_eq!(world.reference.given(Spot::Queue(poor)).mentioned(CPU), None);
    let (own, free) = (world.single(top, 1), world.single(poor, 1));
    let guaranteed = world.single(child, 1);
    assert_eq!(world.decide(), [guaranteed, free, own]);
}

#[test]
fn a_line_is_given_what_the_queues_below_leave_of_the_guarantee() {
    let mut world = World::new(20);
    let top = world.queue(1, |q| q.guaranteed = cpu(5));
    world.queue(2, |q| (q.parent, q.guaranteed) = (Some(top), cpu(3)));
    let poor = world.queue(3, |_| {});
    let free: Vec<PodId> = (0..2).map(|_| world.single(poor, 1)).collect();
    let own: Vec<PodId> = (0..3).map(|_| world.single(top, 1)).collect();
    assert_eq!(world.decide(), [own[0], own[1], free[0], free[1], own[2]]);
}

#[test]
fn what_nobody_demands_is_shared_by_weight_among_those_who_do() {
    let mut world = World::new(12);
    let [a, b, c] =
        [(1, 1), (2, 1), (3, 2)].map(|(id, weight)| world.queue(id, |q| q.weight = weight));
    world.running(a, 1);
    for (queue, pods) in [(a, 1), (b, 20), (c, 20)] {
        world.singles(queue, pods);
    }
    let entitled = |queue| world.entitled(Spot::Queue(queue), CPU);
    assert_eq!([a, b, c].map(entitled), [Some(2), Some(3), Some(6)]);
    assert_eq!(world.entitled(Spot::Line(b), CPU), Some(3));
    assert_eq!(world.entitled(Spot::Queue(a), MEMORY), None, "there is none");
    assert_eq!(world.entitled(Spot::Queue(a), ResourceId::GROUPS), None);
}

#[test]
fn what_a_limit_below_keeps_from_starting_is_nobodys_demand_above() {
    let mut world = World::new(10);
    let above = world.queue(1, |_| {});
    let limited = world.queue(2, |queue| (queue.parent, queue.limit) = (Some(above), cpu(2)));
    let other = world.queue(3, |_| {});
    for _ in 0..10 {
        world.single(limited, 1);
        world.single(other, 1);
    }
    let entitled = |queue| world.entitled(Spot::Queue(queue), CPU);
    assert_eq!((entitled(above), entitled(limited), entitled(other)), (Some(2), Some(2), Some(8)));
}

#[test]
fn a_guarantee_is_kept_when_it_is_more_than_the_weight_brings_as_far_as_limit_and_demand_go() {
    let mut world = World::new(12);
    let given = world.queue(1, |q| q.guaranteed = cpu(8));
    let limited = world.queue(2, |q| (q.guaranteed, q.limit) = (cpu(8), cpu(1)));
    let heavy = world.queue(3, |q| q.weight = 100);
    for queue in [given, limited, heavy] {
        world.singles(queue, 20);
    }
    let entitled = |queue| world.entitled(Spot::Queue(queue), CPU);
    assert_eq!([given, limited, heavy].map(entitled), [Some(8), Some(1), Some(3)]);
}

#[test]
fn work_in_a_stopped_queue_demands_only_what_it_uses() {
    let mut world = World::new(12);
    let stopped = world.queue(1, |q| q.hold = true);
    let child = world.queue(2, below(stopped));
    let open = world.queue(3, |_| {});
    world.running(child, 2);
    world.single(child, 9);
    world.singles(open, 20);
    assert_eq!(world.entitled(Spot::Queue(stopped), CPU), Some(2));
    assert_eq!(world.entitled(Spot::Queue(open), CPU), Some(10));
}

#[test]
fn what_no_queue_pays_for_is_not_shared_out() {
    let mut world = World::new(12);
    let open = world.queue(1, |_| {});
    world.running(QueueId(99), 3);
    let nobody = world.group(open, |group| group.queue = Assignment::Unnamed);
    world.pod(nobody, |pod| pod.state = RUNS);
    world.singles(open, 20);
    assert_eq!(world.entitled(Spot::Queue(open), CPU), Some(8));
}

#[test]
fn floors_beyond_what_there_is_shrink_by_the_same_factor() {
    let claim = |weight, floor, cap| Claim { weight, floor, cap };
    assert_eq!(fill(10, &[claim(9, 10, 50), claim(1, 20, 20)]), [3, 6]);
    assert_eq!(fill(0, &[claim(1, 0, 5), claim(1, 0, 0)]), [0, 0]);
}

#[test]
fn water_stands_equally_high_in_all_vessels_that_are_neither_at_their_floor_nor_full() {
    let claim = |weight, floor, cap| Claim { weight, floor, cap };
    assert_eq!(fill(100, &[claim(1, 0, 30), claim(1, 0, 40)]), [30, 40]);
    assert_eq!(fill(10, &[claim(1, 0, 9), claim(1, 0, 9), claim(1, 0, 9)]), [3, 3, 3]);
    assert_eq!(fill(10, &[claim(1, 6, 9), claim(1, 0, 9), claim(2, 0, 1)]), [6, 3, 1]);
    assert_eq!(fill(7, &[claim(2, 0, 9), claim(3, 0, 3), claim(1, 0, 9)]), [2, 3, 1]);
}

proptest! {
    #[test]
    fn water_is_not_made_and_at_most_a_drop_a_vessel_is_lost(
        amount in 0i128..60,
        claims in prop::collection::vec((1u32..5, 0i128..20, 0i128..20), 1..6),
    ) {
        let claims: Vec<Claim> = claims
            .into_iter()
            .map(|(weight, floor, more)| Claim { weight, floor, cap: floor + more })
            .collect();
        let parts = fill(amount, &claims);
        let sum = |of: fn(&Claim) -> i128| claims.iter().map(of).sum::<i128>();
        let (floors, caps, spent) = (sum(|c| c.floor), sum(|c| c.cap), parts.iter().sum::<i128>());
        let due = amount.min(caps);
        prop_assert!(spent <= due && due < spent + i128::try_from(claims.len()).unwrap());
        for (claim, part) in claims.iter().zip(&parts) {
            prop_assert!(*part <= claim.cap && (floors > amount || *part >= claim.floor));
        }
        // Who gets more for its weight than another is at its floor, or the other is full.
        for (a, x) in claims.iter().zip(&parts) {
            for (b, y) in claims.iter().zip(&parts) {
                let above = x * i128::from(b.weight) >= (y + 1) * i128::from(a.weight);
                prop_assert!(floors > amount || !above || *x == a.floor || *y == b.cap);
            }
        }
    }
}

#[test]
fn the_own_work_of_a_queue_shares_with_the_queues_below_it_as_if_it_were_one_of_weight_1() {
    let mut world = World::new(8);
    let top = world.queue(1, |q| q.weight = 7);
    let child = world.queue(2, |q| (q.parent, q.weight) = (Some(top), 3));
    for _ in 0..8 {
        world.single(top, 1);
        world.single(child, 1);
    }
    assert_eq!(world.entitled(Spot::Line(top), CPU), Some(2));
    assert_eq!(world.entitled(Spot::Queue(child), CPU), Some(6));
    world.decide();
    let books = world.reference.books();
    assert_eq!((books.used(Spot::Line(top), CPU), books.used(Spot::Queue(child), CPU)), (2, 6));
}

#[test]
fn of_a_strict_line_only_the_first_counts_that_is_neither_parked_nor_hopeless() {
    let mut world = World::new(10);
    let queue = world.queue(1, |q| (q.order, q.limit) = (Order::Strict, cpu(6)));
    world.queue(2, |q| q.limit = cpu(6));
    for (queue, passes) in [(QueueId(1), false), (QueueId(2), true)] {
        let mut world = world.clone();
        let lacking = world.group(queue, |group| group.gang = Gang::AtLeast(2));
        world.pod(lacking, |_| {});
        world.single(queue, 7);
        world.running(queue, 5);
        let (large, small) = (world.single(queue, 2), world.single(queue, 1));
        assert_eq!(world.decide(), if passes { vec![small] } else { vec![] });
        world.end(large);
        assert_eq!(world.decide(), if passes { vec![] } else { vec![small] });
    }
    let group = world.group(queue, |_| {});
    let pods = [5, 9, 2, 1].map(|units| world.pod(group, |pod| pod.cost = cost(units)));
    assert_eq!(world.decide(), [pods[0]], "9 is hopeless and 2 does not fit");
    world.end(pods[0]);
    assert_eq!(world.decide(), [pods[2], pods[3]], "one group's offers are a line too");
}

#[test]
fn without_any_node_nothing_is_too_large_and_with_one_that_is_not_usable_it_may_be() {
    let mut world = World::new(10);
    let queue = world.queue(1, |q| q.order = Order::Strict);
    world.tell(Event::NodeRemoved(NodeId(1)));
    let large = world.single(queue, 11);
    let first = |world: &World| world.reference.lines().get(&queue).map(|l| l[0].pods.clone());
    assert_eq!(first(&world), Some(vec![large]));
    let allocatable = [(CPU, 10), (PODS, 9)].into_iter().collect();
    let config = NodeConfig {
        cluster: HERE,
        allocatable,
        ready: false,
        schedulable: false,
        ..NodeConfig::default()
    };
    world.tell(Event::NodeChanged(NodeId(2), config));
    assert_eq!(first(&world), None);
}

#[test]
fn of_one_singleton_key_one_group_runs_in_a_queue_and_queues_below_are_others() {
    let mut world = World::new(20);
    let queue = world.queue(1, |q| q.order = Order::Strict);
    let child = world.queue(2, below(queue));
    let mut pods = Vec::new();
    for (queue, key) in [(queue, 1), (queue, 1), (queue, 2), (child, 1)] {
        let group =
            world.group(queue, |group| group.singleton = NonZeroU64::new(key).map(SingletonId));
        pods.push([world.pod(group, |_| {}), world.pod(group, |_| {})]);
    }
    let mut decided = world.decide();
    decided.sort_unstable();
    assert_eq!(decided, [pods[0], pods[2], pods[3]].concat());
    world.end(pods[0][0]);
    assert_eq!(world.decide(), []);
    world.end(pods[0][1]);
    assert_eq!(world.decide(), pods[1]);
}

#[test]
fn work_that_is_not_preemptible_starts_only_within_what_is_guaranteed() {
    let mut world = World::new(20);
    let queue = world.queue(1, |q| q.guaranteed = cpu(2));
    let other = world.queue(2, |_| {});
    let fixed = |group: &mut GroupConfig| group.non_preemptible = true;
    let group = world.group(queue, fixed);
    let pods = [(); 3].map(|()| world.pod(group, |_| {}));
    let never = world.group(other, fixed);
    world.pod(never, |_| {});
    let cut = world.group(other, |group| {
        (group.gang, group.non_preemptible) = (Gang::AtLeast(2), true);
    });
    world.pod(cut, |pod| pod.state = RUNS);
    let completes = world.pod(cut, |_| {});
    world.pod(cut, |_| {});
    assert_eq!(world.decide(), [completes, pods[0], pods[1]]);
}

#[test]
fn only_so_many_groups_run_at_a_time_and_those_that_run_may_grow() {
    let mut world = World::new(20);
    let most = MaxRunning { groups: Some(2), pods: None };
    let top = world.queue(1, |q| q.max_running = most);
    let child = world.queue(2, below(top));
    let shut = world.queue(3, |q| q.max_running = MaxRunning { groups: Some(0), pods: None });
    let groups = [top, child, child].map(|queue| world.group(queue, |_| {}));
    let pods = groups.map(|group| [world.pod(group, |_| {}), world.pod(group, |_| {})]);
    world.single(shut, 1);
    let mut decided = world.decide();
    decided.sort_unstable();
    assert_eq!(decided, pods[..2].concat());
    assert_eq!(world.reference.lines().get(&shut).map_or(0, Vec::len), 0, "it is hopeless");
    world.end(pods[0][0]);
    assert_eq!(world.decide(), []);
    world.end(pods[0][1]);
    assert_eq!(world.decide(), pods[2]);
    world.pod(groups[0], |_| {});
    assert_eq!(world.decide(), [], "it has begun, but nothing of it runs");
}

#[test]
fn of_two_limits_on_pods_the_smaller_counts() {
    let limit: Vector = [(PODS, 3)].into_iter().collect();
    for (most, starts) in [(Some(2), 2), (Some(4), 3), (None, 3)] {
        let mut world = World::new(20);
        let queue = world.queue(1, |q| {
            q.limit.clone_from(&limit);
            q.max_running.pods = most;
        });
        for _ in 0..5 {
            world.single(queue, 1);
        }
        assert_eq!(world.decide().len(), starts, "{most:?}");
    }
}

#[test]
fn groups_are_no_capacity_and_count_for_no_share() {
    let mut world = World::new(10);
    let (one, many) = (world.queue(1, |_| {}), world.queue(2, |_| {}));
    world.running(one, 5);
    for _ in 0..4 {
        world.running(many, 1);
    }
    let (later, first) = (world.single(one, 1), world.single(many, 1));
    world.node(1, [(CPU, 20)].into_iter().collect());
    world.node(2, [(PODS, 1000)].into_iter().collect());
    assert_eq!(world.decide(), [], "no node has both");
    world.node(1, cost(20));
    assert_eq!(world.decide(), [first, later]);
}

#[test]
fn a_begun_gang_that_lacks_members_goes_before_guaranteed_work() {
    let mut world = World::new(3);
    let (given, plain) = (world.queue(1, |q| q.guaranteed = cpu(3)), world.queue(2, |_| {}));
    let gang = world.group(plain, |group| group.gang = Gang::AtLeast(2));
    let guaranteed = world.single(given, 1);
    world.single(given, 1);
    world.pod(gang, |pod| pod.state = RUNS);
    let lacking = world.pod(gang, |_| {});
    world.pod(gang, |_| {});
    assert_eq!(world.decide(), [lacking, guaranteed]);
}

#[test]
fn equal_shares_go_by_age_then_uid_then_line_then_queue() {
    // Age and root of a pod in queues 3 and 2 and in the line above them.
    let cases = [
        ([(7, 9), (8, 1), (9, 1)], [0, 1, 2]),
        ([(8, 3), (8, 2), (8, 1)], [2, 1, 0]),
        ([(8, 1), (8, 2), (8, 1)], [2, 0, 1]),
        ([(8, 7), (8, 7), (8, 7)], [2, 1, 0]),
    ];
    for (works, order) in cases {
        let mut world = World::new(20);
        let top = world.queue(1, |_| {});
        let queues = [world.queue(3, below(top)), world.queue(2, below(top)), top];
        let mut pods = Vec::new();
        for (queue, (created, root)) in queues.into_iter().zip(works) {
            let group = world.group(queue, |group| group.root = Uid(root));
            pods.push(world.pod(group, |pod| pod.created = created));
        }
        assert_eq!(world.decide(), order.map(|index: usize| pods[index]), "{works:?}");
    }
}

#[test]
fn a_cut_gang_stands_first_in_a_strict_line_whatever_its_priority() {
    let mut world = World::new(3);
    let queue = world.queue(1, |q| q.order = Order::Strict);
    let gang = world.group(queue, |group| group.gang = Gang::AtLeast(2));
    world.pod(gang, |pod| pod.state = RUNS);
    let lacking = world.pod(gang, |pod| pod.cost = cost(3));
    let group = world.group(queue, |_| {});
    let urgent = world.pod(group, |pod| pod.priority = 9);
    assert_eq!(world.decide(), []);
    world.see(lacking, PodState::Dropped);
    assert_eq!(world.decide(), [urgent]);
}

#[test]
fn the_head_of_a_queue_is_that_of_its_child_of_the_lowest_share() {
    let mut world = World::new(20);
    let top = world.queue(1, |_| {});
    let (rich, poor) = (world.queue(2, below(top)), world.queue(3, below(top)));
    let other = world.queue(4, |_| {});
    world.running(rich, 2);
    world.running(other, 2);
    let old = world.single(rich, 1);
    let middle = world.single(other, 1);
    let young = world.single(poor, 1);
    assert_eq!(world.decide(), [middle, young, old]);
}

#[test]
fn the_age_of_a_queue_is_that_of_its_first_offer_whether_it_fits_or_not() {
    let mut world = World::new(10);
    let (a, b) = (world.queue(1, |_| {}), world.queue(2, |_| {}));
    world.single(a, 9);
    let (between, behind) = (world.single(b, 1), world.single(a, 1));
    world.running(QueueId(99), 5);
    assert_eq!(world.decide(), [behind, between]);
}

#[test]
fn a_line_goes_by_priority_of_the_first_pod_then_by_age_of_the_oldest() {
    let mut world = World::new(10);
    let queue = world.queue(1, |_| {});
    let group = world.group(queue, |_| {});
    let low = world.pod(group, |_| {});
    let high = world.pod(group, |pod| (pod.priority, pod.created) = (1, 9));
    let other = world.group(queue, |_| {});
    let middle = world.pod(other, |pod| (pod.priority, pod.created) = (1, 4));
    assert_eq!(world.decide(), [high, middle, low]);
}

#[test]
fn a_gang_that_has_not_begun_offers_its_first_pods_and_no_others() {
    let mut world = World::new(10);
    let queue = world.queue(1, |_| {});
    world.running(queue, 5);
    let group = world.group(queue, |group| group.gang = Gang::AtLeast(2));
    let large = world.pod(group, |pod| pod.cost = cost(5));
    let [small, last] = [(); 2].map(|()| world.pod(group, |_| {}));
    assert_eq!(world.decide(), []);
    world.node(1, [(CPU, 12), (PODS, 100)].into_iter().collect());
    assert_eq!(world.decide(), [large, small, last]);
}

#[test]
fn a_gang_of_one_offers_one_pod_of_each_cost_like_units() {
    for gang in [Gang::Units, Gang::AtLeast(0), Gang::AtLeast(1)] {
        let mut world = World::new(10);
        let queue = world.queue(1, |_| {});
        world.running(queue, 7);
        let group = world.group(queue, |group| group.gang = gang);
        world.pod(group, |pod| pod.cost = cost(4));
        let small = world.pod(group, |_| {});
        assert_eq!(world.decide(), [small], "{gang:?}");
    }
}

#[test]
fn of_one_group_pods_of_32_costs_are_offered_at_a_time() {
    let mut world = World::new(1000);
    let queue = world.queue(1, |_| {});
    world.running(queue, 900);
    let group = world.group(queue, |_| {});
    for units in 0..31 {
        world.pod(group, |pod| pod.cost = cost(200 + units));
    }
    world.pod(group, |pod| pod.cost = cost(200));
    let fits = world.pod(group, |_| {});
    assert_eq!(world.clone().decide(), [fits]);
    world.pod(group, |pod| (pod.cost, pod.priority) = (cost(300), 1));
    assert_eq!(world.decide(), []);
}

#[test]
fn entitlements_are_whole_multiples_of_a_power_of_two_near_a_millionth() {
    let mut world = World::new(7 << 20);
    let queues = [1, 2].map(|id| world.queue(id, |_| {}));
    for queue in queues {
        world.single(queue, 7 << 20);
    }
    world.running(QueueId(99), 2);
    let entitled = queues.map(|queue| world.entitled(Spot::Queue(queue), CPU));
    assert_eq!(entitled, [Some((7 << 19) - 4); 2], "4 is at most (7 << 20) - 2 >> 20");
}

#[test]
fn on_a_large_fleet_little_is_no_trifle_to_who_asks_for_it_or_is_guaranteed_it() {
    let mut world = World::new(7 << 20);
    let above = world.queue(1, |_| {});
    let asks = world.queue(2, |queue| queue.parent = Some(above));
    let given = world.queue(3, |queue| queue.guaranteed = cpu(6));
    let heavy = world.queue(4, |queue| queue.weight = u32::MAX);
    world.single(asks, 3);
    world.single(given, 7 << 20);
    world.single(heavy, 7 << 20);
    let entitled = |world: &World, queue| world.entitled(Spot::Queue(queue), CPU);
    assert_eq!(entitled(&world, given), Some(6), "4 is at most 7 << 20 >> 20");
    assert_eq!(entitled(&world, heavy), Some((7 << 20) - 8), "not all of 7 << 20 less 6 and a bit");
    world.queue(1, |queue| queue.weight = u32::MAX);
    assert_eq!([above, asks].map(|queue| entitled(&world, queue)), [Some(3); 2]);
    world.single(asks, 3);
    world.queue(1, |queue| (queue.weight, queue.limit) = (u32::MAX, cpu(5)));
    assert_eq!([above, asks].map(|queue| entitled(&world, queue)), [Some(5); 2]);
}

#[test]
fn a_gang_is_not_cut_by_the_budget() {
    let mut world = World::new(10);
    let queue = world.queue(1, |_| {});
    let gang = world.gang(queue, 3);
    world.single(queue, 1);
    let decisions = world.reference.decide(1).started;
    let told: Vec<_> = decisions.iter().map(|one| (one.number, one.pod, one.size)).collect();
    assert_eq!(told, [(1, gang[0], 3), (2, gang[1], 3), (3, gang[2], 3)]);
}

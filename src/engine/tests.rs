//! What the core decides, case by case, and what holds whatever happens.

use proptest::prelude::*;

use super::event::{
    Event, GroupConfig, NodeConfig, Outcome, Pause, PodConfig, QueueConfig, Trouble, Used,
};
use super::*;

mod absurd;
mod demand;
mod fairness;
mod history;
mod on_its_way;
mod oracle;
mod placements;
mod preemption;
mod reservations;

const CPU: ResourceId = ResourceId::CPU;
const MEMORY: ResourceId = ResourceId::MEMORY;
const PODS: ResourceId = ResourceId::PODS;
const GPU: ResourceId = ResourceId(9);
const HERE: ClusterId = ClusterId(0);
const BUDGET: usize = 10_000;

fn cpu(units: i128) -> Vector {
    [(CPU, units)].into_iter().collect()
}

fn cost(units: i128) -> Vector {
    [(CPU, units), (PODS, 1)].into_iter().collect()
}

/// A node that is ready and not cordoned.
fn usable(allocatable: Vector) -> NodeConfig {
    NodeConfig {
        cluster: HERE,
        allocatable,
        ready: true,
        schedulable: true,
        ..NodeConfig::default()
    }
}

/// A small world with one node and names that are numbers.
struct World {
    engine: Engine,
    next: u128,
}

impl World {
    /// One node with this much CPU.
    fn new(node: i128) -> Self {
        let mut world = Self { engine: Engine::default(), next: 0 };
        world.node(1, node);
        world.apply(Event::Synced(HERE));
        world
    }

    fn apply(&mut self, event: Event) {
        let now = self.engine.now;
        self.engine.apply(now, event);
        self.engine.settle();
    }

    fn node(&mut self, id: u32, units: i128) {
        let allocatable = [(CPU, units), (PODS, 110)].into_iter().collect();
        let config = usable(allocatable);
        self.apply(Event::NodeChanged(NodeId(id), config));
    }

    fn queue(&mut self, id: u32, change: impl FnOnce(&mut QueueConfig)) -> QueueId {
        let mut config = QueueConfig { weight: 1, ..QueueConfig::default() };
        change(&mut config);
        self.apply(Event::QueueChanged(QueueId(id), config));
        QueueId(id)
    }

    fn group(&mut self, id: u64, queue: Assignment, gang: Gang) -> GroupId {
        let root = Uid(u128::from(id));
        let config = GroupConfig {
            cluster: HERE,
            root,
            queue,
            gang,
            singleton: None,
            non_preemptible: false,
            topology: None,
        };
        self.apply(Event::GroupChanged(GroupId(id), config));
        GroupId(id)
    }

    fn pod(&mut self, group: GroupId, change: impl FnOnce(&mut PodConfig)) -> PodId {
        self.next += 1;
        let created = i64::try_from(self.next).unwrap();
        let mut config = PodConfig {
            group,
            cost: cost(1000),
            priority: 0,
            created,
            started: None,
            never_preempts: false,
            state: PodState::Gated,
        };
        change(&mut config);
        self.apply(Event::PodChanged(Uid(self.next), config));
        Uid(self.next)
    }

    /// One pod that is a group of its own.
    fn single(&mut self, queue: QueueId, change: impl FnOnce(&mut PodConfig)) -> PodId {
        let id = u64::try_from(self.next + 1).unwrap() + 1_000_000;
        let group = self.group(id, Assignment::Queue(queue), Gang::Units);
        self.pod(group, change)
    }

    fn decide(&mut self) -> Vec<PodId> {
        self.engine.decide(BUDGET).started.into_iter().map(|decision| decision.pod).collect()
    }

    fn see(&mut self, pod: PodId, state: PodState) {
        let config = PodConfig { state, ..self.told(pod) };
        self.apply(Event::PodChanged(pod, config));
    }

    fn reason(&self, pod: PodId) -> Option<Reason> {
        self.engine.reason(self.engine.group_of(pod)?)
    }

    /// What was told of a pod last.
    fn told(&self, id: PodId) -> PodConfig {
        self.engine.told_of(self.engine.slot_of(id).unwrap())
    }

    /// CPU that a queue and those below it are charged.
    fn usage(&self, queue: QueueId) -> i128 {
        let queues = self.engine.queues();
        queues.iter().find(|summary| summary.id == queue).map_or(0, |queue| queue.usage.get(CPU))
    }

    fn code(&self, pod: PodId) -> &'static str {
        self.reason(pod).map_or("-", |reason| reason.code())
    }
}

fn bound(node: u32) -> PodState {
    PodState::Bound { node: NodeId(node), terminating: false }
}

#[test]
fn pods_start_until_the_limit_is_exactly_full_and_the_reason_says_how_much_is_missing() {
    let mut world = World::new(100_000);
    let queue = world.queue(1, |q| q.limit = cpu(899));
    let pods = [300, 200, 400].map(|units| world.single(queue, |pod| pod.cost = cost(units)));
    assert_eq!(world.decide(), pods[..2]);
    let Some(Reason::QueueLimit(shortage, at)) = world.reason(pods[2]) else { panic!() };
    assert_eq!((shortage.missing(), shortage.used, shortage.most, at), (1, 500, 899, queue));
    world.queue(1, |q| q.limit = cpu(900));
    assert_eq!(world.decide(), pods[2..]);
}

#[test]
fn without_a_node_that_is_ready_and_schedulable_that_is_the_reason() {
    let mut world = World { engine: Engine::default(), next: 0 };
    world.apply(Event::Synced(HERE));
    let queue = world.queue(1, |_| {});
    let pod = world.single(queue, |_| {});
    let reason = |world: &mut World| {
        assert_eq!(world.decide(), []);
        world.reason(pod)
    };
    assert_eq!(reason(&mut world), Some(Reason::NoUsableNode(0)));
    let allocatable: Vector = [(CPU, 4000), (PODS, 1)].into_iter().collect();
    for (id, ready, schedulable) in [(1, false, true), (2, true, false)] {
        let allocatable = allocatable.clone();
        let config =
            NodeConfig { cluster: HERE, allocatable, ready, schedulable, ..NodeConfig::default() };
        world.apply(Event::NodeChanged(NodeId(id), config));
    }
    assert_eq!(reason(&mut world), Some(Reason::NoUsableNode(2)));
    world.apply(Event::NodeRemoved(NodeId(2)));
    assert_eq!(reason(&mut world), Some(Reason::NoUsableNode(1)));
    let config = usable(allocatable);
    world.apply(Event::NodeChanged(NodeId(1), config));
    world.apply(Event::ForeignChanged(NodeId(1), [(PODS, 1)].into_iter().collect()));
    let Some(Reason::Capacity(shortage)) = reason(&mut world) else { panic!("there is a node") };
    assert_eq!((shortage.resource, shortage.most), (PODS, 0));
}

#[test]
fn what_a_begun_gang_lacks_of_its_size_goes_before_anything_else() {
    let mut world = World::new(4000);
    let parent = world.queue(1, |_| {});
    let child = |q: &mut QueueConfig| q.parent = Some(parent);
    let (queue, poor) = (world.queue(2, child), world.queue(3, child));
    let gang = world.group(1, Assignment::Queue(queue), Gang::AtLeast(3));
    world.pod(gang, |pod| pod.state = PodState::Released { held: false });
    let lacking = [world.pod(gang, |_| {}), world.pod(gang, |_| {})];
    let beyond = world.pod(gang, |_| {});
    let urgent = world.single(queue, |pod| pod.priority = 9);
    let other = world.single(poor, |_| {});
    assert_eq!(world.decide(), [lacking[0], lacking[1], other]);
    assert_eq!((world.code(urgent), world.code(beyond)), ("Capacity", "Capacity"));
    world.see(other, PodState::Ended);
    assert_eq!(world.decide(), [urgent], "a whole gang has no such right");
}

#[test]
fn behind_a_pod_that_is_refused_a_smaller_one_of_its_group_still_goes() {
    let mut world = World::new(100_000);
    let queue = world.queue(1, |q| q.limit = cpu(2500));
    let group = world.group(1, Assignment::Queue(queue), Gang::Units);
    let pods = [2000, 2000, 500].map(|units| world.pod(group, |pod| pod.cost = cost(units)));
    assert_eq!(world.decide(), [pods[0], pods[2]]);
    world.see(pods[0], PodState::Ended);
    assert_eq!(world.decide(), [pods[1]]);
}

#[test]
fn only_the_first_decision_about_a_group_is_its_first() {
    let mut world = World::new(100_000);
    let queue = world.queue(1, |_| {});
    let new = world.group(1, Assignment::Queue(queue), Gang::Units);
    let old = world.group(2, Assignment::Queue(queue), Gang::Units);
    world.pod(old, |pod| pod.state = PodState::Ended);
    for group in [new, new, old] {
        world.pod(group, |_| {});
    }
    let decisions = world.engine.decide(BUDGET).started;
    let first: Vec<_> = decisions.iter().map(|one| (one.group, one.first)).collect();
    assert_eq!(first, [(new, true), (new, false), (old, false)]);
}

#[test]
fn a_pod_is_charged_from_the_decision_until_it_has_ended() {
    let mut world = World::new(100_000);
    let queue = world.queue(1, |q| q.limit = cpu(1000));
    let first = world.single(queue, |_| {});
    let second = world.single(queue, |_| {});
    assert_eq!(world.decide(), [first]);
    for state in [PodState::Gated, PodState::Released { held: true }, bound(1)] {
        world.see(first, state);
        assert_eq!(world.decide(), [], "{state:?}");
    }
    world.see(first, PodState::Ended);
    assert_eq!(world.decide(), [second]);
}

#[test]
fn a_late_watch_event_that_still_shows_the_gate_does_not_release_twice() {
    let mut world = World::new(100_000);
    let queue = world.queue(1, |_| {});
    let pod = world.single(queue, |_| {});
    assert_eq!(world.decide(), [pod]);
    world.apply(Event::Outcome(pod, Outcome::Released));
    world.see(pod, PodState::Gated);
    assert_eq!(world.decide(), []);
}

#[test]
fn while_releases_are_paused_nothing_is_decided_and_what_was_decided_says_so_too() {
    let mut world = World::new(100_000);
    let queue = world.queue(1, |q| q.limit = cpu(2000));
    let pause = Pause { since: 3_000, cause: Trouble::NoAnswer };
    let why = Some(Reason::ReleasesPaused(pause));
    let (sent, open) = (world.single(queue, |_| {}), world.single(queue, |_| {}));
    assert_eq!(world.decide(), [sent, open]);
    world.apply(Event::Outcome(open, Outcome::Released));
    world.apply(Event::Paused(HERE, pause));
    world.see(open, PodState::Ended);
    let waits = world.single(queue, |_| {});
    assert_eq!(world.decide(), []);
    assert_eq!([sent, open, waits].map(|pod| world.reason(pod)), [why, None, why]);
    world.apply(Event::Resumed(HERE));
    assert_eq!((world.reason(sent), world.decide()), (None, vec![waits]));
}

#[test]
fn what_would_wait_anyhow_says_that_and_not_that_releases_are_paused() {
    let mut world = World::new(100_000);
    let held = world.queue(1, |q| q.hold = true);
    let pod = world.single(held, |_| {});
    world.apply(Event::Paused(HERE, Pause { since: 0, cause: Trouble::StoreFull }));
    assert_eq!((world.decide(), world.code(pod)), (vec![], "QueueStopped"));
}

#[test]
fn a_refused_release_gives_its_room_back_and_is_tried_again_later() {
    let mut world = World::new(100_000);
    let queue = world.queue(1, |q| q.limit = cpu(1000));
    let first = world.single(queue, |_| {});
    let second = world.single(queue, |_| {});
    assert_eq!(world.decide(), [first]);
    world.apply(Event::Outcome(first, Outcome::Refused { retry_at: 5_000 }));
    assert_eq!(world.decide(), [second]);
    assert_eq!(world.reason(first), Some(Reason::ReleaseRefused { retry_at: 5_000 }));
    world.see(second, PodState::Ended);
    assert_eq!(world.decide(), []);
    assert!(world.engine.tick(5_000));
    assert_eq!(world.decide(), [first]);
}

#[test]
fn a_pod_told_before_its_group_waits_for_it_and_is_not_lost() {
    let mut world = World::new(100_000);
    let queue = world.queue(1, |_| {});
    let pod = world.pod(GroupId(1), |_| {});
    assert_eq!(world.decide(), []);
    assert_eq!(world.code(pod), "ResolvingOwners");
    world.group(1, Assignment::Queue(queue), Gang::Units);
    assert_eq!(world.decide(), [pod]);
}

#[test]
fn a_pod_that_was_gone_frees_its_room_and_its_group_lives_on() {
    let mut world = World::new(100_000);
    let queue = world.queue(1, |q| q.limit = cpu(1000));
    let group = world.group(1, Assignment::Queue(queue), Gang::Units);
    let first = world.pod(group, |_| {});
    assert_eq!(world.decide(), [first]);
    world.apply(Event::Outcome(first, Outcome::Gone));
    let replacement = world.pod(group, |_| {});
    assert_eq!(world.decide(), [replacement]);
    world.apply(Event::PodRemoved(first));
    assert_eq!(world.engine.groups.len(), 1);
}

#[test]
fn what_runs_in_a_queue_it_may_not_use_is_still_charged_there() {
    let mut world = World::new(100_000);
    let queue = world.queue(1, |q| q.limit = cpu(1000));
    let forbidden = Assignment::Forbidden(queue, Forbidden::Namespace);
    let group = world.group(1, forbidden, Gang::Units);
    world.pod(group, |pod| pod.state = bound(1));
    let waits = world.single(queue, |_| {});
    assert_eq!(world.decide(), []);
    assert_eq!(world.code(waits), "QueueLimit");
}

#[test]
fn priority_goes_first_then_age_then_uid() {
    let mut world = World::new(100_000);
    let queue = world.queue(1, |q| q.limit = cpu(0));
    let late = world.single(queue, |pod| pod.created = 20);
    let early = world.single(queue, |pod| pod.created = 10);
    let same = world.single(queue, |pod| pod.created = 10);
    let urgent = world.single(queue, |pod| (pod.created, pod.priority) = (30, 5));
    world.decide();
    world.queue(1, |_| {});
    assert_eq!(world.decide(), [urgent, early, same, late]);
}

#[test]
fn best_effort_lets_small_work_pass_and_strict_does_not() {
    for (order, passes) in [(Order::BestEffort, true), (Order::Strict, false)] {
        let mut world = World::new(100_000);
        let queue = world.queue(1, |q| (q.limit, q.order) = (cpu(2000), order));
        let running = world.single(queue, |_| {});
        world.decide();
        let large = world.single(queue, |pod| pod.cost = cost(2000));
        let small = world.single(queue, |_| {});
        assert_eq!(world.decide().contains(&small), passes);
        assert_eq!(world.code(large), "QueueLimit");
        if !passes {
            assert_eq!(world.code(small), "BehindInStrictQueue");
        }
        world.see(running, PodState::Ended);
        assert_eq!(world.decide(), if passes { vec![] } else { vec![large] });
    }
}

#[test]
fn work_that_can_never_fit_does_not_stop_a_strict_queue() {
    let mut world = World::new(4000);
    let queue = world.queue(1, |q| (q.limit, q.order) = (cpu(8000), Order::Strict));
    let wide = world.single(queue, |pod| pod.cost = cost(5000));
    let wider = world.single(queue, |pod| pod.cost = cost(9000));
    let small = world.single(queue, |_| {});
    assert_eq!(world.decide(), [small]);
    assert_eq!(world.code(wide), "LargerThanAnyNode");
    assert_eq!(world.code(wider), "LargerThanQueue");
}

#[test]
fn a_resource_the_queue_does_not_mention_is_not_limited_and_zero_is_a_real_limit() {
    let mut world = World::new(4000);
    let allocatable = [(CPU, 4000), (GPU, 8), (MEMORY, 1 << 40), (PODS, 110)];
    world.apply(Event::NodeChanged(NodeId(2), usable(allocatable.into_iter().collect())));
    let asks = [(CPU, 1000), (GPU, 1), (MEMORY, 1 << 36), (PODS, 1)];
    let free = world.queue(1, |q| q.limit = cpu(4000));
    let none = world.queue(2, |q| q.limit = [(GPU, 0)].into_iter().collect());
    let runs = world.single(free, |pod| pod.cost = asks.into_iter().collect());
    let waits = world.single(none, |pod| pod.cost = asks.into_iter().collect());
    let plain = world.single(none, |_| {});
    assert_eq!(world.decide(), [runs, plain]);
    assert_eq!(world.code(waits), "LargerThanQueue");
    // The GPU node goes while its pod is charged: only who asks a GPU waits.
    world.see(runs, bound(2));
    world.apply(Event::NodeRemoved(NodeId(2)));
    let later = world.single(free, |_| {});
    let asker = world.single(free, |pod| pod.cost = asks.into_iter().collect());
    assert_eq!(world.decide(), [later]);
    assert_eq!(world.code(asker), "LargerThanAnyNode");
}

#[test]
fn the_sibling_with_the_lowest_share_by_weight_goes_next() {
    let mut world = World::new(12_000);
    let heavy = world.queue(1, |q| q.weight = 3);
    let light = world.queue(2, |_| {});
    for _ in 0..12 {
        world.single(light, |_| {});
    }
    for _ in 0..12 {
        world.single(heavy, |_| {});
    }
    assert_eq!(world.decide().len(), 12);
    let usage = |queue| world.usage(queue);
    assert_eq!((usage(heavy), usage(light)), (9000, 3000));
}

#[test]
fn shares_are_taken_level_by_level() {
    let mut world = World::new(12_000);
    world.queue(1, |_| {});
    world.queue(2, |_| {});
    let leaves = [(11, 1), (12, 1), (13, 1), (21, 2)]
        .map(|(id, parent)| world.queue(id, |q| q.parent = Some(QueueId(parent))));
    for _ in 0..12 {
        for leaf in leaves {
            world.single(leaf, |_| {});
        }
    }
    world.decide();
    let usage = leaves.map(|leaf| world.usage(leaf));
    assert_eq!(usage, [2000, 2000, 2000, 6000]);
}

#[test]
fn a_queue_within_its_guarantee_goes_before_one_that_borrows() {
    let mut world = World::new(8000);
    let own = world.queue(1, |q| q.guaranteed = cpu(6000));
    let borrower = world.queue(2, |q| q.weight = 1_000_000);
    for _ in 0..8 {
        world.single(borrower, |_| {});
        world.single(own, |_| {});
    }
    world.decide();
    assert_eq!(world.usage(own), 6000);
    assert_eq!(world.usage(borrower), 2000);
}

#[test]
fn a_limit_above_holds_for_the_sum_of_those_below() {
    let mut world = World::new(100_000);
    let top = world.queue(1, |q| q.limit = cpu(2000));
    let [a, b] = [2, 3].map(|id| world.queue(id, |q| q.parent = Some(top)));
    let pods = [a, b, a].map(|queue| world.single(queue, |_| {}));
    assert_eq!(world.decide(), pods[..2]);
    let Some(Reason::QueueLimit(_, at)) = world.reason(pods[2]) else { panic!() };
    assert_eq!(at, top);
}

#[test]
fn a_gang_starts_whole_or_not_at_all_and_grows_pod_by_pod() {
    let mut world = World::new(3000);
    let queue = world.queue(1, |_| {});
    let group = world.group(1, Assignment::Queue(queue), Gang::AtLeast(3));
    let mut members = vec![world.pod(group, |_| {}), world.pod(group, |_| {})];
    assert_eq!(world.decide(), []);
    assert_eq!(world.reason(members[0]), Some(Reason::WaitingForMembers { have: 2, need: 3 }));
    let other = world.single(queue, |_| {});
    assert_eq!(world.decide(), [other]);
    members.push(world.pod(group, |_| {}));
    assert_eq!(world.decide(), []);
    assert_eq!(world.code(members[0]), "Capacity");
    world.see(other, PodState::Ended);
    assert_eq!(world.decide(), members);
    let grown = world.pod(group, |_| {});
    assert_eq!(world.decide(), []);
    world.node(1, 4000);
    assert_eq!(world.decide(), [grown]);
}

#[test]
fn a_gang_whose_first_members_do_not_fit_does_not_start_with_its_last() {
    let mut world = World::new(100_000);
    let queue = world.queue(1, |q| q.limit = cpu(2000));
    let group = world.group(1, Assignment::Queue(queue), Gang::AtLeast(2));
    let large = world.pod(group, |pod| (pod.cost, pod.priority) = (cost(2000), 1));
    let small = [(); 2].map(|()| world.pod(group, |pod| pod.cost = cost(100)));
    assert_eq!(world.decide(), []);
    assert_eq!(world.code(large), "LargerThanQueue");
    world.queue(1, |q| q.limit = cpu(2100));
    assert_eq!(world.decide(), [large, small[0]]);
}

#[test]
fn all_of_a_group_waits_until_arrivals_are_quiet() {
    let mut world = World::new(3000);
    let queue = world.queue(1, |_| {});
    world.engine.tick(10_000);
    let group = world.group(1, Assignment::Queue(queue), Gang::All);
    let first = world.pod(group, |_| {});
    assert_eq!(world.decide(), []);
    assert_eq!(world.reason(first), Some(Reason::Settling { until: 12_000 }));
    world.engine.tick(11_000);
    let second = world.pod(group, |_| {});
    assert!(!world.engine.tick(12_999) || world.decide().is_empty());
    assert!(world.engine.tick(13_000));
    assert_eq!(world.decide(), [first, second]);
}

#[test]
fn work_without_a_usable_queue_waits_with_a_reason_and_holds_nobody_up() {
    let mut world = World::new(3000);
    let held = world.queue(1, |q| q.hold = true);
    let broken = world.queue(2, |q| q.malformed = true);
    let open = world.queue(3, |_| {});
    let cases = [
        (Assignment::Unresolved, "ResolvingOwners"),
        (Assignment::Unnamed, "NoQueue"),
        (Assignment::Queue(QueueId(99)), "UnknownQueue"),
        (Assignment::Forbidden(QueueId(99), Forbidden::Namespace), "UnknownQueue"),
        (Assignment::Forbidden(open, Forbidden::Namespace), "NamespaceNotAllowed"),
        (Assignment::Forbidden(open, Forbidden::PriorityClass), "PriorityClassNotAllowed"),
        (Assignment::Queue(held), "QueueStopped"),
        (Assignment::Queue(broken), "QueueInvalid"),
    ];
    let mut waiting = Vec::new();
    for (id, (assignment, code)) in (1..).zip(cases) {
        let group = world.group(id, assignment, Gang::Units);
        waiting.push((world.pod(group, |_| {}), code));
    }
    let runs = world.single(open, |_| {});
    assert_eq!(world.decide(), [runs]);
    for (pod, code) in waiting {
        assert_eq!(world.code(pod), code);
    }
}

#[test]
fn a_queue_that_comes_back_still_knows_what_it_runs() {
    let mut world = World::new(100_000);
    let queue = world.queue(1, |q| q.limit = cpu(1000));
    let first = world.single(queue, |_| {});
    world.decide();
    let second = world.single(queue, |_| {});
    world.apply(Event::QueueRemoved(queue));
    assert_eq!(world.decide(), []);
    assert_eq!(world.code(second), "UnknownQueue");
    world.queue(1, |q| q.limit = cpu(1000));
    assert_eq!(world.decide(), []);
    assert_eq!(world.code(second), "QueueLimit");
    world.apply(Event::PodRemoved(first));
    assert_eq!(world.decide(), [second]);
}

#[test]
fn a_limit_below_what_runs_stops_new_work_and_nothing_goes_negative() {
    let mut world = World::new(100_000);
    let queue = world.queue(1, |_| {});
    let running = [(); 3].map(|()| world.single(queue, |_| {}));
    world.decide();
    world.queue(1, |q| q.limit = cpu(1000));
    let late = world.single(queue, |pod| pod.cost = cost(500));
    assert_eq!(world.decide(), []);
    for pod in &running[..2] {
        world.see(*pod, PodState::Ended);
        assert_eq!(world.decide(), []);
    }
    world.see(running[2], PodState::Ended);
    assert_eq!(world.decide(), [late]);
}

#[test]
fn of_what_is_used_beyond_what_there_is_only_who_asks_for_it_waits() {
    let mut world = World::new(0);
    let node = |gpus: i128| {
        let allocatable = [(CPU, 4000), (GPU, gpus), (PODS, 110)].into_iter().collect();
        let config = usable(allocatable);
        Event::NodeChanged(NodeId(1), config)
    };
    let gpus = |gpus: i128| [(CPU, 1000), (GPU, gpus), (PODS, 1)].into_iter().collect();
    world.apply(node(4));
    let queue = world.queue(1, |queue| queue.limit = cpu(4000));
    let runs = world.single(queue, |pod| pod.cost = gpus(4));
    assert_eq!(world.decide(), [runs]);
    world.see(runs, bound(1));
    // The node stays, its devices are lost.
    world.apply(node(1));
    let asks = world.single(queue, |pod| pod.cost = gpus(1));
    let plain = world.single(queue, |_| {});
    assert_eq!(world.decide(), [plain]);
    assert_eq!(world.code(asks), "Capacity");
}

#[test]
fn beside_a_queue_above_its_limit_others_share_what_is_free_and_no_more() {
    let mut world = World::new(100_000);
    let parent = world.queue(1, |queue| queue.limit = cpu(4000));
    let over = world.queue(2, |queue| queue.parent = Some(parent));
    let beside = world.queue(3, |queue| queue.parent = Some(parent));
    for _ in 0..3 {
        world.single(over, |_| {});
    }
    assert_eq!(world.decide().len(), 3);
    world.queue(2, |queue| {
        (queue.parent, queue.limit) = (Some(parent), cpu(1000));
    });
    for _ in 0..8 {
        world.single(beside, |_| {});
    }
    assert_eq!(world.decide().len(), 1);
    assert_eq!((world.usage(over), world.usage(beside)), (3000, 1000));
}

#[test]
fn foreign_requests_and_cordoned_nodes_take_from_what_is_shared() {
    let mut world = World::new(4000);
    let queue = world.queue(1, |_| {});
    world.apply(Event::ForeignChanged(NodeId(1), cpu(3000)));
    let first = world.single(queue, |_| {});
    let second = world.single(queue, |_| {});
    assert_eq!(world.decide(), [first]);
    assert_eq!(world.code(second), "Capacity");
    // What runs on a cordoned node takes nothing from the nodes that are left.
    world.see(first, bound(1));
    let allocatable = [(CPU, 4000), (PODS, 110)].into_iter().collect();
    let cordoned = NodeConfig {
        cluster: HERE,
        allocatable,
        ready: true,
        schedulable: false,
        ..NodeConfig::default()
    };
    world.apply(Event::NodeChanged(NodeId(1), cordoned));
    world.node(2, 1000);
    assert_eq!(world.decide(), [second]);
}

#[test]
fn a_pod_being_deleted_on_a_dead_node_no_longer_blocks_its_replacement() {
    let mut world = World::new(4000);
    world.node(2, 4000);
    let queue = world.queue(1, |q| q.limit = cpu(1000));
    let old = world.single(queue, |_| {});
    world.decide();
    let terminating = PodState::Bound { node: NodeId(1), terminating: true };
    world.see(old, terminating);
    let new = world.single(queue, |_| {});
    assert_eq!(world.decide(), [], "its node answers: still charged");
    let allocatable = [(CPU, 4000), (PODS, 110)].into_iter().collect();
    let dead = NodeConfig {
        cluster: HERE,
        allocatable,
        ready: false,
        schedulable: true,
        ..NodeConfig::default()
    };
    world.apply(Event::NodeChanged(NodeId(1), dead));
    assert_eq!(world.decide(), [new]);
}

#[test]
fn the_reason_is_that_of_the_last_round_wherever_in_the_line() {
    let mut world = World::new(100_000);
    let queue = world.queue(1, |q| q.limit = cpu(500));
    let pods = [1000, 2000, 3000].map(|units| world.single(queue, |pod| pod.cost = cost(units)));
    world.decide();
    assert_eq!(pods.map(|pod| world.code(pod)), ["LargerThanQueue"; 3]);
    world.queue(1, |q| q.limit = cpu(3000));
    world.single(queue, |pod| pod.priority = 1);
    world.decide();
    assert_eq!(pods.map(|pod| world.code(pod)), ["-", "QueueLimit", "QueueLimit"]);
    world.queue(1, |_| {});
    world.node(1, 2000);
    world.decide();
    assert_eq!(pods.map(|pod| world.code(pod)), ["-", "Capacity", "LargerThanAnyNode"]);
}

#[test]
fn nothing_starts_before_the_first_lists_are_in() {
    let mut world = World { engine: Engine::default(), next: 0 };
    world.node(1, 4000);
    let queue = world.queue(1, |_| {});
    let pod = world.single(queue, |_| {});
    assert_eq!(world.decide(), []);
    assert_eq!(world.code(pod), "ClusterNotSynced");
    world.apply(Event::Synced(HERE));
    assert_eq!(world.decide(), [pod]);
}

#[test]
fn a_budget_ends_the_round_and_the_next_one_goes_on() {
    let mut world = World::new(100_000);
    let queue = world.queue(1, |_| {});
    let pods: Vec<PodId> = (0..5).map(|_| world.single(queue, |_| {})).collect();
    let mut all = Vec::new();
    while world.engine.tick(0) {
        all.extend(world.engine.decide(2).started.into_iter().map(|decision| decision.pod));
    }
    assert_eq!(all, pods);
}

#[test]
fn any_amount_of_odd_work_that_does_not_fit_delays_nobody_else() {
    let mut world = World::new(10_000);
    let odd = world.queue(1, |q| (q.limit, q.guaranteed) = (cpu(100), cpu(10_000)));
    let plain = world.queue(2, |_| {});
    for units in 1..300 {
        world.single(odd, |pod| pod.cost = cost(100 + units));
    }
    let pod = world.single(plain, |_| {});
    let first_round: Vec<PodId> =
        world.engine.decide(1).started.into_iter().map(|d| d.pod).collect();
    assert_eq!(first_round, [pod]);
}

#[test]
fn a_gang_whose_every_release_was_refused_starts_whole_again_or_not_at_all() {
    let mut world = World::new(3000);
    let queue = world.queue(1, |_| {});
    let group = world.group(1, Assignment::Queue(queue), Gang::AtLeast(3));
    let members = [(); 3].map(|()| world.pod(group, |_| {}));
    assert_eq!(world.decide(), members);
    for member in members {
        world.apply(Event::Outcome(member, Outcome::Refused { retry_at: 5_000 }));
    }
    let other = world.single(queue, |_| {});
    assert_eq!(world.decide(), [other]);
    assert!(world.engine.tick(5_000));
    assert_eq!(world.decide(), [], "two of three would be torn");
    world.see(other, PodState::Ended);
    assert_eq!(world.decide(), members);
}

#[test]
fn a_member_that_was_refused_while_others_started_goes_alone() {
    let mut world = World::new(3000);
    let queue = world.queue(1, |_| {});
    let group = world.group(1, Assignment::Queue(queue), Gang::AtLeast(3));
    let members = [(); 3].map(|()| world.pod(group, |_| {}));
    world.decide();
    world.apply(Event::Outcome(members[0], Outcome::Refused { retry_at: 5_000 }));
    world.apply(Event::Outcome(members[1], Outcome::Gone));
    world.apply(Event::Outcome(members[2], Outcome::Released));
    assert!(world.engine.tick(5_000));
    assert_eq!(world.decide(), [members[0]]);
}

#[test]
fn a_member_that_is_deleted_while_it_waits_starts_no_gang() {
    let mut world = World::new(3000);
    let queue = world.queue(1, |_| {});
    let group = world.group(1, Assignment::Queue(queue), Gang::AtLeast(3));
    let members = [(); 2].map(|()| world.pod(group, |_| {}));
    world.see(members[0], PodState::Dropped);
    assert_eq!(world.decide(), []);
    assert_eq!(world.reason(members[1]), Some(Reason::WaitingForMembers { have: 1, need: 3 }));
}

#[test]
fn a_run_of_which_nothing_is_left_starts_whole_as_after_a_restart() {
    let mut world = World::new(2000);
    let queue = world.queue(1, |_| {});
    let group = world.group(1, Assignment::Queue(queue), Gang::AtLeast(2));
    let old = [(); 2].map(|()| world.pod(group, |_| {}));
    assert_eq!(world.decide(), old);
    let new = world.pod(group, |_| {});
    for pod in old {
        world.apply(Event::PodRemoved(pod));
    }
    assert_eq!(world.decide(), []);
    assert_eq!(world.code(new), "WaitingForMembers");
}

#[test]
fn nothing_is_kept_of_pods_that_ended_on_a_node() {
    let mut world = World::new(4000);
    let queue = world.queue(1, |_| {});
    let pod = world.single(queue, |_| {});
    world.decide();
    world.see(pod, bound(1));
    world.see(pod, PodState::Ended);
    world.apply(Event::PodRemoved(pod));
    world.apply(Event::NodeRemoved(NodeId(1)));
    assert!(world.engine.fleet.is_empty(), "{:?}", world.engine.fleet);
}

#[test]
fn an_outcome_that_finds_its_pod_listed_anew_opens_it_once() {
    let mut world = World::new(4000);
    let queue = world.queue(1, |q| q.limit = cpu(1000));
    let pod = world.single(queue, |_| {});
    assert_eq!(world.decide(), [pod]);
    let config = world.told(pod);
    let group =
        world.engine.groups[world.engine.group_slots.get(&config.group).unwrap()].config.clone();
    world.apply(Event::PodRemoved(pod));
    world.apply(Event::GroupChanged(config.group, group));
    world.apply(Event::PodChanged(pod, config));
    world.apply(Event::Outcome(pod, Outcome::Released));
    world.single(queue, |_| {});
    assert_eq!(world.decide(), []);
}

#[test]
fn a_pod_on_a_node_that_was_not_told_yet_stays_charged() {
    let mut world = World::new(4000);
    let queue = world.queue(1, |q| q.limit = cpu(1000));
    let pod = world.single(queue, |_| {});
    assert_eq!(world.decide(), [pod]);
    world.see(pod, bound(2));
    let next = world.single(queue, |_| {});
    assert_eq!(world.decide(), []);
    world.node(2, 4000);
    assert_eq!(world.decide(), []);
    world.apply(Event::NodeRemoved(NodeId(2)));
    assert_eq!(world.decide(), [next]);
    world.see(pod, PodState::Bound { node: NodeId(2), terminating: true });
    assert_eq!(world.usage(queue), 1000, "gone for good");
}

/// A random fleet: queues in a tree of two levels, pods with costs and priorities.
#[test]
fn a_rehearsal_charges_nothing_and_says_what_would_start_and_why_the_rest_waits() {
    let mut world = World::new(100_000);
    let queue = world.queue(1, |q| q.limit = cpu(500));
    let pods = [300, 200, 400].map(|units| world.single(queue, |pod| pod.cost = cost(units)));
    for _ in 0..2 {
        world.engine.rehearse(BUDGET);
        assert!(!world.engine.tick(0), "there is nothing to rehearse again");
        assert!(world.engine.load.is_zero());
        assert_eq!(pods.map(|pod| world.code(pod)), ["NextInLine", "NextInLine", "QueueLimit"]);
        world.apply(Event::Synced(HERE));
    }
    assert_eq!(world.decide(), pods[..2]);
    assert_eq!(world.engine.decided(), 2);
}

#[derive(Clone, Debug)]
struct Fleet {
    limits: Vec<Option<i128>>,
    pods: Vec<(usize, i128, i32, i64, u32)>,
    ends: Vec<prop::sample::Index>,
}

fn fleet() -> impl Strategy<Value = Fleet> {
    let limits = prop::collection::vec(prop::option::of(0i128..8000), 6);
    let pod = (0usize..6, 1i128..4000, 0i32..3, 0i64..50, 0u32..4);
    let pods = prop::collection::vec(pod, 1..40);
    let ends = prop::collection::vec(any::<prop::sample::Index>(), 0..40);
    (limits, pods, ends).prop_map(|(limits, pods, ends)| Fleet { limits, pods, ends })
}

fn populate(fleet: &Fleet, order: impl Iterator<Item = usize>) -> World {
    let mut world = World::new(10_000);
    for (id, limit) in (0u32..).zip(&fleet.limits) {
        world.queue(id, |q| {
            q.parent = (id >= 2).then_some(QueueId(id % 2));
            q.weight = id + 1;
            q.limit = limit.map(cpu).unwrap_or_default();
        });
    }
    for index in order {
        let (queue, units, priority, created, gang) = fleet.pods[index];
        let gang = if gang == 0 { Gang::Units } else { Gang::AtLeast(gang) };
        // Pods of one queue and gang size are one group.
        let key = u64::try_from(queue).unwrap() * 1000
            + match gang {
                Gang::AtLeast(n) => u64::from(n),
                _ => 100 + u64::try_from(index).unwrap(),
            };
        let assignment = Assignment::Queue(QueueId(u32::try_from(queue).unwrap()));
        let group = world.group(key, assignment, gang);
        let config = PodConfig {
            group,
            cost: cost(units),
            priority,
            created,
            started: None,
            never_preempts: false,
            state: PodState::Gated,
        };
        world.apply(Event::PodChanged(Uid(u128::try_from(index).unwrap()), config));
    }
    world
}

fn check_books(engine: &Engine) {
    let mut usage = std::collections::BTreeMap::<QueueId, i128>::new();
    let mut load = 0;
    for (_, pod) in engine.pods.iter() {
        let open = !pod.waits() && pod.state != PodState::Ended;
        if !open {
            continue;
        }
        let cost = engine.shapes.get(pod.shape).cost.get(CPU);
        load += cost;
        let Assignment::Queue(queue) = engine.groups[pod.group].config.queue else { continue };
        for above in engine.path(queue) {
            *usage.entry(above).or_default() += cost;
        }
    }
    let axis = engine.axes.of(CPU).unwrap();
    assert_eq!(engine.load.get(axis), load);
    for queue in engine.queues() {
        assert_eq!(queue.usage.get(CPU), usage.get(&queue.id).copied().unwrap_or(0), "{queue:?}");
    }
    assert!(load <= engine.capacity().get(CPU), "more is charged than there is");
    for (id, queue) in &engine.queues {
        if let Some(limit) = queue.limit.mentioned(CPU) {
            assert!(usage.get(id).copied().unwrap_or(0) <= limit, "over the limit of {id:?}");
        }
    }
}

proptest! {
    #[test]
    fn books_balance_limits_hold_and_gangs_start_whole(fleet in fleet()) {
        let mut world = populate(&fleet, 0..fleet.pods.len());
        for end in &fleet.ends {
            for decision in world.engine.decide(BUDGET).started {
                let slot = world.engine.group_slots.get(&decision.group).unwrap();
                if let Gang::AtLeast(need) = world.engine.groups[slot].config.gang {
                    let pods = world.engine.pods_of(slot).map(|pod| &world.engine.pods[pod]);
                    prop_assert!(pods.filter(|pod| !pod.waits()).count() >= need as usize);
                }
            }
            check_books(&world.engine);
            let pod = Uid(end.index(fleet.pods.len()) as u128);
            if !world.engine.waits(pod) {
                world.see(pod, PodState::Ended);
            }
        }
    }

    #[test]
    fn what_was_told_in_another_order_is_decided_in_the_same_order(
        fleet in fleet(), seed in any::<u64>()
    ) {
        let straight = populate(&fleet, 0..fleet.pods.len()).decide();
        let mut order: Vec<usize> = (0..fleet.pods.len()).collect();
        order.sort_by_key(|&index| (index as u64 + 1).wrapping_mul(seed | 1));
        prop_assert_eq!(populate(&fleet, order.into_iter()).decide(), straight);
    }

    #[test]
    fn after_a_rehearsal_the_same_is_decided(fleet in fleet(), budget in 1_usize..50) {
        let straight = populate(&fleet, 0..fleet.pods.len()).engine.decide(BUDGET);
        let mut world = populate(&fleet, 0..fleet.pods.len());
        world.engine.rehearse(budget);
        check_books(&world.engine);
        prop_assert_eq!(world.engine.decide(BUDGET), straight);
    }

    #[test]
    fn after_a_round_nothing_that_would_fit_is_left_waiting(fleet in fleet()) {
        let mut world = populate(&fleet, 0..fleet.pods.len());
        world.decide();
        prop_assert_eq!(world.decide(), []);
        let waits = |group: &GroupSummary| !group.waiting.is_empty();
        for GroupSummary { reason, .. } in world.engine.groups().filter(waits) {
            prop_assert!(!matches!(reason, None | Some(Reason::NextRound)), "{:?}", reason);
        }
    }
}

#[test]
fn a_backlog_is_full_at_its_most_and_open_again_when_a_tenth_has_gone() {
    let mut world = World::new(0);
    let parent = world.queue(1, |q| q.max_pending = Some(20));
    let queue = world.queue(2, |q| {
        q.parent = Some(parent);
        q.max_pending = Some(10);
    });
    let pods: Vec<_> = (0..10).map(|_| world.single(queue, |_| {})).collect();
    assert_eq!(world.engine.full().iter().copied().collect::<Vec<_>>(), [queue]);
    world.apply(Event::PodRemoved(pods[0]));
    assert_eq!((world.engine.pending(queue), world.engine.full().is_empty()), (9, true));
    let own: Vec<_> = (0..11).map(|_| world.single(parent, |_| {})).collect();
    assert_eq!(world.engine.full().iter().copied().collect::<Vec<_>>(), [parent]);
    world.apply(Event::PodRemoved(own[0]));
    assert_eq!(world.engine.full().len(), 1, "19 of 20 is too near");
    assert_eq!(world.engine.backlog(parent).count(), 19, "those below are named too");
    world.apply(Event::PodRemoved(pods[1]));
    assert!(world.engine.full().is_empty());
    world.queue(2, |q| q.max_pending = Some(3));
    assert_eq!(world.engine.full().len(), 1, "a lowered most counts at once");
    world.queue(2, |_| {});
    assert!(world.engine.full().is_empty(), "no most, never full");
}

#[test]
fn a_backlog_that_was_full_a_moment_ago_is_so_after_a_snapshot() {
    let mut world = World::new(0);
    let queue = world.queue(1, |q| q.max_pending = Some(20));
    let pods: Vec<PodId> = (0..20).map(|_| world.single(queue, |_| {})).collect();
    world.apply(Event::PodRemoved(pods[0]));
    let mut restored = world.engine.restored();
    restored.settle();
    assert_eq!((restored.pending(queue), restored.full().len()), (19, 1));
}

#[test]
fn a_gang_that_lacks_members_may_have_them_though_the_backlog_is_full() {
    let mut world = World::new(0);
    let queue = world.queue(1, |q| q.max_pending = Some(4));
    let [small, large] = [(1, 4), (2, 5)].map(|(id, need)| {
        let gang = world.group(id, Assignment::Queue(queue), Gang::AtLeast(need));
        [world.pod(gang, |_| {}), world.pod(gang, |_| {})]
    });
    assert_eq!(world.engine.full().len(), 1);
    let named: Vec<_> = world.engine.backlog(queue).collect();
    assert_eq!(named, large, "it can never be whole here; {small:?} can");
}

#[test]
fn a_gang_that_runs_grows_first_in_a_strict_queue_too_but_where_it_borrows() {
    for (guaranteed, expected) in [(4, [1, 2]), (2, [2, 1])] {
        let mut world = World::new(4000);
        let queue =
            world.queue(1, |q| (q.order, q.guaranteed) = (Order::Strict, cpu(guaranteed * 1000)));
        let other = world.queue(2, |q| q.guaranteed = cpu(2000));
        let runs = world.group(1, Assignment::Queue(queue), Gang::AtLeast(2));
        fairness::more(&mut world, runs, 2);
        assert_eq!(world.decide().len(), 2);
        let waits = world.group(3, Assignment::Queue(other), Gang::AtLeast(3));
        fairness::more(&mut world, waits, 3);
        let begins = world.group(2, Assignment::Queue(queue), Gang::Units);
        world.pod(begins, |_| {});
        world.pod(runs, |_| {});
        let started = world.engine.decide(BUDGET).started;
        assert_eq!(started.iter().map(|d| d.group.0).collect::<Vec<_>>(), expected);
    }
}

#[test]
fn of_what_is_no_gang_or_has_ended_nothing_grows() {
    let is_first = |gang, state| {
        let mut world = World::new(8000);
        let queue = world.queue(1, |_| {});
        let group = world.group(1, Assignment::Queue(queue), gang);
        let runs = world.pod(group, |_| {});
        world.decide();
        world.see(runs, state);
        let begins = world.single(queue, |_| {});
        world.pod(group, |_| {});
        world.decide()[0] != begins
    };
    for gang in [Gang::AtLeast(1), Gang::All] {
        assert!(is_first(gang, bound(1)) && !is_first(gang, PodState::Ended), "{gang:?}");
    }
    assert!(!is_first(Gang::Units, bound(1)));
}

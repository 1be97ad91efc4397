//! The examples of docs/fairness.md in which nodes are looked for.

use super::super::event::NodeConfig;
use super::super::model::{DomainId, Placement, TopologyId};
use super::preemption::{MINUTE, SECOND, later};
use super::*;

const ZONE: TopologyId = TopologyId(0);

fn node(world: &mut World, id: u32, amounts: &[(ResourceId, i128)], zone: u32) {
    let allocatable = amounts.iter().copied().chain([(PODS, 110)]).collect();
    let domains = vec![(ZONE, DomainId(zone))];
    let config = NodeConfig { cluster: HERE, allocatable, ready: true, schedulable: true, domains };
    world.apply(Event::NodeChanged(NodeId(id), config));
}

/// Nodes of so many CPUs, numbered from one, two to a zone.
fn nodes<const N: usize>(cpus: [i128; N]) -> World {
    let mut world = World { engine: Engine::default(), next: 0 };
    for (id, cpus) in (1..).zip(cpus) {
        node(&mut world, id, &[(CPU, cpus * 1000)], id.div_ceil(2));
    }
    world.apply(Event::Synced(HERE));
    world
}

fn planning(world: &mut World, placement: Placement) -> QueueId {
    world.queue(1, |queue| queue.placement = placement)
}

fn gang(world: &mut World, queue: QueueId, count: u32, cpus: i128, topology: bool) -> Vec<PodId> {
    world.next += 1;
    let id = GroupId(u64::try_from(world.next).unwrap());
    let config = GroupConfig {
        cluster: HERE,
        root: Uid(world.next),
        queue: Assignment::Queue(queue),
        gang: Gang::AtLeast(count),
        singleton: None,
        non_preemptible: false,
        topology: topology.then_some(ZONE),
    };
    world.apply(Event::GroupChanged(id, config));
    (0..count).map(|_| world.pod(id, |pod| pod.cost = cost(cpus * 1000))).collect()
}

/// Nodes and domains of what starts.
fn places(world: &mut World) -> Vec<(Option<u32>, Option<u32>)> {
    let started = world.engine.decide(BUDGET).started.into_iter();
    started.map(|at| (at.node.map(|node| node.0), at.domain.map(|domain| domain.0))).collect()
}

#[test]
fn what_fits_in_sum_waits_for_a_node_where_its_queue_looks_for_one() {
    let mut world = nodes([4, 4]);
    let queue = planning(&mut world, Placement::Node);
    for _ in 0..2 {
        world.single(queue, |pod| pod.cost = cost(3000));
    }
    assert_eq!(places(&mut world), [(Some(1), None), (Some(2), None)]);
    let third = world.single(queue, |pod| pod.cost = cost(2000));
    assert_eq!(places(&mut world), [], "one CPU is free on each");
    assert_eq!(world.reason(third), Some(Reason::NoNode { placed: 0, pods: 1 }));
    world.queue(1, |queue| queue.placement = Placement::Quota);
    assert_eq!(places(&mut world), [(None, None)], "two are in all");
}

#[test]
fn small_nodes_fill_first_and_scarce_resources_are_left_to_who_asks() {
    let mut world = nodes([16, 8]);
    node(&mut world, 3, &[(CPU, 4000), (GPU, 4)], 9);
    let queue = planning(&mut world, Placement::Node);
    world.single(queue, |pod| pod.cost = cost(2000));
    world.single(queue, |pod| pod.cost = cost(12_000));
    world.single(queue, |pod| {
        pod.cost = [(CPU, 1000), (GPU, 1), (PODS, 1)].into_iter().collect();
    });
    let mut nodes: Vec<u32> = places(&mut world).into_iter().filter_map(|at| at.0).collect();
    nodes.sort_unstable();
    assert_eq!(nodes, [1, 2, 3]);
}

#[test]
fn a_gang_runs_in_one_domain_the_one_with_the_least_room_that_holds_it() {
    let mut world = nodes([4, 4, 3, 3, 8, 8]);
    let queue = planning(&mut world, Placement::Domain);
    gang(&mut world, queue, 4, 2, true);
    let zones: Vec<_> = places(&mut world);
    assert_eq!(zones, [(None, Some(1)); 4], "zone 2 has room for two of them, zone 3 is larger");
    gang(&mut world, queue, 2, 3, true);
    assert_eq!(places(&mut world), [(None, Some(2)); 2]);
}

#[test]
fn a_gang_that_no_domain_holds_waits_though_all_together_would() {
    let mut world = nodes([4, 4, 4, 4]);
    let queue = planning(&mut world, Placement::Domain);
    let pods = gang(&mut world, queue, 3, 4, true);
    assert_eq!(places(&mut world), []);
    assert_eq!(world.reason(pods[0]), Some(Reason::NoNode { placed: 2, pods: 3 }));
    node(&mut world, 5, &[(CPU, 4000)], 2);
    assert_eq!(places(&mut world), [(None, Some(2)); 3]);
}

#[test]
fn what_a_gang_grows_by_stays_in_its_domain() {
    let mut world = nodes([4, 4, 1, 8]);
    let queue = planning(&mut world, Placement::Domain);
    let pods = gang(&mut world, queue, 2, 4, true);
    let group = world.engine.group_of(pods[0]).unwrap();
    assert_eq!(places(&mut world), [(None, Some(1)); 2]);
    let grows = world.pod(group, |pod| pod.cost = cost(4000));
    assert_eq!(places(&mut world), [], "there is room in the other zone alone");
    assert_eq!(world.code(grows), "NoNode");
    world.see(pods[0], PodState::Ended);
    assert_eq!(places(&mut world), [(None, Some(1))]);
}

#[test]
fn a_pod_takes_room_where_it_was_planned_until_it_is_bound_elsewhere() {
    let mut world = nodes([4, 4]);
    let queue = planning(&mut world, Placement::Node);
    let first = world.single(queue, |pod| pod.cost = cost(4000));
    assert_eq!(places(&mut world), [(Some(1), None)]);
    world.see(first, PodState::Released { held: false });
    world.see(first, bound(2));
    world.single(queue, |pod| pod.cost = cost(4000));
    assert_eq!(places(&mut world), [(Some(1), None)]);
}

#[test]
fn what_is_reserved_for_a_planned_gang_waits_for_nodes_too() {
    let mut world = nodes([4, 4]);
    let queue = planning(&mut world, Placement::Node);
    let small: Vec<PodId> =
        (0..4).map(|_| world.single(queue, |pod| pod.cost = cost(2000))).collect();
    assert_eq!(places(&mut world).len(), 4);
    gang(&mut world, queue, 1, 4, false);
    later(&mut world, 5 * MINUTE);
    for pod in [small[0], small[2]] {
        world.see(pod, PodState::Ended);
    }
    assert_eq!(places(&mut world), [], "two on each");
    world.see(small[1], PodState::Ended);
    assert_eq!(places(&mut world), [(Some(1), None)]);
}

#[test]
fn nothing_is_reserved_for_a_planned_gang_that_no_node_would_ever_hold() {
    let mut world = nodes([4, 4, 4]);
    let queue = planning(&mut world, Placement::Node);
    for node in [1, 2, 3] {
        world.apply(Event::ForeignChanged(NodeId(node), cost(1000)));
    }
    let other = world.queue(2, |_| {});
    let small: Vec<PodId> =
        (0..9).map(|_| world.single(other, |pod| pod.cost = cost(1000))).collect();
    assert_eq!(places(&mut world).len(), 9);
    world.single(queue, |pod| pod.cost = cost(4000));
    later(&mut world, 5 * MINUTE);
    for pod in small {
        world.see(pod, PodState::Ended);
        world.single(other, |pod| pod.cost = cost(1000));
        later(&mut world, SECOND);
    }
    assert_eq!(world.usage(other), 9000, "each node has one CPU for daemons");
}

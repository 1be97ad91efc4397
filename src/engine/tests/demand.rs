//! What waits in earnest counts as demand, and what waits in vain does not.

use super::fairness::{cluster, cpus, more};
use super::*;

/// What queues are entitled to, in CPUs.
fn entitled<const N: usize>(world: &mut World, queues: [QueueId; N]) -> [i128; N] {
    world.engine.entitle();
    let all = world.engine.queues();
    queues.map(|queue| {
        let row = all.iter().find(|row| row.id == queue).unwrap();
        row.entitled.get(CPU) / 1000
    })
}

/// Nodes of so many CPUs.
fn nodes(cpus: &[i128]) -> World {
    let mut world = cluster(0);
    for (id, cpus) in (1..).zip(cpus) {
        world.node(id, cpus * 1000);
    }
    world
}

/// Two queues that ask for 12 CPUs each, in pods of one.
fn busy(world: &mut World) -> [QueueId; 2] {
    [1, 2].map(|id| {
        let queue = world.queue(id, |_| {});
        for _ in 0..12 {
            world.single(queue, |pod| pod.cost = cost(1000));
        }
        queue
    })
}

#[test]
fn what_can_never_start_asks_for_nothing() {
    let mut world = nodes(&[4, 4, 4]);
    let [a, b] = busy(&mut world);
    let c = world.queue(3, |_| {});
    let limited = world.queue(4, |q| (q.parent, q.limit) = (Some(c), cpus(2)));
    world.single(c, |pod| pod.cost = cost(5000));
    let lacking = world.group(70, Assignment::Queue(c), Gang::AtLeast(4));
    more(&mut world, lacking, 3);
    let beyond = world.group(71, Assignment::Queue(limited), Gang::AtLeast(3));
    more(&mut world, beyond, 3);
    assert_eq!(entitled(&mut world, [a, b, c]), [6, 6, 0]);
    more(&mut world, lacking, 1);
    assert_eq!(entitled(&mut world, [a, b, c]), [4, 4, 4]);
}

#[test]
fn a_pod_that_may_start_makes_nothing_of_one_that_may_not() {
    let mut world = nodes(&[4, 4, 4]);
    let [a, b] = busy(&mut world);
    let c = world.queue(3, |_| {});
    let mixed = world.group(70, Assignment::Queue(c), Gang::Units);
    more(&mut world, mixed, 2);
    for _ in 0..9 {
        world.pod(mixed, |pod| pod.cost = cost(5000));
    }
    assert_eq!(entitled(&mut world, [a, b, c]), [5, 5, 2]);
}

#[test]
fn what_may_start_some_day_follows_nodes_and_limits() {
    let mut world = nodes(&[4, 4, 4]);
    let [a, b] = busy(&mut world);
    let c = world.queue(3, |q| q.limit = cpus(5));
    world.single(c, |pod| pod.cost = cost(5000));
    let gang = world.group(70, Assignment::Queue(c), Gang::AtLeast(6));
    more(&mut world, gang, 6);
    assert_eq!(entitled(&mut world, [a, b, c]), [6, 6, 0]);
    world.node(4, 5000);
    assert_eq!(entitled(&mut world, [a, b, c]), [6, 6, 5], "a node that is large enough");
    world.apply(Event::NodeRemoved(NodeId(4)));
    assert_eq!(entitled(&mut world, [a, b, c]), [6, 6, 0]);
    world.queue(3, |q| q.limit = cpus(6));
    assert_eq!(entitled(&mut world, [a, b, c]), [4, 4, 4], "a limit that is high enough");
    world.queue(3, |q| q.limit = cpus(5));
    assert_eq!(entitled(&mut world, [a, b, c]), [6, 6, 0]);
    world.queue(3, |_| {});
    assert_eq!(entitled(&mut world, [a, b, c]), [4, 4, 4], "no limit at all");
}

#[test]
fn a_gang_that_loses_a_member_before_it_begins_asks_for_nothing_and_after_that_for_the_rest() {
    let mut world = nodes(&[4, 4, 4]);
    let [a, b] = busy(&mut world);
    let c = world.queue(3, |_| {});
    let gang = world.group(70, Assignment::Queue(c), Gang::AtLeast(4));
    let pods: Vec<PodId> = (0..4).map(|_| world.pod(gang, |pod| pod.cost = cost(1000))).collect();
    assert_eq!(entitled(&mut world, [a, b, c]), [4, 4, 4]);
    world.apply(Event::PodRemoved(pods[3]));
    assert_eq!(entitled(&mut world, [a, b, c]), [6, 6, 0]);
    world.see(pods[0], PodState::Released { held: false });
    assert_eq!(entitled(&mut world, [a, b, c]), [4, 4, 3], "one runs, two are lacking");
}

#[test]
fn a_gang_of_all_asks_for_something_when_it_is_quiet() {
    let mut world = nodes(&[4, 4, 4]);
    let [a, b] = busy(&mut world);
    let c = world.queue(3, |_| {});
    let gang = world.group(70, Assignment::Queue(c), Gang::All);
    more(&mut world, gang, 4);
    assert_eq!(entitled(&mut world, [a, b, c]), [6, 6, 0]);
    world.engine.tick(2_000);
    assert_eq!(entitled(&mut world, [a, b, c]), [4, 4, 4]);
}

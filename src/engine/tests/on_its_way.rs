//! What is told of a group between a decision and the sight of an open gate.

use super::*;

/// Says that a group starts together as `gang` says and may not be evicted.
fn tell(world: &mut World, group: GroupId, gang: Gang) {
    let slot = world.engine.group_slots.get(&group).unwrap();
    let config = world.engine.groups[slot].config.clone();
    world.apply(Event::GroupChanged(group, GroupConfig { gang, non_preemptible: true, ..config }));
}

fn gang_of(world: &World, group: GroupId) -> Gang {
    world.engine.groups().find(|summary| summary.id == group).unwrap().gang
}

#[test]
fn what_is_told_of_a_group_on_its_way_counts_once_all_gates_are_seen_open() {
    let mut world = World::new(3000);
    let (mine, other) = (world.queue(1, |_| {}), world.queue(2, |q| q.guaranteed = cpu(1000)));
    let group = world.group(1, Assignment::Queue(mine), Gang::AtLeast(2));
    let pods = [world.pod(group, |_| {}), world.pod(group, |_| {})];
    assert_eq!(world.decide(), pods);
    let joined = world.pod(group, |_| {});
    let rival = world.single(other, |_| {});
    tell(&mut world, group, Gang::AtLeast(9));
    world.apply(Event::Outcome(pods[0], Outcome::Released));
    world.see(pods[1], PodState::Released { held: false });
    assert_eq!(gang_of(&world, group), Gang::AtLeast(2), "one gate was not seen open");
    assert_eq!(world.decide(), [rival], "it is not cut by what was told since");
    world.see(pods[0], PodState::Released { held: false });
    assert_eq!(gang_of(&world, group), Gang::AtLeast(9));
    world.see(rival, PodState::Ended);
    assert_eq!(world.decide(), [joined]);
}

#[test]
fn a_gang_of_all_that_arrived_lacks_what_was_refused_of_as_many_as_began() {
    let mut world = World::new(2000);
    let queue = world.queue(1, |_| {});
    let group = world.group(1, Assignment::Queue(queue), Gang::All);
    let pods = [world.pod(group, |_| {}), world.pod(group, |_| {})];
    world.engine.tick(10_000);
    assert_eq!(world.decide(), pods);
    assert_eq!(gang_of(&world, group), Gang::AtLeast(2));
    let urgent = world.single(queue, |pod| pod.priority = 9);
    world.apply(Event::Outcome(pods[1], Outcome::Refused { retry_at: 0 }));
    assert_eq!(world.decide(), [pods[1]], "before what has a higher priority");
    for pod in pods {
        world.see(pod, PodState::Ended);
    }
    assert_eq!(gang_of(&world, group), Gang::All, "as was told");
    assert_eq!(world.decide(), [urgent]);
}

#[test]
fn a_look_at_what_would_start_leaves_a_gang_as_it_was_told() {
    let mut world = World::new(2000);
    let queue = world.queue(1, |_| {});
    let group = world.group(1, Assignment::Queue(queue), Gang::All);
    world.pod(group, |_| {});
    world.engine.tick(10_000);
    world.engine.rehearse(BUDGET);
    assert_eq!(gang_of(&world, group), Gang::All);
}

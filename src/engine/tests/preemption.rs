//! The examples of docs/fairness.md that take something back.

use std::collections::BTreeSet;

use super::super::event::Preemption;
use super::super::model::{Reclaim, WithinQueue};
use super::fairness::{cluster, cpus};
use super::*;

pub(super) const SECOND: Millis = 1_000;
pub(super) const MINUTE: Millis = 60 * SECOND;

/// A queue whose work may be taken after a second.
fn queue(world: &mut World, id: u32, change: impl FnOnce(&mut QueueConfig)) -> QueueId {
    world.queue(id, |queue| {
        queue.preemption.min_runtime = Some(SECOND);
        change(queue);
    })
}

/// Pods of so many CPUs, each on its own.
pub(super) fn wait(world: &mut World, queue: QueueId, count: usize, units: i128) -> Vec<PodId> {
    (0..count).map(|_| world.single(queue, |pod| pod.cost = cost(units * 1000))).collect()
}

/// Time goes on; who starts, and who is evicted.
pub(super) fn later(world: &mut World, by: Millis) -> (Vec<PodId>, Vec<PodId>) {
    world.engine.tick(world.engine.now + by);
    let decided = world.engine.decide(BUDGET);
    let started: Vec<PodId> = decided.started.iter().map(|decision| decision.pod).collect();
    for &pod in &started {
        world.see(pod, PodState::Released { held: false });
    }
    (started, decided.evicted.iter().map(|eviction| eviction.pod).collect())
}

/// Lets so many pods of a queue run, one second after the other, the first at once.
pub(super) fn run(world: &mut World, queue: QueueId, count: usize, units: i128) -> Vec<PodId> {
    let one = |_| {
        let pods = wait(world, queue, 1, units);
        assert_eq!(later(world, SECOND), (pods.clone(), vec![]));
        pods[0]
    };
    (0..count).map(one).collect()
}

pub(super) fn gang(
    world: &mut World,
    id: u64,
    queue: QueueId,
    least: u32,
    pods: u32,
) -> Vec<PodId> {
    let group = world.group(id, Assignment::Queue(queue), Gang::AtLeast(least));
    (0..pods).map(|_| world.pod(group, |pod| pod.cost = cost(1000))).collect()
}

#[test]
fn a_guarantee_is_taken_back_from_what_was_lent_last() {
    let mut world = cluster(8);
    let own = queue(&mut world, 1, |queue| queue.guaranteed = cpus(6));
    let borrower = queue(&mut world, 2, |_| {});
    let lent = run(&mut world, borrower, 8, 1);
    let waits = wait(&mut world, own, 1, 2);
    let (started, mut evicted) = later(&mut world, SECOND);
    evicted.reverse();
    assert_eq!((started, evicted), (vec![], vec![lent[7], lent[6]]));
    assert_eq!(world.code(waits[0]), "MakingRoom");
    world.see(lent[7], PodState::Ended);
    let small = wait(&mut world, borrower, 1, 1);
    assert_eq!(later(&mut world, SECOND), (vec![], vec![]), "the room is kept");
    world.see(lent[6], PodState::Ended);
    assert_eq!(later(&mut world, 0), (waits, vec![]));
    assert_eq!(world.code(small[0]), "Capacity");
}

#[test]
fn what_a_guarantee_was_lowered_by_is_taken_back_from_what_started_last() {
    let mut world = cluster(8);
    let shrinks = queue(&mut world, 1, |queue| queue.guaranteed = cpus(6));
    let grows = queue(&mut world, 2, |queue| queue.guaranteed = cpus(2));
    let runs = run(&mut world, shrinks, 6, 1);
    run(&mut world, grows, 2, 1);
    wait(&mut world, grows, 8, 1);
    assert_eq!(later(&mut world, SECOND), (vec![], vec![]), "each has its own");
    queue(&mut world, 1, |queue| queue.guaranteed = cpus(4));
    assert_eq!(later(&mut world, SECOND), (vec![], vec![]), "lowered is not yet given to another");
    queue(&mut world, 2, |queue| queue.guaranteed = cpus(4));
    assert_eq!(later(&mut world, SECOND), (vec![], vec![runs[5], runs[4]]));
}

#[test]
fn a_small_guarantee_comes_back_on_a_large_fleet_too() {
    let mut world = cluster(5_000_000);
    let own = queue(&mut world, 1, |queue| queue.guaranteed = cpus(3));
    let borrower = queue(&mut world, 2, |_| {});
    let lent = run(&mut world, borrower, 2, 2_499_999);
    run(&mut world, borrower, 1, 2);
    wait(&mut world, own, 1, 3);
    wait(&mut world, borrower, 1, 9);
    let (_, evicted) = later(&mut world, SECOND);
    assert_eq!(evicted, [lent[1]]);
}

#[test]
fn nobody_is_taken_from_who_is_not_above_its_due() {
    let mut world = cluster(8);
    let own = queue(&mut world, 1, |queue| queue.guaranteed = cpus(2));
    let other = queue(&mut world, 2, |_| {});
    let over = queue(&mut world, 3, |_| {});
    run(&mut world, other, 2, 1);
    let lent = run(&mut world, over, 6, 1);
    wait(&mut world, own, 2, 1);
    wait(&mut world, other, 8, 1);
    let (_, evicted) = later(&mut world, SECOND);
    assert_eq!(evicted, [lent[5], lent[4]]);
    for pod in evicted {
        world.see(pod, PodState::Ended);
    }
    assert_eq!(later(&mut world, 0).0.len(), 2);
    wait(&mut world, own, 2, 1);
    assert_eq!(later(&mut world, MINUTE), (vec![], vec![]), "own has what it is guaranteed");
}

#[test]
fn nothing_is_taken_before_it_has_run_for_its_time() {
    let mut world = cluster(4);
    let own = queue(&mut world, 1, |queue| queue.guaranteed = cpus(4));
    let above = queue(&mut world, 2, |queue| queue.preemption.min_runtime = Some(5 * MINUTE));
    let borrower = world.queue(3, |queue| queue.parent = Some(above));
    let lent = run(&mut world, borrower, 1, 4);
    wait(&mut world, own, 1, 4);
    assert_eq!(later(&mut world, 5 * MINUTE - SECOND), (vec![], vec![]));
    assert_eq!(later(&mut world, SECOND), (vec![], lent));
}

#[test]
fn ten_minutes_are_left_where_no_queue_says_how_long() {
    let mut world = cluster(4);
    let own = world.queue(1, |queue| queue.guaranteed = cpus(4));
    let borrower = world.queue(2, |_| {});
    let lent = run(&mut world, borrower, 1, 4);
    wait(&mut world, own, 1, 4);
    assert_eq!(later(&mut world, 10 * MINUTE - 1), (vec![], vec![]));
    assert_eq!(later(&mut world, SECOND), (vec![], lent));
}

#[test]
fn what_is_due_beyond_a_guarantee_is_taken_back_by_who_says_so() {
    for (reclaim, taken) in [(Reclaim::Guaranteed, 0), (Reclaim::Entitled, 4)] {
        let mut world = cluster(8);
        let poor = queue(&mut world, 1, |queue| queue.preemption.reclaim = reclaim);
        let rich = queue(&mut world, 2, |_| {});
        run(&mut world, rich, 8, 1);
        wait(&mut world, poor, 8, 1);
        assert_eq!(later(&mut world, SECOND).1.len(), taken, "{reclaim:?}");
    }
}

#[test]
fn the_sibling_that_borrowed_gives_back_before_anybody_else() {
    let mut world = cluster(8);
    let parent = queue(&mut world, 1, |queue| {
        (queue.guaranteed, queue.limit) = (cpus(4), cpus(4));
    });
    let below = |queue: &mut QueueConfig| {
        queue.parent = Some(parent);
        queue.guaranteed = cpus(2);
    };
    let (own, sibling) = (queue(&mut world, 2, below), queue(&mut world, 3, below));
    let stranger = queue(&mut world, 4, |_| {});
    let lent = run(&mut world, sibling, 4, 1);
    run(&mut world, stranger, 4, 1);
    wait(&mut world, own, 1, 2);
    let mut evicted = later(&mut world, SECOND).1;
    evicted.reverse();
    assert_eq!(evicted, [lent[3], lent[2]]);
}

#[test]
fn a_gang_gives_what_it_does_not_need_before_it_goes_as_a_whole() {
    let mut world = cluster(6);
    let own = queue(&mut world, 1, |queue| queue.guaranteed = cpus(6));
    let borrower = queue(&mut world, 2, |_| {});
    let pods = gang(&mut world, 1, borrower, 4, 6);
    later(&mut world, SECOND);
    wait(&mut world, own, 1, 1);
    let first = later(&mut world, SECOND).1;
    assert_eq!(first.len(), 1);
    wait(&mut world, own, 1, 2);
    let rest = later(&mut world, SECOND).1;
    assert_eq!(rest.len(), 5, "one more would cut it: {rest:?}");
    assert!(pods.iter().all(|pod| first.contains(pod) || rest.contains(pod)));
}

#[test]
fn a_large_gang_takes_as_much_as_it_needs_and_no_more() {
    let mut world = World::new(0);
    let allocatable = [(CPU, 3_000_000), (PODS, 10_000)].into_iter().collect();
    let config = usable(allocatable);
    world.apply(Event::NodeChanged(NodeId(1), config));
    let own = queue(&mut world, 1, |queue| queue.guaranteed = cpus(1_500));
    let borrower = queue(&mut world, 2, |_| {});
    let team = gang(&mut world, 2, borrower, 100, 500);
    assert_eq!(later(&mut world, 0).0.len(), 500);
    let group = world.group(1, Assignment::Queue(borrower), Gang::Units);
    for _ in 0..2_500 {
        world.pod(group, |_| {});
    }
    assert_eq!(later(&mut world, SECOND).0.len(), 2_500);
    gang(&mut world, 3, own, 1_500, 1_500);
    let evicted = later(&mut world, SECOND).1;
    assert_eq!(evicted.len(), 1_500);
    let of_team = evicted.iter().filter(|pod| team.contains(pod)).count();
    assert_eq!(of_team, 400, "what the gang does not need goes first");
}

#[test]
fn at_one_look_so_many_claim_and_the_next_look_goes_on() {
    let mut world = cluster(100);
    let own = queue(&mut world, 1, |queue| queue.guaranteed = cpus(100));
    let borrower = queue(&mut world, 2, |_| {});
    wait(&mut world, borrower, 100, 1);
    assert_eq!(later(&mut world, 0).0.len(), 100);
    wait(&mut world, own, 40, 1);
    assert_eq!(later(&mut world, SECOND).1.len(), 32);
    assert_eq!(later(&mut world, 0).1.len(), 0);
    assert_eq!(later(&mut world, SECOND).1.len(), 8);
}

#[test]
fn a_look_that_was_cut_short_goes_on_after_a_snapshot() {
    let mut world = cluster(100);
    let own = queue(&mut world, 1, |queue| queue.guaranteed = cpus(100));
    let borrower = queue(&mut world, 2, |_| {});
    wait(&mut world, borrower, 100, 1);
    assert_eq!(later(&mut world, 0).0.len(), 100);
    wait(&mut world, own, 40, 1);
    world.engine.tick(world.engine.now + SECOND);
    assert_eq!(world.engine.decide(30).evicted.len(), 30);
    world.engine = world.engine.restored();
    assert_eq!(later(&mut world, 0).1.len(), 2);
}

#[test]
fn work_that_is_not_preemptible_stays() {
    let mut world = cluster(4);
    let own = queue(&mut world, 1, |queue| queue.guaranteed = cpus(2));
    let other = queue(&mut world, 2, |queue| queue.guaranteed = cpus(2));
    let group = world.group(1, Assignment::Queue(other), Gang::Units);
    let mut config =
        world.engine.groups[world.engine.group_slots.get(&group).unwrap()].config.clone();
    config.non_preemptible = true;
    world.apply(Event::GroupChanged(group, config));
    for _ in 0..2 {
        world.pod(group, |pod| pod.cost = cost(1000));
    }
    assert_eq!(later(&mut world, SECOND).0.len(), 2);
    let lent = run(&mut world, other, 2, 1);
    wait(&mut world, own, 3, 1);
    let evicted: BTreeSet<PodId> = later(&mut world, SECOND).1.into_iter().collect();
    assert_eq!(evicted, lent.into_iter().collect());
}

#[test]
fn what_runs_and_was_never_let_go_by_us_stays() {
    let mut world = cluster(4);
    let own = queue(&mut world, 1, |queue| queue.guaranteed = cpus(4));
    let other = queue(&mut world, 2, |_| {});
    let foreign = world.single(other, |pod| {
        pod.cost = cost(2000);
        pod.state = PodState::Bound { node: NodeId(1), terminating: false };
    });
    let lent = run(&mut world, other, 2, 1);
    wait(&mut world, own, 4, 1);
    let evicted: BTreeSet<PodId> = later(&mut world, SECOND).1.into_iter().collect();
    assert_eq!(evicted, lent.into_iter().collect());
    world.queue(2, |queue| (queue.hold, queue.drain) = (true, true));
    assert!(!later(&mut world, SECOND).1.contains(&foreign));
}

#[test]
fn within_a_queue_a_higher_priority_takes_from_a_lower_where_that_is_wanted() {
    for within_queue in [WithinQueue::Never, WithinQueue::LowerPriority] {
        let mut world = cluster(8);
        let queue = queue(&mut world, 1, |queue| {
            queue.limit = cpus(2);
            queue.preemption = Preemption { within_queue, ..queue.preemption };
        });
        let low = run(&mut world, queue, 2, 1);
        let high = world.single(queue, |pod| pod.priority = 10);
        world.single(queue, |_| {});
        let taken = if within_queue == WithinQueue::Never { vec![] } else { vec![low[1]] };
        assert_eq!(later(&mut world, SECOND), (vec![], taken.clone()));
        for pod in &taken {
            world.see(*pod, PodState::Ended);
        }
        let starts = if taken.is_empty() { vec![] } else { vec![high] };
        assert_eq!(later(&mut world, 0).0, starts, "{within_queue:?}");
    }
}

#[test]
fn who_never_preempts_goes_first_and_has_nobody_evicted() {
    let mut world = cluster(1);
    let queue = queue(&mut world, 1, |queue| {
        queue.preemption.within_queue = WithinQueue::LowerPriority;
    });
    let low = run(&mut world, queue, 1, 1);
    world.single(queue, |_| {});
    let polite = world.single(queue, |pod| (pod.priority, pod.never_preempts) = (1000, true));
    assert_eq!(later(&mut world, SECOND), (vec![], vec![]));
    world.see(low[0], PodState::Ended);
    assert_eq!(later(&mut world, 0), (vec![polite], vec![]));
    world.single(queue, |pod| pod.priority = 2000);
    assert_eq!(later(&mut world, MINUTE), (vec![], vec![polite]));
}

#[test]
fn a_queue_that_is_drained_is_emptied_in_order_but_for_what_may_not_be_evicted() {
    let mut world = cluster(100);
    let above = queue(&mut world, 1, |_| {});
    let below = queue(&mut world, 2, |queue| queue.parent = Some(above));
    let pods = run(&mut world, below, 70, 1);
    let group = world.group(1, Assignment::Queue(below), Gang::Units);
    let slot = world.engine.group_slots.get(&group).unwrap();
    let config = GroupConfig { non_preemptible: true, ..world.engine.groups[slot].config.clone() };
    world.apply(Event::GroupChanged(group, config));
    world.pod(group, |pod| pod.state = PodState::Released { held: false });
    let waits = wait(&mut world, below, 1, 1);
    queue(&mut world, 1, |queue| (queue.hold, queue.drain) = (true, true));
    let evicted = |world: &mut World| {
        let (started, mut evicted) = later(world, SECOND);
        assert_eq!(started, []);
        evicted.reverse();
        evicted
    };
    assert_eq!(evicted(&mut world), pods[6..], "what started last goes first, so many at a time");
    assert_eq!(evicted(&mut world), pods[..6]);
    assert_eq!(evicted(&mut world), []);
    assert_eq!(world.code(waits[0]), "QueueStopped");
}

#[test]
fn an_eviction_that_is_refused_gives_the_claim_up_until_it_may_be_tried_again() {
    let mut world = cluster(2);
    let own = queue(&mut world, 1, |queue| queue.guaranteed = cpus(2));
    let borrower = queue(&mut world, 2, |_| {});
    let lent = run(&mut world, borrower, 1, 2);
    let waits = wait(&mut world, own, 1, 2);
    assert_eq!(later(&mut world, SECOND).1, lent);
    let retry_at = world.engine.now + MINUTE;
    world.apply(Event::Outcome(lent[0], Outcome::NotEvicted { retry_at }));
    // One that is made from a snapshot does not ask too early either.
    let restored = World { engine: world.engine.restored(), next: world.next };
    for mut world in [world, restored] {
        assert_eq!(later(&mut world, SECOND), (vec![], vec![]));
        assert_eq!(world.code(waits[0]), "Capacity");
        assert_eq!(later(&mut world, MINUTE), (vec![], lent.clone()));
    }
}

#[test]
fn while_evictions_are_refused_others_that_are_above_their_due_are_taken_from() {
    let mut world = cluster(10);
    let own = queue(&mut world, 1, |queue| queue.guaranteed = cpus(4));
    let [guarded, open] = [2, 3].map(|id| queue(&mut world, id, |_| {}));
    let lent = run(&mut world, guarded, 6, 1);
    run(&mut world, open, 4, 1);
    let waits = wait(&mut world, own, 4, 1);
    let mut taken = Vec::new();
    for _ in 0..12 {
        for pod in later(&mut world, SECOND).1 {
            if lent.contains(&pod) {
                let retry_at = world.engine.now + MINUTE;
                world.apply(Event::Outcome(pod, Outcome::NotEvicted { retry_at }));
            } else {
                world.see(pod, PodState::Ended);
                taken.push(pod);
            }
        }
    }
    assert_eq!(taken.len(), 1, "{taken:?}: no more than what it has above its due");
    assert_eq!(world.usage(own), 1_000, "{waits:?}");
}

#[test]
fn who_is_on_its_way_out_is_not_evicted_and_its_room_is_kept() {
    let mut world = cluster(2);
    let own = queue(&mut world, 1, |queue| queue.guaranteed = cpus(2));
    let borrower = queue(&mut world, 2, |_| {});
    let lent = run(&mut world, borrower, 2, 1);
    for pod in &lent {
        world.see(*pod, PodState::Bound { node: NodeId(1), terminating: true });
    }
    let waits = wait(&mut world, own, 1, 2);
    let small = wait(&mut world, borrower, 1, 1);
    assert_eq!(later(&mut world, SECOND), (vec![], vec![]));
    assert_eq!(world.reason(waits[0]), Some(Reason::MakingRoom { evicted: 0 }));
    world.apply(Event::PodRemoved(lent[0]));
    assert_eq!(later(&mut world, 0), (vec![], vec![]), "not lent to {small:?} meanwhile");
    world.apply(Event::PodRemoved(lent[1]));
    assert_eq!(later(&mut world, 0).0, waits);
}

#[test]
fn a_claim_is_forgotten_with_who_made_it_and_its_room_is_free() {
    let mut world = cluster(2);
    let own = queue(&mut world, 1, |queue| queue.guaranteed = cpus(2));
    let borrower = queue(&mut world, 2, |_| {});
    let lent = run(&mut world, borrower, 1, 2);
    let waits = wait(&mut world, own, 1, 2);
    assert_eq!(later(&mut world, SECOND).1, lent);
    assert_eq!((world.usage(own), world.engine.pending(own)), (0, 1), "it waits and uses nothing");
    world.apply(Event::PodRemoved(waits[0]));
    world.apply(Event::PodRemoved(lent[0]));
    let again = wait(&mut world, borrower, 1, 2);
    assert_eq!(later(&mut world, 0), (again, vec![]));
}

#[test]
fn who_only_follows_evicts_nothing() {
    let mut world = cluster(2);
    let own = queue(&mut world, 1, |queue| queue.guaranteed = cpus(2));
    let borrower = queue(&mut world, 2, |_| {});
    run(&mut world, borrower, 1, 2);
    let waits = wait(&mut world, own, 1, 2);
    assert!(world.engine.tick(world.engine.now + SECOND));
    world.engine.rehearse(BUDGET);
    assert_eq!(world.code(waits[0]), "Capacity");
    assert!(!world.engine.tick(world.engine.now + MINUTE), "time alone changes nothing for it");
}

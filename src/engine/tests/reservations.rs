//! The examples of docs/fairness.md in which room is reserved.

use super::fairness::{cluster, cpus};
use super::preemption::{MINUTE, SECOND, gang, later, run, wait};
use super::*;

/// A second queue uses all there is by small work, and has more of that; the first waits
/// with a gang of four.
fn crowded(change: impl FnOnce(&mut QueueConfig)) -> (World, Vec<PodId>, Vec<PodId>) {
    let mut world = cluster(8);
    let (patient, busy) = (world.queue(1, change), world.queue(2, |_| {}));
    let runs = run(&mut world, busy, 8, 1);
    let waits = gang(&mut world, 1, patient, 4, 4);
    wait(&mut world, busy, 100, 1);
    (world, waits, runs)
}

/// One pod after the other ends, each a second after the last; what started by that.
fn end(world: &mut World, pods: &[PodId]) -> Vec<PodId> {
    let one = |&pod: &PodId| {
        world.see(pod, PodState::Ended);
        later(world, SECOND).0
    };
    pods.iter().flat_map(one).collect()
}

#[test]
fn what_becomes_free_goes_to_small_work_until_a_gang_has_waited_for_five_minutes() {
    let (mut world, gang, runs) = crowded(|_| {});
    assert_eq!(end(&mut world, &runs[..3]).len(), 3, "each goes to small work");
    assert_eq!(later(&mut world, 5 * MINUTE), (vec![], vec![]));
    assert_eq!(end(&mut world, &runs[3..6]), [], "what becomes free is reserved");
    assert_eq!(end(&mut world, &runs[6..7]), gang);
    assert_eq!(end(&mut world, &runs[7..]).len(), 1, "nothing is reserved any more");
}

#[test]
fn a_gang_starts_however_much_small_work_arrives() {
    let (mut world, gang, mut runs) = crowded(|_| {});
    later(&mut world, 5 * MINUTE);
    let busy = QueueId(2);
    for ended in 1..=8 {
        wait(&mut world, busy, 10, 1);
        let oldest = runs.remove(0);
        let started = end(&mut world, &[oldest]);
        if started == gang {
            assert_eq!(ended, 4);
            return;
        }
        runs.extend(started);
    }
    panic!("small work went first for ever");
}

#[test]
fn nothing_is_reserved_for_what_is_more_than_a_queue_is_entitled_to() {
    let mut world = cluster(8);
    let (large, busy) = (world.queue(1, |_| {}), world.queue(2, |_| {}));
    let runs = run(&mut world, busy, 8, 1);
    gang(&mut world, 1, large, 5, 5);
    wait(&mut world, busy, 100, 1);
    later(&mut world, 5 * MINUTE);
    assert_eq!(end(&mut world, &runs[..5]).len(), 5, "half of eight is not five");
}

#[test]
fn a_guarantee_is_not_delayed_by_a_reservation() {
    let (mut world, _, runs) = crowded(|_| {});
    later(&mut world, 5 * MINUTE);
    assert_eq!(end(&mut world, &runs[..1]), []);
    let owner = world.queue(3, |queue| queue.guaranteed = cpus(1));
    let own = wait(&mut world, owner, 1, 1);
    assert_eq!(later(&mut world, SECOND), (own, vec![]));
}

#[test]
fn a_reservation_of_a_limit_holds_only_below_that_queue() {
    let mut world = cluster(80);
    let team = world.queue(1, |queue| queue.limit = cpus(4));
    let patient = world.queue(2, |queue| queue.parent = Some(team));
    let busy = world.queue(3, |queue| queue.parent = Some(team));
    let other = world.queue(4, |_| {});
    let runs = run(&mut world, busy, 4, 1);
    let waits = gang(&mut world, 1, patient, 2, 2);
    wait(&mut world, busy, 10, 1);
    later(&mut world, 5 * MINUTE);
    assert_eq!(end(&mut world, &runs[..1]), []);
    let free = wait(&mut world, other, 1, 1);
    assert_eq!(later(&mut world, SECOND), (free, vec![]));
    assert_eq!(end(&mut world, &runs[1..2]), waits);
}

#[test]
fn a_reservation_ends_when_something_comes_first_in_its_line() {
    let (mut world, _, runs) = crowded(|_| {});
    later(&mut world, 5 * MINUTE);
    assert_eq!(end(&mut world, &runs[..1]), []);
    let urgent = world.single(QueueId(1), |pod| pod.priority = 1);
    assert_eq!(later(&mut world, SECOND), (vec![urgent], vec![]));
}

#[test]
fn who_leaves_room_for_a_reservation_is_told_for_whom() {
    let (mut world, gang, runs) = crowded(|_| {});
    later(&mut world, 5 * MINUTE);
    world.see(runs[0], PodState::Ended);
    later(&mut world, SECOND);
    let Some(Reason::Capacity(shortage)) = world.reason(gang[0]) else { panic!() };
    assert_eq!(shortage.missing(), 3000);
    assert!(
        world.engine.group_of(gang[0]).is_some_and(|group| world.engine.has_reservation(group))
    );
    let small = world.single(QueueId(2), |_| {});
    later(&mut world, SECOND);
    let Some(Reason::RoomReserved(shortage, queue)) = world.reason(small) else { panic!() };
    assert_eq!((shortage.resource, queue), (CPU, QueueId(1)));
}

//! Several resources: how many pods queues side by side get, beside fluid answers.

use serde::Deserialize;

use super::super::super::reference::Reference;
use super::super::*;

#[derive(Deserialize)]
struct Case {
    capacity: Vec<i128>,
    queues: Vec<Answer>,
}

#[derive(Deserialize)]
struct Answer {
    weight: u32,
    /// What the queue asks: pods of this cost.
    pods: u32,
    cost: Vec<i128>,
    /// What it gets if pods can be cut, in thousandths of one.
    gets: i128,
}

fn cases() -> Vec<Case> {
    serde_json::from_str(include_str!("../../../../tests/oracle/shares.json")).unwrap()
}

fn amounts(of: &[i128], pods: i128) -> Vector {
    let listed = (10..).map(ResourceId).zip(of.iter().copied());
    listed.chain([(PODS, pods)]).collect()
}

fn events(case: &Case) -> Vec<Event> {
    let allocatable = amounts(&case.capacity, 1_000_000);
    let config = usable(allocatable);
    let mut events = vec![Event::Synced(HERE), Event::NodeChanged(NodeId(1), config)];
    for (index, queue) in (0..).zip(&case.queues) {
        let config = QueueConfig { weight: queue.weight, ..QueueConfig::default() };
        events.push(Event::QueueChanged(QueueId(index), config));
        events.extend(super::units(index, queue.pods, &amounts(&queue.cost, 1)));
    }
    events
}

/// What a number of thousandths of pods adds to the dominant share by weight, in units so small that
/// nothing that counts is lost.
fn height(case: &Case, queue: &Answer, thousandths: i128) -> i128 {
    let parts = queue.cost.iter().zip(&case.capacity);
    let parts = parts.map(|(cost, there_is)| ((thousandths * cost) << 40) / there_is);
    parts.max().unwrap() / i128::from(queue.weight)
}

#[test]
fn of_several_resources_nobody_gets_less_than_linear_programming_says_by_more_than_one_pod() {
    for (number, case) in cases().iter().enumerate() {
        let (mut engine, mut reference) = (Engine::default(), Reference::default());
        for event in events(case) {
            engine.apply(0, event.clone());
            reference.apply(0, event);
        }
        let started = engine.decide(usize::MAX).started;
        assert_eq!(started, reference.decide(usize::MAX).started, "case {number}");
        let pods: Vec<i128> = (0..).take(case.queues.len()).map(|id| count(&started, id)).collect();
        let one = case.queues.iter().map(|queue| height(case, queue, 1000)).max().unwrap();
        for (queue, pods) in case.queues.iter().zip(&pods) {
            let less = height(case, queue, queue.gets - pods * 1000);
            assert!(less <= one, "case {number}: {pods} of {}", queue.gets);
        }
        let mut free = case.capacity.clone();
        for (queue, pods) in case.queues.iter().zip(&pods) {
            free.iter_mut().zip(&queue.cost).for_each(|(free, cost)| *free -= cost * pods);
        }
        for (queue, &pods) in case.queues.iter().zip(&pods) {
            let fits = queue.cost.iter().zip(&free).all(|(cost, free)| cost <= free);
            let all = pods == i128::from(queue.pods);
            assert!(all || !fits, "case {number}: {free:?} is left, {:?} is asked", queue.cost);
        }
    }
}

fn count(started: &[Decision], queue: u32) -> i128 {
    let of = started.iter().filter(|decision| decision.queue == QueueId(queue));
    i128::try_from(of.count()).unwrap()
}

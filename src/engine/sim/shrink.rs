//! A log is cut down while it still shows what is wrong.

use super::super::event::{Event, GroupConfig, MaxRunning, PodConfig, QueueConfig};
use super::super::model::{Gang, Growth, Order, Placement, Reclaim, Vector, WithinQueue};
use super::{Log, Step};

/// The shortest and simplest log found that still shows it.
pub(super) fn shrink(log: Log, shows: impl Fn(&Log) -> bool) -> Log {
    let mut log = shorter(log, &shows);
    loop {
        let simpler = simpler_logs(&log).find(&shows);
        match simpler {
            Some(simpler) => log = shorter(simpler, &shows),
            None => return log,
        }
    }
}

/// Without any steps it does not need: first halves, then ever smaller parts are left out.
fn shorter(mut log: Log, shows: &impl Fn(&Log) -> bool) -> Log {
    let mut size = log.len();
    while size > 0 {
        let before = log.len();
        let mut at = 0;
        while at < log.len() {
            let mut without = log.clone();
            without.drain(at..(at + size).min(log.len()));
            if shows(&without) {
                log = without;
            } else {
                at += size;
            }
        }
        if size > 1 || log.len() == before {
            size /= 2;
        }
    }
    log
}

/// The same log with one step simpler.
fn simpler_logs(log: &Log) -> impl Iterator<Item = Log> {
    log.iter().enumerate().flat_map(move |(at, (now, step))| {
        let simpler = simpler(step).into_iter().filter(move |simpler| simpler != step);
        simpler.map(move |step| {
            let mut log = log.clone();
            log[at] = (*now, step);
            log
        })
    })
}

fn simpler(step: &Step) -> Vec<Step> {
    let events = match step.clone() {
        Step::Apply(Event::QueueChanged(id, config)) => {
            simpler_queues(&config).into_iter().map(|c| Event::QueueChanged(id, c)).collect()
        }
        Step::Apply(Event::GroupChanged(id, config)) => {
            simpler_groups(&config).into_iter().map(|c| Event::GroupChanged(id, c)).collect()
        }
        Step::Apply(Event::PodChanged(id, config)) => {
            let costs = simpler_amounts(&config.cost).into_iter();
            let costs = costs.map(|cost| PodConfig { cost, ..config.clone() });
            let plain = PodConfig { priority: 0, ..config.clone() };
            costs.chain([plain]).map(|c| Event::PodChanged(id, c)).collect()
        }
        Step::Apply(Event::NodeChanged(id, config)) => {
            let change = |allocatable| {
                let mut config = config.clone();
                config.allocatable = allocatable;
                Event::NodeChanged(id, config)
            };
            simpler_amounts(&config.allocatable).into_iter().map(change).collect()
        }
        Step::Decide(budget) if budget != usize::MAX => return vec![Step::Decide(usize::MAX)],
        _ => Vec::new(),
    };
    events.into_iter().map(Step::Apply).collect()
}

fn simpler_queues(config: &QueueConfig) -> Vec<QueueConfig> {
    let with = |change: fn(&mut QueueConfig)| {
        let mut config = config.clone();
        change(&mut config);
        config
    };
    let guaranteed = simpler_amounts(&config.guaranteed).into_iter();
    let limit = simpler_amounts(&config.limit).into_iter();
    guaranteed
        .map(|guaranteed| QueueConfig { guaranteed, ..config.clone() })
        .chain([QueueConfig { lendable: Vector::default(), ..config.clone() }])
        .chain(limit.map(|limit| QueueConfig { limit, ..config.clone() }))
        .chain([
            with(|queue| queue.weight = 1),
            with(|queue| queue.order = Order::BestEffort),
            with(|queue| queue.growth = Growth::First),
            with(|queue| queue.half_life = None),
            with(|queue| queue.drain = false),
            with(|queue| (queue.hold, queue.drain, queue.malformed) = (false, false, false)),
            with(|queue| queue.max_pending = None),
            with(|queue| queue.max_running = MaxRunning::default()),
            with(|queue| queue.parent = None),
            with(|queue| queue.preemption.within_queue = WithinQueue::Never),
            with(|queue| queue.preemption.reclaim = Reclaim::Never),
            with(|queue| queue.preemption.min_runtime = Some(0)),
            with(|queue| queue.placement = Placement::Quota),
        ])
        .collect()
}

fn simpler_groups(config: &GroupConfig) -> Vec<GroupConfig> {
    vec![
        GroupConfig { gang: Gang::Units, ..config.clone() },
        GroupConfig { singleton: None, ..config.clone() },
        GroupConfig { non_preemptible: false, ..config.clone() },
        GroupConfig { topology: None, ..config.clone() },
    ]
}

/// The same amounts with one resource less.
fn simpler_amounts(amounts: &Vector) -> Vec<Vector> {
    let without = |(gone, _)| amounts.iter().filter(|&(resource, _)| resource != gone).collect();
    amounts.iter().map(without).collect()
}

//! From the engine's state to rows with names.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::engine::event::Pause;
use crate::engine::{
    Assignment, Engine, Gang, GroupId, GroupSummary, Millis, PodId, QueueId, QueueSummary, Reason,
    Vector,
};

use super::spared::{Refused, Stays};
use super::text::{Known, cause};
use super::{
    Amounts, Counts, GroupRow, GroupState, Held, Names, PODS_SHOWN, PodRow, QueueRow, Totals, View,
    Wait, Why,
};

/// Numbers of a queue with those below it.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    pending: (u64, u64),
    running: (u64, u64),
    oldest: Option<Millis>,
    paused: Option<Pause>,
}

impl View {
    /// Reads everything the engine knows.
    #[must_use]
    pub fn of(engine: &Engine, names: &Names, now: Millis, totals: Totals) -> Self {
        let queues = engine.queues();
        let mut sums = BTreeMap::new();
        let mut maker = Maker::new(engine, names, now);
        let mut rows = Vec::new();
        // One group at a time: what is read of all of them would be larger than all rows.
        for group in engine.groups() {
            sum_up(engine, &group, &mut sums);
            if let Some(known) = names.known(group.id) {
                rows.push((group.id, &known.who.namespace, Arc::new(maker.row(known, &group))));
            }
        }
        rows.sort_unstable_by_key(|(id, ..)| *id);
        line_up(&queues, &mut rows);
        Self {
            revision: totals.rounds,
            time: now,
            synced: false,
            leads: false,
            queues: queues
                .iter()
                .map(|queue| queue_row(engine, names, queue, &sums, now))
                .map(|row| (row.name.clone(), row))
                .collect(),
            groups: rows
                .into_iter()
                .map(|(_, namespace, row)| ((namespace.clone(), row.name.clone()), row))
                .collect(),
            capacity: names.amounts(&engine.capacity()),
            totals,
        }
    }
}

/// Tells the rows, which are in order of their ids, how many groups and pods of the same
/// queue go before them.
fn line_up(queues: &[QueueSummary], rows: &mut [(GroupId, &Arc<str>, Arc<GroupRow>)]) {
    for queue in queues {
        let (mut groups, mut pods) = (0, 0);
        for id in &queue.line {
            let at = rows.binary_search_by_key(id, |(id, ..)| *id);
            let Some((.., row)) = at.ok().and_then(|at| rows.get_mut(at)) else { continue };
            let row = Arc::make_mut(row);
            if let Some(wait) = &mut row.wait {
                (wait.groups_ahead, wait.pods_ahead) = (groups, pods);
            }
            groups += 1;
            pods += row.counts.waiting;
        }
    }
}

fn sum_up(engine: &Engine, group: &GroupSummary, sums: &mut BTreeMap<QueueId, Sums>) {
    let Assignment::Queue(queue) = group.queue else { return };
    let running = count(&group.released) + count(&group.running);
    let waiting = count(&group.waiting);
    let path = engine.path(queue);
    // Work that names a queue that does not exist is still counted under that name.
    for above in if path.is_empty() { vec![queue] } else { path } {
        let sum = sums.entry(above).or_default();
        sum.pending.0 += u64::from(waiting > 0);
        sum.pending.1 += waiting;
        sum.running.0 += u64::from(running > 0);
        sum.running.1 += running;
        if let Some(Reason::ReleasesPaused(pause)) = group.reason {
            sum.paused.get_or_insert(pause);
        }
        if waiting > 0 {
            sum.oldest = Some(sum.oldest.map_or(group.since, |oldest| oldest.min(group.since)));
        }
    }
}

fn count<T>(items: &[T]) -> u64 {
    u64::try_from(items.len()).unwrap_or(u64::MAX)
}

fn queue_row(
    engine: &Engine,
    names: &Names,
    queue: &QueueSummary,
    sums: &BTreeMap<QueueId, Sums>,
    now: Millis,
) -> QueueRow {
    let config = queue.config.clone().unwrap_or_default();
    let sums = sums.get(&queue.id).copied().unwrap_or_default();
    QueueRow {
        name: names.queue(queue.id).name,
        exists: queue.config.is_some(),
        parent: config.parent.map(|parent| names.queue(parent).name),
        weight: config.weight,
        guaranteed: names.mentioned(&config.guaranteed),
        limit: names.mentioned(&config.limit),
        usage: names.amounts(&queue.usage),
        share_per_mille: queue.share_per_mille,
        pending: sums.pending,
        max_pending: config.max_pending,
        full: engine.full().contains(&queue.id),
        running: sums.running,
        oldest: sums.oldest,
        problem: queue.problem.map(|reason| (reason.code(), names.sentence(&reason, now))),
        paused: sums.paused.map(|pause| (pause.cause.code(), cause(&pause))),
    }
}

/// Makes the rows of groups. What many of them say alike is kept once.
struct Maker<'a> {
    engine: &'a Engine,
    names: &'a Names,
    now: Millis,
    amounts: BTreeMap<Vector, Arc<Amounts>>,
    whys: BTreeMap<(Assignment, Reason, bool, Refused), Arc<Why>>,
    /// By group for which evictions are refused.
    refused: BTreeMap<GroupId, Refused>,
    /// By group of which evictions are.
    stay: BTreeMap<GroupId, Stays<'a>>,
}

impl<'a> Maker<'a> {
    fn new(engine: &'a Engine, names: &'a Names, now: Millis) -> Self {
        let (amounts, whys) = (BTreeMap::new(), BTreeMap::new());
        let refused = names.evictions.by_claimant(now);
        let stay = names.evictions.by_group(engine, now);
        Self { engine, names, now, amounts, whys, refused, stay }
    }

    fn row(&mut self, known: &Known, group: &GroupSummary) -> GroupRow {
        GroupRow {
            name: known.row.clone(),
            who: known.who.clone(),
            queue: match group.queue {
                Assignment::Queue(queue) | Assignment::Forbidden(queue, _) => {
                    Some(self.names.queue(queue).name)
                }
                Assignment::Unresolved | Assignment::Unnamed => None,
            },
            state: state(group),
            wait: group.reason.map(|reason| self.wait(group, reason)),
            held: held(self.names, group).map(Box::new),
            spared: self.stay.get(&group.id).and_then(|stays| stays.held(self.names)).map(Box::new),
            min_count: match group.gang {
                Gang::Units => 0,
                Gang::AtLeast(count) => count,
                Gang::All => u32::try_from(members(group)).unwrap_or(u32::MAX),
            },
            priority: group.priority,
            asks: self.amounts(&group.asks),
            charged: self.amounts(&group.charged),
            since: group.since,
            begun: group.begun,
            pods: pod_rows(self.engine, self.names, group),
            counts: Counts {
                waiting: count(&group.waiting),
                released: count(&group.released),
                running: count(&group.running),
                ended: count(&group.ended),
            },
        }
    }

    fn amounts(&mut self, vector: &Vector) -> Arc<Amounts> {
        if let Some(known) = self.amounts.get(vector) {
            return Arc::clone(known);
        }
        let amounts = Arc::new(self.names.amounts(vector));
        self.amounts.insert(vector.clone(), Arc::clone(&amounts));
        amounts
    }

    /// Why it waits; behind whom is known only when all have a row.
    fn wait(&mut self, group: &GroupSummary, reason: Reason) -> Wait {
        let Self { engine, names, now, .. } = *self;
        let refused = self.refused.get(&group.id).copied().unwrap_or_default();
        let make = || Arc::new(why(engine, names, group, &reason, refused, now));
        let alike = (group.queue, reason, group.reserved, refused);
        let why = match reason {
            // What was answered is known of this group alone.
            Reason::ReleaseRefused { .. } => make(),
            _ => Arc::clone(self.whys.entry(alike).or_insert_with(make)),
        };
        Wait { why, groups_ahead: 0, pods_ahead: 0 }
    }
}

/// Of who has waited for long and has a right to it.
const RESERVED: &str = "; what becomes free is reserved for it";

fn why(
    engine: &Engine,
    names: &Names,
    group: &GroupSummary,
    reason: &Reason,
    refused: Refused,
    now: Millis,
) -> Why {
    let reserved = if group.reserved { RESERVED } else { "" };
    let why = Why {
        code: reason.code(),
        message: names.wait(group.id, reason, now) + reserved + &refused.sentence(),
        remedy: names.remedy(reason),
        needs_action: reason.needs_action(),
        settled: !reason.is_passing(),
    };
    never_whole(engine, names, group.queue, reason, why)
}

/// Of a gang that is larger than a backlog on its path, that some of it is always refused.
fn never_whole(
    engine: &Engine,
    names: &Names,
    queue: Assignment,
    reason: &Reason,
    why: Why,
) -> Why {
    let Assignment::Queue(queue) = queue else { return why };
    let &Reason::WaitingForMembers { need, .. } = reason else { return why };
    let Some((queue, most)) = engine.too_few_may_wait(queue, need) else { return why };
    let (queue, message) = (names.queue(queue).name, &why.message);
    Why {
        message: format!("{message}, and they never all do: queue {queue:?} lets only {most} wait"),
        remedy: Some(format!("raise spec.maxPending.pods of queue {queue:?} to {need} or more")),
        needs_action: true,
        ..why
    }
}

fn members(group: &GroupSummary) -> usize {
    group.waiting.len() + group.released.len() + group.running.len() + group.ended.len()
}

fn state(group: &GroupSummary) -> GroupState {
    let out = group.released.len() + group.running.len();
    match (group.waiting.is_empty(), out) {
        (false, 0) if group.ended.is_empty() => GroupState::Waiting,
        (false, _) if group.gang == Gang::Units => GroupState::PartlyReleased,
        (false, _) => GroupState::Growing,
        (true, 0) => GroupState::Ended,
        (true, _) if group.released.iter().any(|&(_, held)| held) => {
            GroupState::WaitingForOtherGate
        }
        (true, _) if group.released.is_empty() => GroupState::Running,
        (true, _) => GroupState::Released,
    }
}

/// Somebody else's gate is told before what kube-scheduler says, and that before silence.
/// While releases are paused, silence may as well be ours.
fn held(names: &Names, group: &GroupSummary) -> Option<Held> {
    let paused = matches!(group.reason, Some(Reason::ReleasesPaused(_)));
    let first = |held: bool, said: bool| {
        let mut pods = group.released.iter();
        pods.find(|(pod, is)| *is == held && names.hindrance(*pod).is_some() == said)
    };
    let (code, &(pod, _)) = first(true, true)
        .or_else(|| first(true, false))
        .map(|pod| ("OtherGate", pod))
        .or_else(|| first(false, true).map(|pod| ("Unschedulable", pod)))
        .or_else(|| first(false, false).filter(|_| !paused).map(|pod| ("Scheduling", pod)))?;
    let name = &names.pod(pod)?.name;
    let said = names.hindrance(pod).map_or("no scheduler has said anything of it yet", |said| said);
    let more = match group.released.len() - 1 {
        0 => String::new(),
        more => format!(" (and {more} more without a node)"),
    };
    Some(Held { code, message: format!("pod {name}{more}: {said}") })
}

fn pod_rows(engine: &Engine, names: &Names, group: &GroupSummary) -> Vec<PodRow> {
    let waiting = group.waiting.iter().map(|&pod| (pod, "Waiting"));
    let released = group
        .released
        .iter()
        .map(|&(pod, held)| (pod, if held { "HeldByOtherGate" } else { "Released" }));
    let running = group
        .running
        .iter()
        .map(|&(pod, terminating)| (pod, if terminating { "Terminating" } else { "Running" }));
    let ended = group.ended.iter().map(|&pod| (pod, "Ended"));
    let row = |(pod, state): (PodId, &'static str)| {
        let name = names.pod(pod)?.name.clone();
        let created = engine.created(pod).unwrap_or_default();
        Some(PodRow { name, state, created, hindrance: names.hindrance(pod).cloned() })
    };
    let rows = waiting.chain(released).chain(running).chain(ended).filter_map(row);
    let mut shown = Vec::with_capacity(members(group).min(PODS_SHOWN));
    shown.extend(rows.take(PODS_SHOWN));
    shown
}

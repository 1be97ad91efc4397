//! How far what queues use is from what would be fair if work could be cut, while demand comes
//! and goes in waves; and how soon, and at what cost, reclaim brings it back.

use anyhow::{Result, ensure};
use tidegate::engine::{
    Millis, QueueId, Reclaim,
    event::{Preemption, QueueConfig},
};

use super::{Virtual, Work};
use crate::figures::Report;
use crate::fleet::mix;

/// Queues above, and below each of them.
const ABOVE: u32 = 100;
const BELOW: u32 = 100;
/// CPUs; each pod asks for one.
const CAPACITY: i128 = 100_000;
const SECOND: Millis = 1_000;
const SAMPLE: Millis = 10 * SECOND;
/// A queue's demand comes back after so long.
const PERIOD: Millis = 600 * SECOND;
const WAVES: Millis = 2;

/// In the second part all of one half of the queues is there first.
const HALF_CAPACITY: i128 = 20_000;
const FOR_EVER: Millis = 1_000_000 * SECOND;
/// It is over when so much is in the wrong hands.
const NEAR: f64 = 0.01;

pub fn measure(report: &mut Report) -> Result<()> {
    report.size("queues of the waves", u64::from(ABOVE * BELOW));
    waves(report, "waves", Reclaim::Never)?;
    waves(report, "waves_with_reclaim", Reclaim::Entitled)?;
    takeover(report)
}

/// The queues above, then those with work.
fn tree(reclaim: Reclaim) -> Vec<QueueConfig> {
    let preemption = Preemption { reclaim, min_runtime: Some(0), ..Preemption::default() };
    let queue = |parent: Option<u32>, number: u32| QueueConfig {
        parent: parent.map(QueueId),
        weight: 1 + number % 7,
        preemption,
        ..QueueConfig::default()
    };
    let above = (0..ABOVE).map(|number| queue(None, number));
    let below = (0..ABOVE * BELOW).map(|number| queue(Some(number / BELOW), number));
    above.chain(below).collect()
}

/// Pods of a minute or two come in bursts, together a bit less than there is, a third of the
/// queues at about the same time.
fn waves(report: &mut Report, name: &str, reclaim: Reclaim) -> Result<()> {
    let queues = tree(reclaim);
    let mut run = Virtual::new(CAPACITY, &queues);
    let mut pods = 0;
    for number in 0..u64::from(ABOVE * BELOW) {
        let chance = |salt: u64, below: u64| mix(number * 31 + salt) % below;
        let queue = QueueId(ABOVE + u32::try_from(number)?);
        let phase = PERIOD / 3 * Millis::try_from(chance(1, 3))?;
        let late = SECOND * Millis::try_from(chance(2, 60))?;
        for wave in 0..WAVES {
            for pod in 0..20 + chance(3, 60) {
                let runs = SECOND * (60 + Millis::try_from(mix(number << 8 | pod) % 120)?);
                run.expect(Work::new(queue, 1, 0, phase + late + wave * PERIOD, runs));
                pods += 1;
            }
        }
    }
    report.size(&format!("pods of the {name}"), pods);
    let (mut away, mut beyond_one) = (Vec::new(), Vec::new());
    for at in 1..=(WAVES * PERIOD / SAMPLE) {
        run.run(Some(at * SAMPLE));
        let distance = Distance::of(&run, &queues, CAPACITY);
        ensure!(distance.unused < 1.0, "{name}: {} CPUs are idle at {at}", distance.unused);
        away.push(distance.away);
        beyond_one.push(distance.beyond_one);
    }
    report.size(&format!("looks at the {name}"), away.len() as u64);
    for (what, of) in [("away", &mut away), ("away_beyond_a_pod", &mut beyond_one)] {
        of.sort_by(f64::total_cmp);
        report.add(format!("{name}_{what}_p50"), 100.0 * of[of.len() / 2], "% of all CPUs");
        report.add(format!("{name}_{what}_max"), 100.0 * of[of.len() - 1], "% of all CPUs");
    }
    report.add(format!("{name}_evictions"), run.evictions as f64, "pods");
    report.add(format!("{name}_core"), run.took.as_secs_f64(), "s of the core");
    report.add(format!("{name}_longest_round"), run.longest.as_secs_f64() * 1e3, "ms");
    Ok(())
}

/// One half of the queues uses everything and never ends; then the other half asks for as much.
fn takeover(report: &mut Report) -> Result<()> {
    let queues = tree(Reclaim::Entitled);
    let mut run = Virtual::new(HALF_CAPACITY, &queues);
    let begin = 10 * SECOND;
    for number in 0..ABOVE * BELOW {
        let comes = if number % 2 == 0 { 0 } else { begin };
        for _ in 0..10 {
            run.expect(Work::new(QueueId(ABOVE + number), 1, 0, comes, FOR_EVER));
        }
    }
    run.run(Some(begin));
    let wrong = Distance::of(&run, &queues, HALF_CAPACITY).away * HALF_CAPACITY as f64;
    let mut at = begin;
    while Distance::of(&run, &queues, HALF_CAPACITY).beyond_one > NEAR {
        ensure!(at < begin + 3600 * SECOND, "not near what is fair after an hour");
        at += SECOND;
        run.run(Some(at));
    }
    let evictions = run.evictions as f64;
    report.add("reclaim_away_at_first", wrong, "CPUs");
    report.add("reclaim_until_near", (at - begin) as f64 / 1e3, "s");
    report.add("reclaim_evictions_to_moved", evictions / wrong, "x");
    run.run(Some(at + 600 * SECOND));
    let rest = Distance::of(&run, &queues, HALF_CAPACITY);
    report.add("reclaim_away_at_last", 100.0 * rest.away, "% of all CPUs");
    report.add_with_goal("reclaim_most_below_at_last", rest.worst, "pods", "at most 1");
    report.add(
        "reclaim_evictions_in_the_ten_minutes_after",
        run.evictions as f64 - evictions,
        "pods",
    );
    report.add("reclaim_core", run.took.as_secs_f64(), "s of the core");
    Ok(())
}

/// What lies between use and what is fair.
struct Distance {
    /// Part of the capacity that others use than those to whom it is due.
    away: f64,
    /// The same, where each may be a pod below its due: a pod cannot be cut.
    beyond_one: f64,
    /// The most that a queue is below its due, in CPUs.
    worst: f64,
    /// CPUs that are idle while somebody asks for them.
    unused: f64,
}

impl Distance {
    fn of(run: &Virtual, queues: &[QueueConfig], capacity: i128) -> Self {
        let capacity = capacity as f64;
        let fair = fair(run, queues, capacity);
        let below: Vec<f64> =
            fair.iter().zip(&run.used).map(|(fair, used)| (fair - *used as f64).max(0.0)).collect();
        let sum = |amounts: &[i128]| amounts.iter().sum::<i128>() as f64;
        Self {
            away: below.iter().sum::<f64>() / capacity,
            beyond_one: below.iter().map(|below| (below - 1.0).max(0.0)).sum::<f64>() / capacity,
            worst: below.iter().copied().fold(0.0, f64::max),
            unused: sum(&run.asked).min(capacity) - sum(&run.used),
        }
    }
}

/// Weighted max-min among the queues above, and then below each of them.
fn fair(run: &Virtual, queues: &[QueueConfig], capacity: f64) -> Vec<f64> {
    let (above, below) = queues.split_at(ABOVE as usize);
    let asked = &run.asked[ABOVE as usize..];
    let sums: Vec<f64> =
        asked.chunks(BELOW as usize).map(|some| some.iter().sum::<i128>() as f64).collect();
    let mut all = vec![0.0; ABOVE as usize];
    let parts = pour(capacity, above, &sums);
    let lines = below.chunks(BELOW as usize).zip(asked.chunks(BELOW as usize));
    for (part, (queues, asked)) in parts.into_iter().zip(lines) {
        let asked: Vec<f64> = asked.iter().map(|&asked| asked as f64).collect();
        all.extend(pour(part, queues, &asked));
    }
    all
}

/// Water into vessels as wide as weights, of which each holds what it asks.
fn pour(whole: f64, queues: &[QueueConfig], asked: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..queues.len()).collect();
    let weight = |index: usize| f64::from(queues[index].weight);
    order.sort_by(|&a, &b| (asked[a] / weight(a)).total_cmp(&(asked[b] / weight(b))));
    let (mut left, mut width) = (whole, order.iter().map(|&index| weight(index)).sum::<f64>());
    let mut parts = vec![0.0; queues.len()];
    for index in order {
        parts[index] = asked[index].min(left * weight(index) / width);
        left -= parts[index];
        width -= weight(index);
    }
    parts
}

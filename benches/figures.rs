//! Figures, and the machine they are from.

use std::{collections::BTreeMap, fs, time::Duration};

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

/// What was measured in one run.
#[derive(Debug, Default, Deserialize, Serialize)]
pub struct Report {
    /// The machine.
    hardware: Hardware,
    /// How much of what was there.
    sizes: BTreeMap<String, u64>,
    figures: Vec<Figure>,
}

#[derive(Debug, Deserialize, Serialize)]
struct Figure {
    name: String,
    value: f64,
    unit: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    goal: Option<String>,
}

#[derive(Debug, Deserialize, Serialize)]
struct Hardware {
    cores: usize,
    memory_gib: u64,
    cpu: String,
    /// How many processes wanted a core in the minute before.
    load: f64,
}

impl Default for Hardware {
    fn default() -> Self {
        let line = |file: &str, key: &str| {
            let text = fs::read_to_string(file).unwrap_or_default();
            let line = text.lines().find(|line| line.starts_with(key))?.to_owned();
            Some(line.split_once(':')?.1.trim().to_owned())
        };
        let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let memory = line("/proc/meminfo", "MemTotal");
        let kib = memory.and_then(|text| text.split(' ').next()?.parse::<u64>().ok());
        Self {
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            memory_gib: (kib.unwrap_or(0) + (1 << 19)) >> 20,
            cpu: line("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown".to_owned()),
            load: load.split(' ').next().and_then(|first| first.parse().ok()).unwrap_or(0.0),
        }
    }
}

impl Report {
    /// How much of something there was.
    pub fn size(&mut self, name: &str, value: u64) {
        self.sizes.insert(name.to_owned(), value);
    }

    /// One figure.
    pub fn add(&mut self, name: impl Into<String>, value: f64, unit: &str) {
        self.figures.push(Figure { name: name.into(), value, unit: unit.to_owned(), goal: None });
    }

    /// One figure and what it should be.
    pub fn add_with_goal(&mut self, name: impl Into<String>, value: f64, unit: &str, goal: &str) {
        self.add(name, value, unit);
        if let Some(figure) = self.figures.last_mut() {
            figure.goal = Some(goal.to_owned());
        }
    }

    /// Takes over what another process measured.
    pub fn merge(&mut self, other: Self) {
        self.sizes.extend(other.sizes);
        self.figures.extend(other.figures);
    }

    /// The medians of several reports of the same, the smallest and the largest beside.
    pub fn spread(reports: Vec<Self>) -> Self {
        let mut reports = reports.into_iter();
        let Some(mut all) = reports.next() else { return Self::default() };
        let others: Vec<Self> = reports.collect();
        let mut figures = Vec::new();
        for figure in std::mem::take(&mut all.figures) {
            let same = others.iter().filter_map(|other| other.value(&figure.name).ok());
            let mut values: Vec<f64> = same.chain([figure.value]).collect();
            values.sort_by(f64::total_cmp);
            let at = |value: f64, name: &str| Figure {
                name: format!("{}{name}", figure.name),
                value,
                unit: figure.unit.clone(),
                goal: None,
            };
            figures.push(Figure { goal: figure.goal.clone(), ..at(values[values.len() / 2], "") });
            figures.push(at(values[0], "_min"));
            figures.push(at(values[values.len() - 1], "_max"));
        }
        Self { figures, ..all }
    }

    /// The value of a figure that was added.
    pub fn value(&self, name: &str) -> Result<f64> {
        let figure = self.figures.iter().find(|figure| figure.name == name);
        Ok(figure.with_context(|| format!("no figure {name}"))?.value)
    }

    /// One JSON object.
    pub fn json(&self) -> String {
        // A struct of texts and numbers always has a JSON form.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// One line a figure.
    pub fn text(&self) -> String {
        let machine = &self.hardware;
        let sizes: Vec<_> =
            self.sizes.iter().map(|(name, size)| format!("{name} {size}")).collect();
        let mut lines = vec![
            format!(
                "hardware {} cores, {} GiB, {}, load {} before",
                machine.cores, machine.memory_gib, machine.cpu, machine.load
            ),
            format!("sizes {}", sizes.join(", ")),
        ];
        lines.extend(self.figures.iter().map(Figure::line));
        lines.join("\n") + "\n"
    }
}

impl Figure {
    fn line(&self) -> String {
        let goal = self.goal.as_ref().map(|goal| format!(" (goal {goal})")).unwrap_or_default();
        format!("figure {} = {} {}{goal}", self.name, rounded(self.value), self.unit)
    }
}

/// Three digits that count.
fn rounded(value: f64) -> String {
    let digits = match value.abs() {
        ..1.0 => 3,
        ..10.0 => 2,
        ..100.0 => 1,
        _ => 0,
    };
    format!("{value:.digits$}")
}

/// Times of one thing done again and again.
#[derive(Debug, Default)]
pub struct Samples(Vec<Duration>);

impl FromIterator<Duration> for Samples {
    fn from_iter<T: IntoIterator<Item = Duration>>(times: T) -> Self {
        Self(times.into_iter().collect())
    }
}

impl Samples {
    /// One more.
    pub fn add(&mut self, took: Duration) {
        self.0.push(took);
    }

    /// The shortest; zero without samples.
    pub fn fastest(&self) -> Duration {
        self.0.iter().min().copied().unwrap_or_default()
    }

    /// The time that this part of a hundred did not exceed; zero without samples.
    pub fn percentile(&mut self, percent: usize) -> Duration {
        self.per_mille(percent * 10)
    }

    /// The same in thousandths.
    pub fn per_mille(&mut self, part: usize) -> Duration {
        self.0.sort_unstable();
        let rank = (self.0.len() * part).div_ceil(1_000).max(1);
        self.0.get(rank - 1).copied().unwrap_or_default()
    }
}

/// The middle one, or the mean of the two in the middle; zero of none.
pub fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<_> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => 0.0,
        odd if odd % 2 == 1 => values[middle],
        _ => f64::midpoint(values[middle - 1], values[middle]),
    }
}

/// Nanoseconds as a number for people.
pub fn nanos(took: Duration) -> f64 {
    took.as_secs_f64() * 1e9
}

/// Milliseconds as a number for people.
pub fn millis(took: Duration) -> f64 {
    took.as_secs_f64() * 1e3
}

/// CPU time that a process has used so far.
pub fn cpu_time(process: u32) -> Result<Duration> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat"))?;
    // A program's name may hold anything, but nothing after it holds a bracket.
    let (_, rest) = stat.rsplit_once(')').context("half a line")?;
    let ticks = rest.split_whitespace().skip(11).take(2).map(str::parse::<u64>);
    // Linux tells hundredths of seconds, whatever its kernel counts in.
    Ok(Duration::from_millis(10 * ticks.sum::<Result<u64, _>>()?))
}

/// Bytes that a process has in memory now, and at most so far.
pub fn memory(process: &str) -> Result<(u64, u64)> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    let bytes = |key: &str| {
        let line = status.lines().find(|line| line.starts_with(key))?;
        Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? * 1024)
    };
    bytes("VmRSS:").zip(bytes("VmHWM:")).context("no memory in the status of the process")
}

//! The live table, and the shares it saw.

use std::{
    io::IsTerminal as _,
    time::{Duration, Instant},
};

use anyhow::Result;
use serde_json::Value;

use crate::work::{Team, Work};

/// Between two tables on a terminal.
const QUICK: Duration = Duration::from_millis(500);
/// Between two tables elsewhere.
const SLOW: Duration = Duration::from_secs(5);
/// Groups shown.
const ROWS: usize = 24;

/// What was last seen.
pub struct Board {
    begin: Instant,
    shown: Option<Instant>,
    terminal: bool,
    lines: usize,
    queues: Vec<QueueLine>,
    groups: Vec<Value>,
    first: u64,
    all: u64,
    looks: u64,
}

struct QueueLine {
    name: &'static str,
    weight: i64,
    milli: u64,
    pending: i64,
    running: i64,
}

impl Board {
    /// An empty board.
    pub fn new(begin: Instant) -> Self {
        Self {
            begin,
            shown: None,
            terminal: std::io::stdout().is_terminal(),
            lines: 0,
            queues: Vec::new(),
            groups: Vec::new(),
            first: 0,
            all: 0,
            looks: 0,
        }
    }

    /// Reads queues and groups as any user would.
    pub async fn look(&mut self, teams: &[Team]) -> Result<()> {
        self.queues.clear();
        self.groups.clear();
        for team in teams {
            let status = team.lab.get_queue(team.name).await?.status.unwrap_or_default();
            let cpu = status.usage.get("cpu").map_or("0", String::as_str);
            let units = tidegate::quantity::parse(cpu)?.engine_units("cpu");
            self.queues.push(QueueLine {
                name: team.name,
                weight: team.weight,
                milli: u64::try_from(units)?,
                pending: status.pending.pods,
                running: status.running.pods,
            });
        }
        if let Some(team) = teams.first() {
            self.groups = team.lab.all_groups().await?;
        }
        self.note_shares();
        Ok(())
    }

    /// Shares count while every queue has work waiting and work running.
    fn note_shares(&mut self) {
        if self.queues.iter().all(|queue| queue.pending > 0 && queue.running > 0) {
            self.first += self.queues.first().map_or(0, |queue| queue.milli);
            self.all += self.queues.iter().map(|queue| queue.milli).sum::<u64>();
            self.looks += 1;
        }
    }

    /// Part of the CPU in use that the first queue had, in hundredths.
    pub fn share_of_first(&self) -> Option<u64> {
        (self.first * 100 + self.all / 2).checked_div(self.all)
    }

    /// How often both queues had work.
    pub fn looks(&self) -> u64 {
        self.looks
    }

    /// Whether the controller shows the object. Runs of a CronJob come when it is time.
    pub fn knows(&self, work: &Work) -> bool {
        work.kind == "CronJob"
            || self.groups.iter().any(|group| {
                let root = &group["root"];
                root["kind"] == work.kind
                    && root["name"] == work.object
                    && group["metadata"]["namespace"] == work.namespace
            })
    }

    /// Draws the table when it is time.
    pub fn show(&mut self) {
        let every = if self.terminal { QUICK } else { SLOW };
        if self.shown.is_some_and(|shown| shown.elapsed() < every) {
            return;
        }
        self.shown = Some(Instant::now());
        self.draw();
    }

    /// Draws the last table.
    pub fn finish(&mut self) {
        self.draw();
    }

    fn draw(&mut self) {
        let mut table = self.table();
        if self.terminal {
            let up =
                if self.lines > 0 { format!("\x1b[{}A\x1b[J", self.lines) } else { String::new() };
            self.lines = table.lines().count();
            table.insert_str(0, &up);
        }
        print!("{table}");
    }

    fn table(&self) -> String {
        let seconds = self.begin.elapsed().as_secs();
        let mut lines = vec![
            String::new(),
            format!(
                "{:<10}{:>8}{:>10}{:>10}{:>10}   {seconds} s",
                "QUEUE", "WEIGHT", "WAITING", "RUNNING", "CPU"
            ),
        ];
        lines.extend(self.queues.iter().map(queue_row));
        let (ended, open): (Vec<&Value>, Vec<&Value>) =
            self.groups.iter().partition(|group| group["state"] == "Ended");
        lines.push(format!(
            "{:<22}{:<30}{:<21}{:>8}{:>9}{:>7}",
            "NAMESPACE", "GROUP", "STATE", "WAITING", "RUNNING", "ENDED"
        ));
        lines.extend(open.iter().take(ROWS).map(|group| group_row(group)));
        let more = open.len().saturating_sub(ROWS);
        lines.push(format!("... {more} more, and {} that have ended", ended.len()));
        lines.join("\n") + "\n"
    }
}

fn queue_row(queue: &QueueLine) -> String {
    let cpu = format!("{}.{}", queue.milli / 1000, queue.milli % 1000 / 100);
    format!(
        "{:<10}{:>8}{:>10}{:>10}{cpu:>10}",
        queue.name, queue.weight, queue.pending, queue.running
    )
}

fn group_row(group: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (root, pods) = (&group["root"], &group["counts"]);
    format!(
        "{:<22}{:<30}{:<21}{:>8}{:>9}{:>7}",
        text(&group["metadata"]["namespace"]),
        format!("{}/{}", text(&root["kind"]), text(&root["name"])),
        text(&group["state"]),
        pods["waiting"].to_string(),
        pods["running"].to_string(),
        pods["ended"].to_string(),
    )
}

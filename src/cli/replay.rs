//! `tidegate replay`.

use std::path::PathBuf;
use std::time::Instant;

use clap::ValueEnum;
use serde::Serialize;

use crate::engine::log::{Differs, Replay as Again};
use crate::record::{Logs, RecordError};

use super::Failure;
use super::output::Printed;

/// Does again what a controller that ran with `--record` was told, and says whether the same is
/// decided. A log that is decided otherwise is a bug, or another version: exit code 1.
#[derive(Debug, clap::Args)]
pub struct Replay {
    /// Logs, as `--record` writes them; each is done by itself.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// How to print.
    #[arg(short, long, value_enum, default_value_t = Format::Text)]
    output: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people.
    Text,
    /// One JSON array.
    Json,
}

/// What became of one log.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    file: PathBuf,
    entries: u64,
    events: u64,
    started: u64,
    evicted: u64,
    digest: String,
    events_per_second: u64,
    /// It ends in the middle of an entry.
    cut: bool,
    /// The first entry that is decided otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    differs: Option<String>,
}

/// Replays each file.
pub fn replay(args: &Replay) -> Result<Printed, Failure> {
    let mut reports = Vec::new();
    for file in &args.files {
        let report = one(file).map_err(|error| match error {
            RecordError::File { .. } => Failure::Error(error.to_string()),
            _ => Failure::Error(format!("{}: {error}", file.display())),
        })?;
        reports.push(report);
    }
    let failed = reports.iter().any(|report| report.differs.is_some());
    let out = match args.output {
        Format::Text => reports.iter().map(Report::text).collect(),
        Format::Json => serde_json::to_string_pretty(&reports)
            .map(|text| text + "\n")
            .map_err(|error| Failure::Error(error.to_string()))?,
    };
    Ok(Printed { failed, ..Printed::out(out) })
}

fn one(file: &PathBuf) -> Result<Report, RecordError> {
    let bytes =
        std::fs::read(file).map_err(|source| RecordError::File { path: file.clone(), source })?;
    let mut logs = Logs::of(&bytes)?;
    let mut again = Again::default();
    let began = Instant::now();
    let mut differs = None::<Differs>;
    for entry in logs.by_ref() {
        if let Err(found) = again.step(entry?) {
            differs = Some(found);
            break;
        }
    }
    let counts = again.counts();
    let micros = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX).max(1);
    Ok(Report {
        file: file.clone(),
        entries: counts.entries,
        events: counts.events,
        started: counts.started,
        evicted: counts.evicted,
        digest: format!("{:016x}", again.digest().0),
        events_per_second: counts.events.saturating_mul(1_000_000) / micros,
        cut: logs.cut,
        differs: differs.map(|differs| differs.to_string()),
    })
}

impl Report {
    fn text(&self) -> String {
        let Self { entries, events, started, evicted, digest, .. } = self;
        let end = match &self.differs {
            Some(differs) => differs.clone(),
            None if self.cut => {
                "the same was decided; it ends in the middle of an entry".to_owned()
            }
            None => "the same was decided".to_owned(),
        };
        format!(
            "{}: {entries} entries, {events} events ({} a second), {started} pods let go, \
             {evicted} evicted, digest {digest}: {end}\n",
            self.file.display(),
            self.events_per_second,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(files: &[&str]) -> Replay {
        Replay { files: files.iter().map(PathBuf::from).collect(), output: Format::Text }
    }

    #[test]
    fn a_file_that_is_none_is_named() {
        let failure = replay(&args(&["/nowhere/a.log"])).unwrap_err();
        assert!(failure.to_string().starts_with("/nowhere/a.log: "), "{failure}");
        let this = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        let failure = replay(&args(&[this])).unwrap_err();
        assert!(failure.to_string().contains("no log that this version can read"), "{failure}");
    }

    #[test]
    fn the_run_that_was_recorded_is_decided_the_same_again() {
        let fixtures = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures");
        let files = std::fs::read_dir(fixtures).unwrap().map(|file| file.unwrap().path());
        let files: Vec<PathBuf> =
            files.filter(|path| path.extension().is_some_and(|end| end == "log")).collect();
        assert!(!files.is_empty());
        let printed = replay(&Replay { files, output: Format::Text }).unwrap();
        assert!(!printed.failed, "{}", printed.out);
        assert!(printed.out.lines().all(|line| line.ends_with("the same was decided")));
    }
}

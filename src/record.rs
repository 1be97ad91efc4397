//! Logs of the decision core as files.
//!
//! A first line of text says what it is; then entries follow one another, each in the compact
//! form of the `postcard` wire format. A log that ends in the middle of an entry is that of a
//! process that was killed.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

use crate::engine::log::{Entry, Log};

/// The first line.
const HEAD: &[u8] = b"tidegate log 1\n";
/// Entries that may wait to be written; a disk that is slower than that ends the log.
const WAITING: usize = 65_536;
/// How long an entry may stay in memory.
const FLUSH_EVERY: Duration = Duration::from_secs(1);

/// A log cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The file cannot be made or read. Drop.
    #[error("{}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is something else, or of another version. Drop.
    #[error("this is no log that this version can read: its first line is not \"tidegate log 1\"")]
    Foreign,
    /// Bytes that mean nothing. Drop.
    #[error("what follows entry {0} is no entry")]
    Malformed(u64),
}

/// Begins a log: `tidegate-TIME-PROCESS.log` in a directory. It ends when the disk does not keep
/// up, cannot be written, or the file has grown beyond `most` bytes; the loop never waits for it.
pub fn begin(directory: &Path, time: i64, most: u64) -> Result<Log, RecordError> {
    let path = directory.join(format!("tidegate-{time}-{}.log", std::process::id()));
    let failed = |source| RecordError::File { path: path.clone(), source };
    let file = File::create_new(&path).map_err(failed)?;
    let (sender, entries) = sync_channel(WAITING);
    let writing = path.clone();
    let thread = thread::Builder::new().name("record".to_owned());
    thread
        .spawn(move || match write(file, &entries, most) {
            Ok(()) => {}
            Err(error) => tracing::warn!(path = %writing.display(), %error, "record_ended"),
        })
        .map_err(failed)?;
    tracing::info!(path = %path.display(), "record_begins");
    Ok(Box::new(move |entry| sender.try_send(entry).is_ok()))
}

fn write(file: File, entries: &Receiver<Entry>, most: u64) -> io::Result<()> {
    let mut file = BufWriter::new(file);
    file.write_all(HEAD)?;
    let mut size = 0;
    loop {
        let entry = match entries.recv_timeout(FLUSH_EVERY) {
            Ok(entry) => entry,
            Err(RecvTimeoutError::Timeout) => {
                file.flush()?;
                continue;
            }
            Err(RecvTimeoutError::Disconnected) => return file.flush(),
        };
        let bytes = postcard::to_stdvec(&entry).map_err(io::Error::other)?;
        size += u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        if size > most {
            file.flush()?;
            return Err(io::Error::other(format!("it has grown to {most} bytes")));
        }
        file.write_all(&bytes)?;
    }
}

/// What a log holds.
#[derive(Debug)]
pub struct Logs<'a> {
    rest: &'a [u8],
    entries: u64,
    /// It ends in the middle of an entry.
    pub cut: bool,
}

impl<'a> Logs<'a> {
    /// Looks at the first line.
    pub fn of(bytes: &'a [u8]) -> Result<Self, RecordError> {
        let rest = bytes.strip_prefix(HEAD).ok_or(RecordError::Foreign)?;
        Ok(Self { rest, entries: 0, cut: false })
    }
}

impl Iterator for Logs<'_> {
    type Item = Result<Entry, RecordError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        match postcard::take_from_bytes(self.rest) {
            Ok((entry, rest)) => {
                self.rest = rest;
                self.entries += 1;
                Some(Ok(entry))
            }
            Err(error) => {
                self.rest = &[];
                self.cut = error == postcard::Error::DeserializeUnexpectedEnd;
                (!self.cut).then_some(Err(RecordError::Malformed(self.entries)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::ClusterId;
    use crate::engine::event::Event;
    use crate::engine::log::{Logged, Replay};

    fn logged(most: u64, entries: i64) -> Vec<u8> {
        let (sender, receiver) = sync_channel(WAITING);
        let mut engine = Logged::new(Some(Box::new(move |entry| sender.try_send(entry).is_ok())));
        for now in 0..entries {
            engine.apply(now, Event::Synced(ClusterId(1)));
            engine.tick(now);
            engine.decide(10);
        }
        drop(engine);
        let path = std::env::temp_dir().join(format!("tidegate-{most}-{}", std::process::id()));
        let written = write(File::create(&path).unwrap(), &receiver, most);
        assert_eq!(written.is_ok(), most > 1_000, "{written:?}");
        let bytes = std::fs::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        bytes
    }

    #[test]
    fn what_was_written_is_read_and_done_again() {
        let bytes = logged(1 << 20, 20);
        let mut replay = Replay::default();
        for entry in Logs::of(&bytes).unwrap() {
            replay.step(entry.unwrap()).unwrap();
        }
        assert_eq!((replay.counts().entries, replay.counts().events), (60, 20));
    }

    #[test]
    fn a_log_that_has_grown_too_large_ends_with_a_whole_entry() {
        let bytes = logged(100, 20);
        let mut logs = Logs::of(&bytes).unwrap();
        assert!(logs.by_ref().all(|entry| entry.is_ok()) && !logs.cut);
    }

    #[test]
    fn a_log_that_was_cut_is_read_as_far_as_it_goes() {
        let bytes = logged(1 << 20, 20);
        let mut logs = Logs::of(&bytes[..bytes.len() - 1]).unwrap();
        assert_eq!(logs.by_ref().flatten().count(), 59);
        assert!(logs.cut);
    }

    #[test]
    fn other_files_and_other_bytes_are_told_from_logs() {
        assert!(matches!(Logs::of(b"tidegate log 2\n"), Err(RecordError::Foreign)));
        let bytes = [HEAD, &[0xff; 40]].concat();
        let last = Logs::of(&bytes).unwrap().last();
        assert!(matches!(last, Some(Err(RecordError::Malformed(0)))), "{last:?}");
    }
}

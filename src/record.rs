//! Logs of the decision core as files.
//!
//! A first line of text says what it is; then entries follow one another, each in the compact
//! form of the `postcard` wire format. A log that ends in the middle of an entry is that of a
//! process that was killed.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::Duration;

use crate::engine::log::{Entry, Log, Next};

/// The first line.
const HEAD: &[u8] = b"tidegate log 2\n";
/// Entries that may wait to be written; a disk that is slower than that ends the log.
const WAITING: usize = 65_536;
/// Files of one process that are kept.
const KEPT: u32 = 2;
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
    #[error("this is no log that this version can read: its first line is not \"tidegate log 2\"")]
    Foreign,
    /// Bytes that mean nothing. Drop.
    #[error("what follows entry {0} is no entry")]
    Malformed(u64),
}

/// Begins a log in a directory: `tidegate-TIME-PROCESS-NUMBER.log`. With every `most` bytes that
/// were told another file begins with what there is then; the last two are kept. It ends when the
/// disk does not keep up or cannot be written; the loop never waits for it.
pub fn begin(directory: &Path, time: i64, most: u64) -> Result<Box<dyn Log>, RecordError> {
    let stem = directory.join(format!("tidegate-{time}-{}", std::process::id()));
    let (sink, receiver) = sink(WAITING);
    let path = numbered(&stem, 1);
    let failed = |source| RecordError::File { path: path.clone(), source };
    let mut files = Files::begin(stem, most, Arc::clone(&sink.is_full)).map_err(failed)?;
    let thread = thread::Builder::new().name("record".to_owned());
    let work = move || {
        if let Err(error) = files.write(&receiver) {
            ended(&error.to_string());
        }
    };
    thread.spawn(work).map_err(failed)?;
    tracing::info!(path = %path.display(), "record_begins");
    Ok(Box::new(sink))
}

fn ended(reason: &str) {
    tracing::warn!(reason, "record_ended");
}

fn numbered(stem: &Path, number: u32) -> PathBuf {
    let mut path = stem.as_os_str().to_owned();
    path.push(format!("-{number}.log"));
    path.into()
}

/// What goes into the files.
enum Part {
    Entry(Entry),
    /// Another file begins with these bytes.
    Snapshot(Vec<u8>),
}

/// The loop's end.
struct Sink {
    parts: SyncSender<Part>,
    is_full: Arc<AtomicBool>,
}

fn sink(waiting: usize) -> (Sink, Receiver<Part>) {
    let (parts, receiver) = sync_channel(waiting);
    (Sink { parts, is_full: Arc::default() }, receiver)
}

impl Sink {
    fn send(&self, part: Part) -> Next {
        match self.parts.try_send(part) {
            Ok(()) if self.is_full.swap(false, Ordering::Relaxed) => Next::Snapshot,
            Ok(()) => Next::Entry,
            Err(TrySendError::Full(_)) => {
                ended("the disk does not keep up");
                Next::Nothing
            }
            // The thread has said why.
            Err(TrySendError::Disconnected(_)) => Next::Nothing,
        }
    }
}

impl Log for Sink {
    fn take(&mut self, entry: Entry) -> Next {
        self.send(Part::Entry(entry))
    }

    fn begin(&mut self, snapshot: &mut dyn Iterator<Item = Entry>) -> Next {
        match bytes(snapshot) {
            Ok(bytes) => self.send(Part::Snapshot(bytes)),
            Err(error) => {
                ended(&error.to_string());
                Next::Nothing
            }
        }
    }
}

/// Entries as they are in a file.
pub fn bytes(entries: impl Iterator<Item = Entry>) -> Result<Vec<u8>, postcard::Error> {
    entries.into_iter().try_fold(HEAD.to_vec(), |bytes, entry| postcard::to_extend(&entry, bytes))
}

/// The thread's end: the file that is written, and how far.
struct Files {
    stem: PathBuf,
    number: u32,
    file: BufWriter<File>,
    /// Bytes in it, without what it began with.
    size: u64,
    most: u64,
    is_full: Arc<AtomicBool>,
}

impl Files {
    fn begin(stem: PathBuf, most: u64, is_full: Arc<AtomicBool>) -> io::Result<Self> {
        let mut file = BufWriter::new(File::create_new(numbered(&stem, 1))?);
        file.write_all(HEAD)?;
        Ok(Self { stem, number: 1, file, size: 0, most, is_full })
    }

    fn write(&mut self, parts: &Receiver<Part>) -> io::Result<()> {
        loop {
            match parts.recv_timeout(FLUSH_EVERY) {
                Ok(Part::Entry(entry)) => self.add(&entry)?,
                Ok(Part::Snapshot(bytes)) => self.begin_anew(&bytes)?,
                Err(RecvTimeoutError::Timeout) => self.file.flush()?,
                Err(RecvTimeoutError::Disconnected) => return self.file.flush(),
            }
        }
    }

    fn add(&mut self, entry: &Entry) -> io::Result<()> {
        let bytes = postcard::to_stdvec(entry).map_err(io::Error::other)?;
        let was_full = self.size > self.most;
        self.size += u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        if self.size > self.most && !was_full {
            self.is_full.store(true, Ordering::Relaxed);
        }
        self.file.write_all(&bytes)
    }

    fn begin_anew(&mut self, snapshot: &[u8]) -> io::Result<()> {
        self.file.flush()?;
        self.number += 1;
        self.file = BufWriter::new(File::create_new(numbered(&self.stem, self.number))?);
        self.file.write_all(snapshot)?;
        self.size = 0;
        match self.number.checked_sub(KEPT) {
            None | Some(0) => Ok(()),
            Some(old) => fs::remove_file(numbered(&self.stem, old)),
        }
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

    /// What is written when so many ticks, rounds and changes were told, each after the last was
    /// written.
    fn recorded(directory: &Path, most: u64, rounds: i64) -> Vec<Vec<u8>> {
        let stem = directory.join("log");
        let (sink, receiver) = sink(WAITING);
        let mut files = Files::begin(stem, most, Arc::clone(&sink.is_full)).unwrap();
        let mut engine = Logged::new(Some(Box::new(sink)));
        let mut write = || {
            for part in receiver.try_iter() {
                match part {
                    Part::Entry(entry) => files.add(&entry).unwrap(),
                    Part::Snapshot(bytes) => files.begin_anew(&bytes).unwrap(),
                }
            }
            files.file.flush().unwrap();
        };
        for now in 0..rounds {
            engine.tick(now);
            engine.apply(now, Event::Synced(ClusterId(u16::try_from(now).unwrap())));
            engine.decide(10);
            write();
        }
        let mut paths: Vec<_> =
            fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        paths.iter().map(|path| fs::read(path).unwrap()).collect()
    }

    /// A directory of its own that goes with the test.
    struct Place(PathBuf);

    impl Place {
        fn new(name: &str) -> Self {
            let place = format!("tidegate-record-{name}-{}", std::process::id());
            let place = std::env::temp_dir().join(place);
            fs::create_dir(&place).unwrap();
            Self(place)
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            drop(fs::remove_dir_all(&self.0));
        }
    }

    fn done_again(bytes: &[u8]) -> Replay {
        let mut replay = Replay::default();
        for entry in Logs::of(bytes).unwrap() {
            replay.step(entry.unwrap()).unwrap();
        }
        replay
    }

    #[test]
    fn what_was_written_is_read_and_done_again() {
        let place = Place::new("written");
        let files = recorded(&place.0, 1 << 20, 20);
        assert_eq!(files.len(), 1);
        let counts = done_again(&files[0]).counts();
        assert_eq!((counts.entries, counts.events), (60, 20));
    }

    #[test]
    fn of_a_log_that_grows_the_last_two_files_are_kept_and_each_is_done_again_by_itself() {
        let place = Place::new("grown");
        let files = recorded(&place.0, 100, 200);
        let [before, last] = &files[..] else { panic!("{} files", files.len()) };
        assert!(!place.0.join("log-1.log").exists());
        assert_eq!(done_again(last).counts().events, 200, "every cluster is in the last");
        assert!(done_again(before).counts().events < 200);
        assert!(last.len() < HEAD.len() + 200 * 5 + 200, "no more than there is and the limit");
    }

    #[test]
    fn a_disk_that_does_not_keep_up_ends_the_log_and_not_the_engine() {
        let (sink, receiver) = sink(2);
        let mut engine = Logged::new(Some(Box::new(sink)));
        for now in 0..3 {
            assert!(engine.is_recorded());
            engine.tick(now);
        }
        assert!(!engine.is_recorded());
        engine.apply(3, Event::Synced(ClusterId(1)));
        assert!(engine.tick(3));
        assert_eq!(receiver.try_iter().count(), 2);
    }

    #[test]
    fn a_disk_that_cannot_be_written_ends_the_log() {
        let place = Place::new("full");
        let (sink, receiver) = sink(1 << 20);
        let mut files = Files::begin(place.0.join("log"), 0, Arc::clone(&sink.is_full)).unwrap();
        fs::write(place.0.join("log-2.log"), "in the way").unwrap();
        let mut engine = Logged::new(Some(Box::new(sink)));
        let written = thread::scope(|scope| {
            let thread = scope.spawn(move || {
                let written = files.write(&receiver);
                drop(receiver);
                written
            });
            while engine.is_recorded() {
                engine.tick(0);
                thread::yield_now();
            }
            thread.join().unwrap()
        });
        assert_eq!(written.unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    }

    #[test]
    fn a_log_that_was_cut_is_read_as_far_as_it_goes() {
        let place = Place::new("cut");
        let bytes = &recorded(&place.0, 1 << 20, 20)[0];
        let mut logs = Logs::of(&bytes[..bytes.len() - 1]).unwrap();
        assert_eq!(logs.by_ref().flatten().count(), 59);
        assert!(logs.cut);
    }

    #[test]
    fn other_files_and_other_bytes_are_told_from_logs() {
        assert!(matches!(Logs::of(b"tidegate log 1\n"), Err(RecordError::Foreign)));
        let bytes = [HEAD, &[0xff; 40]].concat();
        let last = Logs::of(&bytes).unwrap().last();
        assert!(matches!(last, Some(Err(RecordError::Malformed(0)))), "{last:?}");
    }
}

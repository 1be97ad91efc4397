//! The course of a soak: faults, and after each the question whether all is well again.

use std::{
    fmt::Write as _,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use jiff::Timestamp;
use tokio::{
    runtime::Handle,
    task::{JoinHandle, spawn_blocking},
};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{
    board::Board,
    book::Book,
    fault::{Deck, Plan},
    judge::{self, Complaints},
    plant::Plant,
    random::Random,
    releases::Releases,
    support::wait,
    work::{self, Work},
};

/// Between two looks.
const LOOK: Duration = Duration::from_millis(500);
/// Between two turns of a fault that goes on and off.
const TURN: Duration = Duration::from_millis(200);
/// The longest that nothing breaks, in seconds.
const QUIET: u64 = 4;
/// How long all may take to end once everything is open.
const END: Duration = Duration::from_mins(4);
/// Of complaints and other wrongs, so many are told.
const TOLD: usize = 12;
/// How much a controller's memory may grow, in MiB, beside a half of what it was.
const GROWTH: u64 = 24;

/// All of it.
pub struct Soak {
    plant: Plant,
    book: Arc<Book>,
    releases: Releases,
    board: Board,
    faults: Deck,
    stop: Option<DropGuard>,
    working: Option<JoinHandle<Result<Work>>>,
}

impl Soak {
    /// Starts everything, and the stream of work.
    pub async fn start(seed: u64) -> Result<Self> {
        println!("starting a control plane, two controllers and two webhooks");
        let plant = Plant::start().await?;
        let lab = work::prepare(plant.tidegate).await?;
        let book = Arc::new(Book::start(&lab.client).await?);
        let stop = CancellationToken::new();
        let users = Work::new(lab, plant.client.clone(), book.clone(), Random::of(seed, 1));
        let (runtime, stopped) = (Handle::current(), stop.clone());
        // What they wait on need not be sent between threads.
        let working = spawn_blocking(move || runtime.block_on(users.run(stopped)));
        let (releases, board) = (Releases::default(), Board::new());
        let (faults, stop, working) =
            (Deck::new(Random::of(seed, 2)), stop.drop_guard(), Some(working));
        Ok(Self { plant, book, releases, board, faults, stop: Some(stop), working })
    }

    /// Faults for so long, then the end of all work.
    pub async fn run(&mut self, length: Duration) -> Result<()> {
        self.is_well(Duration::from_mins(1)).await.context("before any fault")?;
        while let Some(left) = length.checked_sub(self.board.elapsed()) {
            tokio::time::sleep(self.faults.quiet(QUIET)).await;
            let plans = self.faults.next(left);
            self.survive(plans).await?;
        }
        self.end().await
    }

    async fn survive(&mut self, mut plans: Vec<Plan>) -> Result<()> {
        let names = plans.iter().map(|plan| format!("{:?}", plan.fault)).collect::<Vec<_>>();
        let names = names.join(" with ");
        let begin = Timestamp::now();
        self.happen(&mut plans).await.with_context(|| format!("making {names} happen"))?;
        let ended = self.plant.mend().await?;
        if plans.iter().any(|plan| plan.fault.loses_answers()) {
            self.releases.may_lose(begin, Timestamp::now());
        }
        self.told(ended);
        let bound = plans.iter().map(|plan| plan.fault.bound()).max().unwrap_or_default();
        let took = self.is_well(bound).await.with_context(|| format!("after {names}"))?;
        self.board.survived(&names, plans.len(), took);
        Ok(())
    }

    async fn happen(&mut self, plans: &mut [Plan]) -> Result<()> {
        for plan in plans.iter_mut() {
            plan.begin(&mut self.plant, &self.book).await?;
        }
        let length = plans.iter().map(|plan| plan.length).max().unwrap_or_default();
        let begun = Instant::now();
        for turn in 0.. {
            if begun.elapsed() > length {
                break;
            }
            plans.iter().try_for_each(|plan| plan.go_on(&self.plant, turn))?;
            tokio::time::sleep(TURN).await;
        }
        for plan in plans.iter().rev() {
            plan.end(&mut self.plant).await?;
        }
        Ok(())
    }

    fn told(&mut self, ended: Vec<String>) {
        self.board.restarts += ended.len();
        for line in ended {
            println!("         {line}");
        }
    }

    /// Waits until nothing that is wrong now is wrong any more; how long that took. The bound
    /// begins anew when something has become well: a busy machine is slow, but it gets on.
    async fn is_well(&mut self, bound: Duration) -> Result<Duration> {
        let begun = Instant::now();
        let mut progress = begun;
        let mut open: Option<Complaints> = None;
        loop {
            let ended = self.plant.tend().await?;
            self.told(ended);
            self.minute()?;
            let mut now = judge::look(&self.plant.client, &self.book).await;
            if let Some(before) = open {
                now.retain(|about, _| before.contains_key(about));
                if now.len() < before.len() {
                    progress = Instant::now();
                }
            }
            if now.is_empty() {
                return Ok(begun.elapsed());
            }
            if progress.elapsed() > bound {
                let lines = now.into_iter().map(|(about, said)| format!("{about}: {said}"));
                bail!("nothing got well within {} s:{}", bound.as_secs(), list(lines));
            }
            open = Some(now);
            tokio::time::sleep(LOOK).await;
        }
    }

    /// What holds at every moment, and the line of the minute.
    fn minute(&mut self) -> Result<()> {
        let mut wrong = self.book.wrong();
        wrong.extend(self.releases.read(self.plant.cluster())?);
        wrong.extend(self.plant.panics()?);
        ensure!(wrong.is_empty(), "wrong at some moment:{}", list(wrong));
        let working = self.working.as_ref().is_none_or(|working| !working.is_finished());
        ensure!(working || self.stop.is_none(), "the stream of work ended");
        self.board.minute(self.book.counts(), &self.releases, self.plant.memory());
        Ok(())
    }

    /// Everything is opened and has to end.
    async fn end(&mut self) -> Result<()> {
        println!("no more faults and no more work; opening all queues");
        self.stop = None;
        let Some(working) = self.working.take() else { bail!("it ended already") };
        let mut users = working.await??;
        users.open().await?;
        let ended = wait::until("everything ends", END, async || {
            self.minute()?;
            let pods = self.book.pods();
            let live = pods.values().filter(|pod| !pod.ended).collect::<Vec<_>>();
            ensure!(live.is_empty(), "{} pods have not: {live:?}", live.len());
            let ended = users.unended().await?;
            ensure!(ended.is_empty(), "{} Jobs have not: {ended:?}", ended.len());
            Ok(true)
        })
        .await;
        if let Err(error) = ended {
            let waits = judge::waits(&self.plant.client).await?;
            bail!("{error:#}\nwhat waits:{}", list(waits));
        }
        self.is_well(Duration::from_secs(30)).await.context("at the end")?;
        wait::until("the last decisions are judged", wait::SOON, async || {
            self.minute()?;
            Ok(self.book.unjudged() == 0)
        })
        .await?;
        self.by_whom()?;
        let [first, _, last] = self.board.memory();
        ensure!(last <= first + first / 2 + GROWTH, "memory grew from {first} to {last} MiB");
        self.board.summary(self.book.counts(), &self.releases);
        Ok(())
    }

    fn by_whom(&self) -> Result<()> {
        let unknown = self.releases.by_nobody(&self.book.opened());
        ensure!(unknown.is_empty(), "gates that nobody opened:{}", list(unknown));
        Ok(())
    }

    /// Copies all logs to a folder.
    pub fn keep_logs(&self, folder: &Path) -> Result<()> {
        self.plant.keep_logs(folder)
    }
}

/// One a line, as many as help.
fn list(all: impl IntoIterator<Item = String>) -> String {
    let all: Vec<String> = all.into_iter().collect();
    let mut text = String::new();
    for line in all.iter().take(TOLD) {
        write!(text, "\n  {line}").unwrap_or_default();
    }
    if all.len() > TOLD {
        write!(text, "\n  and {} more", all.len() - TOLD).unwrap_or_default();
    }
    text
}

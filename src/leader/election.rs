//! Who leads, as a state machine. Pure: what the Lease holds and the time come in, what
//! to write goes out.
//!
//! The rules are those of client-go's leader election. A record is good for its duration
//! from the moment this process first saw it, on this process's own clock: what a remote
//! clock wrote into it is never compared. Every write names the version that it replaces.

use std::time::Duration;

use jiff::Timestamp;

/// Time since some moment of this process, on a clock that never goes back.
pub type Moment = Duration;

/// How long things take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// A record that does not change for so long is nobody's any more.
    pub lease: Duration,
    /// A leader that could not renew for so long leads no more.
    pub renew: Duration,
    /// Between two renewals, and between two looks of those who follow.
    pub retry: Duration,
}

impl Timing {
    /// Timing of which a leader is gone before another one can come, and may fail to renew
    /// at least once.
    ///
    /// # Errors
    /// A sentence that says what is too short.
    pub fn new(lease: Duration, renew: Duration, retry: Duration) -> Result<Self, &'static str> {
        match () {
            () if lease < Duration::from_secs(1) => Err("the lease must last a second at least"),
            () if lease <= renew => Err("the lease must be longer than the renew deadline"),
            () if retry.is_zero() => Err("the retry period must not be zero"),
            () if renew <= retry * 2 => {
                Err("the renew deadline must be longer than two retry periods")
            }
            () => Ok(Self { lease, renew, retry }),
        }
    }
}

/// A process that may lead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its pod, if it has one: a name that no two living processes share.
    pub pod: Option<String>,
    /// Its name in the record, different for each process.
    pub id: String,
}

/// Between a candidate's name and what tells its lives apart.
const LIFE: char = '_';

impl Candidate {
    /// A process of this pod, or of this host when it is not in a pod, told apart from
    /// others by `life`.
    #[must_use]
    pub fn new(pod: Option<String>, host: &str, life: &str) -> Self {
        let id = format!("{}{LIFE}{life}", pod.as_deref().unwrap_or(host));
        Self { pod, id }
    }

    /// An earlier process of the same pod: a container starts when the one before has ended.
    fn was(&self, holder: &str) -> bool {
        let name = holder.rsplit_once(LIFE).map(|(name, _)| name);
        self.pod.is_some() && name == self.pod.as_deref()
    }
}

/// What a Lease says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Who holds it; nobody when empty.
    pub holder: String,
    /// Good for so long.
    pub duration: Duration,
    /// How often it changed hands.
    pub transitions: u64,
    /// When this holder took it, by its own clock.
    pub acquired: Option<Timestamp>,
    /// When this holder last renewed it, by its own clock.
    pub renewed: Option<Timestamp>,
}

/// A record as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// What it says.
    pub record: Record,
    /// Its `resourceVersion`.
    pub version: String,
}

/// What to write: `record` in place of that version, or of nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// The new record.
    pub record: Record,
    /// The version that it replaces; absent where there is no Lease.
    pub over: Option<String>,
}

/// What to do now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing until then, or until something else is seen.
    Wait(Moment),
    /// Take the Lease or renew it.
    Write(Write),
    /// It leads no more.
    Lost(Loss),
}

/// Why a leader leads no more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Loss {
    /// Somebody else is in the record.
    #[error("{0:?} holds the Lease")]
    Taken(String),
    /// The renew deadline has passed.
    #[error("the Lease could not be renewed for {0:?}")]
    NotRenewed(Duration),
}

/// One process's part in the election.
#[derive(Debug)]
pub struct Election {
    me: Candidate,
    timing: Timing,
    /// The record last seen and when it was first seen like that.
    seen: Option<(Stored, Moment)>,
    /// While it leads: when the request was sent that last renewed.
    renewed: Option<Moment>,
}

impl Election {
    /// Has seen nothing yet.
    #[must_use]
    pub fn new(me: Candidate, timing: Timing) -> Self {
        Self { me, timing, seen: None, renewed: None }
    }

    /// Takes in what is stored. Only another record, not another version of the same,
    /// makes it young again.
    pub fn observe(&mut self, now: Moment, stored: Option<Stored>) {
        let since = match (&self.seen, &stored) {
            (Some((known, since)), Some(stored)) if known.record == stored.record => *since,
            _ => now,
        };
        self.seen = stored.map(|stored| (stored, since));
    }

    /// Takes in that a write, sent at that moment, was stored.
    pub fn wrote(&mut self, sent: Moment, stored: Stored) {
        self.renewed = Some(sent);
        self.seen = Some((stored, sent));
    }

    /// What to do at `now`; `time` goes into what is written.
    #[must_use]
    pub fn step(&self, now: Moment, time: Timestamp) -> Step {
        match self.renewed {
            Some(renewed) => self.lead(now, time, renewed),
            None => self.follow(now, time),
        }
    }

    fn lead(&self, now: Moment, time: Timestamp, renewed: Moment) -> Step {
        let Some((stored, _)) = &self.seen else {
            return Step::Lost(Loss::Taken(String::new()));
        };
        if stored.record.holder != self.me.id {
            return Step::Lost(Loss::Taken(stored.record.holder.clone()));
        }
        if now >= renewed + self.timing.renew {
            return Step::Lost(Loss::NotRenewed(now.saturating_sub(renewed)));
        }
        if now < renewed + self.timing.retry {
            return Step::Wait(renewed + self.timing.retry);
        }
        let record = Record { renewed: Some(time), ..stored.record.clone() };
        Step::Write(Write { record, over: Some(stored.version.clone()) })
    }

    fn follow(&self, now: Moment, time: Timestamp) -> Step {
        match &self.seen {
            Some((stored, since)) if !self.is_free(&stored.record) => {
                let expires = *since + stored.record.duration;
                if now < expires { Step::Wait(expires) } else { self.take(time) }
            }
            _ => self.take(time),
        }
    }

    /// Whether it may be taken at once. Its own name is there when an answer was lost.
    fn is_free(&self, record: &Record) -> bool {
        let holder = &record.holder;
        holder.is_empty() || *holder == self.me.id || self.me.was(holder)
    }

    fn take(&self, time: Timestamp) -> Step {
        let before = self.seen.as_ref().map(|(stored, _)| stored);
        let record = Record {
            holder: self.me.id.clone(),
            duration: self.timing.lease,
            transitions: before.map_or(0, |stored| stored.record.transitions + 1),
            acquired: Some(time),
            renewed: Some(time),
        };
        Step::Write(Write { record, over: before.map(|stored| stored.version.clone()) })
    }

    /// Until when it leads, whatever happens: nobody else can before.
    #[must_use]
    pub fn leads_until(&self) -> Option<Moment> {
        self.renewed.map(|renewed| renewed + self.timing.renew)
    }

    /// Its own name in the record.
    #[must_use]
    pub fn me(&self) -> &str {
        &self.me.id
    }

    /// Who holds the Lease, as far as is known.
    #[must_use]
    pub fn holder(&self) -> &str {
        self.seen.as_ref().map_or("", |(stored, _)| &stored.record.holder)
    }

    /// Whether it has seen a record.
    #[must_use]
    pub fn has_seen(&self) -> bool {
        self.seen.is_some()
    }

    /// How often the Lease has changed hands, as far as is known.
    #[must_use]
    pub fn transitions(&self) -> u64 {
        self.seen.as_ref().map_or(0, |(stored, _)| stored.record.transitions)
    }

    /// What gives the Lease back, if it is held.
    #[must_use]
    pub fn release(&self, time: Timestamp) -> Option<Write> {
        let (stored, _) = self.seen.as_ref().filter(|_| self.renewed.is_some())?;
        let record = Record {
            holder: String::new(),
            duration: Duration::from_secs(1),
            transitions: stored.record.transitions,
            acquired: Some(time),
            renewed: Some(time),
        };
        let mine = stored.record.holder == self.me.id;
        mine.then(|| Write { record, over: Some(stored.version.clone()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rstest::rstest;

    const TIMING: Timing = Timing { lease: secs(15), renew: secs(10), retry: secs(2) };
    const TIME: Timestamp = Timestamp::UNIX_EPOCH;

    const fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    fn candidate(name: &str) -> Candidate {
        Candidate::new(Some(name.to_owned()), "host", "1")
    }

    fn election(name: &str) -> Election {
        Election::new(candidate(name), TIMING)
    }

    /// A record of somebody's, renewed at that second of the holder's clock.
    fn held(holder: &str, renewed: i64, version: u32) -> Stored {
        let renewed = Timestamp::from_second(renewed).ok();
        let record = Record {
            holder: holder.to_owned(),
            duration: secs(15),
            transitions: 4,
            acquired: None,
            renewed,
        };
        Stored { record, version: version.to_string() }
    }

    fn written(step: Step) -> Write {
        match step {
            Step::Write(write) => write,
            other => panic!("{other:?}"),
        }
    }

    /// Writes and is told that it is stored.
    fn leads(election: &mut Election, now: Moment) -> Write {
        let write = written(election.step(now, TIME));
        election.wrote(now, Stored { record: write.record.clone(), version: "9".to_owned() });
        write
    }

    #[test]
    fn who_finds_no_lease_makes_one() {
        let mut election = election("a");
        election.observe(secs(0), None);
        let write = leads(&mut election, secs(0));
        assert_eq!((write.over, write.record.transitions), (None, 0));
        assert_eq!(write.record.holder, "a_1");
        assert_eq!(election.leads_until(), Some(secs(10)));
    }

    #[rstest]
    #[case::held_by_another("b_1", false)]
    #[case::given_back("", true)]
    #[case::of_the_same_pod_before("a_0", true)]
    #[case::of_a_pod_with_a_longer_name("a_b_1", false)]
    #[case::without_a_life("a", false)]
    fn a_young_lease_is_taken_only_where_nobody_holds_it(#[case] holder: &str, #[case] free: bool) {
        let mut election = election("a");
        election.observe(secs(1), Some(held(holder, 0, 3)));
        match election.step(secs(1), TIME) {
            Step::Write(write) => {
                assert!(free);
                assert_eq!((write.over.as_deref(), write.record.transitions), (Some("3"), 5));
            }
            step => assert_eq!((step, free), (Step::Wait(secs(16)), false)),
        }
    }

    #[test]
    fn outside_a_pod_a_name_proves_nothing() {
        let mut election = Election::new(Candidate::new(None, "host", "2"), TIMING);
        election.observe(secs(0), Some(held("host_1", 0, 3)));
        assert_eq!(election.step(secs(0), TIME), Step::Wait(secs(15)));
    }

    #[test]
    fn a_lease_ages_by_the_clock_of_who_looks_and_only_while_it_does_not_change() {
        let mut election = election("a");
        // The holder's clock is decades off; that is nobody's business.
        election.observe(secs(0), Some(held("b_1", 2_000_000_000, 1)));
        election.observe(secs(14), Some(held("b_1", 2_000_000_002, 2)));
        assert_eq!(election.step(secs(28), TIME), Step::Wait(secs(29)));
        // Another version of the same record is no sign of life.
        election.observe(secs(28), Some(held("b_1", 2_000_000_002, 3)));
        let write = written(election.step(secs(29), TIME));
        assert_eq!((write.over.as_deref(), write.record.transitions), (Some("3"), 5));
    }

    #[test]
    fn a_leader_renews_and_keeps_when_it_took_it() {
        let mut election = election("a");
        leads(&mut election, secs(0));
        assert_eq!(election.step(secs(1), TIME), Step::Wait(secs(2)));
        let later = Timestamp::from_second(2).unwrap();
        let write = written(election.step(secs(2), later));
        assert_eq!((write.over.as_deref(), write.record.transitions), (Some("9"), 0));
        assert_eq!((write.record.acquired, write.record.renewed), (Some(TIME), Some(later)));
    }

    #[test]
    fn a_leader_that_cannot_renew_stops_well_before_another_may_begin() {
        let mut election = election("a");
        leads(&mut election, secs(0));
        assert!(matches!(election.step(secs(9), TIME), Step::Write(_)));
        let lost = Step::Lost(Loss::NotRenewed(secs(10)));
        assert_eq!(election.step(secs(10), TIME), lost);
        // What it sees afterwards changes nothing.
        election.observe(secs(11), Some(held("a_1", 0, 3)));
        assert!(matches!(election.step(secs(11), TIME), Step::Lost(_)));
    }

    #[rstest]
    #[case(Some(held("b_1", 0, 3)), "b_1")]
    #[case(Some(held("a_2", 0, 3)), "a_2")]
    #[case(None, "")]
    fn a_leader_that_is_not_in_the_record_leads_no_more(
        #[case] stored: Option<Stored>,
        #[case] holder: &str,
    ) {
        let mut election = election("a");
        leads(&mut election, secs(0));
        election.observe(secs(1), stored);
        assert_eq!(election.step(secs(1), TIME), Step::Lost(Loss::Taken(holder.to_owned())));
        assert_eq!(election.release(TIME), None);
    }

    #[test]
    fn what_is_given_back_is_nobodys_and_still_counts_how_often_it_changed_hands() {
        let mut election = election("a");
        assert_eq!(election.release(TIME), None);
        election.observe(secs(0), Some(held("", 0, 3)));
        leads(&mut election, secs(0));
        let write = election.release(TIME).unwrap();
        assert_eq!((&*write.record.holder, write.record.transitions), ("", 5));
        assert_eq!(write.over.as_deref(), Some("9"));
    }

    #[rstest]
    #[case(15, 10, 2, true)]
    #[case(10, 10, 2, false)]
    #[case(15, 4, 2, false)]
    #[case(15, 10, 0, false)]
    #[case(0, 0, 0, false)]
    fn timing_must_let_a_leader_go_before_another_comes(
        #[case] lease: u64,
        #[case] renew: u64,
        #[case] retry: u64,
        #[case] good: bool,
    ) {
        assert_eq!(Timing::new(secs(lease), secs(renew), secs(retry)).is_ok(), good);
    }

    /// What a candidate may meet.
    #[derive(Clone, Copy, Debug)]
    enum Luck {
        /// Its write is stored and it is told.
        Good,
        /// Its write is stored and the answer is lost.
        Unheard,
        /// Its write is lost.
        Lost,
        /// It looks, and writes nothing.
        Looks,
    }

    /// The one object, with its compare and swap.
    #[derive(Default)]
    struct Api {
        stored: Option<Stored>,
        version: u32,
    }

    impl Api {
        fn write(&mut self, write: &Write) -> Option<Stored> {
            if self.stored.as_ref().map(|stored| &stored.version) != write.over.as_ref() {
                return None;
            }
            self.version += 1;
            let version = self.version.to_string();
            self.stored = Some(Stored { record: write.record.clone(), version });
            self.stored.clone()
        }
    }

    fn meets(election: &mut Election, api: &mut Api, now: Moment, luck: Luck) {
        if matches!(luck, Luck::Looks) {
            return election.observe(now, api.stored.clone());
        }
        let time = Timestamp::from_second(i64::try_from(now.as_secs()).unwrap()).unwrap();
        let Step::Write(write) = election.step(now, time) else { return };
        let answer = if matches!(luck, Luck::Lost) { None } else { api.write(&write) };
        if let (Luck::Good, Some(stored)) = (luck, answer) {
            election.wrote(now, stored);
        }
    }

    proptest! {
        /// However requests and answers are lost and whoever is paused for however long:
        /// never do two lead at one time, and each change of hands counts.
        #[test]
        fn two_never_lead_at_one_time(
            turns in proptest::collection::vec((0_usize..3, 0_u64..9, prop_oneof![
                3 => Just(Luck::Good), 1 => Just(Luck::Unheard), 1 => Just(Luck::Lost), 3 => Just(Luck::Looks),
            ]), 1..200),
        ) {
            let mut all = ["a", "b", "c"].map(election);
            let (mut api, mut now, mut transitions) = (Api::default(), secs(0), 0);
            for (who, pause, luck) in turns {
                now += secs(pause);
                meets(&mut all[who], &mut api, now, luck);
                let leaders = all.iter().filter(|one| one.leads_until().is_some_and(|until| now < until));
                prop_assert!(leaders.count() <= 1);
                let stored = api.stored.as_ref().map_or(0, |stored| stored.record.transitions);
                prop_assert!(stored >= transitions);
                transitions = stored;
            }
        }

        /// Whatever went before, once requests get through again somebody leads within a
        /// lease and a retry.
        #[test]
        fn somebody_leads_in_the_end(
            turns in proptest::collection::vec((0_usize..3, 0_u64..9, prop_oneof![
                Just(Luck::Good), Just(Luck::Unheard), Just(Luck::Lost), Just(Luck::Looks),
            ]), 0..60),
        ) {
            let mut all = ["a", "b", "c"].map(election);
            let (mut api, mut now) = (Api::default(), secs(0));
            for (who, pause, luck) in turns {
                now += secs(pause);
                meets(&mut all[who], &mut api, now, luck);
            }
            // Who lost the Lease has ended and starts as another process.
            for (who, name) in ["a", "b", "c"].into_iter().enumerate() {
                if matches!(all[who].step(now, TIME), Step::Lost(_)) {
                    all[who] = Election::new(Candidate::new(Some(name.to_owned()), "host", "2"), TIMING);
                }
            }
            for _ in 0..17 {
                now += secs(1);
                for one in &mut all {
                    meets(one, &mut api, now, Luck::Looks);
                    meets(one, &mut api, now, Luck::Good);
                }
            }
            let leads = |one: &Election| one.leads_until().is_some_and(|until| now < until);
            prop_assert!(all.iter().any(leads));
        }
    }
}

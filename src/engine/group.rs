//! A group: the pods that wait in it, in order, and what it offers.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::event::GroupConfig;
use super::line::{Head, Place};
use super::model::{Assignment, ClusterId, Gang, GroupId, Growth, Millis, Uid};
use super::plan::Site;
use super::reason::Reason;
use super::shapes::{ClassId, Kind, Parts, ShapeId};
use super::slab::NONE;

/// How long arrivals of a group must be quiet before "all that have arrived" is known.
pub(super) const SETTLE: Millis = 2_000;

/// Different costs of which one group has an offer at a time.
pub(super) const COSTS_OFFERED: usize = 32;

/// A waiting pod in its group's order: priority, age, uid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Turn {
    pub(super) priority: Reverse<i32>,
    pub(super) created: Millis,
    pub(super) uid: [u64; 2],
    pub(super) shape: ShapeId,
    pub(super) pod: u32,
}

/// The waiting pods of a group. Most groups have one.
#[derive(Debug, Default)]
pub(super) enum Turns {
    #[default]
    None,
    One(Turn),
    Many(Box<Many>),
}

/// More than one waiting pod.
#[derive(Debug, Default)]
pub(super) struct Many {
    by_shape: BTreeMap<ShapeId, BTreeSet<Turn>>,
    /// The first of each cost.
    fronts: BTreeSet<Turn>,
    ages: BTreeSet<(Millis, u32)>,
}

impl Many {
    fn insert(&mut self, turn: Turn) {
        let alike = self.by_shape.entry(turn.shape).or_default();
        let front = alike.first().copied();
        alike.insert(turn);
        if front.is_none_or(|front| turn < front) {
            if let Some(front) = front {
                self.fronts.remove(&front);
            }
            self.fronts.insert(turn);
        }
        self.ages.insert((turn.created, turn.pod));
    }

    fn remove(&mut self, turn: &Turn) {
        let Some(alike) = self.by_shape.get_mut(&turn.shape) else { return };
        alike.remove(turn);
        if self.fronts.remove(turn) {
            self.fronts.extend(alike.first());
        }
        if alike.is_empty() {
            self.by_shape.remove(&turn.shape);
        }
        self.ages.remove(&(turn.created, turn.pod));
    }
}

impl Turns {
    pub(super) fn insert(&mut self, turn: Turn) {
        match self {
            Self::None => *self = Self::One(turn),
            Self::One(one) => {
                let mut many = Box::<Many>::default();
                many.insert(*one);
                many.insert(turn);
                *self = Self::Many(many);
            }
            Self::Many(many) => many.insert(turn),
        }
    }

    pub(super) fn remove(&mut self, turn: &Turn) {
        match self {
            Self::None => {}
            Self::One(_) => *self = Self::None,
            Self::Many(many) => {
                many.remove(turn);
                if many.ages.len() == 1
                    && let Some(&last) = many.fronts.first()
                {
                    *self = Self::One(last);
                }
            }
        }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Self::None => 0,
            Self::One(_) => 1,
            Self::Many(many) => many.ages.len(),
        }
    }

    pub(super) fn first(&self) -> Option<Turn> {
        match self {
            Self::None => None,
            Self::One(one) => Some(*one),
            Self::Many(many) => many.fronts.first().copied(),
        }
    }

    /// Creation of the oldest.
    pub(super) fn oldest(&self) -> Option<Millis> {
        match self {
            Self::None => None,
            Self::One(one) => Some(one.created),
            Self::Many(many) => many.ages.first().map(|&(created, _)| created),
        }
    }

    /// How many there are of each cost.
    pub(super) fn counts(&self) -> impl Iterator<Item = (ShapeId, usize)> + '_ {
        let (one, many) = match self {
            Self::None => (None, None),
            Self::One(one) => (Some((one.shape, 1)), None),
            Self::Many(many) => (None, Some(many)),
        };
        let many = many.into_iter().flat_map(|many| &many.by_shape);
        one.into_iter().chain(many.map(|(&shape, turns)| (shape, turns.len())))
    }

    /// All in order.
    pub(super) fn iter(&self) -> Box<dyn Iterator<Item = Turn> + '_> {
        match self {
            Self::None => Box::new(std::iter::empty()),
            Self::One(one) => Box::new(std::iter::once(*one)),
            Self::Many(many) if many.by_shape.len() == 1 => {
                Box::new(many.by_shape.values().flatten().copied())
            }
            Self::Many(many) => {
                let all: BTreeSet<Turn> = many.by_shape.values().flatten().copied().collect();
                Box::new(all.into_iter())
            }
        }
    }

    /// The cost of all, when it is the same for all.
    fn only_shape(&self) -> Option<ShapeId> {
        match self {
            Self::One(one) => Some(one.shape),
            Self::Many(many) if many.by_shape.len() == 1 => many.fronts.first().map(|t| t.shape),
            Self::None | Self::Many(_) => None,
        }
    }

    /// The first of each cost, in order.
    fn fronts(&self) -> impl Iterator<Item = Turn> + '_ {
        let (one, many) = match self {
            Self::None => (None, None),
            Self::One(one) => (Some(*one), None),
            Self::Many(many) => (None, Some(many)),
        };
        one.into_iter().chain(many.into_iter().flat_map(|many| many.fronts.iter().copied()))
    }

    fn of_shape(&self, shape: ShapeId) -> impl Iterator<Item = Turn> + '_ {
        let (one, many) = match self {
            Self::None => (None, None),
            Self::One(one) => (Some(*one).filter(|one| one.shape == shape), None),
            Self::Many(many) => (None, many.by_shape.get(&shape)),
        };
        one.into_iter().chain(many.into_iter().flatten().copied())
    }
}

/// Where a group stands in its queue's line.
#[derive(Debug, Default)]
pub(super) enum Standing {
    /// Nothing of it waits in a queue.
    #[default]
    Out,
    /// It waits and has nothing to offer.
    Parked(Place),
    /// Its offers are in the lanes of these classes.
    Offers(Place, Offers),
}

/// The classes of a group's offers.
#[derive(Debug)]
pub(super) enum Offers {
    One(ClassId),
    Several(Box<[ClassId]>),
}

impl Offers {
    pub(super) fn iter(&self) -> impl Iterator<Item = ClassId> + '_ {
        let (one, several) = match self {
            Self::One(class) => (Some(*class), &[][..]),
            Self::Several(classes) => (None, &classes[..]),
        };
        one.into_iter().chain(several.iter().copied())
    }
}

/// Pods that belong together.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) id: GroupId,
    pub(super) config: GroupConfig,
    /// What was told since, and counts when it is no longer on its way.
    pub(super) told: Option<Box<GroupConfig>>,
    /// Slot of the line of the queue that was named, or [`NONE`].
    pub(super) line: u32,
    pub(super) waiting: Turns,
    /// Slot of the first of its pods.
    pub(super) pods: u32,
    /// Pods that were let go, as far as they are still there.
    pub(super) started: u32,
    /// Of those the ones whose gate was not seen open yet.
    pub(super) unseen: u32,
    /// Waiting pods whose release was refused and is not tried again yet, or no more.
    pub(super) refused: u32,
    /// Pods that are charged.
    pub(super) charged: u32,
    /// Of those the ones for which room is being made.
    pub(super) claimed: u32,
    pub(super) arrived: Millis,
    pub(super) standing: Standing,
    /// Slot of the line whose backlog it counts in, and how many pods.
    pub(super) counted: (u32, u32),
    /// Its place has to be looked at.
    pub(super) is_stale: bool,
    /// What waits of it may start some day, but for pods that are too large each by itself.
    pub(super) in_earnest: bool,
}

impl Group {
    pub(super) fn new(id: GroupId, config: GroupConfig) -> Self {
        Self {
            id,
            config,
            told: None,
            line: NONE,
            waiting: Turns::None,
            pods: NONE,
            started: 0,
            unseen: 0,
            refused: 0,
            charged: 0,
            claimed: 0,
            arrived: 0,
            standing: Standing::Out,
            counted: (NONE, 0),
            is_stale: false,
            in_earnest: false,
        }
    }

    /// Of a pod told before its group: it waits for it and is never lost.
    pub(super) fn unannounced(id: GroupId) -> Self {
        Self::new(
            id,
            GroupConfig {
                cluster: ClusterId::default(),
                root: Uid::default(),
                queue: Assignment::Unresolved,
                gang: Gang::Units,
                singleton: None,
                non_preemptible: false,
                topology: None,
            },
        )
    }

    /// Slot of the line in which its waiting pods ask, or [`NONE`].
    pub(super) fn asks_in(&self) -> u32 {
        match self.config.queue {
            Assignment::Queue(_) => self.line,
            _ => NONE,
        }
    }

    /// So many pods of it are about to be let go together.
    pub(super) fn set_out(&mut self, size: u32) {
        if self.config.gang == Gang::All {
            self.told = Some(Box::new(self.config.clone()));
            self.config.gang = Gang::AtLeast(size);
        }
        self.started += size;
        self.unseen += size;
    }

    /// A gang that was decided on and of which, by a restart or a refusal, not all that
    /// start together were let go: it holds room and may be unable to work.
    pub(super) fn is_cut(&self) -> bool {
        matches!(self.config.gang, Gang::AtLeast(need) if (1..need).contains(&self.started))
    }

    /// A gang of which fewer pods are here than start together, though so many may wait.
    pub(super) fn lacks_members(&self, most: u64) -> bool {
        let Gang::AtLeast(need) = self.config.gang else { return false };
        let here = self.have().saturating_add(self.started);
        u64::from(need) <= most && here < need
    }

    /// Pods that wait.
    pub(super) fn have(&self) -> u32 {
        u32::try_from(self.waiting.len()).unwrap_or(u32::MAX)
    }

    /// A gang that runs: pods of it that wait are more of it.
    fn grows(&self) -> bool {
        let has_begun = self.started > 0 && !self.is_cut();
        has_begun && self.charged > 0 && self.config.gang != Gang::Units
    }

    /// Where it stands in line, if anything of it waits.
    pub(super) fn place(&self, growth: Growth) -> Option<Place> {
        let first = self.waiting.first()?;
        let head = Head::new(self.waiting.oldest()?, self.config.root);
        let goes_first = growth == Growth::First && self.grows();
        Some(Place::new(self.is_cut(), first.priority.0, goes_first, head, self.id))
    }

    /// How many waiting pods must go together.
    pub(super) fn together(&self, now: Millis) -> Result<u32, Reason> {
        let have = self.have();
        match self.config.gang {
            _ if self.started > 0 => Ok(1),
            Gang::Units => Ok(1),
            Gang::AtLeast(need) if have >= need => Ok(need.max(1)),
            Gang::AtLeast(need) => Err(Reason::WaitingForMembers { have, need }),
            Gang::All => match self.arrived.saturating_add(SETTLE) {
                until if until > now => Err(Reason::Settling { until }),
                _ => Ok(have.max(1)),
            },
        }
    }

    pub(super) fn kind(&self, parts: Parts, site: Option<Site>) -> Kind {
        Kind {
            site,
            parts,
            adds_group: self.charged == 0,
            completes: self.is_cut(),
            grows: self.grows(),
            pinned: self.config.non_preemptible,
        }
    }

    /// What it offers when `together` of its pods go at a time: one offer for all of them,
    /// or one for each different cost. `ready` leaves out whose release was refused.
    pub(super) fn kinds(
        &self,
        together: u32,
        site: Option<Site>,
        ready: impl Fn(&Turn) -> bool,
    ) -> Vec<Kind> {
        let refused = self.refused > 0;
        if together == 1 {
            let first = |front: Turn| {
                if refused { self.waiting.of_shape(front.shape).find(&ready) } else { Some(front) }
            };
            let mut firsts: Vec<Turn> = self.waiting.fronts().filter_map(first).collect();
            firsts.sort_unstable();
            firsts.truncate(COSTS_OFFERED);
            return firsts
                .iter()
                .map(|turn| self.kind(Parts::Alike(turn.shape, 1), site))
                .collect();
        }
        if !refused {
            return vec![self.kind(self.first(together), site)];
        }
        let mut counts = BTreeMap::<ShapeId, u32>::new();
        let pods = usize::try_from(together).unwrap_or(usize::MAX);
        let mut found = 0;
        for turn in self.waiting.iter().filter(ready).take(pods) {
            *counts.entry(turn.shape).or_default() += 1;
            found += 1;
        }
        if found < together { Vec::new() } else { vec![self.kind(Parts::of(counts), site)] }
    }

    /// The first so many that wait, refused or not.
    pub(super) fn first(&self, count: u32) -> Parts {
        if let Some(shape) = self.waiting.only_shape() {
            return Parts::Alike(shape, count);
        }
        let mut counts = BTreeMap::<ShapeId, u32>::new();
        for turn in self.waiting.iter().take(usize::try_from(count).unwrap_or(usize::MAX)) {
            *counts.entry(turn.shape).or_default() += 1;
        }
        Parts::of(counts)
    }

    /// The pods of one of its offers, in order.
    pub(super) fn offered(&self, kind: &Kind, ready: impl Fn(&Turn) -> bool) -> Vec<Turn> {
        let count: u32 = kind.parts.iter().map(|(_, count)| count).sum();
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        match kind.parts {
            Parts::Alike(shape, 1) => {
                self.waiting.of_shape(shape).find(ready).into_iter().collect()
            }
            _ => self.waiting.iter().filter(ready).take(count).collect(),
        }
    }

    /// The first pod of one of its offers.
    pub(super) fn front(&self, kind: &Kind, ready: impl Fn(&Turn) -> bool) -> Option<Turn> {
        match kind.parts {
            Parts::Alike(shape, 1) => self.waiting.of_shape(shape).find(ready),
            _ => self.waiting.iter().find(ready),
        }
    }
}

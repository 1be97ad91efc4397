//! How the pods of a group are treated together: as its members ask, or as it began.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::num::NonZeroU64;
use std::sync::Arc;

use crate::api::released::Released;
use crate::engine::{Gang, SingletonId};
use crate::grouping::{Findings, Gang as Declared};

use super::tally::Tally;

/// What holds for all of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Terms {
    /// What must start together.
    pub gang: Gang,
    /// None of it may be evicted.
    pub non_preemptible: bool,
    /// While another group of this key runs in its queue, it waits.
    pub singleton: Option<Arc<str>>,
    /// The label of nodes that all its pods' nodes agree in.
    pub topology: Option<Arc<str>>,
}

impl Terms {
    /// Its key, as the engine knows it.
    pub fn key(&self) -> Option<SingletonId> {
        let mut hasher = DefaultHasher::new();
        self.singleton.as_ref()?.hash(&mut hasher);
        Some(SingletonId(NonZeroU64::new(hasher.finish()).unwrap_or(NonZeroU64::MIN)))
    }
}

impl fmt::Display for Terms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.gang {
            Gang::Units => f.write_str("each pod on its own")?,
            Gang::All => f.write_str("all that arrive together")?,
            Gang::AtLeast(count) => write!(f, "at least {count} together")?,
        }
        f.write_str(if self.non_preemptible { ", never evicted" } else { ", may be evicted" })?;
        if let Some(key) = &self.singleton {
            write!(f, ", singleton {key}")?;
        }
        self.topology.iter().try_for_each(|key| write!(f, ", in one {key}"))
    }
}

/// What some members of a group ask for: of each the most.
#[derive(Debug, Default)]
pub(super) struct Wishes {
    gangs: Tally<Declared>,
    /// Few groups have any.
    rare: Option<Box<Rare>>,
}

#[derive(Debug, Default)]
struct Rare {
    /// Pods that may not be evicted.
    pinned: u32,
    singletons: Tally<Arc<str>>,
    topologies: Tally<Arc<str>>,
}

impl Wishes {
    pub fn add(&mut self, findings: &Findings) {
        self.gangs.add(&findings.gang);
        if findings.non_preemptible {
            self.rare.get_or_insert_default().pinned += 1;
        }
        if let Some(key) = &findings.singleton {
            self.rare.get_or_insert_default().singletons.add(key);
        }
        if let Some(key) = &findings.topology {
            self.rare.get_or_insert_default().topologies.add(key);
        }
    }

    pub fn remove(&mut self, findings: &Findings) {
        self.gangs.remove(&findings.gang);
        if let Some(rare) = &mut self.rare {
            rare.pinned -= u32::from(findings.non_preemptible);
            findings.singleton.iter().for_each(|key| rare.singletons.remove(key));
            findings.topology.iter().for_each(|key| rare.topologies.remove(key));
        }
    }

    pub fn is_empty(&self) -> bool {
        self.gangs.is_empty()
    }

    /// Where members differ the last in order counts, and one keeps all from being evicted.
    pub fn terms(&self) -> Terms {
        let rare = self.rare.as_deref();
        Terms {
            gang: match self.gangs.last() {
                None | Some(Declared::Units) => Gang::Units,
                Some(Declared::All) => Gang::All,
                Some(Declared::AtLeast(count)) => Gang::AtLeast(*count),
            },
            non_preemptible: rare.is_some_and(|rare| rare.pinned > 0),
            singleton: rare.and_then(|rare| rare.singletons.last()).cloned(),
            topology: rare.and_then(|rare| rare.topologies.last()).cloned(),
        }
    }

    /// The same of pods that nobody decided on: as many as there are were enough.
    pub fn terms_of_running(&self) -> Terms {
        let (terms, members) = (self.terms(), self.gangs.len());
        let gang = match terms.gang {
            Gang::Units => Gang::Units,
            Gang::All => Gang::AtLeast(members),
            Gang::AtLeast(count) => Gang::AtLeast(count.min(members)),
        };
        Terms { gang, ..terms }
    }
}

/// What was written down with a release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Kept {
    pub queue: Arc<str>,
    pub terms: Terms,
}

impl Kept {
    /// What a record does not say, since it is of a version that did not know it, the pod does.
    pub fn new(record: &Released, findings: &Findings) -> Self {
        let text = |text: &Option<String>| text.as_deref().map(Arc::from);
        let terms = match &record.terms {
            Some(terms) => Terms {
                gang: terms.min_count.map_or(Gang::Units, Gang::AtLeast),
                non_preemptible: !terms.preemptible,
                singleton: text(&terms.singleton),
                topology: text(&terms.topology),
            },
            None => Terms {
                gang: match (findings.gang, record.size) {
                    (Declared::AtLeast(count), _) => Gang::AtLeast(count),
                    (Declared::Units, 0 | 1) => Gang::Units,
                    (Declared::Units | Declared::All, size) => Gang::AtLeast(size),
                },
                non_preemptible: findings.non_preemptible,
                singleton: findings.singleton.clone(),
                topology: findings.topology.clone(),
            },
        };
        Self { queue: record.queue.as_str().into(), terms }
    }
}

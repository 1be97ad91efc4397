//! Evictions that were refused.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::engine::event::Spared;
use crate::engine::{Cause, Engine, Eviction, GroupId, Millis, PodId};

use super::{Held, Names};

/// Evictions that were decided, by pod, until the pod is on its way out.
#[derive(Clone, Debug, Default)]
pub(super) struct Evictions(BTreeMap<PodId, Decided>);

#[derive(Clone, Debug)]
struct Decided {
    eviction: Eviction,
    spared: Option<Spared>,
}

/// How many evictions for one group are refused now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Refused {
    by_budget: u32,
    otherwise: u32,
}

/// Pods of one group that are let run though they were to be evicted.
pub(super) struct Stays<'a> {
    pod: PodId,
    pods: usize,
    why: &'a Arc<str>,
}

impl Evictions {
    pub(super) fn decided(&mut self, eviction: Eviction) {
        self.0.insert(eviction.pod, Decided { eviction, spared: None });
    }

    pub(super) fn spared(&mut self, pod: PodId, spared: Spared) {
        if let Some(decided) = self.0.get_mut(&pod) {
            decided.spared = Some(spared);
        }
    }

    /// The pod leaves: by which eviction, unless that was refused.
    pub(super) fn left(&mut self, pod: PodId) -> Option<Eviction> {
        let decided = self.0.remove(&pod)?;
        decided.spared.is_none().then_some(decided.eviction)
    }

    fn refused(&self, now: Millis) -> impl Iterator<Item = (&Eviction, &Spared)> {
        self.0.values().filter_map(move |decided| {
            let spared = decided.spared.as_ref().filter(|spared| spared.until > now)?;
            Some((&decided.eviction, spared))
        })
    }

    /// By the group that they were decided for.
    pub(super) fn by_claimant(&self, now: Millis) -> BTreeMap<GroupId, Refused> {
        let mut refused = BTreeMap::<_, Refused>::new();
        for (eviction, spared) in self.refused(now) {
            let Cause::Claim { by, .. } = eviction.cause else { continue };
            let refused = refused.entry(by).or_default();
            *(if spared.by_budget { &mut refused.by_budget } else { &mut refused.otherwise }) += 1;
        }
        refused
    }

    /// By the group that they are of.
    pub(super) fn by_group(&self, engine: &Engine, now: Millis) -> BTreeMap<GroupId, Stays<'_>> {
        let mut stay = BTreeMap::new();
        for (&Eviction { pod, .. }, spared) in self.refused(now) {
            let Some(group) = engine.group_of(pod) else { continue };
            stay.entry(group).or_insert(Stays { pod, pods: 0, why: &spared.why }).pods += 1;
        }
        stay
    }
}

impl Refused {
    /// How many, without naming any: they are other people's.
    pub(super) fn sentence(self) -> String {
        let said = |count: u32, by: &str| match count {
            0 => String::new(),
            count => format!("; evictions for it refused{by}: {count}"),
        };
        said(self.by_budget, " by a PodDisruptionBudget") + &said(self.otherwise, "")
    }
}

impl Stays<'_> {
    pub(super) fn held(&self, names: &Names) -> Option<Held> {
        let name = &names.pod(self.pod)?.name;
        let more = match self.pods.saturating_sub(1) {
            0 => String::new(),
            more => format!(" (and {more} more)"),
        };
        let message = format!("pod {name}{more}: {}", self.why);
        Some(Held { code: "EvictionRefused", message })
    }
}

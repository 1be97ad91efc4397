//! What people are told about a group: at most three Events.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::engine::action::{Action, Notice};
use crate::engine::event::ObjectRef;
use crate::engine::{Cause, Decision, Engine, Eviction, GroupId, Millis, PodId};
use crate::view::{GroupRow, Names, View, Why};

/// One Event each, once in a group's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Misconfigured,
    Queued,
    Blocked,
    Released,
    Refused,
    Preempted,
    Spared,
}

/// Events of a group, whatever happens to it.
const MOST: usize = 3;

/// Which groups were told what.
#[derive(Debug)]
pub(super) struct Notices {
    since: Millis,
    told: BTreeMap<Arc<str>, [Option<Kind>; MOST]>,
}

impl Notices {
    /// Groups that began before were told about by whoever led then.
    pub(super) fn since(since: Millis) -> Self {
        Self { since, told: BTreeMap::new() }
    }

    fn first(&mut self, root: &ObjectRef, kind: Kind) -> bool {
        let told = self.told.entry(root.address.uid.clone()).or_default();
        let free =
            told.iter_mut().take_while(|told| **told != Some(kind)).find(|told| told.is_none());
        free.map(|free| *free = Some(kind)).is_some()
    }

    /// A group was let go for the first time. Only who was told of a wait is told of its end:
    /// most work need not wait, and an Event costs as much as the release.
    pub(super) fn started(
        &mut self,
        names: &Names,
        engine: &Engine,
        decisions: &[Decision],
    ) -> Vec<Action> {
        let mut counts = BTreeMap::<GroupId, (usize, &Decision)>::new();
        for decision in decisions {
            counts.entry(decision.group).or_insert((0, decision)).0 += 1;
        }
        counts.retain(|_, (_, decision)| decision.first);
        let mut actions = Vec::new();
        for (id, (pods, decision)) in counts {
            let Some(group) = names.group(id) else { continue };
            if self.waited(&group.root, engine.created(decision.pod))
                && self.first(&group.root, Kind::Released)
            {
                let queue = names.queue(decision.queue).name;
                let noun = if pods == 1 { "pod" } else { "pods" };
                let message = format!("{pods} {noun} released by queue {queue:?}");
                actions.push(notice(&group.root, false, "Released", message));
            }
        }
        actions
    }

    /// Whether it was told of a wait, by us or by whoever led before.
    fn waited(&self, root: &ObjectRef, created: Option<Millis>) -> bool {
        let told = self.told.get(&root.address.uid).into_iter().flatten().flatten();
        let waits = |kind: &Kind| matches!(kind, Kind::Queued | Kind::Blocked);
        created.is_some_and(|created| created < self.since) || told.into_iter().any(waits)
    }

    /// A group's release was refused for the first time.
    pub(super) fn refused(&mut self, names: &Names, group: GroupId, why: &str) -> Option<Action> {
        let group = names.group(group)?;
        self.first(&group.root, Kind::Refused).then(|| {
            notice(
                &group.root,
                true,
                "ReleaseRefused",
                format!("its gate could not be opened: {why}"),
            )
        })
    }

    /// A pod of a group was evicted, for the first time.
    pub(super) fn evicted(&mut self, names: &Names, eviction: &Eviction) -> Option<Action> {
        let (group, name) = (names.group(eviction.group)?, &names.pod(eviction.pod)?.name);
        self.first(&group.root, Kind::Preempted).then(|| {
            let queue = names.queue(eviction.queue).name;
            let why = match eviction.cause {
                Cause::Drain => format!("queue {queue:?}, or one above it, is drained"),
                Cause::Claim { queue: by, .. } if by == eviction.queue => {
                    format!("work of higher priority waits in queue {queue:?}")
                }
                Cause::Claim { queue: by, .. } => format!(
                    "queue {queue:?} uses more than it is entitled to and work of queue {:?} waits for that",
                    names.queue(by).name
                ),
            };
            notice(&group.root, true, "Preempted", format!("pod {name} evicted: {why}"))
        })
    }

    /// A pod of a group was to be evicted and was not, for the first time.
    pub(super) fn spared(
        &mut self,
        names: &Names,
        group: GroupId,
        pod: PodId,
        why: &str,
    ) -> Option<Action> {
        let (group, name) = (names.group(group)?, &names.pod(pod)?.name);
        self.first(&group.root, Kind::Spared).then(|| {
            let message = format!("pod {name} is to be evicted and was not: {why}");
            notice(&group.root, true, "EvictionRefused", message)
        })
    }

    /// Groups that have begun to wait, those that wait for somebody to act, and those of
    /// which something that somebody wrote is ignored.
    pub(super) fn waiting(&mut self, view: &View) -> Vec<Action> {
        let alive: BTreeSet<&str> =
            view.groups.values().map(|group| &*group.who.root.address.uid).collect();
        self.told.retain(|uid, _| alive.contains(&**uid));
        let mut actions = Vec::new();
        let since = self.since;
        for group in view.groups.values().filter(|group| group.begun >= since) {
            actions.extend(self.misconfigured(group));
            actions.extend(self.waits(group));
        }
        actions
    }

    /// Told once the owners are known: what is above may say it better.
    fn misconfigured(&mut self, group: &GroupRow) -> Option<Action> {
        let known = group.wait.as_ref().is_none_or(|wait| wait.why.settled);
        let (root, warnings) = (&group.who.root, &group.who.origin.warnings);
        let told = known && !warnings.is_empty();
        (told && self.first(root, Kind::Misconfigured))
            .then(|| notice(root, true, "Misconfigured", warnings.join("; ")))
    }

    fn waits(&mut self, group: &GroupRow) -> Option<Action> {
        let why = group.wait.as_ref().map(|wait| &wait.why).filter(|why| why.settled)?;
        let (kind, warning, reason) = if why.needs_action {
            (Kind::Blocked, true, why.code)
        } else {
            (Kind::Queued, false, "Queued")
        };
        let root = &group.who.root;
        self.first(root, kind).then(|| notice(root, warning, reason, sentence(why)))
    }
}

fn sentence(why: &Why) -> String {
    match &why.remedy {
        Some(remedy) => format!("{}; {remedy}", why.message),
        None => why.message.clone(),
    }
}

fn notice(about: &ObjectRef, warning: bool, reason: &'static str, message: String) -> Action {
    Action::Notice(Notice { about: about.clone(), warning, reason, message })
}

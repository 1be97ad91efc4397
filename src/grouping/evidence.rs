//! The sentences that tell people where a placement comes from.

use std::fmt;
use std::sync::Arc;

use crate::api::names;

use super::chain::{Chain, End, Link, MOST_OWNERS};
use super::placement::{FoundAt, QueueChoice};

/// Characters shown of a mark that means nothing.
const MARK_SHOWN: usize = 40;

/// What is said of a placement, in sentences.
#[derive(Debug, Default)]
pub(super) struct Said {
    /// Where it comes from.
    pub evidence: Vec<String>,
    /// What somebody wrote that means nothing.
    pub warnings: Vec<String>,
}

/// An object by `Kind/name`; pods of a group read the same when an owner makes them.
fn who(link: &Link, chain: &Chain) -> String {
    if std::ptr::eq(link, &raw const chain.pod) && !chain.owners.is_empty() {
        "its pods".to_owned()
    } else {
        link.key.to_string()
    }
}

/// What a mark is, and its name.
#[derive(Clone, Copy, Debug)]
pub(super) enum Key {
    Label(&'static str),
    Annotation(&'static str),
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Label(name) => write!(f, "label {name}"),
            Self::Annotation(name) => write!(f, "annotation {name}"),
        }
    }
}

/// A mark that counts.
pub(super) fn mark(key: Key, text: &str, link: &Link, chain: &Chain) -> String {
    format!("{key}={text:?} on {}", who(link, chain))
}

/// A mark that does not: long ones are shown in part.
pub(super) fn bad_mark(key: Key, text: &str, link: &Link, chain: &Chain, wrong: &str) -> String {
    let shown: String = text.chars().take(MARK_SHOWN).collect();
    let dots = if shown.len() < text.len() { "..." } else { "" };
    format!("{key}={shown:?}{dots} on {} is {wrong}: ignored", who(link, chain))
}

/// Where the queue's name was found, and labels that choose nothing.
pub(super) fn queue(
    chain: &Chain,
    namespace: &Arc<str>,
    choice: Option<&QueueChoice>,
    evidence: &mut Vec<String>,
) {
    let label = names::LABEL_QUEUE;
    let top = who(chain.top(), chain);
    evidence.push(match choice {
        Some(QueueChoice { name, found: FoundAt::Root }) => {
            format!("queue {name}: label {label} on {top}")
        }
        Some(QueueChoice { name, found: FoundAt::Namespace }) => {
            format!("queue {name}: label {label} on namespace {namespace}")
        }
        None => format!("no queue: neither {top} nor namespace {namespace} has label {label}"),
    });
    let chosen = choice.map(|choice| &choice.name);
    for link in chain.links() {
        let Some(name) = link.metadata.as_ref().and_then(|metadata| metadata.marks.queue.as_ref())
        else {
            continue;
        };
        if chosen != Some(name) {
            let who = who(link, chain);
            let what =
                if link.key.namespace.is_empty() { "of a namespace" } else { "without owner" };
            evidence.push(format!(
                "label {label}={name} on {who} chooses nothing: only an object {what} names the queue"
            ));
        }
    }
}

/// Why the run ends below `above`.
pub(super) fn boundary(above: Option<&Link>, root: &Link, evidence: &mut Vec<String>) {
    let Some(above) = above else { return };
    let (above, root) = (&above, &root.key);
    evidence.push(if above.starts_runs {
        format!("{} starts runs by its schedule: {root} is a run of its own", above.key)
    } else {
        format!(
            "{root} names {} as owner but not as controller: good for the queue, not for the group",
            above.key
        )
    });
}

/// Said of pods that a backup tool made: it waits for them, and not for ever.
pub(super) fn restored(chain: &Chain, evidence: &mut Vec<String>) {
    let restore = chain.pod.metadata.as_ref().and_then(|pod| pod.marks.restore.as_ref());
    evidence.extend(restore.map(|restore| {
        format!(
            "restored from a backup (label {}={restore} on {}): the restore may give up on pods \
             that stay gated for long",
            names::LABEL_RESTORE,
            who(&chain.pod, chain)
        )
    }));
}

/// Why the chain goes no higher, unless that is its natural end.
pub(super) fn end(chain: &Chain, evidence: &mut Vec<String>) {
    let top = &chain.top().key;
    evidence.push(match &chain.end {
        End::Top => return,
        End::Pending => format!("{top} is being looked up"),
        End::Forbidden(rule) => format!(
            "{top} may not be read, so what is above it is not known; missing rule: {rule}; add it \
             in a ClusterRole with label {}: \"true\"",
            names::LABEL_AGGREGATE_TO_OWNERS
        ),
        End::UnknownKind => format!(
            "{top} is of a kind that this cluster does not serve ({}), so what is above it is not known",
            top.api_version
        ),
        End::Missing(owner) => format!("{top} is owned by {owner}, which does not exist"),
        End::WrongUid(owner) => format!(
            "{top} is owned by {owner} with uid {}, but the object of that name has another uid",
            owner.uid
        ),
        End::Ambiguous(count) => {
            format!("{top} has {count} owners and none of them is its controller")
        }
        End::Cycle(owner) => format!("the owners of {top} go round in a circle at {owner}"),
        End::TooDeep => format!("{top} has owners still, but only {MOST_OWNERS} are followed"),
    });
}

//! From a chain of owners to a group, a queue and a gang rule.

use std::sync::Arc;

use crate::api::names;

use super::chain::{Chain, End, Link, walk};
use super::evidence::{self, Key, Said};
use super::marks::is_too_long;
use super::object::{Metadata, Owners};
use super::placement::{
    Findings, FoundAt, Gang, GroupKey, Member, Placement, QueueChoice, Resolution,
};

/// Finds where a pod belongs, as far as `owners` can tell.
pub fn resolve(member: &Member<'_>, owners: &impl Owners) -> Resolution {
    let chain = walk(member, owners);
    let (root, boundary) = run_root(&chain);
    let mut said = Said::default();
    let queue = choose_queue(&chain, member, &mut said.evidence);
    evidence::boundary(boundary, root, &mut said.evidence);
    let named = named_group(&chain, &mut said);
    let gang = gang(&chain, &mut said);
    let non_preemptible = non_preemptible(&chain, &mut said);
    let singleton = singleton(&chain, &mut said);
    let topology = topology(&chain, &mut said);
    evidence::end(&chain, &mut said.evidence);
    evidence::restored(&chain, &mut said.evidence);
    let namespace = Arc::clone(&member.key.namespace);
    let placement = Placement {
        group: Arc::new(match named {
            Some(name) => GroupKey::Named { namespace, name },
            None => GroupKey::Run { namespace, root: Arc::clone(&root.key.uid) },
        }),
        root: root.key.clone(),
        findings: Arc::new(Findings {
            chain: chain.owners.iter().rev().map(|link| link.key.to_string().into()).collect(),
            queue,
            gang,
            non_preemptible,
            singleton,
            topology,
            evidence: said.evidence.into_iter().map(Arc::from).collect(),
            warnings: said.warnings.into_iter().map(Arc::from).collect(),
            asked: chain.asked.clone(),
        }),
    };
    match chain.end {
        End::Pending => Resolution::Needs(placement),
        _ => Resolution::Placed(placement),
    }
}

/// Highest link that is one run, and the link above it where there is one.
fn run_root(chain: &Chain) -> (&Link, Option<&Link>) {
    let mut root = &chain.pod;
    for above in &chain.owners {
        if above.starts_runs || !above.controls {
            return (root, Some(above));
        }
        root = above;
    }
    (root, None)
}

/// The label of the object that somebody made in the pod's namespace, else the
/// namespace's. On an owned object and on one without a namespace it chooses nothing:
/// nobody's right to use the queue was checked there.
fn choose_queue(
    chain: &Chain,
    member: &Member<'_>,
    evidence: &mut Vec<String>,
) -> Option<QueueChoice> {
    let top = chain.top();
    let on_top = match chain.end {
        End::Pending => return None,
        End::Top if !top.key.namespace.is_empty() => {
            top.metadata.as_ref().and_then(|metadata| metadata.marks.queue.as_ref())
        }
        _ => None,
    };
    let choice = match (on_top, member.namespace_queue) {
        (Some(name), _) => Some(QueueChoice { name: Arc::clone(name), found: FoundAt::Root }),
        (None, Some(name)) => {
            Some(QueueChoice { name: Arc::clone(name), found: FoundAt::Namespace })
        }
        (None, None) => None,
    };
    evidence::queue(chain, &member.key.namespace, choice.as_ref(), evidence);
    choice
}

/// The nearest link with a usable mark, and that mark.
fn nearest<T>(
    chain: &Chain,
    read: impl Fn(&Metadata) -> Option<&Arc<str>>,
    parse: impl Fn(&Arc<str>) -> Result<T, &'static str>,
    key: Key,
    said: &mut Said,
) -> Option<T> {
    for link in chain.links() {
        let Some(text) = link.metadata.as_ref().and_then(&read) else { continue };
        match parse(text) {
            Ok(value) => {
                said.evidence.push(evidence::mark(key, text, link, chain));
                return Some(value);
            }
            Err(wrong) => said.warnings.push(evidence::bad_mark(key, text, link, chain, wrong)),
        }
    }
    None
}

fn named_group(chain: &Chain, said: &mut Said) -> Option<Arc<str>> {
    let parse = |text: &Arc<str>| {
        let usable = (!is_too_long(text)).then(|| Arc::clone(text));
        usable.ok_or("longer than 253 characters")
    };
    nearest(
        chain,
        |m| m.marks.group.as_ref(),
        parse,
        Key::Annotation(names::ANNOTATION_GROUP),
        said,
    )
}

/// What `tidegate.dev/gang` says.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wish {
    Auto,
    All,
    None,
}

/// `none` wins, then a number, then `all`; without any, each pod is on its own.
fn gang(chain: &Chain, said: &mut Said) -> Gang {
    let parse = |text: &Arc<str>| match text.as_ref() {
        "auto" => Ok(Wish::Auto),
        "all" => Ok(Wish::All),
        "none" => Ok(Wish::None),
        _ => Err("not one of auto, all, none"),
    };
    let key = Key::Annotation(names::ANNOTATION_GANG);
    let wish = nearest(chain, |m| m.marks.gang.as_ref(), parse, key, said);
    if wish == Some(Wish::None) {
        return Gang::Units;
    }
    let parse = |text: &Arc<str>| match text.parse() {
        Ok(count) if count > 0 => Ok(count),
        _ => Err("not a whole number above 0"),
    };
    let key = Key::Annotation(names::ANNOTATION_MIN_COUNT);
    match nearest(chain, |m| m.marks.min_count.as_ref(), parse, key, said) {
        Some(count) => Gang::AtLeast(count),
        None if wish == Some(Wish::All) => Gang::All,
        None => Gang::Units,
    }
}

/// Either mark alone keeps it from being evicted.
fn non_preemptible(chain: &Chain, said: &mut Said) -> bool {
    let parse = |text: &Arc<str>| match text.as_ref() {
        "true" => Ok(false),
        "false" => Ok(true),
        _ => Err("not one of true, false"),
    };
    let key = Key::Label(names::LABEL_PREEMPTIBLE);
    let pinned =
        nearest(chain, |m| m.marks.behaviour.as_ref()?.preemptible.as_ref(), parse, key, said);
    let parse = |text: &Arc<str>| match text.as_ref() {
        "AtLeastOnce" => Ok(false),
        "AtMostOnce" => Ok(true),
        _ => Err("not one of AtLeastOnce, AtMostOnce"),
    };
    let key = Key::Annotation(names::ANNOTATION_RUN);
    let once = nearest(chain, |m| m.marks.behaviour.as_ref()?.run.as_ref(), parse, key, said);
    pinned.unwrap_or(false) || once.unwrap_or(false)
}

fn singleton(chain: &Chain, said: &mut Said) -> Option<Arc<str>> {
    let parse = |text: &Arc<str>| Ok(Arc::clone(text));
    let key = Key::Label(names::LABEL_SINGLETON);
    nearest(chain, |m| m.marks.behaviour.as_ref()?.singleton.as_ref(), parse, key, said)
}

fn topology(chain: &Chain, said: &mut Said) -> Option<Arc<str>> {
    let parse = |text: &Arc<str>| match &**text {
        key if key == names::LABEL_HOSTNAME || key.contains(names::TOPOLOGY) => {
            Ok(Arc::clone(text))
        }
        _ => Err("not kubernetes.io/hostname or a label key with \"topology\" in it"),
    };
    let key = Key::Annotation(names::ANNOTATION_TOPOLOGY);
    nearest(chain, |m| m.marks.behaviour.as_ref()?.topology.as_ref(), parse, key, said)
}

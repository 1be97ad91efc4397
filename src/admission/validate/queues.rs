//! Queues form a tree, and what is guaranteed below fits into what is guaranteed above.
//!
//! Judged against a view of the stored queues that trails the truth by a moment.
//! Two changes in that moment can each be right and together wrong, so readers of
//! queues must still survive a cycle, a missing parent or too large a sum.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use serde::Deserialize;

use crate::admission::review::{Answer, Malformed, Operation, Request};
use crate::api::names::{GROUP, VERSION};
use crate::api::v1alpha1::{Count, Queue as StoredQueue, Resources};
use crate::quantity::{self, Quantity};

use super::resources;

/// The newest view of all queues; nothing until the first list is in.
pub type Queues = Arc<ArcSwapOption<QueueTree>>;

/// How many names a refusal lists.
const NAMES_SHOWN: usize = 5;

/// Every stored queue by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QueueTree(BTreeMap<String, Node>);

#[derive(Clone, Debug, Default, PartialEq)]
struct Node {
    parent: Option<String>,
    guaranteed: Amounts,
    limit: Amounts,
}

type Amounts = BTreeMap<String, Quantity>;

/// The parts of a queue under review that the rules look at.
#[derive(Debug, Default, Deserialize)]
pub struct Queue {
    #[serde(default)]
    spec: Spec,
    status: Option<Status>,
}

#[derive(Debug, Default, Deserialize)]
struct Status {
    #[serde(default)]
    pending: Count,
    #[serde(default)]
    running: Count,
}

#[derive(Debug, Default, Deserialize, PartialEq)]
struct Spec {
    parent: Option<String>,
    #[serde(default)]
    guaranteed: Resources,
    #[serde(default)]
    limit: Resources,
}

impl<'a> FromIterator<&'a StoredQueue> for QueueTree {
    fn from_iter<I: IntoIterator<Item = &'a StoredQueue>>(queues: I) -> Self {
        let node = |queue: &StoredQueue| {
            let name = queue.metadata.name.clone()?;
            let guaranteed = amounts(&queue.spec.guaranteed).unwrap_or_default();
            let limit = amounts(&queue.spec.limit).unwrap_or_default();
            Some((name, Node { parent: queue.spec.parent.clone(), guaranteed, limit }))
        };
        Self(queues.into_iter().filter_map(node).collect())
    }
}

/// Whether a change to a queue may be stored. Anything but queues passes.
pub fn validate(request: &Request<Queue>, tree: &QueueTree) -> Result<Answer, Malformed> {
    if !request.is_for(GROUP, VERSION, "queues") {
        return Ok(Answer::allow());
    }
    let refusal = match request.operation {
        Operation::Delete => match tree.refuse_orphans(&request.name) {
            None => return Ok(farewell(request)),
            refusal => refusal,
        },
        Operation::Create | Operation::Update => {
            let queue = request.object.as_ref().ok_or(Malformed::NoObject)?;
            if request.old_object.as_ref().is_some_and(|old| old.spec == queue.spec) {
                None
            } else {
                tree.refuse(&request.name, &queue.spec)
            }
        }
        Operation::Other => None,
    };
    Ok(refusal.map_or_else(Answer::allow, Answer::Deny))
}

/// A queue goes; what becomes of the work that it was last seen with is told.
fn farewell(request: &Request<Queue>) -> Answer {
    let status = request.old_object.as_ref().and_then(|queue| queue.status.as_ref());
    let Some(Status { pending, running }) = status else { return Answer::allow() };
    let name = &request.name;
    let mut warnings = Vec::new();
    if pending.pods > 0 {
        warnings.push(format!(
            "queue {name:?} had waiting pods ({}): they stay gated until a queue of this name \
             exists again or their root names another one",
            pending.pods
        ));
    }
    if running.pods > 0 {
        warnings.push(format!(
            "queue {name:?} had running pods ({}): they go on, and no longer count against the \
             queues above",
            running.pods
        ));
    }
    if warnings.is_empty() { Answer::allow() } else { Answer::Warn(warnings) }
}

impl QueueTree {
    /// Whether a queue of this name is stored.
    pub(super) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    fn refuse(&self, name: &str, spec: &Spec) -> Option<String> {
        let resources = spec.guaranteed.keys().chain(spec.limit.keys());
        if let Some(refusal) = resources.into_iter().find_map(|name| resources::refuse(name)) {
            return Some(refusal);
        }
        let (guaranteed, limit) = match (amounts(&spec.guaranteed), amounts(&spec.limit)) {
            (Ok(guaranteed), Ok(limit)) => (guaranteed, limit),
            (Err(refusal), _) | (_, Err(refusal)) => return Some(refusal),
        };
        let node = Node { parent: spec.parent.clone(), guaranteed, limit };
        refuse_above_limit(&node)
            .or_else(|| self.refuse_parent(name, node.parent.as_deref()))
            .or_else(|| self.refuse_sum_in_parent(name, &node))
            .or_else(|| self.refuse_above_ancestor(&node))
            .or_else(|| self.refuse_below_children(name, &node))
            .or_else(|| self.refuse_below_descendant(name, &node))
    }

    /// The parent exists and its own ancestors do not lead back here.
    fn refuse_parent(&self, name: &str, parent: Option<&str>) -> Option<String> {
        let mut seen = BTreeSet::from([name]);
        let mut next = parent;
        while let Some(above) = next {
            if !seen.insert(above) {
                return Some(format!(
                    "the chain of parents comes back to {above:?}: name a parent that does not \
                     lie below this queue, or leave parent out"
                ));
            }
            let Some(node) = self.0.get(above) else {
                return (Some(above) == parent).then(|| {
                    format!("parent {above:?} does not exist: create it first, or leave parent out")
                });
            };
            next = node.parent.as_deref();
        }
        None
    }

    /// With its siblings it is not guaranteed more than its parent is, or may use.
    fn refuse_sum_in_parent(&self, name: &str, node: &Node) -> Option<String> {
        let parent = node.parent.as_deref()?;
        let above = self.0.get(parent)?;
        let siblings = self.children(parent).filter(|(sibling, _)| *sibling != name);
        let sum = total(siblings.map(|(_, sibling)| sibling).chain([node]));
        let refuse = |most: &Amounts, what: &str| {
            let Excess { resource, asked, most } = first_above(&sum, most)?;
            Some(format!(
                "guaranteed {resource} of all queues under {parent:?} would be {asked}, more than \
                 its {what} {most}: lower it here or in a sibling, or raise {parent:?} first"
            ))
        };
        refuse(&above.guaranteed, "own").or_else(|| refuse(&above.limit, "limit"))
    }

    /// It is not guaranteed more than a queue above its parent may use.
    fn refuse_above_ancestor(&self, node: &Node) -> Option<String> {
        self.above(node).skip(1).find_map(|(ancestor, above)| {
            let Excess { resource, asked, most } = first_above(&node.guaranteed, &above.limit)?;
            Some(format!(
                "guaranteed {resource} {asked} is above the limit {most} of {ancestor:?} above it: \
                 lower it, or raise {ancestor:?} first"
            ))
        })
    }

    /// It is not guaranteed less, and may not use less, than its children are guaranteed
    /// together.
    fn refuse_below_children(&self, name: &str, node: &Node) -> Option<String> {
        let sum = total(self.children(name).map(|(_, child)| child));
        let refuse = |own: &Amounts, what: &str| {
            let Excess { resource, asked, most } = first_above(&sum, own)?;
            Some(format!(
                "{what} {resource} {most} is less than the {asked} guaranteed to its children \
                 ({}): lower theirs first",
                self.name_children(name, ", ")
            ))
        };
        refuse(&node.guaranteed, "guaranteed").or_else(|| refuse(&node.limit, "limit"))
    }

    /// It may not use less than a queue further below is guaranteed.
    fn refuse_below_descendant(&self, name: &str, node: &Node) -> Option<String> {
        let is_below = |below: &Node| self.above(below).any(|(ancestor, _)| ancestor == name);
        self.0.iter().find_map(|(below, other)| {
            let Excess { resource, asked, most } = first_above(&other.guaranteed, &node.limit)?;
            (below != name && is_below(other)).then(|| {
                format!(
                    "limit {resource} {most} is less than the {asked} guaranteed to {below:?} \
                     below it: lower that first"
                )
            })
        })
    }

    /// The stored queues above one, nearest first, each once.
    fn above<'a>(&'a self, node: &'a Node) -> impl Iterator<Item = (&'a str, &'a Node)> {
        let mut seen = BTreeSet::new();
        let mut next = node.parent.as_deref();
        std::iter::from_fn(move || {
            let name = next.filter(|&name| seen.insert(name))?;
            let node = self.0.get(name)?;
            next = node.parent.as_deref();
            Some((name, node))
        })
    }

    fn refuse_orphans(&self, name: &str) -> Option<String> {
        self.children(name).next()?;
        Some(format!(
            "queue {name:?} has children: delete them first (kubectl delete queues {} {name}), \
             or give them another parent",
            self.name_children(name, " ")
        ))
    }

    fn children(&self, name: &str) -> impl Iterator<Item = (&str, &Node)> {
        self.0
            .iter()
            .filter(move |(_, node)| node.parent.as_deref() == Some(name))
            .map(|(child, node)| (child.as_str(), node))
    }

    /// The first few children; dots stand for the rest.
    fn name_children(&self, name: &str, between: &str) -> String {
        let names = self.children(name).map(|(child, _)| child);
        let mut shown: Vec<_> = names.take(NAMES_SHOWN + 1).collect();
        if shown.len() > NAMES_SHOWN {
            shown.truncate(NAMES_SHOWN);
            shown.push("...");
        }
        shown.join(between)
    }
}

fn refuse_above_limit(node: &Node) -> Option<String> {
    first_above(&node.guaranteed, &node.limit).map(|Excess { resource, asked, most }| {
        format!(
            "guaranteed {resource} {asked} is above limit {most}: raise limit or lower guaranteed"
        )
    })
}

fn amounts(resources: &Resources) -> Result<Amounts, String> {
    let read = |(resource, amount): (&String, &crate::api::v1alpha1::Amount)| {
        let value = quantity::parse(&amount.0).map_err(|error| format!("{resource}: {error}"))?;
        Ok((resource.clone(), value))
    };
    resources.iter().map(read).collect()
}

fn total<'a>(nodes: impl Iterator<Item = &'a Node>) -> Amounts {
    let mut sum = Amounts::new();
    for (resource, amount) in nodes.flat_map(|node| &node.guaranteed) {
        let entry = sum.entry(resource.clone()).or_default();
        *entry = *entry + *amount;
    }
    sum
}

/// A resource of which more is asked than there is.
struct Excess<'a> {
    resource: &'a str,
    asked: String,
    most: String,
}

/// The first resource of both maps whose amount in `asked` is the larger one.
fn first_above<'a>(asked: &Amounts, most: &'a Amounts) -> Option<Excess<'a>> {
    most.iter().find_map(|(resource, most)| {
        let asked = asked.get(resource).filter(|asked| *asked > most)?;
        let units = [asked, most].map(|amount| amount.engine_units(resource));
        let [asked, most] = quantity::format_alike(resource, units);
        Some(Excess { resource, asked, most })
    })
}

#[cfg(test)]
mod tests;

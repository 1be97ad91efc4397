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
use crate::api::v1alpha1::{Queue as StoredQueue, Resources};
use crate::quantity::{self, Quantity};

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
}

type Amounts = BTreeMap<String, Quantity>;

/// The parts of a queue under review that the rules look at.
#[derive(Debug, Default, Deserialize)]
pub struct Queue {
    #[serde(default)]
    spec: Spec,
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
            Some((name, Node { parent: queue.spec.parent.clone(), guaranteed }))
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
        Operation::Delete => tree.refuse_orphans(&request.name),
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

impl QueueTree {
    fn refuse(&self, name: &str, spec: &Spec) -> Option<String> {
        let (guaranteed, limit) = match (amounts(&spec.guaranteed), amounts(&spec.limit)) {
            (Ok(guaranteed), Ok(limit)) => (guaranteed, limit),
            (Err(refusal), _) | (_, Err(refusal)) => return Some(refusal),
        };
        let node = Node { parent: spec.parent.clone(), guaranteed };
        refuse_above_limit(&node.guaranteed, &limit)
            .or_else(|| self.refuse_parent(name, node.parent.as_deref()))
            .or_else(|| self.refuse_sum_in_parent(name, &node))
            .or_else(|| self.refuse_below_children(name, &node))
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

    /// With its siblings it is not guaranteed more than its parent is.
    fn refuse_sum_in_parent(&self, name: &str, node: &Node) -> Option<String> {
        let parent = node.parent.as_deref()?;
        let own = &self.0.get(parent)?.guaranteed;
        let siblings = self.children(parent).filter(|(sibling, _)| *sibling != name);
        let sum = total(siblings.map(|(_, sibling)| sibling).chain([node]));
        first_above(&sum, own).map(|Excess { resource, asked, most }| {
            format!(
                "guaranteed {resource} of all queues under {parent:?} would be {asked}, more than \
                 its own {most}: lower it here or in a sibling, or raise {parent:?} first"
            )
        })
    }

    /// It is not guaranteed less than its children are together.
    fn refuse_below_children(&self, name: &str, node: &Node) -> Option<String> {
        let sum = total(self.children(name).map(|(_, child)| child));
        first_above(&sum, &node.guaranteed).map(|Excess { resource, asked, most }| {
            format!(
                "guaranteed {resource} {most} is less than the {asked} guaranteed to its children \
                 ({}): lower theirs first",
                self.name_children(name, ", ")
            )
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

fn refuse_above_limit(guaranteed: &Amounts, limit: &Amounts) -> Option<String> {
    first_above(guaranteed, limit).map(|Excess { resource, asked, most }| {
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
        let text = |amount: &Quantity| quantity::format(resource, amount.engine_units(resource));
        Some(Excess { resource, asked: text(asked), most: text(most) })
    })
}

#[cfg(test)]
mod tests;

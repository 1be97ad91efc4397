//! The walk from a pod up to what a person made.

use std::sync::Arc;

use super::object::{Above, Lookup, Metadata, ObjectKey, Owner, Owners};
use super::placement::Member;

/// Owners above a pod that are followed; real chains have five at most.
pub(super) const MOST_OWNERS: usize = 10;

/// One object of a chain.
#[derive(Clone, Debug)]
pub(super) struct Link {
    pub key: ObjectKey,
    /// What was read of it; `None` when only references name it.
    pub metadata: Option<Metadata>,
    pub starts_runs: bool,
    /// The object below names it as its controller.
    pub controls: bool,
}

/// Why a chain ends where it ends.
#[derive(Clone, Debug)]
pub(super) enum End {
    /// The last link has no owner: somebody made it.
    Top,
    /// The last link is not read yet.
    Pending,
    /// The last link may not be read, by lack of this rule.
    Forbidden(Arc<str>),
    /// The last link is of a kind that is not served.
    UnknownKind,
    /// The owner of the last link is gone.
    Missing(ObjectKey),
    /// The owner of the last link was replaced by another object of its name.
    WrongUid(ObjectKey),
    /// The last link has so many owners and no controller.
    Ambiguous(usize),
    /// The owner of the last link is already in the chain.
    Cycle(ObjectKey),
    /// There are more owners than are followed.
    TooDeep,
}

/// A pod and its owners, pod first.
#[derive(Clone, Debug)]
pub(super) struct Chain {
    pub pod: Link,
    pub owners: Vec<Link>,
    pub end: End,
    /// What was asked for on the way, nearest first.
    pub asked: Vec<ObjectKey>,
}

impl Chain {
    pub fn links(&self) -> impl DoubleEndedIterator<Item = &Link> {
        std::iter::once(&self.pod).chain(&self.owners)
    }

    pub fn top(&self) -> &Link {
        self.owners.last().unwrap_or(&self.pod)
    }
}

/// Follows controllers, or the only owner there is, as far as they can be read.
pub(super) fn walk(member: &Member<'_>, owners: &impl Owners) -> Chain {
    let pod = Link {
        key: member.key.clone(),
        metadata: Some(member.metadata.clone()),
        starts_runs: false,
        controls: false,
    };
    let mut chain = Chain { pod, owners: Vec::new(), end: End::Top, asked: Vec::new() };
    chain.end = loop {
        if let Some(end) = climb(&mut chain, owners) {
            break end;
        }
    };
    chain
}

/// One step up; `Some` when there is none.
fn climb(chain: &mut Chain, owners: &impl Owners) -> Option<End> {
    let top = chain.top();
    let above = top.metadata.as_ref().map(|metadata| &metadata.above);
    let (reference, controls) = match above {
        None => return Some(End::Pending),
        Some(Above::Nobody) => return Some(End::Top),
        Some(Above::Several(count)) => return Some(End::Ambiguous(*count)),
        Some(Above::Controller(reference)) => (reference, true),
        Some(Above::Only(reference)) => (reference, false),
    };
    let key = reference.key(&top.key.namespace);
    if chain.links().any(|link| link.key.uid == key.uid) {
        return Some(End::Cycle(key));
    }
    if chain.owners.len() >= MOST_OWNERS {
        return Some(End::TooDeep);
    }
    chain.asked.push(key.clone());
    let end = match owners.look_up(&key) {
        Lookup::Found(owner) => {
            chain.owners.push(read(key, owner, controls));
            return None;
        }
        Lookup::Missing => return Some(End::Missing(key)),
        Lookup::WrongUid => return Some(End::WrongUid(key)),
        Lookup::Forbidden(rule) => End::Forbidden(rule),
        Lookup::UnknownKind => End::UnknownKind,
        Lookup::Pending => End::Pending,
    };
    chain.owners.push(Link { key, metadata: None, starts_runs: false, controls });
    Some(end)
}

/// The link of an owner that was read.
fn read(key: ObjectKey, owner: Owner, controls: bool) -> Link {
    let namespace = if owner.namespaced { Arc::clone(&key.namespace) } else { "".into() };
    let key = ObjectKey { namespace, ..key };
    Link { key, metadata: Some(owner.metadata), starts_runs: owner.starts_runs, controls }
}

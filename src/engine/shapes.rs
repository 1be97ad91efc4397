//! What pods cost, and what groups offer: each different one kept once, with a number.

use std::collections::BTreeMap;

use super::amounts::{Axes, Need};
use super::directory::Directory;
use super::mask::Mask;
use super::model::Vector;
use super::plan::Site;
use super::slab::Slab;

/// Number of a cost.
pub(super) type ShapeId = u32;

/// Number of a class of offers.
pub(super) type ClassId = u32;

/// A cost that pods have.
#[derive(Debug)]
pub(super) struct Shape {
    pub(super) cost: Vector,
    pub(super) need: Need,
    /// It asks for something that no node and no queue speaks of.
    pub(super) alien: bool,
    holders: u32,
}

/// Every cost that some pod has.
#[derive(Debug, Default)]
pub(super) struct Shapes {
    slab: Slab<Shape>,
    by_cost: Directory<Vector>,
}

impl Shapes {
    /// The number of a cost, held until [`Self::release`].
    pub(super) fn hold(&mut self, axes: &Axes, cost: &Vector) -> ShapeId {
        if let Some(id) = self.by_cost.get(cost) {
            self.slab[id].holders += 1;
            return id;
        }
        let shape = Shape {
            cost: cost.clone(),
            need: axes.need(cost),
            alien: is_alien(axes, cost),
            holders: 1,
        };
        let id = self.slab.insert(shape);
        self.by_cost.insert(cost.clone(), id);
        id
    }

    pub(super) fn hold_again(&mut self, id: ShapeId) {
        self.slab[id].holders += 1;
    }

    pub(super) fn release(&mut self, id: ShapeId) {
        let shape = &mut self.slab[id];
        shape.holders -= 1;
        if shape.holders == 0
            && let Some(shape) = self.slab.remove(id)
        {
            self.by_cost.remove(&shape.cost);
        }
    }

    pub(super) fn get(&self, id: ShapeId) -> &Shape {
        &self.slab[id]
    }

    pub(super) fn need(&self, id: ShapeId) -> &Need {
        &self.slab[id].need
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.slab.len()
    }

    /// Measures every cost anew after an axis was added.
    pub(super) fn project(&mut self, axes: &Axes) {
        for (_, shape) in self.slab.iter_mut() {
            shape.need = axes.need(&shape.cost);
            shape.alien = is_alien(axes, &shape.cost);
        }
    }
}

fn is_alien(axes: &Axes, cost: &Vector) -> bool {
    cost.iter().any(|(resource, amount)| amount > 0 && axes.of(resource).is_none())
}

/// All that decides whether an offer may start, apart from its queue.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::struct_excessive_bools, reason = "each is one thing to be or not")]
pub(super) struct Kind {
    /// Its pods: so many of each cost, by number of the cost.
    pub(super) parts: Parts,
    /// No pod of its group is charged yet: it is one more group that runs.
    pub(super) adds_group: bool,
    /// It completes a gang that was cut in two.
    pub(super) completes: bool,
    /// It is more of a gang that runs: it stands in line elsewhere than one that has not begun.
    pub(super) grows: bool,
    /// It may start within what is guaranteed, and not otherwise.
    pub(super) pinned: bool,
    /// Where nodes are looked for, if they are.
    pub(super) site: Option<Site>,
}

/// The pods of an offer by cost.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Parts {
    /// All of one cost.
    Alike(ShapeId, u32),
    /// Sorted by number of the cost.
    Mixed(Box<[(ShapeId, u32)]>),
}

impl Parts {
    pub(super) fn of(counts: BTreeMap<ShapeId, u32>) -> Self {
        match counts.first_key_value() {
            Some((&shape, &count)) if counts.len() == 1 => Self::Alike(shape, count),
            _ => Self::Mixed(counts.into_iter().collect()),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (ShapeId, u32)> + '_ {
        let (alike, mixed) = match self {
            Self::Alike(shape, count) => (Some((*shape, *count)), &[][..]),
            Self::Mixed(parts) => (None, &parts[..]),
        };
        alike.into_iter().chain(mixed.iter().copied())
    }
}

/// Offers that are refused or let go alike, whichever queue they are in.
#[derive(Debug)]
pub(super) struct Class {
    pub(super) kind: Kind,
    pub(super) need: Need,
    holders: u32,
}

/// Every class of which some group has an offer.
#[derive(Debug, Default)]
pub(super) struct Classes {
    slab: Slab<Class>,
    by_kind: Directory<Kind>,
    /// Those that nobody held for a moment at least.
    left: Vec<ClassId>,
    /// Those that complete a gang.
    pub(super) completing: Mask,
    /// Those that may start outside what is guaranteed.
    pub(super) loose: Mask,
}

impl Classes {
    /// The number of a class, held until [`Self::release`]; true when it is new.
    pub(super) fn hold(&mut self, shapes: &mut Shapes, kind: Kind) -> (ClassId, bool) {
        if let Some(id) = self.by_kind.get(&kind) {
            self.slab[id].holders += 1;
            return (id, false);
        }
        kind.parts.iter().for_each(|(shape, _)| shapes.hold_again(shape));
        let need = measure(shapes, &kind);
        let id = self.slab.insert(Class { kind: kind.clone(), need, holders: 1 });
        self.completing.unset(id);
        self.loose.unset(id);
        if kind.completes {
            self.completing.set(id);
        }
        if !kind.pinned {
            self.loose.set(id);
        }
        self.by_kind.insert(kind, id);
        (id, true)
    }

    pub(super) fn release(&mut self, id: ClassId) {
        let class = &mut self.slab[id];
        class.holders -= 1;
        if class.holders == 0 {
            self.left.push(id);
        }
    }

    /// Forgets the classes that nobody holds, once the tree knows that they are gone: their
    /// numbers are given to others.
    pub(super) fn sweep(&mut self, shapes: &mut Shapes, fitting: &mut Mask) {
        while let Some(id) = self.left.pop() {
            if self.slab.get(id).is_some_and(|class| class.holders == 0)
                && let Some(class) = self.slab.remove(id)
            {
                class.kind.parts.iter().for_each(|(shape, _)| shapes.release(shape));
                self.by_kind.remove(&class.kind);
                fitting.unset(id);
            }
        }
    }

    pub(super) fn get(&self, id: ClassId) -> &Class {
        &self.slab[id]
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (ClassId, &Class)> {
        self.slab.iter()
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.slab.len()
    }

    /// Measures every class anew after an axis was added.
    pub(super) fn project(&mut self, shapes: &Shapes) {
        for (_, class) in self.slab.iter_mut() {
            class.need = measure(shapes, &class.kind);
        }
    }
}

/// What all pods of an offer ask, and a place among the groups that run.
pub(super) fn measure(shapes: &Shapes, kind: &Kind) -> Need {
    let group = kind.adds_group.then(Need::one_group);
    let pods = kind.parts.iter().map(|(shape, count)| (shapes.need(shape), i128::from(count)));
    Need::sum(pods.chain(group.iter().map(|group| (group, 1))))
}

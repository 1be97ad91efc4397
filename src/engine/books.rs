//! What there is, and what of it is charged to whom.

use std::collections::BTreeMap;

use super::model::{QueueId, Vector};
use super::share::Fraction;
use super::tree::Tree;

/// What there is and what of it is charged.
#[derive(Debug, Default)]
pub(super) struct Books {
    /// Allocatable of usable nodes less foreign requests.
    pub(super) capacity: Vector,
    /// Nodes that exist.
    pub(super) nodes: u32,
    /// Nodes that are ready and schedulable.
    pub(super) usable: u32,
    /// Charged amounts that take from `capacity`.
    pub(super) load: Vector,
    /// Charged amounts by queue, with the queues below.
    pub(super) usage: BTreeMap<QueueId, Vector>,
    /// Charged amounts by queue, without the queues below.
    pub(super) direct: BTreeMap<QueueId, Vector>,
}

/// What a pod was charged, so that the same is given back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Charge {
    pub(super) queue: Option<QueueId>,
    pub(super) takes_capacity: bool,
    pub(super) cost: Vector,
}

impl Books {
    /// Adds or takes away one charge on the whole path of its queue.
    pub(super) fn enter(&mut self, tree: &Tree, charge: &Charge, by: fn(&mut Vector, &Vector)) {
        if charge.takes_capacity {
            by(&mut self.load, &charge.cost);
        }
        let Some(queue) = charge.queue else { return };
        by(self.direct.entry(queue).or_default(), &charge.cost);
        for &above in tree.path(queue) {
            by(self.usage.entry(above).or_default(), &charge.cost);
        }
    }

    /// Sums up again after the tree has changed.
    pub(super) fn sum_up(&mut self, tree: &Tree) {
        self.usage.clear();
        for (&queue, direct) in &self.direct {
            for &above in tree.path(queue) {
                self.usage.entry(above).or_default().add(direct);
            }
        }
    }

    /// Dominant share (Ghodsi et al. 2011): the largest part that `usage` is of
    /// the capacity, over all resources that there are, divided by `weight`.
    pub(super) fn dominant_share(&self, usage: Option<&Vector>, weight: u32) -> Fraction {
        let part = |(resource, amount): (_, i128)| {
            let capacity = u128::try_from(self.capacity.get(resource)).ok().filter(|&c| c > 0)?;
            let numerator = u128::try_from(amount).ok()?;
            Some(Fraction { numerator, denominator: capacity * u128::from(weight.max(1)) })
        };
        usage.and_then(|usage| usage.iter().filter_map(part).max()).unwrap_or(Fraction::ZERO)
    }
}

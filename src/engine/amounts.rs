//! Amounts on axes: one number for each resource that a node has or a queue speaks of.
//!
//! Anybody may ask for resources with invented names. They get no axis: no node has them,
//! so whatever asks for them is larger than any node.

use super::model::{ResourceId, Vector};

/// Position of a resource in [`Amounts`].
pub(super) type Axis = u16;

/// Stands for no bound.
pub(super) const UNBOUNDED: i128 = i128::MAX;

/// The axis of [`ResourceId::GROUPS`]: a queue may limit it, and no capacity has it.
pub(super) const GROUPS: Axis = 0;

/// Which resources have an axis.
#[derive(Debug)]
pub(super) struct Axes {
    by_resource: Vec<Option<Axis>>,
    resources: Vec<ResourceId>,
}

impl Default for Axes {
    fn default() -> Self {
        let mut axes = Self { by_resource: Vec::new(), resources: Vec::new() };
        axes.learn([ResourceId::GROUPS, ResourceId::PODS].into_iter());
        axes
    }
}

impl Axes {
    /// Gives each resource an axis; true when one is new.
    pub(super) fn learn(&mut self, resources: impl Iterator<Item = ResourceId>) -> bool {
        let before = self.resources.len();
        for resource in resources {
            let at = usize::from(resource.0);
            if at >= self.by_resource.len() {
                self.by_resource.resize(at + 1, None);
            }
            if let Some(axis @ None) = self.by_resource.get_mut(at) {
                *axis = Axis::try_from(self.resources.len()).ok();
                self.resources.push(resource);
            }
        }
        self.resources.len() > before
    }

    pub(super) fn of(&self, resource: ResourceId) -> Option<Axis> {
        self.by_resource.get(usize::from(resource.0)).copied().flatten()
    }

    pub(super) fn resource(&self, axis: Axis) -> ResourceId {
        self.resources.get(usize::from(axis)).copied().unwrap_or_default()
    }

    pub(super) fn all(&self) -> impl Iterator<Item = (Axis, ResourceId)> + '_ {
        (0..).zip(self.resources.iter().copied())
    }

    /// Sorted by axis.
    pub(super) fn project(&self, vector: &Vector) -> Vec<(Axis, i128)> {
        let on = |(resource, amount)| Some((self.of(resource)?, amount));
        let mut amounts: Vec<_> = vector.iter().filter_map(on).collect();
        amounts.sort_unstable_by_key(|&(axis, _)| axis);
        amounts
    }

    /// What of a vector is more than nothing.
    pub(super) fn need(&self, vector: &Vector) -> Need {
        let mut need = self.project(vector);
        need.retain(|&(_, amount)| amount > 0);
        Need(need.into())
    }

    /// The amounts that are not zero, by resource.
    pub(super) fn vector(&self, amounts: &Amounts) -> Vector {
        let named = self.all().map(|(axis, resource)| (resource, amounts.get(axis)));
        named.filter(|&(_, amount)| amount != 0).collect()
    }
}

/// What something asks, where that is more than nothing. Sorted by axis.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Need(Box<[(Axis, i128)]>);

impl Need {
    pub(super) fn iter(&self) -> impl Iterator<Item = (Axis, i128)> + '_ {
        self.0.iter().copied()
    }

    pub(super) fn get(&self, axis: Axis) -> i128 {
        self.iter().find(|&(other, _)| other == axis).map_or(0, |(_, amount)| amount)
    }

    /// The sum of so many of each.
    pub(super) fn sum<'a>(parts: impl Iterator<Item = (&'a Self, i128)>) -> Self {
        let mut sum = std::collections::BTreeMap::<Axis, i128>::new();
        for (need, times) in parts {
            for (axis, amount) in need.iter() {
                *sum.entry(axis).or_default() += amount * times;
            }
        }
        Self(sum.into_iter().filter(|&(_, amount)| amount > 0).collect())
    }

    /// A place among the groups that run.
    pub(super) fn one_group() -> Self {
        Self::default().with_group()
    }

    /// This and a place among the groups that run.
    pub(super) fn with_group(&self) -> Self {
        Self([(GROUPS, 1)].into_iter().chain(self.iter()).collect())
    }

    /// Whether all of it is there.
    pub(super) fn fits(&self, room: &Amounts) -> bool {
        self.iter().all(|(axis, amount)| axis == GROUPS || amount <= room.get(axis))
    }
}

/// No more than the least that any of several needs asks.
#[derive(Clone, Debug, Default)]
pub(super) struct Least(Option<Vec<(Axis, i128)>>);

impl Least {
    pub(super) fn lower(&mut self, need: &Need) {
        let Some(least) = &mut self.0 else {
            self.0 = Some(need.iter().collect());
            return;
        };
        least.retain_mut(|(axis, least)| {
            let asked = need.iter().find(|(other, _)| other == axis);
            *least = asked.map_or(0, |(_, amount)| amount.min(*least));
            *least > 0
        });
    }

    pub(super) fn forget(&mut self) {
        self.0 = None;
    }

    /// Whether one that asks no more than this might be within the bounds.
    pub(super) fn may_enter(&self, used: &Amounts, bounds: &Bounds) -> bool {
        self.0.iter().flatten().all(|&(axis, amount)| bounds.admit_on(axis, used, amount))
    }
}

/// An amount on each axis; beyond its end zero.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Amounts(Vec<i128>);

impl Amounts {
    pub(super) fn get(&self, axis: Axis) -> i128 {
        self.0.get(usize::from(axis)).copied().unwrap_or(0)
    }

    pub(super) fn at(&mut self, axis: Axis) -> &mut i128 {
        let at = usize::from(axis);
        if at >= self.0.len() {
            self.0.resize(at + 1, 0);
        }
        &mut self.0[at]
    }

    pub(super) fn add(&mut self, need: &Need) {
        need.iter().for_each(|(axis, amount)| *self.at(axis) += amount);
    }

    pub(super) fn sub(&mut self, need: &Need) {
        need.iter().for_each(|(axis, amount)| *self.at(axis) -= amount);
    }

    pub(super) fn add_all(&mut self, other: &Self) {
        for (axis, &amount) in (0..).zip(&other.0) {
            *self.at(axis) += amount;
        }
    }

    pub(super) fn sub_all(&mut self, other: &Self) {
        for (axis, &amount) in (0..).zip(&other.0) {
            *self.at(axis) -= amount;
        }
    }

    pub(super) fn at_least_zero(&mut self) {
        self.0.iter_mut().for_each(|amount| *amount = (*amount).max(0));
    }

    /// Each of them half, rounded down.
    pub(super) fn halve(&mut self) {
        self.0.iter_mut().for_each(|amount| *amount >>= 1);
    }

    pub(super) fn is_zero(&self) -> bool {
        self.0.iter().all(|&amount| amount == 0)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Axis, i128)> + '_ {
        (0..).zip(self.0.iter().copied())
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

/// The most there may be on each axis; beyond its end there is no bound.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Bounds(Vec<i128>);

impl Bounds {
    pub(super) fn get(&self, axis: Axis) -> i128 {
        self.0.get(usize::from(axis)).copied().unwrap_or(UNBOUNDED)
    }

    pub(super) fn has(&self, axis: Axis) -> bool {
        self.get(axis) != UNBOUNDED
    }

    pub(super) fn set(&mut self, axis: Axis, most: i128) {
        let at = usize::from(axis);
        if at >= self.0.len() {
            self.0.resize(at + 1, UNBOUNDED);
        }
        self.0[at] = most;
    }

    pub(super) fn lower(&mut self, axis: Axis, most: i128) {
        if most < self.get(axis) {
            self.set(axis, most);
        }
    }

    /// Axes that have a bound.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Axis, i128)> + '_ {
        (0..).zip(self.0.iter().copied()).filter(|&(_, most)| most != UNBOUNDED)
    }

    /// Whether all of `need` alone is within the bounds.
    pub(super) fn hold(&self, need: &Need) -> bool {
        need.iter().all(|(axis, amount)| amount <= self.get(axis))
    }

    /// Whether `need` more is within the bounds.
    pub(super) fn admit(&self, used: &Amounts, need: &Need) -> bool {
        need.iter().all(|(axis, amount)| self.admit_on(axis, used, amount))
    }

    pub(super) fn admit_on(&self, axis: Axis, used: &Amounts, amount: i128) -> bool {
        let most = self.get(axis);
        most == UNBOUNDED || used.get(axis) + amount <= most
    }

    pub(super) fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }
}

//! Things in slots with small numbers.

use std::ops::{Index, IndexMut};

/// No slot.
pub(super) const NONE: u32 = u32::MAX;

/// Things that keep their slot for as long as they are there. A slot that was left is
/// given to the next that comes.
#[derive(Debug)]
pub(super) struct Slab<T> {
    slots: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    pub(super) fn insert(&mut self, item: T) -> u32 {
        if let Some(slot) = self.free.pop() {
            self.slots[slot as usize] = Some(item);
            return slot;
        }
        self.slots.push(Some(item));
        u32::try_from(self.slots.len() - 1).unwrap_or(NONE)
    }

    pub(super) fn remove(&mut self, slot: u32) -> Option<T> {
        let item = self.slots.get_mut(slot as usize)?.take()?;
        self.free.push(slot);
        Some(item)
    }

    pub(super) fn get(&self, slot: u32) -> Option<&T> {
        self.slots.get(slot as usize)?.as_ref()
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// By slot.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        (0..).zip(&self.slots).filter_map(|(slot, item)| Some((slot, item.as_ref()?)))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut T)> {
        (0..).zip(&mut self.slots).filter_map(|(slot, item)| Some((slot, item.as_mut()?)))
    }
}

/// A slot is given out by this slab and used until it is given back.
impl<T> Index<u32> for Slab<T> {
    type Output = T;

    #[expect(clippy::panic, reason = "a slot that nobody holds is a fault of this room")]
    fn index(&self, slot: u32) -> &T {
        self.get(slot).unwrap_or_else(|| panic!("nothing is in slot {slot}"))
    }
}

impl<T> IndexMut<u32> for Slab<T> {
    #[expect(clippy::panic, reason = "a slot that nobody holds is a fault of this room")]
    fn index_mut(&mut self, slot: u32) -> &mut T {
        match self.slots.get_mut(slot as usize) {
            Some(Some(item)) => item,
            _ => panic!("nothing is in slot {slot}"),
        }
    }
}

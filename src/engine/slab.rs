//! Things in slots with small numbers, and the numbers of things by name.

use std::hash::{BuildHasherDefault, Hash, Hasher};
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

/// Slots by key. Never gone through, so that no hash order is ever seen.
#[derive(Debug)]
#[expect(clippy::disallowed_types, reason = "only asked by key, never gone through")]
pub(super) struct Directory<K>(std::collections::HashMap<K, u32, BuildHasherDefault<Mixer>>);

#[expect(clippy::disallowed_types, reason = "only asked by key, never gone through")]
impl<K> Default for Directory<K> {
    fn default() -> Self {
        Self(std::collections::HashMap::default())
    }
}

impl<K: Eq + Hash> Directory<K> {
    pub(super) fn get(&self, key: &K) -> Option<u32> {
        self.0.get(key).copied()
    }

    pub(super) fn insert(&mut self, key: K, slot: u32) {
        self.0.insert(key, slot);
    }

    pub(super) fn remove(&mut self, key: &K) -> Option<u32> {
        self.0.remove(key)
    }
}

/// The same hash in every process: multiply and fold.
#[derive(Debug, Default)]
pub(super) struct Mixer(u64);

#[expect(clippy::cast_possible_truncation, reason = "any bits will do")]
impl Mixer {
    fn mix(&mut self, word: u64) {
        let product = u128::from(self.0.rotate_left(23) ^ word) * 0x9e37_79b9_7f4a_7c15;
        self.0 = (product ^ (product >> 64)) as u64;
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "any bits will do")]
impl Hasher for Mixer {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.mix(u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, word: u8) {
        self.mix(u64::from(word));
    }

    fn write_u16(&mut self, word: u16) {
        self.mix(u64::from(word));
    }

    fn write_u32(&mut self, word: u32) {
        self.mix(u64::from(word));
    }

    fn write_u64(&mut self, word: u64) {
        self.mix(word);
    }

    fn write_u128(&mut self, word: u128) {
        self.mix(word as u64);
        self.mix((word >> 64) as u64);
    }

    fn write_i128(&mut self, word: i128) {
        self.write_u128(word as u128);
    }

    fn write_usize(&mut self, word: usize) {
        self.mix(word as u64);
    }

    fn write_isize(&mut self, word: isize) {
        self.mix(word as u64);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

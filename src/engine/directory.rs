//! The slots of things by what they are known by.

use std::hash::{BuildHasherDefault, Hash, Hasher};

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

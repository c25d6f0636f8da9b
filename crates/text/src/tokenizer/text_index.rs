//! From a piece's bytes to its id: an open hash table over the pieces, which keep the only copy of the text.

use super::pieces::Pieces;

/// Finds ids by content. Of equal entries the one indexed first is found.
#[derive(Clone, Debug)]
pub(super) struct TextIndex {
    /// Id plus one; 0 is free. A power of two of them, at most half full.
    slots: Vec<u32>,
    longest: usize,
}

impl TextIndex {
    /// Indexes the pieces with these ids.
    pub(super) fn new(pieces: &Pieces, ids: impl Iterator<Item = u32>) -> Self {
        let size = (pieces.len().max(1) * 2).next_power_of_two();
        let mut index = Self { slots: vec![0; size], longest: 0 };
        for id in ids {
            let entry = pieces.bytes(id);
            if entry.is_empty() {
                continue;
            }
            let (at, found) = index.find(pieces, entry);
            if found.is_none()
                && let Some(slot) = index.slots.get_mut(at)
            {
                *slot = id + 1;
                index.longest = index.longest.max(entry.len());
            }
        }
        index
    }

    /// The id of the piece with these bytes.
    pub(super) fn get(&self, pieces: &Pieces, bytes: &[u8]) -> Option<u32> {
        if bytes.len() > self.longest {
            return None;
        }
        self.find(pieces, bytes).1
    }

    fn find(&self, pieces: &Pieces, bytes: &[u8]) -> (usize, Option<u32>) {
        let mask = self.slots.len() - 1;
        let mut at = hash(bytes) as usize & mask;
        loop {
            match self.slots.get(at).copied().unwrap_or(0) {
                0 => return (at, None),
                taken if pieces.bytes(taken - 1) == bytes => return (at, Some(taken - 1)),
                _ => at = (at + 1) & mask,
            }
        }
    }
}

/// Multiplies and folds eight bytes at a time; spreads short texts well, which is all that is asked of it.
fn hash(bytes: &[u8]) -> u64 {
    const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;
    let mut state = bytes.len() as u64;
    let (words, rest) = bytes.as_chunks::<8>();
    let mut last = [0_u8; 8];
    last.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
    for word in words.iter().chain(std::iter::once(&last)) {
        state = (state ^ u64::from_le_bytes(*word)).wrapping_mul(FACTOR);
        state ^= state >> 29;
    }
    state.wrapping_mul(FACTOR) >> 20
}

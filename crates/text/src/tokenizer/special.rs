//! Finds the tokens that are never cut: control and user-defined ones, spelled out in a prompt.

use super::pieces::{Pieces, TokenKind};
use super::text_index::TextIndex;

/// A token found in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub start: usize,
    pub end: usize,
    pub id: u32,
}

/// Matches the leftmost uncuttable token of a text, the longest of those that start there.
#[derive(Clone, Debug)]
pub(super) struct SpecialMatcher {
    /// Lengths of the tokens that start with each byte, longest first.
    lengths: Vec<Vec<usize>>,
    index: TextIndex,
}

impl SpecialMatcher {
    pub(super) fn new(pieces: &Pieces) -> Self {
        let uncuttable = |id: &u32| matches!(pieces.kind(*id), TokenKind::Added | TokenKind::Special);
        let mut lengths = vec![Vec::new(); 256];
        for id in (0..pieces.len() as u32).filter(uncuttable) {
            let bytes = pieces.bytes(id);
            if let Some(lengths) = bytes.first().and_then(|&first| lengths.get_mut(usize::from(first))) {
                lengths.push(bytes.len());
            }
        }
        for lengths in &mut lengths {
            lengths.sort_unstable_by(|a: &usize, b| b.cmp(a));
            lengths.dedup();
        }
        let index = TextIndex::new(pieces, (0..pieces.len() as u32).filter(uncuttable));
        Self { lengths, index }
    }

    /// The first such token at or after `from`.
    pub(super) fn find(&self, pieces: &Pieces, text: &str, from: usize) -> Option<Found> {
        let bytes = text.as_bytes();
        for (start, &first) in bytes.iter().enumerate().skip(from) {
            for &length in self.lengths.get(usize::from(first))? {
                let end = start + length;
                let Some(candidate) = bytes.get(start..end) else { continue };
                if let Some(id) = self.index.get(pieces, candidate) {
                    return Some(Found { start, end, id });
                }
            }
        }
        None
    }
}

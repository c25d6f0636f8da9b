//! SentencePiece with the vocabulary of a GGUF file: characters are merged while the merged text is a token, the
//! token with the highest score first; a character that is no token is spelled with byte tokens.
//!
//! A space is written as U+2581 in such files. Pieces are kept with plain spaces here, so that text needs no copy to
//! be looked up; a U+2581 in a text means a space, as it does for SentencePiece itself.

use std::borrow::Cow;

use super::merging::{Merge, Merger, Symbol};
use super::pieces::{Pieces, TokenKind};
use super::text_index::TextIndex;

/// How a vocabulary file writes a space.
pub(super) const SPACE_MARK: char = '\u{2581}';

/// Encoder of one vocabulary.
pub(super) struct SentencePiece {
    index: TextIndex,
    /// Score of each token, as an order: smaller is better.
    priorities: Vec<u32>,
    /// Token of each single byte.
    bytes: Vec<Option<u32>>,
    unknown: Option<u32>,
    /// A space is put before text that starts a prompt or follows an uncuttable token.
    add_space_prefix: bool,
}

impl SentencePiece {
    pub(super) fn new(pieces: &Pieces, scores: &[f32], unknown: Option<u32>, add_space_prefix: bool) -> Self {
        let mut bytes = vec![None; 256];
        for id in 0..pieces.len() as u32 {
            if let (TokenKind::Byte, [byte]) = (pieces.kind(id), pieces.bytes(id))
                && let Some(slot) = bytes.get_mut(usize::from(*byte))
            {
                *slot = Some(id);
            }
        }
        let mergeable = |id: &u32| matches!(pieces.kind(*id), TokenKind::Text | TokenKind::Added);
        let index = TextIndex::new(pieces, (0..pieces.len() as u32).filter(mergeable));
        let priorities = scores.iter().map(|&score| !ascending(score)).collect();
        Self { index, priorities, bytes, unknown, add_space_prefix }
    }

    /// Appends the tokens of a text that holds no uncuttable token and has nothing or such a token before it.
    pub(super) fn encode(&self, pieces: &Pieces, text: &str, merger: &mut Merger, ids: &mut Vec<u32>) {
        let mut text = Cow::Borrowed(text);
        if text.contains(SPACE_MARK) {
            text = Cow::Owned(text.replace(SPACE_MARK, " "));
        }
        if self.add_space_prefix {
            text = Cow::Owned(format!(" {text}"));
        }
        merger.symbols.clear();
        merger.symbols.extend(text.char_indices().map(|(start, character)| Symbol {
            id: 0,
            start: start as u32,
            len: character.len_utf8() as u32,
        }));
        let bytes = text.as_bytes();
        let slice = |start: u32, len: u32| bytes.get(start as usize..(start + len) as usize).unwrap_or(&[]);
        merger.run(|left, right| {
            let id = self.index.get(pieces, slice(left.start, left.len + right.len))?;
            Some(Merge { priority: self.priorities.get(id as usize).copied().unwrap_or(u32::MAX), id })
        });
        for symbol in merger.merged() {
            let content = slice(symbol.start, symbol.len);
            match self.index.get(pieces, content) {
                Some(id) => ids.push(id),
                None => self.spell(content, ids),
            }
        }
    }

    /// Byte tokens for a character; the unknown token when one of them is missing.
    fn spell(&self, character: &[u8], ids: &mut Vec<u32>) {
        let byte_token = |byte: &u8| self.bytes.get(usize::from(*byte)).copied().flatten();
        if let Some(spelled) = character.iter().map(byte_token).collect::<Option<Vec<u32>>>() {
            ids.extend(spelled);
        } else {
            ids.extend(self.unknown);
        }
    }
}

/// A number with the order of the score: flips the sign bit of positive values and all bits of negative ones.
fn ascending(score: f32) -> u32 {
    let bits = score.to_bits();
    if bits >> 31 == 0 { bits | 0x8000_0000 } else { !bits }
}

#[cfg(test)]
mod tests {
    use super::ascending;

    #[test]
    fn scores_keep_their_order() {
        let scores = [f32::NEG_INFINITY, -1000.0, -2.5, -0.0, 0.0, 1e-9, 3.0, f32::INFINITY];
        assert!(scores.windows(2).all(|pair| ascending(pair[0]) <= ascending(pair[1])));
        assert!(ascending(-3.0) < ascending(-2.0));
    }
}

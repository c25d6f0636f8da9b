//! Byte-level byte pair encoding with the merges of a GGUF file.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use tokenizers::normalizers::unicode::NFC;
use tokenizers::{NormalizedString, Normalizer};

use super::alphabet::push_bytes;
use super::merging::{Merge, Merger, Symbol};
use super::pieces::{Pieces, TokenKind};
use super::pre_tokenizer::{PreTokenizer, Rules};
use super::text_index::TextIndex;
use crate::error::TextError;

/// Encoder of one vocabulary.
pub(super) struct BytePair {
    rules: Rules,
    pre_tokenizer: PreTokenizer,
    index: TextIndex,
    /// Token of each single byte.
    bytes: Vec<Option<u32>>,
    merges: HashMap<u64, Merge, BuildHasherDefault<PairHasher>>,
    unknown: Option<u32>,
}

impl BytePair {
    /// `pieces` hold the decoded bytes of each token. A merge whose parts or result are no tokens can never apply and
    /// is left out; `notes` hears of it.
    pub(super) fn new(
        pieces: &Pieces,
        merges: &[String],
        rules: Rules,
        unknown: Option<u32>,
        notes: &mut Vec<String>,
    ) -> Result<Self, TextError> {
        let text_tokens = (0..pieces.len() as u32).filter(|&id| pieces.kind(id) == TokenKind::Text);
        let index = TextIndex::new(pieces, text_tokens);
        let mut table = HashMap::with_capacity_and_hasher(merges.len(), BuildHasherDefault::default());
        let mut joined = Vec::new();
        for (rank, merge) in merges.iter().enumerate() {
            // A part may be a space only in files with broken alphabets; the separator is never the first byte.
            let at = merge.bytes().skip(1).position(|byte| byte == b' ').map(|at| at + 1);
            let Some((left, right)) = at.and_then(|at| Some((merge.get(..at)?, merge.get(at + 1..)?))) else {
                return Err(TextError::Vocabulary {
                    reason: format!("merge {rank} is not a pair: {merge:?}"),
                });
            };
            joined.clear();
            push_bytes(left, &mut joined);
            let left = (joined.len(), index.get(pieces, &joined));
            push_bytes(right, &mut joined);
            let right = index.get(pieces, joined.get(left.0..).unwrap_or(&[]));
            if let (Some(left), Some(right), Some(id)) = (left.1, right, index.get(pieces, &joined)) {
                table.entry(pair(left, right)).or_insert(Merge { priority: rank as u32, id });
            }
        }
        if table.len() < merges.len() {
            notes.push(format!("{} of {} merges name no token", merges.len() - table.len(), merges.len()));
        }
        let bytes: Vec<_> = (0..=255).map(|byte| index.get(pieces, &[byte])).collect();
        let missing = |byte: &u8| bytes.get(usize::from(*byte)).copied().flatten().is_none();
        if (b' '..=b'~').any(|byte| missing(&byte)) {
            notes.push("some printable characters have no token; text with them loses them".to_owned());
        }
        Ok(Self { rules, pre_tokenizer: PreTokenizer::new(&rules)?, index, bytes, merges: table, unknown })
    }

    /// Appends the tokens of a text that holds no uncuttable token.
    pub(super) fn encode(&self, pieces: &Pieces, text: &str, merger: &mut Merger, ids: &mut Vec<u32>) {
        if self.rules.composes && !text.is_ascii() {
            let mut composed = NormalizedString::from(text);
            if NFC.normalize(&mut composed).is_ok() {
                self.encode_parts(pieces, composed.get(), merger, ids);
                return;
            }
        }
        self.encode_parts(pieces, text, merger, ids);
    }

    fn encode_parts(&self, pieces: &Pieces, text: &str, merger: &mut Merger, ids: &mut Vec<u32>) {
        for part in self.pre_tokenizer.split(text) {
            let part = text.as_bytes().get(part).unwrap_or(&[]);
            if self.rules.whole_parts_first
                && let Some(id) = self.index.get(pieces, part)
            {
                ids.push(id);
                continue;
            }
            merger.symbols.clear();
            for &byte in part {
                let id = self.bytes.get(usize::from(byte)).copied().flatten().or(self.unknown);
                let start = merger.symbols.len() as u32;
                merger.symbols.extend(id.map(|id| Symbol { id, start, len: 1 }));
            }
            merger.run(|left, right| self.merges.get(&pair(left.id, right.id)).copied());
            ids.extend(merger.merged().map(|symbol| symbol.id));
        }
    }
}

fn pair(left: u32, right: u32) -> u64 {
    (u64::from(left) << 32) | u64::from(right)
}

/// Spreads pairs of ids over the table. Ids come from the checkpoint, which has no reason to attack itself.
#[derive(Default)]
struct PairHasher(u64);

impl Hasher for PairHasher {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u64(&mut self, value: u64) {
        let mixed = (self.0 ^ value).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 = mixed ^ (mixed >> 32);
    }

    fn finish(&self) -> u64 {
        self.0.wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }
}

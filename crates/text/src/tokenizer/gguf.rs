//! A tokenizer from GGUF metadata: cuts out control and user-defined tokens, hands the text between them to the
//! algorithm of the vocabulary's kind, and adds beginning and end of sequence on request.

use std::sync::Arc;

use super::alphabet::push_bytes;
use super::byte_pair::BytePair;
use super::merging::Merger;
use super::pieces::{Pieces, Table, TokenKind};
use super::pre_tokenizer::Rules;
use super::sentence_piece::{SPACE_MARK, SentencePiece};
use super::special::SpecialMatcher;
use super::text_index::TextIndex;
use crate::error::TextError;
use crate::source::GgufVocabulary;

/// Encoder of a GGUF vocabulary.
pub(super) struct GgufEncoder {
    pieces: Arc<Pieces>,
    all: TextIndex,
    special: SpecialMatcher,
    algorithm: Algorithm,
    bos: Option<u32>,
    eos: Option<u32>,
}

enum Algorithm {
    BytePair(BytePair),
    SentencePiece(SentencePiece),
}

impl GgufEncoder {
    /// Encoder, decoding table, and what an operator should know.
    pub(super) fn new(vocabulary: &GgufVocabulary) -> Result<(Self, Arc<Pieces>, Vec<String>), TextError> {
        check(vocabulary)?;
        let mut notes = Vec::new();
        let unknown = vocabulary.unknown;
        let is_sentence_piece = vocabulary.model == "llama";
        let prefix = vocabulary.add_space_prefix.unwrap_or(true) && is_sentence_piece;
        let lead = prefix.then_some((' ', 1));
        let pieces = Arc::new(compile(vocabulary, is_sentence_piece).with_lead(lead));
        let (algorithm, adds_bos) = if is_sentence_piece {
            let encoder = SentencePiece::new(&pieces, &vocabulary.scores, unknown, prefix);
            (Algorithm::SentencePiece(encoder), true)
        } else {
            let name = vocabulary.pre.as_deref().unwrap_or("default");
            let rules = Rules::of(name).unwrap_or_else(|| {
                let note = "text is cut as for gpt-2, which may cost quality";
                notes.push(format!("unknown pre-tokenizer {name:?}: {note}"));
                Rules::GPT_2
            });
            let encoder = BytePair::new(&pieces, &vocabulary.merges, rules, unknown, &mut notes)?;
            (Algorithm::BytePair(encoder), rules.adds_bos)
        };
        let bos = vocabulary.bos.filter(|_| vocabulary.add_bos.unwrap_or(adds_bos));
        let eos = vocabulary.eos.filter(|_| vocabulary.add_eos.unwrap_or(false));
        let special = SpecialMatcher::new(&pieces);
        let all = TextIndex::new(&pieces, 0..pieces.len() as u32);
        Ok((Self { pieces: pieces.clone(), all, special, algorithm, bos, eos }, pieces, notes))
    }

    pub(super) fn encode(&self, text: &str, add_special: bool) -> Vec<u32> {
        let mut ids = Vec::with_capacity(text.len() / 3 + 2);
        let mut merger = Merger::default();
        ids.extend(self.bos.filter(|_| add_special));
        let mut rest = 0;
        while let Some(found) = self.special.find(&self.pieces, text, rest) {
            self.encode_between(text.get(rest..found.start), &mut merger, &mut ids);
            ids.push(found.id);
            rest = found.end;
        }
        self.encode_between(text.get(rest..), &mut merger, &mut ids);
        ids.extend(self.eos.filter(|_| add_special));
        ids
    }

    /// The id of the token with this text (a space is a space, whatever the file writes for it).
    pub(super) fn token_id(&self, text: &str) -> Option<u32> {
        self.all.get(&self.pieces, text.as_bytes())
    }

    /// Text before the first uncuttable token, between two, or after the last.
    fn encode_between(&self, text: Option<&str>, merger: &mut Merger, ids: &mut Vec<u32>) {
        let Some(text) = text.filter(|text| !text.is_empty()) else { return };
        match &self.algorithm {
            Algorithm::BytePair(encoder) => encoder.encode(&self.pieces, text, merger, ids),
            Algorithm::SentencePiece(encoder) => encoder.encode(&self.pieces, text, merger, ids),
        }
    }
}

fn check(vocabulary: &GgufVocabulary) -> Result<(), TextError> {
    let tokens = vocabulary.tokens.len();
    let unsound = |reason: String| Err(TextError::Vocabulary { reason });
    match vocabulary.model.as_str() {
        "gpt2" => {}
        "llama" if vocabulary.scores.len() == tokens => {}
        "llama" => return unsound(format!("{} scores for {tokens} tokens", vocabulary.scores.len())),
        other => {
            let feature = format!("tokenizer.ggml.model {other:?} (known: gpt2, llama)");
            return Err(TextError::Unsupported { feature });
        }
    }
    if tokens == 0 {
        return unsound("it has no tokens".to_owned());
    }
    if !vocabulary.types.is_empty() && vocabulary.types.len() != tokens {
        return unsound(format!("{} token types for {tokens} tokens", vocabulary.types.len()));
    }
    let named = [("bos", vocabulary.bos), ("eos", vocabulary.eos), ("unknown", vocabulary.unknown)];
    for (name, id) in named {
        if let Some(id) = id.filter(|&id| id as usize >= tokens) {
            return unsound(format!("{name}_token_id {id} is not below the number of tokens, {tokens}"));
        }
    }
    Ok(())
}

/// Compiles each token to the bytes it stands for.
fn compile(vocabulary: &GgufVocabulary, is_sentence_piece: bool) -> Pieces {
    let mut table = Table::with_capacity(vocabulary.tokens.len());
    let mut kinds = Vec::with_capacity(vocabulary.tokens.len());
    let mut bytes = Vec::new();
    for (id, token) in vocabulary.tokens.iter().enumerate() {
        let kind = kind_of(vocabulary.types.get(id).copied().unwrap_or(1), token);
        bytes.clear();
        match (kind, spelled_byte(token)) {
            (TokenKind::Byte, Some(byte)) => bytes.push(byte),
            (TokenKind::Text | TokenKind::Added, _) if is_sentence_piece => {
                for (at, part) in token.split(SPACE_MARK).enumerate() {
                    bytes.extend((at > 0).then_some(b' '));
                    bytes.extend_from_slice(part.as_bytes());
                }
            }
            (TokenKind::Text, _) => push_bytes(token, &mut bytes),
            _ => bytes.extend_from_slice(token.as_bytes()),
        }
        table.push(&bytes);
        kinds.push(kind);
    }
    Pieces::new(table, kinds)
}

fn kind_of(token_type: i32, token: &str) -> TokenKind {
    match token_type {
        2 | 3 => TokenKind::Special,
        4 => TokenKind::Added,
        6 if spelled_byte(token).is_some() => TokenKind::Byte,
        _ => TokenKind::Text,
    }
}

/// The byte that a token of the form `<0xE4>` spells.
pub(super) fn spelled_byte(token: &str) -> Option<u8> {
    let digits = token.strip_prefix("<0x")?.strip_suffix('>')?;
    if digits.len() == 2 { u8::from_str_radix(digits, 16).ok() } else { None }
}

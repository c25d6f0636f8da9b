//! A model's tokenizer: text to ids by one of three encoders, ids to bytes by one table.
//!
//! Decoding never goes back to the encoder: whatever the source, each id is compiled to the bytes it stands for
//! ([`pieces::Pieces`]), so that a token costs the same to decode however long the text before it is.

mod alphabet;
mod byte_pair;
mod gguf;
mod hugging_face;
mod merging;
mod pieces;
mod pre_tokenizer;
mod sentence_piece;
mod special;
mod text_index;

use std::sync::Arc;

pub(crate) use pieces::{Pieces, TokenKind};

use crate::error::TextError;
use crate::source::TokenizerSource;
use gguf::GgufEncoder;
use hugging_face::HuggingFace;

/// Encoder and decoding table of one vocabulary.
pub(crate) struct Tokenizer {
    encoder: Encoder,
    pieces: Arc<Pieces>,
    notes: Vec<String>,
}

enum Encoder {
    HuggingFace(Box<HuggingFace>),
    Gguf(Box<GgufEncoder>),
}

impl Tokenizer {
    pub(crate) fn new(source: &TokenizerSource) -> Result<Self, TextError> {
        match source {
            TokenizerSource::HuggingFace { path } => {
                let (encoder, pieces) = HuggingFace::load(path)?;
                let encoder = Encoder::HuggingFace(Box::new(encoder));
                Ok(Self { encoder, pieces: Arc::new(pieces), notes: Vec::new() })
            }
            TokenizerSource::Vocabulary(vocabulary) => {
                let (encoder, pieces, notes) = GgufEncoder::new(vocabulary)?;
                Ok(Self { encoder: Encoder::Gguf(Box::new(encoder)), pieces, notes })
            }
        }
    }

    pub(crate) fn encode(&self, text: &str, add_special: bool) -> Result<Vec<u32>, TextError> {
        match &self.encoder {
            Encoder::HuggingFace(tokenizer) => tokenizer.encode(text, add_special),
            Encoder::Gguf(encoder) => Ok(encoder.encode(text, add_special)),
        }
    }

    /// The id of a token by its text, as the tokenizer's file spells it.
    pub(crate) fn token_id(&self, text: &str) -> Option<u32> {
        match &self.encoder {
            Encoder::HuggingFace(tokenizer) => tokenizer.token_id(text),
            Encoder::Gguf(encoder) => encoder.token_id(text),
        }
    }

    pub(crate) fn pieces(&self) -> &Arc<Pieces> {
        &self.pieces
    }

    /// What an operator should know about how the vocabulary was read.
    pub(crate) fn notes(&self) -> &[String] {
        &self.notes
    }
}

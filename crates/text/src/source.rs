//! What a checkpoint has to say about text, in terms of this crate.

use std::path::PathBuf;

/// Everything needed to make a [`crate::TextModel`].
#[derive(Clone, Debug)]
pub struct TextSource {
    /// Where the tokenizer comes from.
    pub tokenizer: TokenizerSource,
    /// The chat template, in Jinja.
    pub chat_template: Option<String>,
    /// Text of the beginning-of-sequence token, a variable of the template.
    pub bos_token: Option<String>,
    /// Text of the end-of-sequence token, a variable of the template.
    pub eos_token: Option<String>,
}

/// Where a tokenizer comes from.
#[derive(Clone, Debug)]
pub enum TokenizerSource {
    /// A `tokenizer.json` of the Hugging Face layout.
    HuggingFace {
        /// The file.
        path: PathBuf,
    },
    /// The vocabulary in the metadata of a GGUF file.
    Vocabulary(GgufVocabulary),
}

/// A vocabulary as GGUF metadata describes it; field names follow the keys `tokenizer.ggml.*`.
#[derive(Clone, Debug, Default)]
pub struct GgufVocabulary {
    /// `model`: `gpt2` (byte-level byte pair encoding, merges by rank) or `llama` (SentencePiece: merges by the score
    /// of the merged piece, byte tokens for what is left). Others are refused.
    pub model: String,
    /// `tokens`: text of each id, as it stands in the file.
    pub tokens: Vec<String>,
    /// `scores`: one for each token of a SentencePiece vocabulary.
    pub scores: Vec<f32>,
    /// `token_type`: 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte. Empty: all normal.
    pub types: Vec<i32>,
    /// `merges`: "left right", best first, of a byte pair vocabulary.
    pub merges: Vec<String>,
    /// `pre`: name of the way text is cut before merging.
    pub pre: Option<String>,
    /// `bos_token_id`.
    pub bos: Option<u32>,
    /// `eos_token_id`.
    pub eos: Option<u32>,
    /// `unknown_token_id`.
    pub unknown: Option<u32>,
    /// `add_bos_token`; when absent, the kind and `pre` decide.
    pub add_bos: Option<bool>,
    /// `add_eos_token`; absent means no.
    pub add_eos: Option<bool>,
    /// `add_space_prefix`; when absent, yes for SentencePiece.
    pub add_space_prefix: Option<bool>,
}

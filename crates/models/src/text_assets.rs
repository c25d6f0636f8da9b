//! What a checkpoint holds for the text side: tokenizer, chat template, special tokens, sampling defaults.
//!
//! Nothing here tokenises or renders. A folder's tokenizer stays a path; that of a GGUF file is handed out as the
//! lists that the metadata has.

pub(crate) mod gguf;
pub(crate) mod hf;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

/// Everything the text side needs of a checkpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct TextAssets {
    /// Where tokens come from.
    pub tokenizer: TokenizerAsset,
    /// Jinja text of the (default) chat template.
    pub chat_template: Option<String>,
    /// Text of the token that begins a sequence, a variable of the template.
    pub bos_token: Option<String>,
    /// Text of the token that ends a sequence, a variable of the template.
    pub eos_token: Option<String>,
    /// Tokens that end a generation, ascending; all within the vocabulary.
    pub eos_token_ids: Vec<u32>,
    /// What to use when a request is silent.
    pub generation: GenerationDefaults,
}

/// Where tokens come from.
#[derive(Clone, Debug, PartialEq)]
pub enum TokenizerAsset {
    /// A `tokenizer.json` file.
    HfJson(PathBuf),
    /// Lists from GGUF metadata.
    Gguf(GgufTokenizer),
}

/// The tokenizer in GGUF metadata (`tokenizer.ggml.*`).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GgufTokenizer {
    /// Kind of model: `gpt2` (byte-level BPE), `llama` (`SentencePiece`), or another.
    pub model: String,
    /// Name of the rule that splits text before BPE.
    pub pre: Option<String>,
    /// Text of every token, by id.
    pub tokens: Vec<String>,
    /// Score of every token; empty for BPE.
    pub scores: Vec<f32>,
    /// Type of every token (1 normal, 2 unknown, 3 control, 4 user defined, 5 unused, 6 byte); may be empty.
    pub types: Vec<i32>,
    /// BPE merges, best first, as two texts with a space between.
    pub merges: Vec<String>,
    /// Token that begins a sequence.
    pub bos: Option<u32>,
    /// Token that ends a sequence.
    pub eos: Option<u32>,
    /// Token for what cannot be written otherwise.
    pub unknown: Option<u32>,
    /// Token that fills batches.
    pub padding: Option<u32>,
    /// Whether encoding puts `bos` in front; absent where the file is silent.
    pub add_bos: Option<bool>,
    /// Whether encoding puts `eos` behind.
    pub add_eos: Option<bool>,
    /// Whether `SentencePiece` puts a space in front of the text.
    pub add_space_prefix: Option<bool>,
}

/// Sampling defaults of a checkpoint (`generation_config.json`); absent where it is silent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GenerationDefaults {
    /// Divides the logits.
    pub temperature: Option<f32>,
    /// Nucleus size.
    pub top_p: Option<f32>,
    /// Number of likeliest tokens kept.
    pub top_k: Option<u32>,
    /// Least probability relative to the likeliest.
    pub min_p: Option<f32>,
    /// Penalty of tokens that occurred; 1 is off.
    pub repetition_penalty: Option<f32>,
    /// Output tokens at most.
    pub max_tokens: Option<u32>,
}

/// Sorts ids, drops repetitions and those that the vocabulary does not have (which can never be drawn).
fn tidy_ids(mut ids: Vec<u32>, vocab: u32) -> Vec<u32> {
    ids.retain(|&id| id < vocab);
    ids.sort_unstable();
    ids.dedup();
    ids
}

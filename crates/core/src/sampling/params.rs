//! Sampling parameters of one sequence, already validated and in terms of token ids.
//!
//! Text never appears here: stop strings belong to the detokenising side, bad words arrive as token ids.

use serde::{Deserialize, Serialize};

use crate::ids::TokenId;

/// A set of token ids, sorted and without repetition.
pub type TokenSet = Vec<TokenId>;

/// How to choose the next token of a sequence.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SamplingParams {
    /// Divides the logits; below 1e-5 the likeliest token is taken (greedy).
    pub temperature: f32,
    /// Keep the smallest set of tokens whose probabilities add up to this; 1 keeps all.
    pub top_p: f32,
    /// Keep this many of the likeliest tokens; 0 keeps all.
    pub top_k: u32,
    /// Drop tokens less likely than this times the likeliest; 0 keeps all.
    pub min_p: f32,
    /// Divides positive and multiplies negative logits of tokens in prompt or output; 1 is off.
    pub repetition_penalty: f32,
    /// Subtracted for each occurrence of a token in the output.
    pub frequency_penalty: f32,
    /// Subtracted once for a token that occurs in the output.
    pub presence_penalty: f32,
    /// Added to the logits of these tokens.
    pub logit_bias: Vec<(TokenId, f32)>,
    /// When present, only these can be drawn. Never empty.
    pub allowed_token_ids: Option<TokenSet>,
    /// Token sequences that must not be completed; only the last token of each is ruled out, and only when
    /// the ones before it were produced last.
    pub bad_words: Vec<Vec<TokenId>>,
    /// End-of-sequence ids of the model. They end the sequence unless `ignore_eos`.
    pub eos_token_ids: TokenSet,
    /// Tokens that end the sequence by the request's wish.
    pub stop_token_ids: TokenSet,
    /// End-of-sequence ids are tokens like others.
    pub ignore_eos: bool,
    /// No end-of-sequence or stop token before this many output tokens.
    pub min_tokens: u32,
    /// Output tokens at most; at least 1.
    pub max_tokens: u32,
    /// Key of the generator.
    pub seed: u64,
    /// Log-probabilities of the sampled token and of this many likeliest ones, when present.
    pub logprobs: Option<u32>,
    /// The same for every prompt position but the first.
    pub prompt_logprobs: Option<u32>,
}

impl Default for SamplingParams {
    fn default() -> Self {
        Self {
            temperature: 1.0,
            top_p: 1.0,
            top_k: 0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
            logit_bias: Vec::new(),
            allowed_token_ids: None,
            bad_words: Vec::new(),
            eos_token_ids: Vec::new(),
            stop_token_ids: Vec::new(),
            ignore_eos: false,
            min_tokens: 0,
            max_tokens: 16,
            seed: 0,
            logprobs: None,
            prompt_logprobs: None,
        }
    }
}

impl SamplingParams {
    /// Temperature below this means greedy.
    pub const GREEDY_BELOW: f32 = 1e-5;

    /// Whether the likeliest token is always taken.
    #[must_use]
    pub fn is_greedy(&self) -> bool {
        self.temperature < Self::GREEDY_BELOW
    }

    /// Whether this token ends the sequence: a stop token of the request, or an end-of-sequence id that is
    /// not ignored.
    #[must_use]
    pub fn ends_with(&self, token: TokenId) -> bool {
        self.stop_token_ids.contains(&token) || (!self.ignore_eos && self.eos_token_ids.contains(&token))
    }
}

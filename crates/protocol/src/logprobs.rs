//! Log-probabilities as the three places that report them spell them. Every number is finite.

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What stands for minus infinity, which JSON cannot say.
pub const LOGPROB_MIN: f32 = -9999.0;

/// A log-probability that JSON can carry.
#[must_use]
pub fn finite(logprob: f32) -> f32 {
    if logprob.is_nan() { LOGPROB_MIN } else { logprob.clamp(LOGPROB_MIN, 0.0) }
}

/// Log-probabilities of a chat answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ChatLogprobs {
    /// One entry a token.
    pub content: Vec<ChatTokenLogprob>,
}

/// Log-probability of one token of a chat answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ChatTokenLogprob {
    /// The token's text.
    pub token: String,
    /// Natural logarithm of its probability.
    pub logprob: f32,
    /// The token's bytes; a token can be part of a character.
    pub bytes: Option<Vec<u8>>,
    /// The likeliest tokens at this place, descending.
    pub top_logprobs: Vec<TopLogprob>,
}

/// One likely token.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TopLogprob {
    /// The token's text.
    pub token: String,
    /// Natural logarithm of its probability.
    pub logprob: f32,
    /// The token's bytes.
    pub bytes: Option<Vec<u8>>,
}

/// Log-probabilities of a completion: lists with one entry a token.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct CompletionLogprobs {
    /// Characters before each token.
    pub text_offset: Vec<u32>,
    /// None for the first token of an echoed prompt: nothing predicts it.
    pub token_logprobs: Vec<Option<f32>>,
    /// Token texts.
    pub tokens: Vec<String>,
    /// Token texts with log-probabilities: the likeliest ones and the one that stands there.
    #[schema(value_type = Vec<Option<Object>>)]
    pub top_logprobs: Vec<Option<IndexMap<String, f32>>>,
}

/// Log-probabilities at one position of a prompt, by token id.
pub type PromptPosition = IndexMap<String, PromptLogprob>;

/// Log-probability of one token at a position of the prompt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PromptLogprob {
    /// Natural logarithm of its probability.
    pub logprob: f32,
    /// 1 for the likeliest.
    pub rank: u32,
    /// The token's text.
    pub decoded_token: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_number_is_infinite_or_none() {
        assert_eq!(finite(f32::NEG_INFINITY).to_bits(), LOGPROB_MIN.to_bits());
        assert_eq!(finite(f32::NAN).to_bits(), LOGPROB_MIN.to_bits());
        assert!((finite(-1.5) + 1.5).abs() < f32::EPSILON);
        assert!(finite(1e-7).abs() < f32::EPSILON);
    }
}

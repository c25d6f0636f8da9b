//! How an answer ended and what it cost.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Why an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    /// At the model's wish, a stop string or a stop token.
    Stop,
    /// `max_tokens` or the context length was reached.
    Length,
}

/// What exactly ended an answer that was stopped by the request's wish.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum StopReason {
    /// A token of `stop_token_ids`.
    Token(u32),
    /// A string of `stop`.
    Text(String),
}

/// Token counts of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Usage {
    /// Tokens of all prompts, each counted once.
    pub prompt_tokens: u32,
    /// Prompt and answers together.
    pub total_tokens: u32,
    /// Tokens of all answers.
    pub completion_tokens: u32,
    /// What was special about the prompt's tokens.
    pub prompt_tokens_details: PromptTokensDetails,
}

/// What was special about a prompt's tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PromptTokensDetails {
    /// Tokens found in the prefix cache, so not computed again.
    pub cached_tokens: u32,
}

impl Usage {
    /// Counts with their sum.
    #[must_use]
    pub fn new(prompt_tokens: u32, completion_tokens: u32, cached_tokens: u32) -> Self {
        Self {
            prompt_tokens,
            total_tokens: prompt_tokens.saturating_add(completion_tokens),
            completion_tokens,
            prompt_tokens_details: PromptTokensDetails { cached_tokens },
        }
    }
}

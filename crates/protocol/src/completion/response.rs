//! Answers to completion requests, whole and in chunks.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::logprobs::{CompletionLogprobs, PromptPosition};
use crate::usage::{FinishReason, StopReason, Usage};

/// A whole answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct CompletionResponse {
    /// `cmpl-` and the request's id.
    #[schema(value_type = String)]
    pub id: Arc<str>,
    /// `text_completion`.
    pub object: String,
    /// Unix time of the request.
    pub created: u64,
    /// The model that answered.
    #[schema(value_type = String)]
    pub model: Arc<str>,
    /// The answers; answer `i` of prompt `p` has index `p * n + i`.
    pub choices: Vec<CompletionChoice>,
    /// Always null: there are no tiers.
    pub service_tier: Option<String>,
    /// Names the program that answered.
    #[schema(value_type = Option<String>)]
    pub system_fingerprint: Option<Arc<str>>,
    /// Token counts.
    pub usage: Usage,
}

/// One answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct CompletionChoice {
    /// Its place, from 0.
    pub index: u32,
    /// The text.
    pub text: String,
    /// Log-probabilities.
    pub logprobs: Option<CompletionLogprobs>,
    /// Why it ended.
    pub finish_reason: Option<FinishReason>,
    /// What exactly stopped it.
    pub stop_reason: Option<StopReason>,
    /// The answer in tokens.
    pub token_ids: Option<Vec<u32>>,
    /// Log-probabilities of the prompt, null for its first token.
    #[schema(value_type = Option<Vec<Option<Object>>>)]
    pub prompt_logprobs: Option<Vec<Option<PromptPosition>>>,
    /// The prompt in tokens.
    pub prompt_token_ids: Option<Vec<u32>>,
    /// The prompt as the model saw it.
    pub prompt_text: Option<String>,
}

/// A piece of an answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct CompletionChunk {
    /// The same in every chunk of an answer.
    #[schema(value_type = String)]
    pub id: Arc<str>,
    /// `text_completion`.
    pub object: String,
    /// The same in every chunk of an answer.
    pub created: u64,
    /// The model that answers.
    #[schema(value_type = String)]
    pub model: Arc<str>,
    /// One piece; none in the chunk that carries the usage.
    pub choices: Vec<CompletionChunkChoice>,
    /// Names the program that answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub system_fingerprint: Option<Arc<str>>,
    /// Token counts, when asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
}

/// A piece of one answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct CompletionChunkChoice {
    /// Which answer it belongs to.
    pub index: u32,
    /// New text.
    pub text: String,
    /// Log-probabilities of the new tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logprobs: Option<CompletionLogprobs>,
    /// Why the answer ended; null until its last chunk.
    pub finish_reason: Option<FinishReason>,
    /// What exactly stopped it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<StopReason>,
    /// The new tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_ids: Option<Vec<u32>>,
    /// The prompt in tokens; first chunk of an answer only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_token_ids: Option<Vec<u32>>,
    /// The prompt as the model saw it; first chunk of an answer only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_text: Option<String>,
}

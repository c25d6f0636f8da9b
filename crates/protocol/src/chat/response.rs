//! Answers to chat requests, whole and in chunks.
//!
//! A whole answer spells out what is absent as `null`; a chunk leaves it out, except `finish_reason`.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::logprobs::{ChatLogprobs, PromptPosition};
use crate::usage::{FinishReason, StopReason, Usage};

/// A whole answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ChatResponse {
    /// `chatcmpl-` and the request's id.
    #[schema(value_type = String)]
    pub id: Arc<str>,
    /// `chat.completion`.
    pub object: String,
    /// Unix time of the request.
    pub created: u64,
    /// The model that answered.
    #[schema(value_type = String)]
    pub model: Arc<str>,
    /// The answers.
    pub choices: Vec<ChatChoice>,
    /// Always null: there are no tiers.
    pub service_tier: Option<String>,
    /// Names the program that answered.
    #[schema(value_type = Option<String>)]
    pub system_fingerprint: Option<Arc<str>>,
    /// Token counts.
    pub usage: Usage,
    /// Log-probabilities of the prompt, null for its first token.
    #[schema(value_type = Option<Vec<Option<Object>>>)]
    pub prompt_logprobs: Option<Vec<Option<PromptPosition>>>,
    /// The prompt in tokens.
    pub prompt_token_ids: Option<Vec<u32>>,
    /// The prompt as the model saw it.
    pub prompt_text: Option<String>,
}

/// One answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ChatChoice {
    /// Its place, from 0.
    pub index: u32,
    /// What the model said.
    pub message: ChatMessage,
    /// Log-probabilities.
    pub logprobs: Option<ChatLogprobs>,
    /// Why it ended.
    pub finish_reason: Option<FinishReason>,
    /// What exactly stopped it.
    pub stop_reason: Option<StopReason>,
    /// The answer in tokens.
    pub token_ids: Option<Vec<u32>>,
}

/// What the model said.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ChatMessage {
    /// `assistant`.
    pub role: String,
    /// The text.
    pub content: Option<String>,
    /// Always null.
    pub refusal: Option<String>,
    /// Always null.
    #[schema(value_type = Option<Object>)]
    pub annotations: Option<serde_json::Value>,
    /// Always null.
    #[schema(value_type = Option<Object>)]
    pub audio: Option<serde_json::Value>,
    /// Always null.
    #[schema(value_type = Option<Object>)]
    pub function_call: Option<serde_json::Value>,
    /// Always null.
    pub reasoning: Option<String>,
}

/// A piece of an answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ChatChunk {
    /// The same in every chunk of an answer.
    #[schema(value_type = String)]
    pub id: Arc<str>,
    /// `chat.completion.chunk`.
    pub object: String,
    /// The same in every chunk of an answer.
    pub created: u64,
    /// The model that answers.
    #[schema(value_type = String)]
    pub model: Arc<str>,
    /// One piece; none in the chunk that carries the usage.
    pub choices: Vec<ChatChunkChoice>,
    /// Names the program that answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub system_fingerprint: Option<Arc<str>>,
    /// Token counts, when asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// The prompt in tokens; first chunk only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_token_ids: Option<Vec<u32>>,
    /// The prompt as the model saw it; first chunk only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_text: Option<String>,
}

/// A piece of one answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ChatChunkChoice {
    /// Which answer it belongs to.
    pub index: u32,
    /// What is new.
    pub delta: ChatDelta,
    /// Log-probabilities of the new tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logprobs: Option<ChatLogprobs>,
    /// Why the answer ended; null until its last chunk.
    pub finish_reason: Option<FinishReason>,
    /// What exactly stopped it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<StopReason>,
    /// The new tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_ids: Option<Vec<u32>>,
}

/// What is new in a piece.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ChatDelta {
    /// `assistant`, in the first chunk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// New text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
}

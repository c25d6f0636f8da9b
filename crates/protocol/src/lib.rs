//! The words that clients and server exchange: requests, answers, stream chunks, errors, and the page that
//! describes them.
//!
//! Promises: everything here is a plain value or a pure function. A request that passes [`ChatRequest::check`]
//! or [`CompletionRequest::check`] holds only values the engine can work with; one that does not gets a
//! [`RequestError`] that names the field, the value and what works instead. A field that would change the
//! answer is honoured or refused, never dropped in silence.
//!
//! Refuses to know: sockets, headers, tokenizers, engines.

pub mod chat;
pub mod completion;
pub mod error;
mod fields;
pub mod generation;
pub mod json;
pub mod limits;
pub mod logprobs;
pub mod models;
pub mod openapi;
pub mod routes;
pub mod sse;
pub mod tokenize;
mod unsupported;
pub mod usage;

pub use chat::{ChatCall, ChatRequest};
pub use completion::{CompletionCall, CompletionRequest, PromptInput};
pub use error::{ErrorBody, ErrorKind, RequestError};
pub use generation::GenerationSpec;
pub use limits::{RequestLimits, SamplingDefaults};
pub use usage::{FinishReason, StopReason, Usage};

/// A JSON object, its keys in the order the client sent them.
pub type JsonObject = serde_json::Map<String, serde_json::Value>;

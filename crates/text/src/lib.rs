//! Text in, tokens out, and back: tokenizers, chat templates, incremental detokenising and stop strings.
//!
//! Promises: a stream of deltas adds up to exactly what decoding all tokens at once gives, and never contains half
//! a character; a template can neither hang nor exhaust memory; every refusal is a [`TextError`] that says whose
//! fault it is. All of it is `Send + Sync` and computes on the calling thread: callers keep it off their async ones.
//!
//! Refuses to know: models, requests, HTTP, and what a token costs.

mod chat;
mod decoder;
mod error;
mod model;
mod source;
mod stop;
mod tokenizer;

pub use chat::{ChatInput, ContentFormat};
pub use decoder::{IncrementalDecoder, StreamStart};
pub use error::TextError;
pub use model::TextModel;
pub use source::{GgufVocabulary, TextSource, TokenizerSource};
pub use stop::{Emit, StopChecker};

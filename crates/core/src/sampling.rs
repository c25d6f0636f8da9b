//! From logits to a token: parameters, the pipeline that applies them, and the counter-based generator.
//!
//! The token drawn depends on (logits, parameters, prompt and output so far, seed) alone: no generator state
//! is carried, so a sequence that was preempted, restarted or batched differently draws the same tokens.
//!
//! Order of the steps: allowed ids, bad words, minimum length, bias, repetition, frequency and presence
//! penalty ([`adjust`]); temperature, min-p, top-k, top-p ([`support`]); the draw ([`pipeline`]).
//! Log-probabilities that go back to a client are those of the logits before all of this ([`logprobs`]).

mod adjust;
mod logprobs;
mod params;
mod pipeline;
mod random;
mod support;
mod vector;

pub use logprobs::token_logprobs;
pub use params::{SamplingParams, TokenSet};
pub use pipeline::{SampleError, Sampled, Sampler, Scratch};
pub use random::Philox;

//! What the model and the operator allow, and what holds when a request leaves a field out.

/// Bounds that requests are checked against.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestLimits {
    /// Tokens in the vocabulary; ids from here on do not exist.
    pub vocab: u32,
    /// Prompt and answer together, in tokens.
    pub max_model_len: u32,
    /// Likeliest tokens a position can report.
    pub max_logprobs: u32,
    /// Answers a request can ask for per prompt.
    pub max_choices: u32,
    /// Prompts of one completion request.
    pub max_prompts: u32,
    /// Answers of one request over all its prompts.
    pub max_sequences: u32,
    /// Stop strings of one request.
    pub max_stop_strings: usize,
    /// Bad words of one request.
    pub max_bad_words: usize,
}

impl RequestLimits {
    /// The usual bounds for a model of this size.
    #[must_use]
    pub fn new(vocab: u32, max_model_len: u32) -> Self {
        Self {
            vocab,
            max_model_len,
            max_logprobs: 20,
            max_choices: 128,
            max_prompts: 1024,
            max_sequences: 1024,
            max_stop_strings: 4,
            max_bad_words: 128,
        }
    }
}

/// Sampling values that hold when a request does not set its own: the server's, or the model's.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SamplingDefaults {
    /// Otherwise 1.
    pub temperature: Option<f32>,
    /// Otherwise 1.
    pub top_p: Option<f32>,
    /// Otherwise 0 (off).
    pub top_k: Option<u32>,
    /// Otherwise 0 (off).
    pub min_p: Option<f32>,
    /// Otherwise 1 (off).
    pub repetition_penalty: Option<f32>,
    /// Bounds the answer even when a request asks for more. Otherwise only the context length does.
    pub max_tokens: Option<u32>,
}

impl SamplingDefaults {
    /// These values where they are set, those of `other` elsewhere.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            temperature: self.temperature.or(other.temperature),
            top_p: self.top_p.or(other.top_p),
            top_k: self.top_k.or(other.top_k),
            min_p: self.min_p.or(other.min_p),
            repetition_penalty: self.repetition_penalty.or(other.repetition_penalty),
            max_tokens: self.max_tokens.or(other.max_tokens),
        }
    }
}

//! The fields that chat and completions share: how to sample, when to stop, what to report.
//!
//! [`SamplingFields`] is what a client may send, [`GenerationSpec`] what is left once everything is known to
//! be usable: ranges hold, ids exist, defaults are filled in.

pub(crate) mod check;
#[cfg(test)]
mod tests;

use serde_json::Value;

use crate::JsonObject;
use crate::error::RequestError;
use crate::fields::request_fields;
use crate::limits::{RequestLimits, SamplingDefaults};

request_fields! {
    /// Fields that every generating request accepts.
    SamplingFields {
        /// Name of the model; the served one when left out.
        model: String,
        /// Answers wanted; more than one needs a temperature above 0.
        n: i64,
        /// Tokens of the answer at most.
        max_tokens: i64,
        /// 0 takes the likeliest token; up to 2.
        temperature: f64,
        /// Keeps the likeliest tokens that add up to this probability; above 0, up to 1.
        top_p: f64,
        /// Keeps this many of the likeliest tokens; 0 or -1 keeps all.
        top_k: i64,
        /// Drops tokens less likely than this times the likeliest; 0 to 1.
        min_p: f64,
        /// Subtracted for each occurrence in the answer; -2 to 2.
        frequency_penalty: f64,
        /// Subtracted once for a token that occurs in the answer; -2 to 2.
        presence_penalty: f64,
        /// Divides the scores of tokens seen in prompt or answer; above 0, 1 is off.
        repetition_penalty: f64,
        /// The same seed and request give the same answer; -1 is no seed.
        seed: i64,
        /// One string or a list of them; the answer ends before the first that occurs.
        #[schema(value_type = Option<Vec<String>>)]
        stop: Value,
        /// Token ids that end the answer.
        stop_token_ids: Vec<i64>,
        /// Whether the stop string or stop token stays in the text.
        include_stop_str_in_output: bool,
        /// Goes on past the model's end-of-sequence tokens.
        ignore_eos: bool,
        /// No end of any kind before this many tokens.
        min_tokens: i64,
        /// Token id to score offset, -100 to 100.
        #[schema(value_type = Option<Object>)]
        logit_bias: JsonObject,
        /// Only these token ids can occur.
        allowed_token_ids: Vec<i64>,
        /// Words that must not occur.
        bad_words: Vec<String>,
        /// Leaves special tokens out of the text (the default).
        skip_special_tokens: bool,
        /// Keeps this many tokens of the prompt; -1 keeps what the context holds.
        truncate_prompt_tokens: i64,
        /// Which end of the prompt is cut: `left` (the default) or `right`.
        truncation_side: String,
        /// Reports log-probabilities of prompt tokens with this many alternatives; not with `stream`.
        prompt_logprobs: i64,
        /// Adds token ids to the answer.
        return_token_ids: bool,
        /// Writes tokens as `token_id:N` in log-probabilities.
        return_tokens_as_token_ids: bool,
        /// Adds the prompt as the model saw it to the answer.
        return_prompt_text: bool,
        /// Keeps the prefix cache apart from requests with another salt.
        cache_salt: String,
        /// Lower runs first, where the server schedules by priority.
        priority: i64,
        /// Becomes part of the answer's id.
        request_id: String,
        /// Sends the answer as it grows.
        stream: bool,
        /// `include_usage` adds a last chunk with token counts, `continuous_usage_stats` counts in every chunk.
        #[schema(value_type = Option<Object>)]
        stream_options: JsonObject,
    }
}

/// A request's wishes about its answer, checked and complete.
#[derive(Clone, Debug, PartialEq)]
pub struct GenerationSpec {
    /// Answers per prompt, at least 1.
    pub choices: u32,
    /// How to sample.
    pub sampling: SamplingSpec,
    /// When to stop.
    pub stop: StopSpec,
    /// What to report.
    pub report: ReportSpec,
    /// How the prompt is cut.
    pub truncate: Option<Truncation>,
    /// Lower runs first.
    pub priority: Option<i32>,
    /// Keeps prefix caches apart.
    pub cache_salt: Option<String>,
    /// Becomes part of the answer's id.
    pub request_id: Option<String>,
    /// How to stream, when streaming was asked for.
    pub stream: Option<StreamSpec>,
}

/// How to choose tokens; see the fields of the same names.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplingSpec {
    /// 0 to 2.
    pub temperature: f32,
    /// Above 0, up to 1.
    pub top_p: f32,
    /// 0 is off.
    pub top_k: u32,
    /// 0 to 1.
    pub min_p: f32,
    /// Above 0; 1 is off.
    pub repetition_penalty: f32,
    /// -2 to 2.
    pub frequency_penalty: f32,
    /// -2 to 2.
    pub presence_penalty: f32,
    /// Existing token ids, offsets within -100 to 100.
    pub logit_bias: Vec<(u32, f32)>,
    /// Sorted, existing, not empty.
    pub allowed_token_ids: Option<Vec<u32>>,
    /// Not empty strings.
    pub bad_words: Vec<String>,
    /// None draws one.
    pub seed: Option<u64>,
}

/// When an answer ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StopSpec {
    /// Strings, none empty.
    pub strings: Vec<String>,
    /// Sorted, existing token ids.
    pub token_ids: Vec<u32>,
    /// Whether what ended the answer stays in its text.
    pub include_in_output: bool,
    /// Whether the model's end-of-sequence tokens are tokens like others.
    pub ignore_eos: bool,
    /// No end before this many tokens.
    pub min_tokens: u32,
    /// Tokens at most; none means what the context holds.
    pub max_tokens: Option<u32>,
}

/// What goes into the answer besides its text.
#[expect(clippy::struct_excessive_bools, reason = "independent switches of the API")]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReportSpec {
    /// Log-probabilities of the answer's tokens with this many alternatives.
    pub logprobs: Option<u32>,
    /// The same for the prompt.
    pub prompt_logprobs: Option<u32>,
    /// Whether special tokens are left out of the text.
    pub skip_special_tokens: bool,
    /// Whether token ids are added.
    pub token_ids: bool,
    /// Whether tokens are written as `token_id:N` in log-probabilities.
    pub tokens_as_ids: bool,
    /// Whether the rendered prompt is added.
    pub prompt_text: bool,
}

/// How a prompt that is too long is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Truncation {
    /// Tokens kept; none means what the context holds.
    pub tokens: Option<u32>,
    /// Which end is cut.
    pub side: TruncationSide,
}

/// The end of a prompt that is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TruncationSide {
    /// The beginning.
    Left,
    /// The end.
    Right,
}

/// How an answer is streamed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamSpec {
    /// A last chunk with token counts.
    pub include_usage: bool,
    /// Token counts in every chunk.
    pub continuous_usage: bool,
}

/// What the two request types say differently.
pub(crate) struct Wishes {
    /// Tokens at most, whichever field said so.
    pub max_tokens: Option<i64>,
    /// The field that said so.
    pub max_tokens_field: &'static str,
    /// The smallest value it can have.
    pub max_tokens_min: i64,
    /// Alternatives per answer token, when log-probabilities are wanted.
    pub logprobs: Option<i64>,
    /// The field that said so.
    pub logprobs_field: &'static str,
}

impl SamplingFields {
    pub(crate) fn check(
        &self,
        wishes: &Wishes,
        limits: &RequestLimits,
        defaults: &SamplingDefaults,
    ) -> Result<GenerationSpec, RequestError> {
        let sampling = check::sampling(self, limits, defaults)?;
        let stop = check::stop(self, wishes, limits, defaults)?;
        let stream = check::stream(self)?;
        let report = check::report(self, wishes, limits)?;
        if stream.is_some() && report.prompt_logprobs.is_some() {
            return Err(RequestError::invalid(
                "prompt_logprobs",
                "prompt_logprobs cannot be streamed; send the request without stream",
            ));
        }
        Ok(GenerationSpec {
            choices: check::choices(self, &sampling, limits)?,
            sampling,
            stop,
            report,
            truncate: check::truncation(self, limits)?,
            priority: check::priority(self)?,
            cache_salt: check::cache_salt(self)?,
            request_id: self.request_id.clone(),
            stream,
        })
    }
}

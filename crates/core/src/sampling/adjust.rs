//! What a request's history and wishes do to the logits before any probability is formed.
//!
//! Every change here concerns single tokens: ruling one out (negative infinity), adding a bias, or a penalty
//! for having occurred. Tokens that cannot exist in the vocabulary are ignored. History is kept only when a
//! parameter asks for it, and then one entry for each different token, never one for each token of the
//! vocabulary.

use indexmap::IndexMap;

use super::params::SamplingParams;
use crate::ids::TokenId;

/// The part of a sequence's past that its parameters look at.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    /// Occurrences in the output of each token that a penalty applies to; 0 for one of the prompt only.
    occurrences: IndexMap<TokenId, u32>,
    /// The last output tokens, as many as the longest bad word needs.
    recent: Vec<TokenId>,
    /// Output tokens so far.
    output_len: u32,
}

impl History {
    pub(super) fn new(params: &SamplingParams, prompt: &[TokenId], output: &[TokenId]) -> Self {
        let mut history = Self::default();
        if is_on(params.repetition_penalty, 1.0) {
            history.occurrences.extend(prompt.iter().map(|&token| (token, 0)));
        }
        for &token in output {
            history.push(params, token);
        }
        history
    }

    pub(super) fn push(&mut self, params: &SamplingParams, token: TokenId) {
        self.output_len = self.output_len.saturating_add(1);
        if counts_occurrences(params) {
            *self.occurrences.entry(token).or_insert(0) += 1;
        }
        let remembered = params.bad_words.iter().map(Vec::len).max().unwrap_or(0).saturating_sub(1);
        if remembered > 0 {
            if self.recent.len() == remembered {
                self.recent.remove(0);
            }
            self.recent.push(token);
        }
    }

    pub(super) fn output_len(&self) -> u32 {
        self.output_len
    }

    /// Whether [`History::apply`] would change anything now.
    pub(super) fn changes_logits(&self, params: &SamplingParams) -> bool {
        params.allowed_token_ids.is_some()
            || !params.bad_words.is_empty()
            || !params.logit_bias.is_empty()
            || self.output_len < params.min_tokens
            || !self.occurrences.is_empty()
    }

    /// Writes the changed copy of `logits` to `adjusted`.
    pub(super) fn apply(&self, params: &SamplingParams, logits: &[f32], adjusted: &mut Vec<f32>) {
        adjusted.clear();
        match &params.allowed_token_ids {
            None => adjusted.extend_from_slice(logits),
            Some(allowed) => {
                adjusted.resize(logits.len(), f32::NEG_INFINITY);
                for &token in allowed {
                    if let Some((to, from)) = at(adjusted, token).zip(logits.get(token as usize)) {
                        *to = *from;
                    }
                }
            }
        }
        for word in &params.bad_words {
            if let Some((&last, before)) = word.split_last()
                && self.recent.ends_with(before)
            {
                rule_out(adjusted, last);
            }
        }
        if self.output_len < params.min_tokens {
            params.stop_token_ids.iter().for_each(|&token| rule_out(adjusted, token));
            if !params.ignore_eos {
                params.eos_token_ids.iter().for_each(|&token| rule_out(adjusted, token));
            }
        }
        for &(token, bias) in &params.logit_bias {
            if let Some(logit) = at(adjusted, token) {
                *logit += bias;
            }
        }
        for (&token, &count) in &self.occurrences {
            if let Some(logit) = at(adjusted, token) {
                *logit = penalised(*logit, count, params);
            }
        }
    }
}

/// Repetition, frequency and presence penalty of a token that occurred; `count` times in the output.
fn penalised(logit: f32, count: u32, params: &SamplingParams) -> f32 {
    let factor = params.repetition_penalty;
    let repeated = if logit > 0.0 { logit / factor } else { logit * factor };
    let presence = if count > 0 { params.presence_penalty } else { 0.0 };
    repeated - params.frequency_penalty * count as f32 - presence
}

fn counts_occurrences(params: &SamplingParams) -> bool {
    is_on(params.repetition_penalty, 1.0)
        || is_on(params.frequency_penalty, 0.0)
        || is_on(params.presence_penalty, 0.0)
}

/// Whether a parameter differs from the value that switches it off.
#[allow(clippy::float_cmp, reason = "off is exactly one value; anything near it is a wish")]
fn is_on(value: f32, off: f32) -> bool {
    value != off
}

fn rule_out(logits: &mut [f32], token: TokenId) {
    if let Some(logit) = at(logits, token) {
        *logit = f32::NEG_INFINITY;
    }
}

fn at(logits: &mut [f32], token: TokenId) -> Option<&mut f32> {
    logits.get_mut(token as usize)
}

//! One sequence's sampler: what it remembers, and the way from a row of logits to a token.
//!
//! A sampler holds no generator state: the random number of a token is named by the request's seed and the
//! token's position, so a sampler rebuilt from prompt and output continues as if nothing had happened.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::adjust::History;
use super::logprobs::token_logprobs;
use super::params::SamplingParams;
use super::random::Philox;
use super::support::{Candidate, Support, support};
use super::vector::BLOCK;
use crate::ids::TokenId;
use crate::step::TokenLogprobs;

/// Memory that sampling works in; one for each thread that samples, kept between steps.
#[derive(Debug, Default)]
pub struct Scratch {
    /// Changed copy of the logits.
    pub(super) adjusted: Vec<f32>,
    /// Largest logit of each block.
    pub(super) maxima: Vec<f32>,
    /// Weight of each token, when all can be drawn.
    pub(super) weights: Vec<f32>,
    /// Sum of the weights of each block.
    pub(super) sums: Vec<f64>,
    /// Tokens that can be drawn, ascending by id, when not all can.
    pub(super) candidates: Vec<Candidate>,
    /// Copy of the candidates that selection may reorder.
    pub(super) ranking: Vec<Candidate>,
    /// Values that selection may reorder.
    pub(super) selection: Vec<f32>,
}

/// Why no token could be chosen. The request fails alone; others go on.
#[derive(Clone, Copy, Debug, thiserror::Error)]
pub enum SampleError {
    /// The model computed a value that is no number.
    #[error(
        "the model gave token {token} the logit {value}; its weights or the request's context are unsound"
    )]
    NotFinite {
        /// First such token.
        token: TokenId,
        /// NaN or positive infinity.
        value: f32,
    },
    /// Every token is ruled out.
    #[error(
        "no token can be chosen: allowed_token_ids, bad_words, logit_bias and min_tokens together rule out all"
    )]
    NothingAllowed,
}

impl PartialEq for SampleError {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::NotFinite { token, .. }, Self::NotFinite { token: other, .. }) => token == other,
            (Self::NothingAllowed, Self::NothingAllowed) => true,
            _ => false,
        }
    }
}

/// A chosen token.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sampled {
    /// The token.
    pub token: TokenId,
    /// Its log-probabilities, when the parameters ask for them.
    pub logprobs: Option<Box<TokenLogprobs>>,
}

/// Chooses the tokens of one sequence.
#[derive(Clone, Debug)]
pub struct Sampler {
    params: Arc<SamplingParams>,
    history: History,
    prompt_len: u64,
    vocab: usize,
}

impl Sampler {
    /// A sampler for a sequence with these tokens so far. Ids from `vocab` on are never drawn, even when the
    /// rows of logits are longer.
    #[must_use]
    pub fn new(params: Arc<SamplingParams>, prompt: &[TokenId], output: &[TokenId], vocab: usize) -> Self {
        let history = History::new(&params, prompt, output);
        Self { params, history, prompt_len: prompt.len() as u64, vocab }
    }

    /// The parameters it was made with.
    #[must_use]
    pub fn params(&self) -> &Arc<SamplingParams> {
        &self.params
    }

    /// Chooses the next token from the model's `logits`. The same call gives the same answer until
    /// [`Sampler::accept`].
    ///
    /// # Errors
    /// When a logit is NaN or infinite, or when the parameters leave no token.
    pub fn sample(&self, logits: &[f32], scratch: &mut Scratch) -> Result<Sampled, SampleError> {
        let logits = self.within_vocab(logits);
        let token = match self.support(logits, scratch)? {
            Support::One(token) => token,
            Support::Vocabulary(total) => draw_from_all(scratch, self.uniform() * total),
            Support::Candidates(total) => draw_from_candidates(&scratch.candidates, self.uniform() * total),
        };
        let logprobs = match self.params.logprobs {
            None => None,
            Some(top) => Some(Box::new(token_logprobs(logits, token, top as usize, scratch)?)),
        };
        Ok(Sampled { token, logprobs })
    }

    /// Appends a token to the output: what was sampled, or what was forced.
    pub fn accept(&mut self, token: TokenId) {
        self.history.push(&self.params, token);
    }

    /// The probability of each token of the vocabulary to be the next; what [`Sampler::sample`] draws from.
    ///
    /// # Errors
    /// As for [`Sampler::sample`].
    pub fn probabilities(&self, logits: &[f32], scratch: &mut Scratch) -> Result<Vec<f64>, SampleError> {
        let logits = self.within_vocab(logits);
        let support = self.support(logits, scratch)?;
        let mut probabilities = vec![0.0; logits.len()];
        let mut set = |token: TokenId, probability: f64| {
            if let Some(slot) = probabilities.get_mut(token as usize) {
                *slot = probability;
            }
        };
        match support {
            Support::One(token) => set(token, 1.0),
            Support::Vocabulary(total) => {
                for (token, &weight) in scratch.weights.iter().enumerate() {
                    set(token as TokenId, f64::from(weight) / total);
                }
            }
            Support::Candidates(total) => {
                for candidate in &scratch.candidates {
                    set(candidate.token, candidate.weight / total);
                }
            }
        }
        Ok(probabilities)
    }

    fn within_vocab<'a>(&self, logits: &'a [f32]) -> &'a [f32] {
        logits.get(..self.vocab).unwrap_or(logits)
    }

    fn support(&self, logits: &[f32], scratch: &mut Scratch) -> Result<Support, SampleError> {
        if !self.history.changes_logits(&self.params) {
            return support(logits, &self.params, scratch);
        }
        let mut adjusted = std::mem::take(&mut scratch.adjusted);
        self.history.apply(&self.params, logits, &mut adjusted);
        let decided = support(&adjusted, &self.params, scratch);
        scratch.adjusted = adjusted;
        decided
    }

    /// The random number of the next token's position.
    fn uniform(&self) -> f64 {
        let position = self.prompt_len + u64::from(self.history.output_len());
        Philox::new(self.params.seed).uniform(position, 0)
    }
}

/// The first token at which the running sum of weights passes `point`.
fn draw_from_candidates(candidates: &[Candidate], point: f64) -> TokenId {
    let mut sum = 0.0;
    let mut drawn = 0;
    for candidate in candidates.iter().filter(|candidate| candidate.weight > 0.0) {
        sum += candidate.weight;
        drawn = candidate.token;
        if sum > point {
            break;
        }
    }
    drawn
}

/// The same over the whole vocabulary: first the block, then the token in it. Rounding may leave the point
/// just behind the last token of a block; then that token is drawn.
fn draw_from_all(scratch: &Scratch, point: f64) -> TokenId {
    let mut before = 0.0;
    let mut drawn = 0;
    for (index, (weights, &sum)) in scratch.weights.chunks(BLOCK).zip(&scratch.sums).enumerate() {
        if sum <= 0.0 {
            continue;
        }
        let mut running = before;
        before += sum;
        if before <= point {
            drawn = last_with_weight(weights, index);
            continue;
        }
        for (at, &weight) in weights.iter().enumerate().filter(|(_, weight)| **weight > 0.0) {
            running += f64::from(weight);
            drawn = (index * BLOCK + at) as TokenId;
            if running > point {
                break;
            }
        }
        break;
    }
    drawn
}

fn last_with_weight(weights: &[f32], block: usize) -> TokenId {
    let at = weights.iter().rposition(|&weight| weight > 0.0).unwrap_or(0);
    (block * BLOCK + at) as TokenId
}

//! Log-probabilities under the raw logits, for clients that ask for them.
//!
//! They describe the model, not the request: no temperature, penalty or mask has touched these logits.

use super::pipeline::{SampleError, Scratch};
use super::support::{argmax, gather_largest, likelier_first};
use super::vector::{block_maxima, exponentials};
use crate::ids::TokenId;
use crate::step::TokenLogprobs;

/// Log-probability and rank of `token`, and the `top` likeliest tokens (fewer when some are ruled out by the
/// model itself with negative infinity). Among equally likely tokens the lower id ranks first.
///
/// # Errors
/// When a logit is NaN or infinite, or all are negative infinity.
pub fn token_logprobs(
    logits: &[f32],
    token: TokenId,
    top: usize,
    scratch: &mut Scratch,
) -> Result<TokenLogprobs, SampleError> {
    let maximum = block_maxima(logits, &mut scratch.maxima)?;
    if maximum == f32::NEG_INFINITY {
        return Err(SampleError::NothingAllowed);
    }
    let total = exponentials(logits, maximum, 1.0, &mut scratch.weights, &mut scratch.sums);
    let log_total = total.ln();
    let logprob = |logit: f32| (f64::from(logit) - f64::from(maximum) - log_total) as f32;
    let logit = logits.get(token as usize).copied().unwrap_or(f32::NEG_INFINITY);
    Ok(TokenLogprobs {
        token,
        logprob: logprob(logit),
        rank: rank(logits, token, logit),
        top: likeliest(logits, maximum, top, scratch).map(|(token, logit)| (token, logprob(logit))).collect(),
    })
}

/// One more than the number of tokens that come before this one.
fn rank(logits: &[f32], token: TokenId, logit: f32) -> u32 {
    let (before, after) = logits.split_at(logits.len().min(token as usize));
    let as_likely = before.iter().filter(|&&other| other >= logit).count();
    let likelier = after.iter().filter(|&&other| other > logit).count();
    (as_likely + likelier) as u32 + 1
}

/// The `count` likeliest tokens with their logits, likeliest first.
fn likeliest<'a>(
    logits: &[f32],
    maximum: f32,
    count: usize,
    scratch: &'a mut Scratch,
) -> impl Iterator<Item = (TokenId, f32)> + 'a {
    scratch.candidates.clear();
    let single = (count == 1).then(|| (argmax(logits, maximum, &scratch.maxima), maximum));
    if count > 1 {
        gather_largest(logits, count.min(logits.len()), f32::NEG_INFINITY, scratch);
        scratch.candidates.sort_unstable_by(likelier_first);
    }
    let several = scratch.candidates.iter().take(count).map(|candidate| (candidate.token, candidate.logit));
    single.into_iter().chain(several)
}

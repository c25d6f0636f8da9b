//! Which tokens can still be drawn, and with what weight: temperature, min-p, top-k, top-p.
//!
//! The vocabulary is never sorted. Min-p and top-k are thresholds on the logit; the k-th largest is found by
//! selection among the few values that the block maxima leave over. Top-p halves the candidates until the
//! border lies within a handful. Candidates stay in the order of their ids, so that what is drawn depends on
//! the row and not on how a selection happened to arrange it.

use std::cmp::Ordering;

use super::params::SamplingParams;
use super::pipeline::{SampleError, Scratch};
use super::vector::{BLOCK, block_maxima, exponentials};
use crate::ids::TokenId;

/// A token that can be drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Candidate {
    pub token: TokenId,
    pub logit: f32,
    /// Probability times an unknown common factor.
    pub weight: f64,
}

/// The tokens that can be drawn; their weights are in the [`Scratch`] they were computed with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Support {
    /// This one only.
    One(TokenId),
    /// All tokens with a weight in [`Scratch::weights`], which add up to this.
    Vocabulary(f64),
    /// Those in [`Scratch::candidates`], whose weights add up to this.
    Candidates(f64),
}

/// Decides what can be drawn from `logits` (adjusted, not yet divided by the temperature).
pub(super) fn support(
    logits: &[f32],
    params: &SamplingParams,
    scratch: &mut Scratch,
) -> Result<Support, SampleError> {
    let maximum = block_maxima(logits, &mut scratch.maxima)?;
    if maximum == f32::NEG_INFINITY {
        return Err(SampleError::NothingAllowed);
    }
    if params.is_greedy() {
        return Ok(Support::One(argmax(logits, maximum, &scratch.maxima)));
    }
    let temperature = f64::from(params.temperature);
    let keeps_mass = params.top_p < 1.0;
    let limits_count = params.top_k > 0 && (params.top_k as usize) < logits.len();
    if !limits_count && params.min_p <= 0.0 {
        let sharpness = params.temperature.recip();
        let total = exponentials(logits, maximum, sharpness, &mut scratch.weights, &mut scratch.sums);
        if !keeps_mass {
            return Ok(Support::Vocabulary(total));
        }
        // Even all together, tokens below this weigh no more than what top-p removes.
        let negligible = (1.0 - f64::from(params.top_p)) * total / logits.len() as f64;
        let floor = f64::from(maximum) + temperature * negligible.ln();
        // Rounded down, and never above the maximum: the likeliest token always stays.
        gather(logits, (floor as f32).next_down().min(maximum), scratch);
        let Scratch { candidates, weights, .. } = scratch;
        for candidate in candidates {
            candidate.weight = weights.get(candidate.token as usize).copied().map_or(0.0, f64::from);
        }
        return Ok(Support::Candidates(keep_mass(scratch, f64::from(params.top_p) * total)));
    }
    let mut floor = f32::NEG_INFINITY;
    if params.min_p > 0.0 {
        let relative = temperature * f64::from(params.min_p).ln();
        floor = ((f64::from(maximum) + relative) as f32).min(maximum);
    }
    if limits_count {
        gather_largest(logits, params.top_k as usize, floor, scratch);
    } else {
        gather(logits, floor, scratch);
    }
    let mut total = weigh(&mut scratch.candidates, maximum, temperature);
    if keeps_mass {
        total = keep_mass(scratch, f64::from(params.top_p) * total);
    }
    Ok(Support::Candidates(total))
}

/// The token with the largest logit, the lowest id of equal ones.
pub(super) fn argmax(logits: &[f32], maximum: f32, maxima: &[f32]) -> TokenId {
    let reaches = |value: &f32| *value >= maximum;
    let start = maxima.iter().position(reaches).unwrap_or(0) * BLOCK;
    let within = logits.iter().skip(start).position(reaches).unwrap_or(0);
    (start + within) as TokenId
}

/// Collects every token whose logit is at least `floor` and not negative infinity, ascending by id.
/// Needs the block maxima.
pub(super) fn gather(logits: &[f32], floor: f32, scratch: &mut Scratch) {
    scratch.candidates.clear();
    for (index, block) in logits.chunks(BLOCK).enumerate() {
        if scratch.maxima.get(index).is_some_and(|&maximum| maximum < floor) {
            continue;
        }
        for (at, &logit) in block.iter().enumerate() {
            if logit >= floor && logit > f32::NEG_INFINITY {
                let token = (index * BLOCK + at) as TokenId;
                scratch.candidates.push(Candidate { token, logit, weight: 0.0 });
            }
        }
    }
}

/// Collects the tokens whose logit is at least `floor` and at least the `count`-th largest: more than `count`
/// when several have that logit. Needs the block maxima.
pub(super) fn gather_largest(logits: &[f32], count: usize, floor: f32, scratch: &mut Scratch) {
    let mut floor = floor;
    if count <= scratch.maxima.len() {
        // As many blocks hold a value this large, so the count-th largest value is no smaller.
        scratch.selection.clear();
        scratch.selection.extend_from_slice(&scratch.maxima);
        floor = floor.max(nth_largest(&mut scratch.selection, count));
    }
    gather(logits, floor, scratch);
    if scratch.candidates.len() > count {
        scratch.selection.clear();
        scratch.selection.extend(scratch.candidates.iter().map(|candidate| candidate.logit));
        let smallest = nth_largest(&mut scratch.selection, count);
        scratch.candidates.retain(|candidate| candidate.logit >= smallest);
    }
}

/// The `count`-th largest of at least `count` values, `count` at least 1.
fn nth_largest(values: &mut [f32], count: usize) -> f32 {
    *values.select_nth_unstable_by(count.saturating_sub(1), |a, b| descending(*a, *b)).1
}

fn weigh(candidates: &mut [Candidate], maximum: f32, temperature: f64) -> f64 {
    let mut total = 0.0;
    for candidate in candidates {
        candidate.weight = (f64::from(candidate.logit - maximum) / temperature).exp();
        total += candidate.weight;
    }
    total
}

/// Keeps the likeliest candidates, as many as are needed to reach `mass` (at least one; the lower id of
/// equally likely ones), and returns what the kept ones weigh.
fn keep_mass(scratch: &mut Scratch, mass: f64) -> f64 {
    scratch.ranking.clear();
    scratch.ranking.extend_from_slice(&scratch.candidates);
    if let Some(last) = last_kept(&mut scratch.ranking, mass) {
        scratch.candidates.retain(|candidate| likelier_first(candidate, &last) != Ordering::Greater);
    }
    scratch.candidates.iter().map(|candidate| candidate.weight).sum()
}

/// The least likely candidate such that those likelier than it weigh less than `mass`.
fn last_kept(ranking: &mut [Candidate], mass: f64) -> Option<Candidate> {
    const FEW: usize = 32;
    let (mut start, mut end) = (0, ranking.len());
    let mut above = 0.0;
    // Everything before `start` stays and weighs `above`; everything from `end` on goes.
    while end - start > FEW {
        let middle = (end - start) / 2;
        let open = ranking.get_mut(start..end)?;
        open.select_nth_unstable_by(middle, likelier_first);
        let upper: f64 = open.iter().take(middle).map(|candidate| candidate.weight).sum();
        if above + upper >= mass {
            end = start + middle;
        } else {
            above += upper;
            start += middle;
        }
    }
    let open = ranking.get_mut(start..end)?;
    open.sort_unstable_by(likelier_first);
    let mut last = *open.first()?;
    for candidate in open {
        if above >= mass {
            break;
        }
        above += candidate.weight;
        last = *candidate;
    }
    Some(last)
}

/// Order from the likeliest to the least likely, by id among equals.
pub(super) fn likelier_first(a: &Candidate, b: &Candidate) -> Ordering {
    descending(a.logit, b.logit).then(a.token.cmp(&b.token))
}

fn descending(a: f32, b: f32) -> Ordering {
    b.partial_cmp(&a).unwrap_or(Ordering::Equal)
}

//! How many prompt tokens a step may compute beside streams that are under way, so that they do not stutter.
//!
//! Always holds: never zero, so prompts get on; never more than the step's budget; all of it while no stream runs.
//! Refuses to know: whose tokens they are.

use serde::{Deserialize, Serialize};

use super::cost::{CostModel, Work};
use crate::units::{Millis, Tokens};

/// With [`LatencyBound::Auto`], a step with a prompt in it may take as long as this many without.
///
/// A step of `n` times the time spends `(n - 1) / n` of it on the prompt: with 4, a prompt is read at no less than
/// three quarters of full speed, and a stream slows down to no less than a quarter.
const AUTO_STEPS: f64 = 4.0;
/// With [`LatencyBound::Auto`], but at least this long, in microseconds: nobody reads faster than twenty tokens a second,
/// and smaller chunks only cost throughput where a step takes a few milliseconds.
const AUTO_MICROS_MIN: f64 = 50_000.0;
/// How many times as much as the steps before it a step may read: what lies beyond was not measured lately, and each
/// step teaches.
const GROWTH: u32 = 2;
/// The first steps may read so many times the least.
const FIRST: u32 = 4;

/// A bound on the time between two tokens of a stream while a prompt is read beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenLatency {
    /// The time.
    pub bound: LatencyBound,
    /// Prompt tokens that a step may compute whatever it takes; at least 1. Reading by fewer costs more than it saves.
    pub least: Tokens,
}

/// How long a step with streams may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LatencyBound {
    /// Four times as long as without a prompt, and at least 50 ms.
    Auto,
    /// This long.
    At(Millis),
}

impl TokenLatency {
    /// Prompt tokens of a step that computes `streams` besides, for a prompt that is read up to `context`; at most
    /// `most`.
    pub(super) fn budget(self, costs: &CostModel, streams: Work, context: u32, most: u32) -> u32 {
        let least = self.least.0.max(1).min(most);
        let first = least.saturating_mul(FIRST);
        // What steps without streams have read says nothing about time as long as no cost is known.
        let Some(figures) = costs.figures() else { return most.min(first).max(least) };
        let most = most.min(costs.largest_read().saturating_mul(GROWTH).max(first)).max(least);
        let bound = match self.bound {
            LatencyBound::Auto => AUTO_MICROS_MIN.max(AUTO_STEPS * figures.cost(streams)),
            LatencyBound::At(time) => time.0 as f64 * 1e3,
        };
        // More tokens never cost less, so the largest number that fits is found by halving.
        let (mut fits, mut too_many) = (least, most + 1);
        while too_many - fits > 1 {
            let middle = fits + (too_many - fits) / 2;
            if figures.cost(streams.with(context, middle)) <= bound {
                fits = middle;
            } else {
                too_many = middle;
            }
        }
        fits
    }
}

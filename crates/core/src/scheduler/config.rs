//! How much runs at once and in which order; and what the scheduler must be told of a sequence.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::latency::TokenLatency;
use crate::ids::{SequenceId, TokenId};
use crate::sampling::SamplingParams;
use crate::speculation::SpeculationConfig;
use crate::units::{Blocks, Millis, Tokens};

/// Limits and habits of a scheduler.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SchedulerConfig {
    /// Sequences that run at once; at least 1.
    pub max_sequences: u32,
    /// Sequences that may wait before new ones are refused.
    pub max_waiting: u32,
    /// Tokens computed in one step; at least 1. Best not below `max_sequences`: each running sequence wants
    /// one.
    pub step_budget: Tokens,
    /// Prompt tokens of one sequence in one step while it is not alone; 0 sets no limit but the budget.
    pub chunk_limit: Tokens,
    /// Tokens of prompt and output together.
    pub max_model_len: Tokens,
    /// Which sequence comes before which.
    pub policy: Policy,
    /// With [`Policy::Priority`], waiting this long counts as much as one level of priority. With 0, age is
    /// all that counts.
    pub ageing: Millis,
    /// Tokens in a KV block; at least 1.
    pub block_size: Tokens,
    /// KV blocks in the pool. Output ends by length when a sequence fills it all.
    pub pool: Blocks,
    /// Prompt tokens in one step whose logits are wanted for prompt log-probabilities, over all sequences:
    /// each takes a row of the whole vocabulary. At least 1. What is sampled needs no place here.
    pub prompt_logit_rows: Tokens,
    /// Steps that are planned ahead of their results; at least 1. With 2 the executor never waits for a plan.
    /// With speculation it is 1: a draft follows a token that has to be known.
    pub steps_in_flight: u32,
    /// How long sequences that continue may have to wait for the next token because of prompts beside them; none: as
    /// long as a step with the whole budget takes.
    pub token_latency: Option<TokenLatency>,
    /// Whether sequences that continue get drafts, and from whom.
    pub speculation: Option<SpeculationConfig>,
}

/// Which sequence comes before which, for starting and for keeping blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    /// By arrival.
    #[default]
    Fcfs,
    /// By priority, improved by age; ties by arrival.
    Priority,
}

/// A sequence that asks to be run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NewSequence {
    /// Its name, never used before.
    pub sequence: SequenceId,
    /// Prompt tokens; at least one.
    pub prompt: Arc<[TokenId]>,
    /// Tokens it produced under a scheduler that was lost; empty for a new one.
    pub output: Vec<TokenId>,
    /// How to sample and when to stop.
    pub sampling: Arc<SamplingParams>,
    /// Lower goes first; ignored under [`Policy::Fcfs`].
    pub priority: i32,
    /// Keeps its prefixes apart from those of others.
    pub salt: Option<Arc<str>>,
    /// When the request came. Ties go to the lower id.
    pub arrival: Millis,
    /// Faults in a row it was present at, under a scheduler that was lost.
    pub strikes: u8,
}

impl NewSequence {
    pub(super) fn prompt_tokens(&self) -> Tokens {
        Tokens(u32::try_from(self.prompt.len()).unwrap_or(u32::MAX))
    }
}

impl SchedulerConfig {
    /// Raises zeros that would stop everything to one, and lets speculation have the steps it needs.
    pub(super) fn checked(mut self) -> Self {
        self.max_sequences = self.max_sequences.max(1);
        self.step_budget = self.step_budget.max(Tokens(1));
        self.block_size = self.block_size.max(Tokens(1));
        self.prompt_logit_rows = self.prompt_logit_rows.max(Tokens(1));
        self.speculation = self.speculation.map(SpeculationConfig::checked);
        self.steps_in_flight = if self.speculation.is_some() { 1 } else { self.steps_in_flight.max(1) };
        self
    }

    /// Tokens of prompt and output at most. The last token of an output is never computed, so it needs no
    /// place in the pool.
    pub(super) fn longest(&self) -> Tokens {
        let pool = Tokens(self.pool.0.saturating_mul(self.block_size.0));
        self.max_model_len.min(pool + Tokens(1))
    }
}

//! What the scheduler tells an executor to do, and what comes back.
//!
//! A step is one forward pass over a ragged batch: some sequences feed a chunk of their prompt, others one
//! token, or one token and drafts behind it. The executor keeps each admitted sequence's tokens and block
//! table, so a plan names only what changed. Steps of one epoch run in the order of their ids, and the executor
//! samples a sequence's next token before the following step needs it: a plan may therefore schedule a
//! position whose token is not known yet to the planner.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::graphs::Launched;
use crate::ids::{BlockId, Epoch, SequenceId, SlotId, StepId, TokenId};
use crate::sampling::{Sampled, SamplingParams};
use crate::units::Tokens;

/// One planned forward pass.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepPlan {
    /// The executor life this plan is for.
    pub epoch: Epoch,
    /// Place of this step in the epoch.
    pub step: StepId,
    /// Sequences that ended or lost their blocks; the executor forgets them before anything else.
    pub released: Vec<SequenceId>,
    /// Sequences the executor does not know yet (or was told to forget).
    pub admitted: Vec<SequenceInit>,
    /// The rows of this step. Never empty.
    pub scheduled: Vec<ScheduledSequence>,
}

/// Everything an executor needs to know of a sequence it meets for the first time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SequenceInit {
    /// The sequence.
    pub sequence: SequenceId,
    /// Prompt tokens.
    pub prompt: Arc<[TokenId]>,
    /// Tokens produced before (not empty after a preemption or a fault).
    pub output: Vec<TokenId>,
    /// How to sample.
    pub sampling: Arc<SamplingParams>,
}

/// Whether a row reads known tokens or continues a sequence by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// Tokens of the prompt, or of a recomputed continuation.
    Prefill,
    /// The one token sampled last.
    Decode,
    /// The same, and drafts of what follows it. Every position of the row is sampled.
    Verify,
}

/// What a step consists of, as its phases say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepKind {
    /// Rows that decode, and nothing else.
    Decode,
    /// Rows that decode, some of them with drafts.
    Verify,
    /// Prompts, and whatever else there is.
    Mixed,
}

/// One sequence's share of a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduledSequence {
    /// The sequence.
    pub sequence: SequenceId,
    /// Position of the first token to compute; all before it are in the KV cache.
    pub start: Tokens,
    /// How many tokens to compute, at least one.
    pub count: Tokens,
    /// Blocks to append to the sequence's block table before the step.
    pub new_blocks: Vec<BlockId>,
    /// What kind of row it is.
    pub phase: Phase,
    /// Whether the last computed position yields a token; with drafts, those before them too.
    pub samples: bool,
    /// Tokens of the last positions, which nobody knows yet. Not empty in [`Phase::Verify`] only.
    pub drafts: Vec<TokenId>,
}

/// What an executor answers to one plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepResult {
    /// Epoch of the plan.
    pub epoch: Epoch,
    /// Step of the plan.
    pub step: StepId,
    /// One entry for each scheduled sequence that sampled or produced prompt log-probabilities, in plan
    /// order.
    pub outputs: Vec<SequenceOutput>,
    /// Time the device computed, in microseconds.
    pub device_micros: u64,
    /// From the end of the step before to the start of this one, in microseconds: the device had nothing to
    /// compute.
    pub gap_micros: u64,
    /// Of the device time, what the host needed to hand the step to the device, in microseconds.
    pub launch_micros: u64,
    /// Whether the step was replayed from a graph.
    pub launched: Launched,
}

/// What one sequence got out of a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SequenceOutput {
    /// The sequence.
    pub sequence: SequenceId,
    /// The sampled token, when the plan asked for one.
    pub token: Option<TokenId>,
    /// Log-probabilities of that token, when the request asked for them.
    pub logprobs: Option<Box<TokenLogprobs>>,
    /// The tokens behind it: one more for each draft that was right, in order. The positions of the other
    /// drafts count as never computed.
    pub further: Vec<Sampled>,
    /// Log-probabilities of prompt positions computed in this step: `(position, entry)`, ascending.
    /// Position 0 has none: nothing predicts it.
    pub prompt_logprobs: Vec<(Tokens, TokenLogprobs)>,
}

/// Log-probability of one token and of the likeliest alternatives at its position.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TokenLogprobs {
    /// The token that stands at this position.
    pub token: TokenId,
    /// Natural logarithm of its probability under the raw logits.
    pub logprob: f32,
    /// 1 for the likeliest token of the vocabulary, 2 for the next, and so on.
    pub rank: u32,
    /// The likeliest tokens with their log-probabilities, descending; as many as asked for.
    pub top: Vec<(TokenId, f32)>,
}

/// The per-step inputs of a device: everything a program reads that changes from step to step.
///
/// `token_ids`, `positions` and `slots` have one entry a row (a token to compute); rows of one sequence lie
/// together, ascending.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepInputs {
    /// Token of each row.
    pub token_ids: Vec<TokenId>,
    /// Position of each row in its sequence.
    pub positions: Vec<u32>,
    /// Where each row's key and value go.
    pub slots: Vec<SlotId>,
    /// The sequences of the step, in row order.
    pub spans: Vec<SequenceSpan>,
    /// Block tables of all sequences, one behind the other.
    pub block_tables: Vec<BlockId>,
    /// Rows whose logits are wanted, ascending.
    pub logit_rows: Vec<u32>,
}

/// One sequence's rows within [`StepInputs`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SequenceSpan {
    /// First row.
    pub row_start: u32,
    /// Number of rows.
    pub row_count: u32,
    /// Tokens in the KV cache once this step has written its own: last position + 1.
    pub context: u32,
    /// Start of its block table in [`StepInputs::block_tables`].
    pub table_start: u32,
    /// Length of its block table.
    pub table_len: u32,
}

impl StepPlan {
    /// What it consists of.
    #[must_use]
    pub fn kind(&self) -> StepKind {
        let any = |phase| self.scheduled.iter().any(|row| row.phase == phase);
        if any(Phase::Prefill) {
            StepKind::Mixed
        } else if any(Phase::Verify) {
            StepKind::Verify
        } else {
            StepKind::Decode
        }
    }
}

impl ScheduledSequence {
    /// The first position that yields a token, if the row does.
    #[must_use]
    pub fn first_sampled(&self) -> u32 {
        (self.start.0 + self.count.0).saturating_sub(1 + self.drafts.len() as u32)
    }
}

impl StepInputs {
    /// Number of rows.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.token_ids.len()
    }

    /// Empties every list and keeps the memory.
    pub fn clear(&mut self) {
        self.token_ids.clear();
        self.positions.clear();
        self.slots.clear();
        self.spans.clear();
        self.block_tables.clear();
        self.logit_rows.clear();
    }
}

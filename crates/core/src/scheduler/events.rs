//! What the scheduler tells the outside.

use serde::{Deserialize, Serialize};

use crate::ids::{SequenceId, StepId, TokenId};
use crate::kv::KvUsage;
use crate::step::TokenLogprobs;
use crate::units::{Millis, Tokens};

/// Something happened to a sequence. `Finished` and `Failed` are its last event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum SchedulerEvent {
    /// A new token, also the one that ends the sequence.
    Token {
        /// The sequence.
        sequence: SequenceId,
        /// The token.
        token: TokenId,
        /// Its place in the output, from 0. No place comes twice or is left out.
        index: u32,
        /// Its log-probabilities, when the request asked for them.
        logprobs: Option<Box<TokenLogprobs>>,
        /// Prompt tokens that came from the prefix cache.
        cached: Tokens,
    },
    /// Log-probabilities of prompt positions, ascending, each position once (again from the start only if the
    /// scheduler itself was lost before the first token).
    PromptLogprobs {
        /// The sequence.
        sequence: SequenceId,
        /// Positions with their entries.
        entries: Vec<(Tokens, TokenLogprobs)>,
    },
    /// The output is complete.
    Finished {
        /// The sequence.
        sequence: SequenceId,
        /// Why.
        reason: FinishReason,
        /// Counts and times.
        stats: SequenceStats,
    },
    /// The sequence is given up.
    Failed {
        /// The sequence.
        sequence: SequenceId,
        /// Faults in a row it was present at.
        strikes: u8,
        /// Why.
        cause: FailureCause,
    },
    /// It lost its blocks and waits again; its tokens are kept.
    Preempted {
        /// The sequence.
        sequence: SequenceId,
    },
    /// It was present at a fault. Whoever restores it into another scheduler passes the number on; the next
    /// token clears it.
    Struck {
        /// The sequence.
        sequence: SequenceId,
        /// Faults in a row by now.
        strikes: u8,
    },
}

/// Why an output is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FinishReason {
    /// The last token says so.
    Stop {
        /// The stop token of the request; none for the model's end of sequence.
        stop_token: Option<TokenId>,
    },
    /// As long as asked for, or as possible.
    Length,
}

/// Why a sequence was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FailureCause {
    /// It was present at [`crate::fault::STRIKES_MAX`] faults in a row.
    Faults,
    /// The executor answered its row without the token that was planned.
    NoToken,
}

/// Counts and times of one sequence. Times are the caller's own, as passed in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SequenceStats {
    /// Prompt tokens.
    pub prompt_tokens: Tokens,
    /// Of these, found in the prefix cache by the start that led to the first token.
    pub cached: Tokens,
    /// Tokens produced.
    pub output_tokens: Tokens,
    /// Arrival.
    pub queued_at: Millis,
    /// First planned for a step.
    pub scheduled_at: Option<Millis>,
    /// First token.
    pub first_token_at: Option<Millis>,
    /// End.
    pub finished_at: Option<Millis>,
    /// Times it lost its blocks to another sequence.
    pub preemptions: u32,
}

/// Whom a loss is held against.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Blame {
    /// Nobody: the executor was stopped from outside, or another actor was lost.
    Nobody,
    /// The sequences of the oldest step without a result: steps run in order, so that one failed.
    OldestStep,
    /// The sequences of this step, if it is in flight.
    Step(StepId),
}

/// What a scheduler has to do at the moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SchedulerLoad {
    /// Sequences with blocks.
    pub running: u32,
    /// Sequences without.
    pub waiting: u32,
    /// Prompt tokens of the waiting ones.
    pub waiting_tokens: Tokens,
    /// Steps without a result.
    pub steps_in_flight: u32,
    /// Sequences that have to prove alone that they are not what kills the executor.
    pub suspects: u32,
    /// Preemptions since the start.
    pub preemptions: u64,
    /// Average time between two ends while others waited, once known.
    pub pace: Option<Millis>,
    /// Tokens that the last step planned could hold.
    pub step_budget: Tokens,
    /// The pool after the last reservation.
    pub usage: KvUsage,
}

impl SchedulerEvent {
    /// Whom it is about.
    #[must_use]
    pub fn sequence(&self) -> SequenceId {
        match self {
            Self::Token { sequence, .. }
            | Self::PromptLogprobs { sequence, .. }
            | Self::Finished { sequence, .. }
            | Self::Failed { sequence, .. }
            | Self::Preempted { sequence }
            | Self::Struck { sequence, .. } => *sequence,
        }
    }
}

impl SequenceStats {
    pub(super) fn new(prompt_tokens: Tokens, output_tokens: u32, queued_at: Millis) -> Self {
        Self { prompt_tokens, output_tokens: Tokens(output_tokens), queued_at, ..Self::default() }
    }
}

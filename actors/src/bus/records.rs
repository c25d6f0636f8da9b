//! What the topics carry.

use updraft_core::fault::FaultClass;
use updraft_core::kv::KvUsage;
use updraft_core::{Epoch, Millis};

/// One finished step, seen by the scheduler.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StepRecord {
    /// Sequences with blocks.
    pub running: u32,
    /// Sequences without.
    pub waiting: u32,
    /// Tokens computed in the step, prompt and continuation.
    pub computed_tokens: u32,
    /// Of these, tokens of prompts.
    pub prompt_tokens: u32,
    /// Tokens produced.
    pub generated_tokens: u32,
    /// Sequences preempted when the step was planned.
    pub preemptions: u32,
    /// State of the block pool.
    pub kv: KvUsage,
    /// Time the device computed.
    pub device_micros: u64,
    /// Time the device waited for this step although there was work; absent when there was none before it.
    pub host_micros: Option<u64>,
}

/// Moments and counts in the life of a sequence.
#[derive(Clone, Debug, PartialEq)]
pub enum RequestRecord {
    /// The first token is there.
    FirstToken {
        /// Prompt tokens.
        prompt_tokens: u32,
        /// Of these, found in the prefix cache.
        cached_tokens: u32,
        /// From arrival to now.
        since_arrival: Millis,
    },
    /// Another token is there.
    NextToken {
        /// Since the token before.
        gap: std::time::Duration,
    },
    /// The sequence ended.
    Ended(Box<RequestSummary>),
    /// A request was refused at the door.
    Refused {
        /// Label of the reason.
        reason: &'static str,
    },
}

/// The life of a sequence in figures. Times are absent where the moment was never reached.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestSummary {
    /// `stop`, `length`, `abort` or `error`.
    pub reason: &'static str,
    /// Prompt tokens.
    pub prompt_tokens: u32,
    /// Of these, computed (not found in the cache).
    pub computed_tokens: u32,
    /// Tokens produced.
    pub output_tokens: u32,
    /// Tokens it was allowed to produce.
    pub max_tokens: u32,
    /// Times it lost its blocks.
    pub preemptions: u32,
    /// Arrival to end.
    pub total: Millis,
    /// Arrival to first scheduled.
    pub queued: Option<Millis>,
    /// First scheduled to first token.
    pub prefill: Option<Millis>,
    /// First token to last.
    pub decode: Option<Millis>,
}

/// One loss.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultRecord {
    /// What was lost.
    pub class: FaultClass,
    /// The epoch that began with it.
    pub epoch: Epoch,
    /// What the lost part said last.
    pub detail: String,
}

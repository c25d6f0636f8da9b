//! The two messages between the scheduler and the block manager: one [`Reservation`] and one [`Grants`] a
//! step.
//!
//! Everything the manager learns comes in a reservation, and every reservation is answered once.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ids::{BlockId, Epoch, SequenceId, StepId, TokenId};
use crate::units::Tokens;

/// What the scheduler would like to run in one step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Reservation {
    /// Executor life; a manager of a later epoch answers with nothing granted, one of an earlier epoch has
    /// missed a loss and forgets everything first.
    pub epoch: Epoch,
    /// The step this is for.
    pub step: StepId,
    /// Sequences that ended or were preempted: their blocks go back first.
    pub released: Vec<SequenceId>,
    /// Tokens the step may compute in all.
    pub budget: Tokens,
    /// Wishes in the order in which they are served: running sequences first, then waiting ones.
    pub demands: Vec<Demand>,
    /// Running sequences that may lose their blocks for a running one that comes before them, first victim
    /// first. A sequence takes blocks only from those that stand before itself in this list.
    pub victims: Vec<SequenceId>,
}

/// One sequence's wish.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Demand {
    /// The sequence.
    pub sequence: SequenceId,
    /// Tokens it should have computed after the step; the grant may be less.
    pub target: Tokens,
    /// Tokens at most in this step (chunk limit).
    pub limit: Tokens,
    /// Tokens beyond the target, which nobody knows yet. They get what all others leave of the budget and the
    /// free blocks; nobody loses a block for them.
    pub drafts: Tokens,
    /// New or known.
    pub kind: DemandKind,
}

/// Whether the manager knows the sequence already.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum DemandKind {
    /// Has blocks. `appended` are the tokens that became known since the last reservation.
    Continue {
        /// Positions that are computed and stay. What was granted beyond counts as never computed: those were
        /// drafts that turned out wrong.
        computed: Tokens,
        /// Newly known tokens, in order.
        appended: Vec<TokenId>,
    },
    /// Waits for its first blocks. Granted only when all of `tokens` would fit with what is free.
    Start {
        /// All known tokens: prompt and what was produced before.
        tokens: Arc<[TokenId]>,
        /// Keeps prefixes of different owners apart; part of the first block's hash.
        salt: Option<Arc<str>>,
        /// Whether cached blocks may be used (not when prompt log-probabilities are wanted).
        reuse: bool,
    },
}

/// The answer to a [`Reservation`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Grants {
    /// Epoch of the manager.
    pub epoch: Epoch,
    /// Step of the reservation.
    pub step: StepId,
    /// Sequences that may run, in demand order. A demand that is missing here got nothing.
    pub granted: Vec<Grant>,
    /// Victims whose blocks were taken.
    pub preempted: Vec<SequenceId>,
    /// The state of the pool after all this.
    pub usage: KvUsage,
}

/// One sequence's share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// The sequence.
    pub sequence: SequenceId,
    /// First position to compute. For a start, the number of tokens found in the cache.
    pub start: Tokens,
    /// Tokens to compute, at least one, drafts included.
    pub count: Tokens,
    /// Blocks to append to its table. A start gets the blocks of all its known tokens at once, cached ones
    /// first, so a table may reach beyond what this step computes.
    pub new_blocks: Vec<BlockId>,
}

/// How full the pool is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KvUsage {
    /// Blocks held by sequences.
    pub used: u32,
    /// Blocks in the pool.
    pub total: u32,
    /// Tokens looked up in the prefix cache since the start.
    pub prefix_queries: u64,
    /// Of these, tokens found.
    pub prefix_hits: u64,
}

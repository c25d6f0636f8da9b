//! What must always hold, written once as pure functions.
//!
//! Unit tests, property tests, the seeded simulation and the debug assertions of the machines all call these;
//! none of them states a rule of its own. A function here sees plain data and never a machine's inside.

mod kv;
mod plan;
mod stream;

use crate::ids::{BlockId, Epoch, SequenceId, StepId};

pub use kv::{PoolView, blocks_balance};
pub use plan::{plan_is_sound, starts_in_order, victims_in_order};
pub use stream::{StepOrder, StreamLedger};

/// A broken rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// A reference count and the tables disagree.
    #[error("block {block} stands in {tables} tables but {counted} are counted")]
    WrongCount {
        /// The block.
        block: BlockId,
        /// Tables that hold it.
        tables: u32,
        /// Its reference count.
        counted: u32,
    },
    /// A free block is held, or a block is neither free nor held, or free twice.
    #[error("block {block} is held by {tables} tables and stands in the free list {free} times")]
    FreeListWrong {
        /// The block.
        block: BlockId,
        /// Tables that hold it.
        tables: u32,
        /// Times it is in the free list.
        free: u32,
    },
    /// A block id beyond the pool.
    #[error("block {block} is not in the pool")]
    NoSuchBlock {
        /// The block.
        block: BlockId,
    },
    /// A content leads to a block that does not carry it.
    #[error("block {block} is found by a content it does not hold")]
    StaleContent {
        /// The block.
        block: BlockId,
    },
    /// A plan without rows.
    #[error("step {step} has no rows")]
    EmptyPlan {
        /// The step.
        step: StepId,
    },
    /// More tokens than the budget allows.
    #[error("step {step} computes {tokens} tokens, more than its budget of {budget}")]
    OverBudget {
        /// The step.
        step: StepId,
        /// Tokens planned.
        tokens: u32,
        /// Tokens allowed.
        budget: u32,
    },
    /// More sequences than may run at once.
    #[error("step {step} has {sequences} sequences, more than {limit}")]
    TooManySequences {
        /// The step.
        step: StepId,
        /// Sequences planned.
        sequences: usize,
        /// Sequences allowed.
        limit: u32,
    },
    /// A sequence has two rows, an empty row, or is released and scheduled without being admitted.
    #[error("step {step} schedules sequence {sequence} wrongly: {why}")]
    BadRow {
        /// The step.
        step: StepId,
        /// The sequence.
        sequence: SequenceId,
        /// What is wrong.
        why: &'static str,
    },
    /// A sequence started although one before it in the waiting order did not.
    #[error("sequence {started} overtook sequence {waiting} in the waiting order")]
    Overtaken {
        /// The one that started.
        started: SequenceId,
        /// The one that should have.
        waiting: SequenceId,
    },
    /// A sequence that was not accepted, or ended before, produced something.
    #[error("sequence {sequence} produced something but is not open")]
    NotOpen {
        /// The sequence.
        sequence: SequenceId,
    },
    /// A token was lost or came twice.
    #[error("sequence {sequence} produced output token {got}, expected {expected}")]
    TokenOutOfOrder {
        /// The sequence.
        sequence: SequenceId,
        /// Index of the token that was due.
        expected: u32,
        /// Index of the token that came.
        got: u32,
    },
    /// A sequence was accepted twice.
    #[error("sequence {sequence} was accepted twice")]
    AcceptedTwice {
        /// The sequence.
        sequence: SequenceId,
    },
    /// A sequence is still open at the end.
    #[error("sequence {sequence} never ended")]
    NeverEnded {
        /// The sequence.
        sequence: SequenceId,
    },
    /// Epochs fell, or steps of one epoch did not count up by one.
    #[error("step {step} of epoch {epoch} followed step {last_step:?} of epoch {last_epoch}")]
    StepOutOfOrder {
        /// Epoch of the plan.
        epoch: Epoch,
        /// Step of the plan.
        step: StepId,
        /// Epoch before it.
        last_epoch: Epoch,
        /// Step before it in that epoch.
        last_step: Option<StepId>,
    },
    /// The scheduler's books disagree.
    #[error("sequence {sequence}: {why}")]
    Books {
        /// The sequence.
        sequence: SequenceId,
        /// What is wrong.
        why: &'static str,
    },
    /// A limit of the scheduler is exceeded.
    #[error("{what}: {count} is more than {limit}")]
    OverLimit {
        /// Which limit.
        what: &'static str,
        /// How many there are.
        count: usize,
        /// How many there may be.
        limit: u32,
    },
}

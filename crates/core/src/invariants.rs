//! What must always hold, written once as pure functions.
//!
//! Unit tests, property tests, the seeded simulation and the debug assertions of the machines all call these;
//! none of them states a rule of its own. A function here sees plain data and never a machine's inside.

mod graphs;
mod kv;
mod plan;
mod stream;
mod waiting;

use crate::graphs::GraphKey;
use crate::ids::{BlockId, Epoch, SequenceId, StepId, TokenId};
use crate::units::Bytes;

pub use graphs::{GraphsView, graphs_are_sound, launch_is_sound};
pub use kv::{PoolView, blocks_balance};
pub use plan::{plan_is_sound, starts_in_order, victims_in_order};
pub use stream::{StepOrder, StreamLedger};
pub use waiting::Waiting;

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
    /// Two graphs are being captured at once.
    #[error("{second} is being captured while {first} still is")]
    TwoCaptures {
        /// One.
        first: GraphKey,
        /// The other.
        second: GraphKey,
    },
    /// A graph is taken for ready although its device has gone.
    #[error("{key} was captured in epoch {epoch}, but this is epoch {current}")]
    GraphOfAnotherLife {
        /// The graph.
        key: GraphKey,
        /// Epoch of its capture.
        epoch: Epoch,
        /// Epoch of the device.
        current: Epoch,
    },
    /// Graphs take more than they may.
    #[error("{graphs} graphs take {bytes} bytes and {streams} streams, more than they may")]
    GraphsOverBudget {
        /// Ready graphs.
        graphs: usize,
        /// Their memory.
        bytes: Bytes,
        /// Their streams.
        streams: u32,
    },
    /// A step was replayed from a graph that does not take it.
    #[error("a step of {rows} rows was replayed from {key}: {why}")]
    BadLaunch {
        /// The graph.
        key: GraphKey,
        /// Rows of the step.
        rows: u32,
        /// What is wrong.
        why: &'static str,
    },
    /// A token is not the one that the sequence produces alone.
    #[error("sequence {sequence} produced {got} as output token {index}, expected {expected:?}")]
    WrongToken {
        /// The sequence.
        sequence: SequenceId,
        /// Its place in the output.
        index: u32,
        /// The token that came.
        got: TokenId,
        /// The token that was due; none when the output should have been complete.
        expected: Option<TokenId>,
    },
    /// A sequence was left out for too long.
    #[error("sequence {sequence} got nothing in {steps} steps")]
    Starved {
        /// The sequence.
        sequence: SequenceId,
        /// Steps without a token for it.
        steps: u64,
    },
}

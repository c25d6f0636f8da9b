//! Devices that run a step program.
//!
//! Promises: a [`Device`] runs the program it was made with over the inputs of one step, and a row's logits never
//! depend on the other rows, on how prompts are cut into chunks, or on the number of threads, bit for bit. Inputs
//! that make no sense are refused with a [`DeviceError`] before anything is computed.
//!
//! Refuses to know: requests, scheduling, files, sampling.
#![allow(unsafe_code)]

pub mod cpu;

use thiserror::Error;
use updraft_core::step::StepInputs;
use updraft_kernels::cpu_features::IsaError;
use updraft_kernels::kv_cache::KvCacheError;

/// One device with its weights and its KV cache. Lives on one thread.
pub trait Device {
    /// Tokens in the vocabulary: the length of a row of logits.
    fn vocab(&self) -> usize;

    /// Runs one step. Afterwards row `i` of the logits belongs to `inputs.logit_rows[i]`.
    ///
    /// # Errors
    /// When the inputs contradict themselves or the device's sizes; nothing has changed then.
    fn run(&mut self, inputs: &StepInputs) -> Result<(), DeviceError>;

    /// One row of the last step's logits, one value for each token of the vocabulary.
    ///
    /// # Panics
    /// When the last step had no such row.
    fn logits(&self, row: usize) -> &[f32];
}

/// Why a device cannot be made, or cannot run a step.
#[derive(Debug, Error)]
pub enum DeviceError {
    /// The KV cache cannot have this form.
    #[error(transparent)]
    KvCache(#[from] KvCacheError),
    /// The environment forces an instruction set that cannot be used.
    #[error(transparent)]
    Isa(#[from] IsaError),
    /// The system gives no more threads.
    #[error("cannot start {threads} compute threads: {source}; ask for fewer")]
    Threads {
        /// Threads asked for.
        threads: usize,
        /// What the system says.
        source: std::io::Error,
    },
    /// A step has more of something than the device was made for.
    #[error("a step of {actual} {what} does not fit this device, which takes {max}")]
    TooMany {
        /// What there is too much of.
        what: &'static str,
        /// How much.
        actual: usize,
        /// How much would fit.
        max: usize,
    },
    /// Two lists of the step do not belong together.
    #[error("the step's {what} do not belong together: {left} and {right}")]
    Mismatch {
        /// Which lists.
        what: &'static str,
        /// One side.
        left: usize,
        /// The other.
        right: usize,
    },
    /// A row names something that does not exist.
    #[error("row {row} names {what} {value}, but there are only {limit}")]
    OutOfRange {
        /// The row.
        row: usize,
        /// What it names.
        what: &'static str,
        /// The name.
        value: usize,
        /// The number of things that have one.
        limit: usize,
    },
    /// A row contradicts the sequence that it belongs to.
    #[error("row {row} has {what} {actual} where its sequence has {expected}")]
    Contradiction {
        /// The row.
        row: usize,
        /// What differs.
        what: &'static str,
        /// What the row says.
        actual: usize,
        /// What follows from the sequence.
        expected: usize,
    },
}

//! Why a device cannot be made, or cannot run a step.
//!
//! Two kinds that are never mixed up: inputs that make no sense (our own mistake, nothing was computed), and a
//! [`DeviceFault`], whose class says what it takes to go on.

use thiserror::Error;
use updraft_core::graphs::{GraphKey, GraphKind};
use updraft_core::recovery::DeviceFault;
use updraft_kernels::cpu_features::IsaError;
use updraft_kernels::kv_cache::KvCacheError;

/// Why a device cannot be made, or cannot run a step.
#[derive(Debug, Error)]
pub enum DeviceError {
    /// The device itself failed.
    #[error(transparent)]
    Fault(#[from] Box<DeviceFault>),
    /// A graph was asked for that has not been captured, or was dropped.
    #[error("there is no captured graph {0}; capture it first")]
    NoGraph(GraphKey),
    /// The device captures no such graphs.
    #[error("{device} captures no {} graphs", kind.as_str())]
    GraphKind {
        /// The device.
        device: String,
        /// What it does not capture.
        kind: GraphKind,
    },
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

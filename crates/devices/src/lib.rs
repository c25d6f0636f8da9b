//! Devices that run a step program.
//!
//! Promises: a [`Device`] runs the program it was made with over the inputs of one step, and a row's logits never
//! depend on the other rows, on how prompts are cut into chunks, on the number of threads, or on whether the step was
//! replayed from a graph, bit for bit. Inputs that make no sense are refused with a [`DeviceError`] before anything is
//! computed; a fault of the device itself is a [`DeviceError::Fault`] whose class says what it takes to go on.
//!
//! A step is the program's list of operations over buffers. A [`Stream`] runs it now ([`Stream::enqueue`]), or records
//! it once for a bucket of rows ([`Stream::capture`]) and runs the record with fresh inputs ([`Stream::replay`]).
//! All three return as soon as the work is handed over; [`Stream::synchronize`] waits for it and is where
//! errors of the work itself show.
//!
//! Refuses to know: requests, scheduling, files, sampling.
#![allow(unsafe_code)]
#![allow(clippy::unnecessary_box_returns, reason = "faults are large, and travel boxed in results")]

pub mod ascend;
mod check;
pub mod cpu;
mod error;
mod inputs;
mod progress;
pub mod twin;

use std::time::Duration;

use updraft_core::graphs::{GraphKey, GraphKind};
use updraft_core::program::BufferId;
use updraft_core::step::StepInputs;
use updraft_core::{Bytes, Rank};

pub use error::DeviceError;
pub use progress::Progress;

/// How long [`Device::run`] waits for a step.
const RUN_DEADLINE: Duration = Duration::from_secs(300);

/// One device with its weights and its KV cache. Lives on one thread.
pub trait Device {
    /// What it is.
    fn properties(&self) -> &Properties;

    /// What its memory is used for at the moment.
    fn memory(&self) -> MemoryUse;

    /// The counter that it advances while it works: with each operation that is handed over or recorded, and while
    /// [`Stream::synchronize`] waits. It shows that the thread gets on; a step that hangs on the device itself shows when
    /// the deadline of that wait has passed.
    fn progress(&self) -> Progress;

    /// The stream that steps run on.
    fn stream(&mut self) -> &mut dyn Stream;

    /// One row of the last synchronised step's logits, one value for each token of the vocabulary: row `i` belongs to
    /// `inputs.logit_rows[i]`.
    ///
    /// # Panics
    /// When the last step had no such row.
    fn logits(&self, row: usize) -> &[f32];

    /// What a graph of this key would take. An estimate before the first capture, the truth afterwards.
    fn graph_cost(&self, key: GraphKey) -> GraphCost;

    /// Gives the device new streams after a fault. Memory, weights and KV cache stay; graphs are void.
    ///
    /// # Errors
    /// When the device cannot be used any more.
    fn repair(&mut self) -> Result<(), DeviceError>;

    /// Of the last step, the time that the host needed before the device could compute. Absent where that is the time in
    /// which [`Stream::enqueue`] or [`Stream::replay`] return; a device that computes inside these calls knows better.
    fn host_time(&self) -> Option<Duration> {
        None
    }

    /// Whether a replay computes the rows that its graph has beyond the step's own.
    fn computes_padding(&self) -> bool {
        true
    }

    /// Its link to the other ranks of its group, if it has any.
    fn collective(&mut self) -> Option<&mut dyn Collective> {
        None
    }

    /// Runs one step eagerly and waits for it.
    ///
    /// # Errors
    /// As [`Stream::enqueue`] and [`Stream::synchronize`].
    fn run(&mut self, inputs: &StepInputs) -> Result<(), DeviceError> {
        let stream = self.stream();
        stream.enqueue(inputs)?;
        stream.synchronize(RUN_DEADLINE)
    }
}

/// A queue of steps on a device. At most one step is in it.
pub trait Stream {
    /// Starts one step, operation by operation.
    ///
    /// # Errors
    /// When the inputs contradict themselves or the device's sizes (nothing has changed then), or the device refuses.
    fn enqueue(&mut self, inputs: &StepInputs) -> Result<(), DeviceError>;

    /// Records the step for up to `key.rows` rows. Runs nothing that a later step could see. An older graph of the
    /// same key is dropped. Only while no step is running.
    ///
    /// # Errors
    /// When the device cannot record it; the stream is usable and graphs captured before are unharmed unless the fault's
    /// class says otherwise.
    fn capture(&mut self, key: GraphKey) -> Result<Graph, DeviceError>;

    /// Starts one step from a graph that takes it: of its kind, and with at least as many rows.
    ///
    /// # Errors
    /// As [`Stream::enqueue`], and [`DeviceError::NoGraph`].
    fn replay(&mut self, key: GraphKey, inputs: &StepInputs) -> Result<(), DeviceError>;

    /// Drops a graph, if there is one. Only while no step is running.
    fn forget(&mut self, key: GraphKey);

    /// Waits for the step, no longer than `deadline`. The device's [`Progress`] advances meanwhile, because the thread is
    /// alive; whether the step is, is for the deadline to say.
    ///
    /// # Errors
    /// What went wrong in the step; or a fault of the class `WaitMore` when `deadline` has passed and the step is still
    /// running.
    fn synchronize(&mut self, deadline: Duration) -> Result<(), DeviceError>;
}

/// The links between the devices of a group. Calls go onto the stream like any operation.
pub trait Collective {
    /// Place of this device in its group.
    fn rank(&self) -> Rank;

    /// Devices in the group.
    fn size(&self) -> u32;

    /// Adds up the first `rows` rows of a buffer over all ranks, in rank order, in place.
    ///
    /// # Errors
    /// When the device or a link refuses.
    fn all_reduce(&mut self, buffer: BufferId, rows: u32) -> Result<(), DeviceError>;
}

/// What a device is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Properties {
    /// Kind and number, for people and labels: `cpu`, `ascend:0`.
    pub name: String,
    /// The hardware, as its maker calls it: `Ascend910B3`.
    pub hardware: String,
    /// Tokens in the vocabulary: the length of a row of logits.
    pub vocab: usize,
    /// Which graphs it can capture.
    pub graph_kinds: Vec<GraphKind>,
    /// What all graphs together may take.
    pub graph_budget: GraphCost,
    /// What a captured graph is called in logs: `ACL graph`.
    pub graph_name: &'static str,
}

/// What a device's memory is used for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryUse {
    /// Weights.
    pub weights: Bytes,
    /// KV cache.
    pub kv: Bytes,
    /// Activations, inputs and workspaces.
    pub activations: Bytes,
    /// Captured graphs.
    pub graphs: Bytes,
}

/// What graphs take of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GraphCost {
    /// Memory.
    pub bytes: Bytes,
    /// Hardware streams.
    pub streams: u32,
}

/// A captured graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Graph {
    /// Its name.
    pub key: GraphKey,
    /// What it takes.
    pub cost: GraphCost,
    /// Operations in it.
    pub nodes: u32,
}

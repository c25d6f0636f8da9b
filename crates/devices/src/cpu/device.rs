//! [`CpuDevice`]: one life of an executor on the CPU.

use std::sync::Arc;

use updraft_core::program::{BufferId, Op, Rows};
use updraft_core::step::StepInputs;
use updraft_core::{Blocks, Bytes, Tokens};
use updraft_kernels::kv_cache::KvType;
use updraft_kernels::lanes::Simd;
use updraft_kernels::team::{Pinning, Team};

use super::inputs::Limits;
use super::load::CpuModel;
use super::memory::Memory;
use super::run::Run;
use crate::{Device, DeviceError};

/// Sizes of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuOptions {
    /// Compute threads, the caller of [`Device::run`] included. Zero counts as one.
    pub threads: usize,
    /// Blocks of the KV cache, in every layer.
    pub blocks: Blocks,
    /// Tokens in a block, a multiple of 16.
    pub block_size: Tokens,
    /// Type of keys and values in the cache.
    pub kv: KvType,
    /// Rows of a step, at most.
    pub max_rows: usize,
    /// Rows with logits of a step, at most.
    pub max_logit_rows: usize,
}

/// The CPU, with a thread team, a KV cache and activation buffers.
pub struct CpuDevice {
    model: Arc<CpuModel>,
    team: Team,
    simd: Simd,
    memory: Memory,
    limits: Limits,
    logits: BufferId,
    /// Rows of logits that the last step left.
    logit_rows: usize,
}

impl CpuDevice {
    /// Starts the threads and lays out all memory; no step allocates after this.
    ///
    /// # Errors
    /// When threads or the KV cache cannot be had, or the environment forces instructions that the machine lacks.
    pub fn new(model: Arc<CpuModel>, options: &CpuOptions) -> Result<Self, DeviceError> {
        let memory = Memory::new(&model, options)?;
        // Helpers are not bound to processors: several devices, or another busy process, would then fight for some
        // of them while others idle.
        let team = Team::new(options.threads, Pinning::Anywhere)
            .map_err(|source| DeviceError::Threads { threads: options.threads, source })?;
        let limits = Limits {
            rows: options.max_rows,
            logit_rows: options.max_logit_rows,
            blocks: options.blocks.0 as usize,
            block_size: options.block_size.0 as usize,
            tokens: table_rows(&model),
            positions: Limits::positions_of(model.program()),
        };
        // A loaded model has a logits buffer: its program was checked.
        let logits = model.program().logits.unwrap_or(BufferId(0));
        Ok(Self { model, team, simd: Simd::selected()?, memory, limits, logits, logit_rows: 0 })
    }

    /// Memory of activations, if a step used all rows; less is taken as long as steps are smaller.
    #[must_use]
    pub fn activation_bytes(&self) -> Bytes {
        Bytes(self.memory.activation_bytes() as u64)
    }
}

impl Device for CpuDevice {
    fn vocab(&self) -> usize {
        self.model.vocab()
    }

    fn run(&mut self, inputs: &StepInputs) -> Result<(), DeviceError> {
        self.limits.check(inputs)?;
        let buffers = &self.model.program().buffers;
        let kind = |index: usize| buffers[index].rows;
        self.memory.trim(self.logit_rows, |index| kind(index) == Rows::Logits);
        // Stays at zero if a worker panics.
        self.logit_rows = 0;
        let rows = |rows| match rows {
            Rows::Tokens => inputs.rows(),
            Rows::Logits => inputs.logit_rows.len(),
        };
        self.memory.begin(inputs, |buffer| rows(kind(buffer.0 as usize)));
        let run = Run { model: &self.model, memory: &self.memory, inputs, simd: self.simd };
        self.team.run(|worker| run.stages(worker));
        self.logit_rows = inputs.logit_rows.len();
        Ok(())
    }

    fn logits(&self, row: usize) -> &[f32] {
        assert!(row < self.logit_rows, "logit row {row} of {}", self.logit_rows);
        // SAFETY: the team only works while `run` holds `&mut self`, so nobody writes now.
        unsafe { self.memory.buffer(self.logits).row(row) }
    }
}

impl std::fmt::Debug for CpuDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CpuDevice").field("limits", &self.limits).finish_non_exhaustive()
    }
}

/// Token ids that every embedding table of the model has a row for.
fn table_rows(model: &CpuModel) -> usize {
    let tables = model.program().ops.iter().filter_map(|op| match op {
        Op::Embed { table, .. } => model.matrix(*table),
        _ => None,
    });
    tables.map(updraft_kernels::matrix::PackedMatrix::rows).min().unwrap_or(usize::MAX)
}

//! Running the stages of one step, on every worker of a team at once.
//!
//! How workers keep apart, which is the safety argument of this file: in a stage of rows, one worker has a row for the
//! whole chain, and nothing in a chain touches another row of a buffer that the chain writes. In a stage of
//! products, workers have different tiles of columns, and no product reads what another one writes. Attention keeps its
//! own workers apart. Between stages stands a barrier. [`super::stages`] sorts operations so that all this holds.

use std::sync::PoisonError;

use updraft_core::program::RopePairing;
use updraft_core::program::{Activation, Rows};
use updraft_core::step::StepInputs;
use updraft_kernels::attention::{Attention, Plan};
use updraft_kernels::elementwise::{self, RopeRow};
use updraft_kernels::lanes::Simd;
use updraft_kernels::team::Worker;

use super::load::CpuModel;
use super::memory::Memory;
use super::stages::{AttentionOp, Product, RowOp, Stage};
use crate::Progress;

/// Rows that are interleaved where products read them; workers do best to take them together.
const ROWS_TOGETHER: usize = 8;

/// Pieces for each worker into which the tiles of a product are cut: enough to even out, few enough to be long.
const PIECES: usize = 4;

/// One step.
pub(super) struct Run<'a> {
    pub(super) model: &'a CpuModel,
    pub(super) memory: &'a Memory,
    pub(super) inputs: &'a StepInputs,
    pub(super) simd: Simd,
    /// How each attention shape is divided in this step.
    pub(super) plans: &'a [Plan],
    pub(super) progress: &'a Progress,
}

impl Run<'_> {
    /// One worker's part of the step.
    pub(super) fn stages(&self, worker: &Worker<'_>) {
        for (index, stage) in self.model.stages().order.iter().enumerate() {
            if index > 0 {
                worker.barrier();
            }
            self.note_progress(worker);
            match stage {
                Stage::Rows { kind, ops } => self.rows(worker, *kind, ops),
                Stage::Products(products) => {
                    for product in products {
                        self.product(worker, product);
                    }
                }
                Stage::Attention(op) => self.attention(worker, op),
            }
        }
    }

    /// One worker speaks for all: they meet at every barrier.
    fn note_progress(&self, worker: &Worker<'_>) {
        if worker.index() == 0 {
            self.progress.tick();
        }
    }

    fn rows(&self, worker: &Worker<'_>, kind: Rows, ops: &[RowOp]) {
        let rows = match kind {
            Rows::Tokens => self.inputs.rows(),
            Rows::Logits => self.inputs.logit_rows.len(),
        };
        let together = if rows >= ROWS_TOGETHER * worker.count() { ROWS_TOGETHER } else { 1 };
        for range in worker.share(rows, together) {
            for row in range {
                for op in ops {
                    // SAFETY: this worker alone has the row in this stage.
                    unsafe { self.row(op, row) };
                }
            }
        }
    }

    /// Runs a row-wise operation on one row.
    ///
    /// # Safety
    /// Nobody else touches this row of the operation's buffers, nor writes a row that it takes.
    unsafe fn row(&self, op: &RowOp, row: usize) {
        let (memory, simd) = (self.memory, self.simd);
        // SAFETY: reading is allowed as long as nobody writes, which is the caller's promise.
        let read = |buffer| unsafe { memory.buffer(buffer).row(row) };
        // SAFETY: nobody else touches the row, which is the caller's promise; a program uses different buffers
        // within one operation (checked at loading), so that slices do not overlap.
        let write = |buffer| unsafe { memory.buffer(buffer).row_mut(row) };
        match *op {
            RowOp::RopeAngles { rope } => {
                let spec = &self.model.program().ropes[rope.0 as usize];
                let angles = &memory.angles[rope.0 as usize];
                // SAFETY: the caller's promise.
                let (cos, sin) = unsafe { (angles.cos.row_mut(row), angles.sin.row_mut(row)) };
                let position = self.inputs.positions[row];
                elementwise::rope_angles(position, &spec.inverse_frequencies, spec.factor, cos, sin);
            }
            RowOp::Prepare { buffer } => {
                if let Some(prepared) = memory.prepared(buffer) {
                    // SAFETY: the caller's promise; products read it behind the next barrier.
                    unsafe { prepared.write(row, read(buffer)) };
                }
            }
            RowOp::Embed { table, out, scale } => {
                if let Some(table) = self.model.matrix(table) {
                    table.dequantize_row(self.inputs.token_ids[row] as usize, write(out));
                }
                if scale.to_bits() != 1.0_f32.to_bits() {
                    elementwise::scale(simd, write(out), scale);
                }
            }
            RowOp::RmsNorm { input, vector, epsilon, out } => {
                elementwise::rms_norm(simd, read(input), self.model.vector(vector), epsilon, write(out));
            }
            RowOp::HeadNorm { buffer, vector, epsilon } => {
                elementwise::head_norm(simd, write(buffer), self.model.vector(vector), epsilon);
            }
            RowOp::Rope { buffer, head_dim, rope } => {
                let angles = &memory.angles[rope.0 as usize];
                let pairing = self.model.program().ropes[rope.0 as usize].pairing;
                // SAFETY: angles are written in an earlier stage, or earlier in this chain by this worker.
                let (cos, sin) = unsafe { (angles.cos.row(row), angles.sin.row(row)) };
                let turn = RopeRow { cos, sin, neighbours: pairing == RopePairing::Neighbours };
                elementwise::rope(simd, write(buffer), head_dim, turn);
            }
            RowOp::WriteKv { layer, key, value } => {
                let slot = self.inputs.slots[row].0 as usize;
                // SAFETY: attention reads the cache in another stage.
                unsafe { memory.caches[layer].write(slot, read(key), read(value)) };
            }
            RowOp::Gate { gate, up, out, activation } => match activation {
                Activation::Silu => elementwise::gate_silu(simd, read(gate), read(up), write(out)),
                Activation::GeluTanh => elementwise::gate_gelu_tanh(simd, read(gate), read(up), write(out)),
            },
            RowOp::Add { into, input } => elementwise::add(simd, write(into), read(input)),
            RowOp::TakeLogitRows { input, out } => {
                let from = self.inputs.logit_rows[row] as usize;
                // SAFETY: rows of tokens are written in other stages than rows of logits.
                write(out).copy_from_slice(unsafe { memory.buffer(input).row(from) });
            }
        }
    }

    fn product(&self, worker: &Worker<'_>, product: &Product) {
        let Some(matrix) = self.model.matrix(product.weight) else { return };
        let Some(prepared) = self.memory.prepared(product.input) else { return };
        let input = prepared.input();
        if input.rows() == 0 {
            return;
        }
        let bias = product.bias.map(|bias| self.model.vector(bias));
        // SAFETY: each tile of columns goes to one worker; nobody else touches the buffer in this stage.
        let out = unsafe { self.memory.buffer(product.out).output() };
        let tiles = matrix.tiles();
        for tiles in worker.share(tiles, tiles.div_ceil(PIECES * worker.count())) {
            matrix.multiply(input, bias, tiles, &out);
            self.note_progress(worker);
        }
    }

    fn attention(&self, worker: &Worker<'_>, op: &AttentionOp) {
        let memory = self.memory;
        let (shape, plan) = (&memory.shapes[op.shape], &self.plans[op.shape]);
        let attention = Attention {
            shape: *shape,
            cache: &memory.caches[op.layer],
            query: memory.buffer(op.query),
            out: memory.buffer(op.out),
            spans: &memory.spans,
            tables: &memory.tables,
            plan,
        };
        let mut scratch = memory.scratch[worker.index()].lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: every worker runs the same stages in the same order; in this one nobody does anything else.
        unsafe { attention.run(worker, self.simd, &mut scratch) };
    }
}

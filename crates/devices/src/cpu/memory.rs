//! What a device keeps between steps: activation buffers, prepared inputs, KV caches, and each worker's scratch.
//!
//! Everything has its full size from the start; pages that no step has touched take no memory.

use std::sync::Mutex;

use updraft_core::Bytes;
use updraft_core::program::{BufferId, Program, Rows};
use updraft_core::step::StepInputs;
use updraft_kernels::activations::{ActivationRows, Activations, InputForm};
use updraft_kernels::attention::{Scratch, Shape, Span};
use updraft_kernels::kv_cache::{KvCache, KvGeometry, KvType};
use updraft_kernels::team::SharedRows;

use super::device::CpuOptions;
use super::load::CpuModel;
use super::stages::AttentionShape;
use crate::DeviceError;

/// Logit rows whose memory is kept. Steps that want more (prompt log-probabilities) give theirs back.
const LOGIT_ROWS_KEPT: usize = 64;

/// All memory of a device.
pub(super) struct Memory {
    pub(super) buffers: Vec<SharedRows>,
    /// For each buffer that products read, the form in which they read it.
    pub(super) prepared: Vec<Option<Prepared>>,
    /// For each rotary table.
    pub(super) angles: Vec<Angles>,
    /// For each KV layer.
    pub(super) caches: Vec<KvCache>,
    /// The attention shapes of the program.
    pub(super) shapes: Vec<Shape>,
    /// For each worker; never contended.
    pub(super) scratch: Vec<Mutex<Scratch>>,
    /// The step's sequences.
    pub(super) spans: Vec<Span>,
    /// The step's block tables.
    pub(super) tables: Vec<u32>,
    /// The rows that `prepared` is ready for.
    readied: Option<StepRows>,
}

/// Rows of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StepRows {
    pub(super) tokens: usize,
    pub(super) logits: usize,
}

impl StepRows {
    pub(super) fn new(inputs: &StepInputs) -> Self {
        Self { tokens: inputs.rows(), logits: inputs.logit_rows.len() }
    }

    pub(super) fn of(self, kind: Rows) -> usize {
        match kind {
            Rows::Tokens => self.tokens,
            Rows::Logits => self.logits,
        }
    }
}

/// Cosine and sine of each row's position.
pub(super) struct Angles {
    pub(super) cos: SharedRows,
    pub(super) sin: SharedRows,
}

impl Memory {
    pub(super) fn new(model: &CpuModel, options: &CpuOptions) -> Result<Self, DeviceError> {
        let (program, stages) = (model.program(), model.stages());
        let rows_of = |rows| match rows {
            Rows::Tokens => options.max_rows,
            Rows::Logits => options.max_logit_rows,
        };
        let shapes: Vec<Shape> = stages.shapes.iter().map(kernel_shape).collect();
        let prepared = program.buffers.iter().zip(&stages.forms).map(|(buffer, form)| {
            form.map(|form| Prepared::new(rows_of(buffer.rows), buffer.width as usize, form))
        });
        let caches = program.kv_layers.iter().map(|layer| {
            let geometry = KvGeometry {
                kv_heads: layer.kv_heads as usize,
                head_dim: layer.head_dim as usize,
                block_size: options.block_size.0 as usize,
                blocks: options.blocks.0 as usize,
            };
            KvCache::new(options.kv, geometry)
        });
        let angles = program.ropes.iter().map(|rope| {
            let rows = || SharedRows::new(options.max_rows, rope.inverse_frequencies.len());
            Angles { cos: rows(), sin: rows() }
        });
        let threads = options.threads.max(1);
        let buffers = program.buffers.iter();
        Ok(Self {
            buffers: buffers.map(|b| SharedRows::new(rows_of(b.rows), b.width as usize)).collect(),
            prepared: prepared.collect(),
            angles: angles.collect(),
            caches: caches.collect::<Result<_, _>>()?,
            scratch: (0..threads).map(|_| Mutex::new(Scratch::new(&shapes))).collect(),
            shapes,
            spans: Vec::with_capacity(options.max_rows),
            tables: Vec::with_capacity(options.max_rows + options.blocks.0 as usize),
            readied: None,
        })
    }

    /// Takes over what attention needs to know of a step.
    pub(super) fn refresh(&mut self, inputs: &StepInputs) {
        self.spans.clear();
        self.spans.extend(inputs.spans.iter().map(|span| Span {
            row_start: span.row_start,
            row_count: span.row_count,
            context: span.context,
            table_start: span.table_start,
            table_len: span.table_len,
        }));
        self.tables.clear();
        self.tables.extend(inputs.block_tables.iter().map(|block| block.0));
    }

    /// Readies the products' inputs for so many rows of either kind.
    pub(super) fn ready(&mut self, rows: StepRows, kind_of: impl Fn(usize) -> Rows) {
        self.readied = Some(rows);
        for (index, prepared) in self.prepared.iter_mut().enumerate() {
            if let Some(prepared) = prepared {
                prepared.begin(rows.of(kind_of(index)));
            }
        }
    }

    /// Whether the products' inputs are ready for just these rows.
    pub(super) fn is_ready_for(&self, rows: StepRows) -> bool {
        self.readied == Some(rows)
    }

    /// Gives back what an unusually large last step has left.
    pub(super) fn trim(&mut self, last_logit_rows: usize, is_logits: impl Fn(usize) -> bool) {
        if last_logit_rows <= LOGIT_ROWS_KEPT {
            return;
        }
        for (index, buffer) in self.buffers.iter_mut().enumerate() {
            if is_logits(index) {
                buffer.discard();
            }
        }
    }

    /// Bytes of everything but the KV caches, if every row were used.
    pub(super) fn activation_bytes(&self) -> usize {
        let buffers = self.buffers.iter().map(SharedRows::bytes);
        let angles = self.angles.iter().map(|angles| angles.cos.bytes() + angles.sin.bytes());
        let prepared = self.prepared.iter().flatten().map(|prepared| prepared.bytes);
        buffers.chain(angles).chain(prepared).sum()
    }

    pub(super) fn buffer(&self, id: BufferId) -> &SharedRows {
        &self.buffers[id.0 as usize]
    }

    pub(super) fn prepared(&self, id: BufferId) -> Option<&Prepared> {
        self.prepared[id.0 as usize].as_ref()
    }
}

/// Memory that one token takes in the KV cache, over all layers.
#[must_use]
pub fn kv_bytes_per_token(program: &Program, kind: KvType) -> Bytes {
    let bytes = program
        .kv_layers
        .iter()
        .map(|layer| KvCache::bytes_per_token(kind, layer.kv_heads as usize, layer.head_dim as usize) as u64);
    Bytes(bytes.sum())
}

fn kernel_shape(shape: &AttentionShape) -> Shape {
    let AttentionShape { heads, kv_heads, head_dim, scale, window } = *shape;
    Shape { heads, kv_heads, head_dim, scale, window }
}

/// A buffer in the form that products read, written row by row by all workers.
pub(super) struct Prepared {
    /// Behind it stands the memory that `writer` points into.
    activations: Activations,
    writer: Option<ActivationRows<'static>>,
    width: usize,
    form: InputForm,
    bytes: usize,
}

impl Prepared {
    fn new(rows: usize, width: usize, form: InputForm) -> Self {
        let bytes = form.bytes_of(rows, width);
        Self { activations: Activations::with_capacity(rows, width), writer: None, width, form, bytes }
    }

    fn begin(&mut self, rows: usize) {
        self.writer = None;
        let writer = self.activations.begin(rows, self.width, self.form);
        // SAFETY: the writer points into memory that `activations` owns wherever it is moved. That memory is only
        // replaced by `begin`, which comes here, after the last writer was dropped; `self` is dropped as a whole.
        // Stages keep readers and writers apart: between them stands a barrier.
        let writer = unsafe { std::mem::transmute::<ActivationRows<'_>, ActivationRows<'static>>(writer) };
        self.writer = Some(writer);
    }

    /// Puts a row into the products' form.
    ///
    /// # Safety
    /// Nobody else writes this row, and nobody reads the input, at the same time.
    pub(super) unsafe fn write(&self, row: usize, values: &[f32]) {
        if let Some(writer) = &self.writer {
            // SAFETY: the caller's promise.
            unsafe { writer.write(row, values) };
        }
    }

    /// All rows, for products.
    pub(super) fn input(&self) -> &Activations {
        &self.activations
    }
}

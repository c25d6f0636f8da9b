//! A step's inputs on their way to the device, and its logits on their way back.
//!
//! Inputs are written into pinned memory and copied from there to fixed addresses; the next step writes the same pinned
//! memory again, which is safe because a step is synchronised before the next one starts.

use std::rc::Rc;

use updraft_core::step::StepInputs;

use super::error::Fault;
use super::lower::{Model, Sizes};
use super::runtime::{Api, PinnedBuffer, Stream};

/// How a step is filled up to the rows of a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Padding {
    /// Not at all.
    None,
    /// Each row for nobody is a sequence of its own, with logits.
    Sequences(u32),
    /// Rows for nobody are one sequence.
    OneSequence(u32),
    /// Attention does not see rows for nobody.
    Unseen(u32),
}

/// Sizes of a step that was staged.
#[derive(Debug, Default)]
pub(super) struct Shape {
    /// Rows that kernels compute.
    pub(super) rows: u32,
    /// Rows that attention computes.
    pub(super) seen: u32,
    /// Rows of logits that kernels compute.
    pub(super) logit_rows: u32,
    /// Rows up to the end of each sequence.
    pub(super) lengths: Vec<i64>,
    /// Tokens of each sequence.
    pub(super) lengths_kv: Vec<i64>,
    /// Sequences that are somebody's; those for nobody come behind them.
    pub(super) sequences: usize,
    /// Blocks in a row of the block table.
    pub(super) stride: usize,
    /// Whether every sequence has one row.
    pub(super) decodes: bool,
}

/// Pinned memory.
#[derive(Debug)]
pub(super) struct Staging {
    rows: PinnedBuffer,
    logit_rows: PinnedBuffer,
    tables: PinnedBuffer,
    logits: PinnedBuffer,
    vocab: usize,
    pub(super) shape: Shape,
}

impl Staging {
    pub(super) fn new(api: &Rc<Api>, sizes: &Sizes, vocab: usize) -> Result<Self, Fault> {
        let buffer = |integers: usize| PinnedBuffer::new(api, integers.max(1) * size_of::<i32>());
        let tables = sizes.table_rows() * sizes.table_stride();
        let logits = PinnedBuffer::new(api, sizes.logit_rows.max(1) * vocab * size_of::<f32>())?;
        let shape = Shape {
            lengths: Vec::with_capacity(sizes.table_rows()),
            lengths_kv: Vec::with_capacity(sizes.table_rows()),
            ..Shape::default()
        };
        let rows = buffer(Sizes::packed(sizes.rows))?;
        Ok(Self {
            rows,
            logit_rows: buffer(sizes.logit_rows)?,
            tables: buffer(tables)?,
            logits,
            vocab,
            shape,
        })
    }

    /// Writes the inputs of a step, which were checked, and says in [`Self::shape`] what came of them.
    pub(super) fn fill(&mut self, sizes: &Sizes, inputs: &StepInputs, padding: Padding) {
        let real = inputs.rows();
        let rows = match padding {
            Padding::None => real,
            Padding::Sequences(rows) | Padding::OneSequence(rows) | Padding::Unseen(rows) => {
                real.max(rows as usize)
            }
        };
        self.fill_rows(sizes, inputs, rows);
        self.fill_logit_rows(inputs, if matches!(padding, Padding::Sequences(_)) { rows } else { 0 });
        self.shape.rows = rows as u32;
        self.shape.seen = if matches!(padding, Padding::Unseen(_)) { real } else { rows } as u32;
        self.fill_sequences(sizes, inputs, padding);
    }

    fn fill_rows(&mut self, sizes: &Sizes, inputs: &StepInputs, rows: usize) {
        let real = inputs.rows();
        let piece = Sizes::packed(rows) / 3;
        let nobody = sizes.blocks * sizes.block_size;
        let integers = self.rows.integers();
        let (tokens, rest) = integers.split_at_mut(piece);
        let (positions, slots) = rest.split_at_mut(piece);
        for (to, token) in tokens.iter_mut().zip(&inputs.token_ids) {
            *to = *token as i32;
        }
        for (to, position) in positions.iter_mut().zip(&inputs.positions) {
            *to = *position as i32;
        }
        for (to, slot) in slots.iter_mut().zip(&inputs.slots) {
            *to = slot.0 as i32;
        }
        // Rows for nobody write to blocks that are nobody's; no slot may be written twice.
        for row in real..rows {
            tokens[row] = 0;
            positions[row] = 0;
            slots[row] = (nobody + row - real) as i32;
        }
    }

    fn fill_logit_rows(&mut self, inputs: &StepInputs, at_least: usize) {
        let count = inputs.logit_rows.len().max(at_least);
        let rows = self.logit_rows.integers();
        for (to, row) in rows.iter_mut().zip(&inputs.logit_rows) {
            *to = *row as i32;
        }
        rows[inputs.logit_rows.len()..count].fill(0);
        self.shape.logit_rows = count as u32;
    }

    fn fill_sequences(&mut self, sizes: &Sizes, inputs: &StepInputs, padding: Padding) {
        let needed = |context: u32| (context as usize).div_ceil(sizes.block_size);
        let largest = inputs.spans.iter().map(|span| needed(span.context)).max().unwrap_or(1);
        let shape = &mut self.shape;
        shape.stride = if padding == Padding::None { largest.max(1) } else { sizes.table_stride() };
        shape.decodes = inputs.spans.iter().all(|span| span.row_count == 1);
        shape.sequences = inputs.spans.len();
        shape.lengths.clear();
        shape.lengths_kv.clear();
        let tables = self.tables.integers();
        // What is behind a sequence's own blocks is never read; it names blocks that exist, from earlier steps.
        for (span, table) in inputs.spans.iter().zip(tables.chunks_exact_mut(shape.stride)) {
            let blocks = inputs.block_tables.iter().skip(span.table_start as usize);
            for (to, block) in table.iter_mut().zip(blocks.take(needed(span.context))) {
                *to = block.0 as i32;
            }
            shape.lengths.push(i64::from(span.row_start + span.row_count));
            shape.lengths_kv.push(i64::from(span.context));
        }
        let (real, rows) = (inputs.rows(), shape.rows as usize);
        let nobody = sizes.blocks as i32;
        let mut free = tables.chunks_exact_mut(shape.stride).skip(inputs.spans.len());
        match padding {
            Padding::Sequences(_) => {
                for (row, table) in (real..rows).zip(free) {
                    table[0] = nobody;
                    shape.lengths.push(row as i64 + 1);
                    shape.lengths_kv.push(1);
                }
            }
            Padding::OneSequence(_) if rows > real => {
                if let Some(table) = free.next() {
                    let blocks = needed((rows - real) as u32).min(table.len());
                    for (to, block) in table[..blocks].iter_mut().zip(nobody..) {
                        *to = block;
                    }
                    shape.lengths.push(rows as i64);
                    shape.lengths_kv.push((rows - real) as i64);
                    shape.decodes &= rows - real == 1;
                }
            }
            _ => {}
        }
    }

    /// Copies what was written to where kernels look for it.
    pub(super) fn upload(&self, model: &Model, stream: &Stream) -> Result<(), Fault> {
        let bytes = |integers: usize| integers * size_of::<i32>();
        let (inputs, shape) = (&model.inputs, &self.shape);
        stream.upload(&self.rows, &inputs.rows, bytes(Sizes::packed(shape.rows as usize)))?;
        stream.upload(&self.logit_rows, &inputs.logit_rows, bytes(shape.logit_rows as usize))?;
        stream.upload(&self.tables, &inputs.tables, bytes(shape.lengths.len() * shape.stride))
    }

    /// Fetches the first rows of logits.
    pub(super) fn download(&self, model: &Model, stream: &Stream, rows: usize) -> Result<(), Fault> {
        match model.logits() {
            Some(logits) => stream.download(logits, &self.logits, rows * self.vocab * size_of::<f32>()),
            None => Ok(()),
        }
    }

    /// A row of the logits that were fetched.
    pub(super) fn logits(&self, row: usize) -> &[f32] {
        &self.logits.floats()[row * self.vocab..(row + 1) * self.vocab]
    }
}

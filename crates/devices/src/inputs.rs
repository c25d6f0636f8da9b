//! Whether a step's inputs make sense for a device: everything that a kernel would index with is checked here.

use updraft_core::program::Program;
use updraft_core::step::{SequenceSpan, StepInputs};

use crate::DeviceError;

/// What inputs may name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) rows: usize,
    pub(crate) logit_rows: usize,
    pub(crate) blocks: usize,
    pub(crate) block_size: usize,
    /// Rows of the embedding table.
    pub(crate) tokens: usize,
    /// Positions that rotary tables cover.
    pub(crate) positions: usize,
}

impl Limits {
    /// The positions that all rotary tables of a program cover.
    pub(crate) fn positions_of(program: &Program) -> usize {
        program.ropes.iter().map(|rope| rope.max_positions as usize).min().unwrap_or(usize::MAX)
    }

    /// Refuses inputs that name what does not exist or contradict themselves.
    pub(crate) fn check(&self, inputs: &StepInputs) -> Result<(), DeviceError> {
        let rows = inputs.rows();
        at_most("rows", rows, self.rows)?;
        at_most("logit rows", inputs.logit_rows.len(), self.logit_rows)?;
        equal("tokens and positions", rows, inputs.positions.len())?;
        equal("tokens and slots", rows, inputs.slots.len())?;
        for (row, token) in inputs.token_ids.iter().enumerate() {
            below(row, "token", *token as usize, self.tokens)?;
        }
        for (index, row) in inputs.logit_rows.iter().enumerate() {
            below(index, "logit row", *row as usize, rows)?;
        }
        let mut next = 0;
        for span in &inputs.spans {
            equal("spans and rows", span.row_start as usize, next)?;
            self.check_span(inputs, span)?;
            next += span.row_count as usize;
        }
        equal("spans and rows", next, rows)
    }

    fn check_span(&self, inputs: &StepInputs, span: &SequenceSpan) -> Result<(), DeviceError> {
        let (start, count) = (span.row_start as usize, span.row_count as usize);
        let context = span.context as usize;
        at_most("rows", start + count, inputs.rows())?;
        at_most("rows of one sequence", count, context)?;
        below(start, "position", context.saturating_sub(1), self.positions)?;
        let table = inputs
            .block_tables
            .get(span.table_start as usize..span.table_start as usize + span.table_len as usize)
            .ok_or(DeviceError::Mismatch {
                what: "spans and block tables",
                left: span.table_start as usize + span.table_len as usize,
                right: inputs.block_tables.len(),
            })?;
        let needed = context.div_ceil(self.block_size);
        if table.len() < needed {
            return Err(DeviceError::Mismatch {
                what: "context and block table",
                left: context,
                right: table.len() * self.block_size,
            });
        }
        for block in &table[..needed] {
            below(start, "block", block.0 as usize, self.blocks)?;
        }
        for row in start..start + count {
            let position = context - count + (row - start);
            agree(row, "position", inputs.positions[row] as usize, position)?;
            let block = table[position / self.block_size].0 as usize;
            let slot = block * self.block_size + position % self.block_size;
            below(row, "slot", inputs.slots[row].0 as usize, self.blocks * self.block_size)?;
            agree(row, "slot", inputs.slots[row].0 as usize, slot)?;
        }
        Ok(())
    }
}

fn at_most(what: &'static str, actual: usize, max: usize) -> Result<(), DeviceError> {
    if actual <= max { Ok(()) } else { Err(DeviceError::TooMany { what, actual, max }) }
}

fn equal(what: &'static str, left: usize, right: usize) -> Result<(), DeviceError> {
    if left == right { Ok(()) } else { Err(DeviceError::Mismatch { what, left, right }) }
}

fn below(row: usize, what: &'static str, value: usize, limit: usize) -> Result<(), DeviceError> {
    if value < limit { Ok(()) } else { Err(DeviceError::OutOfRange { row, what, value, limit }) }
}

fn agree(row: usize, what: &'static str, actual: usize, expected: usize) -> Result<(), DeviceError> {
    if actual == expected { Ok(()) } else { Err(DeviceError::Contradiction { row, what, actual, expected }) }
}

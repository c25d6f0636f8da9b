//! The input side of a matrix product: rows of numbers, in the forms that packed matrices read.
//!
//! An [`Activations`] is a scratch that is filled again and again. A row is written (and quantised) once and
//! then shared by every matrix that takes it. Rows are interleaved in blocks of up to [`ROW_BLOCK`], so that
//! a kernel which works on one block walks through memory in one stream; how rows fall into blocks changes
//! speed only.
//!
//! In the quantised form a row is cut into groups of 32 values, each with its own scale: the largest
//! magnitude becomes 127. What a group of finite values becomes depends on these alone, on every instruction set.

#![allow(clippy::inline_always, reason = "part of the functions compiled for an instruction set")]

mod form;
mod quantize;
mod split;
#[cfg(test)]
mod tests;

pub use form::InputForm;
pub(crate) use quantize::{GroupUnit, quantize};
pub(crate) use split::{SPLIT_BLOCK, SPLIT_STEP_WORDS, part_words};

use std::marker::PhantomData;
use std::ptr::NonNull;

use crate::cpu_features::Isa;
use crate::matrix::vectors::{Task, Vectors, dispatch};
use crate::memory::{AlignedVec, Plain};

/// Values that share a scale in the quantised form.
pub const GROUP: usize = 32;

/// Rows that are interleaved with each other; the last rows form smaller blocks.
pub(crate) const ROW_BLOCK: usize = 16;

/// 32 quantised values of one row, with everything a kernel needs to know about them: one cache line.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(crate) struct QuantizedGroup {
    /// 32 integers in `-127..=127`, four to a word, the lowest byte first.
    pub(crate) words: [i32; 8],
    /// Value of one unit.
    pub(crate) scale: f32,
    /// Sum of the integers, times the scale: what a constant weight of 1 would yield.
    pub(crate) scaled_sum: f32,
    /// Minus the sum of the integers, times 8, 16 and 128: a dot product with unsigned weights of these zero
    /// points starts from here.
    pub(crate) starts: [i32; 3],
    /// The same for the first and the second 16 values, times 32.
    pub(crate) half_starts: [i32; 2],
    reserved: i32,
}

impl QuantizedGroup {
    /// Where a dot product with weights of this zero point (8, 16 or 128) starts from.
    #[inline(always)]
    pub(crate) fn start(&self, zero_point: i32) -> i32 {
        match zero_point {
            8 => self.starts[0],
            16 => self.starts[1],
            _ => self.starts[2],
        }
    }
}

// SAFETY: numbers only, every bit pattern is a value; 16 words of 4 bytes leave no padding.
unsafe impl Plain for QuantizedGroup {}

/// Input rows of a matrix product, in one or several forms.
#[derive(Debug, Default)]
pub struct Activations {
    rows: usize,
    cols: usize,
    form: InputForm,
    floats: AlignedVec<f32>,
    groups: AlignedVec<QuantizedGroup>,
    halves: AlignedVec<u32>,
}

impl Activations {
    /// A scratch that takes up to `rows` rows of up to `cols` values without allocating again. Memory that is
    /// never used (a form that is never asked for, rows that never come) is never really taken.
    #[must_use]
    pub fn with_capacity(rows: usize, cols: usize) -> Self {
        Self {
            floats: AlignedVec::zeroed(rows.next_multiple_of(ROW_BLOCK) * cols),
            groups: AlignedVec::zeroed(rows.next_multiple_of(ROW_BLOCK) * cols.div_ceil(GROUP)),
            halves: AlignedVec::zeroed(rows.next_multiple_of(SPLIT_BLOCK) * split::row_words(cols)),
            ..Self::default()
        }
    }

    /// Starts over with `rows` rows of `cols` values. The content is unspecified until every row is written
    /// through the value returned.
    pub fn begin(&mut self, rows: usize, cols: usize, form: InputForm) -> ActivationRows<'_> {
        let room = RowBlock::room(rows);
        if form.has_floats() && self.floats.len() < room * cols {
            self.floats = AlignedVec::zeroed(room * cols);
        }
        if form.has_groups() && self.groups.len() < room * cols.div_ceil(GROUP) {
            self.groups = AlignedVec::zeroed(room * cols.div_ceil(GROUP));
        }
        let halves = rows.next_multiple_of(SPLIT_BLOCK) * split::row_words(cols);
        if form.has_halves() && self.halves.len() < halves {
            self.halves = AlignedVec::zeroed(halves);
        }
        (self.rows, self.cols, self.form) = (rows, cols, form);
        ActivationRows {
            rows,
            cols,
            form,
            isa: Isa::selected().unwrap_or(Isa::Portable),
            floats: self.floats.start_ptr(),
            groups: self.groups.start_ptr(),
            halves: self.halves.start_ptr(),
            scratch: PhantomData,
        }
    }

    /// Takes all rows at once, on the calling thread. `values` holds whole rows of `cols` values.
    pub fn fill(&mut self, values: &[f32], cols: usize, form: InputForm) {
        let rows = values.chunks_exact(cols.max(1));
        let writer = self.begin(rows.len(), cols, form);
        for (row, values) in rows.enumerate() {
            // SAFETY: one thread writes one row after the other.
            unsafe { writer.write(row, values) };
        }
    }

    /// Rows since the last `begin`.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Values in a row.
    #[must_use]
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Forms that the rows were written in.
    #[must_use]
    pub fn form(&self) -> InputForm {
        self.form
    }

    /// The plain values of a block, `[cols][block.width]`.
    pub(crate) fn float_block(&self, block: RowBlock) -> &[f32] {
        &self.floats[block.first * self.cols..(block.first + block.width) * self.cols]
    }

    /// The quantised values of a block, `[groups][block.width]`.
    pub(crate) fn group_block(&self, block: RowBlock) -> &[QuantizedGroup] {
        let groups = self.cols.div_ceil(GROUP);
        &self.groups[block.first * groups..(block.first + block.width) * groups]
    }

    /// The split values of sixteen rows from `first` on (a multiple of sixteen): `[steps][2][16][16]` words.
    /// What stands in rows that there are not is arbitrary.
    pub(crate) fn split_block(&self, first: usize) -> &[u32] {
        let row = split::row_words(self.cols);
        &self.halves[first * row..(first + SPLIT_BLOCK) * row]
    }
}

/// Consecutive rows whose values are interleaved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowBlock {
    /// Its first row.
    pub(crate) first: usize,
    /// Its rows.
    pub(crate) rows: usize,
    /// Rows that it has room for: 16, 8, 4 or 1. What stands in those that it does not have is arbitrary.
    pub(crate) width: usize,
}

impl RowBlock {
    /// The block that starts at row `first` of `rows`. Room for up to two rows is left empty where that makes
    /// fewer blocks.
    pub(crate) fn at(first: usize, rows: usize) -> Self {
        let remaining = rows.saturating_sub(first);
        let width = match remaining {
            14.. => ROW_BLOCK,
            6..=13 => 8,
            2..=5 => 4,
            _ => 1,
        };
        Self { first, rows: remaining.min(width), width }
    }

    /// The block that holds `row`.
    fn of(row: usize, rows: usize) -> Self {
        let mut block = Self::at(row / ROW_BLOCK * ROW_BLOCK, rows);
        // The last rows make up to three blocks.
        while row >= block.first + block.width {
            block = Self::at(block.first + block.width, rows);
        }
        block
    }

    /// The blocks of rows `first..end`, where `first` starts a block and `end` ends one.
    pub(crate) fn within(first: usize, end: usize) -> impl Iterator<Item = Self> {
        let at = move |first| (first < end).then(|| Self::at(first, end));
        std::iter::successors(at(first), move |block| at(block.first + block.width))
    }

    /// Rows that storage for `rows` rows must have room for: their blocks lie one after the other.
    fn room(rows: usize) -> usize {
        rows.checked_sub(1).map_or(0, |last| {
            let block = Self::of(last, rows);
            block.first + block.width
        })
    }
}

/// Write access to the rows of an [`Activations`], to be shared by several threads.
pub struct ActivationRows<'a> {
    rows: usize,
    cols: usize,
    form: InputForm,
    isa: Isa,
    floats: NonNull<f32>,
    groups: NonNull<QuantizedGroup>,
    halves: NonNull<u32>,
    scratch: PhantomData<&'a mut Activations>,
}

// SAFETY: it stands for the exclusive borrow of plain numbers; `write` states how threads keep apart.
unsafe impl Send for ActivationRows<'_> {}
// SAFETY: as above.
unsafe impl Sync for ActivationRows<'_> {}

impl ActivationRows<'_> {
    /// Rows to be written.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Writes one row (and quantises it when that form was asked for). Threads do best to take whole
    /// multiples of 16 rows.
    ///
    /// # Safety
    /// No two threads may write the same row at the same time.
    ///
    /// # Panics
    /// If the row does not exist or `values` is not as long as a row.
    pub unsafe fn write(&self, row: usize, values: &[f32]) {
        assert!(row < self.rows && values.len() == self.cols, "row {row} of {} values", values.len());
        let block = RowBlock::of(row, self.rows);
        let lane = row - block.first;
        if self.form.has_floats() {
            for (k, &value) in values.iter().enumerate() {
                // SAFETY: `begin` made room for all blocks. The place is inside its block, since
                // first * cols + k * width + lane < (first + width) * cols, and belongs to this row alone.
                unsafe { self.floats.add(block.first * self.cols + k * block.width + lane).write(value) };
            }
        }
        if self.form.has_groups() {
            let first = block.first * self.cols.div_ceil(GROUP) + lane;
            // SAFETY: as above, with ceil(cols / 32) groups in place of cols values.
            let start = unsafe { self.groups.add(first) };
            dispatch(self.isa, QuantizeRow { values, start, stride: block.width });
        }
        if self.form.has_halves() {
            let first = row / SPLIT_BLOCK * SPLIT_BLOCK;
            // SAFETY: `begin` made room for whole blocks of rows, one behind the other.
            let block = unsafe { self.halves.add(first * split::row_words(self.cols)) };
            dispatch(self.isa, SplitRow { values, block, row: row - first });
        }
    }
}

/// Quantises a row into every `stride`-th group from `start`.
struct QuantizeRow<'a> {
    values: &'a [f32],
    start: NonNull<QuantizedGroup>,
    stride: usize,
}

impl Task for QuantizeRow<'_> {
    type Output = ();
    const INTEGER_DOTS: bool = false;

    #[inline(always)]
    fn run<V: Vectors>(self, v: V) {
        let (whole, rest) = self.values.as_chunks::<GROUP>();
        let mut last = [0.0; GROUP];
        last[..rest.len()].copy_from_slice(rest);
        let rest = std::slice::from_ref(&last).iter().take(usize::from(!rest.is_empty()));
        for (group, values) in whole.iter().chain(rest).enumerate() {
            // SAFETY: `ActivationRows::write` is the only maker of this task; it argues that these places are
            // inside the scratch and belong to the row.
            unsafe { self.start.add(group * self.stride).write(v.quantize(values)) };
        }
    }
}

/// Splits a row of a block.
struct SplitRow<'a> {
    values: &'a [f32],
    block: NonNull<u32>,
    row: usize,
}

impl Task for SplitRow<'_> {
    type Output = ();
    const INTEGER_DOTS: bool = false;

    #[inline(always)]
    fn run<V: Vectors>(self, _: V) {
        // SAFETY: `ActivationRows::write` is the only maker of this task; it argues that these places are inside the
        // scratch and belong to the row.
        unsafe { split::write(self.values, self.block, self.row) };
    }
}

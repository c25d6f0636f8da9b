//! A matrix that the workers of a team fill and read together.

use std::ops::Range;
use std::ptr::NonNull;

use crate::matrix::OutputRows;
use crate::memory::AlignedVec;

/// Rows of `f32` values, zero at first, of which each worker takes other parts at the same time.
///
/// Indices are checked. What cannot be checked here, that no part is written by one worker while another touches
/// it, is promised by whoever calls the `unsafe` methods; a team's barriers are how it is kept.
#[derive(Debug)]
pub struct SharedRows {
    start: NonNull<f32>,
    rows: usize,
    width: usize,
    /// Owns what `start` points to, which stays the only way in.
    memory: AlignedVec<f32>,
}

// SAFETY: the memory is owned, and every access goes through methods that state who may call them when.
unsafe impl Send for SharedRows {}
// SAFETY: as above.
unsafe impl Sync for SharedRows {}

impl SharedRows {
    /// `rows` rows of `width` values. Rows that are never written take no memory when the matrix is large.
    #[must_use]
    pub fn new(rows: usize, width: usize) -> Self {
        let mut memory = AlignedVec::zeroed(rows.saturating_mul(width));
        Self { start: memory.start_ptr(), rows, width, memory }
    }

    /// Rows that there are.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Values in a row.
    #[must_use]
    pub fn width(&self) -> usize {
        self.width
    }

    /// Bytes of all rows.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.memory.bytes()
    }

    /// Where products may write their results.
    ///
    /// # Safety
    /// While products write to it, nobody else touches what they write.
    #[must_use]
    pub unsafe fn output(&self) -> OutputRows<'_> {
        // SAFETY: the memory lives as long as `self`; the rest is the caller's promise.
        unsafe { OutputRows::from_raw(self.start, self.rows * self.width, self.width) }
    }

    /// Sets everything to zero and gives the memory of a large matrix back to the system.
    pub fn discard(&mut self) {
        self.memory.discard();
    }

    /// One row, to read.
    ///
    /// # Safety
    /// Nobody writes to the row while the slice lives.
    #[must_use]
    pub unsafe fn row(&self, row: usize) -> &[f32] {
        // SAFETY: the caller's promise is that of `part`.
        unsafe { self.part(row, 0..self.width) }
    }

    /// Some columns of one row, to read.
    ///
    /// # Safety
    /// Nobody writes to these columns of the row while the slice lives.
    #[must_use]
    pub unsafe fn part(&self, row: usize, columns: Range<usize>) -> &[f32] {
        let first = self.place(row, &columns);
        // SAFETY: the columns lie within the memory, which lives as long as `self`; nobody writes, says the caller.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().add(first), columns.len()) }
    }

    /// One row, to write.
    ///
    /// # Safety
    /// Nobody else touches the row while the slice lives.
    #[must_use]
    #[allow(clippy::mut_from_ref, reason = "the caller promises that the parts it takes do not overlap")]
    pub unsafe fn row_mut(&self, row: usize) -> &mut [f32] {
        // SAFETY: the caller's promise is that of `part_mut`.
        unsafe { self.part_mut(row, 0..self.width) }
    }

    /// Some columns of one row, to write.
    ///
    /// # Safety
    /// Nobody else touches these columns of the row while the slice lives.
    #[must_use]
    #[allow(clippy::mut_from_ref, reason = "the caller promises that the parts it takes do not overlap")]
    pub unsafe fn part_mut(&self, row: usize, columns: Range<usize>) -> &mut [f32] {
        let first = self.place(row, &columns);
        // SAFETY: the columns lie within the memory, which lives as long as `self`; nobody else touches them, says
        // the caller.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr().add(first), columns.len()) }
    }
    /// Index of the first value of some columns that exist.
    fn place(&self, row: usize, columns: &Range<usize>) -> usize {
        assert!(row < self.rows, "row {row} of {}", self.rows);
        assert!(
            columns.start <= columns.end && columns.end <= self.width,
            "columns {columns:?} of {}",
            self.width
        );
        row * self.width + columns.start
    }
}

//! Where the results of a product go.

#![allow(clippy::inline_always, reason = "runs once for every 16 results")]

use std::marker::PhantomData;
use std::ptr::NonNull;

use super::vectors::TILE;

/// Rows of results, written by several threads in disjoint columns.
///
/// Row `r`, column `c` is value `r * stride + c` of the slice that it was made from.
pub struct OutputRows<'a> {
    start: NonNull<f32>,
    len: usize,
    stride: usize,
    values: PhantomData<&'a mut [f32]>,
}

// SAFETY: it stands for an exclusive borrow of plain numbers; `new` states how threads keep apart.
unsafe impl Send for OutputRows<'_> {}
// SAFETY: as above.
unsafe impl Sync for OutputRows<'_> {}

impl<'a> OutputRows<'a> {
    /// Rows that start every `stride` values. A product may fill only the leading columns of a row.
    ///
    /// # Safety
    /// While it is shared between threads, no two of them may at the same time run products that write the
    /// same row in the same tile of columns ([`super::PackedMatrix::multiply`] says which it writes).
    #[must_use]
    pub unsafe fn new(values: &'a mut [f32], stride: usize) -> Self {
        Self { start: NonNull::from(&mut *values).cast(), len: values.len(), stride, values: PhantomData }
    }

    /// The same for memory that is otherwise reached through raw pointers too: `len` values from `start` on.
    ///
    /// # Safety
    /// The memory is valid for reads and writes during `'a`. Threads keep apart as for [`OutputRows::new`],
    /// and nobody else touches what a product writes while it runs.
    #[must_use]
    pub unsafe fn from_raw(start: NonNull<f32>, len: usize, stride: usize) -> Self {
        Self { start, len, stride, values: PhantomData }
    }

    /// Values from one row to the next.
    #[must_use]
    pub fn stride(&self) -> usize {
        self.stride
    }

    /// True if `rows` rows of `cols` columns lie within.
    pub(super) fn holds(&self, rows: usize, cols: usize) -> bool {
        cols <= self.stride
            && rows.checked_sub(1).is_none_or(|last| {
                last.checked_mul(self.stride)
                    .and_then(|start| start.checked_add(cols))
                    .is_some_and(|end| end <= self.len)
            })
    }

    /// Writes a whole tile into a row from column `col` on.
    #[inline(always)]
    pub(super) fn write(&self, row: usize, col: usize, values: &[f32; TILE]) {
        let start = row * self.stride + col;
        assert!(col + TILE <= self.stride && start + TILE <= self.len, "a result is out of its place");
        // SAFETY: the range was just checked to lie within the slice, which is borrowed exclusively for `'a`.
        // That no other thread touches these columns of this row now is what the caller of `new` promised.
        unsafe { self.start.add(start).cast::<[f32; TILE]>().write(*values) };
    }

    /// Writes less than a tile into a row from column `col` on.
    pub(super) fn write_part(&self, row: usize, col: usize, values: &[f32]) {
        let start = row * self.stride + col;
        assert!(
            col + values.len() <= self.stride && start + values.len() <= self.len,
            "a result is out of its place"
        );
        // SAFETY: as in `write`.
        unsafe { self.start.add(start).copy_from_nonoverlapping(NonNull::from(values).cast(), values.len()) };
    }
}

//! What one call of a product has to compute, and the order in which it walks through it.
//!
//! Input rows are taken in chunks that stay in the second-level cache while all tiles pass; within a chunk, a
//! few tiles stay in a near cache while all blocks of rows pass. None of this changes a result.

#![allow(clippy::inline_always, reason = "part of the functions compiled for an instruction set")]

use std::ops::Range;

use super::output::OutputRows;
use super::vectors::TILE;
use crate::activations::{Activations, ROW_BLOCK};

/// Bytes of input rows that are worked on before the weights are read again.
pub(super) const CHUNK_BYTES: usize = 384 * 1024;

/// Tiles that are computed for one block of rows before the next block: their results lie side by side, so
/// that a large result is not written in pieces of a cache line, each in another page.
const TILE_GROUP: usize = 4;

/// One product: some tiles of a matrix, all rows of an input.
pub(super) struct Job<'a> {
    /// Rows of the matrix: columns of the result.
    pub(super) matrix_rows: usize,
    /// Tiles to be computed.
    pub(super) tiles: Range<usize>,
    /// Added to every result row, if there is one.
    pub(super) bias: Option<&'a [f32]>,
    /// The rows to be multiplied.
    pub(super) input: &'a Activations,
    /// Where results go.
    pub(super) out: &'a OutputRows<'a>,
}

impl Job<'_> {
    /// The input rows, cut into ranges whose data (at `bytes_per_row`) takes `chunk_bytes`. All but the last are
    /// whole blocks.
    #[inline(always)]
    pub(super) fn row_chunks(
        &self,
        bytes_per_row: usize,
        chunk_bytes: usize,
    ) -> impl Iterator<Item = Range<usize>> + use<> {
        let rows = self.input.rows();
        let length = (chunk_bytes / bytes_per_row.max(1)).next_multiple_of(ROW_BLOCK).max(ROW_BLOCK);
        (0..rows).step_by(length).map(move |first| first..rows.min(first + length))
    }

    /// The tiles, cut into short ranges.
    #[inline(always)]
    pub(super) fn tile_groups(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let Range { start, end } = self.tiles;
        (start..end).step_by(TILE_GROUP).map(move |first| first..end.min(first + TILE_GROUP))
    }

    /// Finishes one tile of one row: adds the bias and puts it where it belongs.
    #[inline(always)]
    pub(super) fn finish(&self, tile: usize, row: usize, sums: &[f32; TILE]) {
        let first = tile * TILE;
        if first + TILE > self.matrix_rows {
            return self.finish_last(first, row, sums);
        }
        let mut sums = *sums;
        if let Some(bias) = self.bias.and_then(|bias| bias[first..].first_chunk::<TILE>()) {
            sums.iter_mut().zip(bias).for_each(|(sum, bias)| *sum += bias);
        }
        self.out.write(row, first, &sums);
    }

    /// The last tile, where fewer rows of the matrix are left than a tile has.
    #[cold]
    fn finish_last(&self, first: usize, row: usize, sums: &[f32; TILE]) {
        let mut sums = *sums;
        if let Some(bias) = self.bias {
            sums.iter_mut().zip(&bias[first..]).for_each(|(sum, bias)| *sum += bias);
        }
        self.out.write_part(row, first, &sums[..self.matrix_rows - first]);
    }
}

/// The steps along a block of input rows, each of which consists of several passes' shares: those of one
/// pass.
///
/// Advances by moving a pointer, which leaves kernels with the addresses that the machine likes best.
#[derive(Clone, Copy)]
pub(super) struct Steps<'a, T> {
    rest: &'a [T],
    passes: usize,
}

impl<'a, T> Steps<'a, T> {
    /// The shares of pass `pass` of `passes`.
    #[inline(always)]
    pub(super) fn new(input: &'a [T], pass: usize, passes: usize) -> Self {
        Self { rest: &input[pass..], passes }
    }

    /// Steps that are left.
    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        self.rest.len().div_ceil(self.passes)
    }

    /// The next share.
    #[inline(always)]
    pub(super) fn next(&mut self) -> Option<&'a T> {
        let next = self.rest.first();
        self.rest = self.rest.get(self.passes..).unwrap_or(&[]);
        next
    }
}

/// Does something for each of up to sixteen rows, written out: sums stay in registers only where no loop is
/// left, and the compiler keeps long loops.
macro_rules! each_row {
    ($r:ident < $rows:ident, $body:expr) => {
        each_row!($r < $rows, $body; 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15)
    };
    ($r:ident < $rows:ident, $body:expr; $($number:literal)*) => {
        $(
            if $number < $rows {
                let $r = $number;
                $body;
            }
        )*
    };
}
pub(super) use each_row;

/// The part of a matrix's storage that is one tile.
#[inline(always)]
pub(super) fn tile_of<T>(storage: &[T], tiles: usize, tile: usize) -> &[T] {
    let length = storage.len() / tiles.max(1);
    &storage[tile * length..(tile + 1) * length]
}

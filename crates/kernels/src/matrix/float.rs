//! Products with float weights, in single precision arithmetic.
//!
//! Storage is `[tile][column of the matrix][16 rows]`: a lane is an output row, and the values along a row
//! are taken in order. Several tiles are worked on at once only to keep the arithmetic units busy.

#![allow(clippy::inline_always, reason = "part of the functions compiled for an instruction set")]
#![allow(clippy::needless_range_loop, reason = "counted loops are what the compiler keeps in registers")]

use std::ops::Range;

use super::job::{CHUNK_BYTES, Job, Steps, each_row, tile_of};
use super::vectors::{TILE, Task, Vectors};
use crate::activations::RowBlock;
use crate::memory::Plain;

/// One column of a tile: a weight of each of 16 rows.
pub(super) trait FloatColumn: Plain {
    /// The weights of a part of the rows.
    fn load<V: Vectors>(&self, v: V, part: usize) -> V::F32;
    /// Takes over one row's weight in the checkpoint's form, and tells whether it is finite.
    fn set_row(&mut self, row: usize, stored: &[u8]) -> bool;
    /// One row's weight.
    fn value(&self, row: usize) -> f32;
}

/// Singles.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct Singles(pub(super) [f32; TILE]);

/// Halves, as bits.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct Halves([u16; TILE]);

/// Upper halves of singles, as bits.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct UpperHalves([u16; TILE]);

// SAFETY: an array of numbers.
unsafe impl Plain for Singles {}
// SAFETY: an array of numbers.
unsafe impl Plain for Halves {}
// SAFETY: an array of numbers.
unsafe impl Plain for UpperHalves {}

impl FloatColumn for Singles {
    #[inline(always)]
    fn load<V: Vectors>(&self, v: V, part: usize) -> V::F32 {
        v.load_f32(&self.0, part)
    }

    #[inline(always)]
    fn set_row(&mut self, row: usize, stored: &[u8]) -> bool {
        self.0[row] = f32::from_le_bytes([stored[0], stored[1], stored[2], stored[3]]);
        self.0[row].is_finite()
    }

    fn value(&self, row: usize) -> f32 {
        self.0[row]
    }
}

impl FloatColumn for Halves {
    #[inline(always)]
    fn load<V: Vectors>(&self, v: V, part: usize) -> V::F32 {
        v.load_f16(&self.0, part)
    }

    #[inline(always)]
    fn set_row(&mut self, row: usize, stored: &[u8]) -> bool {
        self.0[row] = u16::from_le_bytes([stored[0], stored[1]]);
        super::blocks::half_is_finite(self.0[row])
    }

    fn value(&self, row: usize) -> f32 {
        half::f16::from_bits(self.0[row]).to_f32()
    }
}

impl FloatColumn for UpperHalves {
    #[inline(always)]
    fn load<V: Vectors>(&self, v: V, part: usize) -> V::F32 {
        v.load_bf16(&self.0, part)
    }

    #[inline(always)]
    fn set_row(&mut self, row: usize, stored: &[u8]) -> bool {
        self.0[row] = u16::from_le_bytes([stored[0], stored[1]]);
        self.0[row] & 0x7F80 != 0x7F80
    }

    fn value(&self, row: usize) -> f32 {
        half::bf16::from_bits(self.0[row]).to_f32()
    }
}

/// How far before its use a single row asks for a weight, into a cache that is not the nearest.
const AHEAD_BYTES: usize = 2048;

/// Bytes that memory gives at once.
const CACHE_LINE: usize = 64;

/// A product with float weights.
pub(super) struct FloatProduct<'a, W> {
    /// Columns of some tiles of the matrix, tile after tile.
    pub(super) columns: &'a [W],
    /// The first of these tiles.
    pub(super) first: usize,
    /// Number of these tiles.
    pub(super) tiles: usize,
    /// What is to be computed.
    pub(super) job: Job<'a>,
}

/// Registers of results for one input row, where only one is worked on: they belong to different parts or
/// tiles, so that their additions overlap.
const STRANDS: usize = 4;
/// The same where several input rows are worked on.
const FEW_STRANDS: usize = STRANDS / 2;

impl<W: FloatColumn> Task for FloatProduct<'_, W> {
    type Output = ();
    const INTEGER_DOTS: bool = false;

    #[inline(always)]
    fn run<V: Vectors>(self, v: V) {
        for chunk in self.job.row_chunks(self.job.input.cols() * size_of::<f32>(), CHUNK_BYTES) {
            for tiles in self.job.tile_groups() {
                for rows in RowBlock::within(chunk.start, chunk.end) {
                    match rows.width {
                        8.. if V::MAX_ROWS >= 8 => {
                            self.tiles::<V, FEW_STRANDS, 8>(v, tiles.clone(), rows);
                        }
                        4.. if V::MAX_ROWS >= 4 => self.tiles::<V, FEW_STRANDS, 4>(v, tiles.clone(), rows),
                        _ => self.tiles::<V, STRANDS, 1>(v, tiles.clone(), rows),
                    }
                }
            }
        }
    }
}

impl<W: FloatColumn> FloatProduct<'_, W> {
    /// Some tiles for one block of input rows: as many tiles at once as `S` strands make up, `R` rows at a
    /// time.
    #[inline(always)]
    fn tiles<V: Vectors, const S: usize, const R: usize>(&self, v: V, tiles: Range<usize>, rows: RowBlock) {
        let input = self.job.input.float_block(rows).as_chunks::<R>().0;
        let passes = rows.width / R;
        for first in tiles.clone().step_by(S / V::PARTS) {
            let mut strands = [&self.columns[..0]; S];
            for (at, strand) in strands.iter_mut().enumerate() {
                // A strand past the end repeats the last tile, so that the arithmetic has one shape.
                let tile = (first + at / V::PARTS).min(tiles.end - 1);
                *strand = tile_of(self.columns, self.tiles, tile - self.first);
            }
            for pass in 0..passes {
                let results = results::<V, W, S, R>(v, strands, Steps::new(input, pass, passes));
                for (tile, results) in (first..tiles.end).zip(&results[..S / V::PARTS]) {
                    for (row, result) in results.iter().enumerate().take(rows.rows.saturating_sub(pass * R)) {
                        self.job.finish(tile, rows.first + pass * R + row, result);
                    }
                }
            }
        }
    }
}

/// `S` strands of weights times `R` rows of input, given column by column. The results of the tiles that the
/// strands make up come first.
#[inline(always)]
fn results<V: Vectors, W: FloatColumn, const S: usize, const R: usize>(
    v: V,
    strands: [&[W]; S],
    mut input: Steps<'_, [f32; R]>,
) -> [[[f32; TILE]; R]; S] {
    // Loops over constant counts and no other access: so the sums stay in registers.
    let mut sums = [[v.zero(); R]; S];
    let cols = strands[0].len();
    let strands = strands.map(|strand| &strand[..cols]);
    // From the end of a strand to the tile that takes its place next.
    let jump = cols * (S / V::PARTS - 1);
    let in_line = CACHE_LINE / size_of::<W>();
    for line in 0..cols / in_line {
        if R == 1 {
            let ahead = line * in_line + AHEAD_BYTES / size_of::<W>();
            let ahead = if ahead < cols { ahead } else { ahead + jump };
            for s in (0..S).step_by(V::PARTS) {
                v.prefetch(strands[s].as_ptr().wrapping_add(ahead).cast());
            }
        }
        for place in 0..in_line {
            let Some(input) = input.next() else { break };
            add_column(v, &strands, line * in_line + place, input, &mut sums);
        }
    }
    for k in cols / in_line * in_line..cols {
        let Some(input) = input.next() else { break };
        add_column(v, &strands, k, input, &mut sums);
    }
    let mut results = [[[0.0; TILE]; R]; S];
    for s in 0..S {
        each_row!(r < R, v.store(sums[s][r], &mut results[s / V::PARTS][r], s % V::PARTS));
    }
    results
}

/// Adds the products of one column of each strand with the input of `R` rows.
#[inline(always)]
fn add_column<V: Vectors, W: FloatColumn, const S: usize, const R: usize>(
    v: V,
    strands: &[&[W]; S],
    k: usize,
    input: &[f32; R],
    sums: &mut [[V::F32; R]; S],
) {
    for s in 0..S {
        let weights = strands[s][k].load(v, s % V::PARTS);
        each_row!(r < R, sums[s][r] = v.mul_add(weights, v.splat(input[r]), sums[s][r]));
    }
}

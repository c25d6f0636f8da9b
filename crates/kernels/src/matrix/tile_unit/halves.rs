//! Products of half-width float weights (bf16) in the processor's matrix unit.
//!
//! Storage is `[tile][pair of columns][16 rows][2]`, filled up with zeros to whole steps of the unit: its right side as
//! it is. Input comes in two parts of half width, so that products keep nearly single precision. For a single row of
//! input vectors do the same operations in the same order, which is why results do not depend on how many there are.

#![allow(clippy::inline_always, reason = "part of the functions compiled for an instruction set")]
#![allow(clippy::needless_range_loop, reason = "counted loops are what the compiler keeps in registers")]

use std::ops::Range;

use super::super::PackError;
use super::super::job::{Job, tile_of};
use super::super::vectors::{Avx512, TILE, Vectors, WideTask, dispatch_wide};
use crate::activations::{SPLIT_BLOCK, SPLIT_STEP_WORDS, part_words};
use crate::cpu_features::Isa;
use crate::memory::{AlignedVec, Plain};
use crate::tensor::TensorView;
use crate::tile_unit::{Registers, SplitRows, TileUnit};

/// Tiles that are computed together: they share each load of the input.
const TOGETHER: usize = 4;

/// Pairs of columns in one step of the unit.
const STEP_PAIRS: usize = 16;

/// Bytes of a row of a register.
const LINE_BYTES: usize = 64;

/// Pairs of columns of four tiles that are worked on while all rows of a chunk pass: 16 KiB.
const STRETCH_PAIRS: usize = 4 * STEP_PAIRS;

/// Input rows of a chunk: their sums, and what they have of a stretch, stay in the second-level cache.
const CHUNK_ROWS: usize = 64;

/// Two neighbouring columns of a tile: one line of the unit's right side.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct Pair([[u16; 2]; TILE]);

// SAFETY: an array of numbers.
unsafe impl Plain for Pair {}

/// A matrix in the form that the unit takes.
#[derive(Debug)]
pub(in crate::matrix) struct PairedColumns {
    unit: TileUnit,
    pairs: AlignedVec<Pair>,
}

impl PairedColumns {
    /// Packs a matrix of bf16. The view has been checked.
    pub(in crate::matrix) fn pack(unit: TileUnit, view: &TensorView<'_>) -> Result<Self, PackError> {
        let (cols, per_tile) = (view.cols(), part_words(view.cols()));
        let mut pairs = AlignedVec::<Pair>::zeroed(view.rows().div_ceil(TILE) * per_tile).with_large_pages();
        let tiles = pairs.chunks_exact_mut(per_tile).zip(view.bytes.chunks(cols * TILE * 2));
        for (tile, (pairs, stored)) in tiles.enumerate() {
            // A few columns of all rows at a time: they stay in the first-level cache.
            for (step, pairs) in pairs.chunks_exact_mut(STEP_PAIRS).enumerate() {
                for (lane, stored) in stored.chunks_exact(cols * 2).enumerate() {
                    let stored = stored.get(step * STEP_PAIRS * 4..).unwrap_or(&[]);
                    let mut finite = true;
                    for (k, bytes) in stored.as_chunks::<2>().0.iter().take(2 * STEP_PAIRS).enumerate() {
                        let bits = u16::from_le_bytes(*bytes);
                        finite &= bits & 0x7F80 != 0x7F80;
                        pairs[k / 2].0[lane][k % 2] = bits;
                    }
                    if !finite {
                        return Err(PackError::NotFinite { row: tile * TILE + lane });
                    }
                }
            }
        }
        Ok(Self { unit, pairs })
    }

    pub(in crate::matrix) fn bytes(&self) -> usize {
        self.pairs.bytes()
    }

    /// The values of one row of the matrix, which has `tiles` tiles.
    pub(in crate::matrix) fn row_values(&self, tiles: usize, row: usize, out: &mut [f32]) {
        let pairs = tile_of(&self.pairs, tiles, row / TILE);
        for (out, pair) in out.chunks_mut(2).zip(pairs) {
            for (out, bits) in out.iter_mut().zip(pair.0[row % TILE]) {
                *out = half::bf16::from_bits(bits).to_f32();
            }
        }
    }

    /// The product of a matrix of `tiles` tiles.
    pub(in crate::matrix) fn multiply(&self, isa: Isa, tiles: usize, job: Job<'_>) {
        self.unit.with_registers(|registers| {
            dispatch_wide(isa, PairedProduct { registers, pairs: &self.pairs, tiles, job });
        });
    }
}

/// A product whose unit is ready.
struct PairedProduct<'a> {
    registers: Registers,
    /// All pairs of the matrix, tile after tile.
    pairs: &'a [Pair],
    /// Tiles of the matrix.
    tiles: usize,
    /// What is to be computed.
    job: Job<'a>,
}

/// Results of sixteen rows.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Results([[[f32; TILE]; TOGETHER]; SPLIT_BLOCK]);

impl WideTask for PairedProduct<'_> {
    #[inline(always)]
    fn run(self, v: Avx512) {
        let (rows, tiles) = (self.job.input.rows(), &self.job.tiles);
        if rows == 1 {
            for tile in tiles.clone().step_by(2) {
                self.single(v, [tile, (tile + 1).min(tiles.end - 1)]);
            }
            return;
        }
        for chunk in (0..rows).step_by(CHUNK_ROWS) {
            let chunk = chunk..rows.min(chunk + CHUNK_ROWS);
            for first in tiles.clone().step_by(TOGETHER) {
                self.tiles(first..tiles.end.min(first + TOGETHER), &chunk);
            }
        }
    }
}

impl PairedProduct<'_> {
    /// Two tiles (which may be the same) for a single input row: what the unit does, step by step, in vectors, which
    /// read weights from memory faster than it. (Sums below the smallest normal number, zero in the unit, are not cut
    /// off.)
    #[inline(always)]
    fn single(&self, v: Avx512, tiles: [usize; 2]) {
        let steps = |tile| tile_of(self.pairs, self.tiles, tile).as_chunks::<STEP_PAIRS>().0;
        let input = self.job.input.split_block(0).as_chunks::<SPLIT_STEP_WORDS>().0;
        let mut sums = [v.zero(); 2];
        for ((one, other), input) in steps(tiles[0]).iter().zip(steps(tiles[1])).zip(input) {
            let [high_first, high_second, low_first, low_second] = first_row(input);
            let mut dots = [[v.zero(); 4]; 2];
            for k in 0..STEP_PAIRS {
                for (dots, pair) in dots.iter_mut().zip([&one[k], &other[k]]) {
                    let (first, second) = (v.load_first(&pair.0), v.load_second(&pair.0));
                    dots[0] = v.mul_add(first, v.splat(high_first[k]), dots[0]);
                    dots[1] = v.mul_add(second, v.splat(high_second[k]), dots[1]);
                    dots[2] = v.mul_add(first, v.splat(low_first[k]), dots[2]);
                    dots[3] = v.mul_add(second, v.splat(low_second[k]), dots[3]);
                }
            }
            for (sum, [high_first, high_second, low_first, low_second]) in sums.iter_mut().zip(dots) {
                *sum = v.add(*sum, v.add(high_first, high_second));
                *sum = v.add(*sum, v.add(low_first, low_second));
            }
        }
        for (tile, sum) in tiles.into_iter().zip(sums) {
            let mut result = [0.0; TILE];
            v.store(sum, &mut result, 0);
            self.job.finish(tile, 0, &result);
        }
    }

    /// Up to four tiles for a chunk of input rows. Weights are taken in stretches that stay in the first-level cache
    /// while all rows of the chunk pass; sums go on where the stretch before has left them.
    #[inline(always)]
    fn tiles(&self, group: Range<usize>, chunk: &Range<usize>) {
        let part = part_words(self.job.input.cols());
        let right: [&[Pair]; TOGETHER] = std::array::from_fn(|at| {
            // One past the end repeats the last, so that the unit's work has one shape.
            tile_of(self.pairs, self.tiles, (group.start + at).min(group.end - 1))
        });
        let mut results = [Results([[[0.0; TILE]; TOGETHER]; SPLIT_BLOCK]); CHUNK_ROWS / SPLIT_BLOCK];
        let blocks = &mut results[..chunk.len().div_ceil(SPLIT_BLOCK)];
        for first in (0..part).step_by(STRETCH_PAIRS) {
            let stretch = first..part.min(first + STRETCH_PAIRS);
            let right = right.map(|pairs| &pairs[stretch.clone()]);
            for (block, results) in blocks.iter_mut().enumerate() {
                self.block(chunk.start + block * SPLIT_BLOCK, first, right, results);
            }
        }
        for (block, results) in blocks.iter().enumerate() {
            for (row, results) in (chunk.start + block * SPLIT_BLOCK..chunk.end).zip(&results.0) {
                for (tile, result) in group.clone().zip(results) {
                    self.job.finish(tile, row, result);
                }
            }
        }
    }

    /// A stretch of columns, from pair `first` on, of four tiles for sixteen input rows from `row` on.
    #[inline(always)]
    fn block(&self, row: usize, first: usize, right: [&[Pair]; TOGETHER], results: &mut Results) {
        let part = part_words(self.job.input.cols());
        let left = self.job.input.split_block(row);
        let pairs = right[0].len();
        assert!(left.len() == SPLIT_BLOCK * 2 * part && first + pairs <= part, "room for sixteen rows");
        assert!(pairs > 0 && pairs.is_multiple_of(STEP_PAIRS), "whole steps of the unit");
        let high = &left[first / STEP_PAIRS * SPLIT_STEP_WORDS..];
        let low = &high[SPLIT_STEP_WORDS / 2..];
        let left = SplitRows {
            high: high.as_ptr(),
            low: low.as_ptr(),
            stride: LINE_BYTES,
            step: SPLIT_STEP_WORDS * 4,
        };
        let right = right.map(|right| {
            assert!(right.len() == pairs, "tiles of one length");
            right.as_ptr().cast()
        });
        let out = results.0.as_flattened_mut().as_flattened_mut().as_mut_ptr();
        // SAFETY: the left side has a step of sixteen lines in two parts for every sixteen pairs of columns, `part` in
        // all, of which `pairs` from `first` on are read; each right side is `pairs` lines of 64 bytes, sixteen for each step; the result is sixteen rows of
        // four times sixteen values.
        unsafe {
            let stride = TOGETHER * TILE * size_of::<f32>();
            self.registers.add_four_products(left, right, pairs / STEP_PAIRS, out, stride);
        }
    }
}

/// A step of the first input row as singles: the upper parts of the first and of the second of each pair, then the lower
/// ones.
#[inline(always)]
fn first_row(input: &[u32; SPLIT_STEP_WORDS]) -> [[f32; STEP_PAIRS]; 4] {
    let mut parts = [[0.0; STEP_PAIRS]; 4];
    for (part, [first, second]) in parts.as_chunks_mut::<2>().0.iter_mut().enumerate() {
        let line = &input[part * SPLIT_BLOCK * STEP_PAIRS..][..STEP_PAIRS];
        for ((word, first), second) in line.iter().zip(first).zip(second) {
            (*first, *second) = (f32::from_bits(word << 16), f32::from_bits(word & 0xffff_0000));
        }
    }
    parts
}

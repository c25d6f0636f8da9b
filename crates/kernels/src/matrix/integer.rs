//! Products with integer weights: with quantised input (fast) and with plain input (accurate).
//!
//! In both, a lane is an output row and the values along a row are taken in order, so a result is made by the same
//! operations whatever the number of input rows. A group is unpacked once for all rows of a block.

#![allow(clippy::inline_always, reason = "part of the functions compiled for an instruction set")]

use super::blocks::{Form, Group, IntegerBlock};
use super::job::{Job, tile_of};
use super::vectors::{OneLane, TILE, Task, Vectors};
use crate::activations::{GROUP, QuantizedGroup, ROW_BLOCK, RowBlock};

/// How far ahead of their use weights are asked for, in bytes, where they are too quickly used up for the machine to
/// do it by itself.
const PREFETCH_BYTES: usize = 2048;

/// A product with input quantised to 8 bits.
pub(super) struct QuantizedProduct<'a, B> {
    /// All blocks of the matrix, tile after tile.
    pub(super) blocks: &'a [B],
    /// Tiles of the matrix.
    pub(super) tiles: usize,
    /// What is to be computed.
    pub(super) job: Job<'a>,
}

/// A product with input in single precision.
pub(super) struct AccurateProduct<'a, B> {
    /// All blocks of the matrix, tile after tile.
    pub(super) blocks: &'a [B],
    /// Tiles of the matrix.
    pub(super) tiles: usize,
    /// What is to be computed.
    pub(super) job: Job<'a>,
}

impl<B: IntegerBlock> Task for QuantizedProduct<'_, B> {
    type Output = ();
    const INTEGER_DOTS: bool = true;

    #[inline(always)]
    fn run<V: Vectors>(self, v: V) {
        for chunk in self.job.row_chunks(self.job.input.cols() / GROUP * size_of::<QuantizedGroup>()) {
            for tiles in self.job.tile_groups() {
                for rows in RowBlock::within(chunk.start, chunk.end) {
                    for tile in tiles.clone() {
                        match rows.width {
                            1 => self.tile::<V, 1>(v, tile, rows),
                            ROW_BLOCK if V::MAX_ROWS >= ROW_BLOCK => self.tile::<V, ROW_BLOCK>(v, tile, rows),
                            _ => self.tile::<V, 4>(v, tile, rows),
                        }
                    }
                }
            }
        }
    }
}

impl<B: IntegerBlock> QuantizedProduct<'_, B> {
    /// One tile for one block of input rows, `R` rows at a time.
    #[inline(always)]
    fn tile<V: Vectors, const R: usize>(&self, v: V, tile: usize, rows: RowBlock) {
        let blocks = tile_of(self.blocks, self.tiles, tile);
        let input = self.job.input.group_block(rows).as_chunks::<R>().0;
        let passes = rows.width / R;
        for pass in 0..passes {
            let mut results = [[0.0; TILE]; R];
            for part in 0..V::PARTS {
                let sums = quantized_sums::<V, B, R>(v, part, blocks, input[pass..].iter().step_by(passes));
                for (result, sum) in results.iter_mut().zip(sums) {
                    v.store(sum, result, part);
                }
            }
            for (row, result) in results.iter().enumerate().take(rows.rows.saturating_sub(pass * R)) {
                self.job.finish(tile, rows.first + pass * R + row, result);
            }
        }
    }
}

/// A part of a tile times `R` rows of quantised input, given step by step along the rows.
#[inline(always)]
fn quantized_sums<'i, V: Vectors, B: IntegerBlock, const R: usize>(
    v: V,
    part: usize,
    blocks: &[B],
    mut input: impl ExactSizeIterator<Item = &'i [QuantizedGroup; R]>,
) -> [V::F32; R] {
    let mut sums = [v.zero(); R];
    // Always `B::GROUPS`, but calculated, so that the compiler does not write the loop out for every group.
    let groups = input.len() / blocks.len();
    for block in blocks {
        if R == 1 {
            prefetch(v, block);
        }
        let head = block.head(v, part);
        for (index, input) in input.by_ref().take(groups).enumerate() {
            let group = block.group(v, part, head, index);
            for (sum, input) in sums.iter_mut().zip(input) {
                *sum = add_group::<V, B>(v, &group, input, *sum);
            }
        }
    }
    sums
}

/// Adds the product of a group of weights with a group of one input row.
#[inline(always)]
fn add_group<V: Vectors, B: IntegerBlock>(v: V, group: &Group<V>, input: &QuantizedGroup, sum: V::F32) -> V::F32 {
    let scale = v.splat(input.scale);
    match B::FORM {
        Form::Affine => {
            let dot = dot::<V, B, 0, 8>(v, group, input, v.splat_shifted(0, 0));
            let sum = v.mul_add(v.mul(group.scale, scale), v.to_f32(dot), sum);
            v.mul_add(group.second, v.splat(input.scaled_sum), sum)
        }
        Form::Symmetric { shift } => {
            let start =
                if B::WIDE { v.wide_start(input.negative_sum) } else { v.splat_shifted(input.negative_sum, shift) };
            let dot = dot::<V, B, 0, 8>(v, group, input, start);
            v.mul_add(v.mul(group.scale, scale), v.to_f32(dot), sum)
        }
        Form::SymmetricHalves { shift } => {
            let starts = input.negative_half_sums;
            let first = dot::<V, B, 0, 4>(v, group, input, v.splat_shifted(starts[0], shift));
            let second = dot::<V, B, 4, 8>(v, group, input, v.splat_shifted(starts[1], shift));
            let sum = v.mul_add(v.mul(group.scale, scale), v.to_f32(first), sum);
            v.mul_add(v.mul(group.second, scale), v.to_f32(second), sum)
        }
    }
}

/// Integer dot product of registers `FROM..TO` of a group.
#[inline(always)]
fn dot<V: Vectors, B: IntegerBlock, const FROM: usize, const TO: usize>(
    v: V,
    group: &Group<V>,
    input: &QuantizedGroup,
    start: V::I32,
) -> V::I32 {
    let mut sum = start;
    for i in FROM..TO {
        let (weights, input) = (group.values[i], input.words[i]);
        sum = if B::WIDE { v.dot_wide(sum, weights, input) } else { v.dot(sum, weights, input) };
    }
    sum
}

/// Asks for the weights that come some way after `block`.
#[inline(always)]
fn prefetch<V: Vectors, B>(v: V, block: &B) {
    let ahead = std::ptr::from_ref(block).cast::<u8>().wrapping_add(PREFETCH_BYTES);
    for line in (0..size_of::<B>()).step_by(64) {
        v.prefetch(ahead.wrapping_add(line));
    }
}

impl<B: IntegerBlock> Task for AccurateProduct<'_, B> {
    type Output = ();
    const INTEGER_DOTS: bool = false;

    #[inline(always)]
    fn run<V: Vectors>(self, v: V) {
        for chunk in self.job.row_chunks(self.job.input.cols() * size_of::<f32>()) {
            for tiles in self.job.tile_groups() {
                for rows in RowBlock::within(chunk.start, chunk.end) {
                    for tile in tiles.clone() {
                        match rows.width {
                            1 => self.tile::<V, 1>(v, tile, rows),
                            ROW_BLOCK if V::MAX_ROWS >= ROW_BLOCK => self.tile::<V, ROW_BLOCK>(v, tile, rows),
                            _ => self.tile::<V, 4>(v, tile, rows),
                        }
                    }
                }
            }
        }
    }
}

impl<B: IntegerBlock> AccurateProduct<'_, B> {
    /// One tile for one block of input rows, `R` rows at a time.
    #[inline(always)]
    fn tile<V: Vectors, const R: usize>(&self, v: V, tile: usize, rows: RowBlock) {
        let blocks = tile_of(self.blocks, self.tiles, tile);
        let input = self.job.input.float_block(rows).as_chunks::<R>().0;
        let passes = rows.width / R;
        for pass in 0..passes {
            let mut results = [[0.0; TILE]; R];
            for part in 0..V::PARTS {
                let sums = accurate_sums::<V, B, R>(v, part, blocks, input[pass..].iter().step_by(passes));
                for (result, sum) in results.iter_mut().zip(sums) {
                    v.store(sum, result, part);
                }
            }
            for (row, result) in results.iter().enumerate().take(rows.rows.saturating_sub(pass * R)) {
                self.job.finish(tile, rows.first + pass * R + row, result);
            }
        }
    }
}

/// A part of a tile times `R` rows of plain input, given step by step along the rows.
#[inline(always)]
fn accurate_sums<'i, V: Vectors, B: IntegerBlock, const R: usize>(
    v: V,
    part: usize,
    blocks: &[B],
    mut input: impl ExactSizeIterator<Item = &'i [f32; R]>,
) -> [V::F32; R] {
    let mut sums = [v.zero(); R];
    // As in `quantized_sums`; and each group's eight registers.
    let groups = input.len() / GROUP / blocks.len();
    let registers = input.len() / (groups * blocks.len()) / 4;
    for block in blocks {
        let head = block.head(v, part);
        for index in 0..groups {
            let group = block.group(v, part, head, index);
            for i in 0..registers {
                for (t, input) in input.by_ref().take(4).enumerate() {
                    let weight = weight::<V, B>(v, &group, i, t);
                    for (sum, &input) in sums.iter_mut().zip(input) {
                        *sum = v.mul_add(weight, v.splat(input), *sum);
                    }
                }
            }
        }
    }
    sums
}

/// Value `t` of register `i` of a group as a number: exactly what the plain reference yields.
#[inline(always)]
fn weight<V: Vectors, B: IntegerBlock>(v: V, group: &Group<V>, i: usize, t: usize) -> V::F32 {
    // Taking the rest keeps the loop over registers a loop; see `group_of` in `blocks`.
    let integer = v.byte_as_f32(group.values[i % 8], t);
    match B::FORM {
        Form::Affine => v.mul_add(group.scale, integer, group.second),
        Form::Symmetric { shift } => v.mul(group.scale, v.sub(integer, v.splat((1 << shift) as f32))),
        Form::SymmetricHalves { shift } => {
            let scale = if i < 4 { group.scale } else { group.second };
            v.mul(scale, v.sub(integer, v.splat((1 << shift) as f32)))
        }
    }
}

/// Writes the values of one row of a matrix, of whose tile these are the blocks.
pub(super) fn row_values<B: IntegerBlock>(blocks: &[B], lane: usize, out: &mut [f32]) {
    let v = OneLane(lane);
    for (block, out) in blocks.iter().zip(out.chunks_exact_mut(B::GROUPS * GROUP)) {
        let head = block.head(v, 0);
        for (index, out) in out.as_chunks_mut::<GROUP>().0.iter_mut().enumerate() {
            let group = block.group(v, 0, head, index);
            for (k, out) in out.iter_mut().enumerate() {
                *out = weight::<OneLane, B>(v, &group, k / 4, k % 4);
            }
        }
    }
}

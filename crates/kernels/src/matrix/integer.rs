//! Products of integer weights with quantised input.
//!
//! A lane is an output row and the values along a row are taken in order, so a result is made by the same
//! operations whatever the number of input rows. A group is unpacked once for all rows of a block. Within a
//! group the arithmetic is in integers and exact.

#![allow(clippy::inline_always, reason = "part of the functions compiled for an instruction set")]

use std::ops::Range;

use super::blocks::{Form, Group, IntegerBlock};
use super::job::{CHUNK_BYTES, Job, Steps, each_row, tile_of};
use super::vectors::{TILE, Task, Vectors};
use crate::activations::{GROUP, QuantizedGroup, RowBlock};

/// A product with input quantised to 8 bits.
pub(super) struct QuantizedProduct<'a, B> {
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
        let bytes_per_row = self.job.input.cols() / GROUP * size_of::<QuantizedGroup>();
        for chunk in self.job.row_chunks(bytes_per_row, CHUNK_BYTES) {
            for tiles in self.job.tile_groups() {
                for rows in RowBlock::within(chunk.start, chunk.end) {
                    self.rows(v, tiles.clone(), rows);
                }
            }
        }
    }
}

impl<B: IntegerBlock> QuantizedProduct<'_, B> {
    /// Some tiles for one block of input rows.
    #[inline(always)]
    pub(super) fn rows<V: Vectors>(&self, v: V, tiles: Range<usize>, rows: RowBlock) {
        for tile in tiles {
            match rows.width {
                16.. if V::MAX_ROWS >= 16 => self.tile::<V, 16>(v, tile, rows),
                8.. if V::MAX_ROWS >= 8 => self.tile::<V, 8>(v, tile, rows),
                4.. if V::MAX_ROWS >= 4 => self.tile::<V, 4>(v, tile, rows),
                _ => self.tile::<V, 1>(v, tile, rows),
            }
        }
    }

    /// One tile for one block of input rows, `R` rows at a time.
    #[inline(always)]
    fn tile<V: Vectors, const R: usize>(&self, v: V, tile: usize, rows: RowBlock) {
        let blocks = tile_of(self.blocks, self.tiles, tile);
        let input = self.job.input.group_block(rows).as_chunks::<R>().0;
        let passes = rows.width / R;
        for pass in 0..passes {
            let mut results = [[0.0; TILE]; R];
            for part in 0..V::PARTS {
                let sums = sums::<V, B, R>(v, part, blocks, input, pass, passes);
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

/// A part of a tile times `R` rows of input, given group by group.
#[inline(always)]
fn sums<V: Vectors, B: IntegerBlock, const R: usize>(
    v: V,
    part: usize,
    blocks: &[B],
    input: &[[QuantizedGroup; R]],
    pass: usize,
    passes: usize,
) -> [V::F32; R] {
    let mut sums = [v.zero(); R];
    let mut input = Steps::new(input, pass, passes);
    // Always `B::GROUPS`, but calculated, so that the compiler does not write the loop out for every group.
    let groups = input.len() / blocks.len();
    // Each pass asks for its share of the next tile, so that loading goes on while it computes.
    let mut until_prefetch = pass;
    for block in blocks {
        if until_prefetch == 0 {
            prefetch_next(v, blocks, block);
            until_prefetch = passes;
        }
        until_prefetch -= 1;
        let head = block.head(v, part);
        for index in 0..groups {
            let Some(input) = input.next() else { break };
            let group = block.group(v, part, head, index);
            each_row!(r < R, sums[r] = add_group::<V, B>(v, &group, &input[r], sums[r]));
        }
    }
    sums
}

/// Adds the product of a group of weights with a group of one input row.
#[inline(always)]
fn add_group<V: Vectors, B: IntegerBlock>(
    v: V,
    group: &Group<V>,
    input: &QuantizedGroup,
    sum: V::F32,
) -> V::F32 {
    let scale = v.splat(input.scale);
    match B::FORM {
        Form::Affine => {
            let dot = dot::<V, B, 0, 8>(v, group, input, v.splat_i32(0));
            let sum = v.mul_add(v.mul(group.scale, scale), v.to_f32(dot), sum);
            v.mul_add(group.second, v.splat(input.scaled_sum), sum)
        }
        Form::Symmetric { zero_point } => {
            let start = input.start(zero_point);
            let start = if B::WIDE { v.wide_start(start) } else { v.splat_i32(start) };
            let dot = dot::<V, B, 0, 8>(v, group, input, start);
            v.mul_add(v.mul(group.scale, scale), v.to_f32(dot), sum)
        }
        Form::SymmetricHalves => {
            let first = dot::<V, B, 0, 4>(v, group, input, v.splat_i32(input.half_starts[0]));
            let second = dot::<V, B, 4, 8>(v, group, input, v.splat_i32(input.half_starts[1]));
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

/// Asks for what the next tile has in the place of `block`, into a cache that is not the nearest.
#[inline(always)]
fn prefetch_next<V: Vectors, B>(v: V, tile: &[B], block: &B) {
    let next = std::ptr::from_ref(block).wrapping_add(tile.len()).cast::<u8>();
    for line in (0..size_of::<B>()).step_by(64) {
        v.prefetch(next.wrapping_add(line));
    }
}

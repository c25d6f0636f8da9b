//! Products of integer weights with quantised input in the matrix unit, sixteen input rows at a time.
//!
//! The unit forms the whole sums of a group; vectors turn them into numbers and add them up, by the operations and in
//! the order of [`super::super::integer`]. So a row's result is the same here and there, and rows that fill no block of
//! sixteen go there, as do weights with a scale for half a group, where the unit gains nothing. Weights are unpacked, and moved so that zero is zero, once for all rows of a chunk.

#![allow(clippy::inline_always, reason = "part of the functions compiled for an instruction set")]

use std::cell::RefCell;
use std::ops::Range;

use super::super::blocks::{Form, IntegerBlock};
use super::super::integer::QuantizedProduct;
use super::super::job::{each_row, tile_of};
use super::super::vectors::{Avx512, TILE, Vectors, WideTask, dispatch_wide};
use crate::activations::{GROUP, QuantizedGroup, ROW_BLOCK, RowBlock};
use crate::cpu_features::Isa;
use crate::memory::{AlignedVec, Plain};
use crate::tile_unit::{IntegerRegisters, TileUnit};

/// Input rows from which on unpacking weights for the unit pays.
const ROWS_MIN: usize = 32;

/// Bytes of input rows that are worked on before the weights are read again: half of the second-level cache of the
/// processors that have the unit.
const CHUNK_BYTES: usize = 1024 * 1024;

/// Groups of a row that are worked on together: sixteen rows of input stay in the nearest cache while the tiles pass.
const STRETCH: usize = 24;

/// Groups that the unit is ahead of the vectors.
const AHEAD: usize = 2;

/// Groups in a block, at most.
const GROUPS_MAX: usize = 8;

/// Results of the unit that are on their way: a power of two above [`AHEAD`].
const RING: usize = 4;

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

#[derive(Default)]
struct Scratch {
    groups: AlignedVec<UnpackedGroup>,
    sums: AlignedVec<Sums>,
    ring: AlignedVec<Dots>,
}

impl Scratch {
    /// Makes room for a product.
    fn fit(&mut self, tiles: usize, rows: usize) {
        // A stretch is as long as whole blocks make it.
        fit(&mut self.groups, tiles * (STRETCH + GROUPS_MAX));
        fit(&mut self.sums, tiles * rows.div_ceil(ROW_BLOCK));
        fit(&mut self.ring, RING);
    }
}

fn fit<T: Plain>(array: &mut AlignedVec<T>, len: usize) {
    if array.len() < len {
        *array = AlignedVec::zeroed(len);
    }
}

/// Whole sums of a group for sixteen input rows.
type Dots = [[i32; TILE]; ROW_BLOCK];

/// Sums over the groups so far.
type Sums = [[f32; TILE]; ROW_BLOCK];

/// A group of 32 values of 16 rows of the matrix.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct UnpackedGroup {
    /// Signed.
    values: [[u8; 64]; 8],
    scale: [f32; TILE],
    minimum: [f32; TILE],
}

// SAFETY: numbers only, every bit pattern is a value; all parts are whole lines of 64 bytes, so nothing is padded.
unsafe impl Plain for UnpackedGroup {}

/// A product for many input rows.
pub(in crate::matrix) struct TiledProduct<'a, B> {
    registers: IntegerRegisters,
    product: QuantizedProduct<'a, B>,
    scratch: &'a mut Scratch,
}

impl<B: IntegerBlock> TiledProduct<'_, B> {
    /// Computes a product, in the unit if it has rows enough.
    pub(in crate::matrix) fn run(unit: TileUnit, isa: Isa, product: QuantizedProduct<'_, B>) {
        if product.job.input.rows() < ROWS_MIN || B::FORM == Form::SymmetricHalves {
            return super::super::vectors::dispatch(isa, product);
        }
        SCRATCH.with_borrow_mut(|scratch| {
            let tiles = product.job.tile_groups().map(|tiles| tiles.len()).max().unwrap_or(0);
            scratch.fit(tiles, product.job.input.rows());
            unit.with_integer_registers(|registers| {
                dispatch_wide(isa, TiledProduct { registers, product, scratch });
            });
        });
    }
}

impl<B: IntegerBlock> WideTask for TiledProduct<'_, B> {
    #[inline(always)]
    fn run(self, v: Avx512) {
        let Self { registers, product, scratch } = self;
        let per_tile = product.job.input.cols() / GROUP;
        for chunk in product.job.row_chunks(per_tile * size_of::<QuantizedGroup>(), CHUNK_BYTES) {
            for tiles in product.job.tile_groups() {
                for stretch in stretches::<B>(per_tile) {
                    let groups = &mut scratch.groups[..tiles.len() * stretch.len()];
                    for (tile, groups) in tiles.clone().zip(groups.chunks_exact_mut(stretch.len())) {
                        let tile = tile_of(product.blocks, product.tiles, tile);
                        let blocks = &tile[stretch.start / B::GROUPS..stretch.end / B::GROUPS];
                        unpack(v, blocks, groups);
                    }
                    let part = Part { product: &product, tiles: tiles.clone(), groups, stretch };
                    part.run(v, registers, chunk.clone(), &mut scratch.sums, &mut scratch.ring);
                }
                for rows in RowBlock::within(chunk.start, chunk.end).filter(|rows| rows.width < ROW_BLOCK) {
                    product.rows(v, tiles.clone(), rows);
                }
            }
        }
    }
}

/// The columns, cut into ranges of groups that are whole blocks.
#[inline(always)]
fn stretches<B: IntegerBlock>(per_tile: usize) -> impl Iterator<Item = Range<usize>> {
    let count = per_tile.div_ceil(STRETCH);
    let length = per_tile.div_ceil(count).next_multiple_of(B::GROUPS);
    (0..per_tile).step_by(length).map(move |first| first..per_tile.min(first + length))
}

/// Some columns of some tiles, unpacked.
struct Part<'a, B> {
    product: &'a QuantizedProduct<'a, B>,
    tiles: Range<usize>,
    /// Those of one tile after the other.
    groups: &'a [UnpackedGroup],
    /// Their place in the tile.
    stretch: Range<usize>,
}

impl<B: IntegerBlock> Part<'_, B> {
    /// Adds the part to the sums of all whole blocks of rows, and puts the sums where they belong once they are complete.
    #[inline(always)]
    fn run(
        self,
        v: Avx512,
        registers: IntegerRegisters,
        chunk: Range<usize>,
        sums: &mut [Sums],
        ring: &mut [Dots],
    ) {
        let job = &self.product.job;
        let (is_first, is_last) = (self.stretch.start == 0, self.stretch.end == job.input.cols() / GROUP);
        let mut sums = sums.iter_mut();
        for rows in RowBlock::within(chunk.start, chunk.end).filter(|rows| rows.width == ROW_BLOCK) {
            let input = &job.input.group_block(rows).as_chunks::<ROW_BLOCK>().0[self.stretch.clone()];
            for (tile, groups) in self.tiles.clone().zip(self.groups.chunks_exact(input.len())) {
                let Some(sums) = sums.next() else { return };
                if is_first {
                    *sums = [[0.0; TILE]; ROW_BLOCK];
                }
                add_products::<B>(v, registers, groups, input, sums, ring);
                if is_last {
                    for (row, sums) in sums.iter().enumerate().take(rows.rows) {
                        job.finish(tile, rows.first + row, sums);
                    }
                }
            }
        }
    }
}

/// Adds to the sums of sixteen rows of input the products with some groups of a tile.
#[inline(always)]
fn add_products<B: IntegerBlock>(
    v: Avx512,
    registers: IntegerRegisters,
    groups: &[UnpackedGroup],
    input: &[[QuantizedGroup; ROW_BLOCK]],
    sums: &mut Sums,
    ring: &mut [Dots],
) {
    const ROWS: usize = ROW_BLOCK;
    for (index, ahead) in groups.iter().zip(input).enumerate().take(AHEAD) {
        multiply(registers, ahead.0, ahead.1, &mut ring[index % RING]);
    }
    let mut kept = [v.zero(); ROWS];
    each_row!(r < ROWS, kept[r] = v.load_f32(&sums[r], 0));
    for (index, (group, input_group)) in groups.iter().zip(input).enumerate() {
        if let (Some(group), Some(input)) = (groups.get(index + AHEAD), input.get(index + AHEAD)) {
            multiply(registers, group, input, &mut ring[(index + AHEAD) % RING]);
        }
        let dots = &ring[index % RING];
        let (scale, minimum) = (v.load_f32(&group.scale, 0), v.load_f32(&group.minimum, 0));
        each_row!(
            r < ROWS,
            kept[r] = {
                let input = &input_group[r];
                let factor = v.mul(scale, v.splat(input.scale));
                let sum = v.mul_add(factor, v.load_integers(&dots[r]), kept[r]);
                if B::FORM == Form::Affine { v.mul_add(minimum, v.splat(input.scaled_sum), sum) } else { sum }
            }
        );
    }
    each_row!(r < ROWS, v.store(kept[r], &mut sums[r], 0));
}

/// Lets the unit form the whole sums of a group.
#[inline(always)]
fn multiply(
    registers: IntegerRegisters,
    group: &UnpackedGroup,
    input: &[QuantizedGroup; ROW_BLOCK],
    out: &mut Dots,
) {
    let out = out.as_flattened_mut().as_mut_ptr();
    // SAFETY: sixteen groups of input lie 64 bytes apart and begin with their 32 values; the group's values are eight
    // lines of 64 bytes, and the results sixteen lines of sixteen integers.
    unsafe { registers.product(input.as_ptr().cast(), group.values.as_flattened().as_ptr(), out) };
}

/// Unpacks a tile.
#[inline(always)]
fn unpack<B: IntegerBlock>(v: Avx512, blocks: &[B], groups: &mut [UnpackedGroup]) {
    let zero_point = if let Form::Symmetric { zero_point } = B::FORM { zero_point as u8 } else { 0 };
    let per_block = groups.len() / blocks.len();
    let mut groups = groups.iter_mut();
    for block in blocks {
        let head = block.head(v, 0);
        for index in 0..per_block {
            let Some(to) = groups.next() else { break };
            let group = block.group(v, 0, head, index);
            for (bytes, values) in to.values.iter_mut().zip(group.values) {
                v.store_bytes(values, bytes);
                for byte in bytes {
                    *byte = byte.wrapping_sub(zero_point);
                }
            }
            v.store(group.scale, &mut to.scale, 0);
            v.store(group.second, &mut to.minimum, 0);
        }
    }
}

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
const ROWS_MIN: usize = 14;

/// Groups that the unit is ahead of the vectors.
const AHEAD: usize = 2;

/// Results of the unit that are on their way: a power of two above [`AHEAD`].
const RING: usize = 4;

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

#[derive(Default)]
struct Scratch {
    groups: AlignedVec<UnpackedGroup>,
    ring: AlignedVec<Dots>,
}

/// Whole sums of a group for sixteen input rows.
type Dots = [[i32; TILE]; ROW_BLOCK];

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
            let groups = product.job.tile_groups().map(|tiles| tiles.len()).max().unwrap_or(0);
            let groups = groups * product.job.input.cols() / GROUP;
            if scratch.groups.len() < groups {
                scratch.groups = AlignedVec::zeroed(groups);
            }
            if scratch.ring.len() < RING {
                scratch.ring = AlignedVec::zeroed(RING);
            }
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
        let Scratch { groups, ring } = scratch;
        let per_tile = product.job.input.cols() / GROUP;
        for chunk in product.row_chunks() {
            for tiles in product.job.tile_groups() {
                let groups = &mut groups[..tiles.len() * per_tile];
                for (tile, groups) in tiles.clone().zip(groups.chunks_exact_mut(per_tile)) {
                    unpack(v, tile_of(product.blocks, product.tiles, tile), groups);
                }
                for rows in RowBlock::within(chunk.start, chunk.end) {
                    if rows.width < ROW_BLOCK {
                        product.rows(v, tiles.clone(), rows);
                        continue;
                    }
                    block(v, registers, &product, tiles.clone(), groups, rows, ring);
                }
            }
        }
    }
}

/// Some tiles, whose groups these are, for sixteen input rows.
#[inline(always)]
fn block<B: IntegerBlock>(
    v: Avx512,
    registers: IntegerRegisters,
    product: &QuantizedProduct<'_, B>,
    tiles: Range<usize>,
    groups: &[UnpackedGroup],
    rows: RowBlock,
    ring: &mut [Dots],
) {
    let input = product.job.input.group_block(rows).as_chunks::<ROW_BLOCK>().0;
    for (tile, groups) in tiles.zip(groups.chunks_exact(input.len())) {
        let sums = sums::<B>(v, registers, groups, input, ring);
        for (row, sum) in sums.into_iter().enumerate().take(rows.rows) {
            let mut result = [0.0; TILE];
            v.store(sum, &mut result, 0);
            product.job.finish(tile, rows.first + row, &result);
        }
    }
}

/// A tile times sixteen rows of input.
#[inline(always)]
fn sums<B: IntegerBlock>(
    v: Avx512,
    registers: IntegerRegisters,
    groups: &[UnpackedGroup],
    input: &[[QuantizedGroup; ROW_BLOCK]],
    ring: &mut [Dots],
) -> [<Avx512 as Vectors>::F32; ROW_BLOCK] {
    const ROWS: usize = ROW_BLOCK;
    let mut sums = [v.zero(); ROWS];
    for (index, ahead) in groups.iter().zip(input).enumerate().take(AHEAD) {
        multiply(registers, ahead.0, ahead.1, &mut ring[index % RING]);
    }
    for (index, (group, input_group)) in groups.iter().zip(input).enumerate() {
        if let (Some(group), Some(input)) = (groups.get(index + AHEAD), input.get(index + AHEAD)) {
            multiply(registers, group, input, &mut ring[(index + AHEAD) % RING]);
        }
        let dots = &ring[index % RING];
        let (scale, minimum) = (v.load_f32(&group.scale, 0), v.load_f32(&group.minimum, 0));
        each_row!(
            r < ROWS,
            sums[r] = {
                let input = &input_group[r];
                let factor = v.mul(scale, v.splat(input.scale));
                let sum = v.mul_add(factor, v.load_integers(&dots[r]), sums[r]);
                if B::FORM == Form::Affine { v.mul_add(minimum, v.splat(input.scaled_sum), sum) } else { sum }
            }
        );
    }
    sums
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

//! Products of integer weights with plain input: a few tiles at a time become singles, which the product with
//! float weights then takes.
//!
//! The singles are exactly what the plain reference yields. They live in a scratch of the thread, so that a
//! step allocates nothing once it has grown.

#![allow(clippy::inline_always, reason = "part of the functions compiled for an instruction set")]

use std::cell::RefCell;

use super::blocks::{Form, Group, IntegerBlock};
use super::float::{FloatProduct, Singles};
use super::job::{Job, tile_of};
use super::vectors::{OneLane, Task, Vectors, dispatch};
use crate::activations::GROUP;
use crate::cpu_features::Isa;
use crate::memory::AlignedVec;

thread_local! {
    static SCRATCH: RefCell<AlignedVec<Singles>> = RefCell::default();
}

/// The product of a matrix of `tiles` tiles, whose blocks these are.
pub(super) fn product<B: IntegerBlock>(isa: Isa, blocks: &[B], tiles: usize, job: &Job<'_>) {
    let cols = job.input.cols();
    SCRATCH.with_borrow_mut(|scratch| {
        for group in job.tile_groups() {
            if scratch.len() < group.len() * cols {
                *scratch = AlignedVec::zeroed(group.len() * cols);
            }
            let columns = &mut scratch[..group.len() * cols];
            for (tile, columns) in group.clone().zip(columns.chunks_exact_mut(cols)) {
                dispatch(isa, Unpack { blocks: tile_of(blocks, tiles, tile), columns });
            }
            let job = Job { tiles: group.clone(), ..*job };
            dispatch(isa, FloatProduct { columns, first: group.start, tiles: group.len(), job });
        }
    });
}

/// The values of one row of a matrix, of whose tile these are the blocks.
pub(super) fn row_values<B: IntegerBlock>(blocks: &[B], lane: usize, out: &mut [f32]) {
    let v = OneLane(lane);
    for (block, out) in blocks.iter().zip(out.chunks_exact_mut(B::GROUPS * GROUP)) {
        let head = block.head(v, 0);
        for (index, out) in out.as_chunks_mut::<GROUP>().0.iter_mut().enumerate() {
            let group = block.group(v, 0, head, index);
            for (k, out) in out.iter_mut().enumerate() {
                *out = weight::<OneLane, B>(v, &group, k);
            }
        }
    }
}

/// Turns one tile into singles.
struct Unpack<'a, B> {
    blocks: &'a [B],
    /// One for each column of the matrix.
    columns: &'a mut [Singles],
}

impl<B: IntegerBlock> Task for Unpack<'_, B> {
    type Output = ();
    const INTEGER_DOTS: bool = false;

    #[inline(always)]
    fn run<V: Vectors>(self, v: V) {
        // Always `B::GROUPS`, but calculated, so that the compiler does not write the loop out for every
        // group.
        let groups = self.columns.len() / GROUP / self.blocks.len();
        let mut columns = self.columns.as_chunks_mut::<GROUP>().0.iter_mut();
        for block in self.blocks {
            for index in 0..groups {
                let Some(columns) = columns.next() else { break };
                for part in 0..V::PARTS {
                    let group = block.group(v, part, block.head(v, part), index);
                    for (k, column) in columns.iter_mut().enumerate() {
                        v.store(weight::<V, B>(v, &group, k), &mut column.0, part);
                    }
                }
            }
        }
    }
}

/// Value `k` of a group as a number: exactly what the plain reference yields.
#[inline(always)]
fn weight<V: Vectors, B: IntegerBlock>(v: V, group: &Group<V>, k: usize) -> V::F32 {
    let integer = v.byte_as_f32(group.values[k / 4], k % 4);
    match B::FORM {
        Form::Affine => v.mul_add(group.scale, integer, group.second),
        Form::Symmetric { zero_point } => v.mul(group.scale, v.sub(integer, v.splat(zero_point as f32))),
        Form::SymmetricHalves => {
            let scale = if k < GROUP / 2 { group.scale } else { group.second };
            v.mul(scale, v.sub(integer, v.splat(32.0)))
        }
    }
}

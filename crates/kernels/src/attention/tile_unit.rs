//! The products of attention in the processor's matrix unit: sixteen query vectors at a time against a tile of keys.
//!
//! Keys and values lie in the cache just as the unit wants its right side: pairs of neighbours in the head (keys) or of
//! positions (values). Queries and weights go in as two parts of half width each, so that they keep the precision of
//! the other ways. The softmax between the products is the one of [`super::tile`].
//!
//! The unit works on sixteen vectors whether there are as many or not; rows that belong to none hold anything, and
//! nobody looks at what comes out of them. What no row may see of a pair of sub-blocks is replaced by zeros, since
//! the unit would multiply it.

use std::ops::Range;

use super::TILE;
use super::item::{Products, State};
use super::keys::{KeyTile, Rows, SUBS};
use super::tile::{load_padded, soften, tiles};
use crate::kv_cache::{KvCache, KvType, SUB_BLOCK};
use crate::lanes::{LANES, Lanes};
use crate::tile_unit::{Registers, SplitRows, TILE_ROWS};

/// Dimensions of a head, or positions, that one product sums over.
const STEP: usize = 32;

/// Values of a head that are summed up together.
const WIDTH: usize = 64;

/// Words of a row of weights: a tile's positions in pairs.
const WEIGHT_WORDS: usize = TILE / 2;

/// Products in the matrix unit, whose registers are ready.
#[derive(Clone, Copy)]
pub(super) struct InTiles(pub(super) Registers);

/// Whether a cache has the layout that the unit takes. A property of the layer: all its rows are computed alike.
pub(super) fn suits(cache: &KvCache) -> bool {
    let padded = cache.padded_dim();
    cache.kind() == KvType::Bf16
        && padded.is_multiple_of(WIDTH)
        && cache.geometry().block_size.is_multiple_of(2 * SUB_BLOCK)
}

impl Products for InTiles {
    /// All upper parts come first, `padded / 2` words a vector, then all lower parts.
    #[inline(always)]
    fn pack_query<L: Lanes>(self, l: L, values: &[f32], vector: usize, padded: usize, queries: &mut [u32]) {
        let (high, low) = queries.split_at_mut(queries.len() / 2);
        let place = vector * padded / 2..(vector + 1) * padded / 2;
        let parts =
            high[place.clone()].chunks_exact_mut(LANES / 2).zip(low[place].chunks_exact_mut(LANES / 2));
        for (at, (high, low)) in parts.enumerate() {
            let values = values.get(at * LANES..).unwrap_or(&[]);
            let split = split(l, load_padded(l, &values[..values.len().min(LANES)]));
            high.copy_from_slice(&split.0);
            low.copy_from_slice(&split.1);
        }
    }

    #[inline(always)]
    fn segment<L: Lanes>(self, l: L, rows: &Rows<'_>, segment: usize, queries: &[u32], state: &mut State) {
        for (first, wanted) in tiles(rows, segment) {
            let tile = KeyTile::find(rows, first, &wanted);
            for vector in (0..rows.vectors()).step_by(TILE_ROWS) {
                Block { rows, tile: &tile, wanted: &wanted, first: vector }.run(l, self.0, queries, state);
            }
        }
    }
}

/// Sixteen query vectors against one tile.
struct Block<'a> {
    rows: &'a Rows<'a>,
    tile: &'a KeyTile<'a>,
    /// Positions that any row of the item may see in this segment.
    wanted: &'a Range<usize>,
    /// First vector.
    first: usize,
}

/// Scores of sixteen vectors for a tile's keys.
#[repr(align(64))]
struct Scores([[f32; TILE]; TILE_ROWS]);

/// Their weights, in two parts.
#[repr(align(64))]
struct Weights([[[u32; WEIGHT_WORDS]; TILE_ROWS]; 2]);

impl Block<'_> {
    #[inline(always)]
    fn run<L: Lanes>(&self, l: L, registers: Registers, queries: &[u32], state: &mut State) {
        let count = TILE_ROWS.min(self.rows.vectors() - self.first);
        if (0..count).all(|n| self.visible(n).is_empty()) {
            return;
        }
        let mut scores = Scores([[0.0; TILE]; TILE_ROWS]);
        self.scores(registers, queries, &mut scores);
        let mut weights = Weights([[[0; WEIGHT_WORDS]; TILE_ROWS]; 2]);
        let (scale, width) = (l.splat(self.rows.shape.scale), self.rows.shape.padded() / LANES);
        for n in 0..count {
            let visible = self.visible(n);
            if visible.is_empty() {
                continue;
            }
            let row = scores.0[n].as_chunks::<LANES>().0;
            let row: [L::F; SUBS] = std::array::from_fn(|sub| l.mul(l.load(&row[sub]), scale));
            let softened = soften(l, self.first + n, row, &visible, width, state);
            for (sub, values) in softened.into_iter().enumerate() {
                let (high, low) = split(l, values);
                let place = sub * LANES / 2..(sub + 1) * LANES / 2;
                weights.0[0][n][place.clone()].copy_from_slice(&high);
                weights.0[1][n][place].copy_from_slice(&low);
            }
        }
        let sums = &mut state.values[self.first * width..(self.first + TILE_ROWS) * width];
        self.add_values(registers, &weights, sums, &mut state.copy);
    }

    fn visible(&self, n: usize) -> Range<usize> {
        self.rows.visible_in_tile(self.first + n, self.tile.first)
    }

    /// Products of each vector with each key. For keys that no row may see the results are anything.
    #[inline(always)]
    fn scores(&self, registers: Registers, queries: &[u32], scores: &mut Scores) {
        let padded = self.rows.shape.padded();
        let place = self.first * padded / 2..(self.first + TILE_ROWS) * padded / 2;
        let (high, low) = queries.split_at(queries.len() / 2);
        let left = SplitRows {
            high: high[place.clone()].as_ptr(),
            low: low[place].as_ptr(),
            stride: padded * 2,
            step: STEP * 2,
        };
        // A sub-block that no row may see has no keys; any other takes its place.
        let Some(any) = self.tile.keys.iter().find(|keys| !keys.is_empty()) else { return };
        let right = self.tile.keys.map(|keys| {
            let keys = if keys.is_empty() { any } else { keys };
            assert!(keys.len() == padded / 2, "keys of another head size");
            keys.as_flattened().as_ptr()
        });
        let out = scores.0.as_flattened_mut().as_mut_ptr();
        // SAFETY: the left side is sixteen rows of `padded` half-width values each, as its places were checked to be;
        // each right side is `padded / 2` lines of 64 bytes, sixteen for each step; the result has sixteen rows of
        // four times sixteen values.
        unsafe { registers.add_four_products(left, right, padded / STEP, out, TILE * size_of::<f32>()) };
    }

    /// Adds the values, weighted, to the sums of sixteen vectors.
    #[inline(always)]
    fn add_values(
        &self,
        registers: Registers,
        weights: &Weights,
        sums: &mut [[f32; LANES]],
        copy: &mut [[u32; LANES]],
    ) {
        let padded = self.rows.shape.padded();
        assert!(sums.len() == TILE_ROWS * padded / LANES && padded.is_multiple_of(WIDTH));
        let width = padded / LANES;
        let mut right = [None; TILE / STEP];
        for (half, (right, copy)) in right.iter_mut().zip(copy.chunks_exact_mut(STEP / 2 * width)).enumerate()
        {
            let start = self.tile.first + half * STEP;
            let seen = self.wanted.start.max(start)..self.wanted.end.min(start + STEP);
            if seen.is_empty() {
                continue;
            }
            let mut values = self.rows.paired_values(start);
            if seen.len() < STEP {
                copy_visible(values, seen.start - start..seen.end - start, width, copy);
                values = copy;
            }
            assert!(values.len() == SUB_BLOCK * padded / LANES, "values of another head size");
            *right = Some(values.as_flattened());
        }
        let [high, low] = weights.0.each_ref().map(|part| part.as_flattened().as_ptr());
        let left = SplitRows { high, low, stride: WEIGHT_WORDS * 4, step: STEP * 2 };
        for dim in (0..padded).step_by(WIDTH) {
            let right = right.map(|values| values.map(|values| values[dim..].as_ptr()));
            // SAFETY: the left side is sixteen rows of a tile's half-width values; each right side is sixteen rows of
            // `padded` pairs, of which 64 from `dim` on exist; the same holds for the sixteen rows of `padded` sums.
            unsafe {
                let sums = sums.as_flattened_mut().as_mut_ptr().add(dim);
                registers.add_products(left, right, padded * 4, sums, padded * 4);
            }
        }
    }
}

/// Takes over the values at some of 32 positions, whose pairs take `width` registers each.
fn copy_visible(values: &[[u32; LANES]], seen: Range<usize>, width: usize, to: &mut [[u32; LANES]]) {
    let pairs = values.chunks_exact(width).zip(to.chunks_exact_mut(width));
    for (pair, (values, to)) in pairs.enumerate() {
        let first = if seen.contains(&(2 * pair)) { 0x0000_ffff } else { 0 };
        let second = if seen.contains(&(2 * pair + 1)) { 0xffff_0000 } else { 0 };
        for (value, to) in values.as_flattened().iter().zip(to.as_flattened_mut()) {
            *to = value & (first | second);
        }
    }
}

/// Sixteen numbers as two parts of half width: the upper half of each, and the rest.
#[inline(always)]
fn split<L: Lanes>(l: L, values: L::F) -> ([u32; LANES / 2], [u32; LANES / 2]) {
    let high = l.of_bits(l.and(l.to_bits(values), l.splat_u(0xffff_0000)));
    (l.pack_bf16(high), l.pack_bf16(l.sub(values, high)))
}

//! The inner loops: scores of a tile of keys, one softmax update, and the weighted sum of its values.
//!
//! Query vectors go in blocks of up to four, and each block over four vectors of keys or values, so that a load
//! is used four times. How vectors are blocked changes no result: every lane sees its own sequence of products.

use std::ops::Range;

use super::cells::{Cells, KEEP_ALL};
use super::item::{Products, State};
use super::keys::{KeyTile, Rows, SUBS};
use super::{SEGMENT, TILE};
use crate::kv_cache::SUB_BLOCK;
use crate::lanes::{LANES, Lanes};

/// Products in vector registers, sixteen keys or sixteen values of a head in each.
#[derive(Clone, Copy)]
pub(super) struct InLanes<C>(pub(super) C);

impl<C: Cells> Products for InLanes<C> {
    #[inline(always)]
    fn pack_query<L: Lanes>(self, l: L, values: &[f32], vector: usize, padded: usize, queries: &mut [u32]) {
        let stride = padded * C::WORDS / C::VALUES;
        let packed =
            queries[vector * stride..(vector + 1) * stride].chunks_exact_mut(stride * LANES / padded);
        for (values, to) in values.chunks(LANES).zip(packed) {
            self.0.pack(l, load_padded(l, values), to);
        }
    }

    #[inline(always)]
    fn segment<L: Lanes>(self, l: L, rows: &Rows<'_>, segment: usize, queries: &[u32], state: &mut State) {
        for (first, wanted) in tiles(rows, segment) {
            blocks(l, self.0, rows, &KeyTile::find(rows, first, &wanted), queries, state);
        }
    }
}

/// All query vectors of an item against one tile.
#[inline(always)]
pub(super) fn blocks<L: Lanes, C: Cells>(
    l: L,
    cells: C,
    rows: &Rows<'_>,
    tile: &KeyTile<'_>,
    queries: &[u32],
    state: &mut State,
) {
    for first in (0..rows.vectors()).step_by(4) {
        let block = Block { rows, tile, first };
        match rows.vectors() - first {
            1 => block.run::<L, C, 1>(l, cells, queries, state),
            2 => block.run::<L, C, 2>(l, cells, queries, state),
            3 => block.run::<L, C, 3>(l, cells, queries, state),
            _ => block.run::<L, C, 4>(l, cells, queries, state),
        }
    }
}

/// The tiles of a segment that any row may see: the first position of each, and all positions of the segment that
/// any row may see.
#[inline(always)]
pub(super) fn tiles(rows: &Rows<'_>, segment: usize) -> impl Iterator<Item = (usize, Range<usize>)> + use<> {
    let seen = rows.visible();
    let wanted = seen.start.max(segment * SEGMENT)..seen.end.min((segment + 1) * SEGMENT);
    (wanted.start / TILE..wanted.end.div_ceil(TILE)).map(move |tile| (tile * TILE, wanted.clone()))
}

/// Up to sixteen values, filled up with zeros.
#[inline(always)]
pub(super) fn load_padded<L: Lanes>(l: L, values: &[f32]) -> L::F {
    let mut padded = [0.0; LANES];
    padded[..values.len()].copy_from_slice(values);
    l.load(&padded)
}

/// Up to four query vectors against one tile.
struct Block<'a> {
    rows: &'a Rows<'a>,
    tile: &'a KeyTile<'a>,
    /// First vector.
    first: usize,
}

impl Block<'_> {
    #[inline(always)]
    fn run<L: Lanes, C: Cells, const N: usize>(&self, l: L, cells: C, queries: &[u32], state: &mut State) {
        let mut visible = [const { 0..0 }; N];
        let mut any = false;
        for (n, visible) in visible.iter_mut().enumerate() {
            *visible = self.rows.visible_in_tile(self.first + n, self.tile.first);
            any |= visible.start < visible.end;
        }
        if !any {
            return;
        }
        let scores = self.scores::<L, C, N>(l, cells, queries);
        let width = self.rows.shape.padded() / LANES;
        let mut weights = [[0; TILE]; N];
        for n in 0..N {
            if !visible[n].is_empty() {
                let mut softened = soften(l, self.first + n, scores[n], &visible[n], width, state);
                if let Some(scales) = self.tile.scales {
                    softened = scaled(l, softened, scales.values);
                    if visible[n] != (0..TILE) {
                        // Scales that nobody may see may be anything.
                        mask(l, &mut softened, &visible[n], 0.0);
                    }
                }
                let step = LANES * C::WORDS / C::VALUES;
                for (values, weights) in softened.into_iter().zip(weights[n].chunks_exact_mut(step)) {
                    cells.pack(l, values, weights);
                }
            }
        }
        let sums = &mut state.values[self.first * width..(self.first + N) * width];
        self.add_values::<L, C, N>(l, cells, &visible, &weights, sums);
    }

    /// Products of each vector with each key, times the scale; keys that no row sees give minus infinity.
    #[inline(always)]
    fn scores<L: Lanes, C: Cells, const N: usize>(
        &self,
        l: L,
        cells: C,
        queries: &[u32],
    ) -> [[L::F; SUBS]; N] {
        let stride = self.rows.shape.padded() * C::WORDS / C::VALUES;
        let mut vectors: [&[u32]; N] = [&[]; N];
        for (n, vector) in vectors.iter_mut().enumerate() {
            *vector = &queries[(self.first + n) * stride..(self.first + n + 1) * stride];
        }
        let mut scores = [[l.splat(f32::NEG_INFINITY); SUBS]; N];
        if L::MANY_REGISTERS && self.tile.complete {
            scores = products::<L, C, N, SUBS>(l, cells, vectors, self.tile.keys);
        } else {
            for sub in 0..SUBS {
                if !self.tile.keys[sub].is_empty() {
                    let column = products::<L, C, N, 1>(l, cells, vectors, [self.tile.keys[sub]]);
                    for (row, column) in scores.iter_mut().zip(column) {
                        row[sub] = column[0];
                    }
                }
            }
        }
        let scale = l.splat(self.rows.shape.scale);
        for row in &mut scores {
            for score in &mut *row {
                *score = l.mul(*score, scale);
            }
            if let Some(scales) = self.tile.scales {
                *row = scaled(l, *row, scales.keys);
            }
        }
        scores
    }

    /// Adds the values of the visible positions, in ascending order for each vector, times their weights.
    #[inline(always)]
    fn add_values<L: Lanes, C: Cells, const N: usize>(
        &self,
        l: L,
        cells: C,
        visible: &[Range<usize>; N],
        weights: &[[u32; TILE]; N],
        sums: &mut [[f32; LANES]],
    ) {
        let width = sums.len() / N;
        // Cells that every vector sees whole go through the blocked loop, the rest alone.
        let start = visible.iter().map(|range| range.start.div_ceil(C::VALUES)).max().unwrap_or(0);
        let end = visible.iter().map(|range| range.end / C::VALUES).min().unwrap_or(0);
        let common = if start < end { start..end } else { 0..0 };
        for n in 0..N {
            let head =
                if common.is_empty() { visible[n].clone() } else { visible[n].start..start * C::VALUES };
            add_alone(l, cells, self.tile, &weights[n], head, &mut sums[n * width..(n + 1) * width]);
        }
        if common.is_empty() {
            return;
        }
        let mut dim = 0;
        while L::MANY_REGISTERS && dim + 4 <= width {
            add_together::<L, C, N, 4>(l, cells, self.tile, weights, &common, dim, sums);
            dim += 4;
        }
        while dim < width {
            add_together::<L, C, N, 1>(l, cells, self.tile, weights, &common, dim, sums);
            dim += 1;
        }
        for n in 0..N {
            let tail = end * C::VALUES..visible[n].end;
            add_alone(l, cells, self.tile, &weights[n], tail, &mut sums[n * width..(n + 1) * width]);
        }
    }
}

/// One update of a vector's softmax: raises its maximum, adds to its sum, and returns the weights of the keys. The
/// vector's values take `width` registers.
#[inline(always)]
pub(super) fn soften<L: Lanes>(
    l: L,
    vector: usize,
    mut scores: [L::F; SUBS],
    visible: &Range<usize>,
    width: usize,
    state: &mut State,
) -> [L::F; SUBS] {
    if *visible != (0..TILE) {
        mask(l, &mut scores, visible, f32::NEG_INFINITY);
    }
    let [a, b, c, d] = scores;
    let largest = l.largest(l.max(l.max(a, b), l.max(c, d)));
    let old = state.max[vector];
    let new = if largest > old { largest } else { old };
    if new > old {
        let keep = l.exp(l.splat(old - new));
        for value in &mut state.values[vector * width..(vector + 1) * width] {
            l.store(l.mul(l.load(value), keep), value);
        }
        l.store(l.mul(l.load(&state.sum[vector]), keep), &mut state.sum[vector]);
        state.max[vector] = new;
    }
    let shift = l.splat(new);
    for score in &mut scores {
        *score = l.exp(l.sub(*score, shift));
    }
    let [a, b, c, d] = scores;
    let sum = l.add(l.load(&state.sum[vector]), l.add(l.add(a, b), l.add(c, d)));
    l.store(sum, &mut state.sum[vector]);
    scores
}

/// Numbers of a tile's positions times the scales of these.
#[inline(always)]
fn scaled<L: Lanes>(l: L, numbers: [L::F; SUBS], scales: [&[u32; LANES]; SUBS]) -> [L::F; SUBS] {
    let mut scaled = numbers;
    for (number, scales) in scaled.iter_mut().zip(scales) {
        *number = l.mul(*number, l.of_bits(l.load_u(scales)));
    }
    scaled
}

/// `hidden` for the positions that are not visible, whatever their memory holds.
#[inline(always)]
fn mask<L: Lanes>(l: L, numbers: &mut [L::F; SUBS], visible: &Range<usize>, hidden: f32) {
    const INDEX: [f32; LANES] = [0., 1., 2., 3., 4., 5., 6., 7., 8., 9., 10., 11., 12., 13., 14., 15.];
    let hidden = l.splat(hidden);
    let (start, end) = (l.splat(visible.start as f32), l.splat(visible.end as f32));
    for (sub, number) in numbers.iter_mut().enumerate() {
        let index = l.add(l.load(&INDEX), l.splat((sub * LANES) as f32));
        *number = l.if_less(index, end, *number, hidden);
        *number = l.if_less(index, start, hidden, *number);
    }
}

/// Dot products of `N` vectors with `16 * S` keys; each lane runs through the head in order.
#[inline(always)]
fn products<L: Lanes, C: Cells, const N: usize, const S: usize>(
    l: L,
    cells: C,
    vectors: [&[u32]; N],
    keys: [&[[u32; LANES]]; S],
) -> [[L::F; S]; N] {
    let count = keys[0].len();
    for keys in keys {
        assert!(keys.len() == count);
    }
    for vector in vectors {
        assert!(vector.len() == count * C::WORDS);
    }
    let mut sums = [[l.splat(0.0); S]; N];
    for cell in 0..count {
        let mut loaded = [cells.load(l, &keys[0][cell], KEEP_ALL); S];
        for s in 1..S {
            loaded[s] = cells.load(l, &keys[s][cell], KEEP_ALL);
        }
        for n in 0..N {
            let factor = cells.factor(l, &vectors[n][cell * C::WORDS..(cell + 1) * C::WORDS]);
            for s in 0..S {
                sums[n][s] = cells.multiply_add(l, sums[n][s], loaded[s], factor);
            }
        }
    }
    sums
}

/// Adds whole cells of values to `N` vectors, for `16 * D` values of the head from vector `dim` on.
#[inline(always)]
fn add_together<L: Lanes, C: Cells, const N: usize, const D: usize>(
    l: L,
    cells: C,
    tile: &KeyTile<'_>,
    weights: &[[u32; TILE]; N],
    common: &Range<usize>,
    dim: usize,
    sums: &mut [[f32; LANES]],
) {
    let width = sums.len() / N;
    let per_sub = SUB_BLOCK / C::VALUES;
    let mut totals = [[l.splat(0.0); D]; N];
    for n in 0..N {
        for d in 0..D {
            totals[n][d] = l.load(&sums[n * width + dim + d]);
        }
    }
    for sub in 0..SUBS {
        let first = common.start.max(sub * per_sub);
        let end = common.end.min((sub + 1) * per_sub);
        for cell in first..end {
            let at = (cell - sub * per_sub) * width + dim;
            let values = &tile.values[sub][at..at + D];
            let mut loaded = [cells.load(l, &values[0], KEEP_ALL); D];
            for d in 1..D {
                loaded[d] = cells.load(l, &values[d], KEEP_ALL);
            }
            for n in 0..N {
                let factor = cells.factor(l, &weights[n][cell * C::WORDS..(cell + 1) * C::WORDS]);
                for d in 0..D {
                    totals[n][d] = cells.multiply_add(l, totals[n][d], loaded[d], factor);
                }
            }
        }
    }
    for n in 0..N {
        for d in 0..D {
            l.store(totals[n][d], &mut sums[n * width + dim + d]);
        }
    }
}

/// Adds the values at some positions of the tile to one vector. Of a cell that the range cuts, the other values are
/// blanked, not only weighted with zero.
#[inline(always)]
fn add_alone<L: Lanes, C: Cells>(
    l: L,
    cells: C,
    tile: &KeyTile<'_>,
    weights: &[u32; TILE],
    positions: Range<usize>,
    sums: &mut [[f32; LANES]],
) {
    let width = sums.len();
    let per_sub = SUB_BLOCK / C::VALUES;
    let mut at = positions.start;
    while at < positions.end {
        let cell = at / C::VALUES;
        let next = ((cell + 1) * C::VALUES).min(positions.end);
        let hidden_bits = (C::VALUES - (next - at)) * (32 / C::VALUES);
        let keep = KEEP_ALL >> hidden_bits << (at % C::VALUES * (32 / C::VALUES));
        let values = &tile.values[cell / per_sub][cell % per_sub * width..][..width];
        let factor = cells.factor(l, &weights[cell * C::WORDS..(cell + 1) * C::WORDS]);
        for (sum, value) in sums.iter_mut().zip(values) {
            l.store(cells.multiply_add(l, l.load(sum), cells.load(l, value, keep), factor), sum);
        }
        at = next;
    }
}

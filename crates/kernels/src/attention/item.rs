//! One item of a plan: from queries to results, or to partial results that a merge puts together.

use super::keys::Rows;
use super::plan::{Item, Merge, Tile, partial_len};
use super::widened::copy_len;
use super::{Attention, Scratch};
use crate::lanes::{LANES, Lanes};
use crate::memory::AlignedVec;

/// One way to compute the products of a segment; everything else is the same for all.
pub(super) trait Products: Copy {
    /// Rounds one query vector to the form that products take, into its place among `vectors`. What `values` do
    /// not fill of the padded head stays zero.
    fn pack_query<L: Lanes>(self, l: L, values: &[f32], vector: usize, padded: usize, queries: &mut [u32]);

    /// Adds a segment's keys and values, as far as any row may see them.
    fn segment<L: Lanes>(self, l: L, rows: &Rows<'_>, segment: usize, queries: &[u32], state: &mut State);
}

/// Softmax of some query vectors, as far as it has come.
#[derive(Debug, Default)]
pub(super) struct State {
    /// Largest score of each vector so far; minus infinity while it has seen nothing.
    pub(super) max: AlignedVec<f32>,
    /// Sum of `exp(score - max)`, one part in each lane.
    pub(super) sum: AlignedVec<[f32; LANES]>,
    /// Sum of `exp(score - max) * value`: `padded / 16` entries a vector.
    pub(super) values: AlignedVec<[f32; LANES]>,
    /// Room for a copy of a tile, for products that need one.
    pub(super) copy: AlignedVec<[u32; LANES]>,
}

impl State {
    /// Makes room for `vectors` vectors, in whole blocks of sixteen.
    pub(super) fn fit(&mut self, vectors: usize, padded: usize) {
        let vectors = vectors.next_multiple_of(LANES);
        if self.max.len() < vectors {
            self.max = AlignedVec::zeroed(vectors);
            self.sum = AlignedVec::zeroed(vectors);
        }
        if self.values.len() < vectors * padded / LANES {
            self.values = AlignedVec::zeroed(vectors * padded / LANES);
        }
        if self.copy.len() < copy_len(padded) {
            self.copy = AlignedVec::zeroed(copy_len(padded));
        }
    }

    fn clear(&mut self, vectors: usize, padded: usize) {
        self.max[..vectors].fill(f32::NEG_INFINITY);
        self.sum[..vectors].fill([0.0; LANES]);
        self.values[..vectors * padded / LANES].fill([0.0; LANES]);
    }
}

/// Computes an item.
#[inline(always)]
pub(super) fn run<L: Lanes, P: Products>(
    l: L,
    products: P,
    attention: &Attention<'_>,
    item: &Item,
    scratch: &mut Scratch,
) {
    let rows = Rows::new(attention, item.tile);
    let (vectors, padded) = (rows.vectors(), attention.shape.padded());
    let Scratch { queries, segment, total } = scratch;
    pack_queries(l, products, attention, item.tile, queries);
    total.clear(vectors, padded);
    for index in item.segment_start..item.segment_end {
        segment.clear(vectors, padded);
        products.segment(l, &rows, index as usize, queries, segment);
        if let Some(first) = item.partial {
            write_partial(l, attention, item.tile, first as usize, segment);
            return;
        }
        for vector in 0..vectors {
            let values = &segment.values[vector * padded / LANES..(vector + 1) * padded / LANES];
            merge_vector(l, total, vector, segment.max[vector], l.sum(l.load(&segment.sum[vector])), values);
        }
    }
    write_out(l, attention, item.tile, total);
}

/// Puts the partial results of all segments together.
#[inline(always)]
pub(super) fn merge<L: Lanes>(l: L, attention: &Attention<'_>, merge: &Merge, scratch: &mut Scratch) {
    let (shape, tile) = (&attention.shape, merge.tile);
    let (vectors, padded) = (tile.rows as usize * shape.group(), shape.padded());
    let len = partial_len(shape, tile.rows as usize);
    let total = &mut scratch.total;
    total.clear(vectors, padded);
    for index in 0..merge.segments as usize {
        let first = merge.partials as usize + index * len;
        // SAFETY: the items that write partial results ended before the barrier in `Attention::run`.
        let partial = unsafe { attention.plan.partials.part(0, first..first + len) };
        let (max, rest) = partial.split_at(vectors);
        let (sum, values) = rest.split_at(vectors);
        for (vector, values) in values.chunks_exact(padded).enumerate() {
            merge_vector(l, total, vector, max[vector], sum[vector], values.as_chunks().0);
        }
    }
    write_out(l, attention, tile, total);
}

/// Rounds the queries of an item to the form that products take, row by row, head by head.
#[inline(always)]
fn pack_queries<L: Lanes, P: Products>(
    l: L,
    products: P,
    attention: &Attention<'_>,
    tile: Tile,
    queries: &mut [u32],
) {
    let (shape, span) = (&attention.shape, attention.spans[tile.span as usize]);
    let mut vector = 0;
    for row in 0..tile.rows {
        let row = (span.row_start + tile.first + row) as usize;
        for head in 0..shape.group() {
            let first = (tile.kv_head as usize * shape.group() + head) * shape.head_dim;
            // SAFETY: nobody writes to the query while attention runs (`Attention::run`).
            let query = unsafe { attention.query.part(row, first..first + shape.head_dim) };
            products.pack_query(l, query, vector, shape.padded(), queries);
            vector += 1;
        }
    }
}

/// Adds a segment's result to what the segments before have given.
#[inline(always)]
fn merge_vector<L: Lanes>(
    l: L,
    total: &mut State,
    vector: usize,
    max: f32,
    sum: f32,
    values: &[[f32; LANES]],
) {
    if max == f32::NEG_INFINITY {
        // The vector sees nothing of this segment.
        return;
    }
    let old = total.max[vector];
    let new = if max > old { max } else { old };
    let totals = &mut total.values[vector * values.len()..(vector + 1) * values.len()];
    let sum_total = &mut total.sum[vector][0];
    total.max[vector] = new;
    if old == f32::NEG_INFINITY {
        totals.copy_from_slice(values);
        *sum_total = sum;
        return;
    }
    let (keep, take) = (l.exp(l.splat(old - new)), l.exp(l.splat(max - new)));
    for (total, value) in totals.iter_mut().zip(values) {
        l.store(l.fma(l.load(value), take, l.mul(l.load(total), keep)), total);
    }
    let mut sums = [0.0; LANES];
    l.store(l.fma(l.splat(sum), take, l.mul(l.splat(*sum_total), keep)), &mut sums);
    *sum_total = sums[0];
}

#[inline(always)]
fn write_partial<L: Lanes>(l: L, attention: &Attention<'_>, tile: Tile, first: usize, segment: &State) {
    let (shape, rows) = (&attention.shape, tile.rows as usize);
    let (vectors, len) = (rows * shape.group(), partial_len(shape, rows));
    // SAFETY: the place belongs to this item, which one worker runs; merges read it behind a barrier.
    let partial = unsafe { attention.plan.partials.part_mut(0, first..first + len) };
    let (max, rest) = partial.split_at_mut(vectors);
    let (sums, values) = rest.split_at_mut(vectors);
    max.copy_from_slice(&segment.max[..vectors]);
    for (to, sum) in sums.iter_mut().zip(segment.sum.iter()) {
        *to = l.sum(l.load(sum));
    }
    values.copy_from_slice(&segment.values.as_flattened()[..values.len()]);
}

/// Divides by the sums and writes the rows' columns of the output.
#[inline(always)]
fn write_out<L: Lanes>(l: L, attention: &Attention<'_>, tile: Tile, total: &State) {
    let (shape, span) = (&attention.shape, attention.spans[tile.span as usize]);
    let width = shape.padded() / LANES;
    for row in 0..tile.rows as usize {
        for head in 0..shape.group() {
            let vector = row * shape.group() + head;
            let factor = l.splat(1.0 / total.sum[vector][0]);
            let first = (tile.kv_head as usize * shape.group() + head) * shape.head_dim;
            let out_row = (span.row_start + tile.first) as usize + row;
            // SAFETY: these columns of this row belong to this item (or merge), which one worker runs, and nobody
            // else touches the output meanwhile (`Attention::run`).
            let out = unsafe { attention.out.part_mut(out_row, first..first + shape.head_dim) };
            let values = &total.values[vector * width..(vector + 1) * width];
            for (out, value) in out.chunks_mut(LANES).zip(values) {
                let mut lanes = [0.0; LANES];
                l.store(l.mul(l.load(value), factor), &mut lanes);
                out.copy_from_slice(&lanes[..out.len()]);
            }
        }
    }
}

//! How one step's attention is cut into items that workers take one by one.
//!
//! Every cut gives the same results, so the plan is free to choose what is fast: many query rows in an item, so that
//! keys are loaded once for all of them; fewer rows, or single segments, when there would be too few items for the
//! team. The plan knows shapes and lengths, never values.

use super::{SEGMENT, Shape};
use crate::team::SharedRows;

/// Items for each worker below which work is cut finer.
const ITEMS_PER_WORKER: usize = 4;

/// Values of query vectors in one item: with keys, values and results of a tile they fill a first-level cache.
const QUERY_VALUES: usize = 2048;

/// Partial results that can be kept between the two parts of a divided step, in values for each worker.
const PARTIAL_VALUES: usize = 1 << 18;

/// One sequence's rows in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// First row.
    pub row_start: u32,
    /// Number of rows; they are the last tokens of the context.
    pub row_count: u32,
    /// Tokens in the cache, those of this step included.
    pub context: u32,
    /// Start of the block table.
    pub table_start: u32,
    /// Length of the block table.
    pub table_len: u32,
}

/// Rows of one sequence and one key head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tile {
    /// Index of the sequence's span.
    pub(super) span: u32,
    /// First row, counted within the span.
    pub(super) first: u32,
    /// Rows.
    pub(super) rows: u32,
    /// Key head.
    pub(super) kv_head: u32,
}

/// Work for one worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Item {
    /// Its rows.
    pub(super) tile: Tile,
    /// First segment.
    pub(super) segment_start: u32,
    /// Behind the last segment.
    pub(super) segment_end: u32,
    /// Where the partial result goes; absent when the item computes final results.
    pub(super) partial: Option<u32>,
}

/// Partial results to be put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Merge {
    /// The rows.
    pub(super) tile: Tile,
    /// Partial results, in ascending order of their segments, one behind the other.
    pub(super) partials: u32,
    /// How many.
    pub(super) segments: u32,
}

/// The division of one step's attention for layers of one shape.
#[derive(Debug)]
pub struct Plan {
    pub(super) items: Vec<Item>,
    pub(super) merges: Vec<Merge>,
    /// One row; every item writes at its own place, merges read behind a barrier.
    pub(super) partials: SharedRows,
}

impl Plan {
    /// A plan that holds any step of up to `max_rows` rows without allocating again.
    #[must_use]
    pub fn new(shape: &Shape, threads: usize, max_rows: usize) -> Self {
        let partials = partial_values(threads);
        let few = ITEMS_PER_WORKER * threads;
        Self {
            items: Vec::with_capacity(items_max(shape, threads, max_rows)),
            merges: Vec::with_capacity(few),
            partials: SharedRows::new(1, partials),
        }
    }

    /// Memory of such a plan, in bytes, if all of it is used.
    #[must_use]
    pub fn bytes_of(shape: &Shape, threads: usize, max_rows: usize) -> usize {
        let merges = ITEMS_PER_WORKER * threads * size_of::<Merge>();
        items_max(shape, threads, max_rows) * size_of::<Item>() + merges + partial_values(threads) * 4
    }

    /// Divides a step.
    pub fn rebuild(&mut self, shape: &Shape, threads: usize, spans: &[Span]) {
        self.items.clear();
        self.merges.clear();
        let rows: usize = spans.iter().map(|span| span.row_count as usize).sum();
        let enough = ITEMS_PER_WORKER * threads;
        let rows_per_tile = (rows * shape.kv_heads / enough).clamp(1, rows_max(shape)) as u32;
        for (index, span) in spans.iter().enumerate() {
            for kv_head in 0..shape.kv_heads as u32 {
                let mut first = 0;
                while first < span.row_count {
                    let rows = rows_per_tile.min(span.row_count - first);
                    let tile = Tile { span: index as u32, first, rows, kv_head };
                    let segments = segments(shape, span, tile);
                    self.items.push(Item {
                        tile,
                        segment_start: segments.start,
                        segment_end: segments.end,
                        partial: None,
                    });
                    first += rows;
                }
            }
        }
        if threads > 1 && self.items.len() < enough {
            self.divide(shape);
        }
        // The longest first, so that the last ones are short and workers end together.
        self.items.sort_unstable_by_key(|item| {
            std::cmp::Reverse((item.segment_end - item.segment_start) * item.tile.rows)
        });
    }

    /// Cuts items into single segments, as far as partial results find room.
    fn divide(&mut self, shape: &Shape) {
        let mut used = 0;
        for index in 0..self.items.len() {
            let Item { tile, segment_start, segment_end, .. } = self.items[index];
            let len = partial_len(shape, tile.rows as usize);
            let segments = segment_end - segment_start;
            let end = used + len * segments as usize;
            let room = self.items.len() + segments as usize <= self.items.capacity();
            if segments < 2
                || end > self.partials.width()
                || !room
                || self.merges.len() == self.merges.capacity()
            {
                continue;
            }
            self.merges.push(Merge { tile, partials: used as u32, segments });
            for segment in segment_start..segment_end {
                let partial = Some((used + len * (segment - segment_start) as usize) as u32);
                let item = Item { tile, segment_start: segment, segment_end: segment + 1, partial };
                if segment == segment_start {
                    self.items[index] = item;
                } else {
                    self.items.push(item);
                }
            }
            used = end;
        }
    }
}

/// Values of partial results that are kept.
fn partial_values(threads: usize) -> usize {
    if threads > 1 { PARTIAL_VALUES * threads } else { 0 }
}

/// Items of a step, at most.
fn items_max(shape: &Shape, threads: usize, max_rows: usize) -> usize {
    max_rows * shape.kv_heads + partial_values(threads) / partial_len(shape, 1)
}

/// Segments that hold anything the rows of a tile may see.
fn segments(shape: &Shape, span: &Span, tile: Tile) -> std::ops::Range<u32> {
    let first = (span.context - span.row_count + tile.first) as usize;
    let start = shape.visible(first).start / SEGMENT;
    let end = shape.visible(first + tile.rows as usize - 1).end.div_ceil(SEGMENT);
    start as u32..end as u32
}

/// Rows of one sequence in an item, at most.
fn rows_max(shape: &Shape) -> usize {
    ((QUERY_VALUES / shape.padded()).clamp(4, 32) / shape.group()).max(1)
}

/// Query vectors in an item, at most.
pub(super) fn vectors_max(shape: &Shape) -> usize {
    rows_max(shape) * shape.group()
}

/// Values of a partial result: for each vector its largest score, its sum and its weighted values.
pub(super) fn partial_len(shape: &Shape, rows: usize) -> usize {
    rows * shape.group() * (shape.padded() + 2)
}

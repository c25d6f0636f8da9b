//! Causal attention over block tables, for any mix of prompt chunks and single tokens.
//!
//! Always holds: the result of a token depends on its own query and on the keys and values it may see, and on
//! nothing else: not on which rows share its step, not on how they are cut into tiles or spread over threads. The
//! keys of a sequence are cut into segments of [`SEGMENT`] positions counted from position 0. Within a segment
//! an online softmax runs over tiles of [`TILE`] positions, also counted from 0; segments are merged in
//! ascending order. That order is the same whether one worker runs all segments of a row or many workers run one each.
//! Memory that a token may not see is never part of its sums, not even times zero: stale blocks may hold anything. One
//! exception: the matrix unit multiplies with zero what a later row of the same sequence and step may see, so a value there
//! that is no finite number spoils the earlier row too.
//!
//! Rows of one sequence, and the query heads that share a key head, are worked on together, so that keys and values are
//! loaded once for many of them.

#![allow(
    clippy::inline_always,
    reason = "a kernel must become part of the function that enables its instructions"
)]

mod cells;
mod item;
mod keys;
mod plan;
#[cfg(test)]
mod tests;
mod tile;
#[cfg(target_arch = "x86_64")]
mod tile_unit;
mod widened;

pub use plan::{Plan, Span};

use crate::kv_cache::{KvCache, KvType};
use crate::lanes::{Kernel, LANES, Lanes, Simd};
use crate::memory::AlignedVec;
use crate::team::{SharedRows, Worker};

use cells::{DotBf16, WideBf16, WideF16, WideF32, WideInt8};
use item::Products;
use tile::InLanes;
use widened::{F16Words, Int8Words, Widened};

/// Positions of an independent partial result.
pub const SEGMENT: usize = 256;

/// Positions of one softmax update.
pub const TILE: usize = 4 * LANES;

/// What all attention layers of one kind have in common.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// Query heads, a multiple of `kv_heads`.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Values in a head.
    pub head_dim: usize,
    /// Multiplies the scores.
    pub scale: f32,
    /// A token sees itself and the `window - 1` tokens before it; all when absent.
    pub window: Option<usize>,
}

impl Shape {
    /// Query heads that share a key head.
    fn group(&self) -> usize {
        self.heads / self.kv_heads
    }

    /// Values of a head, filled up to whole vectors.
    fn padded(&self) -> usize {
        self.head_dim.next_multiple_of(LANES)
    }

    /// The positions that the token at `position` sees.
    #[must_use]
    pub fn visible(&self, position: usize) -> std::ops::Range<usize> {
        let end = position + 1;
        self.window.map_or(0, |window| end.saturating_sub(window))..end
    }
}

/// One layer's attention in one step.
#[derive(Clone, Copy, Debug)]
pub struct Attention<'a> {
    /// The layer's kind.
    pub shape: Shape,
    /// Keys and values; those of this step are written.
    pub cache: &'a KvCache,
    /// `[rows, heads * head_dim]`.
    pub query: &'a SharedRows,
    /// `[rows, heads * head_dim]`.
    pub out: &'a SharedRows,
    /// The sequences that the plan was made for.
    pub spans: &'a [Span],
    /// Their block tables, one behind the other.
    pub tables: &'a [u32],
    /// How the work is divided; made for this shape and these spans.
    pub plan: &'a Plan,
}

impl Attention<'_> {
    /// Computes all rows, with all workers of a team, each with its own scratch. May wait at one barrier inside (all
    /// workers or none); no barrier is implied at the end.
    ///
    /// # Safety
    /// Every worker of the team calls this at the same point with the same values. Until all have returned, nobody
    /// else writes to the cache or the query, or touches the output.
    ///
    /// # Panics
    /// When shape, cache, plan and rows do not belong together.
    pub unsafe fn run(&self, worker: &Worker<'_>, simd: Simd, scratch: &mut Scratch) {
        assert!(self.cache.geometry().head_dim == self.shape.head_dim, "cache and shape differ in head size");
        assert!(self.cache.geometry().kv_heads == self.shape.kv_heads, "cache and shape differ in heads");
        scratch.fit(self.shape);
        for range in worker.share(self.plan.items.len(), 1) {
            for item in &self.plan.items[range] {
                self.item(simd, item, scratch);
            }
        }
        if self.plan.merges.is_empty() {
            return;
        }
        worker.barrier();
        for range in worker.share(self.plan.merges.len(), 1) {
            for merge in &self.plan.merges[range] {
                simd.run(RunMerge { attention: self, merge, scratch });
            }
        }
    }
}

/// A worker's own memory: query vectors in the form that products take, and results on their way.
#[derive(Debug, Default)]
pub struct Scratch {
    /// Room for `[vectors][padded]`, in the form that products take.
    queries: AlignedVec<u32>,
    /// Of the segment being computed.
    segment: item::State,
    /// Of all segments before.
    total: item::State,
}

impl Scratch {
    /// Scratch that is large enough for layers of these shapes; it grows by itself for larger ones.
    #[must_use]
    pub fn new(shapes: &[Shape]) -> Self {
        let mut scratch = Self::default();
        for shape in shapes {
            scratch.fit(*shape);
        }
        scratch
    }

    fn fit(&mut self, shape: Shape) {
        let (vectors, padded) = (plan::vectors_max(&shape).next_multiple_of(LANES), shape.padded());
        if self.queries.len() < vectors * padded {
            self.queries = AlignedVec::zeroed(vectors * padded);
        }
        self.segment.fit(vectors, padded);
        self.total.fit(vectors, padded);
    }
}

impl Attention<'_> {
    /// Computes an item with the products that suit the machine and the cache. All ways that an item of a layer may
    /// take give the same results.
    fn item(&self, simd: Simd, item: &plan::Item, scratch: &mut Scratch) {
        let is_copied = item.tile.rows as usize * self.shape.group() >= widened::VECTORS_MIN;
        match self.cache.kind() {
            #[cfg(target_arch = "x86_64")]
            KvType::Bf16
                if let Some(unit) = simd.tile_unit()
                    && tile_unit::suits(self.cache) =>
            {
                unit.with_registers(|registers| {
                    self.item_by(simd, tile_unit::InTiles(registers), item, scratch);
                });
            }
            KvType::Bf16 if simd.multiplies_bf16() => self.item_by(simd, InLanes(DotBf16), item, scratch),
            KvType::Bf16 => self.item_by(simd, InLanes(WideBf16), item, scratch),
            KvType::F16 if is_copied => self.item_by(simd, Widened(F16Words), item, scratch),
            KvType::F16 => self.item_by(simd, InLanes(WideF16), item, scratch),
            KvType::F32 => self.item_by(simd, InLanes(WideF32), item, scratch),
            KvType::Int8 if is_copied => self.item_by(simd, Widened(Int8Words), item, scratch),
            KvType::Int8 => self.item_by(simd, InLanes(WideInt8), item, scratch),
        }
    }

    fn item_by<P: Products>(&self, simd: Simd, products: P, item: &plan::Item, scratch: &mut Scratch) {
        simd.run(RunItem { products, attention: self, item, scratch });
    }
}

struct RunItem<'a, 'b, P> {
    products: P,
    attention: &'a Attention<'b>,
    item: &'a plan::Item,
    scratch: &'a mut Scratch,
}

impl<P: Products> Kernel for RunItem<'_, '_, P> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, l: L) {
        item::run(l, self.products, self.attention, self.item, self.scratch);
    }
}

struct RunMerge<'a, 'b> {
    attention: &'a Attention<'b>,
    merge: &'a plan::Merge,
    scratch: &'a mut Scratch,
}

impl Kernel for RunMerge<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, l: L) {
        item::merge(l, self.attention, self.merge, self.scratch);
    }
}

//! Finding what an item of attention works on: its rows' positions, and a tile's keys and values in the cache.

use std::ops::Range;

use super::{Attention, Shape, TILE, plan};
use crate::kv_cache::{KvCache, SUB_BLOCK};
use crate::lanes::LANES;

/// Sub-blocks in a tile.
pub(super) const SUBS: usize = TILE / SUB_BLOCK;

/// The query vectors of an item: rows of one sequence, and the heads of each that share a key head.
pub(super) struct Rows<'a> {
    pub(super) shape: &'a Shape,
    cache: &'a KvCache,
    table: &'a [u32],
    kv_head: usize,
    /// Position of the first row.
    position: usize,
    count: usize,
}

impl<'a> Rows<'a> {
    pub(super) fn new(attention: &'a Attention<'_>, tile: plan::Tile) -> Self {
        let span = attention.spans[tile.span as usize];
        let table = span.table_start as usize..(span.table_start + span.table_len) as usize;
        Self {
            shape: &attention.shape,
            cache: attention.cache,
            table: &attention.tables[table],
            kv_head: tile.kv_head as usize,
            position: (span.context - span.row_count + tile.first) as usize,
            count: tile.rows as usize,
        }
    }

    pub(super) fn vectors(&self) -> usize {
        self.count * self.shape.group()
    }

    /// All positions that any row may see.
    pub(super) fn visible(&self) -> Range<usize> {
        let last = self.position + self.count - 1;
        self.shape.visible(self.position).start..self.shape.visible(last).end
    }

    /// What a vector may see of the tile that starts at position `first`, counted within the tile.
    #[inline(always)]
    pub(super) fn visible_in_tile(&self, vector: usize, first: usize) -> Range<usize> {
        let visible = self.shape.visible(self.position + vector / self.shape.group());
        visible.start.saturating_sub(first).min(TILE)..visible.end.saturating_sub(first).min(TILE)
    }
}

impl<'a> Rows<'a> {
    /// Values of `2 * SUB_BLOCK` positions from `first` on, as `[16 pairs of positions][padded]` words. The block
    /// size must be a multiple of that, and so must `first`.
    pub(super) fn paired_values(&self, first: usize) -> &'a [[u32; LANES]] {
        let block_size = self.cache.geometry().block_size;
        let block = self.table[first / block_size] as usize;
        self.cache.values_of_two(block, self.kv_head, first % block_size / SUB_BLOCK)
    }
}

/// Keys and values of one tile; sub-blocks that no row may see are empty.
#[derive(Clone, Copy)]
pub(super) struct KeyTile<'a> {
    /// Position of the first key.
    pub(super) first: usize,
    pub(super) keys: [&'a [[u32; LANES]]; SUBS],
    pub(super) values: [&'a [[u32; LANES]]; SUBS],
    pub(super) complete: bool,
    /// What the keys and the values of each position are multiplied with; of a cache without scales, nothing.
    pub(super) scales: Option<Scales<'a>>,
}

/// Scales of a tile's keys and values, in the bits of singles.
#[derive(Clone, Copy)]
pub(super) struct Scales<'a> {
    pub(super) keys: [&'a [u32; LANES]; SUBS],
    pub(super) values: [&'a [u32; LANES]; SUBS],
}

impl Scales<'_> {
    /// Of sub-blocks that nobody sees.
    const NONE: Self = Self { keys: [&[0; LANES]; SUBS], values: [&[0; LANES]; SUBS] };
}

impl<'a> KeyTile<'a> {
    /// Finds the tile's sub-blocks that hold any of the positions `wanted`.
    pub(super) fn find(rows: &Rows<'a>, first: usize, wanted: &Range<usize>) -> Self {
        let mut tile = Self { first, keys: [&[]; SUBS], values: [&[]; SUBS], complete: true, scales: None };
        if rows.cache.kind().is_scaled() {
            tile.scales = Some(Scales::NONE);
        }
        let block_size = rows.cache.geometry().block_size;
        for sub in 0..SUBS {
            let position = first + sub * SUB_BLOCK;
            if position >= wanted.end || position + SUB_BLOCK <= wanted.start {
                tile.complete = false;
                continue;
            }
            let block = rows.table[position / block_size] as usize;
            let within = position % block_size / SUB_BLOCK;
            tile.keys[sub] = rows.cache.sub_block_keys(block, rows.kv_head, within);
            tile.values[sub] = rows.cache.sub_block_values(block, rows.kv_head, within);
            if let Some(scales) = &mut tile.scales
                && let ([keys @ .., key_scales], [values @ .., value_scales]) =
                    (tile.keys[sub], tile.values[sub])
            {
                (tile.keys[sub], scales.keys[sub]) = (keys, key_scales);
                (tile.values[sub], scales.values[sub]) = (values, value_scales);
            }
        }
        tile
    }
}

//! Tiles of the cache in single precision: turned once, then used by all query vectors of an item.
//!
//! The results are those of products that turn words as they go, bit for bit: turning is exact, and the products come
//! in the same order. So the choice between the two ways is one of speed alone.

use super::TILE;
use super::cells::{WideF32, byte, f16_high, f16_low};
use super::item::{Products, State};
use super::keys::{KeyTile, Rows, SUBS};
use super::tile::{InLanes, blocks, tiles};
use crate::lanes::{LANES, Lanes};

/// Query vectors of an item from which on a copy is the faster way for half precision. (Turning bf16 takes one
/// instruction, and copies have to be stored: there it is never faster.)
pub(super) const VECTORS_MIN: usize = 12;

/// Vectors that hold a tile's keys and values, of heads with `padded` values.
pub(super) const fn copy_len(padded: usize) -> usize {
    2 * TILE * padded / LANES
}

/// How words of the cache become numbers.
pub(super) trait Words: Copy {
    /// Values in a word.
    const VALUES: usize;

    /// The values at one place of the words.
    fn value<L: Lanes>(self, l: L, words: L::U, place: usize) -> L::F;
}

/// Products in vector registers with copies of tiles.
#[derive(Clone, Copy)]
pub(super) struct Widened<W>(pub(super) W);

impl<W: Words> Products for Widened<W> {
    #[inline(always)]
    fn pack_query<L: Lanes>(self, l: L, values: &[f32], vector: usize, padded: usize, queries: &mut [u32]) {
        InLanes(WideF32).pack_query(l, values, vector, padded, queries);
    }

    #[inline(always)]
    fn segment<L: Lanes>(self, l: L, rows: &Rows<'_>, segment: usize, queries: &[u32], state: &mut State) {
        let padded = rows.shape.padded();
        // Taken out for the time, since the rest of the state changes while it is read.
        let mut copy = std::mem::take(&mut state.copy);
        for (first, wanted) in tiles(rows, segment) {
            let words = KeyTile::find(rows, first, &wanted);
            let tile = self.copy(l, &words, padded, &mut copy);
            blocks(l, WideF32, rows, &tile, queries, state);
        }
        state.copy = copy;
    }
}

impl<W: Words> Widened<W> {
    /// A tile's copy: keys as `[dim][16 positions]`, values as `[position][padded]`, a sub-block after the other.
    #[inline(always)]
    fn copy<'a, L: Lanes>(
        self,
        l: L,
        words: &KeyTile<'a>,
        padded: usize,
        copy: &'a mut [[u32; LANES]],
    ) -> KeyTile<'a> {
        let (keys, values) = copy[..copy_len(padded)].split_at_mut(copy_len(padded) / 2);
        let room = keys.chunks_exact_mut(padded).zip(values.chunks_exact_mut(padded));
        let mut tile = KeyTile { keys: [&[]; SUBS], values: [&[]; SUBS], ..*words };
        for (sub, (keys, values)) in room.enumerate() {
            if !words.keys[sub].is_empty() {
                self.keys(l, words.keys[sub], keys);
                self.values(l, words.values[sub], padded / LANES, values);
                (tile.keys[sub], tile.values[sub]) = (keys, values);
            }
        }
        tile
    }

    #[inline(always)]
    fn keys<L: Lanes>(self, l: L, words: &[[u32; LANES]], to: &mut [[u32; LANES]]) {
        for (words, to) in words.iter().zip(to.chunks_exact_mut(W::VALUES)) {
            let words = l.load_u(words);
            for (place, to) in to.iter_mut().enumerate() {
                l.store_u(l.to_bits(self.0.value(l, words, place)), to);
            }
        }
    }

    #[inline(always)]
    fn values<L: Lanes>(self, l: L, words: &[[u32; LANES]], width: usize, to: &mut [[u32; LANES]]) {
        for (words, to) in words.chunks_exact(width).zip(to.chunks_exact_mut(W::VALUES * width)) {
            for (at, words) in words.iter().enumerate() {
                let words = l.load_u(words);
                for (place, to) in to.chunks_exact_mut(width).enumerate() {
                    l.store_u(l.to_bits(self.0.value(l, words, place)), &mut to[at]);
                }
            }
        }
    }
}

/// Two half-precision values.
#[derive(Clone, Copy)]
pub(super) struct F16Words;

impl Words for F16Words {
    const VALUES: usize = 2;

    #[inline(always)]
    fn value<L: Lanes>(self, l: L, words: L::U, place: usize) -> L::F {
        if place == 0 { f16_low(l, words) } else { f16_high(l, words) }
    }
}

/// Four integers; their scales are left to the tile.
#[derive(Clone, Copy)]
pub(super) struct Int8Words;

impl Words for Int8Words {
    const VALUES: usize = 4;

    #[inline(always)]
    fn value<L: Lanes>(self, l: L, words: L::U, place: usize) -> L::F {
        byte(l, words, place)
    }
}

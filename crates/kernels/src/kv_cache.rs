//! Keys and values of one layer, in fixed-size blocks of token positions.
//!
//! Owns the layout, which is what makes attention fast: sixteen positions of one head form a sub-block in which a
//! vector lane is a position (keys) or a value of the head (values), so that neither product needs a sum across
//! lanes.
//!
//! ```text
//! sub-block  = [block][kv head][position / 16]        block size is a multiple of 16
//! keys       = [dim / n][16 positions] words           a word holds n values: one f32, two of 16 or four of 8 bits,
//! values     = [position / n][padded dim] words        neighbours in dim (keys) or position (values)
//! ```
//!
//! With 8 bits, each key and each value of a token and head has a scale of its own: sixteen of them, one a position,
//! end the sub-block. What a token is stored as depends on that token alone.
//!
//! The head is padded with zeros to a multiple of sixteen. Always holds: padding stays zero; memory that was never
//! written costs nothing. Refuses to know which sequence owns a block.

#[cfg(test)]
mod tests;
mod words;

use std::sync::atomic::Ordering;

use half::f16;
use thiserror::Error;

use crate::lanes::LANES;

use words::{Words, has_room_for};

/// Positions in a sub-block; block sizes are multiples of it.
pub const SUB_BLOCK: usize = LANES;

/// How keys and values are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KvType {
    /// Single precision.
    F32,
    /// The upper half of a single.
    Bf16,
    /// IEEE half precision.
    F16,
    /// Integers of 8 bits, the largest of a token and head being 127, and their scale in single precision.
    Int8,
}

impl KvType {
    /// Every way.
    pub const ALL: [Self; 4] = [Self::F32, Self::Bf16, Self::F16, Self::Int8];

    /// Bytes of the `head_dim` values of one token and head, with their padding and their scale.
    #[must_use]
    pub const fn head_bytes(self, head_dim: usize) -> usize {
        let padded = head_dim.next_multiple_of(LANES);
        padded * 4 / self.per_word() + if self.is_scaled() { size_of::<f32>() } else { 0 }
    }

    /// The usual name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "float32",
            Self::Bf16 => "bfloat16",
            Self::F16 => "float16",
            Self::Int8 => "int8",
        }
    }

    /// Values in a 32-bit word.
    const fn per_word(self) -> usize {
        match self {
            Self::F32 => 1,
            Self::Bf16 | Self::F16 => 2,
            Self::Int8 => 4,
        }
    }

    /// Whether scales belong to the values.
    pub(crate) const fn is_scaled(self) -> bool {
        matches!(self, Self::Int8)
    }

    /// Words of the keys, or of the values, of a sub-block: for a vector of positions a whole number of vectors.
    const fn sub_block_words(self, padded: usize) -> usize {
        padded * (SUB_BLOCK / self.per_word()) + if self.is_scaled() { LANES } else { 0 }
    }
}

impl std::fmt::Display for KvType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// Sizes of a layer's cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvGeometry {
    /// Key and value heads.
    pub kv_heads: usize,
    /// Values in a head.
    pub head_dim: usize,
    /// Positions in a block, a multiple of [`SUB_BLOCK`].
    pub block_size: usize,
    /// Blocks.
    pub blocks: usize,
}

/// Why a cache cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum KvCacheError {
    /// The block size does not suit the layout.
    #[error("a KV block cannot hold {block_size} tokens; choose a multiple of {SUB_BLOCK}")]
    BlockSize {
        /// The size asked for.
        block_size: usize,
    },
    /// No heads, or heads without values.
    #[error("a KV cache of {kv_heads} heads of {head_dim} values holds nothing")]
    Empty {
        /// Heads.
        kv_heads: usize,
        /// Values in a head.
        head_dim: usize,
    },
    /// More bytes than can be addressed, or than the system gives.
    #[error("there is no memory for a KV cache of {blocks} blocks; give it fewer blocks")]
    TooLarge {
        /// Blocks asked for.
        blocks: usize,
    },
}

/// Keys and values of one layer.
#[derive(Debug)]
pub struct KvCache {
    kind: KvType,
    geometry: KvGeometry,
    keys: Words,
    values: Words,
}

impl KvCache {
    /// An empty cache.
    pub fn new(kind: KvType, geometry: KvGeometry) -> Result<Self, KvCacheError> {
        let KvGeometry { kv_heads, head_dim, block_size, blocks } = geometry;
        if kv_heads == 0 || head_dim == 0 {
            return Err(KvCacheError::Empty { kv_heads, head_dim });
        }
        if block_size == 0 || !block_size.is_multiple_of(SUB_BLOCK) {
            return Err(KvCacheError::BlockSize { block_size });
        }
        let too_large = KvCacheError::TooLarge { blocks };
        let words = head_dim
            .checked_next_multiple_of(LANES)
            .filter(|padded| *padded <= usize::MAX / SUB_BLOCK - LANES)
            .and_then(|padded| kind.sub_block_words(padded).checked_mul(block_size / SUB_BLOCK))
            .and_then(|words| words.checked_mul(kv_heads))
            .and_then(|words| words.checked_mul(blocks))
            .filter(|words| has_room_for(*words))
            .ok_or(too_large)?;
        Ok(Self { kind, geometry, keys: Words::zeroed(words), values: Words::zeroed(words) })
    }

    /// Bytes that one token takes in a layer of this shape, keys and values.
    #[must_use]
    pub fn bytes_per_token(kind: KvType, kv_heads: usize, head_dim: usize) -> usize {
        2 * kv_heads * kind.head_bytes(head_dim)
    }

    /// How values are stored.
    #[must_use]
    pub fn kind(&self) -> KvType {
        self.kind
    }

    /// Sizes.
    #[must_use]
    pub fn geometry(&self) -> KvGeometry {
        self.geometry
    }

    /// Stores the key and the value (each `kv_heads * head_dim` values) of the token at `slot`
    /// (`block * block_size + position within the block`).
    ///
    /// # Safety
    /// Nobody reads the cache at the same time (attention does). Writers may overlap, even in one slot.
    ///
    /// # Panics
    /// When the slot does not exist or a length is wrong.
    pub unsafe fn write(&self, slot: usize, key: &[f32], value: &[f32]) {
        let KvGeometry { kv_heads, head_dim, block_size, .. } = self.geometry;
        assert!(
            key.len() == kv_heads * head_dim && value.len() == key.len(),
            "a key or value has a wrong length"
        );
        let (block, position) = (slot / block_size, slot % block_size);
        let lane = position % SUB_BLOCK;
        let heads = key.chunks_exact(head_dim).zip(value.chunks_exact(head_dim));
        for (head, (key, value)) in heads.enumerate() {
            let first = self.first_word(block, head, position / SUB_BLOCK);
            match self.kind {
                KvType::F32 => self.write_words(first, lane, key, value),
                KvType::Bf16 => self.write_halves(first, lane, key, value, bf16_bits),
                KvType::F16 => self.write_halves(first, lane, key, value, |x| f16::from_f32(x).to_bits()),
                KvType::Int8 => self.write_bytes(first, lane, key, value),
            }
        }
    }

    /// Keys of a sub-block: for each word of the head, one word of each position; then scales, if there are any.
    pub(crate) fn sub_block_keys(&self, block: usize, head: usize, sub: usize) -> &[[u32; LANES]] {
        self.keys.vectors(self.first_word(block, head, sub), self.sub_block_words())
    }

    /// Values of a sub-block: for each word of positions, one word of each value of the padded head; then scales.
    pub(crate) fn sub_block_values(&self, block: usize, head: usize, sub: usize) -> &[[u32; LANES]] {
        self.values.vectors(self.first_word(block, head, sub), self.sub_block_words())
    }

    /// Values of a sub-block and of the next one in its block.
    pub(crate) fn values_of_two(&self, block: usize, head: usize, sub: usize) -> &[[u32; LANES]] {
        assert!((sub + 2) * SUB_BLOCK <= self.geometry.block_size, "sub-block {sub} has none behind it");
        self.values.vectors(self.first_word(block, head, sub), 2 * self.sub_block_words())
    }

    /// Values of a head with its padding.
    pub(crate) fn padded_dim(&self) -> usize {
        self.geometry.head_dim.next_multiple_of(LANES)
    }

    fn sub_block_words(&self) -> usize {
        self.kind.sub_block_words(self.padded_dim())
    }

    fn first_word(&self, block: usize, head: usize, sub: usize) -> usize {
        let KvGeometry { kv_heads, block_size, blocks, .. } = self.geometry;
        assert!(block < blocks && head < kv_heads, "block {block} of {blocks}, head {head} of {kv_heads}");
        let subs = block_size / SUB_BLOCK;
        ((block * kv_heads + head) * subs + sub) * self.sub_block_words()
    }

    fn write_words(&self, first: usize, lane: usize, key: &[f32], value: &[f32]) {
        let columns = self.keys.words(first, self.sub_block_words()).chunks_exact(LANES);
        for (column, x) in columns.zip(key) {
            column[lane].store(x.to_bits(), Ordering::Relaxed);
        }
        let row = self.values.words(first + lane * self.padded_dim(), self.padded_dim());
        for (word, x) in row.iter().zip(value) {
            word.store(x.to_bits(), Ordering::Relaxed);
        }
    }

    #[inline]
    fn write_halves(
        &self,
        first: usize,
        lane: usize,
        key: &[f32],
        value: &[f32],
        round: impl Fn(f32) -> u16,
    ) {
        let place = self.keys.words(first, self.sub_block_words());
        for (columns, values) in place.chunks_exact(LANES / 2 * LANES).zip(key.chunks(LANES)) {
            let pairs = rounded(values, &round);
            for (column, [low, high]) in columns.chunks_exact(LANES).zip(pairs.as_chunks().0) {
                column[lane].store(u32::from(*low) | u32::from(*high) << 16, Ordering::Relaxed);
            }
        }
        let row = self.values.halves(first + lane / 2 * self.padded_dim(), self.padded_dim());
        let half = if cfg!(target_endian = "little") { lane % 2 } else { 1 - lane % 2 };
        for (words, values) in row.as_chunks::<2>().0.chunks_exact(LANES).zip(value.chunks(LANES)) {
            for (halves, x) in words.iter().zip(rounded(values, &round)) {
                halves[half].store(x, Ordering::Relaxed);
            }
        }
    }

    fn write_bytes(&self, first: usize, lane: usize, key: &[f32], value: &[f32]) {
        let words = self.sub_block_words();
        let (key_scale, value_scale) = (Scale::of(key), Scale::of(value));
        let place = self.keys.words(first, words);
        for (column, values) in place.chunks_exact(LANES).zip(key.chunks(4)) {
            let mut bytes = [0; 4];
            for (byte, x) in bytes.iter_mut().zip(values) {
                *byte = key_scale.quantise(*x);
            }
            column[lane].store(u32::from_le_bytes(bytes), Ordering::Relaxed);
        }
        place[words - LANES + lane].store(key_scale.unit.to_bits(), Ordering::Relaxed);
        let row = self.values.bytes(first + lane / 4 * self.padded_dim(), self.padded_dim());
        let byte = if cfg!(target_endian = "little") { lane % 4 } else { 3 - lane % 4 };
        for (bytes, x) in row.as_chunks::<4>().0.iter().zip(value) {
            bytes[byte].store(value_scale.quantise(*x), Ordering::Relaxed);
        }
        let scales = self.values.words(first + words - LANES, LANES);
        scales[lane].store(value_scale.unit.to_bits(), Ordering::Relaxed);
    }
}

/// Up to sixteen values rounded, zeros behind them: all at once, so that the compiler makes vectors of it.
#[inline]
fn rounded(values: &[f32], round: impl Fn(f32) -> u16) -> [u16; LANES] {
    let mut padded = [0.0; LANES];
    padded[..values.len()].copy_from_slice(values);
    let mut rounded = [0; LANES];
    for (rounded, x) in rounded.iter_mut().zip(padded) {
        *rounded = round(x);
    }
    rounded
}

/// How a row of numbers becomes integers of 8 bits.
#[derive(Clone, Copy)]
struct Scale {
    /// What an integer of 1 stands for; not a number when the row holds anything that is not finite.
    unit: f32,
    inverse: f32,
}

impl Scale {
    #[inline]
    fn of(values: &[f32]) -> Self {
        // Magnitudes are in the order of their bits, and those of what is no finite number are the largest.
        let largest = values.iter().map(|x| x.to_bits() & 0x7fff_ffff).max().unwrap_or(0);
        let largest = f32::from_bits(largest);
        let unit = if largest.is_finite() { largest / 127.0 } else { f32::NAN };
        // So small a row that its unit has no inverse is a row of zeros.
        let inverse = if unit >= f32::MIN_POSITIVE { 1.0 / unit } else { 0.0 };
        Self { unit, inverse }
    }

    /// The nearest integer, ties to even, in two's complement.
    #[inline]
    fn quantise(self, x: f32) -> u8 {
        // Adding 1.5 * 2^23 rounds to a whole number, whose bits then stand at the low end.
        const ROUNDER: f32 = 12_582_912.0;
        (x * self.inverse + ROUNDER).to_bits() as u8
    }
}

/// Rounds to bf16 (nearest, ties to even) without the branches of the general conversion.
#[inline]
fn bf16_bits(x: f32) -> u16 {
    let bits = x.to_bits();
    let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
    // Rounding could carry a not-a-number into the sign; any quiet one will do.
    if x.is_nan() { 0x7fc0 } else { rounded as u16 }
}

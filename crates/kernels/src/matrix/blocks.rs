//! Integer weights as they lie in memory: sixteen rows of a checkpoint's blocks, interleaved.
//!
//! A block here holds the same stretch of 16 rows (a tile), so that one register holds the same thing of each
//! row. It takes no more bits than the checkpoint's (scales are kept as they are; only the 6-bit ones become
//! bytes).
//!
//! Nibbles of a group of 32 values: byte `4 * row + t` of `nibbles[j]` holds value `8 j + t` in its lower
//! half and value `8 j + 4 + t` in its upper half. So eight registers of bytes come out, of which number `i`
//! has in each lane the four values from `4 i`; further bits lie in planes in the same byte, at a bit that
//! depends on `i`.

mod k_quants;
mod simple;

pub(super) use k_quants::{Q4KBlock, Q5KBlock, Q6KBlock};
pub(super) use simple::{Q4_0Block, Q4_1Block, Q5_0Block, Q5_1Block, Q8_0Block};

use super::vectors::{TILE, Vectors};
use crate::memory::Plain;

/// Bytes of a tile that one register (or two) holds: four values of each row.
pub(super) type TileBytes = [u8; 64];
/// One half-precision number for each row.
pub(super) type TileHalves = [u16; TILE];

/// How the integers of a group become numbers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// `scale * q + minimum`.
    Affine,
    /// `scale * (q - zero_point)`, where the zero point is 8, 16 or 128.
    Symmetric {
        /// What is stored for zero.
        zero_point: i32,
    },
    /// `scale * (q - 32)`, with a scale of its own for each 16 values.
    SymmetricHalves,
}

/// A group of 32 values of 16 rows (or of a part of them), unpacked into registers.
pub(super) struct Group<V: Vectors> {
    /// Unsigned integers: number `i` has values `4 i` to `4 i + 3` of its row in each lane.
    pub(super) values: [V::Bytes; 8],
    /// The scale (of the first 16 values, where halves have their own).
    pub(super) scale: V::F32,
    /// The minimum, or the scale of the second 16 values; unused for plain symmetric forms.
    pub(super) second: V::F32,
}

/// One block of 16 rows.
pub(super) trait IntegerBlock: Plain {
    /// Groups of 32 values in it.
    const GROUPS: usize;
    /// How integers become numbers.
    const FORM: Form;
    /// True for 8-bit integers, which need [`Vectors::dot_wide`].
    const WIDE: bool = false;
    /// Bytes of one row's block in the checkpoint.
    const STORED_BYTES: usize;
    /// What all groups of the block share.
    type Head<V: Vectors>: Copy;

    /// Reads what all groups share.
    fn head<V: Vectors>(&self, v: V, part: usize) -> Self::Head<V>;
    /// Unpacks one group.
    fn group<V: Vectors>(&self, v: V, part: usize, head: Self::Head<V>, index: usize) -> Group<V>;
    /// Takes over one row's block in the checkpoint's form, and tells whether its scales are finite.
    fn set_row(&mut self, row: usize, stored: &[u8]) -> bool;
}

/// Eight registers of nibbles.
#[inline(always)]
fn unpack_nibbles<V: Vectors>(v: V, part: usize, nibbles: &[TileBytes; 4]) -> [V::Bytes; 8] {
    let packed = nibbles.each_ref().map(|bytes| v.load_bytes(bytes, part));
    std::array::from_fn(
        |i| {
            if i % 2 == 0 { v.low_nibbles(packed[i / 2]) } else { v.high_nibbles(packed[i / 2]) }
        },
    )
}

/// Adds the fifth bits: bit `i` of a byte of the plane belongs to register `i`.
#[inline(always)]
fn add_fifth_bits<V: Vectors>(v: V, part: usize, values: [V::Bytes; 8], plane: &TileBytes) -> [V::Bytes; 8] {
    let plane = v.load_bytes(plane, part);
    std::array::from_fn(|i| v.with_upper_bits(values[i], plane, i, 0x10))
}

/// Stores 32 nibbles of one row, given as eight words of one value a byte.
#[inline(always)]
fn set_nibbles(nibbles: &mut [TileBytes; 4], row: usize, words: [u32; 8]) {
    for (j, bytes) in nibbles.iter_mut().enumerate() {
        set_word(bytes, row, words[2 * j] | words[2 * j + 1] << 4);
    }
}

/// Stores one row's four bytes.
#[inline(always)]
fn set_word(bytes: &mut TileBytes, row: usize, word: u32) {
    bytes[row * 4..row * 4 + 4].copy_from_slice(&word.to_le_bytes());
}

/// Bytes as little-endian words.
#[inline(always)]
fn words<const N: usize>(bytes: &[u8]) -> [u32; N] {
    let chunks = bytes.as_chunks::<4>().0;
    std::array::from_fn(|at| u32::from_le_bytes(chunks[at]))
}

/// A half-precision number's bits.
#[inline(always)]
fn half_bits(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

/// True unless the half is infinite or no number.
#[inline(always)]
pub(super) fn half_is_finite(bits: u16) -> bool {
    bits & 0x7C00 != 0x7C00
}

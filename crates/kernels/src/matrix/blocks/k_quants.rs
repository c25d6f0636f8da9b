//! Blocks of 256 values with scales of two levels: `Q4_K`, `Q5_K`, `Q6_K`.

use super::{
    Form, Group, IntegerBlock, TileBytes, TileHalves, add_fifth_bits, half_bits, half_is_finite, set_nibbles,
    set_word, unpack_nibbles, words,
};
use crate::matrix::vectors::{TILE, Vectors};
use crate::memory::Plain;
use crate::tensor::{ElementType, six_bit_scales};

/// 4 bits; scale and minimum of a group are small integers times those of the block.
#[derive(Clone, Copy)]
#[repr(C)]
pub(in crate::matrix) struct Q4KBlock {
    scales: TileHalves,
    minimums: TileHalves,
    groups: [Q4KGroup; 8],
}

#[derive(Clone, Copy)]
#[repr(C)]
struct Q4KGroup {
    scales: [u8; TILE],
    minimums: [u8; TILE],
    nibbles: [TileBytes; 4],
}

/// As [`Q4KBlock`] with 5 bits.
#[derive(Clone, Copy)]
#[repr(C)]
pub(in crate::matrix) struct Q5KBlock {
    scales: TileHalves,
    minimums: TileHalves,
    groups: [Q5KGroup; 8],
}

#[derive(Clone, Copy)]
#[repr(C)]
struct Q5KGroup {
    scales: [u8; TILE],
    minimums: [u8; TILE],
    nibbles: [TileBytes; 4],
    fifth: TileBytes,
}

/// 6 bits, zero point 32; the scale of 16 values is a small signed integer times that of the block.
#[derive(Clone, Copy)]
#[repr(C)]
pub(in crate::matrix) struct Q6KBlock {
    scales: TileHalves,
    groups: [Q6KGroup; 8],
}

#[derive(Clone, Copy)]
#[repr(C)]
struct Q6KGroup {
    /// Of the first and of the second 16 values.
    scales: [[i8; TILE]; 2],
    nibbles: [TileBytes; 4],
    /// Two bits each: those of register `i` are in plane `i / 4` from bit `2 (i % 4)`.
    upper: [TileBytes; 2],
}

macro_rules! plain {
    ($($block:ty: $bytes:literal),*) => {
        $(
            // SAFETY: arrays of numbers, all a multiple of 16 bytes long, so nothing is padded (the size
            // below is their sum); every bit pattern is a value, and the alignment is 2.
            unsafe impl Plain for $block {}
            const _: () = assert!(size_of::<$block>() == $bytes * 16);
        )*
    };
}
// Bytes a row: the first two take 4 more than in the checkpoint, where 16 integers of 6 bits share 12 bytes.
plain!(Q4KBlock: 148, Q5KBlock: 180, Q6KBlock: 210);

/// Scale, and minus the minimum, of a block with both.
type ScaleAndMinimum<V> = (<V as Vectors>::F32, <V as Vectors>::F32);

#[inline(always)]
fn affine_head<V: Vectors>(
    v: V,
    part: usize,
    scales: &TileHalves,
    minimums: &TileHalves,
) -> ScaleAndMinimum<V> {
    (v.load_f16(scales, part), v.mul(v.load_f16(minimums, part), v.splat(-1.0)))
}

impl IntegerBlock for Q4KBlock {
    const STORED_BYTES: usize = ElementType::Q4K.block_bytes();
    const GROUPS: usize = 8;
    const FORM: Form = Form::Affine;
    type Head<V: Vectors> = ScaleAndMinimum<V>;

    #[inline(always)]
    fn head<V: Vectors>(&self, v: V, part: usize) -> ScaleAndMinimum<V> {
        affine_head(v, part, &self.scales, &self.minimums)
    }

    #[inline(always)]
    fn group<V: Vectors>(&self, v: V, part: usize, head: ScaleAndMinimum<V>, index: usize) -> Group<V> {
        let group = group_of(&self.groups, index);
        Group {
            values: unpack_nibbles(v, part, &group.nibbles),
            scale: v.mul(head.0, v.load_u8(&group.scales, part)),
            second: v.mul(head.1, v.load_u8(&group.minimums, part)),
        }
    }

    #[inline(always)]
    fn set_row(&mut self, row: usize, stored: &[u8]) -> bool {
        (self.scales[row], self.minimums[row]) = (half_bits(stored, 0), half_bits(stored, 2));
        for (index, group) in self.groups.iter_mut().enumerate() {
            (group.scales[row], group.minimums[row]) = six_bit_scales(&stored[4..16], index);
            set_nibbles(&mut group.nibbles, row, group_nibbles(&stored[16..144], index));
        }
        half_is_finite(self.scales[row]) && half_is_finite(self.minimums[row])
    }
}

impl IntegerBlock for Q5KBlock {
    const STORED_BYTES: usize = ElementType::Q5K.block_bytes();
    const GROUPS: usize = 8;
    const FORM: Form = Form::Affine;
    type Head<V: Vectors> = ScaleAndMinimum<V>;

    #[inline(always)]
    fn head<V: Vectors>(&self, v: V, part: usize) -> ScaleAndMinimum<V> {
        affine_head(v, part, &self.scales, &self.minimums)
    }

    #[inline(always)]
    fn group<V: Vectors>(&self, v: V, part: usize, head: ScaleAndMinimum<V>, index: usize) -> Group<V> {
        let group = group_of(&self.groups, index);
        Group {
            values: add_fifth_bits(v, part, unpack_nibbles(v, part, &group.nibbles), &group.fifth),
            scale: v.mul(head.0, v.load_u8(&group.scales, part)),
            second: v.mul(head.1, v.load_u8(&group.minimums, part)),
        }
    }

    #[inline(always)]
    fn set_row(&mut self, row: usize, stored: &[u8]) -> bool {
        (self.scales[row], self.minimums[row]) = (half_bits(stored, 0), half_bits(stored, 2));
        let high: [u32; 8] = words(&stored[16..48]);
        for (index, group) in self.groups.iter_mut().enumerate() {
            (group.scales[row], group.minimums[row]) = six_bit_scales(&stored[4..16], index);
            set_nibbles(&mut group.nibbles, row, group_nibbles(&stored[48..176], index));
            // Bit `index` of byte k is value k's; in the plane, value 4 i + t is bit i of byte t.
            let fifth = (0..8).fold(0, |word, i| word | ((high[i] >> index) & 0x0101_0101) << i);
            set_word(&mut group.fifth, row, fifth);
        }
        half_is_finite(self.scales[row]) && half_is_finite(self.minimums[row])
    }
}

impl IntegerBlock for Q6KBlock {
    const STORED_BYTES: usize = ElementType::Q6K.block_bytes();
    const GROUPS: usize = 8;
    const FORM: Form = Form::SymmetricHalves;
    type Head<V: Vectors> = V::F32;

    #[inline(always)]
    fn head<V: Vectors>(&self, v: V, part: usize) -> V::F32 {
        v.load_f16(&self.scales, part)
    }

    #[inline(always)]
    fn group<V: Vectors>(&self, v: V, part: usize, head: V::F32, index: usize) -> Group<V> {
        let group = group_of(&self.groups, index);
        let nibbles = unpack_nibbles(v, part, &group.nibbles);
        let upper = group.upper.each_ref().map(|plane| v.load_bytes(plane, part));
        Group {
            values: std::array::from_fn(|i| v.with_upper_bits(nibbles[i], upper[i / 4], i % 4 * 2, 0x30)),
            scale: v.mul(head, v.load_i8(&group.scales[0], part)),
            second: v.mul(head, v.load_i8(&group.scales[1], part)),
        }
    }

    #[inline(always)]
    fn set_row(&mut self, row: usize, stored: &[u8]) -> bool {
        self.scales[row] = half_bits(stored, 208);
        for (index, group) in self.groups.iter_mut().enumerate() {
            for (half, scales) in group.scales.iter_mut().enumerate() {
                scales[row] = stored[192 + 2 * index + half] as i8;
            }
            // Each half of the block is four groups: their nibbles share 64 bytes, their upper bits 32.
            let (half, quarter) = (index / 4, index % 4);
            let low: [u32; 8] = words(&stored[half * 64 + quarter % 2 * 32..][..32]);
            let high: [u32; 8] = words(&stored[128 + half * 32..][..32]);
            set_nibbles(&mut group.nibbles, row, low.map(|word| (word >> (quarter / 2 * 4)) & 0x0F0F_0F0F));
            for (plane, high) in group.upper.iter_mut().zip(high.as_chunks::<4>().0) {
                let bits = |i: usize| ((high[i] >> (quarter * 2)) & 0x0303_0303) << (2 * i);
                set_word(plane, row, bits(0) | bits(1) | bits(2) | bits(3));
            }
        }
        half_is_finite(self.scales[row])
    }
}

/// One of the groups. Taking the rest of the division, rather than checking, keeps the compiler from finding
/// out that a loop over groups ends after eight rounds and writing it out.
#[inline(always)]
fn group_of<T>(groups: &[T; 8], index: usize) -> &T {
    debug_assert!(index < 8);
    &groups[index % 8]
}

/// The 32 values of a group of `Q4_K` or `Q5_K`, one a byte: two groups share 32 bytes of nibbles.
#[inline(always)]
fn group_nibbles(packed: &[u8], index: usize) -> [u32; 8] {
    let packed: [u32; 8] = words(&packed[index / 2 * 32..][..32]);
    packed.map(|word| (word >> (index % 2 * 4)) & 0x0F0F_0F0F)
}

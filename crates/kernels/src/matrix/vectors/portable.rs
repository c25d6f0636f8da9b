//! Plain Rust for any machine; the compiler makes of it what vectors the architecture always has.

use std::array::from_fn;

use super::{TILE, Task, Vectors};

/// Works everywhere.
#[derive(Clone, Copy)]
pub(super) struct Portable;

/// Does a task in plain Rust.
#[inline(never)]
pub(super) fn run<T: Task>(task: T) -> T::Output {
    task.run(Portable)
}

/// A finite half as a single, without branches.
#[inline(always)]
pub(super) fn half_to_f32(bits: u16) -> f32 {
    /// 2^112: moves the exponent from a half's bias to a single's, and makes subnormal halves normal on the
    /// way.
    const REBIAS: f32 = f32::from_bits((127 + 112) << 23);
    let magnitude = f32::from_bits(u32::from(bits & 0x7FFF) << 13) * REBIAS;
    f32::from_bits(magnitude.to_bits() | u32::from(bits & 0x8000) << 16)
}

impl Vectors for Portable {
    const PARTS: usize = 1;
    const MAX_ROWS: usize = 1;
    type F32 = [f32; TILE];
    /// Singles: sums of a group's products are below 2^24, where these are exact, and every machine
    /// multiplies them fast.
    type I32 = [f32; TILE];
    /// Words whose lowest byte comes first in memory.
    type Bytes = [u32; TILE];

    #[inline(always)]
    fn zero(self) -> [f32; TILE] {
        [0.0; TILE]
    }

    #[inline(always)]
    fn splat(self, value: f32) -> [f32; TILE] {
        [value; TILE]
    }

    #[inline(always)]
    fn load_f32(self, values: &[f32; TILE], _: usize) -> [f32; TILE] {
        *values
    }

    #[inline(always)]
    fn load_f16(self, bits: &[u16; TILE], _: usize) -> [f32; TILE] {
        bits.map(half_to_f32)
    }

    #[inline(always)]
    fn load_bf16(self, bits: &[u16; TILE], _: usize) -> [f32; TILE] {
        bits.map(|bits| f32::from_bits(u32::from(bits) << 16))
    }

    #[inline(always)]
    fn load_u8(self, values: &[u8; TILE], _: usize) -> [f32; TILE] {
        values.map(f32::from)
    }

    #[inline(always)]
    fn load_i8(self, values: &[i8; TILE], _: usize) -> [f32; TILE] {
        values.map(f32::from)
    }

    #[inline(always)]
    fn store(self, value: [f32; TILE], out: &mut [f32; TILE], _: usize) {
        *out = value;
    }

    #[inline(always)]
    fn sub(self, a: [f32; TILE], b: [f32; TILE]) -> [f32; TILE] {
        from_fn(|lane| a[lane] - b[lane])
    }

    #[inline(always)]
    fn mul(self, a: [f32; TILE], b: [f32; TILE]) -> [f32; TILE] {
        from_fn(|lane| a[lane] * b[lane])
    }

    #[inline(always)]
    fn mul_add(self, a: [f32; TILE], b: [f32; TILE], c: [f32; TILE]) -> [f32; TILE] {
        // Without the instruction, `f32::mul_add` is a slow library function.
        if cfg!(any(target_arch = "aarch64", target_feature = "fma")) {
            return from_fn(|lane| a[lane].mul_add(b[lane], c[lane]));
        }
        from_fn(|lane| a[lane] * b[lane] + c[lane])
    }

    #[inline(always)]
    fn load_bytes(self, bytes: &[u8; 64], _: usize) -> [u32; TILE] {
        let words = bytes.as_chunks::<4>().0;
        from_fn(|lane| u32::from_le_bytes(words[lane]))
    }

    #[inline(always)]
    fn low_nibbles(self, words: [u32; TILE]) -> [u32; TILE] {
        words.map(|word| word & 0x0F0F_0F0F)
    }

    #[inline(always)]
    fn high_nibbles(self, words: [u32; TILE]) -> [u32; TILE] {
        words.map(|word| word >> 4 & 0x0F0F_0F0F)
    }

    #[inline(always)]
    fn with_upper_bits(self, values: [u32; TILE], plane: [u32; TILE], bit: usize, mask: i8) -> [u32; TILE] {
        // Shifts carry bits from one byte into the next, but these land outside the mask.
        let mask = u32::from_ne_bytes([mask as u8; 4]);
        from_fn(|lane| {
            let moved = if bit < 4 { plane[lane] << (4 - bit) } else { plane[lane] >> (bit - 4) };
            values[lane] | moved & mask
        })
    }

    #[inline(always)]
    fn byte_as_f32(self, words: [u32; TILE], index: usize) -> [f32; TILE] {
        words.map(|word| (word >> (8 * index) & 255) as i32 as f32)
    }

    #[inline(always)]
    fn splat_i32(self, value: i32) -> [f32; TILE] {
        [value as f32; TILE]
    }

    #[inline(always)]
    fn dot(self, mut sum: [f32; TILE], weights: [u32; TILE], input: i32) -> [f32; TILE] {
        for (index, byte) in input.to_le_bytes().into_iter().enumerate() {
            let (weights, input) = (self.byte_as_f32(weights, index), f32::from(byte as i8));
            for (sum, weight) in sum.iter_mut().zip(weights) {
                *sum += weight * input;
            }
        }
        sum
    }

    #[inline(always)]
    fn wide_start(self, start: i32) -> [f32; TILE] {
        self.splat_i32(start)
    }

    #[inline(always)]
    fn dot_wide(self, sum: [f32; TILE], weights: [u32; TILE], input: i32) -> [f32; TILE] {
        self.dot(sum, weights, input)
    }

    #[inline(always)]
    fn to_f32(self, value: [f32; TILE]) -> [f32; TILE] {
        value
    }

    #[inline(always)]
    fn prefetch(self, _: *const u8) {}
}

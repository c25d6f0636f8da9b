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
    /// 2^112: moves the exponent from a half's bias to a single's, and makes subnormal halves normal on the way.
    const REBIAS: f32 = 5.192_296_858_534_828e33;
    let magnitude = f32::from_bits(u32::from(bits & 0x7FFF) << 13) * REBIAS;
    f32::from_bits(magnitude.to_bits() | u32::from(bits & 0x8000) << 16)
}

impl Vectors for Portable {
    const PARTS: usize = 1;
    const MAX_ROWS: usize = 1;
    type F32 = [f32; TILE];
    type I32 = [i32; TILE];
    type Bytes = [u8; 64];

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
    fn load_bytes(self, bytes: &[u8; 64], _: usize) -> [u8; 64] {
        *bytes
    }

    #[inline(always)]
    fn low_nibbles(self, bytes: [u8; 64]) -> [u8; 64] {
        from_fn(|at| bytes[at] & 15)
    }

    #[inline(always)]
    fn high_nibbles(self, bytes: [u8; 64]) -> [u8; 64] {
        from_fn(|at| bytes[at] >> 4)
    }

    #[inline(always)]
    fn with_upper_bits(self, values: [u8; 64], plane: [u8; 64], bit: usize, mask: i8) -> [u8; 64] {
        from_fn(|at| values[at] | ((u16::from(plane[at]) << 4 >> bit) as u8 & mask as u8))
    }

    #[inline(always)]
    fn byte_as_f32(self, bytes: [u8; 64], index: usize) -> [f32; TILE] {
        from_fn(|lane| f32::from(bytes[lane * 4 + index]))
    }

    #[inline(always)]
    fn splat_i32(self, value: i32) -> [i32; TILE] {
        [value; TILE]
    }

    #[inline(always)]
    fn dot(self, sum: [i32; TILE], weights: [u8; 64], input: i32) -> [i32; TILE] {
        let input = input.to_ne_bytes().map(|byte| i32::from(byte as i8));
        from_fn(|lane| {
            let product = |at: usize| i32::from(weights[lane * 4 + at]) * input[at];
            sum[lane] + product(0) + product(1) + product(2) + product(3)
        })
    }

    #[inline(always)]
    fn wide_start(self, start: i32) -> [i32; TILE] {
        self.splat_i32(start)
    }

    #[inline(always)]
    fn dot_wide(self, sum: [i32; TILE], weights: [u8; 64], input: i32) -> [i32; TILE] {
        self.dot(sum, weights, input)
    }

    #[inline(always)]
    fn to_f32(self, value: [i32; TILE]) -> [f32; TILE] {
        value.map(|value| value as f32)
    }

    #[inline(always)]
    fn prefetch(self, _: *const u8) {}
}

//! One row of a tile, for reading single rows: what the other sets do for all lanes, done for one.

use super::{TILE, Vectors};

/// Works on the row of this number only.
#[derive(Clone, Copy)]
pub(crate) struct OneLane(pub(crate) usize);

impl Vectors for OneLane {
    const PARTS: usize = 1;
    const MAX_ROWS: usize = 1;
    type F32 = f32;
    type I32 = i32;
    type Bytes = [u8; 4];

    #[inline(always)]
    fn zero(self) -> f32 {
        0.0
    }

    #[inline(always)]
    fn splat(self, value: f32) -> f32 {
        value
    }

    #[inline(always)]
    fn load_f32(self, values: &[f32; TILE], _: usize) -> f32 {
        values[self.0]
    }

    #[inline(always)]
    fn load_f16(self, bits: &[u16; TILE], _: usize) -> f32 {
        super::portable::half_to_f32(bits[self.0])
    }

    #[inline(always)]
    fn load_bf16(self, bits: &[u16; TILE], _: usize) -> f32 {
        f32::from_bits(u32::from(bits[self.0]) << 16)
    }

    #[inline(always)]
    fn load_u8(self, values: &[u8; TILE], _: usize) -> f32 {
        f32::from(values[self.0])
    }

    #[inline(always)]
    fn load_i8(self, values: &[i8; TILE], _: usize) -> f32 {
        f32::from(values[self.0])
    }

    #[inline(always)]
    fn store(self, value: f32, out: &mut [f32; TILE], _: usize) {
        out[self.0] = value;
    }

    #[inline(always)]
    fn sub(self, a: f32, b: f32) -> f32 {
        a - b
    }

    #[inline(always)]
    fn mul(self, a: f32, b: f32) -> f32 {
        a * b
    }

    #[inline(always)]
    fn mul_add(self, a: f32, b: f32, c: f32) -> f32 {
        a * b + c
    }

    #[inline(always)]
    fn load_bytes(self, bytes: &[u8; 64], _: usize) -> [u8; 4] {
        bytes.as_chunks::<4>().0[self.0]
    }

    #[inline(always)]
    fn low_nibbles(self, bytes: [u8; 4]) -> [u8; 4] {
        bytes.map(|byte| byte & 15)
    }

    #[inline(always)]
    fn high_nibbles(self, bytes: [u8; 4]) -> [u8; 4] {
        bytes.map(|byte| byte >> 4)
    }

    #[inline(always)]
    fn with_upper_bits(self, values: [u8; 4], plane: [u8; 4], bit: usize, mask: i8) -> [u8; 4] {
        std::array::from_fn(|at| values[at] | ((u16::from(plane[at]) << 4 >> bit) as u8 & mask as u8))
    }

    #[inline(always)]
    fn byte_as_f32(self, bytes: [u8; 4], index: usize) -> f32 {
        f32::from(bytes[index])
    }

    #[inline(always)]
    fn splat_i32(self, value: i32) -> i32 {
        value
    }

    #[inline(always)]
    fn dot(self, sum: i32, weights: [u8; 4], input: i32) -> i32 {
        let products =
            weights.iter().zip(input.to_le_bytes()).map(|(&w, x)| i32::from(w) * i32::from(x as i8));
        sum + products.sum::<i32>()
    }

    #[inline(always)]
    fn wide_start(self, start: i32) -> i32 {
        start
    }

    #[inline(always)]
    fn dot_wide(self, sum: i32, weights: [u8; 4], input: i32) -> i32 {
        self.dot(sum, weights, input)
    }

    #[inline(always)]
    fn to_f32(self, value: i32) -> f32 {
        value as f32
    }

    #[inline(always)]
    fn prefetch(self, _: *const u8) {}
}

//! Quantising one group of a row.

#![allow(clippy::inline_always, reason = "part of the functions compiled for an instruction set")]

use super::{GROUP, QuantizedGroup};

/// What an integer of one stands for in a group.
pub(crate) struct GroupUnit {
    pub(crate) scale: f32,
    /// What values are multiplied with to become integers.
    pub(crate) inverse: f32,
}

impl GroupUnit {
    /// From the bits of the largest magnitude.
    #[inline(always)]
    pub(crate) fn of(largest: u32) -> Self {
        /// Below this magnitude the reciprocal would overflow; such a group counts as zero.
        const SMALLEST: f32 = 1e-36;

        let largest = f32::from_bits(largest);
        if largest < SMALLEST {
            return Self { scale: 0.0, inverse: 0.0 };
        }
        Self { scale: largest * (1.0 / 127.0), inverse: 127.0 / largest }
    }
}

/// Quantises one group. Written so that the compiler makes vectors of it: the largest magnitude is found
/// among bit patterns (which order like the magnitudes) and rounding to nearest, ties to even, is done by an
/// addition.
///
/// Instruction sets may have a way of their own ([`crate::matrix::vectors::Vectors::quantize`]) with the same
/// result for finite values.
///
/// A value that is not finite makes the scale not finite, so that the fault shows in the product (the
/// integers, and with them the sums, are then arbitrary).
#[inline(always)]
pub(crate) fn quantize(values: &[f32; GROUP]) -> QuantizedGroup {
    /// 1.5 * 2^23: the sum with a small number holds that number, rounded, in its lowest bits.
    const ROUNDER: f32 = 12_582_912.0;

    let largest = values.iter().fold(0, |largest, value| largest.max(value.to_bits() & 0x7FFF_FFFF));
    let GroupUnit { scale, inverse } = GroupUnit::of(largest);
    // One step for all 32 values after the other: each becomes a few wide instructions.
    let mut integers = [0_i32; GROUP];
    for (integer, value) in integers.iter_mut().zip(values) {
        *integer = (value * inverse + ROUNDER).to_bits().wrapping_sub(ROUNDER.to_bits()) as i32;
    }
    let mut bytes = [0_u8; GROUP];
    for (byte, integer) in bytes.iter_mut().zip(integers) {
        *byte = integer as u8;
    }
    let mut words = [0_i32; 8];
    for (word, bytes) in words.iter_mut().zip(bytes.as_chunks::<4>().0) {
        *word = i32::from_le_bytes(*bytes);
    }
    // Sums of the halves by folding each onto itself: again a few wide instructions.
    let mut width = GROUP / 4;
    while width > 0 {
        for at in 0..width {
            for at in [at, GROUP / 2 + at] {
                integers[at] = integers[at].wrapping_add(integers[at + width]);
            }
        }
        width /= 2;
    }
    let halves = [integers[0].wrapping_neg(), integers[GROUP / 2].wrapping_neg()];
    let negative_sum = halves[0].wrapping_add(halves[1]);
    QuantizedGroup {
        words,
        scale,
        scaled_sum: scale * -(negative_sum as f32),
        starts: [8, 16, 128].map(|zero_point: i32| negative_sum.wrapping_mul(zero_point)),
        half_starts: halves.map(|half| half.wrapping_mul(32)),
        reserved: 0,
    }
}

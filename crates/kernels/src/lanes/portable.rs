//! Lanes as plain arrays: what the compiler makes of them on any machine.

use super::{Kernel, LANES, Lanes};

/// Sixteen numbers, aligned for the widest load.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct Array<T>([T; LANES]);

/// Needs nothing of the machine.
#[derive(Clone, Copy)]
pub(crate) struct Portable;

/// Runs a kernel with what every machine has. Kept out of its callers, as the other sets are by their features.
#[inline(never)]
pub(super) fn enter<K: Kernel>(kernel: K) -> K::Output {
    kernel.run(Portable)
}

#[inline(always)]
fn map<T: Copy, O>(a: Array<T>, op: impl Fn(T) -> O) -> Array<O> {
    Array(a.0.map(op))
}

#[inline(always)]
fn zip<T: Copy, O>(a: Array<T>, b: Array<T>, op: impl Fn(T, T) -> O) -> Array<O> {
    Array(std::array::from_fn(|i| op(a.0[i], b.0[i])))
}

impl Lanes for Portable {
    type F = Array<f32>;
    type U = Array<u32>;
    const MANY_REGISTERS: bool = cfg!(target_arch = "aarch64");

    #[inline(always)]
    fn splat(self, value: f32) -> Self::F {
        Array([value; LANES])
    }

    #[inline(always)]
    fn load(self, from: &[f32; LANES]) -> Self::F {
        Array(*from)
    }

    #[inline(always)]
    fn store(self, value: Self::F, to: &mut [f32; LANES]) {
        *to = value.0;
    }

    #[inline(always)]
    fn splat_u(self, value: u32) -> Self::U {
        Array([value; LANES])
    }

    #[inline(always)]
    fn load_u(self, from: &[u32; LANES]) -> Self::U {
        Array(*from)
    }

    #[inline(always)]
    fn add(self, a: Self::F, b: Self::F) -> Self::F {
        zip(a, b, |a, b| a + b)
    }

    #[inline(always)]
    fn sub(self, a: Self::F, b: Self::F) -> Self::F {
        zip(a, b, |a, b| a - b)
    }

    #[inline(always)]
    fn mul(self, a: Self::F, b: Self::F) -> Self::F {
        zip(a, b, |a, b| a * b)
    }

    #[inline(always)]
    fn div(self, a: Self::F, b: Self::F) -> Self::F {
        zip(a, b, |a, b| a / b)
    }

    #[inline(always)]
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        Array(std::array::from_fn(|i| {
            if cfg!(any(target_arch = "aarch64", target_feature = "fma")) {
                a.0[i].mul_add(b.0[i], c.0[i])
            } else {
                // Without the instruction a fused product is a slow library call.
                a.0[i] * b.0[i] + c.0[i]
            }
        }))
    }

    #[inline(always)]
    fn max(self, a: Self::F, b: Self::F) -> Self::F {
        zip(a, b, |a, b| if a > b { a } else { b })
    }

    #[inline(always)]
    fn min(self, a: Self::F, b: Self::F) -> Self::F {
        zip(a, b, |a, b| if a < b { a } else { b })
    }

    #[inline(always)]
    fn if_less(self, a: Self::F, b: Self::F, then: Self::F, otherwise: Self::F) -> Self::F {
        Array(std::array::from_fn(|i| if a.0[i] < b.0[i] { then.0[i] } else { otherwise.0[i] }))
    }

    #[inline(always)]
    fn to_bits(self, value: Self::F) -> Self::U {
        map(value, f32::to_bits)
    }

    #[inline(always)]
    fn of_bits(self, bits: Self::U) -> Self::F {
        map(bits, f32::from_bits)
    }

    #[inline(always)]
    fn and(self, a: Self::U, b: Self::U) -> Self::U {
        zip(a, b, |a, b| a & b)
    }

    #[inline(always)]
    fn or(self, a: Self::U, b: Self::U) -> Self::U {
        zip(a, b, |a, b| a | b)
    }

    #[inline(always)]
    fn add_u(self, a: Self::U, b: Self::U) -> Self::U {
        zip(a, b, u32::wrapping_add)
    }

    #[inline(always)]
    fn shift_left<const BITS: u32>(self, a: Self::U) -> Self::U {
        map(a, |a| a << BITS)
    }

    #[inline(always)]
    fn shift_right<const BITS: u32>(self, a: Self::U) -> Self::U {
        map(a, |a| a >> BITS)
    }

    #[inline(always)]
    fn shift_right_signed<const BITS: u32>(self, a: Self::U) -> Self::U {
        map(a, |a| (a.cast_signed() >> BITS).cast_unsigned())
    }

    #[inline(always)]
    fn to_number(self, a: Self::U) -> Self::F {
        map(a, |a| a.cast_signed() as f32)
    }

    #[inline(always)]
    fn store_u(self, value: Self::U, to: &mut [u32; LANES]) {
        *to = value.0;
    }
}

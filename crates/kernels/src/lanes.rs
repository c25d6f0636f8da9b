//! Sixteen 32-bit numbers at once, on whatever vectors the machine has.
//!
//! Kernels are written once over [`Lanes`] and run through [`Simd::run`], which enters a function compiled for the
//! instruction set. Each lane computes the same sequence of operations on every machine of one set, and sums over
//! lanes follow one fixed tree, so a result never depends on where in a program a kernel was inlined.
//!
//! Always holds: a value of a lanes type exists only where its instructions do ([`Simd`] checks before it makes
//! one), which is what makes the methods safe. Comparisons follow x86: `max(a, b)` and `min(a, b)` give `b` when
//! either is not a number.
#![allow(
    clippy::inline_always,
    reason = "a kernel must become part of the function that enables its instructions"
)]

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod portable;
#[cfg(test)]
mod tests;

use crate::cpu_features::{Isa, IsaError};
#[cfg(target_arch = "x86_64")]
use crate::tile_unit::TileUnit;

/// Lanes of a vector.
pub(crate) const LANES: usize = 16;

/// An instruction set that this machine has been seen to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Simd(Level);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(target_arch = "x86_64")]
    Avx512Bf16,
    #[cfg(target_arch = "x86_64")]
    Amx(TileUnit),
}

impl Simd {
    /// The set that this process uses.
    ///
    /// # Errors
    /// When the environment forces one that cannot be used.
    pub fn selected() -> Result<Self, IsaError> {
        Ok(Self::of(Isa::selected()?).unwrap_or(Self(Level::Portable)))
    }

    /// This very set, if the machine has it.
    #[must_use]
    pub fn of(isa: Isa) -> Option<Self> {
        if !isa.is_available() {
            return None;
        }
        #[cfg(target_arch = "x86_64")]
        let level = match isa {
            Isa::Portable => Level::Portable,
            Isa::Avx2 | Isa::AvxVnni => Level::Avx2,
            Isa::Avx512 if has_bf16_dot() && has_fast_bf16_dot() => Level::Avx512Bf16,
            Isa::Avx512 => Level::Avx512,
            Isa::Amx => Level::Amx(TileUnit::get()?),
        };
        #[cfg(not(target_arch = "x86_64"))]
        let level = Level::Portable;
        Some(Self(level))
    }

    /// Every set that this machine has, with each way to use it.
    #[cfg(test)]
    pub(crate) fn all() -> Vec<Self> {
        let mut all: Vec<Self> = Isa::available().into_iter().filter_map(Self::of).collect();
        #[cfg(target_arch = "x86_64")]
        if Isa::Avx512.is_available() {
            all.push(Self(Level::Avx512));
            all.extend(has_bf16_dot().then_some(Self(Level::Avx512Bf16)));
        }
        all
    }

    /// Whether kernels may call [`Lanes::dot_bf16`] and [`Lanes::pack_bf16`], and should.
    pub(crate) fn multiplies_bf16(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        let multiplies = self.0 == Level::Avx512Bf16;
        #[cfg(not(target_arch = "x86_64"))]
        let multiplies = false;
        multiplies
    }

    /// The matrix unit, where kernels shall use it.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn tile_unit(self) -> Option<TileUnit> {
        match self.0 {
            Level::Amx(unit) => Some(unit),
            _ => None,
        }
    }

    /// Runs a kernel on these vectors.
    pub(crate) fn run<K: Kernel>(self, kernel: K) -> K::Output {
        match self.0 {
            Level::Portable => portable::enter(kernel),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: a `Simd` of this level exists only after the machine was found to have AVX2, FMA and F16C.
            Level::Avx2 => unsafe { avx2::enter(kernel) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: a `Simd` of this level exists only after the machine was found to have AVX-512 F, BW, DQ, VL.
            Level::Avx512 => unsafe { avx512::enter(kernel) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above, and the machine has AVX512-BF16.
            Level::Avx512Bf16 | Level::Amx(_) => unsafe { avx512::enter_bf16(kernel) },
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn has_bf16_dot() -> bool {
    is_x86_feature_detected!("avx512bf16")
}

/// Whether the bf16 dot product does more in a cycle than two single-precision products: on AMD's processors it
/// does twice as much, on Intel's (measured on one of the fourth generation) half as much.
#[cfg(target_arch = "x86_64")]
fn has_fast_bf16_dot() -> bool {
    #[allow(unused_unsafe, reason = "older compilers take the call for unsafe")]
    // SAFETY: every processor of this architecture has the instruction.
    let leaf = unsafe { std::arch::x86_64::__cpuid(0) };
    let vendor = [leaf.ebx, leaf.edx, leaf.ecx].map(u32::to_le_bytes);
    vendor.as_flattened() == b"AuthenticAMD"
}

/// A computation that can run on any lanes. Implementations are `#[inline(always)]` all the way down.
pub(crate) trait Kernel {
    /// What it returns.
    type Output;

    /// Runs it.
    fn run<L: Lanes>(self, lanes: L) -> Self::Output;
}

/// Operations on sixteen lanes.
pub(crate) trait Lanes: Copy {
    /// Sixteen `f32`.
    type F: Copy;
    /// Sixteen `u32`.
    type U: Copy;
    /// Whether there are registers for a tile of four by four vectors and the operands beside it.
    const MANY_REGISTERS: bool;

    fn splat(self, value: f32) -> Self::F;
    fn load(self, from: &[f32; LANES]) -> Self::F;
    fn store(self, value: Self::F, to: &mut [f32; LANES]);
    fn splat_u(self, value: u32) -> Self::U;
    fn load_u(self, from: &[u32; LANES]) -> Self::U;
    fn store_u(self, value: Self::U, to: &mut [u32; LANES]);

    fn add(self, a: Self::F, b: Self::F) -> Self::F;
    fn sub(self, a: Self::F, b: Self::F) -> Self::F;
    fn mul(self, a: Self::F, b: Self::F) -> Self::F;
    fn div(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a * b + c`, rounded once where the machine can.
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    fn max(self, a: Self::F, b: Self::F) -> Self::F;
    fn min(self, a: Self::F, b: Self::F) -> Self::F;
    /// `then` in the lanes where `a < b`, `otherwise` in the rest.
    fn if_less(self, a: Self::F, b: Self::F, then: Self::F, otherwise: Self::F) -> Self::F;

    fn to_bits(self, value: Self::F) -> Self::U;
    fn of_bits(self, bits: Self::U) -> Self::F;
    fn and(self, a: Self::U, b: Self::U) -> Self::U;
    fn or(self, a: Self::U, b: Self::U) -> Self::U;
    fn add_u(self, a: Self::U, b: Self::U) -> Self::U;
    fn shift_left<const BITS: u32>(self, a: Self::U) -> Self::U;
    fn shift_right<const BITS: u32>(self, a: Self::U) -> Self::U;
    /// Moves bits to the right and copies the sign into the upper ones.
    fn shift_right_signed<const BITS: u32>(self, a: Self::U) -> Self::U;
    /// Signed integers as numbers, rounded to nearest.
    fn to_number(self, a: Self::U) -> Self::F;

    /// Adds to each lane the product of the two bf16 pairs in it. Only where [`Simd::multiplies_bf16`].
    fn dot_bf16(self, sum: Self::F, a: Self::U, b: Self::U) -> Self::F {
        let _ = (a, b);
        debug_assert!(false, "this instruction set has no bf16 dot product");
        sum
    }

    /// Rounds to bf16 (nearest, ties to even), two neighbouring lanes in one word.
    /// Only where [`Simd::multiplies_bf16`].
    fn pack_bf16(self, value: Self::F) -> [u32; LANES / 2] {
        let _ = value;
        debug_assert!(false, "this instruction set has no bf16 dot product");
        [0; LANES / 2]
    }

    /// The half-precision numbers in the low halves of the words.
    #[inline(always)]
    fn f16_low(self, words: Self::U) -> Self::F {
        let magnitude = self.shift_left::<13>(self.and(words, self.splat_u(0x7fff)));
        let sign = self.shift_left::<16>(self.and(words, self.splat_u(0x8000)));
        // The exponent's bias is 112 too small; the product is exact, for subnormal numbers too.
        let scaled = self.mul(self.of_bits(magnitude), self.splat(f32::from_bits((127 + 112) << 23)));
        let special = self.of_bits(self.or(magnitude, self.splat_u(0x7f80_0000)));
        let value = self.if_less(scaled, self.splat(65536.0), scaled, special);
        self.of_bits(self.or(self.to_bits(value), sign))
    }

    /// Sum of all lanes: lane `i` with lane `i + 8`, then `i + 4`, `i + 2`, `i + 1`.
    #[inline(always)]
    fn sum(self, value: Self::F) -> f32 {
        let mut lanes = [0.0; LANES];
        self.store(value, &mut lanes);
        for half in [8, 4, 2, 1] {
            for i in 0..half {
                lanes[i] += lanes[i + half];
            }
        }
        lanes[0]
    }

    /// The largest lane.
    #[inline(always)]
    fn largest(self, value: Self::F) -> f32 {
        let mut lanes = [0.0; LANES];
        self.store(value, &mut lanes);
        for half in [8, 4, 2, 1] {
            for i in 0..half {
                let (a, b) = (lanes[i], lanes[i + half]);
                lanes[i] = if a > b { a } else { b };
            }
        }
        lanes[0]
    }

    /// `e` to the power of each lane, to about one unit in the last place; zero where the result would be
    /// subnormal, the largest finite power where it would be infinite.
    #[inline(always)]
    fn exp(self, x: Self::F) -> Self::F {
        // Adding and taking away 1.5 * 2^23 rounds to a whole number, whose bits then stand at the low end.
        const ROUNDER: f32 = 12_582_912.0;
        // Cephes' polynomial for (exp(r) - 1 - r) / r^2 on |r| <= ln(2) / 2.
        const C: [f32; 6] = [1.987_569_1e-4, 1.398_2e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 5e-1];
        let smallest = self.splat(-87.336_54);
        let clamped = self.min(self.splat(88.722_83), x);
        let shifted = self.fma(clamped, self.splat(std::f32::consts::LOG2_E), self.splat(ROUNDER));
        let n = self.sub(shifted, self.splat(ROUNDER));
        // ln(2) in two parts, the first with so few bits that its product with n is exact.
        let r = self.fma(n, self.splat(-0.693_359_4), clamped);
        let r = self.fma(n, self.splat(2.121_944_4e-4), r);
        let mut p = self.splat(C[0]);
        for c in &C[1..] {
            p = self.fma(p, r, self.splat(*c));
        }
        let p = self.add(self.fma(p, self.mul(r, r), r), self.splat(1.0));
        let power = self.add_u(self.to_bits(p), self.shift_left::<23>(self.to_bits(shifted)));
        self.if_less(x, smallest, self.splat(0.0), self.of_bits(power))
    }
}

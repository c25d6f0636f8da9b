//! Lanes in two 256-bit registers.

use std::arch::x86_64::{
    __m256, __m256i, _CMP_LT_OQ, _mm_cvtsi32_si128, _mm_packus_epi32, _mm256_add_epi32, _mm256_add_ps,
    _mm256_and_si256, _mm256_blendv_ps, _mm256_castps_si256, _mm256_castsi256_ps, _mm256_castsi256_si128,
    _mm256_cmp_ps, _mm256_cvtepi32_ps, _mm256_cvtph_ps, _mm256_div_ps, _mm256_extracti128_si256,
    _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_loadu_si256, _mm256_max_ps, _mm256_min_ps, _mm256_mul_ps,
    _mm256_or_si256, _mm256_set1_epi32, _mm256_set1_ps, _mm256_sll_epi32, _mm256_sra_epi32, _mm256_srl_epi32,
    _mm256_storeu_ps, _mm256_storeu_si256, _mm256_sub_ps,
};

use super::{Kernel, LANES, Lanes};

/// Exists only where AVX2, FMA and F16C do.
#[derive(Clone, Copy)]
pub(crate) struct Avx2(());

/// Runs a kernel with AVX2.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn enter<K: Kernel>(kernel: K) -> K::Output {
    kernel.run(Avx2(()))
}

/// The low and the high eight lanes.
type F = [__m256; 2];
/// The low and the high eight lanes.
type U = [__m256i; 2];

/// Defines methods whose body is one intrinsic a half (`[a, b]` stands for what is done to each).
macro_rules! halves {
    ($(fn $name:ident $(<const $bits:ident>)? ($($arg:ident: $type:ty),*) -> $out:ty { $body:expr })*) => {
        $(
            #[inline(always)]
            fn $name $(<const $bits: u32>)? (self, $($arg: $type),*) -> $out {
                // SAFETY: `self` exists only on machines with these instructions.
                unsafe { [{ $(let $arg = $arg[0];)* $body }, { $(let $arg = $arg[1];)* $body }] }
            }
        )*
    };
}

impl Lanes for Avx2 {
    type F = F;
    type U = U;
    const MANY_REGISTERS: bool = false;

    halves! {
        fn add(a: F, b: F) -> F { _mm256_add_ps(a, b) }
        fn sub(a: F, b: F) -> F { _mm256_sub_ps(a, b) }
        fn mul(a: F, b: F) -> F { _mm256_mul_ps(a, b) }
        fn div(a: F, b: F) -> F { _mm256_div_ps(a, b) }
        fn fma(a: F, b: F, c: F) -> F { _mm256_fmadd_ps(a, b, c) }
        fn max(a: F, b: F) -> F { _mm256_max_ps(a, b) }
        fn min(a: F, b: F) -> F { _mm256_min_ps(a, b) }
        fn if_less(a: F, b: F, then: F, otherwise: F) -> F {
            _mm256_blendv_ps(otherwise, then, _mm256_cmp_ps::<_CMP_LT_OQ>(a, b))
        }
        fn to_bits(value: F) -> U { _mm256_castps_si256(value) }
        fn of_bits(bits: U) -> F { _mm256_castsi256_ps(bits) }
        fn and(a: U, b: U) -> U { _mm256_and_si256(a, b) }
        fn or(a: U, b: U) -> U { _mm256_or_si256(a, b) }
        fn add_u(a: U, b: U) -> U { _mm256_add_epi32(a, b) }
        fn shift_left<const BITS>(a: U) -> U { _mm256_sll_epi32(a, _mm_cvtsi32_si128(BITS.cast_signed())) }
        fn shift_right<const BITS>(a: U) -> U { _mm256_srl_epi32(a, _mm_cvtsi32_si128(BITS.cast_signed())) }
        fn shift_right_signed<const BITS>(a: U) -> U {
            _mm256_sra_epi32(a, _mm_cvtsi32_si128(BITS.cast_signed()))
        }
        fn to_number(a: U) -> F { _mm256_cvtepi32_ps(a) }
        fn f16_low(words: U) -> F {
            {
                let low = _mm256_and_si256(words, _mm256_set1_epi32(0xffff));
                _mm256_cvtph_ps(_mm_packus_epi32(
                    _mm256_castsi256_si128(low),
                    _mm256_extracti128_si256::<1>(low),
                ))
            }
        }
    }

    #[inline(always)]
    fn splat(self, value: f32) -> F {
        // SAFETY: `self` exists only on machines with these instructions.
        unsafe { [_mm256_set1_ps(value); 2] }
    }

    #[inline(always)]
    fn splat_u(self, value: u32) -> U {
        // SAFETY: `self` exists only on machines with these instructions.
        unsafe { [_mm256_set1_epi32(value.cast_signed()); 2] }
    }

    #[inline(always)]
    fn load(self, from: &[f32; LANES]) -> F {
        // SAFETY: the array holds exactly the two registers that are read; `self` vouches for the instructions.
        unsafe { [_mm256_loadu_ps(from.as_ptr()), _mm256_loadu_ps(from.as_ptr().add(8))] }
    }

    #[inline(always)]
    fn load_u(self, from: &[u32; LANES]) -> U {
        let from = from.as_ptr();
        // SAFETY: the array holds exactly the two registers that are read, and the loads ask for no alignment;
        // `self` vouches for the instructions.
        unsafe { [_mm256_loadu_si256(from.cast()), _mm256_loadu_si256(from.add(8).cast())] }
    }

    #[inline(always)]
    fn store(self, value: F, to: &mut [f32; LANES]) {
        // SAFETY: the array holds exactly the two registers that are written; `self` vouches for the instructions.
        unsafe {
            _mm256_storeu_ps(to.as_mut_ptr(), value[0]);
            _mm256_storeu_ps(to.as_mut_ptr().add(8), value[1]);
        }
    }

    #[inline(always)]
    fn store_u(self, value: U, to: &mut [u32; LANES]) {
        let to = to.as_mut_ptr();
        // SAFETY: as in `store`, and the stores ask for no alignment.
        unsafe {
            _mm256_storeu_si256(to.cast(), value[0]);
            _mm256_storeu_si256(to.add(8).cast(), value[1]);
        }
    }
}

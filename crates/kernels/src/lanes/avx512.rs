//! Lanes in one 512-bit register.

use std::arch::x86_64::{
    __m512, __m512bh, __m512i, _CMP_LT_OQ, _mm512_add_epi32, _mm512_add_ps, _mm512_and_si512,
    _mm512_castps_si512, _mm512_castsi512_ps, _mm512_cmp_ps_mask, _mm512_cvtepi32_epi16, _mm512_cvtepi32_ps,
    _mm512_cvtneps_pbh, _mm512_cvtph_ps, _mm512_div_ps, _mm512_dpbf16_ps, _mm512_fmadd_ps, _mm512_loadu_ps,
    _mm512_loadu_si512, _mm512_mask_blend_ps, _mm512_max_ps, _mm512_min_ps, _mm512_mul_ps, _mm512_or_si512,
    _mm512_reduce_max_ps, _mm512_set1_epi32, _mm512_set1_ps, _mm512_slli_epi32, _mm512_srai_epi32,
    _mm512_srli_epi32, _mm512_storeu_ps, _mm512_storeu_si512, _mm512_sub_ps,
};

use super::{Kernel, LANES, Lanes};

/// Exists only where AVX-512 F, BW, DQ and VL do, and AVX512-BF16 too if `BF16` says so.
#[derive(Clone, Copy)]
pub(crate) struct Avx512<const BF16: bool>(());

/// Runs a kernel with AVX-512.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
pub(super) fn enter<K: Kernel>(kernel: K) -> K::Output {
    kernel.run(Avx512::<false>(()))
}

/// Runs a kernel with AVX-512 and its bf16 dot product.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma,f16c")]
pub(super) fn enter_bf16<K: Kernel>(kernel: K) -> K::Output {
    kernel.run(Avx512::<true>(()))
}

/// Defines methods whose body is one intrinsic or a few.
macro_rules! lanes {
    ($(fn $name:ident $(<const $bits:ident>)? ($($arg:ident: $type:ty),*) -> $out:ty { $body:expr })*) => {
        $(
            #[inline(always)]
            fn $name $(<const $bits: u32>)? (self, $($arg: $type),*) -> $out {
                // SAFETY: `self` exists only on machines with these instructions; loads and stores go through
                // references to arrays of exactly one register's size.
                unsafe { $body }
            }
        )*
    };
}

impl<const BF16: bool> Lanes for Avx512<BF16> {
    type F = __m512;
    type U = __m512i;
    const MANY_REGISTERS: bool = true;

    lanes! {
        fn splat(value: f32) -> __m512 { _mm512_set1_ps(value) }
        fn load(from: &[f32; LANES]) -> __m512 { _mm512_loadu_ps(from.as_ptr()) }
        fn store(value: __m512, to: &mut [f32; LANES]) -> () { _mm512_storeu_ps(to.as_mut_ptr(), value) }
        fn splat_u(value: u32) -> __m512i { _mm512_set1_epi32(value.cast_signed()) }
        fn load_u(from: &[u32; LANES]) -> __m512i { _mm512_loadu_si512(from.as_ptr().cast()) }
        fn store_u(value: __m512i, to: &mut [u32; LANES]) -> () {
            _mm512_storeu_si512(to.as_mut_ptr().cast(), value)
        }
        fn add(a: __m512, b: __m512) -> __m512 { _mm512_add_ps(a, b) }
        fn sub(a: __m512, b: __m512) -> __m512 { _mm512_sub_ps(a, b) }
        fn mul(a: __m512, b: __m512) -> __m512 { _mm512_mul_ps(a, b) }
        fn div(a: __m512, b: __m512) -> __m512 { _mm512_div_ps(a, b) }
        fn fma(a: __m512, b: __m512, c: __m512) -> __m512 { _mm512_fmadd_ps(a, b, c) }
        fn max(a: __m512, b: __m512) -> __m512 { _mm512_max_ps(a, b) }
        fn min(a: __m512, b: __m512) -> __m512 { _mm512_min_ps(a, b) }
        fn if_less(a: __m512, b: __m512, then: __m512, otherwise: __m512) -> __m512 {
            _mm512_mask_blend_ps(_mm512_cmp_ps_mask::<_CMP_LT_OQ>(a, b), otherwise, then)
        }
        fn to_bits(value: __m512) -> __m512i { _mm512_castps_si512(value) }
        fn of_bits(bits: __m512i) -> __m512 { _mm512_castsi512_ps(bits) }
        fn and(a: __m512i, b: __m512i) -> __m512i { _mm512_and_si512(a, b) }
        fn or(a: __m512i, b: __m512i) -> __m512i { _mm512_or_si512(a, b) }
        fn add_u(a: __m512i, b: __m512i) -> __m512i { _mm512_add_epi32(a, b) }
        fn shift_left<const BITS>(a: __m512i) -> __m512i { _mm512_slli_epi32::<BITS>(a) }
        fn shift_right<const BITS>(a: __m512i) -> __m512i { _mm512_srli_epi32::<BITS>(a) }
        fn shift_right_signed<const BITS>(a: __m512i) -> __m512i { _mm512_srai_epi32::<BITS>(a) }
        fn to_number(a: __m512i) -> __m512 { _mm512_cvtepi32_ps(a) }
        fn largest(value: __m512) -> f32 { _mm512_reduce_max_ps(value) }
        fn f16_low(words: __m512i) -> __m512 { _mm512_cvtph_ps(_mm512_cvtepi32_epi16(words)) }
    }

    #[inline(always)]
    fn dot_bf16(self, sum: __m512, a: __m512i, b: __m512i) -> __m512 {
        if !BF16 {
            return sum;
        }
        // SAFETY: `self` with `BF16` exists only on machines with AVX512-BF16; `__m512bh` and `__m512i` are the
        // same 64 bytes.
        unsafe {
            _mm512_dpbf16_ps(
                sum,
                std::mem::transmute::<__m512i, __m512bh>(a),
                std::mem::transmute::<__m512i, __m512bh>(b),
            )
        }
    }

    #[inline(always)]
    fn pack_bf16(self, value: __m512) -> [u32; LANES / 2] {
        if !BF16 {
            return [0; LANES / 2];
        }
        // SAFETY: as in `dot_bf16`; sixteen bf16 are the same 32 bytes as eight words.
        unsafe { std::mem::transmute(_mm512_cvtneps_pbh(value)) }
    }
}

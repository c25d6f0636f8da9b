//! AVX-512: a tile is one register.

use std::arch::x86_64::{
    __m256i, __m512, __m512i, _MM_HINT_T1, _mm_castps_si128, _mm_loadu_si128, _mm_prefetch, _mm_set_ss,
    _mm_unpacklo_ps, _mm256_add_epi32, _mm256_add_epi64, _mm256_blend_epi32, _mm256_castsi128_si256,
    _mm256_cvtsi256_si32, _mm256_loadu_si256, _mm256_mullo_epi32, _mm256_permute2x128_si256,
    _mm256_permutevar8x32_epi32, _mm256_sad_epu8, _mm256_set_m128i, _mm256_set1_epi8, _mm256_set1_epi64x,
    _mm256_setr_epi32, _mm256_setzero_si256, _mm256_shuffle_epi32, _mm256_slli_epi64, _mm256_sub_epi32,
    _mm256_xor_si256, _mm512_add_ps, _mm512_and_si512, _mm512_castps_si512, _mm512_castsi512_ps,
    _mm512_cvtepi8_epi32, _mm512_cvtepi32_epi8, _mm512_cvtepi32_ps, _mm512_cvtepu8_epi32,
    _mm512_cvtepu16_epi32, _mm512_cvtph_ps, _mm512_cvtps_epi32, _mm512_dpbusd_epi32, _mm512_fmadd_ps,
    _mm512_loadu_ps, _mm512_loadu_si512, _mm512_max_epi32, _mm512_mul_ps, _mm512_or_si512,
    _mm512_reduce_max_epi32, _mm512_set1_epi8, _mm512_set1_epi32, _mm512_set1_ps, _mm512_setzero_ps,
    _mm512_slli_epi16, _mm512_slli_epi32, _mm512_srli_epi16, _mm512_srli_epi32, _mm512_storeu_ps,
    _mm512_storeu_si512, _mm512_sub_ps,
};

use super::{TILE, Task, Vectors};
use crate::activations::{GROUP, GroupUnit, QuantizedGroup};

/// Proof that the machine has AVX-512 F, BW, DQ, VL and VNNI.
#[derive(Clone, Copy)]
pub(crate) struct Avx512(());

/// Work that is written for these vectors alone.
pub(crate) trait WideTask {
    /// Does it. Implementations are `inline(always)`, and so is everything they call per element.
    fn run(self, vectors: Avx512);
}

/// Does a task that is written for AVX-512.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(super) fn run_wide<T: WideTask>(task: T) {
    task.run(Avx512(()));
}

#[allow(clippy::unused_self, reason = "a value is the proof that the instructions may be used")]
impl Avx512 {
    /// Integers of a tile as numbers.
    #[inline(always)]
    pub(crate) fn load_integers(self, values: &[i32; TILE]) -> __m512 {
        // SAFETY: `self` exists only on machines with this instruction; the array is as long as the access.
        unsafe { _mm512_cvtepi32_ps(_mm512_loadu_si512(values.as_ptr().cast())) }
    }

    /// The first number of each pair of halves of singles.
    #[inline(always)]
    pub(crate) fn load_first(self, pairs: &[[u16; 2]; TILE]) -> __m512 {
        // SAFETY: as above.
        unsafe { _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_loadu_si512(pairs.as_ptr().cast()))) }
    }

    /// The second one.
    #[inline(always)]
    pub(crate) fn load_second(self, pairs: &[[u16; 2]; TILE]) -> __m512 {
        // SAFETY: as above.
        unsafe {
            let upper = _mm512_set1_epi32(0xffff_0000_u32.cast_signed());
            _mm512_castsi512_ps(_mm512_and_si512(_mm512_loadu_si512(pairs.as_ptr().cast()), upper))
        }
    }

    /// `a + b`.
    #[inline(always)]
    pub(crate) fn add(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: as above.
        unsafe { _mm512_add_ps(a, b) }
    }

    /// Writes bytes of a tile.
    #[inline(always)]
    pub(crate) fn store_bytes(self, bytes: __m512i, to: &mut [u8; 64]) {
        // SAFETY: as above.
        unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), bytes) }
    }
}

/// Does a task with AVX-512.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(super) fn run<T: Task>(task: T) -> T::Output {
    task.run(Avx512(()))
}

/// Defines methods whose body is a few instructions.
macro_rules! operations {
    ($(fn $name:ident($($arg:ident: $type:ty),*) -> $out:ty { $body:expr })*) => {
        $(
            #[inline(always)]
            fn $name(self, $($arg: $type),*) -> $out {
                // SAFETY: `self` exists only on machines with these instructions; memory is read and written
                // through references to arrays of exactly the size of the access.
                unsafe { $body }
            }
        )*
    };
}

impl Vectors for Avx512 {
    const PARTS: usize = 1;
    const MAX_ROWS: usize = 16;
    type F32 = __m512;
    type I32 = __m512i;
    type Bytes = __m512i;

    operations! {
        fn zero() -> __m512 { _mm512_setzero_ps() }
        fn splat(value: f32) -> __m512 { _mm512_set1_ps(value) }
        fn load_f32(values: &[f32; TILE], _part: usize) -> __m512 { _mm512_loadu_ps(values.as_ptr()) }
        fn load_f16(bits: &[u16; TILE], _part: usize) -> __m512 {
            _mm512_cvtph_ps(_mm256_loadu_si256(bits.as_ptr().cast()))
        }
        fn load_bf16(bits: &[u16; TILE], _part: usize) -> __m512 {{
            let wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(bits.as_ptr().cast()));
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(wide))
        }}
        fn load_u8(values: &[u8; TILE], _part: usize) -> __m512 {
            _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(values.as_ptr().cast())))
        }
        fn load_i8(values: &[i8; TILE], _part: usize) -> __m512 {
            _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(values.as_ptr().cast())))
        }
        fn store(value: __m512, out: &mut [f32; TILE], _part: usize) -> () {
            _mm512_storeu_ps(out.as_mut_ptr(), value)
        }
        fn sub(a: __m512, b: __m512) -> __m512 { _mm512_sub_ps(a, b) }
        fn mul(a: __m512, b: __m512) -> __m512 { _mm512_mul_ps(a, b) }
        fn mul_add(a: __m512, b: __m512, c: __m512) -> __m512 { _mm512_fmadd_ps(a, b, c) }

        fn load_bytes(bytes: &[u8; 64], _part: usize) -> __m512i { _mm512_loadu_si512(bytes.as_ptr().cast()) }
        fn low_nibbles(bytes: __m512i) -> __m512i { _mm512_and_si512(bytes, _mm512_set1_epi8(15)) }
        fn high_nibbles(bytes: __m512i) -> __m512i {
            _mm512_and_si512(_mm512_srli_epi16::<4>(bytes), _mm512_set1_epi8(15))
        }
        fn with_upper_bits(values: __m512i, plane: __m512i, bit: usize, mask: i8) -> __m512i {{
            // Shifts carry bits from one byte into the next, but these land outside the mask.
            let moved = match bit {
                0 => _mm512_slli_epi16::<4>(plane),
                1 => _mm512_slli_epi16::<3>(plane),
                2 => _mm512_slli_epi16::<2>(plane),
                3 => _mm512_slli_epi16::<1>(plane),
                4 => plane,
                5 => _mm512_srli_epi16::<1>(plane),
                6 => _mm512_srli_epi16::<2>(plane),
                _ => _mm512_srli_epi16::<3>(plane),
            };
            _mm512_or_si512(values, _mm512_and_si512(moved, _mm512_set1_epi8(mask)))
        }}
        fn byte_as_f32(bytes: __m512i, index: usize) -> __m512 {{
            let moved = match index {
                0 => bytes,
                1 => _mm512_srli_epi32::<8>(bytes),
                2 => _mm512_srli_epi32::<16>(bytes),
                _ => _mm512_srli_epi32::<24>(bytes),
            };
            _mm512_cvtepi32_ps(_mm512_and_si512(moved, _mm512_set1_epi32(255)))
        }}

        fn splat_i32(value: i32) -> __m512i { _mm512_set1_epi32(value) }
        fn dot(sum: __m512i, weights: __m512i, input: i32) -> __m512i {
            _mm512_dpbusd_epi32(sum, weights, _mm512_set1_epi32(input))
        }
        fn wide_start(start: i32) -> __m512i { _mm512_set1_epi32(start) }
        fn dot_wide(sum: __m512i, weights: __m512i, input: i32) -> __m512i {
            _mm512_dpbusd_epi32(sum, weights, _mm512_set1_epi32(input))
        }
        fn to_f32(value: __m512i) -> __m512 { _mm512_cvtepi32_ps(value) }

        fn quantize(values: &[f32; GROUP]) -> QuantizedGroup { quantize(values) }

        fn prefetch(address: *const u8) -> () { _mm_prefetch::<_MM_HINT_T1>(address.cast()) }
    }
}

/// [`crate::activations::quantize`], by hand: there the compiler takes vectors apart and handles numbers one by one.
///
/// # Safety
/// The machine has AVX-512 F, BW, DQ and VL.
#[inline(always)]
unsafe fn quantize(values: &[f32; GROUP]) -> QuantizedGroup {
    // SAFETY: the caller's promise; both loads lie within the array, and the two halves of the result are a whole
    // group, of which every bit pattern is a value.
    unsafe {
        let (low, high) = (_mm512_loadu_ps(values.as_ptr()), _mm512_loadu_ps(values.as_ptr().add(16)));
        // Magnitudes are in the order of their bits.
        let magnitude = _mm512_set1_epi32(0x7FFF_FFFF);
        let largest = _mm512_max_epi32(
            _mm512_and_si512(_mm512_castps_si512(low), magnitude),
            _mm512_and_si512(_mm512_castps_si512(high), magnitude),
        );
        let GroupUnit { scale, inverse } = GroupUnit::of(_mm512_reduce_max_epi32(largest).cast_unsigned());

        let inverse = _mm512_set1_ps(inverse);
        let bytes = _mm256_set_m128i(
            _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(_mm512_mul_ps(high, inverse))),
            _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(_mm512_mul_ps(low, inverse))),
        );

        // Eight bytes summed at a time, each 128 too large; then minus the sum of each half, in even lanes.
        let eights = _mm256_sad_epu8(_mm256_xor_si256(bytes, _mm256_set1_epi8(-128)), _mm256_setzero_si256());
        let sixteens = _mm256_add_epi64(eights, _mm256_shuffle_epi32::<0b01_00_11_10>(eights));
        let halves = _mm256_sub_epi32(_mm256_set1_epi64x(16 * 128), sixteens);
        let whole = _mm256_add_epi32(halves, _mm256_permute2x128_si256::<1>(halves, halves));
        let negative_sum = _mm256_cvtsi256_si32(whole);
        let scaled_sum = scale * -(negative_sum as f32);

        // The second half of a group: two numbers, three starts for the whole, two for the halves, and nothing.
        let sums = _mm256_blend_epi32::<0b1010_1010>(whole, _mm256_slli_epi64::<32>(halves));
        let sums = _mm256_permutevar8x32_epi32(sums, _mm256_setr_epi32(0, 0, 0, 0, 0, 1, 5, 0));
        let starts = _mm256_mullo_epi32(sums, _mm256_setr_epi32(0, 0, 8, 16, 128, 32, 32, 0));
        let numbers = _mm_unpacklo_ps(_mm_set_ss(scale), _mm_set_ss(scaled_sum));
        let numbers = _mm256_castsi128_si256(_mm_castps_si128(numbers));
        let rest = _mm256_blend_epi32::<0b0000_0011>(starts, numbers);
        std::mem::transmute::<[__m256i; 2], QuantizedGroup>([bytes, rest])
    }
}

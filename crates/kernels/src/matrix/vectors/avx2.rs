//! AVX2, with or without integer dot products (AVX-VNNI): a tile is two registers.

use std::arch::x86_64::{
    __m256, __m256i, _MM_HINT_T1, _mm_loadl_epi64, _mm_loadu_si128, _mm_prefetch, _mm256_abs_epi8,
    _mm256_add_epi32, _mm256_and_si256, _mm256_castsi256_ps, _mm256_cvtepi8_epi32, _mm256_cvtepi32_ps,
    _mm256_cvtepu8_epi32, _mm256_cvtepu16_epi32, _mm256_cvtph_ps, _mm256_dpbusd_avx_epi32, _mm256_fmadd_ps,
    _mm256_loadu_ps, _mm256_loadu_si256, _mm256_madd_epi16, _mm256_maddubs_epi16, _mm256_mul_ps,
    _mm256_or_si256, _mm256_set1_epi8, _mm256_set1_epi16, _mm256_set1_epi32, _mm256_set1_ps,
    _mm256_setzero_ps, _mm256_setzero_si256, _mm256_sign_epi8, _mm256_slli_epi16, _mm256_slli_epi32,
    _mm256_srli_epi16, _mm256_srli_epi32, _mm256_storeu_ps, _mm256_sub_ps, _mm256_xor_si256,
};

use super::{TILE, Task, Vectors};

/// Lanes of one register: half a tile.
const WIDTH: usize = 8;

/// Proof that the machine has AVX2, FMA and F16C, and AVX-VNNI where `VNNI` is set.
#[derive(Clone, Copy)]
pub(super) struct Avx2<const VNNI: bool>(());

/// Does a task with AVX2.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn run<T: Task>(task: T) -> T::Output {
    task.run(Avx2::<false>(()))
}

/// Does a task with AVX2 and AVX-VNNI.
#[target_feature(enable = "avx2,fma,f16c,avxvnni")]
pub(super) fn run_vnni<T: Task>(task: T) -> T::Output {
    task.run(Avx2::<true>(()))
}

/// The lanes of one part.
#[inline(always)]
fn lanes_of<T>(values: &[T; TILE], part: usize) -> *const T {
    values[part * WIDTH..(part + 1) * WIDTH].as_ptr()
}

/// Defines methods whose body is a few instructions.
macro_rules! operations {
    ($(fn $name:ident($($arg:ident: $type:ty),*) -> $out:ty { $body:expr })*) => {
        $(
            #[inline(always)]
            fn $name(self, $($arg: $type),*) -> $out {
                // SAFETY: `self` exists only on machines with these instructions; memory is read and written
                // through slices of exactly the length of the access.
                unsafe { $body }
            }
        )*
    };
}

impl<const VNNI: bool> Vectors for Avx2<VNNI> {
    const PARTS: usize = 2;
    const MAX_ROWS: usize = 4;
    type F32 = __m256;
    type I32 = __m256i;
    type Bytes = __m256i;

    operations! {
        fn zero() -> __m256 { _mm256_setzero_ps() }
        fn splat(value: f32) -> __m256 { _mm256_set1_ps(value) }
        fn load_f32(values: &[f32; TILE], part: usize) -> __m256 { _mm256_loadu_ps(lanes_of(values, part)) }
        fn load_f16(bits: &[u16; TILE], part: usize) -> __m256 {
            _mm256_cvtph_ps(_mm_loadu_si128(lanes_of(bits, part).cast()))
        }
        fn load_bf16(bits: &[u16; TILE], part: usize) -> __m256 {{
            let wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(lanes_of(bits, part).cast()));
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(wide))
        }}
        fn load_u8(values: &[u8; TILE], part: usize) -> __m256 {
            _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(lanes_of(values, part).cast())))
        }
        fn load_i8(values: &[i8; TILE], part: usize) -> __m256 {
            _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(lanes_of(values, part).cast())))
        }
        fn store(value: __m256, out: &mut [f32; TILE], part: usize) -> () {
            _mm256_storeu_ps(out[part * WIDTH..(part + 1) * WIDTH].as_mut_ptr(), value)
        }
        fn sub(a: __m256, b: __m256) -> __m256 { _mm256_sub_ps(a, b) }
        fn mul(a: __m256, b: __m256) -> __m256 { _mm256_mul_ps(a, b) }
        fn mul_add(a: __m256, b: __m256, c: __m256) -> __m256 { _mm256_fmadd_ps(a, b, c) }

        fn load_bytes(bytes: &[u8; 64], part: usize) -> __m256i {
            _mm256_loadu_si256(bytes[part * 32..part * 32 + 32].as_ptr().cast())
        }
        fn low_nibbles(bytes: __m256i) -> __m256i { _mm256_and_si256(bytes, _mm256_set1_epi8(15)) }
        fn high_nibbles(bytes: __m256i) -> __m256i {
            _mm256_and_si256(_mm256_srli_epi16::<4>(bytes), _mm256_set1_epi8(15))
        }
        fn with_upper_bits(values: __m256i, plane: __m256i, bit: usize, mask: i8) -> __m256i {{
            // Shifts carry bits from one byte into the next, but these land outside the mask.
            let moved = match bit {
                0 => _mm256_slli_epi16::<4>(plane),
                1 => _mm256_slli_epi16::<3>(plane),
                2 => _mm256_slli_epi16::<2>(plane),
                3 => _mm256_slli_epi16::<1>(plane),
                4 => plane,
                5 => _mm256_srli_epi16::<1>(plane),
                6 => _mm256_srli_epi16::<2>(plane),
                _ => _mm256_srli_epi16::<3>(plane),
            };
            _mm256_or_si256(values, _mm256_and_si256(moved, _mm256_set1_epi8(mask)))
        }}
        fn byte_as_f32(bytes: __m256i, index: usize) -> __m256 {{
            let moved = match index {
                0 => bytes,
                1 => _mm256_srli_epi32::<8>(bytes),
                2 => _mm256_srli_epi32::<16>(bytes),
                _ => _mm256_srli_epi32::<24>(bytes),
            };
            _mm256_cvtepi32_ps(_mm256_and_si256(moved, _mm256_set1_epi32(255)))
        }}

        fn splat_i32(value: i32) -> __m256i { _mm256_set1_epi32(value) }
        fn dot(sum: __m256i, weights: __m256i, input: i32) -> __m256i {{
            let input = _mm256_set1_epi32(input);
            if VNNI {
                return _mm256_dpbusd_avx_epi32(sum, weights, input);
            }
            // Pairs are summed in 16 bits: 2 * 63 * 127 is far from overflow.
            let pairs = _mm256_maddubs_epi16(weights, input);
            _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))
        }}
        fn wide_start(start: i32) -> __m256i {
            if VNNI { _mm256_set1_epi32(start) } else { _mm256_setzero_si256() }
        }
        fn dot_wide(sum: __m256i, weights: __m256i, input: i32) -> __m256i {{
            let input = _mm256_set1_epi32(input);
            if VNNI {
                return _mm256_dpbusd_avx_epi32(sum, weights, input);
            }
            // Pairs of full bytes would overflow 16 bits. With signed weights, magnitude and sign apart, a
            // pair is at most 2 * 128 * 127 = 32512, which fits.
            let signed = _mm256_xor_si256(weights, _mm256_set1_epi8(-128));
            let pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(signed), _mm256_sign_epi8(input, signed));
            _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))
        }}
        fn to_f32(value: __m256i) -> __m256 { _mm256_cvtepi32_ps(value) }

        fn prefetch(address: *const u8) -> () { _mm_prefetch::<_MM_HINT_T1>(address.cast()) }
    }
}

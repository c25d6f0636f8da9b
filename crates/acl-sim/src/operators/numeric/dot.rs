//! Dot products of `f32` rows with rows of weights in their own type, in blocks of several rows.
//!
//! Always holds: one output is `lane j = sum over k = j (mod 8)` in rising `k`, the lanes added pairwise,
//! then the tail in rising `k`; that order is the same in every block shape.
//!
//! Refuses to know: tensors. Callers pass pointers to contiguous rows.

use half::f16;

use crate::tensor::lane::widen_bf16;

/// Numbers summed side by side.
pub const LANES: usize = 8;

/// An element type that weights may have.
pub trait Weight: Copy + Sync {
    /// Its value.
    fn value(self) -> f32;
    /// Eight values, the fast way.
    ///
    /// # Safety
    /// Eight elements must be readable, and the processor must have AVX2, FMA and F16C.
    #[cfg(target_arch = "x86_64")]
    unsafe fn eight(pointer: *const Self) -> std::arch::x86_64::__m256;
}

/// A brain float by its bits.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Bf16(pub u16);

/// A half float by its bits.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Half(pub u16);

impl Weight for f32 {
    #[inline(always)]
    fn value(self) -> f32 {
        self
    }
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    // SAFETY: the trait says what the caller promises: eight values behind the pointer, and the instructions.
    unsafe fn eight(pointer: *const Self) -> std::arch::x86_64::__m256 {
        // SAFETY: passed on.
        unsafe { std::arch::x86_64::_mm256_loadu_ps(pointer) }
    }
}

impl Weight for Bf16 {
    #[inline(always)]
    fn value(self) -> f32 {
        widen_bf16(self.0)
    }
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    // SAFETY: the trait says what the caller promises: eight values behind the pointer, and the instructions.
    unsafe fn eight(pointer: *const Self) -> std::arch::x86_64::__m256 {
        use std::arch::x86_64::{
            _mm_loadu_si128, _mm256_castsi256_ps, _mm256_cvtepu16_epi32, _mm256_slli_epi32,
        };
        // SAFETY: passed on.
        unsafe {
            let bits = _mm256_cvtepu16_epi32(_mm_loadu_si128(pointer.cast()));
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(bits))
        }
    }
}

impl Weight for Half {
    #[inline(always)]
    fn value(self) -> f32 {
        f16::from_bits(self.0).to_f32()
    }
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    // SAFETY: the trait says what the caller promises: eight values behind the pointer, and the instructions.
    unsafe fn eight(pointer: *const Self) -> std::arch::x86_64::__m256 {
        use std::arch::x86_64::{_mm_loadu_si128, _mm256_cvtph_ps};
        // SAFETY: passed on.
        unsafe { _mm256_cvtph_ps(_mm_loadu_si128(pointer.cast())) }
    }
}

/// Whether the fast way is there.
#[must_use]
pub fn is_fast() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c")
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        false
    }
}

#[inline(always)]
fn add_lanes(lanes: [f32; LANES]) -> f32 {
    let [a, b, c, d, e, f, g, h] = lanes;
    ((a + e) + (c + g)) + ((b + f) + (d + h))
}

/// # Safety
/// Each of the `M + N` rows must hold `k` elements; the processor must have AVX2, FMA and F16C.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn block_fast<W: Weight, const M: usize, const N: usize>(
    x: [*const f32; M],
    w: [*const W; N],
    k: usize,
) -> [[f32; N]; M] {
    use std::arch::x86_64::{_mm256_fmadd_ps, _mm256_loadu_ps, _mm256_setzero_ps, _mm256_storeu_ps};
    let mut sums = [[_mm256_setzero_ps(); N]; M];
    let whole = k - k % LANES;
    let mut at = 0;
    while at < whole {
        // SAFETY: `at + 8 <= k` elements of every row are readable.
        unsafe {
            let weights: [_; N] = std::array::from_fn(|n| W::eight(w[n].add(at)));
            for m in 0..M {
                let values = _mm256_loadu_ps(x[m].add(at));
                for n in 0..N {
                    sums[m][n] = _mm256_fmadd_ps(values, weights[n], sums[m][n]);
                }
            }
        }
        at += LANES;
    }
    let mut out = [[0.0; N]; M];
    for m in 0..M {
        for n in 0..N {
            let mut lanes = [0.0; LANES];
            // SAFETY: `lanes` has room for eight.
            unsafe { _mm256_storeu_ps(lanes.as_mut_ptr(), sums[m][n]) };
            let mut sum = add_lanes(lanes);
            for tail in whole..k {
                // SAFETY: `tail < k`.
                sum = unsafe { x[m].add(tail).read().mul_add(w[n].add(tail).read_unaligned().value(), sum) };
            }
            out[m][n] = sum;
        }
    }
    out
}

/// # Safety
/// Each of the `M + N` rows must hold `k` elements.
unsafe fn block_plain<W: Weight, const M: usize, const N: usize>(
    x: [*const f32; M],
    w: [*const W; N],
    k: usize,
) -> [[f32; N]; M] {
    let whole = k - k % LANES;
    let mut out = [[0.0; N]; M];
    for m in 0..M {
        for n in 0..N {
            let mut lanes = [0.0; LANES];
            for at in (0..whole).step_by(LANES) {
                for (lane, sum) in lanes.iter_mut().enumerate() {
                    // SAFETY: `at + lane < k`.
                    *sum +=
                        unsafe { x[m].add(at + lane).read() * w[n].add(at + lane).read_unaligned().value() };
                }
            }
            let mut sum = add_lanes(lanes);
            for tail in whole..k {
                // SAFETY: `tail < k`.
                sum += unsafe { x[m].add(tail).read() * w[n].add(tail).read_unaligned().value() };
            }
            out[m][n] = sum;
        }
    }
    out
}

/// `M × N` dot products of length `k`.
///
/// # Safety
/// Each of the `M + N` rows must hold `k` elements; `fast` must come from [`is_fast`].
#[inline(always)]
pub unsafe fn block<W: Weight, const M: usize, const N: usize>(
    fast: bool,
    x: [*const f32; M],
    w: [*const W; N],
    k: usize,
) -> [[f32; N]; M] {
    #[cfg(target_arch = "x86_64")]
    if fast {
        // SAFETY: passed on, and `fast` says that the instructions are there.
        return unsafe { block_fast::<W, M, N>(x, w, k) };
    }
    let _ = fast;
    // SAFETY: passed on.
    unsafe { block_plain::<W, M, N>(x, w, k) }
}

/// Every product of `rows` rows of `x` (contiguous, `k` long) with weight rows `columns`, which are `stride`
/// elements apart: `store(row, column, value)`.
///
/// # Safety
/// The rows must be readable.
pub unsafe fn products<W: Weight>(
    x: &[f32],
    k: usize,
    weights: *const W,
    stride: isize,
    columns: std::ops::Range<usize>,
    mut store: impl FnMut(usize, usize, f32),
) {
    let fast = is_fast();
    let rows = x.len().checked_div(k).unwrap_or(0);
    let w = |n: usize| weights.wrapping_offset(n as isize * stride);
    let row = |m: usize| x.as_ptr().wrapping_add(m * k);
    let mut n = columns.start;
    if rows == 1 {
        while n + 8 <= columns.end {
            // SAFETY: rows and columns in range.
            let out = unsafe { block::<W, 1, 8>(fast, [row(0)], std::array::from_fn(|i| w(n + i)), k) };
            out[0].iter().enumerate().for_each(|(i, value)| store(0, n + i, *value));
            n += 8;
        }
    }
    while n < columns.end {
        let pair = n + 2 <= columns.end;
        let mut m = 0;
        while m < rows {
            let many = if m + 4 <= rows { 4 } else { 1 };
            // SAFETY: rows and columns in range.
            unsafe {
                match (many, pair) {
                    (4, true) => {
                        let x = std::array::from_fn(|i| row(m + i));
                        let out = block::<W, 4, 2>(fast, x, [w(n), w(n + 1)], k);
                        for (i, values) in out.iter().enumerate() {
                            store(m + i, n, values[0]);
                            store(m + i, n + 1, values[1]);
                        }
                    }
                    (4, false) => {
                        let x = std::array::from_fn(|i| row(m + i));
                        let out = block::<W, 4, 1>(fast, x, [w(n)], k);
                        out.iter().enumerate().for_each(|(i, values)| store(m + i, n, values[0]));
                    }
                    (_, true) => {
                        let out = block::<W, 1, 2>(fast, [row(m)], [w(n), w(n + 1)], k);
                        store(m, n, out[0][0]);
                        store(m, n + 1, out[0][1]);
                    }
                    (_, false) => {
                        let out = block::<W, 1, 1>(fast, [row(m)], [w(n)], k);
                        store(m, n, out[0][0]);
                    }
                }
            }
            m += many;
        }
        n += if pair { 2 } else { 1 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_block_shape_gives_the_same_bits() {
        for k in [1, 7, 8, 31, 64, 129] {
            let (m, n) = (7, 11);
            let x: Vec<f32> = (0..m * k).map(|i| ((i * 37 % 101) as f32 - 50.0) / 17.0).collect();
            let w: Vec<Bf16> = (0..n * k)
                .map(|i| Bf16(crate::tensor::lane::round_bf16((i * 53 % 97) as f32 / 31.0)))
                .collect();
            let mut all = vec![0.0; m * n];
            // SAFETY: `w` holds `n` rows of `k`.
            unsafe {
                products(&x, k, w.as_ptr(), k as isize, 0..n, |r, c, v| all[r * n + c] = v);
            }
            for row in 0..m {
                let mut alone = vec![0.0; n];
                // SAFETY: as above.
                unsafe {
                    products(&x[row * k..][..k], k, w.as_ptr(), k as isize, 0..n, |_, c, v| alone[c] = v);
                }
                assert_eq!(alone, all[row * n..][..n], "row {row} of length {k}");
                let exact: f64 =
                    (0..k).map(|i| f64::from(x[row * k + i]) * f64::from(w[k + i].value())).sum();
                assert!((f64::from(alone[1]) - exact).abs() < 1e-3);
            }
        }
    }
}

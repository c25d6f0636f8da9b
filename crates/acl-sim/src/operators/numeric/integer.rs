//! Matrix products of bytes, summed exactly, and the scales that turn sums into numbers.
//!
//! Always holds: sums are 32-bit integers, so their order does not matter.
//!
//! Refuses to know: tensors.

use crate::tensor::dtype::DType;
use crate::tensor::lane::gather;
use crate::tensor::view::View;

/// Dot product of bytes.
#[must_use]
pub fn dot(x: &[i8], w: &[i8]) -> i32 {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2.
        return unsafe { dot_fast(x, w) };
    }
    plain(x, w)
}

#[inline(always)]
fn plain(x: &[i8], w: &[i8]) -> i32 {
    x.iter().zip(w).fold(0i32, |sum, (x, w)| sum.wrapping_add(i32::from(*x) * i32::from(*w)))
}

/// # Safety
/// The processor must have AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn dot_fast(x: &[i8], w: &[i8]) -> i32 {
    plain(x, w)
}

/// All elements of a byte tensor in row-major order.
///
/// # Safety
/// The view's memory must be readable.
#[must_use]
pub unsafe fn bytes(view: &View) -> Vec<i8> {
    // SAFETY: passed on.
    let wide: Vec<i64> = unsafe { gather(view) };
    wide.into_iter().map(|value| value as i8).collect()
}

/// A matrix `[rows, columns]` of bytes times `[columns, n]`: `store(row, column, sum)`.
///
/// # Safety
/// Both views must be readable.
pub unsafe fn product(x: &View, w: &View, mut store: impl FnMut(usize, usize, i32)) {
    let (rows, k, n) = (x.dim(0), x.dim(1), w.dim(1));
    let turned = w.permuted(&[1, 0]).unwrap_or(*w);
    let packed;
    // SAFETY: passed on; rows of a view whose elements follow one another are read where they are.
    let (left, right, step) = unsafe {
        let left = bytes(x);
        if turned.stride(1) == 1 && turned.dtype == DType::I8 {
            let base = (turned.data as *const i8).wrapping_offset(turned.offset as isize);
            (left, base, turned.stride(0) as isize)
        } else {
            packed = bytes(&turned);
            (left, packed.as_ptr(), k as isize)
        }
    };
    for column in 0..n {
        // SAFETY: row `column` of the turned weight holds `k` bytes.
        let weight = unsafe { std::slice::from_raw_parts(right.wrapping_offset(column as isize * step), k) };
        for row in 0..rows {
            store(row, column, dot(&left[row * k..][..k], weight));
        }
    }
}

/// Scales of a dequantisation: floats as they are, 64-bit integers as `aclnnTransQuantParamV2` packs them.
///
/// # Safety
/// The view's memory must be readable.
#[must_use]
pub unsafe fn scales(view: &View) -> Vec<f32> {
    // SAFETY: passed on.
    unsafe {
        if matches!(view.dtype, DType::U64 | DType::I64) {
            gather::<i64>(view).into_iter().map(|packed| f32::from_bits(packed as u32)).collect()
        } else {
            gather(view)
        }
    }
}

/// Packs a scale and an offset as the matrix unit takes them: the scale's bits below, the offset in nine bits
/// from the 37th on, the 46th set.
#[must_use]
pub fn pack(scale: f32, offset: f32) -> i64 {
    let offset = (offset.round_ties_even().clamp(-256.0, 255.0) as i64) & 0x1ff;
    i64::from(scale.to_bits()) | (offset << 37) | (1 << 46)
}

/// Rounds to a signed byte, to nearest even.
#[must_use]
#[inline(always)]
pub fn to_byte(value: f32) -> i64 {
    value.round_ties_even().clamp(-128.0, 127.0) as i64
}

/// Quantises a row by its largest magnitude; returns its scale.
pub fn quantise_row(row: &[f32], out: &mut [i64]) -> f32 {
    let highest = row.iter().fold(0f32, |highest, value| highest.max(value.abs()));
    let scale = highest / 127.0;
    let factor = if scale > 0.0 { 1.0 / scale } else { 0.0 };
    row.iter().zip(out).for_each(|(value, slot)| *slot = to_byte(value * factor));
    scale
}

/// Which group each of `rows` rows is in, by counts or by running ends; `None` beyond the last.
#[must_use]
pub fn groups(list: &[i64], cumulative: bool, rows: usize) -> Vec<Option<usize>> {
    let mut of = vec![None; rows];
    let mut start = 0usize;
    for (group, value) in list.iter().enumerate() {
        let end = if cumulative { (*value).max(0) as usize } else { start + (*value).max(0) as usize };
        for slot in of.get_mut(start..end.min(rows)).unwrap_or_default() {
            *slot = Some(group);
        }
        start = end.max(start);
    }
    of
}

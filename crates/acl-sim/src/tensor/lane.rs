//! Runs of elements read into, and written from, one of three arithmetic types: `f32`, `f64`, `i64`.
//!
//! Always holds: floats are rounded once, to nearest even, when they are stored; a float stored as an integer
//! is cut towards zero, as the device does.
//!
//! Refuses to know: shapes. A caller passes the first element and the stride, which lie within the view.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

use super::dtype::DType;
use super::view::{CHUNK, View, walk};

/// What operators compute in.
pub trait Lane: Copy + Default + Send + Sync + 'static {
    /// From a 32-bit float.
    fn from_f32(value: f32) -> Self;
    /// From a 64-bit float.
    fn from_f64(value: f64) -> Self;
    /// From an integer.
    fn from_i64(value: i64) -> Self;
    /// To a 32-bit float.
    fn to_f32(self) -> f32;
    /// To a 64-bit float.
    fn to_f64(self) -> f64;
    /// To an integer, cut towards zero.
    fn to_i64(self) -> i64;
}

macro_rules! lane {
    ($kind:ty) => {
        impl Lane for $kind {
            #[inline(always)]
            fn from_f32(value: f32) -> Self {
                value as $kind
            }
            #[inline(always)]
            fn from_f64(value: f64) -> Self {
                value as $kind
            }
            #[inline(always)]
            fn from_i64(value: i64) -> Self {
                value as $kind
            }
            #[inline(always)]
            fn to_f32(self) -> f32 {
                self as f32
            }
            #[inline(always)]
            fn to_f64(self) -> f64 {
                self as f64
            }
            #[inline(always)]
            fn to_i64(self) -> i64 {
                self as i64
            }
        }
    };
}
lane!(f32);
lane!(f64);
lane!(i64);

/// Rounds to a brain float, to nearest even, without a branch that would stop vectorising.
#[inline(always)]
#[must_use]
pub fn round_bf16(value: f32) -> u16 {
    let bits = value.to_bits();
    let rounded = (bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16) as u16;
    if value.is_nan() { (bits >> 16) as u16 | 0x40 } else { rounded }
}

/// A brain float's value.
#[inline(always)]
#[must_use]
pub fn widen_bf16(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// # Safety
/// `count` elements of type `T`, `stride` apart from element `start` of `data`, must be readable.
#[inline(always)]
unsafe fn read_as<T: Copy, L: Lane>(
    data: usize,
    start: i64,
    stride: i64,
    out: &mut [L],
    convert: impl Fn(T) -> L,
) {
    let base = (data as *const T).wrapping_offset(start as isize);
    if stride == 1 {
        for (at, slot) in out.iter_mut().enumerate() {
            // SAFETY: within the run the caller vouches for.
            *slot = convert(unsafe { base.add(at).read_unaligned() });
        }
    } else {
        for (at, slot) in out.iter_mut().enumerate() {
            // SAFETY: as above.
            *slot = convert(unsafe { base.offset(at as isize * stride as isize).read_unaligned() });
        }
    }
}

/// # Safety
/// As for [`read_as`], writable.
#[inline(always)]
unsafe fn write_as<T: Copy, L: Lane>(
    data: usize,
    start: i64,
    stride: i64,
    values: &[L],
    convert: impl Fn(L) -> T,
) {
    let base = (data as *mut T).wrapping_offset(start as isize);
    if stride == 1 {
        for (at, value) in values.iter().enumerate() {
            // SAFETY: within the run the caller vouches for.
            unsafe { base.add(at).write_unaligned(convert(*value)) };
        }
    } else {
        for (at, value) in values.iter().enumerate() {
            // SAFETY: as above.
            unsafe { base.offset(at as isize * stride as isize).write_unaligned(convert(*value)) };
        }
    }
}

/// Reads a run of elements.
///
/// # Safety
/// `out.len()` elements, `stride` apart from element `start` of `view.data`, must be readable.
pub unsafe fn read<L: Lane>(view: &View, start: i64, stride: i64, out: &mut [L]) {
    let data = view.data;
    // SAFETY: passed on from the caller, with the element type of the view.
    unsafe {
        match view.dtype {
            DType::F32 => read_as::<f32, L>(data, start, stride, out, L::from_f32),
            DType::BF16 => read_as::<u16, L>(data, start, stride, out, |v| L::from_f32(widen_bf16(v))),
            DType::F16 if stride == 1 => {
                let mut buffer = [0f32; 64];
                for (block, part) in out.chunks_mut(64).enumerate() {
                    let first = (data as *const f16).wrapping_offset(start as isize).add(block * 64);
                    let source = std::slice::from_raw_parts(first, part.len());
                    let wide = &mut buffer[..part.len()];
                    source.convert_to_f32_slice(wide);
                    part.iter_mut().zip(wide).for_each(|(slot, value)| *slot = L::from_f32(*value));
                }
            }
            DType::F16 => {
                read_as::<u16, L>(data, start, stride, out, |v| L::from_f32(f16::from_bits(v).to_f32()));
            }
            DType::F64 => read_as::<f64, L>(data, start, stride, out, L::from_f64),
            DType::I8 => read_as::<i8, L>(data, start, stride, out, |v| L::from_i64(v.into())),
            DType::U8 => read_as::<u8, L>(data, start, stride, out, |v| L::from_i64(v.into())),
            DType::I16 => read_as::<i16, L>(data, start, stride, out, |v| L::from_i64(v.into())),
            DType::U16 => read_as::<u16, L>(data, start, stride, out, |v| L::from_i64(v.into())),
            DType::I32 => read_as::<i32, L>(data, start, stride, out, |v| L::from_i64(v.into())),
            DType::U32 => read_as::<u32, L>(data, start, stride, out, |v| L::from_i64(v.into())),
            DType::I64 => read_as::<i64, L>(data, start, stride, out, L::from_i64),
            DType::U64 => read_as::<u64, L>(data, start, stride, out, |v| L::from_i64(v as i64)),
            DType::Bool => {
                read_as::<u8, L>(data, start, stride, out, |v| L::from_i64(i64::from(v != 0)));
            }
            DType::I4 => {
                for (at, slot) in out.iter_mut().enumerate() {
                    let element = start + at as i64 * stride;
                    let byte = (data as *const u8).wrapping_offset(element.div_euclid(2) as isize).read();
                    let nibble = if element & 1 == 0 { byte & 15 } else { byte >> 4 };
                    *slot = L::from_i64(i64::from((nibble << 4).cast_signed() >> 4));
                }
            }
        }
    }
}

/// Writes a run of elements.
///
/// # Safety
/// As for [`read`], writable and not written by another thread.
pub unsafe fn write<L: Lane>(view: &View, start: i64, stride: i64, values: &[L]) {
    let data = view.data;
    // SAFETY: passed on from the caller, with the element type of the view.
    unsafe {
        match view.dtype {
            DType::F32 => write_as::<f32, L>(data, start, stride, values, L::to_f32),
            DType::BF16 => write_as::<u16, L>(data, start, stride, values, |v| round_bf16(v.to_f32())),
            DType::F16 => {
                write_as::<u16, L>(data, start, stride, values, |v| f16::from_f32(v.to_f32()).to_bits());
            }
            DType::F64 => write_as::<f64, L>(data, start, stride, values, L::to_f64),
            DType::I8 => write_as::<i8, L>(data, start, stride, values, |v| v.to_i64() as i8),
            DType::U8 => write_as::<u8, L>(data, start, stride, values, |v| v.to_i64() as u8),
            DType::I16 => write_as::<i16, L>(data, start, stride, values, |v| v.to_i64() as i16),
            DType::U16 => write_as::<u16, L>(data, start, stride, values, |v| v.to_i64() as u16),
            DType::I32 => write_as::<i32, L>(data, start, stride, values, |v| v.to_i64() as i32),
            DType::U32 => write_as::<u32, L>(data, start, stride, values, |v| v.to_i64() as u32),
            DType::I64 => write_as::<i64, L>(data, start, stride, values, L::to_i64),
            DType::U64 => write_as::<u64, L>(data, start, stride, values, |v| v.to_i64() as u64),
            DType::Bool => {
                write_as::<u8, L>(data, start, stride, values, |v| u8::from(v.to_f64() != 0.0));
            }
            DType::I4 => {
                for (at, value) in values.iter().enumerate() {
                    let element = start + at as i64 * stride;
                    let byte = (data as *mut u8).wrapping_offset(element.div_euclid(2) as isize);
                    let nibble = value.to_i64().clamp(-8, 7) as u8 & 15;
                    let old = byte.read();
                    byte.write(if element & 1 == 0 { old & 0xf0 | nibble } else { old & 15 | nibble << 4 });
                }
            }
        }
    }
}

/// All elements of a view in row-major order.
///
/// # Safety
/// The view's memory must be readable.
#[must_use]
pub unsafe fn gather<L: Lane>(view: &View) -> Vec<L> {
    let mut all = vec![L::default(); view.numel()];
    // SAFETY: passed on.
    unsafe { gather_into(view, &mut all) };
    all
}

/// As [`gather`], into a buffer of the right length.
///
/// # Safety
/// As for [`gather`].
pub unsafe fn gather_into<L: Lane>(view: &View, out: &mut [L]) {
    let mut done = 0;
    walk([view], CHUNK, |first, stride, length| {
        if let Some(part) = out.get_mut(done..done + length) {
            // SAFETY: `walk` stays inside the view.
            unsafe { read(view, first[0], stride[0], part) };
        }
        done += length;
    });
}

/// Writes all elements of a view in row-major order.
///
/// # Safety
/// The view's memory must be writable, and no other thread may write it.
pub unsafe fn scatter<L: Lane>(view: &View, values: &[L]) {
    let mut done = 0;
    walk([view], CHUNK, |first, stride, length| {
        if let Some(part) = values.get(done..done + length) {
            // SAFETY: `walk` stays inside the view.
            unsafe { write(view, first[0], stride[0], part) };
        }
        done += length;
    });
}

/// The value a 32-bit float has after being stored as `dtype`.
#[must_use]
pub fn rounded(value: f32, dtype: DType) -> f32 {
    match dtype {
        DType::BF16 => bf16::from_bits(round_bf16(value)).to_f32(),
        DType::F16 => f16::from_f32(value).to_f32(),
        _ => value,
    }
}

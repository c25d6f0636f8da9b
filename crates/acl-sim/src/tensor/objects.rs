//! `aclCreateTensor`, `aclCreateScalar` and their destruction.
//!
//! Always holds: what a client passes is copied; a refused creation gives a null pointer and a recent
//! message.
//!
//! Refuses to know: operators.

use std::ffi::c_void;

use super::dtype::DType;
use super::handle::{self, Handle};
use super::lane::Lane;
use super::view::{MAX_RANK, View};
use crate::executor::status::{INVALID, NULL, report};

/// What an `aclTensor` holds.
#[derive(Clone, Debug)]
pub struct Tensor {
    /// The window on memory.
    pub view: View,
    /// Dimensions of the storage.
    pub storage: Vec<i64>,
}
crate::handle_kind!(Tensor, 0x6163_6c74_656e_736f);

/// What an `aclScalar` holds.
#[derive(Clone, Copy, Debug)]
pub enum Scalar {
    /// A float of any width.
    Float(f64),
    /// An integer or a truth value.
    Int(i64),
}
crate::handle_kind!(Scalar, 0x6163_6c73_6361_6c61);

impl Scalar {
    /// As a 32-bit float.
    #[must_use]
    pub fn to_f32(self) -> f32 {
        match self {
            Self::Float(value) => value as f32,
            Self::Int(value) => value as f32,
        }
    }

    /// As an integer, cut towards zero.
    #[must_use]
    pub fn to_i64(self) -> i64 {
        match self {
            Self::Float(value) => value as i64,
            Self::Int(value) => value,
        }
    }

    /// In the arithmetic type of an operator.
    #[must_use]
    pub fn lane<L: Lane>(self) -> L {
        match self {
            Self::Float(value) => L::from_f64(value),
            Self::Int(value) => L::from_i64(value),
        }
    }

    /// Whether it is a float.
    #[must_use]
    pub fn is_float(self) -> bool {
        matches!(self, Self::Float(_))
    }
}

/// A `count` long array of the caller, copied; `None` for a null pointer with a count.
fn copied(pointer: *const i64, count: u64) -> Option<Vec<i64>> {
    if count == 0 {
        return Some(Vec::new());
    }
    if pointer.is_null() || count > MAX_RANK as u64 {
        return None;
    }
    // SAFETY: not null, and the caller says how long it is.
    Some(unsafe { std::slice::from_raw_parts(pointer, count as usize) }.to_vec())
}

#[allow(clippy::too_many_arguments, reason = "the argument list of the ABI")]
fn build(
    dims: *const i64,
    rank: u64,
    code: i32,
    strides: *const i64,
    offset: i64,
    format: i32,
    storage: *const i64,
    storage_rank: u64,
    data: *mut c_void,
) -> Option<Tensor> {
    let Some(dtype) = DType::from_code(code) else {
        report(INVALID, &format!("aclCreateTensor: data type {code} is not one this library computes with"));
        return None;
    };
    let (Some(shape), Some(storage)) = (copied(dims, rank), copied(storage, storage_rank)) else {
        report(NULL, &format!("aclCreateTensor: dimensions are null, or more than {MAX_RANK}"));
        return None;
    };
    let strides = if strides.is_null() { super::view::row_major(&shape) } else { copied(strides, rank)? };
    let Some(mut view) = View::new(data as usize, dtype, &shape, &strides, offset) else {
        report(INVALID, &format!("aclCreateTensor: a dimension of {shape:?} is negative"));
        return None;
    };
    view.format = format;
    Some(Tensor { view, storage })
}

/// Makes a tensor.
#[unsafe(no_mangle)]
pub extern "C" fn aclCreateTensor(
    dims: *const i64,
    rank: u64,
    dtype: i32,
    strides: *const i64,
    offset: i64,
    format: i32,
    storage: *const i64,
    storage_rank: u64,
    data: *mut c_void,
) -> *mut Handle<Tensor> {
    build(dims, rank, dtype, strides, offset, format, storage, storage_rank, data)
        .map_or(std::ptr::null_mut(), handle::create)
}

/// Gives an existing tensor a new content.
#[unsafe(no_mangle)]
pub extern "C" fn aclInitTensor(
    tensor: *mut Handle<Tensor>,
    dims: *const i64,
    rank: u64,
    dtype: i32,
    strides: *const i64,
    offset: i64,
    format: i32,
    storage: *const i64,
    storage_rank: u64,
    data: *mut c_void,
) -> i32 {
    let Some(old) = handle::get_mut(tensor) else { return NULL };
    match build(dims, rank, dtype, strides, offset, format, storage, storage_rank, data) {
        Some(new) => {
            *old = new;
            0
        }
        None => INVALID,
    }
}

/// Destroys a tensor, not its memory.
#[unsafe(no_mangle)]
pub extern "C" fn aclDestroyTensor(tensor: *const Handle<Tensor>) -> i32 {
    match handle::destroy(tensor.cast_mut()) {
        Some(_) => 0,
        None => dead("aclDestroyTensor"),
    }
}

/// Says that a handle was not alive.
pub(crate) fn dead(function: &str) -> i32 {
    report(NULL, &format!("{function}: the object is null, was destroyed before, or is of another kind"))
}

/// Makes a scalar from the value behind `value`.
#[unsafe(no_mangle)]
pub extern "C" fn aclCreateScalar(value: *mut c_void, dtype: i32) -> *mut Handle<Scalar> {
    let Some(dtype) = DType::from_code(dtype).filter(|_| !value.is_null()) else {
        report(NULL, "aclCreateScalar: the value is null or its data type is not known");
        return std::ptr::null_mut();
    };
    let Some(view) = View::dense(value as usize, dtype, &[]) else { return std::ptr::null_mut() };
    let scalar = if dtype.is_float() {
        let mut float = [0f64];
        // SAFETY: the caller's value has the type it names.
        unsafe { super::lane::read(&view, 0, 1, &mut float) };
        Scalar::Float(float[0])
    } else {
        let mut int = [0i64];
        // SAFETY: as above.
        unsafe { super::lane::read(&view, 0, 1, &mut int) };
        Scalar::Int(int[0])
    };
    handle::create(scalar)
}

/// Destroys a scalar.
#[unsafe(no_mangle)]
pub extern "C" fn aclDestroyScalar(scalar: *const Handle<Scalar>) -> i32 {
    match handle::destroy(scalar.cast_mut()) {
        Some(_) => 0,
        None => dead("aclDestroyScalar"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tensor_keeps_what_it_was_given() {
        let (dims, strides) = ([2i64, 3], [1i64, 2]);
        let mut data = [0u16; 8];
        let tensor = aclCreateTensor(
            dims.as_ptr(),
            2,
            27,
            strides.as_ptr(),
            2,
            2,
            dims.as_ptr(),
            2,
            data.as_mut_ptr().cast(),
        );
        let inside = handle::get(tensor).unwrap();
        assert_eq!((inside.view.shape(), inside.view.strides()), (&dims[..], &strides[..]));
        assert_eq!(inside.view.span().unwrap().0, data.as_ptr() as usize + 4);
        assert_eq!(aclDestroyTensor(tensor), 0);
        assert_eq!(aclDestroyTensor(tensor), NULL);
        assert!(
            aclCreateTensor(
                std::ptr::null(),
                2,
                0,
                std::ptr::null(),
                0,
                2,
                std::ptr::null(),
                0,
                std::ptr::null_mut()
            )
            .is_null()
        );
    }

    #[test]
    fn scalars_are_read_in_their_own_type() {
        let mut half = half::f16::from_f32(1.5).to_bits();
        let scalar = aclCreateScalar((&raw mut half).cast(), 1);
        assert!(matches!(handle::get(scalar), Some(Scalar::Float(value)) if (*value - 1.5).abs() < 1e-9));
        aclDestroyScalar(scalar);
        let mut int = -3i32;
        let scalar = aclCreateScalar((&raw mut int).cast(), 3);
        assert!(matches!(handle::get(scalar), Some(Scalar::Int(-3))));
        aclDestroyScalar(scalar);
    }
}

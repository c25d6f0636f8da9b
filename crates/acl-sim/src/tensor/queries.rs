//! What a tensor object answers about itself, and its raw address.
//!
//! Always holds: arrays handed out come from `malloc`, because the caller releases them with `delete[]`.
//!
//! Refuses to know: operators.

use std::ffi::c_void;

use super::handle::{self, Handle};
use super::objects::{Tensor, dead};
use crate::executor::status::NULL;

fn hand_out(values: &[i64], out: *mut *mut i64, count: *mut u64) -> i32 {
    if out.is_null() || count.is_null() {
        return NULL;
    }
    // SAFETY: both are the caller's to write; the block is at least one element long.
    unsafe {
        let block = libc::malloc(std::mem::size_of::<i64>() * values.len().max(1)).cast::<i64>();
        if block.is_null() {
            return NULL;
        }
        std::ptr::copy_nonoverlapping(values.as_ptr(), block, values.len());
        out.write(block);
        count.write(values.len() as u64);
    }
    0
}

/// Dimensions of the view.
#[unsafe(no_mangle)]
pub extern "C" fn aclGetViewShape(tensor: *const Handle<Tensor>, out: *mut *mut i64, count: *mut u64) -> i32 {
    handle::get(tensor)
        .map_or_else(|| dead("aclGetViewShape"), |tensor| hand_out(tensor.view.shape(), out, count))
}

/// Dimensions of the storage.
#[unsafe(no_mangle)]
pub extern "C" fn aclGetStorageShape(
    tensor: *const Handle<Tensor>,
    out: *mut *mut i64,
    count: *mut u64,
) -> i32 {
    handle::get(tensor)
        .map_or_else(|| dead("aclGetStorageShape"), |tensor| hand_out(&tensor.storage, out, count))
}

/// Strides of the view, in elements.
#[unsafe(no_mangle)]
pub extern "C" fn aclGetViewStrides(
    tensor: *const Handle<Tensor>,
    out: *mut *mut i64,
    count: *mut u64,
) -> i32 {
    handle::get(tensor)
        .map_or_else(|| dead("aclGetViewStrides"), |tensor| hand_out(tensor.view.strides(), out, count))
}

fn answer<T>(tensor: *const Handle<Tensor>, out: *mut T, function: &str, of: impl Fn(&Tensor) -> T) -> i32 {
    match handle::get(tensor) {
        Some(tensor) if !out.is_null() => {
            // SAFETY: not null, and the caller's to write.
            unsafe { out.write(of(tensor)) };
            0
        }
        _ => dead(function),
    }
}

/// Offset of the view in its storage, in elements.
#[unsafe(no_mangle)]
pub extern "C" fn aclGetViewOffset(tensor: *const Handle<Tensor>, offset: *mut i64) -> i32 {
    answer(tensor, offset, "aclGetViewOffset", |tensor| tensor.view.offset)
}

/// Format number.
#[unsafe(no_mangle)]
pub extern "C" fn aclGetFormat(tensor: *const Handle<Tensor>, format: *mut i32) -> i32 {
    answer(tensor, format, "aclGetFormat", |tensor| tensor.view.format)
}

/// Data type number.
#[unsafe(no_mangle)]
pub extern "C" fn aclGetDataType(tensor: *const Handle<Tensor>, dtype: *mut i32) -> i32 {
    answer(tensor, dtype, "aclGetDataType", |tensor| tensor.view.dtype.code())
}

/// Address of the storage.
#[unsafe(no_mangle)]
pub extern "C" fn aclGetRawTensorAddr(tensor: *const Handle<Tensor>, address: *mut *mut c_void) -> i32 {
    answer(tensor, address, "aclGetRawTensorAddr", |tensor| tensor.view.data as *mut c_void)
}

/// Moves the tensor to another address.
#[unsafe(no_mangle)]
pub extern "C" fn aclSetRawTensorAddr(tensor: *mut Handle<Tensor>, address: *mut c_void) -> i32 {
    match handle::get_mut(tensor) {
        Some(tensor) => {
            tensor.view.data = address as usize;
            0
        }
        None => dead("aclSetRawTensorAddr"),
    }
}

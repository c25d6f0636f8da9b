//! Data buffers, sizes of types, and half floats.

use std::ffi::c_void;
use std::sync::Arc;

use super::{call, invalid};
use crate::machine::table::{Table, next_handle};

/// A pointer and a size.
#[derive(Clone, Copy)]
struct Buffer {
    data: usize,
    size: usize,
}

fn buffers() -> &'static Table<Buffer> {
    static BUFFERS: std::sync::OnceLock<Table<Buffer>> = std::sync::OnceLock::new();
    BUFFERS.get_or_init(Table::default)
}

/// Makes a data buffer of memory that the caller owns.
#[unsafe(no_mangle)]
pub extern "C" fn aclCreateDataBuffer(data: *mut c_void, size: usize) -> *mut c_void {
    let handle = next_handle();
    buffers().insert(handle, Arc::new(Buffer { data: data as usize, size }));
    handle as *mut c_void
}

/// Ends a data buffer; its memory stays.
#[unsafe(no_mangle)]
pub extern "C" fn aclDestroyDataBuffer(buffer: *const c_void) -> i32 {
    call(|| match buffers().remove(buffer as usize) {
        Some(_) => Ok(()),
        None => invalid("the data buffer is null or was destroyed"),
    })
}

/// Gives a data buffer other memory.
#[unsafe(no_mangle)]
pub extern "C" fn aclUpdateDataBuffer(buffer: *mut c_void, data: *mut c_void, size: usize) -> i32 {
    call(|| {
        if buffers().get(buffer).is_none() {
            return invalid("the data buffer is null or was destroyed");
        }
        buffers().insert(buffer as usize, Arc::new(Buffer { data: data as usize, size }));
        Ok(())
    })
}

/// Tells its address.
#[unsafe(no_mangle)]
pub extern "C" fn aclGetDataBufferAddr(buffer: *const c_void) -> *mut c_void {
    buffers().get(buffer).map_or(std::ptr::null_mut(), |buffer| buffer.data as *mut c_void)
}

/// Tells its size.
#[unsafe(no_mangle)]
pub extern "C" fn aclGetDataBufferSizeV2(buffer: *const c_void) -> usize {
    buffers().get(buffer).map_or(0, |buffer| buffer.size)
}

/// Tells its size, in the old width.
#[unsafe(no_mangle)]
pub extern "C" fn aclGetDataBufferSize(buffer: *const c_void) -> u32 {
    aclGetDataBufferSizeV2(buffer) as u32
}

/// Tells the bytes of one element; 0 for types without a size of whole bytes.
#[unsafe(no_mangle)]
pub extern "C" fn aclDataTypeSize(data_type: i32) -> usize {
    match data_type {
        2 | 4 | 12 | 34..=37 => 1,
        1 | 6 | 7 | 27 => 2,
        0 | 3 | 8 | 33 => 4,
        9 | 10 | 11 | 16 => 8,
        17 => 16,
        _ => 0,
    }
}

/// Widens a half float.
#[unsafe(no_mangle)]
pub extern "C" fn aclFloat16ToFloat(value: u16) -> f32 {
    half::f16::from_bits(value).to_f32()
}

/// Rounds to a half float, ties to even.
#[unsafe(no_mangle)]
pub extern "C" fn aclFloatToFloat16(value: f32) -> u16 {
    half::f16::from_f32(value).to_bits()
}

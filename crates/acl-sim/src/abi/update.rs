//! Task groups in captures, and their update.

use std::ffi::c_void;

use super::{call, put, wants};
use crate::machine::{capture, stream, update};

/// Opens a task group.
#[unsafe(no_mangle)]
pub extern "C" fn aclmdlRICaptureTaskGrpBegin(handle: *mut c_void) -> i32 {
    call(|| capture::group_begin(&stream::find(handle)?))
}

/// Closes it.
#[unsafe(no_mangle)]
pub extern "C" fn aclmdlRICaptureTaskGrpEnd(handle: *mut c_void, group: *mut *mut c_void) -> i32 {
    call(|| {
        wants(group)?;
        put(group, capture::group_end(&stream::find(handle)?)? as *mut c_void)
    })
}

/// Begins the update of a task group on a stream.
#[unsafe(no_mangle)]
pub extern "C" fn aclmdlRICaptureTaskUpdateBegin(handle: *mut c_void, group: *mut c_void) -> i32 {
    call(|| update::begin(&stream::find(handle)?, group))
}

/// Ends it.
#[unsafe(no_mangle)]
pub extern "C" fn aclmdlRICaptureTaskUpdateEnd(handle: *mut c_void) -> i32 {
    call(|| update::end(&stream::find(handle)?))
}

//! What went wrong: last errors, recent text, exceptions.

use std::ffi::c_char;

use super::{call, invalid};
use crate::machine::exception::{self, Callback, ExceptionInfo};
use crate::machine::refusal;

/// Takes the thread's recent text; null when there is none.
#[unsafe(no_mangle)]
pub extern "C" fn aclGetRecentErrMsg() -> *const c_char {
    refusal::take_text()
}

fn last(level: i32, clear: bool) -> i32 {
    match level {
        0 => refusal::last_error(clear),
        _ => call(|| invalid(format!("{level} is no level; 0 is this thread"))),
    }
}

/// Tells the thread's last error and forgets it.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtGetLastError(level: i32) -> i32 {
    last(level, true)
}

/// Tells it and keeps it.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtPeekAtLastError(level: i32) -> i32 {
    last(level, false)
}

/// Sets the function that hears about failed tasks; null removes it.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtSetExceptionInfoCallback(callback: Option<Callback>) -> i32 {
    exception::set(callback);
    0
}

/// Reads a fact of an exception; what is asked without one is all ones.
fn fact(info: *const ExceptionInfo, take: impl FnOnce(&ExceptionInfo) -> u32) -> u32 {
    // SAFETY: null, or the pointer that the callback was given, which lives while the callback runs.
    unsafe { info.as_ref() }.map_or(u32::MAX, take)
}

/// The task that failed.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtGetTaskIdFromExceptionInfo(info: *const ExceptionInfo) -> u32 {
    fact(info, |info| info.task)
}

/// Its stream.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtGetStreamIdFromExceptionInfo(info: *const ExceptionInfo) -> u32 {
    fact(info, |info| info.stream)
}

/// The thread that ran it.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtGetThreadIdFromExceptionInfo(info: *const ExceptionInfo) -> u32 {
    fact(info, |info| info.thread)
}

/// Its device.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtGetDeviceIdFromExceptionInfo(info: *const ExceptionInfo) -> u32 {
    fact(info, |info| info.device)
}

/// Its code.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtGetErrorCodeFromExceptionInfo(info: *const ExceptionInfo) -> u32 {
    fact(info, |info| info.code)
}

//! The exported functions of the runtime: C types in, answers of the machine out.
//!
//! Always holds: every function checks what it is given before it follows it; a refusal becomes the thread's
//! last error and its recent text. Refuses to know: the rules themselves, which are in `machine`.

pub mod allocator;
pub mod callback;
pub mod capture;
pub mod context;
pub mod copy;
pub mod data;
pub mod device;
pub mod error;
pub mod event;
pub mod limits;
pub mod memory;
pub mod notify;
pub mod process;
pub mod recovery;
pub mod stream;
pub mod stream_config;
pub mod system;
pub mod task;
pub mod update;
pub mod virtual_memory;

use std::ffi::{CStr, c_char};
use std::time::Duration;

use crate::machine::codes;
use crate::machine::refusal::{Answer, Refusal, note};

/// Makes a code of an answer, and remembers a refusal for the thread.
fn call(act: impl FnOnce() -> Answer) -> i32 {
    match act() {
        Ok(()) => codes::SUCCESS,
        Err(refusal) => note(&refusal),
    }
}

fn invalid<T>(detail: impl Into<String>) -> Answer<T> {
    Refusal::answer(codes::PARAM_INVALID, detail)
}

/// Writes a result where the caller wants it.
fn put<T>(out: *mut T, value: T) -> Answer {
    if out.is_null() {
        return invalid("the pointer for the result is null");
    }
    // SAFETY: not null, and the caller of the ABI vouches that it points to a `T`.
    unsafe { out.write_unaligned(value) };
    Ok(())
}

/// Refuses a null result pointer before anything is made for it.
fn wants<T>(out: *mut T) -> Answer {
    if out.is_null() { invalid("the pointer for the result is null") } else { Ok(()) }
}

/// Reads a C string.
fn text<'a>(pointer: *const c_char) -> Answer<&'a str> {
    if pointer.is_null() {
        return invalid("the string is null");
    }
    // SAFETY: not null, and the caller of the ABI vouches that it ends and outlives the call.
    let bytes = unsafe { CStr::from_ptr(pointer) };
    bytes.to_str().or_else(|_| invalid("the string is not UTF-8"))
}

/// Copies a string into a buffer of the caller, with its end.
fn put_text(buffer: *mut c_char, room: usize, text: &str) -> Answer {
    if buffer.is_null() || room <= text.len() {
        return invalid(format!("the buffer is null or has fewer than {} bytes", text.len() + 1));
    }
    // SAFETY: the buffer has room for the text and its end, as was just checked against what the caller says.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr(), buffer.cast::<u8>(), text.len());
        buffer.add(text.len()).write(0);
    }
    Ok(())
}

/// A time limit of the ABI: -1 is none, 0 and less are wrong.
fn limit(ms: i32) -> Answer<Option<Duration>> {
    match ms {
        -1 => Ok(None),
        1.. => Ok(Some(Duration::from_millis(ms as u64))),
        _ => invalid(format!("{ms} is no time limit; give milliseconds, or -1 to wait for ever")),
    }
}

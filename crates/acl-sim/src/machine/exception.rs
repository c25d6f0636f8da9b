//! What a program hears about failed tasks while they fail.
//!
//! Always holds: the callback runs on the failing stream's thread, and its argument is good only while it
//! runs.

use std::sync::Mutex;
use std::sync::atomic::Ordering;

use super::stream::Stream;
use super::table::lock;

/// The facts of one failure; opaque to programs, which ask by functions.
#[derive(Debug, Clone, Copy)]
pub struct ExceptionInfo {
    /// Number of the task on its stream.
    pub task: u32,
    /// Number of the stream.
    pub stream: u32,
    /// The thread that ran it.
    pub thread: u32,
    /// The device.
    pub device: u32,
    /// Its code.
    pub code: u32,
}

/// The program's function.
pub type Callback = extern "C" fn(*mut ExceptionInfo);

static CALLBACK: Mutex<Option<Callback>> = Mutex::new(None);

/// Sets or removes the function.
pub fn set(callback: Option<Callback>) {
    *lock(&CALLBACK) = callback;
}

/// Tells the program of a failure.
pub fn raise(stream: &Stream, code: i32) {
    let callback = *lock(&CALLBACK);
    let Some(callback) = callback else { return };
    // SAFETY: `gettid` takes nothing and cannot fail.
    let thread = unsafe { libc::syscall(libc::SYS_gettid) } as u32;
    let mut info = ExceptionInfo {
        task: stream.task.load(Ordering::Relaxed),
        stream: stream.id as u32,
        thread,
        device: stream.device().id as u32,
        code: code as u32,
    };
    callback(&raw mut info);
}

//! `aclInit` and `aclFinalize`, and time limits of the whole process.

use std::ffi::c_char;
use std::sync::atomic::Ordering;

use super::{call, put, text};
use crate::machine::process;

/// Begins.
#[unsafe(no_mangle)]
pub extern "C" fn aclInit(config: *const c_char) -> i32 {
    call(|| {
        let path = if config.is_null() { None } else { Some(text(config)?) };
        process::initialise(path)
    })
}

/// Drops all references.
#[unsafe(no_mangle)]
pub extern "C" fn aclFinalize() -> i32 {
    call(process::finalise)
}

/// Drops one reference.
#[unsafe(no_mangle)]
pub extern "C" fn aclFinalizeReference(count: *mut u64) -> i32 {
    call(|| {
        let left = process::finalise_one()?;
        if count.is_null() { Ok(()) } else { put(count, left) }
    })
}

/// Limits waits of streams for events, in seconds.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtSetOpWaitTimeout(seconds: u32) -> i32 {
    call(|| {
        process::set_wait_seconds(seconds);
        Ok(())
    })
}

fn set_execute_ms(ms: u32) {
    process::EXECUTE_MS.store(ms, Ordering::Relaxed);
}

/// Limits a kernel, in seconds. Kept, never enforced.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtSetOpExecuteTimeOut(seconds: u32) -> i32 {
    call(|| {
        set_execute_ms(seconds.saturating_mul(1000));
        Ok(())
    })
}

/// Limits a kernel, in milliseconds. Kept, never enforced.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtSetOpExecuteTimeOutWithMs(ms: u32) -> i32 {
    call(|| {
        set_execute_ms(ms);
        Ok(())
    })
}

/// Limits a kernel, in microseconds, and tells what the device makes of it. Kept, never enforced.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtSetOpExecuteTimeOutV2(us: u64, actual: *mut u64) -> i32 {
    call(|| {
        let ms = us.div_ceil(1000).min(u64::from(u32::MAX));
        put(actual, ms * 1000)?;
        set_execute_ms(ms as u32);
        Ok(())
    })
}

/// Tells the limit of a kernel.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtGetOpExecuteTimeout(ms: *mut u32) -> i32 {
    call(|| put(ms, process::EXECUTE_MS.load(Ordering::Relaxed)))
}

/// Tells the granularity of that limit, in microseconds.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtGetOpTimeOutInterval(us: *mut u64) -> i32 {
    call(|| put(us, 1000))
}

//! Streams.

use std::ffi::{c_char, c_void};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{call, invalid, limit, put, wants};
use crate::machine::faults::{self, Phase, Site, SiteClass};
use crate::machine::refusal::Answer;
use crate::machine::stream::{self, Stream};
use crate::machine::{capture, codes, context, process, reset};

/// All flag bits of stream creation.
const FLAGS: u32 = 0x3f;

/// A synchronisation as fault rules see it.
pub(super) fn sync_site(device: i32, stream: Option<i32>) -> Site<'static> {
    Site { class: SiteClass::Sync, operator: "sync", device, stream, phase: Phase::Eager }
}

/// Makes a stream, and tells those who listen.
pub(super) fn create(out: *mut *mut c_void, priority: u32, flags: u32) -> Answer {
    wants(out)?;
    if flags & !FLAGS != 0 {
        return invalid(format!("{flags:#x} has bits that are no stream flags"));
    }
    let stream = stream::open(priority, flags)?;
    put(out, stream.handle as *mut c_void)?;
    process::tell_stream(stream.handle, 1);
    Ok(())
}

/// Makes a stream.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtCreateStream(out: *mut *mut c_void) -> i32 {
    call(|| create(out, 0, 0))
}

/// Makes a stream with a priority and flags.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtCreateStreamWithConfig(out: *mut *mut c_void, priority: u32, flags: u32) -> i32 {
    call(|| create(out, priority, flags))
}

fn named(handle: *mut c_void) -> Answer<Arc<Stream>> {
    if handle.is_null() {
        invalid("the stream is null, which stands for the default stream")
    } else {
        stream::find(handle)
    }
}

/// Ends a stream after its work.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtDestroyStream(handle: *mut c_void) -> i32 {
    call(|| reset::destroy_stream(&named(handle)?, false))
}

/// Ends a stream without it.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtDestroyStreamForce(handle: *mut c_void) -> i32 {
    call(|| reset::destroy_stream(&named(handle)?, true))
}

fn synchronise(handle: *mut c_void, ms: i32) -> Answer {
    let limit = limit(ms)?;
    let stream = stream::find(handle)?;
    capture::forbid_stream(&stream, "synchronisation")?;
    capture::forbid_default(&stream)?;
    faults::at_call(&sync_site(stream.device().id, Some(stream.id)))?;
    stream.synchronize(limit)
}

/// Waits for the work of a stream.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtSynchronizeStream(handle: *mut c_void) -> i32 {
    call(|| synchronise(handle, -1))
}

/// Waits for it no longer than `ms`.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtSynchronizeStreamWithTimeout(handle: *mut c_void, ms: i32) -> i32 {
    call(|| synchronise(handle, ms))
}

/// Tells whether a stream has work left: 0 none, 1 some.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtStreamQuery(handle: *mut c_void, status: *mut i32) -> i32 {
    call(|| {
        let stream = stream::find(handle)?;
        capture::forbid_stream(&stream, "query")?;
        put(status, i32::from(!stream.idle()))
    })
}

/// Tells the number of a stream.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtStreamGetId(handle: *mut c_void, id: *mut i32) -> i32 {
    call(|| put(id, stream::find(handle)?.id))
}

/// Tells its flags.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtStreamGetFlags(handle: *mut c_void, flags: *mut u32) -> i32 {
    call(|| put(flags, stream::find(handle)?.flags))
}

/// Tells its priority.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtStreamGetPriority(handle: *mut c_void, priority: *mut u32) -> i32 {
    call(|| put(priority, stream::find(handle)?.priority))
}

/// Tells the range of priorities.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtDeviceGetStreamPriorityRange(least: *mut i32, greatest: *mut i32) -> i32 {
    call(|| {
        context::current()?;
        if !least.is_null() {
            put(least, 7)?;
        }
        if !greatest.is_null() {
            put(greatest, 0)?;
        }
        Ok(())
    })
}

pub(super) fn set_failure_mode(stream: &Arc<Stream>, mode: u64) -> Answer {
    match mode {
        0 if stream.stop_on_failure.load(Ordering::Relaxed) => {
            invalid(format!("stream {} stops on failures already; the mode is set once", stream.id))
        }
        0 => Ok(()),
        1 => {
            stream.stop_on_failure.store(true, Ordering::Relaxed);
            Ok(())
        }
        _ => invalid(format!("{mode} is no failure mode; 0 continues, 1 stops")),
    }
}

/// Lets a failure stop all streams of the context.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtSetStreamFailureMode(handle: *mut c_void, mode: u64) -> i32 {
    call(|| set_failure_mode(&named(handle)?, mode))
}

/// Drops the work of a stream.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtStreamAbort(handle: *mut c_void) -> i32 {
    call(|| {
        let stream = named(handle)?;
        capture::forbid_stream(&stream, "abort")?;
        stream.abort(codes::STREAM_ABORT);
        Ok(())
    })
}

/// Stops a stream: what runs is broken off, and what waits is dropped.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtStreamStop(handle: *mut c_void) -> i32 {
    aclrtStreamAbort(handle)
}

/// Tells how many streams the device has left.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtGetStreamAvailableNum(count: *mut u32) -> i32 {
    call(|| put(count, context::current()?.device.streams.left().min(u64::from(u32::MAX)) as u32))
}

/// Registers a function that hears about streams; a null one is removed.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtRegStreamStateCallback(
    name: *const c_char,
    function: Option<process::StreamListener>,
    argument: *mut c_void,
) -> i32 {
    call(|| {
        process::STREAM_LISTENERS.register(name, function.map_or(0, |function| function as usize), argument)
    })
}

/// Clears the tasks of a persistent stream, of which there are none.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtPersistentTaskClean(handle: *mut c_void) -> i32 {
    call(|| named(handle).map(drop))
}

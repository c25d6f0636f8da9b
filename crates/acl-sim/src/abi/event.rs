//! Events.

use std::ffi::c_void;
use std::time::{Duration, Instant};

use super::{call, invalid, limit, put, wants};
use crate::machine::event::{self, Event, Kind, flags};
use crate::machine::refusal::{Answer, Refusal};
use crate::machine::{capture, codes, context, faults, machine, stream, submit};

/// The flag of records and waits that connect a graph with outside work.
const OUTSIDE: u32 = 1;

fn create(out: *mut *mut c_void, kind: Kind, bits: u32) -> Answer {
    wants(out)?;
    if bits == 0 || bits & !flags::ALL != 0 {
        return invalid(format!("{bits:#x} are no event flags"));
    }
    if bits & flags::EXTERNAL != 0 && (kind == Kind::Extended || bits != flags::EXTERNAL) {
        return invalid("the external flag stands alone, and only for aclrtCreateEventWithFlag");
    }
    let event = Event::create(&*context::current()?, kind, bits)?;
    put(out, event.handle as *mut c_void)
}

/// Makes an event that can do what events without flags can.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtCreateEvent(out: *mut *mut c_void) -> i32 {
    call(|| create(out, Kind::Plain, flags::SYNC | flags::TIME_LINE | flags::PROGRESS))
}

/// Makes an event with flags.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtCreateEventWithFlag(out: *mut *mut c_void, flags: u32) -> i32 {
    call(|| create(out, Kind::Plain, flags))
}

/// Makes an event of the newer kind: no reset, and the one for captures.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtCreateEventExWithFlag(out: *mut *mut c_void, flags: u32) -> i32 {
    call(|| create(out, Kind::Extended, flags))
}

/// Ends an event; work that still uses it is not disturbed.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtDestroyEvent(handle: *mut c_void) -> i32 {
    call(|| {
        let event = event::find(handle)?;
        machine().events.remove(event.handle);
        Ok(())
    })
}

/// Records an event on a stream.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtRecordEvent(event: *mut c_void, stream: *mut c_void) -> i32 {
    call(|| submit::record(&stream::find(stream)?, &event::find(event)?, false))
}

/// Records it, in a capture for outside work if the flag says so.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtRecordEventWithFlag(event: *mut c_void, stream: *mut c_void, flag: u32) -> i32 {
    call(|| {
        if flag > OUTSIDE {
            return invalid(format!("{flag} is no record flag"));
        }
        submit::record(&stream::find(stream)?, &event::find(event)?, flag == OUTSIDE)
    })
}

/// Resets an event on a stream.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtResetEvent(event: *mut c_void, stream: *mut c_void) -> i32 {
    call(|| submit::reset(&stream::find(stream)?, &event::find(event)?))
}

fn wait(stream: *mut c_void, event: *mut c_void, ms: i32, outside: bool) -> Answer {
    let limit = limit(ms)?;
    submit::wait(&stream::find(stream)?, &event::find(event)?, limit, outside)
}

/// Lets a stream wait for an event.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtStreamWaitEvent(stream: *mut c_void, event: *mut c_void) -> i32 {
    call(|| wait(stream, event, -1, false))
}

/// Lets it wait no longer than `ms`.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtStreamWaitEventWithTimeout(stream: *mut c_void, event: *mut c_void, ms: i32) -> i32 {
    call(|| wait(stream, event, ms, false))
}

/// Lets it wait, in a capture for outside work if the flag says so.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtStreamWaitEventWithFlag(
    stream: *mut c_void,
    event: *mut c_void,
    ms: i32,
    flag: u32,
) -> i32 {
    call(|| {
        if flag > OUTSIDE {
            return invalid(format!("{flag} is no wait flag"));
        }
        wait(stream, event, ms, flag == OUTSIDE)
    })
}

fn asked(handle: *mut c_void, what: &str, extended: bool) -> Answer<std::sync::Arc<Event>> {
    let event = event::find(handle)?;
    capture::forbid_event(&event, what)?;
    if !extended && event.kind == Kind::Extended {
        let detail =
            format!("event {} was made by aclrtCreateEventExWithFlag, which allows no {what}", event.id);
        return Refusal::answer(codes::NOT_SUPPORTED, detail);
    }
    Ok(event)
}

/// The old question: 0 complete, 1 not ready.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtQueryEvent(event: *mut c_void, status: *mut i32) -> i32 {
    call(|| put(status, i32::from(!asked(event, "query", false)?.complete())))
}

/// The new question, the other way round: 0 not ready, 1 complete.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtQueryEventStatus(event: *mut c_void, status: *mut i32) -> i32 {
    call(|| put(status, i32::from(asked(event, "query", true)?.complete())))
}

/// Whether nobody waits for it any more: 0 complete, 1 not ready.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtQueryEventWaitStatus(event: *mut c_void, status: *mut i32) -> i32 {
    call(|| put(status, i32::from(asked(event, "query", false)?.waited_for())))
}

fn synchronise(handle: *mut c_void, limit: Option<Duration>) -> Answer {
    let event = asked(handle, "synchronisation", true)?;
    faults::at_call(&super::stream::sync_site(context::current()?.device.id, None))?;
    event.synchronize(limit)
}

/// Waits for what an event recorded last.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtSynchronizeEvent(event: *mut c_void) -> i32 {
    call(|| synchronise(event, None))
}

/// Waits for it no longer than `ms`.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtSynchronizeEventWithTimeout(event: *mut c_void, ms: i32) -> i32 {
    call(|| synchronise(event, limit(ms)?))
}

/// Tells the time between two events.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtEventElapsedTime(ms: *mut f32, start: *mut c_void, end: *mut c_void) -> i32 {
    call(|| {
        let start = asked(start, "time stamp", true)?.reached_at()?;
        let end = asked(end, "time stamp", true)?.reached_at()?;
        let Some(between) = end.checked_duration_since(start) else {
            let detail = "the end event was reached before the start event; swap them";
            return Refusal::answer(codes::EVENT_TIMESTAMP_REVERSAL, detail);
        };
        put(ms, between.as_secs_f32() * 1000.0)
    })
}

/// Tells when an event was reached, in microseconds of the device's clock.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtEventGetTimestamp(event: *mut c_void, us: *mut u64) -> i32 {
    static ZERO: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    call(|| {
        let reached = asked(event, "time stamp", true)?.reached_at()?;
        // The clock began an hour before it was first looked at, so that no stamp lies before its zero.
        let zero = *ZERO.get_or_init(|| reached.checked_sub(Duration::from_secs(3600)).unwrap_or(reached));
        put(us, reached.saturating_duration_since(zero).as_micros() as u64)
    })
}

/// Tells the number of an event.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtGetEventId(event: *mut c_void, id: *mut u32) -> i32 {
    call(|| put(id, event::find(event)?.id))
}

/// Tells how many events the device has left.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtGetEventAvailNum(count: *mut u32) -> i32 {
    call(|| put(count, context::current()?.device.events.left().min(u64::from(u32::MAX)) as u32))
}

/// Sharing events between processes is not simulated.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtIpcGetEventHandle(event: *mut c_void, handle: *mut c_void) -> i32 {
    let _ = handle;
    call(|| {
        event::find(event)?;
        Refusal::answer(codes::NOT_SUPPORTED, "events cannot be shared between processes here")
    })
}

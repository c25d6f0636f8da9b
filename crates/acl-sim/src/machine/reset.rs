//! Setting, resetting and aborting devices.
//!
//! Always holds: memory of a device is returned only after its streams have stopped touching it, or not at
//! all.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::context::{self, Context};
use super::device::Device;
use super::refusal::{Answer, Refusal};
use super::stream::Stream;
use super::table::lock;
use super::{codes, machine, memory, process};

/// How long a reset waits for a running kernel; after that it leaves the kernel its memory.
const RESET_LIMIT: Duration = Duration::from_secs(10);
/// What `aclrtDeviceTaskAbort` waits at most, whatever it is asked for.
const ABORT_LIMIT: Duration = Duration::from_secs(36 * 60);

/// Holds a device and makes its default context current.
pub fn set_device(id: i32) -> Answer {
    let device = machine().device(id)?;
    device.usable()?;
    process::tell_device(id, 0);
    let context = {
        let mut holders = lock(&device.holders);
        holders.references += 1;
        let primary = holders.primary.get_or_insert_with(|| Context::create(&device, true));
        Arc::clone(primary)
    };
    context::set_current(&context);
    process::tell_device(id, 1);
    Ok(())
}

/// Lets go of a device; the last holder, or `force`, ends everything on it.
pub fn reset_device(id: i32, force: bool) -> Answer {
    let device = machine().device(id)?;
    {
        let mut holders = lock(&device.holders);
        if holders.references == 0 && device.lost_code() == 0 {
            let detail = format!("device {id} is not set; call aclrtSetDevice first");
            return Refusal::answer(codes::CONTEXT_NULL, detail);
        }
        holders.references = if force { 0 } else { holders.references.saturating_sub(1) };
        if holders.references > 0 {
            return Ok(());
        }
    }
    process::tell_device(id, 2);
    end_everything(&device);
    device.reset();
    process::tell_device(id, 3);
    Ok(())
}

fn end_everything(device: &Arc<Device>) {
    let contexts = machine().contexts.all(|context| context.device.id == device.id);
    let streams: Vec<Arc<Stream>> = contexts.iter().flat_map(|context| context.streams()).collect();
    for context in contexts {
        context.destroy();
    }
    let quiet = streams.iter().all(|stream| stream.quiesce(RESET_LIMIT));
    lock(&device.holders).primary = None;
    memory::drop_device(device.id, !quiet);
    machine().physical.remove_where(|physical| physical.device.id == device.id);
}

/// Ends a stream. The plain way waits for its work, the forced one drops it.
pub fn destroy_stream(stream: &Arc<Stream>, force: bool) -> Answer {
    if stream.context.is_default(stream) {
        return Refusal::answer(codes::PARAM_INVALID, "the default stream lives as long as its context");
    }
    super::capture::forbid_stream(stream, "destruction")?;
    process::tell_stream(stream.handle, 2);
    machine().streams.remove(stream.handle);
    let outcome = if force {
        stream.abort(codes::STREAM_ABORT);
        // A kernel cannot be stopped half-way; nothing of the stream runs once it is gone.
        stream.quiesce(RESET_LIMIT);
        Ok(())
    } else {
        stream.synchronize(None)
    };
    stream.close();
    // A failure of its last work belongs to a synchronisation that nobody made; a lost device is told.
    outcome.or_else(|refusal| if stream.device().usable().is_ok() { Ok(()) } else { Err(refusal) })
}

/// Drops the work of all streams of a device and takes no more until it is restarted.
pub fn abort_tasks(id: i32, ms: u32) -> Answer {
    let device = machine().device(id)?;
    device.usable()?;
    device.aborted.store(true, Ordering::Relaxed);
    let streams = machine().streams.all(|stream| stream.device().id == id);
    for stream in &streams {
        stream.abort(codes::DEVICE_TASK_ABORT);
    }
    let limit = if ms == 0 { ABORT_LIMIT } else { ABORT_LIMIT.min(Duration::from_millis(u64::from(ms))) };
    let end = std::time::Instant::now() + limit;
    for stream in &streams {
        if !stream.quiesce(end.saturating_duration_since(std::time::Instant::now())) {
            let detail = format!("stream {} did not stop in {ms} ms; reset the device", stream.id);
            return Refusal::answer(codes::STREAM_SYNC_TIMEOUT, detail);
        }
    }
    Ok(())
}

/// The device takes work again, and its contexts forget the failure that stopped them.
pub fn restart(device: &Device) {
    device.restart();
    for context in machine().contexts.all(|context| context.device.id == device.id) {
        context.resume();
    }
}

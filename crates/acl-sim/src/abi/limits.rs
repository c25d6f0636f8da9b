//! Limits of cores: kept and told; arithmetic here is the same with any number of cores.

use std::cell::Cell;
use std::ffi::c_void;
use std::sync::atomic::Ordering;

use super::{call, invalid, put};
use crate::machine::device::CORES;
use crate::machine::refusal::Answer;
use crate::machine::{context, machine, stream};

/// Where a stream keeps its limits among its attributes (0 stands for none).
const STREAM_LIMITS: usize = 6;

thread_local! {
    static OF_THREAD: Cell<Option<[u32; 2]>> = const { Cell::new(None) };
}

fn kind(number: i32) -> Answer<usize> {
    match number {
        0 => Ok(0),
        1 => Ok(1),
        _ => invalid(format!("{number} is no kind of core; 0 is cube, 1 is vector")),
    }
}

fn checked(kind: usize, value: u32) -> Answer<u32> {
    let most = CORES.get(kind).copied().unwrap_or(0);
    if (1..=most).contains(&value) { Ok(value) } else { invalid(format!("a limit is 1 to {most} cores")) }
}

/// Limits the cores of a device.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtSetDeviceResLimit(device: i32, number: i32, value: u32) -> i32 {
    call(|| {
        let (device, kind) = (machine().device(device)?, kind(number)?);
        let value = checked(kind, value)?;
        if let Some(limit) = device.core_limits.get(kind) {
            limit.store(value, Ordering::Relaxed);
        }
        Ok(())
    })
}

/// Tells the limit.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtGetDeviceResLimit(device: i32, number: i32, value: *mut u32) -> i32 {
    call(|| {
        let (device, kind) = (machine().device(device)?, kind(number)?);
        put(value, device.core_limits.get(kind).map_or(0, |limit| limit.load(Ordering::Relaxed)))
    })
}

/// Lifts the limits.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtResetDeviceResLimit(device: i32) -> i32 {
    call(|| {
        let device = machine().device(device)?;
        for (limit, all) in device.core_limits.iter().zip(CORES) {
            limit.store(all, Ordering::Relaxed);
        }
        Ok(())
    })
}

fn of_stream(handle: *mut c_void, kind: usize) -> Answer<u32> {
    let stream = stream::find(handle)?;
    let own = stream.attributes.get(STREAM_LIMITS + kind).map_or(0, |value| value.load(Ordering::Relaxed));
    let device = stream.device().core_limits.get(kind).map_or(0, |limit| limit.load(Ordering::Relaxed));
    Ok(if own == 0 { device } else { own })
}

/// Limits the cores of a stream.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtSetStreamResLimit(handle: *mut c_void, number: i32, value: u32) -> i32 {
    call(|| {
        let (stream, kind) = (stream::find(handle)?, kind(number)?);
        let value = checked(kind, value)?;
        if let Some(limit) = stream.attributes.get(STREAM_LIMITS + kind) {
            limit.store(value, Ordering::Relaxed);
        }
        Ok(())
    })
}

/// Tells the limit.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtGetStreamResLimit(handle: *mut c_void, number: i32, value: *mut u32) -> i32 {
    call(|| put(value, of_stream(handle, kind(number)?)?))
}

/// Lifts the limits.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtResetStreamResLimit(handle: *mut c_void) -> i32 {
    call(|| {
        let stream = stream::find(handle)?;
        for limit in stream.attributes.iter().skip(STREAM_LIMITS) {
            limit.store(0, Ordering::Relaxed);
        }
        Ok(())
    })
}

/// Lets a stream's limits hold for this thread.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtUseStreamResInCurrentThread(handle: *mut c_void) -> i32 {
    call(|| {
        OF_THREAD.set(Some([of_stream(handle, 0)?, of_stream(handle, 1)?]));
        Ok(())
    })
}

/// Ends that.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtUnuseStreamResInCurrentThread(handle: *mut c_void) -> i32 {
    call(|| {
        stream::find(handle)?;
        OF_THREAD.set(None);
        Ok(())
    })
}

/// Tells the limit that holds for this thread.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtGetResInCurrentThread(number: i32, value: *mut u32) -> i32 {
    call(|| {
        let kind = kind(number)?;
        let device = &context::current()?.device;
        let of_device = device.core_limits.get(kind).map_or(0, |limit| limit.load(Ordering::Relaxed));
        let of_thread = OF_THREAD.get().and_then(|limits| limits.get(kind).copied());
        put(value, of_thread.unwrap_or(of_device))
    })
}

//! What is left to do after a device failed: abort, look, repair.

use std::ffi::{c_char, c_void};
use std::sync::atomic::Ordering;

use super::{call, invalid, put};
use crate::machine::device::BAD_RANGES_MAX;
use crate::machine::refusal::Answer;
use crate::machine::table::lock;
use crate::machine::{codes, machine, reset};

/// Bad ranges that an error description holds.
const DESCRIBED_MAX: usize = 20;

/// A range of bad memory.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct MemUceInfo {
    address: *mut c_void,
    length: usize,
    reserved: [usize; 14],
}

/// What is known of a device's last error.
#[repr(C)]
pub struct ErrorInfo {
    repairable: u8,
    detailed: u8,
    reserved: [u8; 2],
    kind: i32,
    count: usize,
    ranges: [MemUceInfo; DESCRIBED_MAX],
}

const NOTHING: MemUceInfo = MemUceInfo { address: std::ptr::null_mut(), length: 0, reserved: [0; 14] };

fn bad_range((address, length): (usize, usize)) -> MemUceInfo {
    MemUceInfo { address: address as *mut c_void, length, reserved: [0; 14] }
}

/// Drops the work of a device; it takes none until it is reset or repaired.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtDeviceTaskAbort(device: i32, ms: u32) -> i32 {
    call(|| reset::abort_tasks(device, ms))
}

/// A function that hears about aborts; kept for the sake of programs that register one.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtSetDeviceTaskAbortCallback(
    name: *const c_char,
    function: *mut c_void,
    argument: *mut c_void,
) -> i32 {
    let _ = (function, argument);
    call(|| super::text(name).map(drop))
}

/// Lists the bad memory ranges of a device.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtGetMemUceInfo(
    device: i32,
    infos: *mut MemUceInfo,
    room: usize,
    got: *mut usize,
) -> i32 {
    call(|| {
        let device = machine().device(device)?;
        if infos.is_null() || room == 0 || room > BAD_RANGES_MAX {
            return invalid(format!("the list is null, or its room is not 1 to {BAD_RANGES_MAX}"));
        }
        let ranges = lock(&device.bad_ranges);
        let count = ranges.len().min(room);
        for (index, range) in ranges.iter().take(count).enumerate() {
            // SAFETY: the list is not null, and the caller of the ABI vouches for its room.
            put(unsafe { infos.add(index) }, bad_range(*range))?;
        }
        put(got, count)
    })
}

fn repair(device: i32) -> Answer {
    reset::restart(&*machine().device(device)?);
    Ok(())
}

/// Repairs bad memory ranges; the device takes work again.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtMemUceRepair(device: i32, infos: *mut MemUceInfo, count: usize) -> i32 {
    call(|| {
        if infos.is_null() || count == 0 || count > BAD_RANGES_MAX {
            return invalid(format!("the list is null, or its length is not 1 to {BAD_RANGES_MAX}"));
        }
        repair(device)
    })
}

/// Describes the last error of a device.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtGetErrorVerbose(device: i32, info: *mut ErrorInfo) -> i32 {
    call(|| {
        let device = machine().device(device)?;
        let code = device.last_fault.load(Ordering::Relaxed);
        let mut ranges = [NOTHING; DESCRIBED_MAX];
        let known = lock(&device.bad_ranges);
        let count = known.len().min(DESCRIBED_MAX);
        for (slot, range) in ranges.iter_mut().zip(known.iter()) {
            *slot = bad_range(*range);
        }
        let kind = match code {
            codes::SUCCESS => 0,
            codes::DEVICE_MEM_ERROR | codes::HBM_ECC_ERROR => 1,
            _ => 0xffff,
        };
        let memory = kind == 1;
        let told = ErrorInfo {
            repairable: u8::from(memory),
            detailed: u8::from(memory),
            reserved: [0; 2],
            kind,
            count: if memory { count } else { 0 },
            ranges,
        };
        put(info, told)
    })
}

/// Repairs what was described.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtRepairError(device: i32, info: *const ErrorInfo) -> i32 {
    call(|| {
        if info.is_null() {
            return invalid("the description is null");
        }
        repair(device)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_have_the_sizes_of_the_abi() {
        assert_eq!(size_of::<MemUceInfo>(), 128);
        assert_eq!(size_of::<ErrorInfo>(), 2576);
    }
}

//! Virtual memory management.

use std::ffi::c_void;
use std::sync::Mutex;

use super::{call, invalid, put, wants};
use crate::machine::refusal::Answer;
use crate::machine::table::lock;
use crate::machine::virtual_memory::{self, GRANULARITY, Physical};
use crate::machine::{context, machine};

/// Handles that are exported at once.
const EXPORTS_MAX: usize = 1024;

static EXPORTS: Mutex<Vec<usize>> = Mutex::new(Vec::new());

/// What physical memory is asked for.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct PhysicalMemProp {
    handle_type: i32,
    allocation_type: i32,
    attribute: i32,
    location_id: u32,
    location_kind: i32,
    reserved_low: u32,
    reserved: u64,
}

/// Reserves addresses.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtReserveMemAddress(
    out: *mut *mut c_void,
    size: usize,
    alignment: usize,
    expected: *mut c_void,
    flags: u64,
) -> i32 {
    let _ = (expected, flags);
    call(|| {
        wants(out)?;
        context::current()?;
        if alignment != 0 && alignment != GRANULARITY {
            return invalid("the alignment must be 0");
        }
        put(out, virtual_memory::reserve(size)? as *mut c_void)
    })
}

/// Gives reserved addresses back.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtReleaseMemAddress(pointer: *mut c_void) -> i32 {
    call(|| virtual_memory::release(pointer as usize))
}

/// Takes physical memory.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtMallocPhysical(
    out: *mut *mut c_void,
    size: usize,
    property: *const PhysicalMemProp,
    flags: u64,
) -> i32 {
    let _ = flags;
    call(|| {
        wants(out)?;
        context::current()?;
        if property.is_null() {
            return invalid("the property is null");
        }
        // SAFETY: not null, and the caller of the ABI vouches that it points to a property.
        let property = unsafe { property.read_unaligned() };
        let device = match property.location_kind {
            1 => machine().device(property.location_id as i32)?,
            kind => return invalid(format!("memory of location type {kind} cannot be made; 1 is a device")),
        };
        device.usable()?;
        put(out, virtual_memory::create(&device, size)?.handle as *mut c_void)
    })
}

/// Gives physical memory back; what is mapped stays until it is unmapped.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtFreePhysical(handle: *mut c_void) -> i32 {
    call(|| {
        let physical = virtual_memory::find(handle)?;
        machine().physical.remove(physical.handle);
        lock(&EXPORTS).retain(|exported| *exported != physical.handle);
        Ok(())
    })
}

/// Puts physical memory behind reserved addresses.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtMapMem(
    pointer: *mut c_void,
    size: usize,
    offset: usize,
    handle: *mut c_void,
    flags: u64,
) -> i32 {
    let _ = flags;
    call(|| virtual_memory::map(pointer as usize, size, offset, &virtual_memory::find(handle)?))
}

/// Takes it away again.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtUnmapMem(pointer: *mut c_void) -> i32 {
    call(|| virtual_memory::unmap(pointer as usize))
}

/// Tells what sizes are multiples of.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtMemGetAllocationGranularity(
    property: *mut PhysicalMemProp,
    option: i32,
    granularity: *mut usize,
) -> i32 {
    call(|| {
        if property.is_null() || !(0..=1).contains(&option) {
            return invalid("the property is null, or the option is neither 0 nor 1");
        }
        put(granularity, GRANULARITY)
    })
}

fn exported(handle: u64) -> Answer<std::sync::Arc<Physical>> {
    if !lock(&EXPORTS).contains(&(handle as usize)) {
        return invalid(
            "the handle was not exported by this process; sharing between processes is not simulated",
        );
    }
    virtual_memory::find(handle as *mut c_void)
}

/// Names physical memory for sharing, within this process.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtMemExportToShareableHandle(
    handle: *mut c_void,
    kind: i32,
    flags: u64,
    out: *mut u64,
) -> i32 {
    let _ = (kind, flags);
    call(|| {
        let physical = virtual_memory::find(handle)?;
        let mut exports = lock(&EXPORTS);
        if exports.len() >= EXPORTS_MAX {
            return invalid(format!("{EXPORTS_MAX} handles are exported already; free some"));
        }
        if !exports.contains(&physical.handle) {
            exports.push(physical.handle);
        }
        put(out, physical.handle as u64)
    })
}

/// Finds named physical memory.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtMemImportFromShareableHandle(shared: u64, device: i32, out: *mut *mut c_void) -> i32 {
    call(|| {
        machine().device(device)?;
        put(out, exported(shared)?.handle as *mut c_void)
    })
}

/// Allows processes to import; there are no others here.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtMemSetPidToShareableHandle(shared: u64, pids: *mut i32, count: usize) -> i32 {
    call(|| {
        if pids.is_null() || count == 0 {
            return invalid("the list of processes is empty");
        }
        exported(shared).map(drop)
    })
}

//! Memory: device, pinned, registered, and questions about it.

use std::ffi::c_void;

use super::{call, invalid, put, wants};
use crate::machine::faults::{self, Phase, Site, SiteClass};
use crate::machine::memory::{self, Place, Rounding};
use crate::machine::refusal::{Answer, Refusal};
use crate::machine::{codes, context, machine};

/// Bits of the policy that name a kind of memory.
const KIND_BITS: i32 = 0x10_1100;
/// The last policy.
const POLICY_MAX: i32 = 7;

fn malloc_fault(device: i32) -> Answer {
    let site =
        Site { class: SiteClass::Malloc, operator: "malloc", device, stream: None, phase: Phase::Eager };
    faults::at_call(&site)?;
    faults::at_call_as_run(&site)
}

fn malloc(out: *mut *mut c_void, size: usize, policy: i32, rounding: Rounding) -> Answer {
    wants(out)?;
    if !(0..=POLICY_MAX).contains(&(policy & !KIND_BITS)) {
        return Refusal::answer(codes::INVALID_MALLOC_TYPE, format!("{policy} is no allocation policy"));
    }
    let context = context::current()?;
    malloc_fault(context.device.id)?;
    put(out, memory::allocate(&context.device, size, rounding)? as *mut c_void)
}

/// Takes device memory.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtMalloc(out: *mut *mut c_void, size: usize, policy: i32) -> i32 {
    call(|| malloc(out, size, policy, Rounding::Padded))
}

/// Takes device memory without padding.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtMallocAlign32(out: *mut *mut c_void, size: usize, policy: i32) -> i32 {
    call(|| malloc(out, size, policy, Rounding::Exact))
}

/// Takes cached device memory.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtMallocCached(out: *mut *mut c_void, size: usize, policy: i32) -> i32 {
    call(|| malloc(out, size, policy, Rounding::Padded))
}

/// Takes device memory; the attributes change nothing here.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtMallocWithCfg(
    out: *mut *mut c_void,
    size: usize,
    policy: i32,
    config: *mut c_void,
) -> i32 {
    let _ = config;
    call(|| malloc(out, size, policy, Rounding::Padded))
}

/// Gives device memory back at once.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtFree(pointer: *mut c_void) -> i32 {
    call(|| {
        context::current()?;
        memory::free(pointer as usize)
    })
}

/// Gives it back after the work of the device.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtFreeWithDevSync(pointer: *mut c_void) -> i32 {
    match super::device::aclrtSynchronizeDevice() {
        codes::SUCCESS => aclrtFree(pointer),
        code => code,
    }
}

fn malloc_host(out: *mut *mut c_void, size: usize) -> Answer {
    wants(out)?;
    let context = context::current()?;
    malloc_fault(context.device.id)?;
    put(out, memory::allocate_host(size)? as *mut c_void)
}

/// Takes pinned host memory.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtMallocHost(out: *mut *mut c_void, size: usize) -> i32 {
    call(|| malloc_host(out, size))
}

/// Takes pinned host memory; the attributes change nothing here.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtMallocHostWithCfg(out: *mut *mut c_void, size: u64, config: *mut c_void) -> i32 {
    let _ = config;
    call(|| malloc_host(out, size as usize))
}

/// Gives pinned host memory back.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtFreeHost(pointer: *mut c_void) -> i32 {
    call(|| memory::free_host(pointer as usize))
}

/// Gives it back after the work of the device.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtFreeHostWithDevSync(pointer: *mut c_void) -> i32 {
    match super::device::aclrtSynchronizeDevice() {
        codes::SUCCESS => aclrtFreeHost(pointer),
        code => code,
    }
}

fn register(pointer: *mut c_void, size: u64) -> Answer {
    context::current()?;
    if pointer.is_null() || size == 0 {
        return invalid("a registered range needs an address and a size");
    }
    memory::register(pointer as usize, size as usize)
}

/// Lets devices reach host memory of the program, under the same address.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtHostRegister(
    pointer: *mut c_void,
    size: u64,
    kind: i32,
    device: *mut *mut c_void,
) -> i32 {
    call(|| {
        wants(device)?;
        if !matches!(kind, 0 | 4 | 8) {
            return invalid(format!("{kind} is no registration type"));
        }
        register(pointer, size)?;
        put(device, pointer)
    })
}

/// The same with flags.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtHostRegisterV2(pointer: *mut c_void, size: u64, flags: u32) -> i32 {
    let _ = flags;
    call(|| register(pointer, size))
}

/// Tells the address that devices use.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtHostGetDevicePointer(host: *mut c_void, device: *mut *mut c_void, flags: u32) -> i32 {
    call(|| {
        if flags != 0 {
            return invalid("flags must be 0");
        }
        match memory::place(host as usize, 1)? {
            Place::Pinned => put(device, host),
            _ => Refusal::answer(codes::HOST_NOT_REGISTERED, "the host memory is not registered"),
        }
    })
}

/// Ends a registration.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtHostUnregister(pointer: *mut c_void) -> i32 {
    call(|| memory::unregister(pointer as usize))
}

/// Tells free and total memory of the current device.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtGetMemInfo(attribute: i32, free: *mut usize, total: *mut usize) -> i32 {
    call(|| {
        wants(free)?;
        if !(0..=17).contains(&attribute) {
            return invalid(format!("{attribute} is no kind of memory"));
        }
        let context = context::current()?;
        put(free, context.device.memory.left() as usize)?;
        put(total, context.device.memory.limit() as usize)
    })
}

/// Memory by component.
#[repr(C)]
pub struct MemUsageInfo {
    name: [u8; 32],
    current: u64,
    peak: u64,
    reserved: [u64; 8],
}

/// Tells memory by component, of which there is one.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtGetMemUsageInfo(
    device: i32,
    infos: *mut MemUsageInfo,
    room: usize,
    got: *mut usize,
) -> i32 {
    call(|| {
        let device = machine().device(device)?;
        if room == 0 {
            return invalid("the array has no room");
        }
        let mut name = [0; 32];
        name[..3].copy_from_slice(b"APP");
        let used = device.memory.used();
        put(infos, MemUsageInfo { name, current: used, peak: used, reserved: [0; 8] })?;
        put(got, 1)
    })
}

/// Where memory is.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Location {
    id: u32,
    kind: i32,
}

/// What is known of an address.
#[repr(C)]
pub struct PtrAttributes {
    location: Location,
    page_size: u32,
    reserved: [u32; 4],
}

/// Tells where an address is.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtPointerGetAttributes(pointer: *const c_void, attributes: *mut PtrAttributes) -> i32 {
    call(|| {
        if pointer.is_null() {
            return invalid("the address is null");
        }
        let location = match memory::place(pointer as usize, 1)? {
            Place::Pinned => Location { id: 0, kind: 0 },
            Place::Device(id) => Location { id: id as u32, kind: 1 },
            Place::Pageable => Location { id: 0, kind: 2 },
        };
        put(attributes, PtrAttributes { location, page_size: 4096, reserved: [0; 4] })
    })
}

/// Caches are coherent here.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtMemFlush(pointer: *mut c_void, size: usize) -> i32 {
    call(|| memory::place(pointer as usize, size).map(drop))
}

/// Caches are coherent here.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtMemInvalidate(pointer: *mut c_void, size: usize) -> i32 {
    call(|| memory::place(pointer as usize, size).map(drop))
}

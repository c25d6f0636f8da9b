//! Devices: setting, counting, asking, and peers.

use std::ffi::{c_char, c_void};
use std::sync::atomic::Ordering;

use super::{call, invalid, put, put_text};
use crate::machine::device::CORES;
use crate::machine::refusal::{Answer, Refusal};
use crate::machine::{capture, codes, context, faults, machine, process, reset};

/// Cores for AI CPU kernels.
const AI_CPUS: i64 = 6;
/// Bytes of the second-level cache.
const L2_BYTES: i64 = 192 << 20;
/// The architecture number of A2 and A3.
const ARCHITECTURE: i64 = 2201;

/// Holds a device.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtSetDevice(device: i32) -> i32 {
    call(|| reset::set_device(device))
}

/// Lets go of it.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtResetDevice(device: i32) -> i32 {
    call(|| reset::reset_device(device, false))
}

/// Ends everything on it, whoever else holds it.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtResetDeviceForce(device: i32) -> i32 {
    call(|| reset::reset_device(device, true))
}

/// Tells the current device.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtGetDevice(device: *mut i32) -> i32 {
    call(|| put(device, context::current()?.device.id))
}

/// Tells how many devices are visible.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtGetDeviceCount(count: *mut u32) -> i32 {
    call(|| put(count, machine().devices().len() as u32))
}

/// Tells that this runs on a host.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtGetRunMode(mode: *mut i32) -> i32 {
    call(|| put(mode, 1))
}

/// Tells whether a device is well.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtQueryDeviceStatus(device: i32, status: *mut i32) -> i32 {
    call(|| put(status, i32::from(machine().device(device)?.lost_code() != 0)))
}

/// How busy a device is; the simulated one only tells its memory.
#[repr(C)]
pub struct UtilizationInfo {
    cube: i32,
    vector: i32,
    ai_cpu: i32,
    memory: i32,
    extend: *mut c_void,
}

/// Tells how busy a device is.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtGetDeviceUtilizationRate(device: i32, info: *mut UtilizationInfo) -> i32 {
    call(|| {
        let device = machine().device(device)?;
        let busy = if device.pending.load(Ordering::Relaxed) > 0 { 100 } else { 0 };
        let memory = (device.memory.used() * 100).checked_div(device.memory.limit()).unwrap_or(100) as i32;
        put(
            info,
            UtilizationInfo { cube: busy, vector: busy, ai_cpu: 0, memory, extend: std::ptr::null_mut() },
        )
    })
}

fn synchronise(ms: i32) -> Answer {
    let limit = super::limit(ms)?;
    let current = context::current()?;
    capture::forbid_context(&current, true)?;
    faults::at_call(&super::stream::sync_site(current.device.id, None))?;
    let end = limit.map(|limit| std::time::Instant::now() + limit);
    let mut outcome = Ok(());
    for context in machine().contexts.all(|context| context.device.id == current.device.id) {
        let left = end.map(|end| end.saturating_duration_since(std::time::Instant::now()));
        let one = context.synchronize(left);
        outcome = outcome.and(one);
    }
    outcome
}

/// Waits for all work of the device.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtSynchronizeDevice() -> i32 {
    call(|| synchronise(-1))
}

/// Waits for it no longer than `ms`.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtSynchronizeDeviceWithTimeout(ms: i32) -> i32 {
    call(|| synchronise(ms))
}

/// Tells cores and cache of a device.
#[unsafe(no_mangle)]
pub extern "C" fn aclGetDeviceCapability(device: u32, what: i32, value: *mut i64) -> i32 {
    call(|| {
        machine().device(device as i32)?;
        match what {
            0 => put(value, i64::from(CORES[0])),
            1 => put(value, i64::from(CORES[1])),
            2 => put(value, L2_BYTES),
            _ => invalid(format!("{what} is no device capability")),
        }
    })
}

/// Tells whether a device has a feature: 1 task update in a captured graph.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtGetDeviceCapability(device: i32, feature: i32, value: *mut i32) -> i32 {
    call(|| {
        machine().device(device)?;
        put(value, i32::from(feature >= 1))
    })
}

/// Tells an attribute of a device.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtGetDeviceInfo(device: u32, attribute: i32, value: *mut i64) -> i32 {
    call(|| {
        let device = machine().device(device as i32)?;
        let told = match attribute {
            1 => AI_CPUS,
            101 | 102 => i64::from(CORES[0]),
            201 => i64::from(CORES[1]),
            301 => device.memory.limit() as i64,
            302 => L2_BYTES,
            403..=405 => 0,
            501 => 1,
            601 => ARCHITECTURE,
            _ => return invalid(format!("{attribute} is no device attribute")),
        };
        put(value, told)
    })
}

/// Tells whether one device can reach the memory of another.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtDeviceCanAccessPeer(can: *mut i32, device: i32, peer: i32) -> i32 {
    call(|| {
        machine().device(device)?;
        machine().device(peer)?;
        put(can, i32::from(device != peer))
    })
}

fn peer_bit(peer: i32) -> Answer<u64> {
    machine().device(peer)?;
    if context::current()?.device.id == peer {
        return invalid("a device is no peer of itself");
    }
    Ok(1 << (peer as u32 % u64::BITS))
}

/// Lets the current device reach a peer.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtDeviceEnablePeerAccess(peer: i32, flags: u32) -> i32 {
    call(|| {
        if flags != 0 {
            return invalid("flags of peer access must be 0");
        }
        let bit = peer_bit(peer)?;
        context::current()?.device.peers.fetch_or(bit, Ordering::Relaxed);
        Ok(())
    })
}

/// Ends that.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtDeviceDisablePeerAccess(peer: i32) -> i32 {
    call(|| {
        let bit = peer_bit(peer)?;
        context::current()?.device.peers.fetch_and(!bit, Ordering::Relaxed);
        Ok(())
    })
}

/// Tells whether a peer is reachable: 1 enabled, 0 not.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtDevicePeerAccessStatus(device: i32, peer: i32, status: *mut i32) -> i32 {
    call(|| {
        machine().device(peer)?;
        let bits = machine().device(device)?.peers.load(Ordering::Relaxed);
        put(status, i32::from(bits >> (peer as u32 % u64::BITS) & 1 == 1))
    })
}

/// Tells how two devices are connected: all by the high-speed link.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtGetDevicesTopo(device: u32, other: u32, bits: *mut u64) -> i32 {
    call(|| {
        machine().device(device as i32)?;
        machine().device(other as i32)?;
        put(bits, 1)
    })
}

fn physical_of(user: i32) -> Answer<i32> {
    machine().device(user).map(|device| device.physical)
}

fn user_of(physical: i32) -> Answer<i32> {
    let devices = machine().devices();
    let found = devices.iter().find(|device| device.physical == physical).map(|device| device.id);
    found.ok_or_else(|| {
        Refusal::new(codes::INVALID_DEVICE, format!("device {physical} is hidden or not there"))
    })
}

/// From the id after the visibility list to the id of the machine.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtGetLogicDevIdByUserDevId(user: i32, logic: *mut i32) -> i32 {
    call(|| put(logic, physical_of(user)?))
}

/// And back.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtGetUserDevIdByLogicDevId(logic: i32, user: *mut i32) -> i32 {
    call(|| put(user, user_of(logic)?))
}

/// Logical and physical ids are the same here.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtGetLogicDevIdByPhyDevId(physical: i32, logic: *mut i32) -> i32 {
    call(|| user_of(physical).and_then(|_| put(logic, physical)))
}

/// And back.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtGetPhyDevIdByLogicDevId(logic: i32, physical: *mut i32) -> i32 {
    call(|| user_of(logic).and_then(|_| put(physical, logic)))
}

/// Tells a name of the device that is unique on this host.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtDeviceGetUuid(device: i32, uuid: *mut [u8; 16]) -> i32 {
    call(|| {
        let mut bytes = *b"acl-sim-device\0\0";
        bytes[15] = physical_of(device)? as u8;
        put(uuid, bytes)
    })
}

/// Tells the address of the device on the bus.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtDeviceGetPCIBusId(device: i32, buffer: *mut c_char, room: i32) -> i32 {
    call(|| put_text(buffer, room.max(0) as usize, &format!("0000:{:02X}:00.0", physical_of(device)?)))
}

/// Tells the process of the driver: our own.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtDeviceGetBareTgid(process: *mut i32) -> i32 {
    call(|| put(process, std::process::id() as i32))
}

/// Registers a function that hears about devices; a null one is removed.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtRegDeviceStateCallback(
    name: *const c_char,
    function: Option<process::DeviceListener>,
    argument: *mut c_void,
) -> i32 {
    call(|| {
        process::DEVICE_LISTENERS.register(name, function.map_or(0, |function| function as usize), argument)
    })
}

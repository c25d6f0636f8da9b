//! Tasks that are no operators: host functions, reductions, values in memory, overflow
//! status.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::{call, invalid, put};
use crate::launch::{Launch, cancelled};
use crate::machine::refusal::{Answer, Refusal};
use crate::machine::task::Class;
use crate::machine::{capture, codes, context, memory, stream, submit};

/// How often a wait for a value looks again.
const VALUE_POLL: Duration = Duration::from_micros(50);

/// A function of the program.
pub type HostFunction = extern "C" fn(*mut c_void);

fn other(operator: &'static str, work: impl Fn() -> Result<(), i32> + Send + Sync + 'static) -> Launch {
    Launch { operator, updatable: false, outputs: Vec::new(), work: Arc::new(work) }
}

/// Runs a function of the program on the stream's thread.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtLaunchHostFunc(
    handle: *mut c_void,
    function: Option<HostFunction>,
    argument: *mut c_void,
) -> i32 {
    call(|| {
        let Some(function) = function else { return invalid("the function is null") };
        let argument = argument as usize;
        let work = move || {
            function(argument as *mut c_void);
            Ok(())
        };
        submit::work(&stream::find(handle)?, Class::Other, other("hostfunc", work))
    })
}

fn in_device(address: usize, bytes: usize, what: &str) -> Answer {
    if memory::is_device_range(address, bytes) {
        return Ok(());
    }
    invalid(format!("{bytes} bytes at {address:#x} are no device memory; {what} needs that"))
}

trait Number: Copy + 'static {
    fn sum(self, other: Self) -> Self;
    fn largest(self, other: Self) -> Self;
    fn smallest(self, other: Self) -> Self;
}

macro_rules! numbers {
    ($($kind:ty, $sum:expr;)*) => {
        $(impl Number for $kind {
            fn sum(self, other: Self) -> Self {
                $sum(self, other)
            }
            fn largest(self, other: Self) -> Self {
                if other > self { other } else { self }
            }
            fn smallest(self, other: Self) -> Self {
                if other < self { other } else { self }
            }
        })*
    };
}

numbers! {
    f32, |a: f32, b: f32| a + b;
    half::f16, |a: half::f16, b: half::f16| a + b;
    half::bf16, |a: half::bf16, b: half::bf16| a + b;
    i8, i8::wrapping_add;
    i16, i16::wrapping_add;
    i32, i32::wrapping_add;
}

fn reduce<T: Number>(dst: usize, src: usize, bytes: usize, kind: i32) {
    for offset in (0..bytes).step_by(size_of::<T>()) {
        let (into, from) = ((dst + offset) as *mut T, (src + offset) as *const T);
        // SAFETY: both ranges were checked to be device memory of `bytes` bytes, a multiple of the element.
        unsafe {
            let (before, more) = (into.read_unaligned(), from.read_unaligned());
            let after = match kind {
                0 => before.sum(more),
                1 => before.largest(more),
                _ => before.smallest(more),
            };
            into.write_unaligned(after);
        }
    }
}

/// Adds a buffer to another, or keeps the larger or smaller of each pair (kinds 10, 11, 12); `bytes` counts
/// bytes.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtReduceAsync(
    dst: *mut c_void,
    src: *const c_void,
    bytes: u64,
    kind: i32,
    data_type: i32,
    handle: *mut c_void,
    _reserved: *mut c_void,
) -> i32 {
    call(|| {
        let (dst, src, bytes) = (dst as usize, src as usize, bytes as usize);
        let kind = match kind {
            10..=12 => kind - 10,
            _ => {
                return invalid(format!(
                    "{kind} is no reduction; 10 adds, 11 and 12 take the larger and the smaller"
                ));
            }
        };
        let run: fn(usize, usize, usize, i32) = match data_type {
            0 => reduce::<f32>,
            1 => reduce::<half::f16>,
            2 => reduce::<i8>,
            3 => reduce::<i32>,
            6 => reduce::<i16>,
            27 => reduce::<half::bf16>,
            _ => return Refusal::answer(codes::NOT_SUPPORTED, format!("type {data_type} cannot be reduced")),
        };
        if bytes == 0 || !bytes.is_multiple_of(super::data::aclDataTypeSize(data_type)) {
            return invalid(format!("{bytes} bytes hold no whole elements"));
        }
        in_device(dst, bytes, "a reduction")?;
        in_device(src, bytes, "a reduction")?;
        let work = move || {
            run(dst, src, bytes, kind);
            Ok(())
        };
        let launch = Launch { outputs: vec![(dst, bytes)], ..other("reduce", work) };
        submit::work(&stream::find(handle)?, Class::Memcpy, launch)
    })
}

/// The eight bytes at an address that was checked.
fn value_at(address: usize) -> &'static AtomicU64 {
    // SAFETY: the address is aligned and was checked to be device memory, which is only reached through raw
    // addresses.
    unsafe { AtomicU64::from_ptr(address as *mut u64) }
}

fn value_address(pointer: *mut c_void) -> Answer<usize> {
    let address = pointer as usize;
    if !address.is_multiple_of(8) {
        return invalid("the address of a value must be a multiple of 8");
    }
    in_device(address, 8, "a value").map(|()| address)
}

/// Writes a value on a stream.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtValueWrite(pointer: *mut c_void, value: u64, _flag: u32, handle: *mut c_void) -> i32 {
    call(|| {
        let address = value_address(pointer)?;
        let work = move || {
            value_at(address).store(value, Ordering::Release);
            Ok(())
        };
        submit::work(&stream::find(handle)?, Class::Other, other("valuewrite", work))
    })
}

/// Waits on a stream for a value: 0 at least, 1 equal, 2 any common bit, 3 a missing bit.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtValueWait(pointer: *mut c_void, value: u64, flag: u32, handle: *mut c_void) -> i32 {
    call(|| {
        let address = value_address(pointer)?;
        let met: fn(u64, u64) -> bool = match flag {
            0 => |there, wanted| (there.wrapping_sub(wanted) as i64) >= 0,
            1 => |there, wanted| there == wanted,
            2 => |there, wanted| there & wanted != 0,
            3 => |there, wanted| !(there | wanted) != 0,
            _ => return invalid(format!("{flag} is no way to compare")),
        };
        let work = move || {
            while !met(value_at(address).load(Ordering::Acquire), value) && !cancelled() {
                std::thread::sleep(VALUE_POLL);
            }
            Ok(())
        };
        submit::work(&stream::find(handle)?, Class::Other, other("valuewait", work))
    })
}

/// Prefetches into a cache that is not simulated.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtCmoAsync(src: *mut c_void, bytes: usize, _kind: i32, handle: *mut c_void) -> i32 {
    call(|| {
        in_device(src as usize, bytes, "a cache operation")?;
        submit::work(&stream::find(handle)?, Class::Other, other("cmo", || Ok(())))
    })
}

/// Sets the saturation mode of a device: kept and told.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtSetDeviceSatMode(mode: i32) -> i32 {
    call(|| {
        if !(0..=1).contains(&mode) {
            return invalid("the mode is 0 (saturate) or 1 (infinity)");
        }
        let context = context::current()?;
        capture::forbid_context(&context, true)?;
        context.device.saturation.store(mode, Ordering::Relaxed);
        Ok(())
    })
}

/// Tells it.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtGetDeviceSatMode(mode: *mut i32) -> i32 {
    call(|| put(mode, context::current()?.device.saturation.load(Ordering::Relaxed)))
}

/// Writes the overflow status, which is always clear, into device memory.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtGetOverflowStatus(out: *mut c_void, bytes: usize, handle: *mut c_void) -> i32 {
    call(|| {
        if bytes < 8 {
            return invalid("the overflow status takes at least 8 bytes");
        }
        crate::machine::copy::fill_on(out as usize, 0, bytes, &stream::find(handle)?)
    })
}

/// Clears the overflow status.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtResetOverflowStatus(handle: *mut c_void) -> i32 {
    call(|| {
        let stream = stream::find(handle)?;
        capture::forbid_stream(&stream, "reset of the overflow status")
    })
}

//! Contexts.

use std::ffi::c_void;
use std::sync::Mutex;

use super::{call, invalid, put, wants};
use crate::machine::context::{self, Context};
use crate::machine::refusal::{Answer, Refusal};
use crate::machine::table::lock;
use crate::machine::{capture, codes, machine};

/// System parameters that exist.
const PARAMETERS: usize = 4;

static PARAMETER_VALUES: Mutex<[Option<i64>; PARAMETERS]> = Mutex::new([None; PARAMETERS]);

/// Makes a context and makes it current.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtCreateContext(handle: *mut *mut c_void, device: i32) -> i32 {
    call(|| {
        wants(handle)?;
        let device = machine().device(device)?;
        device.usable()?;
        let context = Context::create(&device, false);
        context::set_current(&context);
        put(handle, context.handle as *mut c_void)
    })
}

/// Ends a context.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtDestroyContext(handle: *mut c_void) -> i32 {
    call(|| {
        let context = context::find(handle)?;
        if context.primary {
            return invalid("the default context ends with aclrtResetDevice");
        }
        capture::forbid_context(&context, false)?;
        context.destroy();
        Ok(())
    })
}

/// Makes a context current for this thread.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtSetCurrentContext(handle: *mut c_void) -> i32 {
    call(|| {
        context::set_current(&context::find(handle)?);
        Ok(())
    })
}

/// Tells the current context.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtGetCurrentContext(handle: *mut *mut c_void) -> i32 {
    call(|| put(handle, context::current()?.handle as *mut c_void))
}

/// Tells the default stream of the current context.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtCtxGetCurrentDefaultStream(stream: *mut *mut c_void) -> i32 {
    call(|| put(stream, context::current()?.default_stream()?.handle as *mut c_void))
}

/// Tells whether the default context of a device exists.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtGetPrimaryCtxState(device: i32, flags: *mut u32, active: *mut i32) -> i32 {
    call(|| {
        let device = machine().device(device)?;
        if !flags.is_null() {
            put(flags, 0)?;
        }
        let there = lock(&device.holders).primary.is_some();
        put(active, i32::from(there))
    })
}

fn set_parameter(option: i32, value: i64) -> Answer {
    let mut values = lock(&PARAMETER_VALUES);
    match usize::try_from(option).ok().and_then(|index| values.get_mut(index)) {
        Some(slot) => {
            *slot = Some(value);
            Ok(())
        }
        None => invalid(format!("{option} is no system parameter")),
    }
}

fn parameter(option: i32) -> Answer<i64> {
    let values = lock(&PARAMETER_VALUES);
    match usize::try_from(option).ok().and_then(|index| values.get(index)) {
        Some(Some(value)) => Ok(*value),
        Some(None) => {
            Refusal::answer(codes::SYSPARAM_NOT_SET, format!("system parameter {option} was never set"))
        }
        None => invalid(format!("{option} is no system parameter")),
    }
}

/// Sets a system parameter: kept and told; arithmetic here is always deterministic.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtSetSysParamOpt(option: i32, value: i64) -> i32 {
    call(|| set_parameter(option, value))
}

/// Tells it.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtGetSysParamOpt(option: i32, value: *mut i64) -> i32 {
    call(|| put(value, parameter(option)?))
}

/// Sets it for the current context, which is the process here.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtCtxSetSysParamOpt(option: i32, value: i64) -> i32 {
    call(|| context::current().and_then(|_| set_parameter(option, value)))
}

/// Tells it.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtCtxGetSysParamOpt(option: i32, value: *mut i64) -> i32 {
    call(|| context::current().and_then(|_| put(value, parameter(option)?)))
}

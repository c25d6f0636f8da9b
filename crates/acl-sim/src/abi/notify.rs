//! Notifies: flags between streams.

use std::ffi::c_void;
use std::time::Duration;

use super::{call, invalid, put, wants};
use crate::machine::event::{self, Event, Kind};
use crate::machine::{context, machine, stream, submit};

/// Makes a notify.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtCreateNotify(out: *mut *mut c_void, flags: u64) -> i32 {
    call(|| {
        wants(out)?;
        if flags > 1 {
            return invalid(format!("{flags:#x} are no notify flags"));
        }
        let notify = Event::create(&*context::current()?, Kind::Notify, 0)?;
        put(out, notify.handle as *mut c_void)
    })
}

/// Ends it.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtDestroyNotify(handle: *mut c_void) -> i32 {
    call(|| {
        let notify = event::find_notify(handle)?;
        machine().notifies.remove(notify.handle);
        Ok(())
    })
}

/// Raises it on a stream.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtRecordNotify(notify: *mut c_void, stream: *mut c_void) -> i32 {
    call(|| submit::record(&stream::find(stream)?, &event::find_notify(notify)?, false))
}

/// Waits for it on a stream and lowers it; 0 waits for ever.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtWaitAndResetNotify(notify: *mut c_void, stream: *mut c_void, ms: u32) -> i32 {
    call(|| {
        let limit = (ms > 0).then(|| Duration::from_millis(u64::from(ms)));
        submit::wait_notify(&stream::find(stream)?, &event::find_notify(notify)?, limit)
    })
}

/// Tells its number.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtGetNotifyId(notify: *mut c_void, id: *mut u32) -> i32 {
    call(|| put(id, event::find_notify(notify)?.id))
}

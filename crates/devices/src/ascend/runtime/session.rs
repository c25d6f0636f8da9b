//! The process's use of CANN, and a thread's use of one device.

use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use super::Api;
use crate::ascend::codes;
use crate::ascend::error::Fault;
use crate::ascend::library::{Library, LibraryError};

/// Starts CANN in this process, once for each library that was loaded.
///
/// It is never ended: older releases do not start a second time in one process, and a device that failed is opened
/// again in the same one.
pub(in crate::ascend) fn start(library: &Arc<Library>) -> Result<(), LibraryError> {
    static STARTED: Mutex<Vec<usize>> = Mutex::new(Vec::new());
    let mut started = STARTED.lock().unwrap_or_else(PoisonError::into_inner);
    let init = library.runtime.init;
    if started.contains(&(init as usize)) {
        return Ok(());
    }
    // SAFETY: a null path is allowed and means the defaults.
    let status = unsafe { init(std::ptr::null()) };
    if status != 0 && status != codes::REPEAT_INITIALIZE {
        return Err(LibraryError::Init { status, text: library.recent_message() });
    }
    started.push(init as usize);
    Ok(())
}

/// This thread's use of a device: while it lives, the device's default context is current here.
#[derive(Debug)]
pub(in crate::ascend) struct DeviceHandle {
    api: Rc<Api>,
    ordinal: i32,
    /// A context belongs to its thread.
    _thread: PhantomData<*const ()>,
}

impl DeviceHandle {
    pub(in crate::ascend) fn open(api: &Rc<Api>, ordinal: u32) -> Result<Self, Fault> {
        let ordinal = i32::try_from(ordinal).unwrap_or(i32::MAX);
        // SAFETY: takes a number; one that names no device is refused.
        let status = unsafe { (api.library.runtime.set_device)(ordinal) };
        api.check(status, "aclrtSetDevice")?;
        Ok(Self { api: Rc::clone(api), ordinal, _thread: PhantomData })
    }

    /// Free and total bytes of the device's memory.
    pub(in crate::ascend) fn memory(&self) -> Result<(u64, u64), Fault> {
        /// `ACL_HBM_MEM`; answers for DDR on chips without HBM.
        const HBM: i32 = 1;
        let (mut free, mut total) = (0_usize, 0_usize);
        // SAFETY: two places for two numbers.
        let status = unsafe { (self.api.library.runtime.get_mem_info)(HBM, &raw mut free, &raw mut total) };
        self.api.check(status, "aclrtGetMemInfo")?;
        Ok((free as u64, total as u64))
    }

    /// The chip's name.
    pub(in crate::ascend) fn soc(&self) -> String {
        // SAFETY: takes nothing; a static string or null.
        let name = unsafe { (self.api.library.runtime.get_soc_name)() };
        if name.is_null() {
            return String::new();
        }
        // SAFETY: not null, and a C string by its interface.
        unsafe { std::ffi::CStr::from_ptr(name) }.to_string_lossy().into_owned()
    }

    /// Streams that can still be made, if the installation can tell.
    pub(in crate::ascend) fn streams_left(&self) -> Option<u32> {
        let query = self.api.library.runtime.get_stream_available_num?;
        let mut left = 0;
        // SAFETY: a place for one number.
        let status = unsafe { query(&raw mut left) };
        (status == 0).then_some(left)
    }
}

impl Drop for DeviceHandle {
    fn drop(&mut self) {
        // Nothing can be done when it fails: the device is in trouble already, or gone.
        // SAFETY: balances the call in `open`.
        unsafe { (self.api.library.runtime.reset_device)(self.ordinal) };
    }
}

//! Streams and events.

use std::ffi::c_void;
use std::rc::Rc;
use std::time::Duration;

use super::{Api, PinnedBuffer, Slice};
use crate::ascend::codes;
use crate::ascend::error::Fault;

/// `ACL_STREAM_FAST_LAUNCH | ACL_STREAM_FAST_SYNC`.
const FAST: u32 = 1 | 2;
/// `ACL_EVENT_EXTERNAL`: a graph may wait for it, and work outside the graph may record it.
const EXTERNAL: u32 = 0x20;
/// `ACL_MEMCPY_HOST_TO_DEVICE`.
const TO_DEVICE: i32 = 1;
/// `ACL_MEMCPY_DEVICE_TO_HOST`.
const TO_HOST: i32 = 2;

/// A queue of work on the device.
#[derive(Debug)]
pub(in crate::ascend) struct Stream {
    api: Rc<Api>,
    handle: *mut c_void,
}

impl Stream {
    pub(in crate::ascend) fn new(api: &Rc<Api>) -> Result<Self, Fault> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: a place for one handle; the priority is reserved and zero.
        let status = unsafe { (api.library.runtime.create_stream_with_config)(&raw mut handle, 0, FAST) };
        api.check(status, "aclrtCreateStreamWithConfig")?;
        Ok(Self { api: Rc::clone(api), handle })
    }

    /// For operator calls.
    pub(in crate::ascend) fn handle(&self) -> *mut c_void {
        self.handle
    }

    pub(in crate::ascend) fn api(&self) -> &Rc<Api> {
        &self.api
    }

    /// Copies the first `bytes` of a pinned buffer to the device, in stream order.
    pub(in crate::ascend) fn upload(
        &self,
        host: &PinnedBuffer,
        device: &Slice,
        bytes: usize,
    ) -> Result<(), Fault> {
        debug_assert!(bytes <= device.bytes() && bytes <= host.bytes());
        let bytes = bytes.min(device.bytes()).min(host.bytes());
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: both ranges lie in live allocations; the caller writes the host side again only behind a
        // synchronisation (`Staging` is the only one).
        let status = unsafe {
            let source = host.as_ptr().cast();
            let copy = self.api.library.runtime.memcpy_async;
            copy(device.address(), device.bytes(), source, bytes, TO_DEVICE, self.handle)
        };
        self.api.check(status, "aclrtMemcpyAsync")
    }

    /// Copies the first `bytes` of device memory into a pinned buffer, in stream order.
    pub(in crate::ascend) fn download(
        &self,
        device: &Slice,
        host: &PinnedBuffer,
        bytes: usize,
    ) -> Result<(), Fault> {
        debug_assert!(bytes <= device.bytes() && bytes <= host.bytes());
        let bytes = bytes.min(device.bytes()).min(host.bytes());
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: both ranges lie in live allocations; the host side is read only behind a synchronisation.
        let status = unsafe {
            let copy = self.api.library.runtime.memcpy_async;
            copy(host.as_ptr().cast(), host.bytes(), device.address(), bytes, TO_HOST, self.handle)
        };
        self.api.check(status, "aclrtMemcpyAsync")
    }

    pub(in crate::ascend) fn wait(&self, event: &Event) -> Result<(), Fault> {
        // SAFETY: two live handles.
        let status = unsafe { (self.api.library.runtime.stream_wait_event)(self.handle, event.handle) };
        self.api.check(status, "aclrtStreamWaitEvent")
    }

    pub(in crate::ascend) fn record(&self, event: &Event) -> Result<(), Fault> {
        // SAFETY: two live handles.
        let status = unsafe { (self.api.library.runtime.record_event)(event.handle, self.handle) };
        self.api.check(status, "aclrtRecordEvent")
    }

    pub(in crate::ascend) fn reset(&self, event: &Event) -> Result<(), Fault> {
        // SAFETY: two live handles.
        let status = unsafe { (self.api.library.runtime.reset_event)(event.handle, self.handle) };
        self.api.check(status, "aclrtResetEvent")
    }

    /// Waits for all work, without a limit.
    pub(in crate::ascend) fn synchronize(&self) -> Result<(), Fault> {
        // SAFETY: a live handle.
        let status = unsafe { (self.api.library.runtime.synchronize_stream)(self.handle) };
        self.api.check(status, "aclrtSynchronizeStream")
    }

    /// Waits for all work for so long; says whether it is done.
    pub(in crate::ascend) fn synchronize_for(&self, limit: Duration) -> Result<bool, Fault> {
        let millis = i32::try_from(limit.as_millis()).unwrap_or(i32::MAX).max(1);
        // SAFETY: a live handle.
        let status =
            unsafe { (self.api.library.runtime.synchronize_stream_with_timeout)(self.handle, millis) };
        if status == codes::STREAM_SYNC_TIMEOUT {
            // The message belongs to an answer that is none of a fault's.
            self.api.library.recent_message();
            return Ok(false);
        }
        self.api.check(status, "aclrtSynchronizeStreamWithTimeout").map(|()| true)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // Work that is still queued is nobody's any more: a stream is dropped behind a synchronisation, or because
        // it has failed. A refusal leaves nothing to do.
        // SAFETY: a live handle, given up here.
        unsafe { (self.api.library.runtime.destroy_stream_force)(self.handle) };
    }
}

/// A point in a stream that graphs and other streams can wait for.
#[derive(Debug)]
pub(in crate::ascend) struct Event {
    api: Rc<Api>,
    handle: *mut c_void,
}

impl Event {
    /// One that a graph waits for and that is recorded outside of it.
    pub(in crate::ascend) fn external(api: &Rc<Api>) -> Result<Self, Fault> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: a place for one handle.
        let status = unsafe { (api.library.runtime.create_event_with_flag)(&raw mut handle, EXTERNAL) };
        api.check(status, "aclrtCreateEventWithFlag")?;
        Ok(Self { api: Rc::clone(api), handle })
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: a live handle, given up here.
        unsafe { (self.api.library.runtime.destroy_event)(self.handle) };
    }
}

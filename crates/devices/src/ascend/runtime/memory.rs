//! Device memory and pinned host memory.

use std::ffi::c_void;
use std::rc::Rc;

use super::Api;
use crate::ascend::error::Fault;

/// `ACL_MEM_MALLOC_HUGE_FIRST`.
const HUGE_FIRST: i32 = 0;
/// `ACL_MEMCPY_HOST_TO_DEVICE`.
const TO_DEVICE: i32 = 1;

/// One allocation on the device.
#[derive(Debug)]
pub(in crate::ascend) struct DeviceBuffer {
    api: Rc<Api>,
    address: *mut c_void,
    bytes: usize,
}

impl DeviceBuffer {
    pub(in crate::ascend) fn new(api: &Rc<Api>, bytes: usize) -> Result<Self, Fault> {
        let bytes = bytes.max(1);
        let mut address = std::ptr::null_mut();
        // SAFETY: a place for one address, a size above zero.
        let status = unsafe { (api.library.runtime.malloc)(&raw mut address, bytes, HUGE_FIRST) };
        api.check(status, "aclrtMalloc")?;
        Ok(Self { api: Rc::clone(api), address, bytes })
    }

    pub(in crate::ascend) fn address(&self) -> *mut c_void {
        self.address
    }

    pub(in crate::ascend) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Copies bytes to the device and waits for it.
    pub(super) fn write(&self, offset: usize, bytes: &[u8]) -> Result<(), Fault> {
        let room = self.bytes.saturating_sub(offset);
        debug_assert!(bytes.len() <= room);
        let count = bytes.len().min(room);
        if count == 0 {
            return Ok(());
        }
        // SAFETY: the range lies in this allocation, as far as `room` says; the source is a live slice.
        let status = unsafe {
            let to = self.address.cast::<u8>().add(offset).cast();
            (self.api.library.runtime.memcpy)(to, room, bytes.as_ptr().cast(), count, TO_DEVICE)
        };
        self.api.check(status, "aclrtMemcpy")
    }

    /// Sets a range to zero and waits for it.
    pub(super) fn zero(&self, offset: usize, bytes: usize) -> Result<(), Fault> {
        let room = self.bytes.saturating_sub(offset);
        let count = bytes.min(room);
        // SAFETY: the range lies in this allocation.
        let status = unsafe {
            let to = self.address.cast::<u8>().add(offset).cast();
            (self.api.library.runtime.memset)(to, room, 0, count)
        };
        self.api.check(status, "aclrtMemset")
    }
}

impl Drop for DeviceBuffer {
    fn drop(&mut self) {
        // SAFETY: allocated by this type and given up here; users of its memory hold an `Rc` of it until the stream
        // that uses it has been synchronised or destroyed.
        unsafe { (self.api.library.runtime.free)(self.address) };
    }
}

/// Host memory that the device copies from and to directly.
#[derive(Debug)]
pub(in crate::ascend) struct PinnedBuffer {
    api: Rc<Api>,
    address: *mut u8,
    bytes: usize,
}

impl PinnedBuffer {
    /// A buffer full of zeros.
    pub(in crate::ascend) fn new(api: &Rc<Api>, bytes: usize) -> Result<Self, Fault> {
        let bytes = bytes.max(1);
        let mut address = std::ptr::null_mut();
        // SAFETY: a place for one address, a size above zero.
        let status = unsafe { (api.library.runtime.malloc_host)(&raw mut address, bytes) };
        api.check(status, "aclrtMallocHost")?;
        let address = address.cast::<u8>();
        // SAFETY: so many bytes were just allocated.
        unsafe { address.write_bytes(0, bytes) };
        Ok(Self { api: Rc::clone(api), address, bytes })
    }

    pub(super) fn as_ptr(&self) -> *mut u8 {
        self.address
    }

    pub(in crate::ascend) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The buffer as integers. Only while no copy from it is running.
    pub(in crate::ascend) fn integers(&mut self) -> &mut [i32] {
        // SAFETY: 64-byte aligned by the allocator's interface, initialised at the start, and borrowed exclusively;
        // any bytes are integers.
        unsafe { std::slice::from_raw_parts_mut(self.address.cast(), self.bytes / size_of::<i32>()) }
    }

    /// The buffer as numbers. Only while no copy into it is running.
    pub(in crate::ascend) fn floats(&self) -> &[f32] {
        // SAFETY: as above; any bytes are numbers. Copies into it end at the synchronisation that a step waits for.
        unsafe { std::slice::from_raw_parts(self.address.cast(), self.bytes / size_of::<f32>()) }
    }
}

impl Drop for PinnedBuffer {
    fn drop(&mut self) {
        // SAFETY: allocated by this type and given up here.
        unsafe { (self.api.library.runtime.free_host)(self.address.cast()) };
    }
}

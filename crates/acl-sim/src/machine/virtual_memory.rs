//! Virtual memory management: reserved ranges, physical memory, and mappings between them.
//!
//! Always holds: physical memory is charged to its device when it is made and keeps its contents while it is
//! unmapped; a range with mappings cannot be released.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::{Arc, Mutex};

use super::device::Device;
use super::refusal::{Answer, Refusal};
use super::table::{lock, next_handle};
use super::{codes, machine, memory};

/// What sizes and offsets are multiples of.
pub const GRANULARITY: usize = 2 << 20;

/// Physical memory.
pub struct Physical {
    /// What the program holds.
    pub handle: usize,
    /// Its size.
    pub bytes: usize,
    /// Whose it is.
    pub device: Arc<Device>,
    file: OwnedFd,
}

impl Drop for Physical {
    fn drop(&mut self) {
        self.device.memory.give(self.bytes as u64);
    }
}

struct Range {
    bytes: usize,
    mapped: BTreeMap<usize, (usize, Arc<Physical>)>,
}

static RANGES: Mutex<BTreeMap<usize, Range>> = Mutex::new(BTreeMap::new());

/// Reserves addresses without memory.
pub fn reserve(bytes: usize) -> Answer<usize> {
    if bytes == 0 || !bytes.is_multiple_of(GRANULARITY) {
        let detail = format!("{bytes} bytes are no positive multiple of the granularity, {GRANULARITY}");
        return Refusal::answer(codes::PARAM_INVALID, detail);
    }
    let base = map_nothing(std::ptr::null_mut(), bytes, 0);
    let Some(base) = base else {
        return Refusal::answer(
            codes::MEMORY_ALLOCATION,
            format!("{bytes} bytes of addresses cannot be reserved"),
        );
    };
    lock(&RANGES).insert(base, Range { bytes, mapped: BTreeMap::new() });
    Ok(base)
}

fn map_nothing(at: *mut c_void, bytes: usize, fixed: i32) -> Option<usize> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | fixed;
    // SAFETY: without MAP_FIXED the kernel chooses unused addresses; with it, the caller owns the range.
    let base = unsafe { libc::mmap(at, bytes, libc::PROT_NONE, flags, -1, 0) };
    (base != libc::MAP_FAILED).then_some(base as usize)
}

/// Gives a reserved range back.
pub fn release(base: usize) -> Answer {
    let mut ranges = lock(&RANGES);
    match ranges.get(&base) {
        Some(range) if range.mapped.is_empty() => {}
        Some(_) => {
            return Refusal::answer(
                codes::PARAM_INVALID,
                "the range still has memory mapped; unmap it first",
            );
        }
        None => return Refusal::answer(codes::PARAM_INVALID, format!("{base:#x} is no reserved range")),
    }
    if let Some(range) = ranges.remove(&base) {
        // SAFETY: the range is ours, nothing is mapped in it, and it left the books.
        unsafe { libc::munmap(base as *mut c_void, range.bytes) };
    }
    Ok(())
}

/// Makes physical memory of a device.
pub fn create(device: &Arc<Device>, bytes: usize) -> Answer<Arc<Physical>> {
    if bytes == 0 || !bytes.is_multiple_of(GRANULARITY) {
        let detail = format!("{bytes} bytes are no positive multiple of the granularity, {GRANULARITY}");
        return Refusal::answer(codes::PARAM_INVALID, detail);
    }
    if !device.memory.take(bytes as u64) {
        let detail = format!("device {} has {} bytes free, not {bytes}", device.id, device.memory.left());
        return Refusal::answer(codes::DEVICE_OOM, detail);
    }
    let refused = || {
        device.memory.give(bytes as u64);
        Refusal::new(codes::MEMORY_ALLOCATION, format!("the host cannot back {bytes} bytes"))
    };
    // SAFETY: the name is a C string, and the flags are valid.
    let file = unsafe { libc::memfd_create(c"acl-sim".as_ptr(), libc::MFD_CLOEXEC) };
    if file < 0 {
        return Err(refused());
    }
    // SAFETY: the descriptor was just made and is owned by nobody else.
    let file = unsafe { OwnedFd::from_raw_fd(file) };
    // SAFETY: the descriptor is open.
    if unsafe { libc::ftruncate(file.as_raw_fd(), bytes as libc::off_t) } != 0 {
        return Err(refused());
    }
    let physical = Arc::new(Physical { handle: next_handle(), bytes, device: Arc::clone(device), file });
    machine().physical.insert(physical.handle, Arc::clone(&physical));
    Ok(physical)
}

/// Finds physical memory.
pub fn find(handle: *mut c_void) -> Answer<Arc<Physical>> {
    let found = machine().physical.get(handle);
    found.ok_or_else(|| Refusal::new(codes::PARAM_INVALID, "the physical memory handle is null or was freed"))
}

/// Puts physical memory behind reserved addresses.
pub fn map(base: usize, bytes: usize, offset: usize, physical: &Arc<Physical>) -> Answer {
    let wrong = |detail: &str| Refusal::answer(codes::PARAM_INVALID, detail);
    if bytes == 0 || !bytes.is_multiple_of(GRANULARITY) || offset != 0 || bytes > physical.bytes {
        return wrong("map whole granules from offset 0, and no more than the physical memory has");
    }
    let mut ranges = lock(&RANGES);
    let range =
        ranges.range_mut(..=base).next_back().filter(|(start, range)| base + bytes <= **start + range.bytes);
    let Some((_, range)) = range else {
        return wrong("the addresses are not reserved; call aclrtReserveMemAddress first");
    };
    let before = range.mapped.range(..base + bytes).next_back();
    if before.is_some_and(|(start, (length, _))| start + length > base) {
        return wrong("the addresses have memory mapped already; unmap it first");
    }
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: the range was reserved by us and has nothing mapped, so replacing its pages takes nothing from
    // anybody.
    let mapped = unsafe {
        libc::mmap(
            base as *mut c_void,
            bytes,
            protection,
            libc::MAP_SHARED | libc::MAP_FIXED,
            physical.file.as_raw_fd(),
            0,
        )
    };
    if mapped == libc::MAP_FAILED {
        return Refusal::answer(codes::MEMORY_ALLOCATION, "the host cannot map the memory");
    }
    range.mapped.insert(base, (bytes, Arc::clone(physical)));
    memory::note_mapped(base, bytes, physical.device.id);
    Ok(())
}

/// Takes the memory from behind the addresses.
pub fn unmap(base: usize) -> Answer {
    let mut ranges = lock(&RANGES);
    let mapped = ranges.range_mut(..=base).next_back().and_then(|(_, range)| range.mapped.remove(&base));
    let Some((bytes, _)) = mapped else {
        return Refusal::answer(codes::PARAM_INVALID, format!("nothing is mapped at {base:#x}"));
    };
    memory::note_unmapped(base);
    if map_nothing(base as *mut c_void, bytes, libc::MAP_FIXED).is_none() {
        return Refusal::answer(codes::MEMORY_FREE, "the host cannot unmap the memory");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::expect_used, reason = "tests")]
    use super::*;

    #[test]
    fn contents_survive_unmapping_and_ranges_join() {
        let device = machine().device(1).expect("device");
        let base = reserve(4 * GRANULARITY).expect("reserve");
        let first = create(&device, GRANULARITY).expect("create");
        let second = create(&device, GRANULARITY).expect("create");
        map(base, GRANULARITY, 0, &first).expect("map");
        map(base + GRANULARITY, GRANULARITY, 0, &second).expect("map");
        assert!(map(base, GRANULARITY, 0, &second).is_err(), "mapped twice");
        assert!(memory::is_device_range(base + GRANULARITY - 8, 16), "neighbours are one range");
        assert!(!memory::is_device_range(base + 2 * GRANULARITY - 8, 16));
        // SAFETY: the byte was mapped above.
        unsafe { *(base as *mut u8) = 42 };
        assert!(release(base).is_err());
        unmap(base).expect("unmap");
        assert!(unmap(base).is_err());
        map(base + 2 * GRANULARITY, GRANULARITY, 0, &first).expect("map");
        // SAFETY: the byte was mapped above.
        assert_eq!(unsafe { *((base + 2 * GRANULARITY) as *const u8) }, 42);
        unmap(base + 2 * GRANULARITY).expect("unmap");
        unmap(base + GRANULARITY).expect("unmap");
        release(base).expect("release");
        machine().physical.remove(first.handle);
        machine().physical.remove(second.handle);
    }
}

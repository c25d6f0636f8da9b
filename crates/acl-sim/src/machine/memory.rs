//! Device and pinned memory: every block that exists, by address.
//!
//! Always holds: an address is known or it is pageable host memory; a freed block leaves the books at once,
//! but its bytes stay mapped while its device still has work, so late work reads stale bytes and not another
//! program's. Refuses to know: what is in the memory.

use std::alloc::Layout;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use super::device::Device;
use super::refusal::{Answer, Refusal};
use super::table::lock;
use super::{codes, machine};

/// What every block starts at a multiple of.
pub const ALIGNMENT: usize = 64;
/// From here on a block is mapped, so that untouched pages cost nothing.
const MAP_FROM: usize = 64 << 10;
/// Freed blocks that may wait for their device to become idle.
const QUARANTINE_BLOCKS: usize = 4096;
/// And their bytes.
const QUARANTINE_BYTES: usize = 256 << 20;

/// Whose a block is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// Memory of a device.
    Device(i32),
    /// Physical memory that is mapped into a reserved range.
    Mapped(i32),
    /// Pinned host memory.
    Pinned,
    /// Host memory that the program registered.
    Registered,
}

#[derive(Debug, Clone, Copy)]
enum Backing {
    Heap(Layout),
    Map(usize),
    Foreign,
}

#[derive(Debug, Clone, Copy)]
struct Block {
    bytes: usize,
    charged: u64,
    owner: Owner,
    backing: Backing,
}

static BLOCKS: RwLock<BTreeMap<usize, Block>> = RwLock::new(BTreeMap::new());
static QUARANTINE: Mutex<Vec<(usize, Block)>> = Mutex::new(Vec::new());

/// Where an address is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// In the memory of a device.
    Device(i32),
    /// In host memory that the device can reach.
    Pinned,
    /// In ordinary host memory.
    Pageable,
}

/// How an allocation rounds its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rounding {
    /// Up to 32 bytes and 32 more: what reads past the end may touch.
    Padded,
    /// Up to 32 bytes.
    Exact,
}

/// Takes memory of a device.
pub fn allocate(device: &Arc<Device>, size: usize, rounding: Rounding) -> Answer<usize> {
    let padding = if rounding == Rounding::Padded { 32 } else { 0 };
    let rounded = size.checked_next_multiple_of(32).and_then(|size| size.checked_add(padding));
    let Some(rounded) = rounded.filter(|_| size > 0) else {
        return Refusal::answer(codes::PARAM_INVALID, format!("{size} bytes cannot be allocated"));
    };
    if !device.memory.take(rounded as u64) {
        let detail = format!(
            "Failed to allocate {size} bytes on device {}: {} of {} bytes are free; free some memory",
            device.id,
            device.memory.left(),
            device.memory.limit()
        );
        return Refusal::answer(codes::DEVICE_OOM, detail);
    }
    release_quarantine(false);
    let owner = Owner::Device(device.id);
    obtain(rounded, owner, rounded as u64).inspect_err(|_| device.memory.give(rounded as u64))
}

/// Takes pinned host memory.
pub fn allocate_host(size: usize) -> Answer<usize> {
    let rounded = size.checked_next_multiple_of(ALIGNMENT);
    let Some(rounded) = rounded.filter(|_| size > 0) else {
        return Refusal::answer(codes::PARAM_INVALID, format!("{size} bytes cannot be allocated"));
    };
    obtain(rounded, Owner::Pinned, 0)
}

fn obtain(bytes: usize, owner: Owner, charged: u64) -> Answer<usize> {
    let refused = || Refusal::new(codes::MEMORY_ALLOCATION, format!("the host has no {bytes} bytes left"));
    let (base, backing) = if bytes >= MAP_FROM {
        // SAFETY: an anonymous private mapping at an address of the kernel's choice touches no memory of
        // ours.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(refused());
        }
        (base as usize, Backing::Map(bytes))
    } else {
        let layout = Layout::from_size_align(bytes, ALIGNMENT).map_err(|_| refused())?;
        // SAFETY: both callers refuse a size of zero.
        let base = unsafe { std::alloc::alloc_zeroed(layout) };
        if base.is_null() {
            return Err(refused());
        }
        (base as usize, Backing::Heap(layout))
    };
    insert(base, Block { bytes, charged, owner, backing });
    Ok(base)
}

fn insert(base: usize, block: Block) {
    BLOCKS.write().unwrap_or_else(PoisonError::into_inner).insert(base, block);
}

fn take_if(base: usize, wanted: impl Fn(Owner) -> bool) -> Option<Block> {
    let mut blocks = BLOCKS.write().unwrap_or_else(PoisonError::into_inner);
    if blocks.get(&base).is_some_and(|block| wanted(block.owner)) { blocks.remove(&base) } else { None }
}

/// Gives device memory back.
pub fn free(base: usize) -> Answer {
    let Some(block) = take_if(base, |owner| matches!(owner, Owner::Device(_))) else {
        return Refusal::answer(
            codes::PARAM_INVALID,
            format!("{base:#x} is no device block; free what aclrtMalloc gave, once"),
        );
    };
    if let Owner::Device(id) = block.owner
        && let Ok(device) = machine().device(id)
    {
        device.memory.give(block.charged);
    }
    lock(&QUARANTINE).push((base, block));
    release_quarantine(false);
    Ok(())
}

/// Gives pinned host memory back.
pub fn free_host(base: usize) -> Answer {
    let Some(block) = take_if(base, |owner| owner == Owner::Pinned) else {
        return Refusal::answer(
            codes::PARAM_INVALID,
            format!("{base:#x} is no pinned block; free what aclrtMallocHost gave, once"),
        );
    };
    lock(&QUARANTINE).push((base, block));
    release_quarantine(false);
    Ok(())
}

/// Makes host memory of the program known as reachable by devices.
pub fn register(base: usize, bytes: usize) -> Answer {
    let mut blocks = BLOCKS.write().unwrap_or_else(PoisonError::into_inner);
    if blocks.contains_key(&base) {
        return Refusal::answer(codes::HOST_ALREADY_REGISTERED, format!("{base:#x} is registered already"));
    }
    blocks.insert(base, Block { bytes, charged: 0, owner: Owner::Registered, backing: Backing::Foreign });
    Ok(())
}

/// Undoes it.
pub fn unregister(base: usize) -> Answer {
    match take_if(base, |owner| owner == Owner::Registered) {
        Some(_) => Ok(()),
        None => Refusal::answer(codes::HOST_NOT_REGISTERED, format!("{base:#x} is not registered")),
    }
}

/// Notes that a reserved range now has memory of a device behind it.
pub fn note_mapped(base: usize, bytes: usize, device: i32) {
    insert(base, Block { bytes, charged: 0, owner: Owner::Mapped(device), backing: Backing::Foreign });
}

/// Notes that it has not any more.
pub fn note_unmapped(base: usize) {
    take_if(base, |owner| matches!(owner, Owner::Mapped(_)));
}

/// Drops everything of a device. With `leak`, the bytes stay: something may still use them.
pub fn drop_device(id: i32, leak: bool) {
    let gone: BTreeMap<usize, Block> = {
        let mut blocks = BLOCKS.write().unwrap_or_else(PoisonError::into_inner);
        let (gone, kept) =
            std::mem::take(&mut *blocks).into_iter().partition(|(_, block)| block.owner == Owner::Device(id));
        *blocks = kept;
        gone
    };
    for (base, block) in gone {
        if let Ok(device) = machine().device(id) {
            device.memory.give(block.charged);
        }
        if !leak {
            release(base, block);
        }
    }
}

fn release(base: usize, block: Block) {
    match block.backing {
        // SAFETY: the block left the books once, with the layout it was allocated with.
        Backing::Heap(layout) => unsafe { std::alloc::dealloc(base as *mut u8, layout) },
        Backing::Map(bytes) => {
            // SAFETY: the block left the books once; nothing else lives in its own mapping.
            unsafe { libc::munmap(base as *mut libc::c_void, bytes) };
        }
        Backing::Foreign => {}
    }
}

/// Returns freed blocks to the host when no device has work, or when too many wait.
pub fn release_quarantine(force: bool) {
    let idle = machine().devices().iter().all(|device| device.pending.load(Ordering::Acquire) == 0);
    let mut waiting = lock(&QUARANTINE);
    let goes = if idle || force {
        std::mem::take(&mut *waiting)
    } else {
        let mut bytes: usize = waiting.iter().map(|(_, block)| block.bytes).sum();
        let mut count = 0;
        while waiting.len() - count > QUARANTINE_BLOCKS || bytes > QUARANTINE_BYTES {
            let Some((_, block)) = waiting.get(count) else { break };
            bytes -= block.bytes;
            count += 1;
        }
        waiting.drain(..count).collect()
    };
    drop(waiting);
    for (base, block) in goes {
        release(base, block);
    }
}

/// Where `bytes` at `address` are; a range that leaves its block is an error.
pub fn place(address: usize, bytes: usize) -> Answer<Place> {
    let blocks = BLOCKS.read().unwrap_or_else(PoisonError::into_inner);
    let Some((_, first)) = holder(&blocks, address) else { return Ok(Place::Pageable) };
    let end = address.saturating_add(bytes);
    let mut at = address;
    while at < end {
        match holder(&blocks, at) {
            Some((base, block)) if block.owner == first.owner => at = base + block.bytes,
            _ => {
                let detail = format!("{bytes} bytes at {address:#x} leave the block they begin in");
                return Refusal::answer(codes::PARAM_INVALID, detail);
            }
        }
    }
    Ok(match first.owner {
        Owner::Device(id) | Owner::Mapped(id) => Place::Device(id),
        Owner::Pinned | Owner::Registered => Place::Pinned,
    })
}

/// Whether a range is device memory from end to end.
pub fn is_device_range(address: usize, bytes: usize) -> bool {
    matches!(place(address, bytes), Ok(Place::Device(_)))
}

fn holder(blocks: &BTreeMap<usize, Block>, address: usize) -> Option<(usize, Block)> {
    let (base, block) = blocks.range(..=address).next_back()?;
    (address < base + block.bytes).then_some((*base, *block))
}

/// Spoils a buffer the way a bad cell does: one bit in the first byte of every 64.
pub fn flip_bits(address: usize, bytes: usize) {
    if !is_device_range(address, bytes) {
        return;
    }
    for offset in (0..bytes).step_by(64) {
        // SAFETY: the whole range was just found in the books.
        unsafe { *((address + offset) as *mut u8) ^= 0x40 };
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::expect_used, clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn blocks_are_aligned_charged_and_found() {
        let device = machine().device(0).expect("device");
        let before = device.memory.used();
        let small = allocate(&device, 33, Rounding::Padded).expect("small");
        assert_eq!(small % ALIGNMENT, 0);
        assert!(device.memory.used() >= before + 96);
        assert_eq!(place(small + 95, 1), Ok(Place::Device(0)));
        assert!(place(small + 90, 10).is_err(), "the range leaves the block");
        assert!(free(small + 1).is_err());
        free(small).expect("free");
        assert!(free(small).is_err(), "twice");
        assert!(free(0).is_err());
        assert!(allocate(&device, 0, Rounding::Exact).is_err());
        let refused = allocate(&device, 1 << 60, Rounding::Exact).unwrap_err();
        assert_eq!(refused.code, codes::DEVICE_OOM);
    }

    #[test]
    fn host_memory_is_pageable_pinned_or_registered() {
        let mine = vec![0u8; 4096];
        let address = mine.as_ptr() as usize;
        assert_eq!(place(address, 4096), Ok(Place::Pageable));
        register(address, 4096).expect("register");
        assert_eq!(place(address, 4096), Ok(Place::Pinned));
        assert!(register(address, 4096).is_err());
        unregister(address).expect("unregister");
        assert!(unregister(address).is_err());
        let pinned = allocate_host(100).expect("pinned");
        assert_eq!(place(pinned, 100), Ok(Place::Pinned));
        assert!(free(pinned).is_err(), "pinned memory is not device memory");
        free_host(pinned).expect("free");
    }
}

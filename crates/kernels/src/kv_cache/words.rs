//! Memory of a cache: written by many at once, read as plain vectors.
//!
//! Always holds: writes go through atomics, so that writers cannot race; readers are kept away while anybody writes by
//! the contract of [`super::KvCache::write`].

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32};

use crate::lanes::LANES;
use crate::memory::AlignedVec;

/// Whether the system would give this many words: asked before, because running out later ends the process.
pub(super) fn has_room_for(words: usize) -> bool {
    Vec::<u32>::new().try_reserve_exact(words).is_ok()
}

/// Memory that is written through atomics (so that writers cannot race) and read as plain vectors.
#[derive(Debug)]
pub(super) struct Words {
    start: NonNull<u32>,
    len: usize,
    /// Owns what `start` points to, which stays the only way in.
    _memory: AlignedVec<u32>,
}

// SAFETY: the memory is owned; writes are atomic, and `KvCache::write` demands that nobody reads meanwhile.
unsafe impl Send for Words {}
// SAFETY: as above.
unsafe impl Sync for Words {}

impl Words {
    pub(super) fn zeroed(len: usize) -> Self {
        let mut memory = AlignedVec::zeroed(len);
        Self { start: memory.start_ptr(), len, _memory: memory }
    }

    #[inline]
    pub(super) fn words(&self, first: usize, len: usize) -> &[AtomicU32] {
        let start = self.place(first, len).cast::<AtomicU32>();
        // SAFETY: within the memory, aligned, and written by atomics only; readers are kept away by the contract of
        // `KvCache::write`.
        unsafe { std::slice::from_raw_parts(start, len) }
    }

    /// The halves of some words, as they lie in memory.
    #[inline]
    pub(super) fn halves(&self, first: usize, len: usize) -> &[AtomicU16] {
        let start = self.place(first, len).cast::<AtomicU16>();
        // SAFETY: as in `words`; what is written as halves is never written as words.
        unsafe { std::slice::from_raw_parts(start, 2 * len) }
    }

    /// The bytes of some words, as they lie in memory.
    #[inline]
    pub(super) fn bytes(&self, first: usize, len: usize) -> &[AtomicU8] {
        let start = self.place(first, len).cast::<AtomicU8>();
        // SAFETY: as in `words`; what is written as bytes is never written as words.
        unsafe { std::slice::from_raw_parts(start, 4 * len) }
    }

    #[inline]
    pub(super) fn vectors(&self, first: usize, len: usize) -> &[[u32; LANES]] {
        // SAFETY: within the memory; nobody writes while attention reads, by the contract of `KvCache::write`.
        let words = unsafe { std::slice::from_raw_parts(self.place(first, len), len) };
        words.as_chunks().0
    }

    /// Where some words begin, all of which exist.
    #[inline]
    fn place(&self, first: usize, len: usize) -> *mut u32 {
        assert!(first + len <= self.len, "words {first}..{} of {}", first + len, self.len);
        // SAFETY: within the memory, as was just checked.
        unsafe { self.start.as_ptr().add(first) }
    }
}

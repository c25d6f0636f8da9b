//! [`AlignedVec`]: a fixed-length array on a 64-byte border.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use memmap2::MmapMut;

/// A cache line, and the widest vector load.
const ALIGNMENT: usize = 64;
/// From this size on, pages are taken from the system directly, so that untouched ones cost nothing. The
/// allocator would write zeros to all of them.
const MAPPED_FROM: usize = 128 * 1024;

/// Types for which zero bytes are a value, any bytes are a value, and nothing happens on drop.
///
/// # Safety
/// All of the above must hold, the type must have no padding, and its alignment must be at most 64.
pub unsafe trait Plain: Copy + Send + Sync + 'static {}

macro_rules! plain {
    ($($type:ty),*) => {
        $(
            // SAFETY: a primitive number; every bit pattern is one, and its alignment is at most 8.
            unsafe impl Plain for $type {}
        )*
    };
}
plain!(u8, i8, u16, i16, u32, i32, u64, i64, f32, half::f16, half::bf16);

// SAFETY: an array of plain values has no padding of its own and the alignment of its element.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {}

/// A fixed-length array of plain values, starting as zeros on a 64-byte border.
///
/// Large arrays are mapped: pages that were never written take no memory, and [`AlignedVec::discard`] gives
/// written ones back.
pub struct AlignedVec<T: Plain> {
    start: NonNull<T>,
    len: usize,
    storage: Storage,
}

enum Storage {
    /// Length zero or of zero-sized values.
    Nothing,
    Heap(Layout),
    /// Kept for its drop and for advice; read and written only through `start`.
    Mapped(MmapMut),
}

// SAFETY: the vector owns its storage alone, and its values may be sent and shared (`Plain` demands it).
unsafe impl<T: Plain> Send for AlignedVec<T> {}
// SAFETY: as above; shared access only reads.
unsafe impl<T: Plain> Sync for AlignedVec<T> {}

impl<T: Plain> AlignedVec<T> {
    /// `len` zeros. Ends the process when memory is exhausted, as `Vec` does.
    #[must_use]
    pub fn zeroed(len: usize) -> Self {
        const { assert!(align_of::<T>() <= ALIGNMENT) };
        // A length whose bytes overflow cannot be had: saturate, and the allocator refuses it below.
        let bytes = len.saturating_mul(size_of::<T>());
        if bytes == 0 {
            return Self { start: NonNull::dangling(), len, storage: Storage::Nothing };
        }
        if bytes >= MAPPED_FROM
            && let Ok(mut map) = MmapMut::map_anon(bytes)
            && let Some(start) = NonNull::new(map.as_mut_ptr().cast::<T>())
        {
            return Self { start, len, storage: Storage::Mapped(map) };
        }
        let Ok(layout) = Layout::from_size_align(bytes, ALIGNMENT) else {
            handle_alloc_error(Layout::new::<T>());
        };
        // SAFETY: the layout has a size above zero.
        let Some(start) = NonNull::new(unsafe { alloc_zeroed(layout) }.cast::<T>()) else {
            handle_alloc_error(layout);
        };
        Self { start, len, storage: Storage::Heap(layout) }
    }

    /// A copy of `values`.
    #[must_use]
    pub fn from_slice(values: &[T]) -> Self {
        let mut copy = Self::zeroed(values.len());
        copy.copy_from_slice(values);
        copy
    }

    /// Asks the system to back a large array by large pages, which makes streaming through it cheaper.
    /// Written to sparsely, such an array takes more memory: for arrays that will be filled. Call before the
    /// first write.
    #[must_use]
    pub fn with_large_pages(self) -> Self {
        #[cfg(target_os = "linux")]
        if let Storage::Mapped(map) = &self.storage {
            // Only a hint; a system without large pages refuses it and serves small ones.
            drop(map.advise(memmap2::Advice::HugePage));
        }
        self
    }

    /// Where the array starts, for memory that several threads share: unlike a pointer taken from a slice, it
    /// stays usable after the array was read.
    #[must_use]
    pub fn start_ptr(&mut self) -> NonNull<T> {
        self.start
    }

    /// Bytes of the array.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.len * size_of::<T>()
    }

    /// Sets everything to zero; a large array gives its memory back to the system until it is written again.
    pub fn discard(&mut self) {
        #[cfg(target_os = "linux")]
        if let Storage::Mapped(map) = &self.storage {
            // SAFETY: a private anonymous mapping reads as zeros after this, which are values of `T`; `&mut
            // self` says that nobody holds a reference into it.
            let outcome = unsafe { map.unchecked_advise(memmap2::UncheckedAdvice::DontNeed) };
            if outcome.is_ok() {
                return;
            }
        }
        // SAFETY: `start` is valid for `len` values that this vector owns alone, and zero bytes are a value
        // of `T`.
        unsafe { self.start.as_ptr().write_bytes(0, self.len) };
    }
}

impl<T: Plain> Deref for AlignedVec<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: `start` is aligned and valid for `len` initialised values (zeros at first) while `self`
        // lives; for an empty vector it dangles but is aligned, which an empty slice allows.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<T: Plain> DerefMut for AlignedVec<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`, and `&mut self` makes the access exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl<T: Plain> Drop for AlignedVec<T> {
    fn drop(&mut self) {
        if let Storage::Heap(layout) = self.storage {
            // SAFETY: `start` came from the allocator with this very layout and is freed once.
            unsafe { dealloc(self.start.as_ptr().cast(), layout) };
        }
    }
}

impl<T: Plain> Default for AlignedVec<T> {
    fn default() -> Self {
        Self::zeroed(0)
    }
}

impl<T: Plain> Clone for AlignedVec<T> {
    fn clone(&self) -> Self {
        Self::from_slice(self)
    }
}

impl<T: Plain> std::fmt::Debug for AlignedVec<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AlignedVec").field("len", &self.len).finish_non_exhaustive()
    }
}

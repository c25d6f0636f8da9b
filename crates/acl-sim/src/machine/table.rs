//! Handles: what a program holds instead of pointers.
//!
//! Always holds: a handle is never used twice, so a destroyed one is found out and never followed. Locks here
//! survive a panic of a holder: the state they guard is written in single steps.

use std::collections::HashMap;
use std::ffi::c_void;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

/// Takes a lock, whatever its last holder did.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Handles are numbers already; hashing them again buys nothing.
#[derive(Default)]
pub struct Identity(u64);

impl Hasher for Identity {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 << 8) | u64::from(*byte);
        }
    }

    fn write_usize(&mut self, value: usize) {
        // The table takes its buckets from the low bits and its tags from the high ones.
        self.0 = (value as u64 >> 6).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

/// Far from anything the allocator hands out, so that a handle used as a pointer faults at once.
const FIRST: usize = 0x5ac1_0000_0000;
const STEP: usize = 64;

static NEXT: AtomicUsize = AtomicUsize::new(FIRST);

/// A handle that nobody had before.
pub fn next_handle() -> usize {
    NEXT.fetch_add(STEP, Ordering::Relaxed)
}

type Entries<T> = HashMap<usize, Arc<T>, BuildHasherDefault<Identity>>;

/// All living objects of one kind.
pub struct Table<T> {
    entries: RwLock<Entries<T>>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { entries: RwLock::default() }
    }
}

impl<T> Table<T> {
    /// Adds an object under its handle.
    pub fn insert(&self, handle: usize, object: Arc<T>) {
        self.entries.write().unwrap_or_else(PoisonError::into_inner).insert(handle, object);
    }

    /// Finds an object.
    pub fn get(&self, handle: *const c_void) -> Option<Arc<T>> {
        self.entries.read().unwrap_or_else(PoisonError::into_inner).get(&(handle as usize)).cloned()
    }

    /// Takes an object out.
    pub fn remove(&self, handle: usize) -> Option<Arc<T>> {
        self.entries.write().unwrap_or_else(PoisonError::into_inner).remove(&handle)
    }

    /// Takes out all objects that `goes` names.
    pub fn remove_where(&self, goes: impl Fn(&T) -> bool) -> Vec<Arc<T>> {
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        entries.extract_if(|_, object| goes(object)).map(|(_, object)| object).collect()
    }

    /// All objects that `wanted` names.
    pub fn all(&self, wanted: impl Fn(&T) -> bool) -> Vec<Arc<T>> {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        entries.values().filter(|object| wanted(object)).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_removed_handle_is_not_found_again() {
        let table = Table::default();
        let handle = next_handle();
        table.insert(handle, Arc::new(7));
        assert_eq!(table.get(handle as *const c_void).as_deref(), Some(&7));
        table.remove(handle);
        assert!(table.get(handle as *const c_void).is_none());
        assert_ne!(next_handle(), handle);
    }
}

//! Marked boxes behind every opaque pointer of the tensor ABI.
//!
//! Always holds: memory of a destroyed object is never given back to the allocator, and is used again only
//! after [`QUARANTINE`] others of its kind were destroyed. So a stale handle is read safely and is found
//! dead, not alive as something else.
//!
//! Refuses to know: what is in the box.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How many dead objects of one kind lie between a destroyed handle and its memory being used again.
pub const QUARANTINE: usize = 4096;

/// The mark of a destroyed object.
const DEAD: u64 = 0xdead_0bec_dead_0bec;

/// A kind of object that lives behind an opaque pointer.
pub trait Kind: Sized + Send + 'static {
    /// What live objects of the kind are marked with.
    const MARK: u64;
    /// Where the addresses of dead ones are kept.
    fn graveyard() -> &'static Graveyard;
}

/// Addresses of dead objects, oldest first.
pub struct Graveyard(Mutex<VecDeque<usize>>);

impl Graveyard {
    /// An empty one.
    #[must_use]
    pub const fn new() -> Self {
        Self(Mutex::new(VecDeque::new()))
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Graveyard {
    fn default() -> Self {
        Self::new()
    }
}

/// The box itself. Clients only ever hold its address.
#[repr(C)]
pub struct Handle<T> {
    mark: u64,
    value: Option<T>,
}

/// Boxes a value and gives its handle.
pub fn create<T: Kind>(value: T) -> *mut Handle<T> {
    let old = {
        let mut dead = T::graveyard().lock();
        if dead.len() > QUARANTINE { dead.pop_front() } else { None }
    };
    match old {
        Some(address) => {
            let pointer = address as *mut Handle<T>;
            // SAFETY: the address came from `Box::into_raw` below, is never freed, and left the graveyard, so
            // it is ours alone.
            unsafe { *pointer = Handle { mark: T::MARK, value: Some(value) } };
            pointer
        }
        None => Box::into_raw(Box::new(Handle { mark: T::MARK, value: Some(value) })),
    }
}

fn is_live<T: Kind>(pointer: *const Handle<T>) -> bool {
    if pointer.is_null() || !(pointer as usize).is_multiple_of(align_of::<Handle<T>>()) {
        return false;
    }
    // SAFETY: not null and aligned; handles stay readable for ever. A pointer that never was a handle must at
    // least be readable, which is what the C ABI asks of its caller.
    let mark = unsafe { std::ptr::addr_of!((*pointer).mark).read() };
    mark == T::MARK
}

/// The object behind a live handle.
#[must_use]
pub fn get<'a, T: Kind>(pointer: *const Handle<T>) -> Option<&'a T> {
    if !is_live(pointer) {
        return None;
    }
    // SAFETY: the mark says that it is a live `Handle<T>`; the ABI forbids destroying it during a call that
    // uses it.
    unsafe { (*pointer).value.as_ref() }
}

/// The object behind a live handle, to change it.
#[must_use]
pub fn get_mut<'a, T: Kind>(pointer: *mut Handle<T>) -> Option<&'a mut T> {
    if !is_live(pointer) {
        return None;
    }
    // SAFETY: as in `get`; the ABI forbids using one object from two threads while it is changed.
    unsafe { (*pointer).value.as_mut() }
}

/// Kills a handle and gives its value back, or nothing if it was not alive.
pub fn destroy<T: Kind>(pointer: *mut Handle<T>) -> Option<T> {
    if !is_live(pointer) {
        return None;
    }
    // SAFETY: alive, and the ABI allows one thread to destroy it.
    let value = unsafe {
        (*pointer).mark = DEAD;
        (*pointer).value.take()
    };
    T::graveyard().lock().push_back(pointer as usize);
    value
}

/// Gives a kind its mark and its graveyard.
#[macro_export]
#[doc(hidden)]
macro_rules! handle_kind {
    ($kind:ty, $mark:expr) => {
        impl $crate::tensor::handle::Kind for $kind {
            const MARK: u64 = $mark;
            fn graveyard() -> &'static $crate::tensor::handle::Graveyard {
                static DEAD: $crate::tensor::handle::Graveyard = $crate::tensor::handle::Graveyard::new();
                &DEAD
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::{create, destroy, get};

    struct Thing(u32);
    handle_kind!(Thing, 0x7468_696e_6700_0001);
    struct Other(#[allow(dead_code, reason = "only its mark matters")] u32);
    handle_kind!(Other, 0x7468_696e_6700_0002);

    #[test]
    fn a_dead_or_foreign_handle_is_found_out() {
        let thing = create(Thing(7));
        assert_eq!(get(thing).map(|thing| thing.0), Some(7));
        assert!(get(thing.cast::<super::Handle<Other>>()).is_none());
        assert_eq!(destroy(thing).map(|thing| thing.0), Some(7));
        for round in 0..100 {
            let next = create(Thing(round));
            assert_ne!(next, thing, "memory of a fresh corpse is not used again");
            destroy(next);
        }
        assert!(get(thing).is_none());
        assert!(destroy(thing).is_none());
        assert!(get(std::ptr::null::<super::Handle<Thing>>()).is_none());
    }
}

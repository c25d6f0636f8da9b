//! The allocator plug-in: descriptions of the program's allocators, one a stream.
//!
//! Operators of the simulated library need no memory of their own, so a registered allocator is told and
//! never called.

use std::ffi::c_void;
use std::sync::{Arc, Mutex};

use super::{call, invalid, put};
use crate::machine::refusal::{Answer, Refusal};
use crate::machine::table::{Table, lock, next_handle};
use crate::machine::{codes, stream};

/// An allocator: its object and its four functions, by address.
#[derive(Debug, Clone, Copy, Default)]
struct Allocator {
    object: usize,
    functions: [usize; 4],
}

type Description = Mutex<Allocator>;

const ALLOC: usize = 0;
const FREE: usize = 1;
const ADVISE: usize = 2;
const ADDRESS: usize = 3;

fn descriptions() -> &'static Table<Description> {
    static DESCRIPTIONS: std::sync::OnceLock<Table<Description>> = std::sync::OnceLock::new();
    DESCRIPTIONS.get_or_init(Table::default)
}

/// What is registered, by stream: the description's handle and what it said then.
fn registered() -> &'static Table<(usize, Allocator)> {
    static REGISTERED: std::sync::OnceLock<Table<(usize, Allocator)>> = std::sync::OnceLock::new();
    REGISTERED.get_or_init(Table::default)
}

fn find(handle: *mut c_void) -> Answer<Arc<Description>> {
    let found = descriptions().get(handle);
    found.ok_or_else(|| {
        Refusal::new(codes::PARAM_INVALID, "the allocator description is null or was destroyed")
    })
}

/// Makes a description.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtAllocatorCreateDesc() -> *mut c_void {
    let handle = next_handle();
    descriptions().insert(handle, Arc::default());
    handle as *mut c_void
}

/// Ends it.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtAllocatorDestroyDesc(handle: *mut c_void) -> i32 {
    call(|| {
        find(handle)?;
        descriptions().remove(handle as usize);
        Ok(())
    })
}

/// Sets the object that the functions get.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtAllocatorSetObjToDesc(handle: *mut c_void, object: *mut c_void) -> i32 {
    call(|| {
        if object.is_null() {
            return invalid("the object is null");
        }
        let description = find(handle)?;
        lock(&description).object = object as usize;
        Ok(())
    })
}

fn set(handle: *mut c_void, which: usize, function: *mut c_void) -> i32 {
    call(|| {
        if function.is_null() {
            return invalid("the function is null");
        }
        let description = find(handle)?;
        if let Some(slot) = lock(&description).functions.get_mut(which) {
            *slot = function as usize;
        }
        Ok(())
    })
}

/// Sets the function that allocates.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtAllocatorSetAllocFuncToDesc(handle: *mut c_void, function: *mut c_void) -> i32 {
    set(handle, ALLOC, function)
}

/// Sets the function that frees.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtAllocatorSetFreeFuncToDesc(handle: *mut c_void, function: *mut c_void) -> i32 {
    set(handle, FREE, function)
}

/// Sets the function that allocates near an address.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtAllocatorSetAllocAdviseFuncToDesc(handle: *mut c_void, function: *mut c_void) -> i32 {
    set(handle, ADVISE, function)
}

/// Sets the function that tells the address of a block.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtAllocatorSetGetAddrFromBlockFuncToDesc(
    handle: *mut c_void,
    function: *mut c_void,
) -> i32 {
    set(handle, ADDRESS, function)
}

/// Lets a stream use an allocator.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtAllocatorRegister(stream: *mut c_void, handle: *mut c_void) -> i32 {
    call(|| {
        let stream = stream::find(stream)?;
        let description = find(handle)?;
        let allocator = *lock(&description);
        if allocator.object == 0 || allocator.functions.contains(&0) {
            return invalid("the description lacks its object or a function; set all five");
        }
        registered().insert(stream.handle, Arc::new((handle as usize, allocator)));
        Ok(())
    })
}

/// Ends that.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtAllocatorUnregister(stream: *mut c_void) -> i32 {
    call(|| {
        let stream = stream::find(stream)?;
        registered().remove(stream.handle);
        Ok(())
    })
}

/// Tells the allocator of a stream.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtAllocatorGetByStream(
    stream: *mut c_void,
    description: *mut *mut c_void,
    object: *mut *mut c_void,
    alloc: *mut *mut c_void,
    free: *mut *mut c_void,
    advise: *mut *mut c_void,
    address: *mut *mut c_void,
) -> i32 {
    call(|| {
        let stream = stream::find(stream)?;
        let Some(known) = registered().get(stream.handle as *const c_void) else {
            return invalid(format!("stream {} has no allocator; register one first", stream.id));
        };
        let (handle, allocator) = *known;
        put(description, handle as *mut c_void)?;
        put(object, allocator.object as *mut c_void)?;
        let outs = [alloc, free, advise, address];
        outs.into_iter()
            .zip(allocator.functions)
            .try_for_each(|(out, function)| put(out, function as *mut c_void))
    })
}

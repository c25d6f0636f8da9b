//! Stream attributes, and streams made from a description.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::{call, invalid, put, wants};
use crate::machine::refusal::{Answer, Refusal};
use crate::machine::table::{Table, next_handle};
use crate::machine::{capture, codes, stream};

/// Attributes of a stream: failure mode, overflow, tag, cache, priority.
const FAILURE_MODE: i32 = 1;
const OVERFLOW: usize = 2;
const ATTRIBUTES: std::ops::RangeInclusive<i32> = 1..=5;

/// The value of an attribute.
#[repr(C)]
pub struct AttributeValue {
    words: [u32; 4],
}

/// Sets an attribute.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtSetStreamAttribute(
    handle: *mut c_void,
    attribute: i32,
    value: *const AttributeValue,
) -> i32 {
    call(|| {
        if value.is_null() || !ATTRIBUTES.contains(&attribute) {
            return invalid("the value is null, or the attribute is unknown");
        }
        // SAFETY: not null, and the caller of the ABI vouches that it points to a value.
        let words = unsafe { value.read_unaligned() }.words;
        let stream = stream::find(handle)?;
        capture::forbid_stream(&stream, "change of attributes")?;
        if attribute == FAILURE_MODE {
            super::stream::set_failure_mode(&stream, u64::from(words[0]))?;
        }
        if let Some(slot) = stream.attributes.get(attribute as usize) {
            slot.store(words[0], Ordering::Relaxed);
        }
        Ok(())
    })
}

/// Tells an attribute.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtGetStreamAttribute(
    handle: *mut c_void,
    attribute: i32,
    value: *mut AttributeValue,
) -> i32 {
    call(|| {
        if !ATTRIBUTES.contains(&attribute) {
            return invalid(format!("{attribute} is no stream attribute"));
        }
        let stream = stream::find(handle)?;
        let word = match attribute {
            FAILURE_MODE => u32::from(stream.stop_on_failure.load(Ordering::Relaxed)),
            5 => stream.priority,
            other => stream.attributes.get(other as usize).map_or(0, |slot| slot.load(Ordering::Relaxed)),
        };
        put(value, AttributeValue { words: [word, 0, 0, 0] })
    })
}

/// Switches overflow detection: kept and told; nothing overflows silently here.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtSetStreamOverflowSwitch(handle: *mut c_void, flag: u32) -> i32 {
    call(|| {
        if flag > 1 {
            return invalid("the switch is 0 or 1");
        }
        let stream = stream::find(handle)?;
        capture::forbid_stream(&stream, "overflow switch")?;
        stream.attributes[OVERFLOW].store(flag, Ordering::Relaxed);
        Ok(())
    })
}

/// Tells the switch.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtGetStreamOverflowSwitch(handle: *mut c_void, flag: *mut u32) -> i32 {
    call(|| put(flag, stream::find(handle)?.attributes[OVERFLOW].load(Ordering::Relaxed)))
}

/// The description of a stream to be made.
#[derive(Default)]
struct Description {
    flags: AtomicU32,
    priority: AtomicU32,
}

fn descriptions() -> &'static Table<Description> {
    static DESCRIPTIONS: std::sync::OnceLock<Table<Description>> = std::sync::OnceLock::new();
    DESCRIPTIONS.get_or_init(Table::default)
}

fn find(handle: *const c_void) -> Answer<Arc<Description>> {
    let found = descriptions().get(handle);
    found.ok_or_else(|| Refusal::new(codes::PARAM_INVALID, "the stream description is null or was destroyed"))
}

/// Makes a description.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtCreateStreamConfigHandle() -> *mut c_void {
    let handle = next_handle();
    descriptions().insert(handle, Arc::default());
    handle as *mut c_void
}

/// Ends it.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtDestroyStreamConfigHandle(handle: *mut c_void) -> i32 {
    call(|| {
        find(handle)?;
        descriptions().remove(handle as usize);
        Ok(())
    })
}

/// Sets an entry: 0 work address, 1 work size, 2 flags, 3 priority.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtSetStreamConfigOpt(
    handle: *mut c_void,
    entry: i32,
    value: *const c_void,
    size: usize,
) -> i32 {
    call(|| {
        let description = find(handle)?;
        let word = || {
            if value.is_null() || size != size_of::<u32>() {
                return invalid("the value is null or has not four bytes");
            }
            // SAFETY: not null, and four bytes long as the caller says.
            Ok(unsafe { value.cast::<u32>().read_unaligned() })
        };
        match entry {
            0 | 1 if !value.is_null() && size == size_of::<usize>() => Ok(()),
            2 => {
                description.flags.store(word()?, Ordering::Relaxed);
                Ok(())
            }
            3 => {
                description.priority.store(word()?, Ordering::Relaxed);
                Ok(())
            }
            _ => invalid(format!("{entry} is no entry of a stream description")),
        }
    })
}

/// Makes a stream from a description; null stands for the usual one.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtCreateStreamV2(out: *mut *mut c_void, handle: *const c_void) -> i32 {
    call(|| {
        wants(out)?;
        if handle.is_null() {
            return super::stream::create(out, 0, 0);
        }
        let description = find(handle)?;
        let priority = description.priority.load(Ordering::Relaxed);
        super::stream::create(out, priority, description.flags.load(Ordering::Relaxed))
    })
}

//! Host arrays and lists: `aclIntArray`, `aclFloatArray`, `aclBoolArray`, `aclTensorList`, `aclScalarList`.
//!
//! Always holds: elements are copied at creation; destroying a list destroys its members.
//!
//! Refuses to know: operators.

use super::handle::{self, Handle};
use super::objects::{Scalar, Tensor, dead};
use crate::executor::status::{NULL, report};

/// Members a list or array may have at most.
const MAX_MEMBERS: u64 = 1 << 24;

/// What an `aclIntArray` holds.
pub struct IntArray(pub Vec<i64>);
crate::handle_kind!(IntArray, 0x6163_6c69_6e74_6172);

/// What an `aclFloatArray` holds.
pub struct FloatArray(pub Vec<f32>);
crate::handle_kind!(FloatArray, 0x6163_6c66_6c6f_6174);

/// What an `aclBoolArray` holds.
pub struct BoolArray(pub Vec<bool>);
crate::handle_kind!(BoolArray, 0x6163_6c62_6f6f_6c61);

/// What an `aclTensorList` holds: handles of its members.
pub struct TensorList(Vec<usize>);
crate::handle_kind!(TensorList, 0x6163_6c74_656e_6c69);

/// What an `aclScalarList` holds: handles of its members.
pub struct ScalarList(Vec<usize>);
crate::handle_kind!(ScalarList, 0x6163_6c73_6361_6c69);

impl TensorList {
    /// Its members' handles.
    pub fn members(&self) -> impl Iterator<Item = *const Handle<Tensor>> {
        self.0.iter().map(|address| *address as *const Handle<Tensor>)
    }

    /// How many members.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn copied<T: Copy>(pointer: *const T, count: u64, function: &str) -> Option<Vec<T>> {
    if count == 0 {
        return Some(Vec::new());
    }
    if pointer.is_null() || count > MAX_MEMBERS {
        report(NULL, &format!("{function}: the values are null, or more than {MAX_MEMBERS}"));
        return None;
    }
    // SAFETY: not null, and the caller says how long it is.
    Some(unsafe { std::slice::from_raw_parts(pointer, count as usize) }.to_vec())
}

macro_rules! array {
    ($kind:ident, $element:ty, $create:ident, $destroy:ident, $size:ident) => {
        /// Copies the values into an array object.
        #[unsafe(no_mangle)]
        pub extern "C" fn $create(values: *const $element, count: u64) -> *mut Handle<$kind> {
            copied(values, count, stringify!($create))
                .map_or(std::ptr::null_mut(), |values| handle::create($kind(values)))
        }

        /// Destroys an array object.
        #[unsafe(no_mangle)]
        pub extern "C" fn $destroy(array: *const Handle<$kind>) -> i32 {
            match handle::destroy(array.cast_mut()) {
                Some(_) => 0,
                None => dead(stringify!($destroy)),
            }
        }

        /// How many values an array object has.
        #[unsafe(no_mangle)]
        pub extern "C" fn $size(array: *const Handle<$kind>, size: *mut u64) -> i32 {
            match handle::get(array) {
                Some(array) if !size.is_null() => {
                    // SAFETY: not null, and the caller's to write.
                    unsafe { size.write(array.0.len() as u64) };
                    0
                }
                _ => NULL,
            }
        }
    };
}
array!(IntArray, i64, aclCreateIntArray, aclDestroyIntArray, aclGetIntArraySize);
array!(FloatArray, f32, aclCreateFloatArray, aclDestroyFloatArray, aclGetFloatArraySize);
array!(BoolArray, bool, aclCreateBoolArray, aclDestroyBoolArray, aclGetBoolArraySize);

macro_rules! list {
    ($kind:ident, $member:ty, $create:ident, $destroy:ident, $size:ident) => {
        /// Makes a list, which owns its members from now on.
        #[unsafe(no_mangle)]
        pub extern "C" fn $create(members: *const *const Handle<$member>, count: u64) -> *mut Handle<$kind> {
            copied(members, count, stringify!($create)).map_or(std::ptr::null_mut(), |members| {
                handle::create($kind(members.into_iter().map(|member| member as usize).collect()))
            })
        }

        /// Destroys a list and its members.
        #[unsafe(no_mangle)]
        pub extern "C" fn $destroy(list: *const Handle<$kind>) -> i32 {
            let Some(list) = handle::destroy(list.cast_mut()) else { return dead(stringify!($destroy)) };
            for member in list.0 {
                handle::destroy(member as *mut Handle<$member>);
            }
            0
        }

        /// How many members a list has.
        #[unsafe(no_mangle)]
        pub extern "C" fn $size(list: *const Handle<$kind>, size: *mut u64) -> i32 {
            match handle::get(list) {
                Some(list) if !size.is_null() => {
                    // SAFETY: not null, and the caller's to write.
                    unsafe { size.write(list.0.len() as u64) };
                    0
                }
                _ => NULL,
            }
        }
    };
}
list!(TensorList, Tensor, aclCreateTensorList, aclDestroyTensorList, aclGetTensorListSize);
list!(ScalarList, Scalar, aclCreateScalarList, aclDestroyScalarList, aclGetScalarListSize);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::objects::aclCreateTensor;

    #[test]
    fn a_list_destroys_its_members() {
        let dims = [1i64];
        let make = || {
            let data = std::ptr::null_mut();
            aclCreateTensor(dims.as_ptr(), 1, 0, std::ptr::null(), 0, 2, dims.as_ptr(), 1, data).cast_const()
        };
        let members = [make(), make()];
        let list = aclCreateTensorList(members.as_ptr(), 2);
        let mut size = 0;
        assert_eq!(aclGetTensorListSize(list, &raw mut size), 0);
        assert_eq!(size, 2);
        assert_eq!(aclDestroyTensorList(list), 0);
        assert!(handle::get(members[1]).is_none());
        assert_eq!(aclDestroyTensorList(list), NULL);
    }
}

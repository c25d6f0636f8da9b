//! Executors as clients handle them: repeatable ones, replaced addresses, destruction.
//!
//! Always holds: an address is replaced in the executor and in the tensor object, for the next second phase.
//!
//! Refuses to know: operators.

use std::ffi::{c_char, c_void};

use super::Executor;
use super::plan::Place;
use super::status::{EXECUTOR, INVALID, report};
use crate::tensor::handle::{self, Handle};
use crate::tensor::lists::TensorList;
use crate::tensor::objects::Tensor;

/// Starts the operator library; optional after `aclInit`.
#[unsafe(no_mangle)]
pub extern "C" fn aclnnInit(_config: *const c_char) -> i32 {
    0
}

/// Ends the operator library.
#[unsafe(no_mangle)]
pub extern "C" fn aclnnFinalize() -> i32 {
    0
}

fn gone(function: &str) -> i32 {
    report(EXECUTOR, &format!("{function}: the executor is null, was used up or destroyed"))
}

/// Lets an executor be launched more than once.
#[unsafe(no_mangle)]
pub extern "C" fn aclSetAclOpExecutorRepeatable(executor: *mut Handle<Executor>) -> i32 {
    match handle::get_mut(executor) {
        Some(executor) => {
            executor.repeatable = true;
            0
        }
        None => gone("aclSetAclOpExecutorRepeatable"),
    }
}

/// Destroys a repeatable executor.
#[unsafe(no_mangle)]
pub extern "C" fn aclDestroyAclOpExecutor(executor: *mut Handle<Executor>) -> i32 {
    match handle::destroy(executor) {
        Some(_) => 0,
        None => gone("aclDestroyAclOpExecutor"),
    }
}

fn replace(
    function: &str,
    executor: *mut Handle<Executor>,
    tensor: *mut Handle<Tensor>,
    address: *mut c_void,
    chosen: impl Fn(&Place) -> bool,
) -> i32 {
    let Some(planned) = handle::get_mut(executor) else { return gone(function) };
    let mut found = false;
    for (place, view) in planned.places.iter().zip(&mut planned.views.0) {
        if chosen(place) {
            view.data = address as usize;
            found = true;
        }
    }
    if !found {
        let operator = planned.operator;
        return report(INVALID, &format!("{function}: {operator} has no tensor with that index"));
    }
    if let Some(tensor) = handle::get_mut(tensor) {
        tensor.view.data = address as usize;
    }
    0
}

macro_rules! replace_one {
    ($($name:ident)|+, $chosen:expr) => {
        $(
            #[doc = concat!("Replaces an address of an executor (`", stringify!($name), "`).")]
            #[unsafe(no_mangle)]
            pub extern "C" fn $name(
                executor: *mut Handle<Executor>,
                index: usize,
                tensor: *mut Handle<Tensor>,
                address: *mut c_void,
            ) -> i32 {
                let chosen: fn(&Place, usize) -> bool = $chosen;
                replace(stringify!($name), executor, tensor, address, |place| chosen(place, index))
            }
        )+
    };
}
replace_one!(aclSetInputTensorAddr | AclSetInputTensorAddr, |place, index| {
    place.input.map(usize::from) == Some(index)
});
replace_one!(aclSetOutputTensorAddr | AclSetOutputTensorAddr, |place, index| {
    place.output.map(usize::from) == Some(index)
});
replace_one!(aclSetTensorAddr | AclSetTensorAddr, |place, index| usize::from(place.argument) == index);

macro_rules! replace_member {
    ($($name:ident)|+, $chosen:expr) => {
        $(
            #[doc = concat!("Replaces an address in a list of an executor (`", stringify!($name), "`).")]
            #[unsafe(no_mangle)]
            pub extern "C" fn $name(
                executor: *mut Handle<Executor>,
                index: usize,
                member: usize,
                tensors: *mut Handle<TensorList>,
                address: *mut c_void,
            ) -> i32 {
                let chosen: fn(&Place, usize) -> bool = $chosen;
                let tensor = handle::get(tensors)
                    .and_then(|list| list.members().nth(member))
                    .unwrap_or(std::ptr::null());
                replace(stringify!($name), executor, tensor.cast_mut(), address, |place| {
                    chosen(place, index) && usize::from(place.member) == member
                })
            }
        )+
    };
}
replace_member!(aclSetDynamicInputTensorAddr | AclSetDynamicInputTensorAddr, |place, index| {
    place.input.map(usize::from) == Some(index)
});
replace_member!(aclSetDynamicOutputTensorAddr | AclSetDynamicOutputTensorAddr, |place, index| {
    place.output.map(usize::from) == Some(index)
});
replace_member!(aclSetDynamicTensorAddr | AclSetDynamicTensorAddr, |place, index| {
    usize::from(place.argument) == index
});

//! Both phases, and the macro that gives an operator its two symbols.
//!
//! Always holds: a first phase that fails sets no executor; a second phase gives its executor up unless it
//! was made repeatable; a workspace that is too small is refused, and what is in it is scribbled over by
//! every run.
//!
//! Refuses to know: streams beyond [`crate::launch::submit`].

use std::ffi::c_void;
use std::sync::Arc;

use super::plan::{Plan, Planned};
use super::status::{AICORE_FAULT, EXECUTOR, INVALID, NO_KERNEL, NULL, RUNTIME, report};
use super::{Executor, Views, Work};
use crate::launch::{Launch, has_operator, submit};
use crate::tensor::handle::{self, Handle};
use crate::tensor::view::View;

/// Bytes at either end of a workspace that every run overwrites, so that a client that keeps data there
/// notices.
const SCRIBBLE: usize = 64;

/// Checks a call, plans it, and gives its executor out.
pub fn first_phase(
    operator: &'static str,
    workspace: *mut u64,
    executor: *mut *mut Handle<Executor>,
    build: impl FnOnce(&mut Plan) -> Planned,
) -> i32 {
    if workspace.is_null() || executor.is_null() {
        return report(NULL, &format!("{operator}: workspaceSize or executor is a null pointer"));
    }
    if !has_operator(operator) {
        return report(NO_KERNEL, &format!("{operator}: this installation has no kernel for it"));
    }
    let mut plan = Plan::default();
    plan.views.0.reserve(12);
    plan.places.reserve(12);
    let work = match build(&mut plan) {
        Ok(work) => work,
        Err(refusal) => {
            return report(refusal.code(), &format!("{operator}: {refusal}"));
        }
    };
    let Plan { views, places, workspace: size, .. } = plan;
    let made = handle::create(Executor { operator, views, places, workspace: size, repeatable: false, work });
    // SAFETY: both are not null, and the caller's to write.
    unsafe {
        workspace.write(size);
        executor.write(made);
    }
    0
}

/// Puts a planned call on a stream.
pub fn second_phase(
    operator: &'static str,
    workspace: *mut c_void,
    size: u64,
    executor: *mut Handle<Executor>,
    stream: *mut c_void,
) -> i32 {
    if executor.is_null() {
        return report(NULL, &format!("{operator}: executor is a null pointer"));
    }
    let Some(planned) = handle::get(executor) else {
        let text = format!("{operator}: the executor was used up by a launch before: plan again");
        return report(EXECUTOR, &text);
    };
    if planned.operator != operator {
        let other = planned.operator;
        return report(EXECUTOR, &format!("{operator}: the executor was planned for {other}"));
    }
    if planned.workspace > 0 && (workspace.is_null() || size < planned.workspace) {
        let needed = planned.workspace;
        let code = if workspace.is_null() { NULL } else { INVALID };
        return report(code, &format!("{operator}: the workspace has {size} bytes, {needed} are needed"));
    }
    let needed = planned.workspace as usize;
    let outputs = planned
        .places
        .iter()
        .zip(&planned.views.0)
        .filter(|(place, _)| place.output.is_some())
        .filter_map(|(_, view)| view.span())
        .map(|(low, high)| (low, high - low))
        .collect();
    let (views, work) = if planned.repeatable {
        (planned.views.clone(), planned.work.clone())
    } else {
        match handle::destroy(executor) {
            Some(planned) => (planned.views, planned.work),
            None => return EXECUTOR,
        }
    };
    let scratch = workspace as usize;
    let run = move || run(&views, &work, scratch, needed);
    let launch = Launch { operator, updatable: true, outputs, work: Arc::new(run) };
    match submit(stream, launch) {
        0 => 0,
        _ => RUNTIME,
    }
}

fn run(views: &Views, work: &Work, scratch: usize, needed: usize) -> Result<(), i32> {
    // What a kernel reads must be device memory as much as what it writes, which the runtime checks.
    let reachable = |view: &View| {
        view.span().is_none_or(|(low, high)| crate::machine::memory::is_device_range(low, high - low))
    };
    if !views.0.iter().all(reachable) {
        return Err(AICORE_FAULT);
    }
    if needed > 0 {
        let length = SCRIBBLE.min(needed);
        // SAFETY: the second phase checked that the caller lent at least `needed` bytes.
        unsafe {
            std::ptr::write_bytes(scratch as *mut u8, 0xa5, length);
            std::ptr::write_bytes((scratch + needed - length) as *mut u8, 0xa5, length);
        }
    }
    work(views)
}

/// The C type of a kind of argument.
#[macro_export]
#[doc(hidden)]
macro_rules! argument_type {
    (input) => { *const $crate::tensor::handle::Handle<$crate::tensor::objects::Tensor> };
    (optional) => { *const $crate::tensor::handle::Handle<$crate::tensor::objects::Tensor> };
    (output) => { *const $crate::tensor::handle::Handle<$crate::tensor::objects::Tensor> };
    (inout) => { *const $crate::tensor::handle::Handle<$crate::tensor::objects::Tensor> };
    (optional_output) => { *const $crate::tensor::handle::Handle<$crate::tensor::objects::Tensor> };
    (list) => { *const $crate::tensor::handle::Handle<$crate::tensor::lists::TensorList> };
    (optional_list) => { *const $crate::tensor::handle::Handle<$crate::tensor::lists::TensorList> };
    (output_list) => { *const $crate::tensor::handle::Handle<$crate::tensor::lists::TensorList> };
    (optional_output_list) => { *const $crate::tensor::handle::Handle<$crate::tensor::lists::TensorList> };
    (scalar) => { *const $crate::tensor::handle::Handle<$crate::tensor::objects::Scalar> };
    (optional_scalar) => { *const $crate::tensor::handle::Handle<$crate::tensor::objects::Scalar> };
    (ints) => { *const $crate::tensor::handle::Handle<$crate::tensor::lists::IntArray> };
    (optional_ints) => { *const $crate::tensor::handle::Handle<$crate::tensor::lists::IntArray> };
    (optional_bools) => { *const $crate::tensor::handle::Handle<$crate::tensor::lists::BoolArray> };
    (text) => { *const std::ffi::c_char };
    (i8) => { i8 };
    (i32) => { i32 };
    (i64) => { i64 };
    (u64) => { u64 };
    (f32) => { f32 };
    (f64) => { f64 };
    (bool) => { bool };
}

/// Takes one argument into a plan.
#[macro_export]
#[doc(hidden)]
macro_rules! take_argument {
    ($plan:ident, i8, $arg:ident) => {
        $plan.value(stringify!($arg), $arg)?
    };
    ($plan:ident, i32, $arg:ident) => {
        $plan.value(stringify!($arg), $arg)?
    };
    ($plan:ident, i64, $arg:ident) => {
        $plan.value(stringify!($arg), $arg)?
    };
    ($plan:ident, u64, $arg:ident) => {
        $plan.value(stringify!($arg), $arg)?
    };
    ($plan:ident, f32, $arg:ident) => {
        $plan.value(stringify!($arg), $arg)?
    };
    ($plan:ident, f64, $arg:ident) => {
        $plan.value(stringify!($arg), $arg)?
    };
    ($plan:ident, bool, $arg:ident) => {
        $plan.value(stringify!($arg), $arg)?
    };
    ($plan:ident, $kind:ident, $arg:ident) => {
        $plan.$kind(stringify!($arg), $arg)?
    };
}

/// Gives an operator its two symbols: name of the second phase, name of the first, the arguments with their
/// kinds, and the function that checks them and returns the work.
#[macro_export]
#[doc(hidden)]
macro_rules! operator {
    ($name:ident, $first:ident, ($($arg:ident: $kind:tt),* $(,)?) => $build:expr) => {
        #[doc = concat!("First phase of `", stringify!($name), "`.")]
        #[unsafe(no_mangle)]
        pub extern "C" fn $first(
            $($arg: $crate::argument_type!($kind),)*
            workspace_size: *mut u64,
            executor: *mut *mut $crate::tensor::handle::Handle<$crate::executor::Executor>,
        ) -> i32 {
            $crate::executor::phases::first_phase(stringify!($name), workspace_size, executor, |plan| {
                $(let $arg = $crate::take_argument!(plan, $kind, $arg);)*
                ($build)(plan, $($arg),*)
            })
        }

        #[doc = concat!("Second phase of `", stringify!($name), "`.")]
        #[unsafe(no_mangle)]
        pub extern "C" fn $name(
            workspace: *mut std::ffi::c_void,
            workspace_size: u64,
            executor: *mut $crate::tensor::handle::Handle<$crate::executor::Executor>,
            stream: *mut std::ffi::c_void,
        ) -> i32 {
            let name = stringify!($name);
            $crate::executor::phases::second_phase(name, workspace, workspace_size, executor, stream)
        }
    };
}

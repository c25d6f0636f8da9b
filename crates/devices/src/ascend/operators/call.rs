//! Operator calls between their phases.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_void};
use std::rc::Rc;

use updraft_core::recovery::RecoveryClass;

use super::tensor::{IntArray, Object, Scalar, Tensor, TensorList};
use crate::ascend::codes;
use crate::ascend::error::{self, Fault};
use crate::ascend::library::{Executor, OperatorSymbols};
use crate::ascend::runtime::{Api, Slice, Stream, Workspace};

/// The installed operators.
#[derive(Debug)]
pub(in crate::ascend) struct Operators {
    api: Rc<Api>,
    /// In the order of the names.
    found: Vec<Option<OperatorSymbols>>,
}

impl Operators {
    /// Looks for all operators that this backend ever calls.
    pub(in crate::ascend) fn find(api: &Rc<Api>) -> Self {
        let names = super::signatures::NAMES.iter();
        let found = names.map(|name| api.library.operator(name)).collect();
        Self { api: Rc::clone(api), found }
    }

    pub(in crate::ascend) fn api(&self) -> &Rc<Api> {
        &self.api
    }

    pub(in crate::ascend) fn has(&self, name: &str) -> bool {
        let mut known = super::signatures::NAMES.iter().zip(&self.found);
        known.any(|(other, symbols)| *other == name && symbols.is_some())
    }

    pub(super) fn symbols(&self, place: usize, name: &'static str) -> Result<OperatorSymbols, Fault> {
        self.found.get(place).copied().flatten().ok_or_else(|| {
            let meaning = "the operator is not installed; requirements are checked before".to_owned();
            error::own_fault(
                &self.api.device,
                codes::API_NOT_SUPPORT,
                name,
                meaning,
                RecoveryClass::Unsupported,
            )
        })
    }
}

/// A planned operator call.
#[derive(Debug)]
pub(in crate::ascend) struct Call {
    api: Rc<Api>,
    name: &'static str,
    symbols: OperatorSymbols,
    executor: Executor,
    workspace: usize,
    /// Whether it can be launched more than once.
    repeatable: bool,
    launched: Cell<bool>,
    /// What the executor refers to.
    _objects: Vec<Rc<Object>>,
}

impl Call {
    pub(super) fn plan(
        operators: &Operators,
        name: &'static str,
        symbols: OperatorSymbols,
        objects: Vec<Rc<Object>>,
        phase_one: impl FnOnce(*mut u64, *mut Executor) -> i32,
    ) -> Result<Self, Fault> {
        let (mut workspace, mut executor) = (0_u64, std::ptr::null_mut());
        let status = phase_one(&raw mut workspace, &raw mut executor);
        operators.api.check(status, name)?;
        Ok(Self {
            api: Rc::clone(&operators.api),
            name,
            symbols,
            executor,
            workspace: workspace as usize,
            repeatable: false,
            launched: Cell::new(false),
            _objects: objects,
        })
    }

    /// Makes it one that can be launched again, if the operator allows that.
    pub(in crate::ascend) fn repeatable(mut self) -> Self {
        // SAFETY: a live executor, straight behind its first phase.
        let status = unsafe { (self.api.library.tensors.set_repeatable)(self.executor) };
        self.repeatable = status == 0;
        if !self.repeatable {
            // Some operators cannot; they are planned anew each time. Their message belongs to no fault.
            self.api.library.recent_message();
        }
        self
    }

    /// Whether another launch would be refused.
    pub(in crate::ascend) fn is_used_up(&self) -> bool {
        !self.repeatable && self.launched.get()
    }

    /// Bytes of workspace that it takes.
    pub(in crate::ascend) fn workspace(&self) -> usize {
        self.workspace
    }

    /// Puts it onto a stream, with workspace of that stream.
    pub(in crate::ascend) fn launch(&self, workspace: &Workspace, stream: &Stream) -> Result<(), Fault> {
        let lent = workspace.lend(self.workspace)?;
        self.launch_in(lent.as_ref(), stream)
    }

    /// Puts it onto a stream with this workspace.
    pub(in crate::ascend) fn launch_in(
        &self,
        workspace: Option<&Slice>,
        stream: &Stream,
    ) -> Result<(), Fault> {
        let (address, bytes) =
            workspace.map_or((std::ptr::null_mut(), 0), |slice| (slice.address(), slice.bytes()));
        let refused = |meaning: String| {
            let (device, class) = (&self.api.device, RecoveryClass::Call);
            Err(error::own_fault(device, codes::API_NOT_SUPPORT, self.name, meaning, class))
        };
        if self.is_used_up() {
            return refused("a call that cannot be repeated was launched twice".to_owned());
        }
        if bytes < self.workspace {
            return refused(format!(
                "a workspace of {bytes} bytes was given where {} are taken",
                self.workspace
            ));
        }
        self.launched.set(true);
        // SAFETY: a live executor that may be launched; workspace and tensors are memory that lives until the stream
        // has been synchronised: it is held by this call's objects, by the stream's `Workspace`, or by a graph.
        let status = unsafe {
            (self.symbols.phase_two)(address, self.workspace as u64, self.executor, stream.handle())
        };
        self.api.check(status, self.name)
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if self.repeatable || !self.launched.get() {
            // SAFETY: a live executor: one that cannot be repeated is used up only by its launch.
            unsafe { (self.api.library.tensors.destroy_executor)(self.executor) };
        }
    }
}

/// An argument of a first phase.
pub(super) trait Argument {
    /// How it is passed.
    type Raw;

    fn raw(&self) -> Self::Raw;

    /// Adds the object that it stands for.
    fn keep(&self, objects: &mut Vec<Rc<Object>>) {
        let _ = objects;
    }
}

macro_rules! objects {
    ($($object:ty),*) => {$(
        impl Argument for &$object {
            type Raw = *mut c_void;

            fn raw(&self) -> *mut c_void {
                self.0.handle()
            }

            fn keep(&self, objects: &mut Vec<Rc<Object>>) {
                objects.push(Rc::clone(&self.0));
            }
        }
    )*};
}

objects!(Tensor, TensorList, Scalar, IntArray);

impl<'a, T> Argument for Option<&'a T>
where
    &'a T: Argument<Raw = *mut c_void>,
{
    type Raw = *mut c_void;

    fn raw(&self) -> *mut c_void {
        self.as_ref().map_or(std::ptr::null_mut(), Argument::raw)
    }

    fn keep(&self, objects: &mut Vec<Rc<Object>>) {
        if let Some(object) = self {
            object.keep(objects);
        }
    }
}

macro_rules! plain {
    ($($number:ty),*) => {$(
        impl Argument for $number {
            type Raw = $number;

            fn raw(&self) -> $number {
                *self
            }
        }
    )*};
}

plain!(i8, i32, i64, f64, bool);

impl Argument for &'static CStr {
    type Raw = *const c_char;

    fn raw(&self) -> *const c_char {
        self.as_ptr()
    }
}

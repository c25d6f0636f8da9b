//! A first phase's notebook: arguments taken in, their slots, and the checks every operator shares.
//!
//! Always holds: each tensor of the call has one slot; an argument's place among inputs, outputs and all
//! tensors is remembered, for address replacement, whether it was passed or not.
//!
//! Refuses to know: arithmetic.

use std::ffi::{CStr, c_char};
use std::ops::Range;
use std::sync::Arc;

use super::status::{Refusal, ensure};
use super::{Views, Work};
use crate::tensor::dtype::DType;
use crate::tensor::handle::{self, Handle};
use crate::tensor::lists::{BoolArray, IntArray, TensorList};
use crate::tensor::objects::{Scalar, Tensor};
use crate::tensor::view::View;

/// A tensor of the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot(pub(crate) usize);

/// The tensors of a list argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slots(pub(crate) Range<usize>);

/// Where in the argument list a slot came from.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    pub(crate) name: &'static str,
    /// Number among the inputs, if it is read.
    pub(crate) input: Option<u16>,
    /// Number among the outputs, if it is written.
    pub(crate) output: Option<u16>,
    /// Number among all tensor arguments.
    pub(crate) argument: u16,
    /// Number in its list.
    pub(crate) member: u16,
}

/// What the operator function of a first phase returns.
pub type Planned = Result<Work, Refusal>;

/// Makes the work of a plan out of a closure.
pub fn work(run: impl Fn(&Views) -> Result<(), i32> + Send + Sync + 'static) -> Planned {
    Ok(Arc::new(run))
}

/// One first phase.
#[derive(Default)]
pub struct Plan {
    pub(crate) views: Views,
    pub(crate) places: Vec<Place>,
    pub(crate) workspace: u64,
    inputs: u16,
    outputs: u16,
    arguments: u16,
}

/// How an operator uses a tensor argument.
#[derive(Clone, Copy)]
enum Use {
    Read,
    Written,
    Both,
}

fn counted(counter: &mut u16) -> u16 {
    *counter += 1;
    *counter - 1
}

impl Plan {
    fn next(&mut self, name: &'static str, how: Use) -> Place {
        let argument = counted(&mut self.arguments);
        let input = matches!(how, Use::Read | Use::Both).then(|| counted(&mut self.inputs));
        let output = matches!(how, Use::Written | Use::Both).then(|| counted(&mut self.outputs));
        Place { name, input, output, argument, member: 0 }
    }

    fn push(&mut self, place: Place, view: View) -> Slot {
        self.views.0.push(view);
        self.places.push(place);
        Slot(self.places.len() - 1)
    }

    fn required(
        &mut self,
        name: &'static str,
        tensor: *const Handle<Tensor>,
        how: Use,
    ) -> Result<Slot, Refusal> {
        let place = self.next(name, how);
        let view = handle::get(tensor).ok_or(Refusal::Null(name))?.view;
        Ok(self.push(place, view))
    }

    fn wanted(
        &mut self,
        name: &'static str,
        tensor: *const Handle<Tensor>,
        how: Use,
    ) -> Result<Option<Slot>, Refusal> {
        if tensor.is_null() {
            self.next(name, how);
            return Ok(None);
        }
        self.required(name, tensor, how).map(Some)
    }

    fn members(
        &mut self,
        name: &'static str,
        list: *const Handle<TensorList>,
        how: Use,
    ) -> Result<Slots, Refusal> {
        let place = self.next(name, how);
        let list = handle::get(list).ok_or(Refusal::Null(name))?;
        let first = self.places.len();
        for (member, tensor) in list.members().enumerate() {
            let view = handle::get(tensor).ok_or(Refusal::Null(name))?.view;
            self.push(Place { member: member as u16, ..place }, view);
        }
        Ok(Slots(first..self.places.len()))
    }

    /// A tensor that is read.
    pub fn input(&mut self, name: &'static str, tensor: *const Handle<Tensor>) -> Result<Slot, Refusal> {
        self.required(name, tensor, Use::Read)
    }

    /// A tensor that is read if it is there.
    pub fn optional(
        &mut self,
        name: &'static str,
        tensor: *const Handle<Tensor>,
    ) -> Result<Option<Slot>, Refusal> {
        self.wanted(name, tensor, Use::Read)
    }

    /// A tensor that is written.
    pub fn output(&mut self, name: &'static str, tensor: *const Handle<Tensor>) -> Result<Slot, Refusal> {
        self.required(name, tensor, Use::Written)
    }

    /// A tensor that is read and written in place.
    pub fn inout(&mut self, name: &'static str, tensor: *const Handle<Tensor>) -> Result<Slot, Refusal> {
        self.required(name, tensor, Use::Both)
    }

    /// A tensor that is written if it is there.
    pub fn optional_output(
        &mut self,
        name: &'static str,
        tensor: *const Handle<Tensor>,
    ) -> Result<Option<Slot>, Refusal> {
        self.wanted(name, tensor, Use::Written)
    }

    /// Tensors that are read.
    pub fn list(&mut self, name: &'static str, list: *const Handle<TensorList>) -> Result<Slots, Refusal> {
        self.members(name, list, Use::Read)
    }

    /// Tensors that are read if they are there.
    pub fn optional_list(
        &mut self,
        name: &'static str,
        list: *const Handle<TensorList>,
    ) -> Result<Option<Slots>, Refusal> {
        if list.is_null() {
            self.next(name, Use::Read);
            return Ok(None);
        }
        let slots = self.members(name, list, Use::Read)?;
        Ok((!slots.0.is_empty()).then_some(slots))
    }

    /// Tensors that are written.
    pub fn output_list(
        &mut self,
        name: &'static str,
        list: *const Handle<TensorList>,
    ) -> Result<Slots, Refusal> {
        self.members(name, list, Use::Written)
    }

    /// Tensors that are written if they are there.
    pub fn optional_output_list(
        &mut self,
        name: &'static str,
        list: *const Handle<TensorList>,
    ) -> Result<Option<Slots>, Refusal> {
        if list.is_null() {
            self.next(name, Use::Written);
            return Ok(None);
        }
        let slots = self.members(name, list, Use::Written)?;
        Ok((!slots.0.is_empty()).then_some(slots))
    }

    /// A scalar object.
    pub fn scalar(&mut self, name: &'static str, scalar: *const Handle<Scalar>) -> Result<Scalar, Refusal> {
        handle::get(scalar).copied().ok_or(Refusal::Null(name))
    }

    /// A scalar object that may be missing.
    pub fn optional_scalar(
        &mut self,
        name: &'static str,
        scalar: *const Handle<Scalar>,
    ) -> Result<Option<Scalar>, Refusal> {
        if scalar.is_null() { Ok(None) } else { self.scalar(name, scalar).map(Some) }
    }

    /// A host array of integers.
    pub fn ints(&mut self, name: &'static str, array: *const Handle<IntArray>) -> Result<Vec<i64>, Refusal> {
        handle::get(array).map(|array| array.0.clone()).ok_or(Refusal::Null(name))
    }

    /// A host array of integers that may be missing.
    pub fn optional_ints(
        &mut self,
        name: &'static str,
        array: *const Handle<IntArray>,
    ) -> Result<Option<Vec<i64>>, Refusal> {
        if array.is_null() { Ok(None) } else { self.ints(name, array).map(Some) }
    }

    /// A host array of truth values that may be missing.
    pub fn optional_bools(
        &mut self,
        name: &'static str,
        array: *const Handle<BoolArray>,
    ) -> Result<Option<Vec<bool>>, Refusal> {
        if array.is_null() {
            return Ok(None);
        }
        handle::get(array).map(|array| Some(array.0.clone())).ok_or(Refusal::Null(name))
    }

    /// A C string; null and empty are the same.
    pub fn text(&mut self, name: &'static str, text: *const c_char) -> Result<String, Refusal> {
        if text.is_null() {
            return Ok(String::new());
        }
        // SAFETY: not null, and the ABI says it ends with a zero.
        let text = unsafe { CStr::from_ptr(text) };
        text.to_str().map(ToOwned::to_owned).map_err(|_| Refusal::Invalid(format!("{name} is not UTF-8")))
    }

    /// A plain value, as it is.
    #[allow(clippy::unnecessary_wraps, reason = "every kind of argument is taken in the same way")]
    pub fn value<T>(&mut self, _name: &'static str, value: T) -> Result<T, Refusal> {
        Ok(value)
    }

    /// A tensor of the call.
    #[must_use]
    pub fn view(&self, slot: Slot) -> View {
        self.views[slot]
    }

    /// Its argument's name.
    #[must_use]
    pub fn name(&self, slot: Slot) -> &'static str {
        self.places.get(slot.0).map_or("?", |place| place.name)
    }

    /// A copy of a tensor argument with another view of the same memory, as a slot of its own that follows
    /// the address of the first one.
    pub fn derive(&mut self, slot: Slot, view: View) -> Slot {
        let place = self.places[slot.0];
        self.push(place, view)
    }

    /// Replaces a slot's view, such as by a broadcast one.
    pub fn replace(&mut self, slot: Slot, view: View) {
        if let Some(old) = self.views.0.get_mut(slot.0) {
            *old = view;
        }
    }

    /// Asks for workspace.
    pub fn scratch(&mut self, bytes: usize) {
        self.workspace += (bytes as u64).next_multiple_of(512);
    }

    /// Checks the type of a tensor.
    pub fn types(&self, slot: Slot, accepted: &[DType]) -> Result<DType, Refusal> {
        let dtype = self.view(slot).dtype;
        ensure(accepted.contains(&dtype), || {
            format!("{} has data type {dtype:?}; accepted are {accepted:?}", self.name(slot))
        })?;
        Ok(dtype)
    }

    /// Checks that two tensors have one type.
    pub fn same_type(&self, a: Slot, b: Slot) -> Result<(), Refusal> {
        let (x, y) = (self.view(a).dtype, self.view(b).dtype);
        ensure(x == y, || {
            format!("{} is {x:?} and {} is {y:?}: give both one data type", self.name(a), self.name(b))
        })
    }

    /// Checks the shape of a tensor.
    pub fn shape(&self, slot: Slot, shape: &[i64]) -> Result<(), Refusal> {
        let view = self.view(slot);
        ensure(view.shape() == shape, || {
            format!("{} has shape {:?}, but {shape:?} is needed", self.name(slot), view.shape())
        })
    }

    /// Checks the number of dimensions of a tensor.
    pub fn rank(&self, slot: Slot, ranks: &[usize]) -> Result<usize, Refusal> {
        let view = self.view(slot);
        ensure(ranks.contains(&view.rank()), || {
            format!("{} has shape {:?}; accepted ranks are {ranks:?}", self.name(slot), view.shape())
        })?;
        Ok(view.rank())
    }

    /// Stretches an input to a shape by the broadcasting rule.
    pub fn stretch(&mut self, slot: Slot, shape: &[i64]) -> Result<(), Refusal> {
        let view = self.view(slot);
        let wide = view.broadcast(shape).ok_or_else(|| {
            Refusal::Invalid(format!(
                "{} has shape {:?}, which does not broadcast to {shape:?}",
                self.name(slot),
                view.shape()
            ))
        })?;
        self.replace(slot, wide);
        Ok(())
    }

    /// An axis argument.
    pub fn axis(&self, slot: Slot, axis: i64) -> Result<usize, Refusal> {
        let view = self.view(slot);
        view.axis(axis).ok_or_else(|| {
            let name = self.name(slot);
            Refusal::Invalid(format!("dim {axis} is not a dimension of {name} with shape {:?}", view.shape()))
        })
    }
}

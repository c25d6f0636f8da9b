//! CANN's operators as safe calls.
//!
//! A call has two phases: the first checks shapes and plans (host only) and gives a [`Call`], the second puts it onto a
//! stream. A call whose arguments never change is prepared once and launched again and again.
//!
//! Promises: an operator is called with the signature of its name or not at all; the objects and the memory that a call
//! speaks of live as long as the call.
//!
//! Refuses to know: programs, steps.

mod call;
mod requirements;
mod signatures;
mod tensor;

pub(super) use call::{Call, Operators};
pub(super) use requirements::Installed;
pub use requirements::{MissingOperator, Need};
pub(super) use signatures::*;
pub(super) use tensor::{DataType, IntArray, Scalar, Tensor, TensorList};

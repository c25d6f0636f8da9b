//! Tensor, scalar, array and list objects as clients see them: opaque handles behind `aclCreate…` and
//! `aclDestroy…`.
//!
//! Always holds: a handle that was destroyed, or was never one of ours, is found out by its mark; no object
//! is read through it. A [`view::View`] is a copy by value, so a tensor may be destroyed as soon as the
//! second phase returned.
//!
//! Refuses to know: what an operator does with a tensor, and whether its memory is there.

pub mod dtype;
pub mod handle;
pub mod lane;
pub mod lists;
pub mod objects;
pub mod queries;
pub mod view;

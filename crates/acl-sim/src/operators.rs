//! The operators: one file a family. Each gives its argument list to [`crate::operator`] and keeps to one
//! shape: check types and shapes, ask for workspace, return a closure over the tensors of the call.
//!
//! Always holds: a row of output is reduced in one fixed order that depends on nothing but the row, so it has
//! the same bits alone and in a batch; results are rounded once, to nearest even, when they are stored.
//!
//! Refuses to know: streams, graphs, faults.
#![allow(non_snake_case, reason = "symbols and arguments are named as in the C ABI")]
#![allow(clippy::too_many_arguments, reason = "the argument lists are those of the C ABI")]
#![allow(clippy::needless_pass_by_value, reason = "a plan gives each argument to its operator")]

pub mod activations;
pub mod attention;
pub mod cache;
pub mod copies;
pub mod elementwise;
pub mod gathers;
pub mod matmul;
pub mod moe;
pub mod norms;
pub mod numeric;
pub mod quantise;
pub mod quantised_matmul;
pub mod reductions;
pub mod rope;
pub mod sampling;
pub mod selection;

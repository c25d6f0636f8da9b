//! A simulated CANN: one shared library with the C ABI of Ascend's runtime, operators and collectives.
//!
//! Promises: programs written for the real library run on it unchanged, and compute real numbers; the rules
//! that the real library enforces (contexts, captures, budgets, asynchronous errors) are enforced with the
//! real codes; any fault can be injected on demand.
//!
//! Refuses to know: who calls. Nothing of Updraft is in here.
#![allow(unsafe_code, reason = "the whole crate is a C ABI")]
#![allow(clippy::not_unsafe_ptr_arg_deref, reason = "in the C that calls, a pointer is a promise")]
#![allow(clippy::must_use_candidate, reason = "inside this crate nothing is called for nothing")]

pub mod abi;
pub mod executor;
pub mod hccl;
pub mod launch;
pub mod machine;
pub mod operators;
pub mod settings;
pub mod tensor;

//! CPU arithmetic for language models.
//!
//! This crate promises that a result row depends on its own input row alone: never on the other rows of a
//! batch, on how work is split over threads, or on chunking; results are bit-identical in all those cases. It
//! refuses to know what a model, a request or a file format is: it is given bytes with a shape and computes.
//!
//! It is one of two crates that may hold `unsafe` code; each block carries its argument, and the public
//! interface is safe wherever disjointness can be checked by the compiler.
#![allow(unsafe_code)]

pub mod activations;
pub mod attention;
pub mod cpu_features;
pub mod elementwise;
pub mod kv_cache;
pub mod lanes;
pub mod machine;
pub mod matrix;
pub mod memory;
pub mod team;
pub mod tensor;
#[cfg(target_arch = "x86_64")]
pub(crate) mod tile_unit;
pub mod topology;

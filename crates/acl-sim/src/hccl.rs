//! Collectives between devices of one process and between processes.
//!
//! Always holds: a reduction adds rank 0 first, then 1, and so on, whoever arrives first; a collective that a
//! rank does not join ends with a time-out at the synchronisation, not at the call; ranks that disagree about
//! a collective fail at once.
//!
//! Refuses to know: links, topologies and their speed. Everything passes through one meeting place, which the
//! process that made the root information keeps.
#![allow(clippy::too_many_arguments, reason = "the argument lists are those of the C ABI")]
#![allow(non_snake_case, reason = "symbols are named as in the C ABI")]

pub mod collectives;
pub mod communicator;
pub mod exchange;
pub mod hub;
pub mod link;
pub mod result;
pub mod root;

//! The decisions of Updraft and the words it uses for them.
//!
//! Promises: everything here is a plain value or a state machine driven by messages, so the same input gives
//! the same output anywhere: under the server, in the simulation, in a test.
//!
//! Refuses to know: clocks, threads, sockets, files, devices. Time comes in as an argument, randomness as a
//! seed. A rule that cannot be tested here without a running server is in the wrong place.

pub mod admission;
pub mod fault;
pub mod graphs;
pub mod ids;
pub mod invariants;
pub mod kv;
pub mod program;
pub mod recovery;
pub mod restart;
pub mod sampling;
pub mod scheduler;
pub mod speculation;
pub mod step;
pub mod units;

pub use ids::{BlockId, Epoch, LayerId, Rank, SequenceId, SlotId, StepId, TokenId};
pub use units::{Blocks, Bytes, Millis, Tokens};

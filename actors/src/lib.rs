//! The supervised actors that turn pure decisions into a running server.
//!
//! Promises: each actor owns one state machine of `updraft-core` and does the I/O around it; any of them can
//! die at any moment and every stream still ends with the tokens of an undisturbed run.
//!
//! Refuses to know: HTTP, JSON, text. Requests come in as tokens and go out as tokens.

pub mod bus;
pub mod engine;
pub mod executor;
pub mod front;
pub mod gate;
pub mod generation;
pub mod metrics;
pub mod supervisor;

mod graphs;
mod intake;
mod kv_blocks;
mod scheduler;

pub use engine::{Engine, EngineOptions, OPEN_DEADLINE_DEFAULT, StartError};
pub use executor::{
    ChildSpec, CodecError, DeviceFactory, Drill, DrillSwitch, Placement, SILENT_AFTER, executor_child,
};
pub use front::{FrontError, FrontPool};
pub use generation::{Generation, GenerationError, GenerationEvent, Submission, SubmitError};
pub use supervisor::{EXIT_RESTARTS_EXHAUSTED, EnginePhase, EngineStatus};

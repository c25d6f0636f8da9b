//! Ascend NPUs as devices, through the C interfaces of CANN.
//!
//! Nothing is linked: [`Library`] opens CANN at run time, so that one program runs with and without it. Above it lie
//! handles that free themselves (`runtime`), two-phase operator calls (`operators`), the translation of a program into
//! such calls (`lower`), and [`AscendDevice`], which runs them eagerly or from captured graphs.
//!
//! Promises: every status that CANN returns is looked at, and becomes a fault with its class; what the installation or
//! the chip lacks is named before the first step; what a graph has baked in lives as long as the graph.
//!
//! Refuses to know: schedulers, checkpoints' files, any other vendor.

mod codes;
mod collective;
mod device;
mod error;
mod facts;
mod graphs;
mod library;
mod lower;
mod open;
mod operators;
mod options;
mod runtime;
mod step;

pub use collective::MeetingPoint;
pub use device::AscendDevice;
pub use error::OpenError;
pub use facts::{AscendFacts, check_program, facts};
pub use library::{Chip, Library, LibraryError, SearchPath, Version};
pub use lower::Compute;
pub use operators::{MissingOperator, Need};
pub use options::{AscendOptions, footprint};

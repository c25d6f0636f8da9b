//! Handles of CANN's runtime that free themselves.
//!
//! Promises: no status goes unlooked at; a handle is used and freed on the thread whose context made it (none of these
//! types can leave its thread); what a handle points to lives as long as the handle.
//!
//! Refuses to know: operators, programs.

mod graph;
mod memory;
mod pool;
mod session;
mod stream;

use std::sync::Arc;

use super::error::{self, Fault};
use super::library::Library;

pub(super) use graph::{GraphHandle, TaskGroup, capture};
pub(super) use memory::{DeviceBuffer, PinnedBuffer};
pub(super) use pool::{Pool, Purpose, Slice, Workspace};
pub(super) use session::{DeviceHandle, start};
pub(super) use stream::{Event, Stream};

/// The functions of CANN together with the name of the device that they are called for.
#[derive(Debug)]
pub(super) struct Api {
    pub(super) library: Arc<Library>,
    pub(super) device: String,
}

impl Api {
    /// Turns a status of a call into a fault with the library's own words.
    pub(super) fn check(&self, status: i32, call: &str) -> Result<(), Fault> {
        if status == 0 { Ok(()) } else { Err(self.fault(status, call)) }
    }

    /// The fault behind a status that is not success.
    #[cold]
    pub(super) fn fault(&self, status: i32, call: &str) -> Fault {
        let text = self.library.recent_message();
        error::fault(&self.device, status, call, text, self.library.version())
    }
}

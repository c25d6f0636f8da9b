//! A sign of life: a counter that a device advances while it works.
//!
//! A watcher on another thread (or in another process) compares two readings. A step that takes long is fine as long as
//! the counter moves.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The counter; clones share it.
#[derive(Clone, Debug, Default)]
pub struct Progress(Arc<AtomicU64>);

impl Progress {
    /// Something was done.
    pub fn tick(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// The present reading. Only differences mean something.
    #[must_use]
    pub fn reading(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

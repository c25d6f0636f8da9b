//! When the running step of one executor life began, and whether that life is over.
//!
//! One clock a life: a device thread that outlives its executor (it hung, or was in the middle of a step) keeps
//! writing to its own clock, which nobody reads any more.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The clock of one executor life.
#[derive(Debug)]
pub(crate) struct StepClock {
    started: Instant,
    /// Milliseconds after `started` at which the running step began, plus one; 0 when none runs.
    since: AtomicU64,
    retired: AtomicBool,
}

impl Default for StepClock {
    fn default() -> Self {
        Self { started: Instant::now(), since: AtomicU64::new(0), retired: AtomicBool::new(false) }
    }
}

impl StepClock {
    pub(crate) fn step_started(&self) {
        self.since.store(self.started.elapsed().as_millis() as u64 + 1, Ordering::Relaxed);
    }

    pub(crate) fn step_ended(&self) {
        self.since.store(0, Ordering::Relaxed);
    }

    /// How long the running step has been running.
    pub(crate) fn step_age(&self) -> Option<Duration> {
        let since = self.since.load(Ordering::Relaxed).checked_sub(1)?;
        Some(self.started.elapsed().saturating_sub(Duration::from_millis(since)))
    }

    /// Ends the life: its thread takes no further plan.
    pub(crate) fn retire(&self) {
        self.retired.store(true, Ordering::Release);
    }

    pub(crate) fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Acquire)
    }
}

//! What can be lost, and what the loss means for the sequences that were running.

use serde::{Deserialize, Serialize};

/// Closed classes of faults; the label values of the fault counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum FaultClass {
    /// The executor's compute thread panicked or its device reported an error.
    Executor,
    /// The executor made no progress within the step deadline.
    Hang,
    /// The block table was lost.
    KvBlocks,
    /// The scheduler was lost.
    Scheduler,
    /// The intake was lost.
    Intake,
    /// The actor that looks after captured graphs was lost.
    Graphs,
    /// The metrics actor was lost.
    Metrics,
    /// A supervisor was lost.
    Supervisor,
}

impl FaultClass {
    /// Label value.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Executor => "executor",
            Self::Hang => "hang",
            Self::KvBlocks => "kv_blocks",
            Self::Scheduler => "scheduler",
            Self::Intake => "intake",
            Self::Graphs => "graphs",
            Self::Metrics => "metrics",
            Self::Supervisor => "supervisor",
        }
    }
}

/// A request present at this many faults in a row, with fewer than [`TOKENS_TO_CLEAR`] new tokens between
/// them, is failed alone.
pub const STRIKES_MAX: u8 = 3;

/// New tokens that clear a sequence of its strikes. One is not enough: after a fault the first token comes
/// out of a recomputed prompt, and a sequence that kills the device only when it decodes would clear itself
/// each time.
pub const TOKENS_TO_CLEAR: u8 = 2;

/// From this many strikes on, a sequence runs with no other suspect beside it, so that the next fault says
/// which one it was.
pub const STRIKES_ISOLATE: u8 = 2;

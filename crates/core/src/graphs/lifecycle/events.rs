//! What the lifecycles of graphs ask for and what they tell.

use serde::{Deserialize, Serialize};

use super::super::plan::{GraphBudget, GraphUse};
use super::super::{GraphKey, GraphMode};
use crate::ids::Epoch;
use crate::recovery::RecoveryClass;
use crate::units::Millis;

/// What the device is to do between two steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// Capture a graph and say how that went.
    Capture(GraphKey),
    /// Drop a graph, if it is there. Needs no answer.
    Forget(GraphKey),
}

/// Why a graph is not there any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum RetireReason {
    /// No step used it, and another one needed the room.
    Unused,
    /// It took more than was left.
    OverBudget,
    /// A replay failed.
    Fault,
    /// A replay's result was not that of the eager step.
    Mismatch,
}

/// Where a bucket stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BucketState {
    /// To be captured when its turn comes.
    Wanted,
    /// The device is at it.
    Capturing,
    /// It can be replayed.
    Ready {
        /// Life of the device in which it was captured.
        epoch: Epoch,
        /// What it takes.
        cost: GraphUse,
        /// Time its capture took.
        micros: u64,
        /// Since when.
        since: Millis,
    },
    /// Dropped.
    Retired {
        /// Why.
        why: RetireReason,
        /// When it is wanted again; never in this life of the device when absent (an unused one: with the
        /// next step that could use it).
        again: Option<Millis>,
    },
    /// Could not be captured.
    Failed {
        /// What the last failure was.
        class: RecoveryClass,
        /// Failures in a row.
        times: u32,
        /// When it is tried again; given up when absent.
        again: Option<Millis>,
    },
}

/// A change, for logs and metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum GraphEvent {
    /// A device is there, with so many graphs to capture.
    Planned {
        /// Its life.
        epoch: Epoch,
        /// Which steps are replayed.
        mode: GraphMode,
        /// Graphs to capture.
        wanted: u32,
        /// Candidates that were dropped.
        dropped: u32,
    },
    /// The traffic asks for a bucket that no plan has.
    Proposed(GraphKey),
    /// A bucket is wanted again.
    Wanted(GraphKey),
    /// A capture begins.
    Capturing(GraphKey),
    /// A capture succeeded.
    Captured {
        /// The graph.
        key: GraphKey,
        /// What it takes.
        cost: GraphUse,
        /// Time the capture took.
        micros: u64,
    },
    /// A capture failed.
    Failed {
        /// The graph.
        key: GraphKey,
        /// What the fault was.
        class: RecoveryClass,
        /// Failures in a row.
        times: u32,
        /// When it is tried again; given up when absent.
        again: Option<Millis>,
    },
    /// A graph is there no more.
    Retired {
        /// The graph.
        key: GraphKey,
        /// Why.
        why: RetireReason,
        /// When it is wanted again, if that is known.
        again: Option<Millis>,
    },
    /// All graphs are void.
    Voided {
        /// How many there were.
        graphs: u32,
    },
    /// The device ran short: graphs may take no more than they do.
    Shrunk(GraphBudget),
}

impl RetireReason {
    /// Label value.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unused => "unused",
            Self::OverBudget => "over_budget",
            Self::Fault => "fault",
            Self::Mismatch => "mismatch",
        }
    }
}

impl BucketState {
    /// Label value.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Wanted => "wanted",
            Self::Capturing => "capturing",
            Self::Ready { .. } => "ready",
            Self::Retired { .. } => "retired",
            Self::Failed { .. } => "failed",
        }
    }
}

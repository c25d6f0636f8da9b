//! Captured graphs: which steps replay one, and how the set of graphs lives.
//!
//! A graph is a step that a device has recorded once and replays with fresh inputs. Its [`GraphKey`] says for
//! which steps it is good: a kind, and a number of rows up to which it takes steps (a *bucket*). Which key a
//! step uses is decided from what the scheduler knows about it (its phase), never from its shape alone: a
//! prompt chunk of one token is no decode.
//!
//! Refuses to know: devices, threads, clocks. Sizes come in as numbers that a device has measured.

mod buckets;
mod dispatch;
mod lifecycle;
mod plan;
mod traffic;

use serde::{Deserialize, Serialize};

pub use buckets::{LARGEST_BUCKET, default_sizes, sample_evenly};
pub use dispatch::Dispatcher;
pub use lifecycle::{
    BucketState, Command, EVENTS_MAX, GraphEvent, LifecyclePolicy, Lifecycles, RetireReason,
};
pub use plan::{DropReason, GRAPHS_MAX, GraphBudget, GraphOptions, GraphPlan, GraphUse, PlanRow, StepLimits};
pub use traffic::{Histogram, STEPS_REMEMBERED};

/// Which steps are to be replayed from graphs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum GraphMode {
    /// None.
    #[default]
    None,
    /// All; attention runs by itself between the pieces.
    Piecewise,
    /// All, whole.
    Full,
    /// Steps that only decode, whole; others run eagerly.
    FullDecodeOnly,
    /// Steps that only decode, whole; others in pieces.
    FullAndPiecewise,
}

/// What a graph holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum GraphKind {
    /// A whole step in which every sequence decodes one token.
    Decode,
    /// A whole step of any rows, up to the rows whose logits are wanted (those are computed eagerly behind
    /// it).
    Mixed,
    /// The pieces of any step between its attentions.
    Piecewise,
}

/// Names one graph of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct GraphKey {
    /// What it holds.
    pub kind: GraphKind,
    /// Rows it was captured for: it takes steps of so many rows or fewer.
    pub rows: u32,
}

/// Why a step was not replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum EagerReason {
    /// Graphs are off.
    Off,
    /// The mode replays no such steps (a prompt under `FullDecodeOnly`).
    Phase,
    /// The mode replays no steps with drafts (under `FullDecodeOnly`).
    Verify,
    /// More rows than the largest bucket.
    TooLarge,
    /// The bucket is not captured yet.
    NotReady,
    /// The bucket failed or was retired.
    Failed,
    /// A canary step, computed eagerly to be compared.
    Canary,
    /// The device had no usable graph after a fault in this step.
    Fault,
}

/// How a step was run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Launched {
    /// Operation by operation.
    Eager(EagerReason),
    /// From a graph.
    Replayed {
        /// The graph.
        key: GraphKey,
        /// Rows it computed for nobody.
        padded: u32,
    },
}

impl Default for Launched {
    fn default() -> Self {
        Self::Eager(EagerReason::Off)
    }
}

impl GraphMode {
    /// Name in configuration, as vLLM writes it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "NONE",
            Self::Piecewise => "PIECEWISE",
            Self::Full => "FULL",
            Self::FullDecodeOnly => "FULL_DECODE_ONLY",
            Self::FullAndPiecewise => "FULL_AND_PIECEWISE",
        }
    }

    /// The kind of graph for a step, if it is to be replayed at all.
    #[must_use]
    pub fn kind_for(self, decode_only: bool) -> Option<GraphKind> {
        match (self, decode_only) {
            (Self::None, _) | (Self::FullDecodeOnly, false) => None,
            (Self::Piecewise, _) | (Self::FullAndPiecewise, false) => Some(GraphKind::Piecewise),
            (Self::Full, false) => Some(GraphKind::Mixed),
            (Self::Full | Self::FullDecodeOnly | Self::FullAndPiecewise, true) => Some(GraphKind::Decode),
        }
    }
}

impl GraphKind {
    /// Label value.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Decode => "decode",
            Self::Mixed => "mixed",
            Self::Piecewise => "piecewise",
        }
    }
}

impl EagerReason {
    /// Label value.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Phase => "phase",
            Self::Verify => "verify",
            Self::TooLarge => "too_large",
            Self::NotReady => "not_ready",
            Self::Failed => "failed",
            Self::Canary => "canary",
            Self::Fault => "fault",
        }
    }
}

impl std::fmt::Display for GraphKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} x{}", self.kind.as_str(), self.rows)
    }
}

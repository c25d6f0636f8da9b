//! What a device's fault means and what is done about it.
//!
//! A device reports a [`DeviceFault`]: a code of its vendor with the class that its table gives the code.
//! What to do is decided from the class and from what has happened before, never from the vendor's code.
//!
//! Refuses to know: vendors, clocks, threads.

mod ledger;
mod spares;

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

pub use ledger::{Ledger, RecoveryPolicy};
pub use spares::Spares;

/// What kind of fault it is, by what it takes to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum RecoveryClass {
    /// A wrong call of ours; the device is unharmed.
    Call,
    /// The installation is wrong.
    Environment,
    /// The device or its software cannot do this.
    Unsupported,
    /// Memory or another resource is used up.
    Memory,
    /// A passing state: call again.
    Retry,
    /// Our own time limit has passed; the work may still be running.
    WaitMore,
    /// A capture or a graph is broken; the stream is not.
    Graph,
    /// A replay failed; the graph is dead.
    GraphDead,
    /// Results of a stream are undefined.
    Stream,
    /// The device must be brought to a stop and set up anew.
    Device,
    /// The device's memory is damaged.
    DeviceMemory,
    /// A peer or the link to it is bad.
    Remote,
    /// Only a new process helps.
    Process,
    /// The code says nothing; the text may.
    Unclear,
}

/// What the device was doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Moment {
    /// Opening the device, loading weights.
    Open,
    /// A step with prompt rows.
    Prefill,
    /// A step that only decodes.
    Decode,
    /// Capturing a graph.
    Capture,
    /// Replaying a graph.
    Replay,
}

/// One fault of a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{device}: {name} ({code}), {meaning}{}{}", at_operator(.operator.as_deref()), quoted(text))]
pub struct DeviceFault {
    /// The device, for people: `ascend:0`.
    pub device: String,
    /// The vendor's code.
    pub code: i32,
    /// The vendor's name of it.
    pub name: Cow<'static, str>,
    /// What it means.
    pub meaning: Cow<'static, str>,
    /// What it takes to go on.
    pub class: RecoveryClass,
    /// The operation that failed, when known. Errors of devices are late: it may be an innocent later one.
    pub operator: Option<String>,
    /// What the vendor's library said last; may be empty.
    pub text: String,
}

fn at_operator(operator: Option<&str>) -> String {
    operator.map_or_else(String::new, |operator| format!(", at {operator}"))
}

fn quoted(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(": {}", text.trim()) }
}

/// What is done about a fault, from the least to the most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Action {
    /// Run the step again as it is.
    RetryInPlace,
    /// Wait once more for what is running.
    WaitMore,
    /// Drop the graph and run the step eagerly.
    DropGraph,
    /// New streams on the same device, then run the step again; all graphs are void.
    RebuildStream,
    /// A new life of the executor: memory, weights, streams; sequences are computed again.
    RebuildGroup,
    /// The same in a new process.
    RestartProcess,
    /// The device is taken out of service; a spare takes its place, if there is one.
    RetireDevice,
}

impl RecoveryClass {
    /// Label value.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Call => "call",
            Self::Environment => "environment",
            Self::Unsupported => "unsupported",
            Self::Memory => "memory",
            Self::Retry => "retry",
            Self::WaitMore => "wait_more",
            Self::Graph => "graph",
            Self::GraphDead => "graph_dead",
            Self::Stream => "stream",
            Self::Device => "device",
            Self::DeviceMemory => "device_memory",
            Self::Remote => "remote",
            Self::Process => "process",
            Self::Unclear => "unclear",
        }
    }

    /// All classes.
    pub const ALL: [Self; 14] = [
        Self::Call,
        Self::Environment,
        Self::Unsupported,
        Self::Memory,
        Self::Retry,
        Self::WaitMore,
        Self::Graph,
        Self::GraphDead,
        Self::Stream,
        Self::Device,
        Self::DeviceMemory,
        Self::Remote,
        Self::Process,
        Self::Unclear,
    ];

    /// Whether the work may have caused it, so that the loss of a life is held against the sequences of the
    /// step: a wrong call, an exception of a kernel, a step that does not end. Anything else is the device's
    /// own.
    #[must_use]
    pub fn blames_sequences(self) -> bool {
        matches!(self, Self::Call | Self::Stream | Self::WaitMore)
    }
}

impl Action {
    /// Label value.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RetryInPlace => "retry_in_place",
            Self::WaitMore => "wait_more",
            Self::DropGraph => "drop_graph",
            Self::RebuildStream => "rebuild_stream",
            Self::RebuildGroup => "rebuild_group",
            Self::RestartProcess => "restart_process",
            Self::RetireDevice => "retire_device",
        }
    }

    /// All actions, from the least to the most.
    pub const ALL: [Self; 7] = [
        Self::RetryInPlace,
        Self::WaitMore,
        Self::DropGraph,
        Self::RebuildStream,
        Self::RebuildGroup,
        Self::RestartProcess,
        Self::RetireDevice,
    ];

    /// Whether the executor's life goes on: its sequences and their blocks stay.
    #[must_use]
    pub fn is_in_place(self) -> bool {
        self < Self::RebuildGroup
    }
}

impl Moment {
    /// All moments.
    pub const ALL: [Self; 5] = [Self::Open, Self::Prefill, Self::Decode, Self::Capture, Self::Replay];

    /// Label value.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Prefill => "prefill",
            Self::Decode => "decode",
            Self::Capture => "capture",
            Self::Replay => "replay",
        }
    }
}

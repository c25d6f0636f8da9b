//! What the topics carry.

use serde::{Deserialize, Serialize};
use updraft_core::fault::FaultClass;
use updraft_core::graphs::{GraphKey, GraphUse, Launched, RetireReason};
use updraft_core::kv::KvUsage;
use updraft_core::recovery::{Action, DeviceFault, Moment, RecoveryClass};
use updraft_core::speculation::DraftCounts;
use updraft_core::{Epoch, Millis};

/// One finished step, seen by the scheduler.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StepRecord {
    /// Sequences with blocks.
    pub running: u32,
    /// Sequences without.
    pub waiting: u32,
    /// Tokens computed in the step, prompt and continuation.
    pub computed_tokens: u32,
    /// Of these, tokens of prompts.
    pub prompt_tokens: u32,
    /// Tokens that a step may compute, when the last one was planned.
    pub step_budget: u32,
    /// Tokens produced.
    pub generated_tokens: u32,
    /// Sequences preempted when the step was planned.
    pub preemptions: u32,
    /// State of the block pool.
    pub kv: KvUsage,
    /// Time the device computed.
    pub device_micros: u64,
    /// Of it, the time in which the host handed the step over.
    pub launch_micros: u64,
    /// Whether it was replayed from a graph.
    pub launched: Launched,
    /// Time the device waited for this step although there was work; absent when there was none before it.
    pub host_micros: Option<u64>,
    /// Its drafts, and how many of them were right.
    pub drafts: DraftCounts,
}

/// Moments and counts in the life of a sequence.
#[derive(Clone, Debug, PartialEq)]
pub enum RequestRecord {
    /// The first token is there.
    FirstToken {
        /// Prompt tokens.
        prompt_tokens: u32,
        /// Of these, found in the prefix cache.
        cached_tokens: u32,
        /// From arrival to now.
        since_arrival: Millis,
    },
    /// Another token is there.
    NextToken {
        /// Since the token before.
        gap: std::time::Duration,
    },
    /// The sequence ended.
    Ended(Box<RequestSummary>),
    /// A request was refused at the door.
    Refused {
        /// Label of the reason.
        reason: &'static str,
    },
}

/// The life of a sequence in figures. Times are absent where the moment was never reached.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestSummary {
    /// `stop`, `length`, `abort` or `error`.
    pub reason: &'static str,
    /// Prompt tokens.
    pub prompt_tokens: u32,
    /// Of these, computed (not found in the cache).
    pub computed_tokens: u32,
    /// Tokens produced.
    pub output_tokens: u32,
    /// Tokens it was allowed to produce.
    pub max_tokens: u32,
    /// Times it lost its blocks.
    pub preemptions: u32,
    /// Arrival to end.
    pub total: Millis,
    /// Arrival to first scheduled.
    pub queued: Option<Millis>,
    /// First scheduled to first token.
    pub prefill: Option<Millis>,
    /// First token to last.
    pub decode: Option<Millis>,
}

/// One loss, or one fault of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FaultRecord {
    /// An actor ended.
    Lost(LossRecord),
    /// A device reported a fault. Published when everything is well again, or is known not to get well.
    Device(Box<DeviceFaultRecord>),
    /// A device was taken out of service.
    Retired {
        /// Which one.
        ordinal: u32,
        /// Which one takes its place.
        replaced_by: Option<u32>,
    },
}

/// One loss of an actor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LossRecord {
    /// What was lost.
    pub class: FaultClass,
    /// The epoch that began with it.
    pub epoch: Epoch,
    /// What the lost part said last.
    pub detail: String,
}

/// One fault of a device, and what became of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceFaultRecord {
    /// The fault: device, code, name, meaning, class.
    pub fault: DeviceFault,
    /// What the device was doing.
    pub moment: Moment,
    /// What was done about it.
    pub action: Action,
    /// From the fault until the step, or the life, was whole again; absent when it never will be.
    pub recovered_micros: Option<u64>,
}

/// Something about a captured graph.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum GraphRecord {
    /// It can be replayed from now on.
    Captured(CapturedGraph),
    /// It could not be captured.
    CaptureFailed {
        /// Its name.
        key: GraphKey,
        /// What kind of fault it was.
        class: RecoveryClass,
        /// What the device said.
        detail: String,
    },
    /// It was replayed for the first time.
    FirstReplay {
        /// Its name.
        key: GraphKey,
    },
    /// A replay was compared with the same step run eagerly.
    Checked {
        /// Its name.
        key: GraphKey,
        /// Whether all logits were the same, bit for bit.
        same: bool,
    },
    /// It must not be replayed any more.
    Retired {
        /// Its name.
        key: GraphKey,
        /// Why.
        why: RetireReason,
    },
    /// It was dropped because nobody wants it any more.
    Forgotten {
        /// Its name.
        key: GraphKey,
    },
    /// All graphs are gone: new streams, or a new life of the device.
    AllVoid,
}

/// A graph that has been captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapturedGraph {
    /// Its name.
    pub key: GraphKey,
    /// What it takes.
    pub cost: GraphUse,
    /// Operations in it.
    pub nodes: u32,
    /// Time its capture took.
    pub micros: u64,
}

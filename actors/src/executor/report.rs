//! What an executor's device thread is told, and what it says: the same words whether the thread lives in
//! this process or in a child.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use updraft_core::graphs::GraphKey;
use updraft_core::recovery::{Action, DeviceFault, Ledger, Moment, RecoveryClass};
use updraft_core::step::{StepPlan, StepResult};
use updraft_core::{Millis, Tokens};

use super::graphs::{GraphSetup, Inventory};
use crate::bus::{DeviceFaultRecord, GraphRecord};

/// What one life of a device begins with.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Setup {
    /// Which device.
    pub ordinal: u32,
    /// Tokens in a KV block.
    pub block_size: Tokens,
    /// Which graphs there are to be.
    pub graphs: GraphSetup,
    /// Every so many replayed steps one is checked; 0 for none.
    pub verify_replay: u32,
    /// How long a step may take before the device is asked whether it is still at it.
    pub step_deadline: Duration,
    /// What earlier lives of this device have been through.
    pub ledger: Ledger,
    /// The engine's time at the start.
    pub now: Millis,
}

/// What is to be done next.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Run a step.
    Plan(StepPlan),
    /// Capture a graph.
    Capture(GraphKey),
    /// Drop a graph.
    Forget(GraphKey),
    /// Say which graphs there are.
    Inventory,
}

/// What happened.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum DeviceEvent {
    /// The device is open.
    Up(Box<DeviceReport>),
    /// The graphs that were asked for.
    Inventory(Box<Inventory>),
    /// A step is done.
    StepDone(StepResult),
    /// A plan of an older epoch was thrown away.
    Stale,
    /// A capture begins. Should the life end before another word about graphs, this is what ended it.
    Capturing(GraphKey),
    /// Something about a graph.
    Graph(GraphRecord),
    /// A fault, and how long it took until everything was well again.
    Recovered(Box<DeviceFaultRecord>),
    /// This life is over.
    Lost(Box<LifeEnd>),
}

/// What a device says of itself when it is open.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct DeviceReport {
    /// Kind and number: `ascend:0`.
    pub name: String,
    /// The hardware.
    pub hardware: String,
    /// What its graphs are called.
    pub graph_name: String,
    /// Time from the start of the life until now.
    pub open_micros: u64,
    /// Its graphs.
    pub inventory: Inventory,
}

/// Why and how a life ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct LifeEnd {
    /// For people.
    pub detail: String,
    /// What it takes to go on.
    pub action: Action,
    /// Whether the sequences of the running step are suspected.
    pub blames_sequences: bool,
    /// How it ended, when the device could not say so itself.
    pub unsaid: Option<Unsaid>,
    /// Whether the configuration or the installation is at fault, if no life has ever come up: then another
    /// one would end the same way, on any device.
    pub hopeless: bool,
    /// What the life has been through; absent when that was lost with it.
    pub ledger: Option<Ledger>,
    /// Faults that nobody has recovered from yet.
    pub troubles: Vec<Trouble>,
}

/// How a life ended without a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Unsaid {
    /// Its process ended by its own doing.
    Crash,
    /// Nothing was heard of it any more, or nothing moved.
    Silence,
}

/// A fault that is not mended yet.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Trouble {
    /// The fault.
    pub fault: DeviceFault,
    /// What the device was doing.
    pub moment: Moment,
    /// What is being done about it.
    pub action: Action,
    /// How long ago it was when this was said.
    pub age_micros: u64,
}

impl LifeEnd {
    /// A life that ended without a fault of the device: a mistake of ours, a panic, a process that died.
    pub(crate) fn of(detail: String, blames_sequences: bool) -> Self {
        Self {
            detail,
            action: Action::RebuildGroup,
            blames_sequences,
            unsaid: None,
            hopeless: false,
            ledger: None,
            troubles: Vec::new(),
        }
    }

    /// A life that did not come to anything: the device cannot be opened.
    pub(super) fn at_open(fault: DeviceFault, action: Action, ledger: Ledger) -> Box<Self> {
        let detail = fault.to_string();
        let hopeless = matches!(
            fault.class,
            RecoveryClass::Environment
                | RecoveryClass::Unsupported
                | RecoveryClass::Memory
                | RecoveryClass::Call
        );
        let trouble = Trouble { fault, moment: Moment::Open, action, age_micros: 0 };
        let (ledger, troubles) = (Some(ledger), vec![trouble]);
        Box::new(Self { action, hopeless, ledger, troubles, ..Self::of(detail, false) })
    }

    /// The same, and it is the thread of the life before that is in the way.
    pub(super) fn at_open_beside(fault: DeviceFault, ledger: Ledger) -> Box<Self> {
        let end = Self::at_open(fault, Action::RebuildGroup, ledger);
        let detail = format!(
            "{}; the thread of the life before still holds the device \
             (--executor-isolation process would end it)",
            end.detail
        );
        Box::new(Self { detail, hopeless: false, ..*end })
    }

    /// A life that never began: there is no device, and for a reason that lies in what was asked for.
    pub(super) fn not_made(detail: String) -> Self {
        Self { hopeless: true, ..Self::of(detail, false) }
    }

    /// A life that ended because nothing was heard of it any more, or nothing moved. Nobody knows why, so it
    /// is never held against the device.
    pub(crate) fn silent(detail: String, computing: bool) -> Self {
        Self { unsaid: Some(Unsaid::Silence), ..Self::of(detail, computing) }
    }

    /// A life whose process is gone without a word. One that crashed is held against the sequences it was
    /// computing, and may be against the device; one that was killed from outside against nobody.
    pub(super) fn of_process(detail: String, crashed: bool, computing: bool) -> Self {
        let unsaid = crashed.then_some(Unsaid::Crash);
        Self { unsaid, action: Action::RestartProcess, ..Self::of(detail, crashed && computing) }
    }
}

/// The engine's time, on a thread that has no board to read it from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    base: Millis,
    started: Instant,
}

impl Clock {
    pub(super) fn new(base: Millis) -> Self {
        Self { base, started: Instant::now() }
    }

    pub(super) fn now(&self) -> Millis {
        self.base + Millis(self.started.elapsed().as_millis() as u64)
    }

    pub(super) fn micros(&self) -> u64 {
        self.started.elapsed().as_micros() as u64
    }
}

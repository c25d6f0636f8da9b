//! The bus: typed topics that anyone may publish on and subscribe to, never blocking a publisher.
//!
//! Every subscription is a bounded queue. What happens when it is full is the topic's stated policy:
//! statistics lose their oldest entry, records that must not be lost cut the late subscriber off instead
//! (it sees the end of its queue and must subscribe anew). Both are counted.

mod records;
mod topic;

use updraft_core::kv::KvEvent;

pub use records::{
    CapturedGraph, DeviceFaultRecord, FaultRecord, GraphRecord, LossRecord, RequestRecord, RequestSummary,
    StepRecord,
};
pub use topic::{Subscription, Topic, WhenFull};

/// Queue length of topics whose entries may be dropped.
const STATISTICS_QUEUE_MAX: usize = 4_096;
/// Queue length of topics whose entries may not.
const RECORDS_QUEUE_MAX: usize = 65_536;

/// All topics of one engine. Cheap to share in an `Arc`.
#[derive(Debug)]
pub struct Bus {
    /// One entry a step.
    pub steps: Topic<StepRecord>,
    /// One entry for each request that ended, however it ended.
    pub requests: Topic<RequestRecord>,
    /// One entry for each loss of an actor, and for each fault of a device.
    pub faults: Topic<FaultRecord>,
    /// What happens to captured graphs.
    pub graphs: Topic<GraphRecord>,
    /// Blocks that entered or left the prefix cache.
    pub kv: Topic<KvEvent>,
}

impl Default for Bus {
    fn default() -> Self {
        Self {
            steps: Topic::new("steps", STATISTICS_QUEUE_MAX, WhenFull::DropOldest),
            requests: Topic::new("requests", RECORDS_QUEUE_MAX, WhenFull::CutOff),
            faults: Topic::new("faults", RECORDS_QUEUE_MAX, WhenFull::CutOff),
            graphs: Topic::new("graphs", RECORDS_QUEUE_MAX, WhenFull::CutOff),
            kv: Topic::new("kv", RECORDS_QUEUE_MAX, WhenFull::CutOff),
        }
    }
}

impl Bus {
    /// Topic names with the number of entries (or subscribers, where entries may not be lost) dropped.
    #[must_use]
    pub fn dropped(&self) -> [(&'static str, u64); 5] {
        [
            (self.steps.name(), self.steps.dropped()),
            (self.requests.name(), self.requests.dropped()),
            (self.faults.name(), self.faults.dropped()),
            (self.graphs.name(), self.graphs.dropped()),
            (self.kv.name(), self.kv.dropped()),
        ]
    }
}

//! Metrics of devices that fail: how, what was done about it, and how long that took.

use metrics::{counter, gauge, histogram};
use updraft_core::recovery::{Action, RecoveryClass};

use super::names as n;
use crate::bus::DeviceFaultRecord;

const CLASSES: [RecoveryClass; 14] = [
    RecoveryClass::Call,
    RecoveryClass::Environment,
    RecoveryClass::Unsupported,
    RecoveryClass::Memory,
    RecoveryClass::Retry,
    RecoveryClass::WaitMore,
    RecoveryClass::Graph,
    RecoveryClass::GraphDead,
    RecoveryClass::Stream,
    RecoveryClass::Device,
    RecoveryClass::DeviceMemory,
    RecoveryClass::Remote,
    RecoveryClass::Process,
    RecoveryClass::Unclear,
];
const ACTIONS: [Action; 7] = [
    Action::RetryInPlace,
    Action::WaitMore,
    Action::DropGraph,
    Action::RebuildStream,
    Action::RebuildGroup,
    Action::RestartProcess,
    Action::RetireDevice,
];

/// Zeros, so that a dashboard shows them and not "no data".
pub(super) fn first_values() {
    for class in CLASSES {
        counter!(n::DEVICE_FAULTS, "class" => class.as_str()).absolute(0);
    }
    for action in ACTIONS {
        counter!(n::DEVICE_RECOVERIES, "action" => action.as_str()).absolute(0);
    }
    counter!(n::DEVICES_RETIRED).absolute(0);
    gauge!(n::OUT_OF_SERVICE).set(0.0);
}

/// One fault.
pub(super) fn fault(record: &DeviceFaultRecord) {
    counter!(n::DEVICE_FAULTS, "class" => record.fault.class.as_str()).increment(1);
    if let Some(micros) = record.recovered_micros {
        let action = record.action.as_str();
        counter!(n::DEVICE_RECOVERIES, "action" => action).increment(1);
        histogram!(n::DEVICE_RECOVERY_TIME, "action" => action).record(micros as f64 / 1e6);
    }
}

/// A device was taken out of service.
pub(super) fn retired(replaced: bool) {
    counter!(n::DEVICES_RETIRED).increment(1);
    if !replaced {
        gauge!(n::OUT_OF_SERVICE).set(1.0);
    }
}

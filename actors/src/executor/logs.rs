//! The log lines of a device's life: one a fault, one a change of a graph.

use updraft_core::recovery::RecoveryClass;

use super::report::DeviceReport;
use crate::bus::{CapturedGraph, DeviceFaultRecord, GraphRecord};

pub(super) fn device_up(report: &DeviceReport) {
    let opened = std::time::Duration::from_micros(report.open_micros);
    let graphs = report.inventory.ready.len();
    tracing::info!(
        parent: None,
        device = report.name,
        hardware = report.hardware,
        graphs,
        seconds = opened.as_secs_f64(),
        "the device is open"
    );
}

/// A fault that has been mended, or is known not to be.
pub(crate) fn fault(record: &DeviceFaultRecord) {
    let fault = &record.fault;
    tracing::warn!(
        parent: None,
        device = fault.device,
        code = fault.code,
        name = %fault.name,
        meaning = %fault.meaning,
        class = fault.class.as_str(),
        operator = fault.operator.as_deref().unwrap_or_default(),
        text = fault.text.trim(),
        moment = record.moment.as_str(),
        action = record.action.as_str(),
        recovered_micros = record.recovered_micros,
        "device fault"
    );
}

pub(super) fn graph(graph_name: &str, record: &GraphRecord) {
    match record {
        GraphRecord::Captured(CapturedGraph { key, cost, nodes, micros }) => tracing::info!(
            parent: None,
            graph = %key,
            bytes = cost.bytes.0,
            streams = cost.streams,
            nodes,
            micros,
            "{graph_name} captured"
        ),
        GraphRecord::CaptureFailed { key, class, detail } => tracing::warn!(
            parent: None,
            graph = %key,
            class = class.as_str(),
            detail,
            help = capture_help(*class),
            "{graph_name} not captured; its steps run eagerly"
        ),
        GraphRecord::FirstReplay { key } => {
            tracing::info!(parent: None, graph = %key, "NPUGraph replay: the first of this {graph_name}");
        }
        GraphRecord::Retired { key, why } => tracing::warn!(
            parent: None,
            graph = %key,
            why = why.as_str(),
            "{graph_name} retired; its steps run eagerly until it is captured again"
        ),
        GraphRecord::Forgotten { key } => {
            tracing::info!(parent: None, graph = %key, "{graph_name} dropped to make room");
        }
        GraphRecord::Checked { key, same: false } => tracing::error!(
            parent: None,
            graph = %key,
            "{graph_name} computed other results than the same step run eagerly; the eager ones are used"
        ),
        GraphRecord::Checked { .. } => {}
        GraphRecord::AllVoid => {
            tracing::warn!(parent: None, "new streams: every {graph_name} is void, to be captured again");
        }
    }
}

/// What may let a capture succeed that failed.
fn capture_help(class: RecoveryClass) -> &'static str {
    match class {
        RecoveryClass::Memory => "leave the device more memory, or capture fewer sizes",
        RecoveryClass::Unsupported | RecoveryClass::Environment => {
            "this device or its software cannot: update its software, or choose another graph mode"
        }
        RecoveryClass::Call => "the device's library refuses what was recorded: choose another graph mode",
        _ => "none needed if it passes: it is tried again later",
    }
}

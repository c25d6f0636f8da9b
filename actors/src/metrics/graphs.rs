//! Metrics of captured graphs: what they are used for, what they cost, and why a step did without.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use metrics::{counter, gauge, histogram};
use updraft_core::graphs::{EagerReason, GraphKey, GraphKind, Launched, RetireReason};

use super::names as n;
use crate::bus::{CapturedGraph, GraphRecord};

const REASONS: [EagerReason; 8] = [
    EagerReason::Off,
    EagerReason::Phase,
    EagerReason::Verify,
    EagerReason::TooLarge,
    EagerReason::NotReady,
    EagerReason::Failed,
    EagerReason::Canary,
    EagerReason::Fault,
];
/// Dropped: nobody used it and another one needed the room, or it did not fit.
const DROPPED: &str = "dropped";

/// Zeros, so that a dashboard shows them and not "no data".
pub(super) fn first_values() {
    counter!(n::GRAPH_HITS).absolute(0);
    counter!(n::GRAPH_PADDED).absolute(0);
    for reason in REASONS {
        counter!(n::GRAPH_EAGER, "reason" => reason.as_str()).absolute(0);
    }
    for outcome in ["captured", "failed"] {
        counter!(n::GRAPH_CAPTURES, "outcome" => outcome).absolute(0);
    }
    for why in [DROPPED, RetireReason::Fault.as_str(), RetireReason::Mismatch.as_str()] {
        counter!(n::GRAPH_RETIREMENTS, "why" => why).absolute(0);
    }
    for result in ["same", "different"] {
        counter!(n::GRAPH_CHECKS, "result" => result).absolute(0);
    }
    let smallest = labels(GraphKey { kind: GraphKind::Decode, rows: 1 });
    counter!(n::GRAPH_REPLAYS, &smallest).absolute(0);
    gauge!(n::GRAPH_BYTES, &smallest).set(0.0);
}

fn labels(key: GraphKey) -> [(&'static str, String); 2] {
    [("kind", key.kind.as_str().to_owned()), ("rows", key.rows.to_string())]
}

/// How a step was run.
pub(super) fn launched(launched: Launched) {
    match launched {
        Launched::Eager(reason) => counter!(n::GRAPH_EAGER, "reason" => reason.as_str()).increment(1),
        Launched::Replayed { key, padded } => {
            counter!(n::GRAPH_HITS).increment(1);
            counter!(n::GRAPH_PADDED).increment(u64::from(padded));
            counter!(n::GRAPH_REPLAYS, &labels(key)).increment(1);
        }
    }
}

/// What happened to a graph. `shown` are those whose size is on the page.
pub(super) fn record(record: &GraphRecord, shown: &Mutex<BTreeSet<GraphKey>>) {
    let mut shown = shown.lock().unwrap_or_else(PoisonError::into_inner);
    let gone = |key: GraphKey| gauge!(n::GRAPH_BYTES, &labels(key)).set(0.0);
    match record {
        GraphRecord::Captured(CapturedGraph { key, cost, micros, .. }) => {
            counter!(n::GRAPH_CAPTURES, "outcome" => "captured").increment(1);
            histogram!(n::GRAPH_CAPTURE_TIME).record(*micros as f64 / 1e6);
            gauge!(n::GRAPH_BYTES, &labels(*key)).set(cost.bytes.0 as f64);
            shown.insert(*key);
        }
        GraphRecord::CaptureFailed { key, .. } => {
            counter!(n::GRAPH_CAPTURES, "outcome" => "failed").increment(1);
            if shown.remove(key) {
                gone(*key);
            }
        }
        GraphRecord::Checked { same, .. } => {
            let result = if *same { "same" } else { "different" };
            counter!(n::GRAPH_CHECKS, "result" => result).increment(1);
        }
        GraphRecord::Retired { key, why } => {
            counter!(n::GRAPH_RETIREMENTS, "why" => why.as_str()).increment(1);
            shown.remove(key);
            gone(*key);
        }
        GraphRecord::Forgotten { key } => {
            counter!(n::GRAPH_RETIREMENTS, "why" => DROPPED).increment(1);
            shown.remove(key);
            gone(*key);
        }
        GraphRecord::AllVoid => std::mem::take(&mut *shown).into_iter().for_each(gone),
        GraphRecord::FirstReplay { .. } => {}
    }
}

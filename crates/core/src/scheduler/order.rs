//! The one order of sequences: who starts first, who keeps its blocks.
//!
//! A sequence's place never changes. Ageing does not move it either: all sequences grow older at the same
//! pace, so "priority minus age" compares like "priority plus time of arrival", which is a constant.

use super::config::{Policy, SchedulerConfig};
use crate::ids::SequenceId;
use crate::units::Millis;

/// A sequence's place; lower comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Precedence {
    rank: i128,
    arrival: Millis,
    pub(super) sequence: SequenceId,
}

impl Precedence {
    pub(super) fn new(
        config: &SchedulerConfig,
        priority: i32,
        arrival: Millis,
        sequence: SequenceId,
    ) -> Self {
        let rank = match config.policy {
            Policy::Fcfs => 0,
            Policy::Priority => i128::from(priority) * i128::from(config.ageing.0) + i128::from(arrival.0),
        };
        Self { rank, arrival, sequence }
    }
}

//! The steps in flight: what each computes, and how much of the time between two ends was the host's.

use std::collections::VecDeque;
use std::time::Instant;

use updraft_core::StepId;
use updraft_core::step::{Phase, StepPlan, StepResult};

/// One step between planning and its result.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Flight {
    step: StepId,
    pub computed_tokens: u32,
    pub prompt_tokens: u32,
    pub preemptions: u32,
    /// Another step was in flight when this one was planned, so the device never had to be idle before it.
    follows: bool,
    /// Filled when it lands.
    pub host_micros: Option<u64>,
}

/// All of them, oldest first.
#[derive(Debug, Default)]
pub(super) struct Flights {
    planned: VecDeque<Flight>,
    last_landing: Option<Instant>,
}

impl Flights {
    pub(super) fn launch(&mut self, plan: &StepPlan, preemptions: u32) {
        let tokens = |prefill_only: bool| {
            let counted = plan.scheduled.iter().filter(|row| !prefill_only || row.phase == Phase::Prefill);
            counted.map(|row| row.count.0).sum()
        };
        self.planned.push_back(Flight {
            step: plan.step,
            computed_tokens: tokens(false),
            prompt_tokens: tokens(true),
            preemptions,
            follows: !self.planned.is_empty(),
            host_micros: None,
        });
    }

    /// Takes the flight of `result` out and says what the host cost.
    pub(super) fn land(&mut self, result: &StepResult) -> Flight {
        let now = Instant::now();
        while self.planned.front().is_some_and(|flight| flight.step < result.step) {
            self.planned.pop_front();
        }
        let mut flight = self.planned.pop_front().unwrap_or_default();
        let since = self.last_landing.replace(now).filter(|_| flight.follows);
        flight.host_micros = since
            .map(|last| (now.duration_since(last).as_micros() as u64).saturating_sub(result.device_micros));
        flight
    }

    pub(super) fn clear(&mut self) {
        self.planned.clear();
        self.last_landing = None;
    }
}

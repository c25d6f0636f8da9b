//! The steps in flight: what each computes, and whether the device waited for it.

use std::collections::VecDeque;

use updraft_core::StepId;
use updraft_core::speculation::DraftCounts;
use updraft_core::step::{Phase, StepPlan, StepResult};

/// One step between planning and its result.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Flight {
    step: StepId,
    pub computed_tokens: u32,
    pub prompt_tokens: u32,
    pub preemptions: u32,
    /// There was work all the time since the step before: if the device waited, it waited for the host.
    follows: bool,
    /// Filled when it lands.
    pub host_micros: Option<u64>,
    /// Planned, and once it has landed, also those that were right.
    pub drafts: DraftCounts,
}

/// All of them, oldest first.
#[derive(Debug, Default)]
pub(super) struct Flights {
    planned: VecDeque<Flight>,
    /// There has been work since the last step landed.
    busy: bool,
}

impl Flights {
    pub(super) fn launch(&mut self, plan: &StepPlan, preemptions: u32) {
        let tokens = |prefill_only: bool| {
            let counted = plan.scheduled.iter().filter(|row| !prefill_only || row.phase == Phase::Prefill);
            counted.map(|row| row.count.0).sum()
        };
        let mut drafts = DraftCounts::default();
        plan.scheduled.iter().for_each(|row| drafts.plan(row.drafts.len()));
        self.planned.push_back(Flight {
            step: plan.step,
            computed_tokens: tokens(false),
            prompt_tokens: tokens(true),
            preemptions,
            follows: self.busy,
            host_micros: None,
            drafts,
        });
        self.busy = true;
    }

    /// Takes the flight of `result` out and says what the host cost. `more_work` says whether any sequence is
    /// left to compute.
    pub(super) fn land(&mut self, result: &StepResult, more_work: bool) -> Flight {
        self.busy = more_work;
        while self.planned.front().is_some_and(|flight| flight.step < result.step) {
            self.planned.pop_front();
        }
        let mut flight = self.planned.pop_front().unwrap_or_default();
        result.outputs.iter().for_each(|output| flight.drafts.accept(output.further.len()));
        flight.host_micros = flight.follows.then_some(result.gap_micros);
        flight
    }

    pub(super) fn clear(&mut self) {
        self.planned.clear();
        self.busy = false;
    }
}

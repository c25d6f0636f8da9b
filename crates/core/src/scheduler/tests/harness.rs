//! A scheduler with a real block manager and an executor that answers what a test says.

use std::sync::Arc;

use crate::ids::{Epoch, SequenceId, TokenId};
use crate::kv::{KvConfig, KvManager};
use crate::sampling::SamplingParams;
use crate::scheduler::{NewSequence, Policy, Scheduler, SchedulerConfig, SchedulerEvent};
use crate::step::{SequenceOutput, StepPlan, StepResult};
use crate::units::{Blocks, Millis, Tokens};

pub(in crate::scheduler) fn config(pool: Blocks) -> SchedulerConfig {
    SchedulerConfig {
        max_sequences: 4,
        max_waiting: 8,
        step_budget: Tokens(16),
        chunk_limit: Tokens(0),
        max_model_len: Tokens(64),
        policy: Policy::Fcfs,
        ageing: Millis(1_000),
        block_size: Tokens(4),
        pool,
        prompt_logit_rows: Tokens(8),
        token_latency: None,
        steps_in_flight: 2,
        speculation: None,
    }
}

pub(in crate::scheduler) fn new(sequence: u64, prompt: &[TokenId], max_tokens: u32) -> NewSequence {
    let sampling = SamplingParams {
        max_tokens,
        eos_token_ids: vec![0],
        stop_token_ids: vec![1],
        ..SamplingParams::default()
    };
    NewSequence {
        sequence: SequenceId(sequence),
        prompt: prompt.into(),
        output: Vec::new(),
        sampling: Arc::new(sampling),
        priority: 0,
        salt: None,
        arrival: Millis(sequence),
        strikes: 0,
    }
}

/// The machines with their messages passed at once.
pub(super) struct Harness {
    pub(super) scheduler: Scheduler,
    pub(super) kv: KvManager,
    pub(super) now: Millis,
}

impl Harness {
    pub(super) fn new(config: SchedulerConfig) -> Self {
        let kv = KvConfig {
            block_size: config.block_size,
            blocks: config.pool,
            prefix_caching: true,
            events: false,
        };
        let epoch = Epoch(1);
        Self { kv: KvManager::new(kv, epoch), scheduler: Scheduler::new(config, epoch), now: Millis(0) }
    }

    pub(super) fn admit(&mut self, new: NewSequence) {
        self.scheduler.admit(new).unwrap();
    }

    /// The next plan, if there is something to plan now.
    pub(super) fn plan(&mut self) -> Option<StepPlan> {
        for _ in 0..10 {
            let reservation = self.scheduler.propose()?;
            let grants = self.kv.reserve(&reservation);
            let plan = self.scheduler.commit(grants, self.now);
            self.scheduler.audit().unwrap();
            self.kv.audit().unwrap();
            if plan.is_some() {
                return plan;
            }
        }
        panic!("the scheduler proposes without end");
    }

    /// Answers a plan with `token` for every row that samples.
    pub(super) fn finish(&mut self, plan: &StepPlan, token: TokenId) -> Vec<SchedulerEvent> {
        self.finish_with(plan, |_| token)
    }

    pub(super) fn finish_with(
        &mut self,
        plan: &StepPlan,
        token: impl Fn(SequenceId) -> TokenId,
    ) -> Vec<SchedulerEvent> {
        let events = self.scheduler.complete(&answer(plan, token), self.now);
        self.scheduler.audit().unwrap();
        events
    }

    /// Runs until nothing is left, and returns what happened.
    pub(super) fn drain(&mut self, token: TokenId) -> Vec<SchedulerEvent> {
        let mut events = Vec::new();
        for _ in 0..1_000 {
            let Some(plan) = self.plan() else {
                assert!(self.scheduler.is_idle(), "stuck: {:?}", self.scheduler);
                assert_eq!(self.kv.usage().used, 0);
                return events;
            };
            events.extend(self.finish(&plan, token));
        }
        panic!("still not done");
    }
}

pub(super) fn answer(plan: &StepPlan, token: impl Fn(SequenceId) -> TokenId) -> StepResult {
    let rows = plan.scheduled.iter().filter(|row| row.samples);
    let output = |sequence| SequenceOutput {
        sequence,
        token: Some(token(sequence)),
        logprobs: None,
        further: Vec::new(),
        prompt_logprobs: Vec::new(),
    };
    StepResult {
        epoch: plan.epoch,
        step: plan.step,
        outputs: rows.map(|row| output(row.sequence)).collect(),
        device_micros: 1,
        gap_micros: 0,
        launch_micros: 0,
        launched: crate::graphs::Launched::default(),
    }
}

/// `(sequence, start, count, samples)` of each row.
pub(super) fn rows(plan: &StepPlan) -> Vec<(u64, u32, u32, bool)> {
    plan.scheduled.iter().map(|row| (row.sequence.0, row.start.0, row.count.0, row.samples)).collect()
}

/// Output tokens by sequence, in order of the events.
pub(super) fn output(events: &[SchedulerEvent], of: u64) -> Vec<TokenId> {
    events
        .iter()
        .filter_map(|event| match event {
            SchedulerEvent::Token { sequence, token, .. } if sequence.0 == of => Some(*token),
            _ => None,
        })
        .collect()
}

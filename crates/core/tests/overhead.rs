//! Time of one turn of the scheduler and the block manager, printed and never asserted.
//!
//! `cargo test -p updraft-core --release --test overhead -- --ignored --nocapture`

#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use updraft_core::kv::{KvConfig, KvManager};
use updraft_core::sampling::SamplingParams;
use updraft_core::scheduler::{NewSequence, Policy, Scheduler, SchedulerConfig};
use updraft_core::step::{SequenceOutput, StepPlan, StepResult};
use updraft_core::{Blocks, Epoch, Millis, SequenceId, Tokens};

const SEQUENCES: u32 = 64;
const STEPS: u32 = 2_000;

#[test]
#[ignore = "a measurement"]
fn a_turn_at_64_running_sequences() {
    let config = SchedulerConfig {
        max_sequences: SEQUENCES,
        max_waiting: 256,
        step_budget: Tokens(64 * 1_024),
        chunk_limit: Tokens::ZERO,
        max_model_len: Tokens(8_192),
        policy: Policy::Priority,
        ageing: Millis(1_000),
        block_size: Tokens(16),
        pool: Blocks(20_000),
        prompt_logit_rows: Tokens(64),
        token_latency: None,
        steps_in_flight: 2,
        speculation: None,
    };
    let kv =
        KvConfig { block_size: config.block_size, blocks: config.pool, prefix_caching: true, events: false };
    let (mut kv, mut scheduler) = (KvManager::new(kv, Epoch(0)), Scheduler::new(config, Epoch(0)));
    for sequence in 0..SEQUENCES {
        let prompt: Arc<[u32]> = (0..1_000).map(|at| at * (sequence + 1)).collect();
        let sampling = SamplingParams { max_tokens: 4_000, ..SamplingParams::default() };
        let new = NewSequence {
            sequence: SequenceId(u64::from(sequence)),
            prompt,
            output: Vec::new(),
            sampling: Arc::new(sampling),
            priority: 0,
            salt: None,
            arrival: Millis(0),
            strikes: 0,
        };
        scheduler.admit(new).unwrap();
    }
    let start = Instant::now();
    let first = turn(&mut scheduler, &mut kv).unwrap();
    println!("start of {SEQUENCES} prompts of 1000 tokens: {:?}", start.elapsed());
    let mut flying = first;
    let mut spent = Duration::ZERO;
    for _ in 0..STEPS {
        let start = Instant::now();
        let next = turn(&mut scheduler, &mut kv).unwrap();
        spent += start.elapsed();
        let result = answer(&flying);
        let start = Instant::now();
        let events = scheduler.complete(&result, Millis(0));
        spent += start.elapsed();
        assert_eq!(events.len(), SEQUENCES as usize);
        flying = next;
    }
    println!("a turn of {SEQUENCES} decoding sequences: {:?}", spent / STEPS);
}

fn turn(scheduler: &mut Scheduler, kv: &mut KvManager) -> Option<StepPlan> {
    let reservation = scheduler.propose()?;
    scheduler.commit(kv.reserve(&reservation), Millis(0))
}

fn answer(plan: &StepPlan) -> StepResult {
    let output = |sequence| SequenceOutput {
        sequence,
        token: Some(7),
        logprobs: None,
        further: Vec::new(),
        prompt_logprobs: Vec::new(),
    };
    StepResult {
        epoch: plan.epoch,
        step: plan.step,
        outputs: plan.scheduled.iter().map(|row| output(row.sequence)).collect(),
        device_micros: 0,
        gap_micros: 0,
        launch_micros: 0,
        launched: updraft_core::graphs::Launched::default(),
    }
}

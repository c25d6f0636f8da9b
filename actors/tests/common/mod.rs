//! A toy device and an engine around it: small enough to compute by hand, strict enough to notice a wrong
//! block.
//!
//! The toy keeps the token of every slot, as a KV cache keeps keys, and its next token is a hash of what it
//! reads through the block table. A block that is shared wrongly, lost or stale changes the tokens.

#![allow(dead_code, reason = "each test file uses its own part of this module")]

use std::sync::Arc;
use std::time::Duration;

use updraft_actors::{Engine, EngineOptions, Generation, GenerationEvent, Submission};
use updraft_core::admission::Limits;
use updraft_core::kv::KvConfig;
use updraft_core::restart::RestartPolicy;
use updraft_core::sampling::SamplingParams;
use updraft_core::scheduler::{Policy, SchedulerConfig};
use updraft_core::step::StepInputs;
use updraft_core::{Blocks, Millis, TokenId, Tokens};
use updraft_devices::{Device, DeviceError};

/// Tokens the toy knows.
pub(crate) const VOCAB: u32 = 97;
/// Tokens in a block.
pub(crate) const BLOCK_SIZE: Tokens = Tokens(16);

/// The device.
pub(crate) struct ToyDevice {
    slots: Vec<TokenId>,
    logits: Vec<Vec<f32>>,
    step_time: Duration,
}

impl ToyDevice {
    /// A device with room for `blocks` blocks whose steps take at least `step_time`.
    pub(crate) fn new(blocks: Blocks, step_time: Duration) -> Self {
        Self { slots: vec![VOCAB; (blocks.0 * BLOCK_SIZE.0) as usize], logits: Vec::new(), step_time }
    }
}

impl Device for ToyDevice {
    fn vocab(&self) -> usize {
        VOCAB as usize
    }

    fn run(&mut self, inputs: &StepInputs) -> Result<(), DeviceError> {
        std::thread::sleep(self.step_time);
        for (slot, token) in inputs.slots.iter().zip(&inputs.token_ids) {
            self.slots[slot.0 as usize] = *token;
        }
        self.logits.clear();
        for row in &inputs.logit_rows {
            let span = inputs
                .spans
                .iter()
                .find(|span| (span.row_start..span.row_start + span.row_count).contains(row))
                .expect("a logit row lies in a span");
            let position = inputs.positions[*row as usize];
            let table = &inputs.block_tables[span.table_start as usize..][..span.table_len as usize];
            let seen = (0..=position).map(|at| {
                let block = table[(at / BLOCK_SIZE.0) as usize];
                self.slots[(block.0 * BLOCK_SIZE.0 + at % BLOCK_SIZE.0) as usize]
            });
            self.logits.push(toy_logits(seen));
        }
        Ok(())
    }

    fn logits(&self, row: usize) -> &[f32] {
        &self.logits[row]
    }
}

fn toy_logits(seen: impl Iterator<Item = TokenId>) -> Vec<f32> {
    let hash = seen.fold(0xcbf2_9ce4_8422_2325_u64, |hash, token| {
        (hash ^ u64::from(token)).wrapping_mul(0x0100_0000_01b3).rotate_left(23)
    });
    (0..u64::from(VOCAB))
        .map(|token| ((hash ^ token).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60) as f32)
        .collect()
}

/// Knobs of a test engine.
pub(crate) struct Setup {
    pub(crate) blocks: u32,
    pub(crate) max_sequences: u32,
    pub(crate) max_waiting: u32,
    pub(crate) step_budget: u32,
    pub(crate) step_time: Duration,
    pub(crate) stall_after: Duration,
    pub(crate) restarts: u32,
    pub(crate) restart_delay: Millis,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            blocks: 400,
            max_sequences: 64,
            max_waiting: 64,
            step_budget: 64,
            step_time: Duration::from_micros(300),
            stall_after: Duration::from_secs(30),
            restarts: 1_000,
            restart_delay: Millis(2),
        }
    }
}

/// Starts an engine on the toy.
pub(crate) async fn start(setup: &Setup) -> Engine {
    let (blocks, step_time) = (Blocks(setup.blocks), setup.step_time);
    let policy = RestartPolicy {
        first_delay: setup.restart_delay,
        longest_delay: Millis(200),
        budget: setup.restarts,
        ..RestartPolicy::default()
    };
    let max_model_len = Tokens(1_000);
    Engine::start(EngineOptions {
        device: Arc::new(move || Ok(Box::new(ToyDevice::new(blocks, step_time)))),
        model_name: "toy".to_owned(),
        scheduler: SchedulerConfig {
            max_sequences: setup.max_sequences,
            max_waiting: setup.max_waiting,
            step_budget: Tokens(setup.step_budget),
            chunk_limit: Tokens::ZERO,
            max_model_len,
            policy: Policy::Fcfs,
            ageing: Millis(1_000),
            block_size: BLOCK_SIZE,
            pool: blocks,
            prompt_logit_rows: Tokens(16),
            steps_in_flight: 2,
        },
        kv: KvConfig { block_size: BLOCK_SIZE, blocks, prefix_caching: true, events: false },
        limits: Limits {
            max_model_len,
            block_size: BLOCK_SIZE,
            pool: blocks,
            max_waiting: setup.max_waiting,
            max_waiting_tokens: None,
        },
        restarts: policy.clone(),
        root_restarts: policy,
        stall_after: setup.stall_after,
        front_threads: 1,
        cache_config: Vec::new(),
        log_summary: false,
    })
    .await
    .expect("the toy engine starts")
}

/// The `index`-th of the requests every test sends: prompts of all lengths, every second one seeded.
pub(crate) fn submission(index: u32, max_tokens: u32) -> Submission {
    let length = 3 + (index * 37) % 150;
    let shared = (0..length.min(40)).map(|at| (at * 7) % (VOCAB - 1));
    let own = (40..length).map(|at| (at * 13 + index * 5) % (VOCAB - 1));
    Submission {
        prompt: shared.chain(own).chain([index % (VOCAB - 1)]).collect(),
        sampling: Arc::new(SamplingParams {
            max_tokens,
            temperature: if index.is_multiple_of(2) { 0.0 } else { 0.9 },
            seed: u64::from(index),
            ..SamplingParams::default()
        }),
        priority: 0,
        salt: None,
    }
}

/// Reads a stream to its end: the tokens and the last event.
pub(crate) async fn collect(mut generation: Generation) -> (Vec<TokenId>, GenerationEvent) {
    let mut tokens = Vec::new();
    while let Some(event) = generation.next().await {
        match event {
            GenerationEvent::Token { token, .. } => tokens.push(token),
            GenerationEvent::PromptLogprobs(_) => {}
            last => return (tokens, last),
        }
    }
    panic!("a stream ended without saying why");
}

/// What an undisturbed engine answers to one request alone.
pub(crate) fn expected(submission: &Submission) -> Vec<TokenId> {
    use updraft_core::sampling::{Sampler, Scratch};
    let mut tokens: Vec<TokenId> = submission.prompt.to_vec();
    let prompt = tokens.len();
    let mut sampler = Sampler::new(Arc::clone(&submission.sampling), &submission.prompt, &[], VOCAB as usize);
    let mut scratch = Scratch::default();
    for _ in 0..submission.sampling.max_tokens {
        let logits = toy_logits(tokens.iter().copied());
        let sampled = sampler.sample(&logits, &mut scratch).expect("the toy's logits are numbers");
        sampler.accept(sampled.token);
        tokens.push(sampled.token);
    }
    tokens.split_off(prompt)
}

//! A twin and an engine around it: small enough to compute by hand, strict enough to notice a wrong block.

#![allow(dead_code, reason = "each test file uses its own part of this module")]

use std::sync::Arc;
use std::time::Duration;

use updraft_actors::{
    DeviceFactory, Engine, EngineOptions, Generation, GenerationEvent, OPEN_DEADLINE_DEFAULT, Placement,
    Submission,
};
use updraft_core::admission::Limits;
use updraft_core::graphs::{GraphMode, GraphOptions};
use updraft_core::kv::KvConfig;
use updraft_core::recovery::RecoveryPolicy;
use updraft_core::restart::RestartPolicy;
use updraft_core::sampling::SamplingParams;
use updraft_core::scheduler::{LatencyBound, Policy, SchedulerConfig, TokenLatency};
use updraft_core::speculation::{Method, NgramLengths, SpeculationConfig};
use updraft_core::{Blocks, Millis, TokenId, Tokens};
use updraft_devices::twin::{TwinDevice, TwinFaults, TwinOptions, logits_after};

/// Tokens the twin knows.
pub(crate) const VOCAB: u32 = 97;
/// Tokens in a block.
pub(crate) const BLOCK_SIZE: Tokens = Tokens(16);

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
    pub(crate) faults: TwinFaults,
    /// A thread with a twin when absent.
    pub(crate) placement: Option<Placement>,
    pub(crate) ordinals: Vec<u32>,
    pub(crate) mode: GraphMode,
    pub(crate) verify_replay: u32,
    pub(crate) step_deadline: Duration,
    pub(crate) open_deadline: Duration,
    pub(crate) speculation: Option<SpeculationConfig>,
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
            faults: TwinFaults::default(),
            placement: None,
            ordinals: vec![0],
            mode: GraphMode::None,
            verify_replay: 0,
            step_deadline: Duration::from_secs(30),
            open_deadline: OPEN_DEADLINE_DEFAULT,
            speculation: None,
        }
    }
}

/// Drafts of up to four tokens, after two that stood before.
pub(crate) fn speculation() -> SpeculationConfig {
    let method = Method::Ngram(NgramLengths { min: 2, max: 4 });
    SpeculationConfig { method, drafts: Tokens(4), rows: Tokens(64) }
}

/// Makes twins.
pub(crate) fn twins(blocks: u32, step_time: Duration, faults: &TwinFaults) -> DeviceFactory {
    let faults = faults.clone();
    Arc::new(move |ordinal| {
        let twin = TwinDevice::new(TwinOptions {
            ordinal,
            vocab: VOCAB,
            blocks: Blocks(blocks),
            block_size: BLOCK_SIZE,
            step_time,
            faults: faults.clone(),
        })?;
        Ok(Box::new(twin))
    })
}

/// Starts an engine on a twin.
pub(crate) async fn start(setup: &Setup) -> Engine {
    let blocks = Blocks(setup.blocks);
    let on_a_thread = || Placement::Thread(twins(setup.blocks, setup.step_time, &setup.faults));
    let policy = RestartPolicy {
        first_delay: setup.restart_delay,
        longest_delay: Millis(200),
        budget: setup.restarts,
        ..RestartPolicy::default()
    };
    let max_model_len = Tokens(1_000);
    Engine::start(EngineOptions {
        placement: setup.placement.clone().unwrap_or_else(on_a_thread),
        ordinals: setup.ordinals.clone(),
        graphs: GraphOptions { mode: setup.mode, ..GraphOptions::default() },
        verify_replay: setup.verify_replay,
        step_deadline: setup.step_deadline,
        open_deadline: setup.open_deadline,
        recovery: RecoveryPolicy::default(),
        model_name: "twin".to_owned(),
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
            token_latency: Some(TokenLatency { bound: LatencyBound::Auto, least: Tokens(16) }),
            steps_in_flight: 2,
            speculation: setup.speculation.clone(),
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
    .expect("the engine starts")
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

/// The same, answered in two tokens only, so that some drafts are right and some are not.
pub(crate) fn repetitive(index: u32, max_tokens: u32) -> Submission {
    let plain = submission(index, max_tokens);
    let sampling = SamplingParams { allowed_token_ids: Some(vec![3, 4]), ..(*plain.sampling).clone() };
    Submission { sampling: Arc::new(sampling), ..plain }
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

/// Waits until a condition holds, for a minute at most.
pub(crate) async fn wait_until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    for _ in 0..30_000 {
        if holds().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    panic!("waited in vain: {what}");
}

/// Waits until the engine has ended by itself, for a minute at most.
pub(crate) async fn wait_until_exhausted(engine: &Engine) {
    let ended = tokio::time::timeout(Duration::from_secs(60), engine.exhausted()).await;
    ended.expect("the engine ends by itself");
}

/// The value of a line of the metrics page; the line has to be there.
pub(crate) async fn metric(engine: &Engine, line: &str) -> f64 {
    let page = engine.render_metrics().await;
    let found = page.lines().find_map(|each| each.strip_prefix(line)?.strip_prefix(' '));
    found.unwrap_or_else(|| panic!("{line} is not in\n{page}")).parse().expect("it is a number")
}

/// What an undisturbed engine answers to one request alone.
pub(crate) fn expected(submission: &Submission) -> Vec<TokenId> {
    use updraft_core::sampling::{Sampler, Scratch};
    let mut tokens: Vec<TokenId> = submission.prompt.to_vec();
    let prompt = tokens.len();
    let mut sampler = Sampler::new(Arc::clone(&submission.sampling), &submission.prompt, &[], VOCAB as usize);
    let mut scratch = Scratch::default();
    for _ in 0..submission.sampling.max_tokens {
        let logits = logits_after(tokens.iter().copied(), VOCAB);
        let sampled = sampler.sample(&logits, &mut scratch).expect("the twin's logits are numbers");
        sampler.accept(sampled.token);
        tokens.push(sampled.token);
    }
    tokens.split_off(prompt)
}

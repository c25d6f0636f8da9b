//! A real model from the fixtures behind a real engine, without HTTP.

#![allow(dead_code, reason = "each test file uses its own part of this module")]

pub(crate) mod kernel_paths;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use updraft_actors::{
    Engine, EngineOptions, Generation, GenerationEvent, OPEN_DEADLINE_DEFAULT, Placement, Submission,
};
use updraft_core::admission::Limits;
use updraft_core::graphs::{GraphMode, GraphOptions};
use updraft_core::kv::KvConfig;
use updraft_core::recovery::RecoveryPolicy;
use updraft_core::restart::RestartPolicy;
use updraft_core::sampling::SamplingParams;
use updraft_core::scheduler::{LatencyBound, Policy, SchedulerConfig, TokenLatency};
use updraft_core::speculation::SpeculationConfig;
use updraft_core::step::TokenLogprobs;
use updraft_core::{Blocks, Millis, TokenId, Tokens};
use updraft_devices::Device;
use updraft_devices::cpu::{CpuDevice, CpuModel, CpuOptions, LoadOptions};
use updraft_kernels::kv_cache::KvType;
use updraft_kernels::matrix::Precision;
use updraft_kernels::team::Pinning;
use updraft_models::{Checkpoint, OpenOptions};

/// Tokens in a block.
pub(crate) const BLOCK_SIZE: Tokens = Tokens(16);
/// Longest sequence of the fixtures, and room to spare.
pub(crate) const MAX_MODEL_LEN: Tokens = Tokens(512);

/// The fixtures' folder.
pub(crate) fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

/// A fixture checkpoint, computed in float32.
pub(crate) fn load(name: &str, precision: Precision) -> Arc<CpuModel> {
    let path = fixtures().join("models").join(name);
    let checkpoint = Checkpoint::open(&path, &OpenOptions::default()).expect("the fixture opens");
    let options = LoadOptions { precision, threads: 2 };
    CpuModel::load(checkpoint.program.clone(), &checkpoint, &options, &|_| {}).expect("the fixture loads")
}

/// Knobs of a test engine.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) blocks: u32,
    pub(crate) step_budget: u32,
    pub(crate) kv: KvType,
    pub(crate) threads: usize,
    pub(crate) prefix_caching: bool,
    pub(crate) token_latency: Option<TokenLatency>,
    pub(crate) graphs: GraphMode,
    pub(crate) speculation: Option<SpeculationConfig>,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            blocks: 1_024,
            step_budget: 256,
            kv: KvType::F32,
            threads: 2,
            prefix_caching: false,
            token_latency: Some(TokenLatency { bound: LatencyBound::Auto, least: Tokens(16) }),
            graphs: GraphMode::None,
            speculation: None,
        }
    }
}

/// Starts an engine on `model`.
pub(crate) async fn start(model: &Arc<CpuModel>, setup: &Setup) -> Engine {
    let (blocks, pool_limits) = (Blocks(setup.blocks), Blocks(setup.blocks));
    let options = CpuOptions {
        threads: setup.threads,
        pinning: Pinning::Anywhere,
        blocks,
        block_size: BLOCK_SIZE,
        kv: setup.kv,
        max_rows: setup.step_budget as usize,
        // Tokens, prompt log-probabilities, drafts.
        max_logit_rows: 64 + 32 + 64,
    };
    let restarts = RestartPolicy { first_delay: Millis(2), budget: 100, ..RestartPolicy::default() };
    let model = Arc::clone(model);
    Engine::start(EngineOptions {
        placement: Placement::Thread(Arc::new(move |_ordinal| {
            Ok(Box::new(CpuDevice::new(Arc::clone(&model), &options)?) as Box<dyn Device>)
        })),
        ordinals: vec![0],
        graphs: GraphOptions { mode: setup.graphs, ..GraphOptions::default() },
        verify_replay: 0,
        step_deadline: Duration::from_secs(60),
        open_deadline: OPEN_DEADLINE_DEFAULT,
        recovery: RecoveryPolicy::default(),
        model_name: "fixture".to_owned(),
        scheduler: SchedulerConfig {
            max_sequences: 64,
            max_waiting: 64,
            step_budget: Tokens(setup.step_budget),
            chunk_limit: Tokens::ZERO,
            max_model_len: MAX_MODEL_LEN,
            policy: Policy::Fcfs,
            ageing: Millis(1_000),
            block_size: BLOCK_SIZE,
            pool: blocks,
            prompt_logit_rows: Tokens(32),
            token_latency: setup.token_latency,
            steps_in_flight: 2,
            speculation: setup.speculation.clone(),
        },
        kv: KvConfig { block_size: BLOCK_SIZE, blocks, prefix_caching: setup.prefix_caching, events: false },
        limits: Limits {
            max_model_len: MAX_MODEL_LEN,
            block_size: BLOCK_SIZE,
            pool: pool_limits,
            max_waiting: 64,
            max_waiting_tokens: None,
        },
        restarts: restarts.clone(),
        root_restarts: restarts,
        stall_after: Duration::from_secs(60),
        front_threads: 1,
        cache_config: Vec::new(),
        log_summary: false,
    })
    .await
    .expect("the engine starts")
}

/// What a stream gave.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Collected {
    pub(crate) tokens: Vec<TokenId>,
    pub(crate) logprobs: Vec<TokenLogprobs>,
    pub(crate) prompt_logprobs: Vec<(Tokens, TokenLogprobs)>,
    pub(crate) cached: u32,
    pub(crate) end: Option<GenerationEvent>,
}

/// Reads a stream to its end.
pub(crate) async fn collect(mut generation: Generation) -> Collected {
    let mut all = Collected::default();
    while let Some(event) = generation.next().await {
        match event {
            GenerationEvent::Token { token, logprobs } => {
                all.tokens.push(token);
                all.logprobs.extend(logprobs.map(|entry| *entry));
            }
            GenerationEvent::PromptLogprobs(entries) => all.prompt_logprobs.extend(entries),
            last => all.end = Some(last),
        }
    }
    all.cached = generation.cached_tokens().0;
    all
}

/// A submission of these tokens.
pub(crate) fn submission(prompt: &[TokenId], sampling: SamplingParams) -> Submission {
    Submission { prompt: prompt.into(), sampling: Arc::new(sampling), priority: 0, salt: None }
}

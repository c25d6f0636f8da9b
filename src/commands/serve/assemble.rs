//! From options and plan to what the engine and the HTTP side are made of.

use std::sync::Arc;

use updraft_actors::{EngineOptions, OPEN_DEADLINE_DEFAULT};
use updraft_core::admission::Limits;
use updraft_core::graphs::GraphOptions;
use updraft_core::kv::KvConfig;
use updraft_core::recovery::RecoveryPolicy;
use updraft_core::restart::RestartPolicy;
use updraft_core::scheduler::{Policy, SchedulerConfig};
use updraft_core::{Millis, Tokens};
use updraft_protocol::{RequestLimits, SamplingDefaults};

use super::{Prepared, placement};
use crate::config::Config;
use crate::config::device::Target;
use crate::config::scheduling::SchedulingPolicy;
use crate::config::values::LogprobsLimit;
use crate::http::{AppParts, Backend, HttpOptions};

/// Under the `priority` policy, waiting this long counts as much as one level of priority.
const AGEING: Millis = Millis(2_000);
/// Steps planned ahead of their results: the device never waits for a plan.
const STEPS_IN_FLIGHT: u32 = 2;
/// Prompt positions whose logits one step computes for prompt log-probabilities: a row of a large vocabulary
/// takes a megabyte.
const PROMPT_LOGIT_ROWS: Tokens = Tokens(64);
/// Restarts of parts of the engine in a minute before all of it is started afresh: room for several requests
/// that each have to fail three times before they are known for what they are.
const ENGINE_RESTARTS_MAX: u32 = 15;
/// Threads for templates and tokenising, at most: they compete with the ones that compute.
const FRONT_THREADS_MAX: usize = 4;

/// Rows of one step that may need logits: a token for everyone who runs, and what else is asked of positions.
pub(super) fn logit_rows(config: &Config) -> usize {
    let scheduling = &config.scheduling;
    (Tokens(scheduling.max_num_seqs) + PROMPT_LOGIT_ROWS + scheduling.draft_rows()).0 as usize
}

/// Which graphs are captured.
pub(super) fn graph_options(config: &Config, target: Target) -> GraphOptions {
    let platform = &config.platform;
    // A graph on the CPU computes no padding, so one of the largest size serves all.
    let largest = platform.max_size.unwrap_or(u32::MAX).min(config.scheduling.max_num_seqs);
    let one_for_all = || vec![largest];
    let sizes = platform.sizes.clone().or_else(|| (target == Target::Cpu).then(one_for_all));
    GraphOptions {
        mode: platform.mode_on(target),
        sizes,
        max_size: platform.max_size,
        ..GraphOptions::default()
    }
}

/// What the engine is made of.
pub(super) fn engine_options(config: &Config, prepared: &Prepared, model_name: &str) -> EngineOptions {
    let plan = &prepared.fitted.plan;
    let hardware = &prepared.fitted.hardware;
    let target = hardware.target();
    let scheduling = &config.scheduling;
    EngineOptions {
        placement: prepared.placement.clone(),
        ordinals: hardware.ordinals(),
        graphs: graph_options(config, target),
        verify_replay: config.device.verify_replay,
        step_deadline: placement::step_deadline(config, target),
        open_deadline: OPEN_DEADLINE_DEFAULT,
        recovery: RecoveryPolicy::default(),
        model_name: model_name.to_owned(),
        scheduler: SchedulerConfig {
            max_sequences: scheduling.max_num_seqs,
            max_waiting: scheduling.max_num_queued_reqs,
            step_budget: plan.step_budget,
            chunk_limit: Tokens(scheduling.long_prefill_token_threshold),
            max_model_len: plan.max_model_len,
            policy: match scheduling.scheduling_policy {
                SchedulingPolicy::Fcfs => Policy::Fcfs,
                SchedulingPolicy::Priority => Policy::Priority,
            },
            ageing: AGEING,
            block_size: plan.block_size,
            pool: plan.blocks,
            prompt_logit_rows: PROMPT_LOGIT_ROWS,
            token_latency: scheduling.token_latency(),
            steps_in_flight: STEPS_IN_FLIGHT,
            speculation: scheduling.speculative_config.clone(),
        },
        kv: KvConfig {
            block_size: plan.block_size,
            blocks: plan.blocks,
            prefix_caching: config.memory.enable_prefix_caching,
            events: true,
        },
        limits: Limits {
            max_model_len: plan.max_model_len,
            block_size: plan.block_size,
            pool: plan.blocks,
            max_waiting: scheduling.max_num_queued_reqs,
            max_waiting_tokens: scheduling.max_num_queued_tokens.map(Tokens),
        },
        restarts: RestartPolicy { budget: ENGINE_RESTARTS_MAX, ..RestartPolicy::default() },
        root_restarts: RestartPolicy::default(),
        stall_after: placement::stall_after(config, target),
        front_threads: prepared.team.threads.clamp(1, FRONT_THREADS_MAX),
        cache_config: cache_config(config, prepared),
        log_summary: !config.logging.disable_log_stats,
    }
}

/// Labels of the metric that describes the KV cache, named as the fields of vLLM.
fn cache_config(config: &Config, prepared: &Prepared) -> Vec<(&'static str, String)> {
    let plan = &prepared.fitted.plan;
    vec![
        ("block_size", plan.block_size.0.to_string()),
        ("cache_dtype", prepared.fitted.types.kv_name().to_owned()),
        ("enable_prefix_caching", config.memory.enable_prefix_caching.to_string()),
        ("gpu_memory_utilization", config.memory.gpu_memory_utilization.to_string()),
        ("kv_cache_max_concurrency", format!("{:.1}", plan.max_concurrency())),
        ("kv_cache_memory_bytes", plan.kv.0.to_string()),
        ("kv_cache_size_tokens", plan.kv_tokens().to_string()),
        ("num_gpu_blocks", plan.blocks.0.to_string()),
    ]
}

/// What the HTTP side is made of.
pub(super) fn app_parts(
    config: &Config,
    prepared: &Prepared,
    backend: Backend,
    defaults: SamplingDefaults,
) -> AppParts {
    let checkpoint = &prepared.fitted.checkpoint;
    let model = &checkpoint.config;
    let mut limits = RequestLimits::new(model.vocab, prepared.fitted.plan.max_model_len.0);
    // What is more than the house holds could only ever be told to come back later.
    let house = config.scheduling.max_num_seqs.saturating_add(config.scheduling.max_num_queued_reqs);
    limits.max_sequences = limits.max_sequences.min(house);
    limits.max_logprobs = match config.generation.max_logprobs {
        LogprobsLimit::Vocabulary => model.vocab,
        LogprobsLimit::Count(count) => count.min(model.vocab),
    };
    AppParts {
        backend,
        text: Arc::clone(&prepared.text),
        model_names: config.served_names(),
        model_root: config.model_name().to_owned(),
        limits,
        defaults,
        eos_token_ids: checkpoint.text.eos_token_ids.clone(),
        options: http_options(config),
    }
}

fn http_options(config: &Config) -> HttpOptions {
    let server = &config.server;
    HttpOptions {
        api_keys: server.api_key.iter().map(|key| key.expose().to_owned()).collect(),
        allowed_origins: server.allowed_origins.0.clone(),
        max_body_bytes: usize::try_from(server.max_body_size).unwrap_or(usize::MAX),
        docs: !server.disable_fastapi_docs,
        force_include_usage: server.enable_force_include_usage,
        keep_alive: Some(server.sse_keep_alive_interval).filter(|interval| !interval.is_zero()),
        max_connections: server.max_connections as usize,
    }
}

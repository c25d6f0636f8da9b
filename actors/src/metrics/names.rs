//! Names and buckets of every metric, in one place.
//!
//! `vllm:` names are those dashboards for vLLM know, with the `_total` their client library adds to counters.
//! They never change; `updraft_` names are ours.

macro_rules! names {
    ($($(#[$doc:meta])* $constant:ident = $name:literal;)*) => {
        $($(#[$doc])* pub(super) const $constant: &str = $name;)*
        /// Every metric name that can appear on the page.
        pub const NAMES: &[&str] = &[$($name),*];
    };
}

names! {
    RUNNING = "vllm:num_requests_running";
    WAITING = "vllm:num_requests_waiting";
    WAITING_BY_REASON = "vllm:num_requests_waiting_by_reason";
    SLEEP_STATE = "vllm:engine_sleep_state";
    KV_USAGE = "vllm:kv_cache_usage_perc";
    PREFIX_QUERIES = "vllm:prefix_cache_queries_total";
    PREFIX_HITS = "vllm:prefix_cache_hits_total";
    PREEMPTIONS = "vllm:num_preemptions_total";
    PROMPT_TOKENS = "vllm:prompt_tokens_total";
    GENERATION_TOKENS = "vllm:generation_tokens_total";
    PROMPT_TOKENS_BY_SOURCE = "vllm:prompt_tokens_by_source_total";
    PROMPT_TOKENS_CACHED = "vllm:prompt_tokens_cached_total";
    PROMPT_TOKENS_CACHED_BY_SOURCE = "vllm:prompt_tokens_cached_by_source_total";
    REQUEST_SUCCESS = "vllm:request_success_total";
    ADMISSION_REJECTIONS = "vllm:admission_rejections_total";
    REQUEST_PROMPT_TOKENS = "vllm:request_prompt_tokens";
    REQUEST_GENERATION_TOKENS = "vllm:request_generation_tokens";
    REQUEST_MAX_GENERATION_TOKENS = "vllm:request_max_num_generation_tokens";
    REQUEST_PARAMS_MAX_TOKENS = "vllm:request_params_max_tokens";
    REQUEST_PARAMS_N = "vllm:request_params_n";
    REQUEST_PREFILL_COMPUTED = "vllm:request_prefill_kv_computed_tokens";
    REQUEST_PREEMPTIONS = "vllm:request_num_preemptions";
    ITERATION_TOKENS = "vllm:iteration_tokens_total";
    TTFT = "vllm:time_to_first_token_seconds";
    INTER_TOKEN = "vllm:inter_token_latency_seconds";
    TIME_PER_OUTPUT_TOKEN = "vllm:request_time_per_output_token_seconds";
    E2E = "vllm:e2e_request_latency_seconds";
    QUEUE_TIME = "vllm:request_queue_time_seconds";
    INFERENCE_TIME = "vllm:request_inference_time_seconds";
    PREFILL_TIME = "vllm:request_prefill_time_seconds";
    DECODE_TIME = "vllm:request_decode_time_seconds";
    CACHE_CONFIG = "vllm:cache_config_info";
    DRAFTS = "vllm:spec_decode_num_drafts_total";
    DRAFT_TOKENS = "vllm:spec_decode_num_draft_tokens_total";
    ACCEPTED_TOKENS = "vllm:spec_decode_num_accepted_tokens_total";
    ACCEPTED_TOKENS_PER_POSITION = "vllm:spec_decode_num_accepted_tokens_per_pos_total";
    HOST_OVERHEAD = "updraft_host_overhead_seconds";
    DEVICE_TIME = "updraft_device_step_seconds";
    ACTOR_RESTARTS = "updraft_actor_restarts_total";
    BUS_DROPPED = "updraft_bus_dropped_total";
    FAULTS = "updraft_faults_total";
    EXECUTOR_EPOCH = "updraft_executor_epoch";
    STALE_PLANS = "updraft_stale_plans_total";
    MAILBOX_DEPTH = "updraft_mailbox_depth";
    STEP_BUDGET = "updraft_step_token_budget";
    STEPS = "updraft_steps_total";
    LAUNCH_TIME = "updraft_launch_seconds";
    GRAPH_HITS = "updraft_graph_hits_total";
    GRAPH_REPLAYS = "updraft_graph_replays_total";
    GRAPH_PADDED = "updraft_graph_padded_rows_total";
    GRAPH_EAGER = "updraft_graph_eager_steps_total";
    GRAPH_CAPTURES = "updraft_graph_captures_total";
    GRAPH_CAPTURE_TIME = "updraft_graph_capture_seconds";
    GRAPH_RETIREMENTS = "updraft_graph_retirements_total";
    GRAPH_CHECKS = "updraft_graph_checks_total";
    GRAPH_BYTES = "updraft_graph_bytes";
    DEVICE_FAULTS = "updraft_device_faults_total";
    DEVICE_RECOVERIES = "updraft_device_recoveries_total";
    DEVICE_RECOVERY_TIME = "updraft_device_recovery_seconds";
    DEVICES_RETIRED = "updraft_devices_retired_total";
    OUT_OF_SERVICE = "updraft_out_of_service";
    RESIDENT_BYTES = "process_resident_memory_bytes";
    START_TIME = "process_start_time_seconds";
}

const LATENCY: &[f64] = &[
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0,
    960.0, 1920.0, 7680.0,
];
const FIRST_TOKEN: &[f64] = &[
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0,
    80.0, 160.0, 640.0, 2560.0,
];
const BETWEEN_TOKENS: &[f64] = &[
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
];
const ITERATION: &[f64] =
    &[1.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0];
const CHOICES: &[f64] = &[1.0, 2.0, 5.0, 10.0, 20.0];
const PREEMPTED: &[f64] = &[1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 20.0];
const HOST: &[f64] = &[
    0.000_01, 0.000_025, 0.000_05, 0.000_1, 0.000_15, 0.000_2, 0.000_3, 0.000_5, 0.001, 0.002, 0.005, 0.01,
    0.1, 1.0,
];

const MENDING: &[f64] = &[0.000_1, 0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0];
const CAPTURE: &[f64] = &[0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0];

/// Histograms with fixed buckets. Those of [`TOKEN_HISTOGRAMS`] depend on the context length.
pub const HISTOGRAMS: &[(&str, &[f64])] = &[
    (ITERATION_TOKENS, ITERATION),
    (REQUEST_PARAMS_N, CHOICES),
    (REQUEST_PREEMPTIONS, PREEMPTED),
    (TTFT, FIRST_TOKEN),
    (INTER_TOKEN, BETWEEN_TOKENS),
    (TIME_PER_OUTPUT_TOKEN, BETWEEN_TOKENS),
    (E2E, LATENCY),
    (QUEUE_TIME, LATENCY),
    (INFERENCE_TIME, LATENCY),
    (PREFILL_TIME, LATENCY),
    (DECODE_TIME, LATENCY),
    (HOST_OVERHEAD, HOST),
    (DEVICE_TIME, BETWEEN_TOKENS),
    (LAUNCH_TIME, HOST),
    (GRAPH_CAPTURE_TIME, CAPTURE),
    (DEVICE_RECOVERY_TIME, MENDING),
];

/// Histograms of token counts.
pub(super) const TOKEN_HISTOGRAMS: &[&str] = &[
    REQUEST_PROMPT_TOKENS,
    REQUEST_GENERATION_TOKENS,
    REQUEST_MAX_GENERATION_TOKENS,
    REQUEST_PARAMS_MAX_TOKENS,
    REQUEST_PREFILL_COMPUTED,
];

/// 1, 2, 5, 10, 20, 50, ... up to the context length.
pub(super) fn token_buckets(max_model_len: u32) -> Vec<f64> {
    let mut buckets = Vec::new();
    let mut decade = 1_u64;
    loop {
        for factor in [1, 2, 5] {
            let bucket = decade * factor;
            if bucket > u64::from(max_model_len) {
                return buckets;
            }
            buckets.push(bucket as f64);
        }
        decade *= 10;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_buckets_end_at_the_context_length() {
        assert_eq!(token_buckets(100), [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0]);
        assert_eq!(token_buckets(99).last(), Some(&50.0));
    }

    #[test]
    fn no_name_is_given_twice() {
        let mut names = NAMES.to_vec();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), NAMES.len());
    }
}

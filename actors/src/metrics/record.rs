//! From records on the bus to metrics. One function a kind of record.

use std::time::{SystemTime, UNIX_EPOCH};

use metrics::{counter, gauge, histogram};
use updraft_core::Millis;
use updraft_core::fault::FaultClass;

use super::names as n;
use super::recorder::Labels;
use super::{device, graphs, speculation};
use crate::bus::{Bus, FaultRecord, LossRecord, RequestRecord, RequestSummary, StepRecord};
use crate::supervisor::StatusBoard;

/// Finish reasons in the order of the reference.
const REASONS: [&str; 5] = ["stop", "length", "abort", "error", "repetition"];

/// Gives every counter and gauge a first value, so that a dashboard shows zero and not "no data".
pub(super) fn first_values(labels: &Labels) {
    for name in [n::RUNNING, n::WAITING, n::KV_USAGE] {
        gauge!(name, labels).set(0.0);
    }
    gauge!(n::STEP_BUDGET).set(0.0);
    for name in [
        n::PREFIX_QUERIES,
        n::PREFIX_HITS,
        n::PREEMPTIONS,
        n::PROMPT_TOKENS,
        n::GENERATION_TOKENS,
        n::PROMPT_TOKENS_CACHED,
    ] {
        counter!(name, labels).absolute(0);
    }
    for reason in REASONS {
        counter!(n::REQUEST_SUCCESS, &with(labels, "finished_reason", reason)).absolute(0);
    }
    for reason in ["max_num_queued_reqs", "max_num_queued_tokens"] {
        counter!(n::ADMISSION_REJECTIONS, &with(labels, "reason", reason)).absolute(0);
    }
    for (state, value) in [("awake", 1.0), ("weights_offloaded", 0.0), ("discard_all", 0.0)] {
        gauge!(n::SLEEP_STATE, &with(labels, "sleep_state", state)).set(value);
    }
    for class in ["executor", "hang", "kv_blocks", "scheduler", "intake", "graphs", "metrics", "supervisor"] {
        counter!(n::FAULTS, "class" => class).absolute(0);
        if class != "hang" {
            counter!(n::ACTOR_RESTARTS, "actor" => class).absolute(0);
        }
    }
    counter!(n::STEPS).absolute(0);
    graphs::first_values();
    device::first_values();
    let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    gauge!(n::START_TIME).set(started.as_secs_f64());
}

pub(super) fn with(labels: &Labels, key: &'static str, value: &str) -> [(&'static str, String); 3] {
    let [model, engine] = labels.clone();
    [model, engine, (key, value.to_owned())]
}

/// One step.
pub(super) fn step(step: &StepRecord, labels: &Labels) {
    gauge!(n::RUNNING, labels).set(step.running);
    gauge!(n::WAITING, labels).set(step.waiting);
    gauge!(n::STEP_BUDGET).set(step.step_budget);
    gauge!(n::WAITING_BY_REASON, &with(labels, "reason", "capacity")).set(step.waiting);
    gauge!(n::WAITING_BY_REASON, &with(labels, "reason", "deferred")).set(0.0);
    gauge!(n::KV_USAGE, labels).set(f64::from(step.kv.used) / f64::from(step.kv.total.max(1)));
    counter!(n::PREFIX_QUERIES, labels).absolute(step.kv.prefix_queries);
    counter!(n::PREFIX_HITS, labels).absolute(step.kv.prefix_hits);
    counter!(n::PREEMPTIONS, labels).increment(u64::from(step.preemptions));
    if step.computed_tokens == 0 {
        return;
    }
    counter!(n::STEPS).increment(1);
    counter!(n::GENERATION_TOKENS, labels).increment(u64::from(step.generated_tokens));
    histogram!(n::ITERATION_TOKENS, labels).record(step.computed_tokens);
    histogram!(n::DEVICE_TIME).record(step.device_micros as f64 / 1e6);
    histogram!(n::LAUNCH_TIME).record(step.launch_micros as f64 / 1e6);
    graphs::launched(step.launched);
    speculation::step(&step.drafts, labels);
    if let Some(host) = step.host_micros {
        histogram!(n::HOST_OVERHEAD).record(host as f64 / 1e6);
    }
}

/// One moment of a request.
pub(super) fn request(record: &RequestRecord, labels: &Labels) {
    match record {
        RequestRecord::FirstToken { prompt_tokens, cached_tokens, since_arrival } => {
            let (prompt, cached) = (u64::from(*prompt_tokens), u64::from(*cached_tokens));
            counter!(n::PROMPT_TOKENS, labels).increment(prompt);
            counter!(n::PROMPT_TOKENS_CACHED, labels).increment(cached);
            let device = with(labels, "source", "device");
            counter!(n::PROMPT_TOKENS_CACHED_BY_SOURCE, &device).increment(cached);
            let computed = with(labels, "source", "local_compute");
            counter!(n::PROMPT_TOKENS_BY_SOURCE, &computed).increment(prompt.saturating_sub(cached));
            let hit = with(labels, "source", "local_cache_hit");
            counter!(n::PROMPT_TOKENS_BY_SOURCE, &hit).increment(cached);
            histogram!(n::TTFT, labels).record(seconds(*since_arrival));
        }
        RequestRecord::NextToken { gap } => histogram!(n::INTER_TOKEN, labels).record(gap.as_secs_f64()),
        RequestRecord::Ended(summary) => ended(summary, labels),
        RequestRecord::Refused { reason } => {
            counter!(n::ADMISSION_REJECTIONS, &with(labels, "reason", reason)).increment(1);
        }
    }
}

fn ended(summary: &RequestSummary, labels: &Labels) {
    counter!(n::REQUEST_SUCCESS, &with(labels, "finished_reason", summary.reason)).increment(1);
    for (name, tokens) in [
        (n::REQUEST_PROMPT_TOKENS, summary.prompt_tokens),
        (n::REQUEST_GENERATION_TOKENS, summary.output_tokens),
        (n::REQUEST_MAX_GENERATION_TOKENS, summary.output_tokens),
        (n::REQUEST_PARAMS_MAX_TOKENS, summary.max_tokens),
        (n::REQUEST_PREFILL_COMPUTED, summary.computed_tokens),
        (n::REQUEST_PREEMPTIONS, summary.preemptions),
        (n::REQUEST_PARAMS_N, 1),
    ] {
        histogram!(name, labels).record(tokens);
    }
    histogram!(n::E2E, labels).record(seconds(summary.total));
    for (name, time) in [
        (n::QUEUE_TIME, summary.queued),
        (n::PREFILL_TIME, summary.prefill),
        (n::DECODE_TIME, summary.decode),
        (n::INFERENCE_TIME, summary.prefill.zip(summary.decode).map(|(prefill, decode)| prefill + decode)),
    ] {
        if let Some(time) = time {
            histogram!(name, labels).record(seconds(time));
        }
    }
    if let Some(decode) = summary.decode.filter(|_| summary.output_tokens > 1) {
        let each = seconds(decode) / f64::from(summary.output_tokens - 1);
        histogram!(n::TIME_PER_OUTPUT_TOKEN, labels).record(each);
    }
}

/// One loss, or one fault of a device.
pub(super) fn fault(fault: &FaultRecord) {
    match fault {
        FaultRecord::Lost(loss) => lost(loss),
        FaultRecord::Device(fault) => device::fault(fault),
        FaultRecord::Retired { replaced_by, .. } => device::retired(replaced_by.is_some()),
    }
}

fn lost(loss: &LossRecord) {
    counter!(n::FAULTS, "class" => loss.class.as_str()).increment(1);
    let actor = match loss.class {
        FaultClass::Hang => "executor",
        class => class.as_str(),
    };
    counter!(n::ACTOR_RESTARTS, "actor" => actor).increment(1);
}

/// Drop counters of the bus.
pub(super) fn bus(bus: &Bus) {
    for (topic, dropped) in bus.dropped() {
        counter!(n::BUS_DROPPED, "topic" => topic).absolute(dropped);
    }
}

/// What the status board says, and the process's memory.
pub(super) fn board(board: &StatusBoard) {
    gauge!(n::EXECUTOR_EPOCH).set(board.read().epoch as f64);
    counter!(n::STALE_PLANS).absolute(board.stale());
    for (actor, depth) in board.mailbox_depths() {
        gauge!(n::MAILBOX_DEPTH, "actor" => actor).set(depth as f64);
    }
    if let Some(bytes) = resident_bytes() {
        gauge!(n::RESIDENT_BYTES).set(bytes as f64);
    }
}

/// Resident memory from the kernel's own accounting; absent where there is none.
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(kibibytes * 1024)
}

fn seconds(time: Millis) -> f64 {
    time.0 as f64 / 1e3
}

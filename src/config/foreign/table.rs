//! The table itself. Sorted by subject; the reference page prints it.

use super::Outcome::{Given, Ignored, Refused};
use super::Takes::{Many, Nothing, One};
use super::{Foreign, Outcome, Takes};

const fn row(name: &'static str, takes: Takes, outcome: Outcome, text: &'static str) -> Foreign {
    Foreign { name, takes, outcome, text }
}

const PROXY: &str = "put a proxy in front that does it";
const ONE_PROCESS: &str = "one process serves all requests; start several servers behind a balancer for more";
const NO_EXPERTS: &str = "mixture-of-experts models are not served yet";
const NO_LORA: &str = "LoRA adapters are not served yet; serve merged weights";
const NO_TOOLS: &str = "tool calls and reasoning are not parsed yet; leave it out and read the plain text";
const NO_MEDIA: &str = "only text models are served";
const NO_TRANSFER: &str = "the KV cache stays in this process";
const NO_OFFLOAD: &str = "weights and KV cache are in host memory already on the CPU";
const ONE_WAY: &str = "there is one implementation, chosen at start";
const LOG_FILTER: &str = "set the environment variable UPDRAFT_LOG (warn, info, debug)";
const NO_REMOTE_CODE: &str = "no code of a checkpoint is ever run; known architectures are built in";
const NO_TRACES: &str = "no traces are exported; see /metrics";
const DENSE_METRICS: &str = "/metrics has everything there is to tell";

/// `-O0` to `-O3`.
pub const OPTIMIZATION_LEVEL: Foreign =
    row("optimization-level", One, Ignored, "the kernels are compiled ahead of time");

/// Options of vLLM that do not exist here.
#[rustfmt::skip] // one line an option reads best
pub const FOREIGN: &[Foreign] = &[
    // What is the case anyway.
    row("disable-log-requests", Nothing, Given, "requests are only logged with --enable-log-requests"),
    row("trust-remote-code", Nothing, Given, NO_REMOTE_CODE),
    row("enable-prompt-tokens-details", Nothing, Given, "usage always tells the cached tokens"),
    row("enable-request-id-headers", Nothing, Given, "every answer carries x-request-id"),
    row("enable-server-load-tracking", Nothing, Given, "/load always answers"),
    row("enable-tokenizer-info-endpoint", Nothing, Ignored, "there is no /tokenizer_info"),
    row("async-scheduling", Nothing, Given, "the next step is always planned while one runs"),
    row("disable-uvicorn-access-log", Nothing, Given, "there is no access log"),
    row("disable-access-log-for-endpoints", One, Given, "there is no access log"),
    row("uvicorn-log-level", One, Ignored, LOG_FILTER),
    row("log-config-file", One, Ignored, LOG_FILTER),
    row("max-log-len", One, Given, "prompts are never logged"),
    row("enable-log-outputs", Nothing, Refused, "answers are never logged"),
    row("enable-log-deltas", Nothing, Refused, "answers are never logged"),
    row("log-error-stack", Nothing, Ignored, LOG_FILTER),
    row("disable-frontend-multiprocessing", Nothing, Given, "everything runs in one process"),
    row("enable-per-request-metrics", Nothing, Ignored, DENSE_METRICS),
    row("disable-custom-all-reduce", Nothing, Given, "there is one device"),
    row("optimization-level", One, Ignored, "the kernels are compiled ahead of time"),
    row("performance-mode", One, Ignored, ONE_WAY),
    // Address and encryption.
    row("uds", One, Refused, "it listens on TCP; use --host 127.0.0.1 to keep it to this machine"),
    row("ssl-keyfile", One, Refused, PROXY),
    row("ssl-certfile", One, Refused, PROXY),
    row("ssl-ca-certs", One, Refused, PROXY),
    row("ssl-cert-reqs", One, Refused, PROXY),
    row("ssl-ciphers", One, Refused, PROXY),
    row("enable-ssl-refresh", Nothing, Refused, PROXY),
    row("root-path", One, Refused, "let the proxy take the prefix off the path"),
    row("middleware", One, Refused, PROXY),
    row("allow-credentials", Nothing, Refused, "browsers send keys in headers, not in cookies"),
    row("allowed-methods", One, Ignored, "--allowed-origins allows GET, POST and OPTIONS"),
    row("allowed-headers", One, Ignored, "--allowed-origins allows every header"),
    row("h11-max-incomplete-event-size", One, Ignored, "the size of headers is bounded already"),
    row("h11-max-header-count", One, Ignored, "the number of headers is bounded already"),
    row("headless", Nothing, Refused, "a server without an address cannot be asked"),
    row("grpc", Nothing, Refused, "requests come over HTTP"),
    row("grpc-port", One, Refused, "requests come over HTTP"),
    row("api-server-count", One, Ignored, ONE_PROCESS),
    // Model and tokenizer.
    row("task", One, Refused, "only text generation is served"),
    row("runner", One, Refused, "only text generation is served"),
    row("convert", One, Refused, "only text generation is served"),
    row("pooler-config", One, Refused, "only text generation is served"),
    row("hf-config-path", One, Refused, "config.json is taken from the model's folder"),
    row("hf-overrides", One, Refused, "change config.json in a copy of the folder instead"),
    row("hf-token", One, Ignored, "the hub's own variable HF_TOKEN is read"),
    row("config-format", One, Ignored, "the format is told by the files"),
    row("code-revision", One, Given, NO_REMOTE_CODE),
    row("tokenizer-revision", One, Refused, "give a folder with --tokenizer"),
    row("tokenizer-mode", One, Ignored, ONE_WAY),
    row("skip-tokenizer-init", Nothing, Refused, "texts could not be answered"),
    row("model-impl", One, Ignored, ONE_WAY),
    row("model-loader-extra-config", One, Ignored, ONE_WAY),
    row("ignore-patterns", One, Ignored, "only the files that the model needs are fetched"),
    row("use-tqdm-on-load", Nothing, Given, "progress is shown on a terminal"),
    row("rope-scaling", One, Refused, "it is read from config.json; change it in a copy of the folder"),
    row("rope-theta", One, Refused, "it is read from config.json; change it in a copy of the folder"),
    row("disable-sliding-window", Nothing, Refused, "windows are part of what the model computes"),
    row("allow-deprecated-quantization", Nothing, Ignored, ONE_WAY),
    // Text of requests and answers.
    row("trust-request-chat-template", Nothing, Refused, "templates come with the model or --chat-template"),
    row("chat-template-content-format", One, Ignored, "the template is asked which it wants"),
    row("default-chat-template-kwargs", One, Refused, "requests bring chat_template_kwargs"),
    row("response-role", One, Refused, "answers have the role assistant"),
    row("return-tokens-as-token-ids", Nothing, Refused, "requests ask with return_tokens_as_token_ids"),
    row("enable-auto-tool-choice", Nothing, Refused, NO_TOOLS),
    row("tool-call-parser", One, Refused, NO_TOOLS),
    row("tool-parser-plugin", One, Refused, NO_TOOLS),
    row("tool-server", One, Refused, NO_TOOLS),
    row("exclude-tools-when-tool-choice-none", Nothing, Refused, NO_TOOLS),
    row("reasoning-parser", One, Refused, NO_TOOLS),
    row("reasoning-parser-plugin", One, Refused, NO_TOOLS),
    row("reasoning-config", One, Refused, NO_TOOLS),
    row("structured-outputs-config", One, Refused, "answers cannot be held to a grammar yet"),
    row("guided-decoding-backend", One, Refused, "answers cannot be held to a grammar yet"),
    row("logits-processors", Many, Refused, "there are no plugins; see logit_bias and allowed_token_ids"),
    row("logprobs-mode", One, Refused, "log-probabilities are those of the raw logits"),
    row("enable-prompt-embeds", Nothing, Refused, "prompts are texts or tokens"),
    row("limit-mm-per-prompt", One, Refused, NO_MEDIA),
    row("mm-processor-kwargs", One, Refused, NO_MEDIA),
    row("mm-processor-cache-gb", One, Refused, NO_MEDIA),
    row("mm-encoder-tp-mode", One, Refused, NO_MEDIA),
    row("media-io-kwargs", One, Refused, NO_MEDIA),
    row("allowed-local-media-path", One, Refused, NO_MEDIA),
    row("allowed-media-domains", Many, Refused, NO_MEDIA),
    row("interleave-mm-strings", Nothing, Refused, NO_MEDIA),
    row("skip-mm-profiling", Nothing, Refused, NO_MEDIA),
    row("language-model-only", Nothing, Given, NO_MEDIA),
    row("enable-lora", Nothing, Refused, NO_LORA),
    row("lora-modules", Many, Refused, NO_LORA),
    row("max-loras", One, Refused, NO_LORA),
    row("max-lora-rank", One, Refused, NO_LORA),
    row("max-cpu-loras", One, Refused, NO_LORA),
    row("lora-dtype", One, Refused, NO_LORA),
    row("fully-sharded-loras", Nothing, Refused, NO_LORA),
    // Memory.
    row("swap-space", One, Ignored, "a preempted sequence is computed again, not swapped"),
    row("cpu-offload-gb", One, Ignored, NO_OFFLOAD),
    row("offload-backend", One, Ignored, NO_OFFLOAD),
    row("kv-offloading-size", One, Ignored, NO_OFFLOAD),
    row("kv-offloading-backend", One, Ignored, NO_OFFLOAD),
    row("calculate-kv-scales", Nothing, Ignored, "the KV cache holds floats"),
    row("prefix-caching-hash-algo", One, Ignored, ONE_WAY),
    row("disable-hybrid-kv-cache-manager", Nothing, Ignored, ONE_WAY),
    row("watermark", One, Ignored, "blocks are granted when a sequence needs them"),
    row("kv-transfer-config", One, Refused, NO_TRANSFER),
    row("kv-events-config", One, Refused, NO_TRANSFER),
    row("ec-transfer-config", One, Refused, NO_TRANSFER),
    row("kv-cache-metrics", Nothing, Ignored, DENSE_METRICS),
    row("kv-cache-metrics-sample", One, Ignored, DENSE_METRICS),
    row("enable-sleep-mode", Nothing, Refused, "stop the server to free its memory; it starts in seconds"),
    // Scheduling.
    row("max-num-active-seqs", One, Ignored, "see --max-num-seqs"),
    row("max-num-scheduled-tokens", One, Ignored, "see --max-num-batched-tokens"),
    row("max-num-partial-prefills", One, Ignored, "the token budget of a step decides"),
    row("max-long-partial-prefills", One, Ignored, "see --long-prefill-token-threshold"),
    row("long-prefill-token-threshold-adaptive", Nothing, Ignored, "see --max-inter-token-latency"),
    row("scheduler-reserve-full-isl", Nothing, Given, "a prompt starts when all of it fits"),
    row("prefill-schedule-interval", One, Ignored, "prompts share every step"),
    row("stream-interval", One, Ignored, "every token is sent when it is there"),
    row("num-scheduler-steps", One, Ignored, ONE_WAY),
    row("scheduler-cls", One, Refused, "there are no plugins"),
    // Devices and groups of them.
    row("enable-expert-parallel", Nothing, Ignored, NO_EXPERTS),
    row("enable-eplb", Nothing, Ignored, NO_EXPERTS),
    row("eplb-config", One, Ignored, NO_EXPERTS),
    row("all2all-backend", One, Ignored, NO_EXPERTS),
    row("moe-backend", One, Ignored, NO_EXPERTS),
    row("enable-elastic-ep", Nothing, Ignored, NO_EXPERTS),
    row("expert-placement-strategy", One, Ignored, NO_EXPERTS),
    row("distributed-executor-backend", One, Ignored, ONE_PROCESS),
    row("nnodes", One, Refused, ONE_PROCESS),
    row("node-rank", One, Refused, ONE_PROCESS),
    row("master-addr", One, Refused, ONE_PROCESS),
    row("master-port", One, Refused, ONE_PROCESS),
    row("data-parallel-rank", One, Refused, ONE_PROCESS),
    row("data-parallel-start-rank", One, Refused, ONE_PROCESS),
    row("data-parallel-size-local", One, Ignored, ONE_PROCESS),
    row("data-parallel-address", One, Refused, ONE_PROCESS),
    row("data-parallel-rpc-port", One, Refused, ONE_PROCESS),
    row("data-parallel-backend", One, Ignored, ONE_PROCESS),
    row("data-parallel-external-lb", Nothing, Refused, ONE_PROCESS),
    row("data-parallel-hybrid-lb", Nothing, Refused, ONE_PROCESS),
    row("data-parallel-multi-port-external-lb", Nothing, Refused, ONE_PROCESS),
    row("decode-context-parallel-size", One, Ignored, ONE_PROCESS),
    row("prefill-context-parallel-size", One, Ignored, ONE_PROCESS),
    row("max-parallel-loading-workers", One, Ignored, "weights are read with all threads"),
    row("enable-dbo", Nothing, Ignored, ONE_PROCESS),
    row("attention-backend", One, Ignored, ONE_WAY),
    row("attention-config", One, Ignored, ONE_WAY),
    row("kernel-config", One, Ignored, ONE_WAY),
    row("worker-cls", One, Refused, "there are no plugins"),
    row("worker-extension-cls", One, Refused, "there are no plugins"),
    row("cudagraph-metrics", Nothing, Given, "/metrics always counts replays, padded rows and eager steps"),
    row("numa-bind", Nothing, Ignored, "set the cores of the process with taskset or numactl"),
    // Observation and faults.
    row("otlp-traces-endpoint", One, Ignored, NO_TRACES),
    row("collect-detailed-traces", Many, Ignored, NO_TRACES),
    row("show-hidden-metrics-for-version", One, Ignored, DENSE_METRICS),
    row("custom-histogram-buckets", One, Refused, "buckets are fixed, so that dashboards stay right"),
    row("enable-mfu-metrics", Nothing, Ignored, DENSE_METRICS),
    row("enable-layerwise-nvtx-tracing", Nothing, Ignored, NO_TRACES),
    row("profiler-config", One, Ignored, "use the system's profiler, such as perf"),
    row("enable-fault-tolerance", Nothing, Given, "faults are always contained and recovered from"),
    row("enable-scale-out", Nothing, Refused, "there is no split between prefill and decode servers"),
    row("tokens-only", Nothing, Refused, "texts are always served; tokens are understood too"),
];

//! The keys of `--additional-config` that vllm-ascend has or had. The reference page prints them.

use super::super::keys::Effect::{
    Buckets, ChunkLimit, KvCacheType, Never, Optimiser, Part, RopeFusion, Torchair,
};
use super::super::keys::ModelPart::{Experts, LatentAttention, SparseAttention};
use super::super::keys::Takes::{Anything, Count, CountOrZero, Number, Sizes, Switch, Text, Words};
use super::super::keys::{Effect, Key, Takes};

const fn key(path: &'static str, takes: Takes, effect: Effect, text: &'static str) -> Key {
    Key { path, takes, effect, text }
}

const EXPERTS: &str = "for models with experts";
const LATENT: &str = "for models with latent attention (MLA)";
const SPARSE: &str = "for models with sparse attention";
const ONE_DEVICE: &str = "one device runs the model, so there is nothing to share out";
const NO_XLITE: &str = "there is no Xlite runtime; the device captures graphs itself";
const NO_TORCHAIR: &str = "torchair is gone; the program's own optimiser takes its place";
const NO_SPLIT: &str = "prefill and decode run in one server";
const ONE_SPECULATION: &str =
    "drafts are checked by drawing the tokens that would be drawn without them; see --speculative-config";
const NO_TRAINING: &str = "no training loop is served";
const NO_DUMPS: &str = "tensors are never written out";
const NO_PREFETCH: &str = "weights stay in device memory";
const CHUNKS: &str = "the token budget of a step sizes chunks; see --max-num-batched-tokens";
const ORDER: &str = "the order is --scheduling-policy, with ageing so that nothing starves";

/// All keys.
#[rustfmt::skip] // one line a key reads best
pub const KEYS: &[Key] = &[
    // Graphs and fusion.
    key("ascend_compilation_config.enable_npugraph_ex", Switch, Optimiser,
        "whether the program's operations are fused before it runs"),
    key("ascend_compilation_config.enable_static_kernel", Switch, Never,
        "operators come compiled with CANN; none is compiled for one shape"),
    key("ascend_compilation_config.fuse_norm_quant", Switch, Never,
        "programs have no quantising operation to fuse with"),
    key("ascend_compilation_config.fuse_qknorm_rope", Switch, RopeFusion,
        "false keeps rotation and cache write apart (optimiser level 1)"),
    key("ascend_compilation_config.fuse_muls_add", Switch, Never, "programs have no such pair of operations"),
    key("ascend_compilation_config.fuse_allreduce_rms", Switch, Never, ONE_DEVICE),
    key("ascend_fusion_config.fusion_ops_gmmswigluquant", Switch, Part(Experts), EXPERTS),
    key("xlite_graph_config.enabled", Switch, Never, NO_XLITE),
    key("xlite_graph_config.full_mode", Switch, Never, NO_XLITE),
    key("pa_shape_list", Sizes, Never, "one attention operator serves every batch size"),
    key("weight_nz_mode", CountOrZero, Never, "weights keep the row-major layout"),
    key("enable_reduce_sample", Switch, Never,
        "sampling reads whole rows of logits, so that log-probabilities are right"),
    // Several devices.
    key("finegrained_tp_config.oproj_tensor_parallel_size", CountOrZero, Never, ONE_DEVICE),
    key("finegrained_tp_config.lmhead_tensor_parallel_size", CountOrZero, Never, ONE_DEVICE),
    key("finegrained_tp_config.embedding_tensor_parallel_size", CountOrZero, Never, ONE_DEVICE),
    key("finegrained_tp_config.mlp_tensor_parallel_size", CountOrZero, Never, ONE_DEVICE),
    key("finegrained_tp_config.olora_tensor_parallel_size", CountOrZero, Never, ONE_DEVICE),
    key("layer_sharding", Anything, Never, ONE_DEVICE),
    key("enable_flashcomm1", Switch, Never, ONE_DEVICE),
    key("fuse_allreduce_rms", Switch, Never, ONE_DEVICE),
    // Experts.
    key("eplb_config.dynamic_eplb", Switch, Part(Experts), EXPERTS),
    key("eplb_config.expert_map_path", Text, Part(Experts), EXPERTS),
    key("eplb_config.expert_heat_collection_interval", Count, Part(Experts), EXPERTS),
    key("eplb_config.algorithm_execution_interval", Count, Part(Experts), EXPERTS),
    key("eplb_config.expert_map_record_path", Text, Part(Experts), EXPERTS),
    key("eplb_config.num_redundant_experts", CountOrZero, Part(Experts), EXPERTS),
    key("eplb_config.eplb_policy_type", CountOrZero, Part(Experts), EXPERTS),
    key("eplb_config.eplb_heat_collection_stage", Words(&["all", "prefill",
        "decode"]), Part(Experts), EXPERTS),
    key("eplb_config.load_collection_phase", Text, Part(Experts), EXPERTS),
    key("enable_shared_expert_dp", Switch, Part(Experts), EXPERTS),
    key("multistream_overlap_shared_expert", Switch, Part(Experts), EXPERTS),
    key("multistream_overlap_gate", Switch, Part(Experts), EXPERTS),
    key("enable_mc2_hierarchy_comm", Switch, Part(Experts), EXPERTS),
    key("enable_prefill_mc2", Switch, Part(Experts), EXPERTS),
    key("enable_fused_mc2", CountOrZero, Part(Experts), EXPERTS),
    key("mega_moe_max_tokens", CountOrZero, Part(Experts), EXPERTS),
    key("mix_placement", Switch, Part(Experts), EXPERTS),
    // Attention.
    key("enable_mlapo", Switch, Part(LatentAttention), LATENT),
    key("enable_kv_nz", Switch, Part(LatentAttention), LATENT),
    key("enable_sparse_sfa_c8", Switch, Part(SparseAttention), SPARSE),
    key("enable_sparse_li_c8", Switch, Part(SparseAttention), SPARSE),
    key("enable_sparse_c8", Switch, Part(SparseAttention), SPARSE),
    key("c8_enable_reshape_optim", Switch, Part(SparseAttention), SPARSE),
    key("enable_dsa_cp", Switch, Part(SparseAttention), SPARSE),
    key("multistream_dsv4_dsa_overlap", Switch, Part(SparseAttention), SPARSE),
    key("sparse_kv_offload_config.enabled", Switch, Part(SparseAttention), SPARSE),
    key("sparse_kv_offload_config.topk_buffer_size", Count, Part(SparseAttention), SPARSE),
    key("sparse_kv_offload_config.dram_size_per_dp_GB", Number, Part(SparseAttention), SPARSE),
    key("sparse_kv_offload_config.keep_device_kv_cache", Switch, Part(SparseAttention), SPARSE),
    // Scheduling.
    key("scheduler_config.enable_balance_scheduling", Switch, Never, ONE_DEVICE),
    key("scheduler_config.recompute_scheduler_enable", Switch, Never, NO_SPLIT),
    key("scheduler_config.profiling_chunk_config.enabled", Switch, Never, CHUNKS),
    key("scheduler_config.profiling_chunk_config.smooth_factor", Number, Never, CHUNKS),
    key("scheduler_config.profiling_chunk_config.min_chunk", Count, Never, CHUNKS),
    key("scheduler_config.profiling_chunk_config.need_timing", Switch, Never, CHUNKS),
    key("scheduler_config.profiling_chunk_config.max_fit_chunk", Count, Never, CHUNKS),
    key("scheduler_config.short_request_first_config.enabled", Switch, Never, ORDER),
    key("scheduler_config.short_request_first_config.threshold", CountOrZero, Never, ORDER),
    key("scheduler_config.short_request_first_config.long_max_wait_ms", Number, Never, ORDER),
    key("scheduler_config.batch_job_sched_config.enabled", Switch, Never, ORDER),
    key("scheduler_config.batch_job_sched_config.max_jobs", CountOrZero, Never, ORDER),
    key("scheduler_config.batch_job_sched_config.reserve_margin_blocks", CountOrZero, Never, ORDER),
    key("scheduler_config.batch_job_sched_config.reserve_max_blocks", CountOrZero, Never, ORDER),
    key("scheduler_config.batch_job_sched_config.low_available_tokens_threshold", CountOrZero, Never, ORDER),
    key("scheduler_config.batch_job_sched_config.short_decode_token_threshold", CountOrZero, Never, ORDER),
    key("scheduler_config.dyntra_lb_config.enabled", Switch, Never, ONE_DEVICE),
    key("scheduler_config.dyntra_lb_config.enable_diagnostics", Switch, Never, ONE_DEVICE),
    key("scheduler_config.dyntra_lb_config.mode", Text, Never, ONE_DEVICE),
    key("scheduler_config.dyntra_lb_config.start_step", Number, Never, ONE_DEVICE),
    key("scheduler_config.dyntra_lb_config.end_step", Number, Never, ONE_DEVICE),
    key("scheduler_config.dyntra_lb_config.bubble_threshold", Number, Never, ONE_DEVICE),
    key("scheduler_config.dyntra_lb_config.long_req_block_threshold", Number, Never, ONE_DEVICE),
    key("scheduler_config.dyntra_lb_config.dynamic_max_step", Number, Never, ONE_DEVICE),
    // Sampling and speculation.
    key("rejection_sampler_config.enable_block_verify", Switch, Never, ONE_SPECULATION),
    key("rejection_sampler_config.enable_entropy_verify", Switch, Never, ONE_SPECULATION),
    key("rejection_sampler_config.posterior_threshold", Number, Never, ONE_SPECULATION),
    key("rejection_sampler_config.posterior_alpha", Number, Never, ONE_SPECULATION),
    key("dynamic_spec_config.method", Text, Never, ONE_SPECULATION),
    key("dynamic_spec_config.method_params", Anything, Never, ONE_SPECULATION),
    key("enable_async_exponential", Switch, Never, "sampling runs on the host"),
    // Operation.
    key("refresh", Switch, Never, "the configuration is read once, at the start"),
    key("dump_config", Anything, Never, NO_DUMPS),
    key("dump_config_path", Text, Never, NO_DUMPS),
    key("ascend_log_path", Text, Never,
        "lines go to standard error; CANN's own logs are placed by its variable ASCEND_PROCESS_LOG_PATH"),
    key("enable_cpu_binding", Switch, Never, "set the cores of the process with taskset or numactl"),
    key("msmonitor_use_daemon", Switch, Never, "see /metrics"),
    key("enable_transpose_kv_cache_by_block", Switch, Never, "the KV cache stays on its device"),
    key("rl_config.enabled", Switch, Never, NO_TRAINING),
    key("rl_config.sleep_mode_extra_cleanup", Switch, Never, NO_TRAINING),
    key("rl_config.enable_training_consistency", Switch, Never, NO_TRAINING),
    key("rl_config.enable_batch_invariant", Switch, Never,
        "on the CPU a row's result never depends on its neighbours; on an NPU that is up to CANN's operators"),
    // Removed from vllm-ascend, still in files.
    key("torchair_graph_config.enabled", Switch, Torchair,
        "true is enable_npugraph_ex true: torchair is gone"),
    key("torchair_graph_config.mode", Text, Never, NO_TORCHAIR),
    key("torchair_graph_config.enable_multistream_mla", Switch, Part(LatentAttention), LATENT),
    key("torchair_graph_config.enable_multistream_moe", Switch, Part(Experts), EXPERTS),
    key("torchair_graph_config.enable_view_optimize", Switch, Never, NO_TORCHAIR),
    key("torchair_graph_config.enable_frozen_parameter", Switch, Never, NO_TORCHAIR),
    key("torchair_graph_config.use_cached_graph", Switch, Never, NO_TORCHAIR),
    key("torchair_graph_config.graph_batch_sizes", Sizes, Buckets,
        "rows that graphs are captured for, as --cudagraph-capture-sizes"),
    key("torchair_graph_config.graph_batch_sizes_init", Switch, Never,
        "sizes are chosen from --max-num-seqs and from the load"),
    key("torchair_graph_config.enable_kv_nz", Switch, Part(LatentAttention), LATENT),
    key("torchair_graph_config.enable_super_kernel", Switch, Never, NO_TORCHAIR),
    key("ascend_scheduler_config.enabled", Switch, Never,
        "there is one scheduler, set by the options of this server"),
    key("ascend_scheduler_config.enable_pd_transfer", Switch, Never, NO_SPLIT),
    key("ascend_scheduler_config.enable_chunked_prefill", Switch, Never,
        "give --enable-chunked-prefill or --no-enable-chunked-prefill"),
    key("ascend_scheduler_config.max_num_batched_tokens", Count, Never, "give --max-num-batched-tokens"),
    key("ascend_scheduler_config.decode_max_num_seqs", CountOrZero, Never, "see --max-num-seqs"),
    key("ascend_scheduler_config.max_long_partial_prefills", Number, Never, CHUNKS),
    key("ascend_scheduler_config.long_prefill_token_threshold", CountOrZero, ChunkLimit,
        "as --long-prefill-token-threshold"),
    key("dynamic_eplb", Switch, Part(Experts), EXPERTS),
    key("num_iterations_eplb_update", Count, Part(Experts), EXPERTS),
    key("num_wait_worker_iterations", Count, Part(Experts), EXPERTS),
    key("gate_eplb", Switch, Part(Experts), EXPERTS),
    key("expert_map_path", Text, Part(Experts), EXPERTS),
    key("expert_map_record_path", Text, Part(Experts), EXPERTS),
    key("init_redundancy_expert", CountOrZero, Part(Experts), EXPERTS),
    key("chunked_prefill_for_mla", Switch, Part(LatentAttention), LATENT),
    key("enable_prefetch", Switch, Never, NO_PREFETCH),
    key("weight_prefetch_config.enabled", Switch, Never, NO_PREFETCH),
    key("weight_prefetch_config.prefetch_ratio", Anything, Never, NO_PREFETCH),
    key("kv_cache_dtype", Text, KvCacheType, "as --kv-cache-dtype"),
    key("SLO_limits_for_dynamic_batch", Number, Never, CHUNKS),
];

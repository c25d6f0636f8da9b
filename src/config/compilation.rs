//! The keys of `--compilation-config`, as vLLM has them.

use super::keys::Effect::{
    Buckets, CompilationMode, GraphMode, GraphsFull, GraphsOn, LargestBucket, Never, RopeFusion,
};
use super::keys::Takes::{Anything, Count, CountOrZero, Number, Sizes, Switch, Text};
use super::keys::{Effect, Key, Takes};

const fn key(path: &'static str, takes: Takes, effect: Effect, text: &'static str) -> Key {
    Key { path, takes, effect, text }
}

const NO_COMPILER: &str = "the program's operators are compiled ahead of time; there is no compiler to set";
const NO_INDUCTOR: &str = "there is no Inductor; the program's own optimiser takes its place";
const NO_QUANTISING: &str = "programs have no quantising operation to fuse with";
const ONE_DEVICE: &str = "one device runs the model, so there is nothing to send";
const NO_MEDIA: &str = "only text models are served";
const NO_LORA: &str = "LoRA adapters are not served yet";

/// All keys.
#[rustfmt::skip] // one line a key reads best
pub const KEYS: &[Key] = &[
    key("cudagraph_mode", Anything, GraphMode,
        "which steps are replayed: NONE, PIECEWISE, FULL, FULL_DECODE_ONLY or FULL_AND_PIECEWISE"),
    key("cudagraph_capture_sizes", Sizes, Buckets,
        "rows that graphs are captured for, as --cudagraph-capture-sizes"),
    key("max_cudagraph_capture_size", Count, LargestBucket,
        "the largest of them, as --max-cudagraph-capture-size"),
    key("mode", Anything, CompilationMode,
        "0 leaves the program as it is; every other value is the case anyway"),
    key("level", Anything, CompilationMode, "the old name of mode"),
    key("use_cudagraph", Switch, GraphsOn, "false is cudagraph_mode NONE"),
    key("full_cuda_graph", Switch, GraphsFull, "true is cudagraph_mode FULL"),
    key("pass_config.enable_qk_norm_rope_fusion", Switch, RopeFusion,
        "false keeps rotation and cache write apart (optimiser level 1)"),
    key("pass_config.fuse_rope_kvcache", Switch, RopeFusion,
        "false keeps rotation and cache write apart (optimiser level 1)"),
    key("pass_config.fuse_norm_quant", Switch, Never, NO_QUANTISING),
    key("pass_config.fuse_act_quant", Switch, Never, NO_QUANTISING),
    key("pass_config.fuse_attn_quant", Switch, Never, NO_QUANTISING),
    key("pass_config.fuse_act_padding", Switch, Never, NO_QUANTISING),
    key("pass_config.eliminate_noops", Switch, Effect::Always, "dead operations are always dropped"),
    key("pass_config.enable_sp", Switch, Never, ONE_DEVICE),
    key("pass_config.fuse_gemm_comms", Switch, Never, ONE_DEVICE),
    key("pass_config.fuse_allreduce_rms", Switch, Never, ONE_DEVICE),
    key("pass_config.fi_allreduce_fusion_max_size_mb", Number, Never, ONE_DEVICE),
    key("cudagraph_num_of_warmups", CountOrZero, Never, "every call of a graph is planned before it is captured, so that nothing is left to warm up"),
    key("cudagraph_copy_inputs", Switch, Effect::Always,
        "inputs are always copied to the addresses a graph knows"),
    key("cudagraph_specialize_lora", Switch, Never, NO_LORA),
    key("cudagraph_mm_encoder", Switch, Never, NO_MEDIA),
    key("encoder_cudagraph_token_budgets", Anything, Never, NO_MEDIA),
    key("encoder_cudagraph_max_vision_items_per_batch", CountOrZero, Never, NO_MEDIA),
    key("encoder_cudagraph_max_frames_per_batch", Anything, Never, NO_MEDIA),
    key("compile_mm_encoder", Switch, Never, NO_MEDIA),
    key("splitting_ops", Anything, Never, "piecewise graphs are always cut at attention"),
    key("backend", Text, Never, NO_COMPILER),
    key("custom_ops", Anything, Never, NO_COMPILER),
    key("debug_dump_path", Anything, Never, NO_COMPILER),
    key("cache_dir", Text, Never, NO_COMPILER),
    key("compile_cache_save_format", Text, Never, NO_COMPILER),
    key("compile_sizes", Anything, Never, NO_COMPILER),
    key("compile_ranges_split_points", Anything, Never, NO_COMPILER),
    key("compile_ranges_endpoints", Anything, Never, NO_COMPILER),
    key("dynamic_shapes_config", Anything, Never, NO_COMPILER),
    key("use_inductor", Switch, Never, NO_INDUCTOR),
    key("use_inductor_graph_partition", Switch, Never, NO_INDUCTOR),
    key("inductor_compile_config", Anything, Never, NO_INDUCTOR),
    key("inductor_passes", Anything, Never, NO_INDUCTOR),
    key("fast_moe_cold_start", Anything, Never, "mixture-of-experts models are not served yet"),
];

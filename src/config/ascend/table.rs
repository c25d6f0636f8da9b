//! The keys of `ascend_config` and `[ascend]`. The reference page prints them.

use super::super::keys::Effect::{
    Always, BlockSize, ContextLength, GraphMode, KvCacheType, LargestBucket, Optimiser, OptimiserLevel, Part,
    Quantization, Torchair,
};
use super::super::keys::ModelPart::{Experts, LatentAttention, SparseAttention};
use super::super::keys::Takes::{Anything, Count, CountOrZero, Switch, Text};
use super::super::keys::{Effect, Key, Takes};

const fn key(path: &'static str, takes: Takes, effect: Effect, text: &'static str) -> Key {
    Key { path, takes, effect, text }
}

/// All keys.
#[rustfmt::skip] // one line a key reads best
pub const KEYS: &[Key] = &[
    key("acl_graph_mode", Anything, GraphMode,
        "which steps are replayed: NONE, PIECEWISE, FULL, FULL_DECODE_ONLY or FULL_AND_PIECEWISE"),
    key("acl_graph_batch_size", Count, LargestBucket, "the largest bucket, as --max-cudagraph-capture-size"),
    key("acl_graph_max_seq_len", Count, ContextLength,
        "as --max-model-len; captured graphs do not depend on a length"),
    key("acl_graph_capture_stream", Switch, Always, "capturing always has a stream of its own"),
    key("npu_graph_ex_enabled", Switch, Optimiser,
        "whether the program's operations are fused before it runs"),
    key("npu_graph_ex_optimization_level", CountOrZero, OptimiserLevel,
        "0 none; 1 residual with norm; 2 also rotation with cache write"),
    key("torchair_enabled", Switch, Torchair, "true is npu_graph_ex_enabled true: torchair is gone"),
    key("torchair_mla_adaptation", Switch, Part(LatentAttention), "for models with latent attention (MLA)"),
    key("eplb_enabled", Switch, Part(Experts), "for models with experts"),
    key("eplb_policy", Anything, Part(Experts), "for models with experts"),
    key("eplb_update_interval", Count, Part(Experts), "for models with experts"),
    key("paged_attention_block_size", Count, BlockSize, "tokens in a block, as --block-size"),
    key("kv_cache_dtype", Text, KvCacheType, "as --kv-cache-dtype"),
    key("quantization", Text, Quantization, "as --quantization"),
    key("attention.mla_adaptation", Switch, Part(LatentAttention), "for models with latent attention (MLA)"),
    key("attention.sfa_enabled", Switch, Part(SparseAttention), "for models with sparse attention"),
    key("attention.kv_cache_block_size", Count, BlockSize, "tokens in a block, as --block-size"),
];

//! Measures of a model that its memory depends on.

use updraft_core::Bytes;
use updraft_core::program::{Program, Rows};
use updraft_kernels::kv_cache::KvType;
use updraft_kernels::matrix::Precision;
use updraft_kernels::tensor::TensorSource as _;
use updraft_models::Checkpoint;

use super::machine;
use super::memory_plan::Facts;
use crate::config::Config;
use crate::config::memory::KvCacheType;
use crate::config::model::ComputeType;

/// Types that the model is computed in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// Type of the KV cache.
    pub(super) kv: KvType,
    /// Whether activations may be quantised.
    pub(super) precision: Precision,
}

/// Types from what was asked for and what the checkpoint has.
pub(super) fn shape(config: &Config, checkpoint: &Checkpoint) -> Shape {
    let dtype = config.model.dtype;
    let kv = match (config.memory.kv_cache_dtype, dtype) {
        (KvCacheType::Float32, _) | (KvCacheType::Auto, ComputeType::Float32) => KvType::F32,
        (KvCacheType::Float16, _) | (KvCacheType::Auto, ComputeType::Float16) => KvType::F16,
        (KvCacheType::Auto, ComputeType::Auto) if checkpoint.config.stored_dtype == "float16" => KvType::F16,
        (KvCacheType::Bfloat16 | KvCacheType::Auto, _) => KvType::Bf16,
    };
    let precision = if dtype == ComputeType::Float32 { Precision::Float32 } else { Precision::Auto };
    Shape { kv, precision }
}

/// Measures of the model, and the memory of this machine.
pub(super) fn facts(checkpoint: &Checkpoint, shape: Shape) -> Facts {
    let program = &checkpoint.program;
    let stored = program.weights.iter().filter_map(|weight| checkpoint.tensor(&weight.name));
    Facts {
        context: checkpoint.config.context_length,
        weights: Bytes(stored.map(|tensor| tensor.bytes.len() as u64).sum()),
        kv_token: Bytes(kv_values(program) * shape.kv.bytes() as u64),
        activation_row: row(program, Rows::Tokens),
        logit_row: row(program, Rows::Logits),
        free: machine::free_memory(),
    }
}

/// Values that one token leaves in the KV cache.
fn kv_values(program: &Program) -> u64 {
    program.kv_layers.iter().map(|layer| 2 * u64::from(layer.kv_heads) * u64::from(layer.head_dim)).sum()
}

fn row(program: &Program, rows: Rows) -> Bytes {
    let buffers = program.buffers.iter().filter(|buffer| buffer.rows == rows);
    Bytes(buffers.map(|buffer| u64::from(buffer.width) * size_of::<f32>() as u64).sum())
}

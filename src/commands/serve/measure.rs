//! Measures of a model that its memory depends on.

use updraft_core::program::{Program, Rows};
use updraft_core::{Blocks, Bytes};
use updraft_devices::ascend::{AscendFacts, AscendOptions, Compute, OpenError, footprint};
use updraft_devices::cpu;
use updraft_kernels::kv_cache::KvType;
use updraft_kernels::matrix::Precision;
use updraft_kernels::tensor::TensorSource as _;
use updraft_models::Checkpoint;

use super::assemble::logit_rows;
use super::machine;
use super::memory_plan::{self, Facts};
use crate::config::Config;
use crate::config::device::Target;
use crate::config::memory::KvCacheType;
use crate::config::model::ComputeType;

/// Bytes of a value that an NPU computes with.
const HALF_BYTES: usize = 2;

/// Types that the model is computed in.
#[derive(Clone, Copy, Debug)]
pub(in crate::commands) struct Shape {
    /// Type of the KV cache.
    pub(in crate::commands) kv: KvType,
    /// Whether activations may be quantised.
    pub(in crate::commands) precision: Precision,
}

/// Types from what was asked for and what the checkpoint has.
pub(in crate::commands) fn shape(config: &Config, checkpoint: &Checkpoint) -> Shape {
    let dtype = config.model.dtype;
    let kv = match (config.memory.kv_cache_dtype, dtype) {
        (KvCacheType::Float32, _) | (KvCacheType::Auto, ComputeType::Float32) => KvType::F32,
        (KvCacheType::Float16, _) | (KvCacheType::Auto, ComputeType::Float16) => KvType::F16,
        (KvCacheType::Auto, ComputeType::Auto) if checkpoint.config.stored_dtype == "float16" => KvType::F16,
        (KvCacheType::Bfloat16 | KvCacheType::Auto, _) => KvType::Bf16,
        (KvCacheType::Int8, _) => KvType::Int8,
    };
    let precision = if dtype == ComputeType::Float32 { Precision::Float32 } else { Precision::Auto };
    Shape { kv, precision }
}

/// Measures of the model, and the memory of this machine.
pub(in crate::commands) fn facts(checkpoint: &Checkpoint, shape: Shape) -> Facts {
    let program = &checkpoint.program;
    let stored = program.weights.iter().filter_map(|weight| checkpoint.tensor(&weight.name));
    Facts {
        target: Target::Cpu,
        context: checkpoint.config.context_length,
        weights: Bytes(stored.map(|tensor| tensor.bytes.len() as u64).sum()),
        kv_token: cpu::kv_bytes_per_token(program, shape.kv),
        activation_row: row(program, Rows::Tokens, size_of::<f32>()),
        logit_row: row(program, Rows::Logits, size_of::<f32>()),
        free: machine::free_memory(),
    }
}

/// Measures of the model on an NPU, and the share of its memory that may be used; a child process does not
/// know that memory, and is told its plan.
///
/// # Errors
/// When the device could not be opened with these options whatever its memory.
pub(in crate::commands) fn facts_on_an_npu(
    config: &Config,
    checkpoint: &Checkpoint,
    program: &Program,
    compute: Compute,
    npu: Option<&AscendFacts>,
) -> Result<Facts, OpenError> {
    let block_size = memory_plan::block_size(config, Target::Ascend);
    let kv_token = Bytes(kv_values(program) * HALF_BYTES as u64);
    let sequences = config.scheduling.max_num_seqs;
    // With one block, what is more than it in the cache is there for rows of nobody.
    let smallest = footprint(
        program,
        &AscendOptions {
            ordinal: 0,
            compute,
            blocks: Blocks(1),
            block_size,
            max_rows: config.scheduling.batched_tokens(Target::Ascend) as usize,
            max_logit_rows: logit_rows(config),
            max_sequences: sequences as usize,
            max_model_len: checkpoint.config.context_length.0 as usize,
            avoid: Vec::new(),
        },
    )?;
    let nobody = smallest.kv.0.saturating_sub(kv_token.0 * u64::from(block_size.0));
    // Logits are read as singles.
    let logits = u64::from(program.vocab) * size_of::<f32>() as u64;
    let share = config.memory.gpu_memory_utilization;
    Ok(Facts {
        target: Target::Ascend,
        context: checkpoint.config.context_length,
        weights: Bytes(smallest.weights.0 + nobody),
        kv_token,
        activation_row: row(program, Rows::Tokens, HALF_BYTES),
        logit_row: Bytes(row(program, Rows::Logits, HALF_BYTES).0 + logits),
        free: npu.map(|facts| Bytes((facts.memory_free.0 as f64 * share) as u64)),
    })
}

/// Values that one token leaves in the KV cache.
fn kv_values(program: &Program) -> u64 {
    program.kv_layers.iter().map(|layer| 2 * u64::from(layer.kv_heads) * u64::from(layer.head_dim)).sum()
}

fn row(program: &Program, rows: Rows, value_bytes: usize) -> Bytes {
    let buffers = program.buffers.iter().filter(|buffer| buffer.rows == rows);
    Bytes(buffers.map(|buffer| u64::from(buffer.width) * value_bytes as u64).sum())
}

//! How memory is shared between weights, KV cache and activations, and what context length comes of it.
//!
//! A pure calculation from the options and a few measures of model and machine. When something does not fit,
//! the error says what would.

use updraft_core::{Blocks, Bytes, Tokens};

use crate::config::Config;
use crate::config::device::Target;
use crate::config::values::ContextLength;

/// Size of the KV cache that is not exceeded unasked, save for one sequence of full length.
const KV_DEFAULT_MAX: Bytes = Bytes(4 << 30);
/// Block size on the CPU. Larger than the few tokens that every chat template begins with, so that a prefix
/// hit means that text was found again.
const BLOCK_SIZE_CPU: Tokens = Tokens(64);
/// Block size on an NPU: the one that its attention operators are made for.
const BLOCK_SIZE_NPU: Tokens = Tokens(128);
/// Share of an NPU's memory, after the weights, that is left for graphs and the workspaces of operators.
const NPU_RESERVE_SHARE: f64 = 0.05;

/// Measures of the model and the machine.
#[derive(Clone, Copy, Debug)]
pub(in crate::commands) struct Facts {
    /// The kind of device.
    pub(in crate::commands) target: Target,
    /// Longest context the model was made for.
    pub(in crate::commands) context: Tokens,
    /// Weights in memory.
    pub(in crate::commands) weights: Bytes,
    /// KV cache of one token, all layers.
    pub(in crate::commands) kv_token: Bytes,
    /// Activations of one token.
    pub(in crate::commands) activation_row: Bytes,
    /// Activations of one position whose logits are wanted.
    pub(in crate::commands) logit_row: Bytes,
    /// Memory that can be taken; absent when the system does not tell.
    pub(in crate::commands) free: Option<Bytes>,
}

/// Who gets how much.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::commands) struct MemoryPlan {
    /// Tokens of prompt and answer together, at most.
    pub(in crate::commands) max_model_len: Tokens,
    /// Whether that is less than the model could, because the KV cache holds no more.
    pub(in crate::commands) shortened: bool,
    /// Tokens in a block.
    pub(in crate::commands) block_size: Tokens,
    /// Blocks of the KV cache.
    pub(in crate::commands) blocks: Blocks,
    /// Tokens computed in one step, at most.
    pub(in crate::commands) step_budget: Tokens,
    /// Weights in memory.
    pub(in crate::commands) weights: Bytes,
    /// KV cache.
    pub(in crate::commands) kv: Bytes,
    /// Activations of the largest step.
    pub(in crate::commands) activations: Bytes,
}

/// Why there is no plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(in crate::commands) enum PlanError {
    /// No room for the weights themselves.
    #[error(
        "the weights take {} and {} of memory are free; free some, or serve a smaller or more strongly quantised \
         model", size(*weights), size(*free)
    )]
    Weights {
        /// Size of the weights.
        weights: Bytes,
        /// Free memory.
        free: Bytes,
    },
    /// No room for weights and activations on an NPU.
    #[error(
        "weights and activations take {} and {} of the NPU's memory may be used; stop what else runs on it, \
         raise --gpu-memory-utilization, lower --max-num-batched-tokens, or serve a smaller model",
        size(*needed), size(*free)
    )]
    NpuWeights {
        /// What they take.
        needed: Bytes,
        /// Memory that may be used.
        free: Bytes,
    },
    /// One sequence of the wanted length would not fit.
    #[error(
        "one sequence of {wanted} tokens needs {} of KV cache and there is room for {}, which holds {fits} \
         tokens; use --max-model-len {fits} (or auto), or raise --kv-cache-memory-bytes",
        size(*needed), size(*room)
    )]
    Context {
        /// Length asked for.
        wanted: Tokens,
        /// KV cache it needs.
        needed: Bytes,
        /// KV cache there is.
        room: Bytes,
        /// Length that fits.
        fits: Tokens,
    },
    /// Not even one block fits.
    #[error("the KV cache of {} holds not one block of {block_size} tokens; raise --kv-cache-memory-bytes", size(*room))]
    NoBlock {
        /// KV cache there is.
        room: Bytes,
        /// Tokens in a block.
        block_size: Tokens,
    },
    /// More than the model can tell apart.
    #[error("--max-model-len {wanted} is more than the {context} tokens the model was made for")]
    BeyondModel {
        /// Length asked for.
        wanted: Tokens,
        /// The model's.
        context: Tokens,
    },
    /// Whole prompts do not fit into a step.
    #[error(
        "--no-enable-chunked-prefill needs steps for the longest prompt: raise --max-num-batched-tokens from \
         {budget} to {max_model_len}, lower --max-model-len, or allow chunks"
    )]
    WholePrompts {
        /// Tokens of a step.
        budget: Tokens,
        /// Longest prompt.
        max_model_len: Tokens,
    },
}

/// Makes the plan.
pub(in crate::commands) fn plan(config: &Config, facts: &Facts) -> Result<MemoryPlan, PlanError> {
    let wanted = wanted_length(config, facts)?;
    let block_size = block_size(config, facts.target);
    let room = kv_room(config, facts, wanted.0, block_size)?;
    let block_bytes = facts.kv_token.0.max(1).saturating_mul(u64::from(block_size.0));
    // Slots are numbered in 32 bits.
    let blocks_max = u64::from(u32::MAX / block_size.0);
    let blocks = (room.0 / block_bytes).min(blocks_max);
    if blocks == 0 {
        return Err(PlanError::NoBlock { room, block_size });
    }

    let fits = Tokens((blocks * u64::from(block_size.0)) as u32);
    let (max_model_len, shortened) = match wanted {
        (wanted, _) if wanted <= fits => (wanted, false),
        (_, Firmness::Flexible) => (fits, true),
        (wanted, Firmness::Stated) => {
            let needed = Bytes(u64::from(wanted.blocks(block_size).0).saturating_mul(block_bytes));
            return Err(PlanError::Context { wanted, needed, room, fits });
        }
    };
    let step_budget = step_budget(config, facts, max_model_len)?;
    Ok(MemoryPlan {
        max_model_len,
        shortened,
        block_size,
        blocks: Blocks(blocks as u32),
        step_budget,
        weights: facts.weights,
        kv: Bytes(blocks * block_bytes),
        activations: activations(config, facts, step_budget),
    })
}

impl MemoryPlan {
    /// Tokens that the KV cache holds.
    #[must_use]
    pub(in crate::commands) fn kv_tokens(&self) -> u64 {
        u64::from(self.blocks.0) * u64::from(self.block_size.0)
    }

    /// How many sequences of full length the KV cache holds.
    #[must_use]
    pub(in crate::commands) fn max_concurrency(&self) -> f64 {
        self.kv_tokens() as f64 / f64::from(self.max_model_len.0.max(1))
    }
}

/// Tokens in a block: as asked for, or as suits the device.
pub(super) fn block_size(config: &Config, target: Target) -> Tokens {
    config.memory.block_size.map_or(
        match target {
            Target::Cpu => BLOCK_SIZE_CPU,
            Target::Ascend => BLOCK_SIZE_NPU,
        },
        Tokens,
    )
}

/// Whether a length may be cut to what fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Firmness {
    Stated,
    Flexible,
}

fn wanted_length(config: &Config, facts: &Facts) -> Result<(Tokens, Firmness), PlanError> {
    match config.model.max_model_len {
        Some(ContextLength::Tokens(wanted)) if wanted > facts.context.0 => {
            Err(PlanError::BeyondModel { wanted: Tokens(wanted), context: facts.context })
        }
        Some(ContextLength::Tokens(wanted)) => Ok((Tokens(wanted), Firmness::Stated)),
        Some(ContextLength::Auto) | None => Ok((facts.context, Firmness::Flexible)),
    }
}

/// Memory for the KV cache: what was asked for, or a share of what is free.
fn kv_room(config: &Config, facts: &Facts, wanted: Tokens, block_size: Tokens) -> Result<Bytes, PlanError> {
    let per_tokens = |tokens: u64| Bytes(facts.kv_token.0.saturating_mul(tokens));
    if let Some(blocks) = config.memory.num_gpu_blocks_override {
        return Ok(per_tokens(u64::from(blocks) * u64::from(block_size.0)));
    }
    if let Some(bytes) = config.memory.kv_cache_memory_bytes {
        return Ok(Bytes(bytes));
    }
    if facts.target == Target::Ascend {
        return npu_room(config, facts, wanted);
    }
    let one = per_tokens(u64::from(wanted.blocks(block_size).0) * u64::from(block_size.0));
    let all = Bytes(one.0.saturating_mul(u64::from(config.scheduling.max_num_seqs)));
    let unasked = all.min(KV_DEFAULT_MAX.max(one));
    match facts.free {
        Some(free) if free < facts.weights => Err(PlanError::Weights { weights: facts.weights, free }),
        Some(free) => Ok(unasked.min(Bytes((free - facts.weights).0 / 2))),
        None => Ok(unasked),
    }
}

/// On an NPU: all that may be used and nothing else needs.
fn npu_room(config: &Config, facts: &Facts, wanted: Tokens) -> Result<Bytes, PlanError> {
    let free = facts.free.unwrap_or_default();
    let taken =
        facts.weights.0.saturating_add(activations(config, facts, step_budget(config, facts, wanted)?).0);
    let left = free.0.checked_sub(taken).ok_or(PlanError::NpuWeights { needed: Bytes(taken), free })?;
    Ok(Bytes((left as f64 * (1.0 - NPU_RESERVE_SHARE)) as u64))
}

fn step_budget(config: &Config, facts: &Facts, max_model_len: Tokens) -> Result<Tokens, PlanError> {
    let budget = Tokens(config.scheduling.batched_tokens(facts.target));
    if config.scheduling.enable_chunked_prefill || budget >= max_model_len {
        return Ok(budget);
    }
    match config.scheduling.max_num_batched_tokens {
        Some(_) => Err(PlanError::WholePrompts { budget, max_model_len }),
        None => Ok(max_model_len),
    }
}

/// Activations of a step that is full and yields a token for every sequence that may run, and for drafts.
fn activations(config: &Config, facts: &Facts, step_budget: Tokens) -> Bytes {
    let scheduling = &config.scheduling;
    let sampled = step_budget.min(Tokens(scheduling.max_num_seqs) + scheduling.draft_rows()).0;
    let rows = facts.activation_row.0.saturating_mul(u64::from(step_budget.0));
    Bytes(rows.saturating_add(facts.logit_row.0.saturating_mul(u64::from(sampled))))
}

/// A size for people: `94.2 MiB`.
#[must_use]
pub(in crate::commands) fn size(bytes: Bytes) -> String {
    let number = bytes.0 as f64;
    for (unit, name) in [(30, "GiB"), (20, "MiB"), (10, "KiB")] {
        let scaled = number / f64::from(1_u32 << unit);
        if scaled >= 1.0 {
            return format!("{scaled:.1} {name}");
        }
    }
    format!("{} bytes", bytes.0)
}

#[cfg(test)]
mod tests;

//! Options about memory: the KV cache, its blocks and its type.

use clap::{ArgAction, Args, ValueEnum};

use super::values;

/// The KV cache and other memory.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Memory")]
pub struct MemoryOptions {
    /// Size of the KV cache (`4GiB`, `512m`). Default on the CPU: what `--max-num-seqs` sequences of
    /// `--max-model-len` tokens need, but at most 4 GiB (or one such sequence, when that is more) and at most
    /// half of the memory that is free beside the weights. Default on an NPU: its share of the memory (see
    /// `--gpu-memory-utilization`) less weights and activations.
    #[arg(long, value_name = "BYTES", value_parser = values::bytes)]
    pub kv_cache_memory_bytes: Option<u64>,

    /// Number of KV cache blocks, in place of a size.
    #[arg(long, value_name = "BLOCKS", value_parser = values::count)]
    pub num_gpu_blocks_override: Option<u32>,

    /// Tokens in one KV cache block: 16, 32, 64, 128 or 256. Default: 64 on the CPU, 128 on an NPU.
    #[arg(long, value_name = "TOKENS", value_parser = values::block_size)]
    pub block_size: Option<u32>,

    /// Type of the KV cache. `auto`: float32 with `--dtype float32`, else 16 bits. `int8` holds nearly twice as
    /// many tokens and reads long contexts faster. On an NPU it is the type that is computed in.
    #[arg(long, value_name = "TYPE", value_enum, default_value = "auto")]
    pub kv_cache_dtype: KvCacheType,

    /// Keep the blocks of finished requests and reuse them for prompts that begin alike.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value = "true",
          default_missing_value = "true", action = ArgAction::Set, value_parser = values::switch)]
    pub enable_prefix_caching: bool,

    /// Share of a device's memory to use. Has no effect on the CPU: see `--kv-cache-memory-bytes`.
    #[arg(long, alias = "device-memory-utilization", value_name = "SHARE", default_value = "0.92",
          value_parser = values::share)]
    pub gpu_memory_utilization: f64,
}

/// Type of keys and values in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum KvCacheType {
    /// Follows the compute type.
    Auto,
    /// 32-bit floats.
    #[value(alias = "float")]
    Float32,
    /// 16-bit brain floats.
    Bfloat16,
    /// 16-bit floats.
    #[value(alias = "half")]
    Float16,
    /// 8-bit integers with a scale for each token and head: half the memory, slightly less exact.
    Int8,
}

impl KvCacheType {
    /// Reads a name, as the command line does.
    pub fn parse(text: &str) -> Result<Self, String> {
        <Self as ValueEnum>::from_str(text, false).map_err(|_| {
            let names: Vec<_> = Self::value_variants().iter().map(ToString::to_string).collect();
            format!("{text:?} is not possible; expected one of {}", names.join(", "))
        })
    }
}

impl std::fmt::Display for KvCacheType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Float32 => "float32",
            Self::Bfloat16 => "bfloat16",
            Self::Float16 => "float16",
            Self::Int8 => "int8",
        })
    }
}

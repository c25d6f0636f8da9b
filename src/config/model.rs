//! Options about the model: where it is, what it is called, how it is read.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::values::{self, ContextLength};

/// The model and how to read it.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Model")]
pub struct ModelOptions {
    /// What to serve: a folder in Hugging Face layout, a .gguf file, or the id of a model on the hub.
    #[arg(value_name = "MODEL")]
    pub model_tag: Option<String>,

    /// The same as the positional MODEL.
    #[arg(long, value_name = "MODEL")]
    pub model: Option<String>,

    /// Names that requests may use for the model; replies carry the first one. Default: MODEL as given.
    #[arg(long, value_name = "NAME", num_args = 1..)]
    pub served_model_name: Vec<String>,

    /// A `tokenizer.json`, or a folder that holds one, to use in place of the model's own.
    #[arg(long, value_name = "PATH")]
    pub tokenizer: Option<String>,

    /// Branch, tag or commit to fetch when MODEL is a hub id. Default: main.
    #[arg(long, value_name = "REVISION")]
    pub revision: Option<String>,

    /// Folder for fetched models. Default: the cache folder of the hub's own tools.
    #[arg(long, value_name = "DIR")]
    pub download_dir: Option<PathBuf>,

    /// How the weights are stored.
    #[arg(long, value_name = "FORMAT", value_enum, default_value = "auto")]
    pub load_format: LoadFormat,

    /// Type to compute in. `auto` follows the checkpoint and may use 8-bit integers for quantised weights;
    /// `float32` keeps every activation and the KV cache exact.
    #[arg(long, value_name = "TYPE", value_enum, default_value = "auto")]
    pub dtype: ComputeType,

    /// Quantisation scheme of the checkpoint. Weights are used in the form they are stored in, and W8A8
    /// checkpoints in the layout of `ModelSlim` are not read yet.
    #[arg(long, short = 'q', value_name = "SCHEME")]
    pub quantization: Option<String>,

    /// Longest prompt plus answer in tokens (`8192`, `8k`, `8K`). `auto` or -1: as long as the KV cache
    /// allows. Default: what the model was made for, or what the KV cache allows when that is less.
    #[arg(long, value_name = "TOKENS", allow_negative_numbers = true, value_parser = values::context_length)]
    pub max_model_len: Option<ContextLength>,

    /// Seed for requests that bring none.
    #[arg(long, value_name = "SEED", default_value = "0", value_parser = values::seed)]
    pub seed: u64,
}

/// How weights are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LoadFormat {
    /// Told by the file.
    Auto,
    /// Safetensors files.
    Safetensors,
    /// One GGUF file.
    Gguf,
}

/// Type that activations are computed in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ComputeType {
    /// Follows the checkpoint.
    Auto,
    /// 32-bit floats.
    #[value(alias = "float")]
    Float32,
    /// 16-bit brain floats.
    Bfloat16,
    /// 16-bit floats.
    #[value(alias = "half")]
    Float16,
}

impl std::fmt::Display for ComputeType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Float32 => "float32",
            Self::Bfloat16 => "bfloat16",
            Self::Float16 => "float16",
        })
    }
}

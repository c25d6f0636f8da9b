//! Checkpoints on disk, and the model families that turn them into step programs.
//!
//! This crate promises that a checkpoint it opens is whole: every tensor that the program names exists, has the
//! expected shape and lies within its file. What it cannot use it refuses with a sentence that names the file,
//! the tensor or key, what was expected and what was found. It refuses to know how a program is run, where
//! weights are packed, or how text becomes tokens: it only says where those parts find what they need.
//!
//! ```no_run
//! use updraft_models::{Checkpoint, OpenOptions};
//!
//! let checkpoint = Checkpoint::open("SmolLM2.gguf".as_ref(), &OpenOptions::default())?;
//! println!("{} layers, {} parameters", checkpoint.config.layers, checkpoint.config.parameters);
//! # Ok::<(), updraft_models::CheckpointError>(())
//! ```

mod checkpoint;
mod config;
mod error;
mod families;
mod fields;
mod gguf;
mod hub;
mod rope;
mod safetensors;
#[cfg(test)]
#[allow(unreachable_pub, reason = "shared with the integration tests")]
#[path = "../tests/support/temp_dir.rs"]
mod temp_dir;
mod tensors;
mod text_assets;

pub use checkpoint::{Checkpoint, OpenOptions};
pub use config::{Biases, ModelConfig};
pub use error::CheckpointError;
pub use families::known_architectures;
pub use hub::HubId;
pub use rope::{RopeConfig, RopeScaling, Yarn};
pub use text_assets::{GenerationDefaults, GgufTokenizer, TextAssets, TokenizerAsset};

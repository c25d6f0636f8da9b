//! What a model is, in one form for every way of writing it down.
//!
//! A [`ModelConfig`] comes from a Hugging Face `config.json` (`config::hf`) or from GGUF metadata
//! (`config::gguf`). Both end in [`ModelConfig::checked`]: what it lets through has dimensions that fit together
//! and small enough that no product of two overflows. Families read it, and never the files.

pub(crate) mod gguf;
pub(crate) mod hf;
mod rope_keys;
#[cfg(test)]
mod tests;

use std::path::Path;

use updraft_core::program::{Activation, RopePairing};
use updraft_core::units::Tokens;

use crate::error::CheckpointError;
use crate::rope::RopeConfig;

/// Bounds on what a configuration may say; beyond any model, and small enough for products in 64 bits.
const MAX_LAYERS: u32 = 4096;
const MAX_WIDTH: u32 = 1 << 20;
const MAX_VOCABULARY: u32 = 1 << 24;

/// Architecture and dimensions of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelConfig {
    /// Architecture as the checkpoint names it, such as `LlamaForCausalLM`, or `llama` in a GGUF file.
    pub architecture: String,
    /// Family that builds it, such as `llama`.
    pub family: &'static str,
    /// Width of the residual stream.
    pub hidden: u32,
    /// Decoder layers.
    pub layers: u32,
    /// Query heads.
    pub heads: u32,
    /// Key and value heads.
    pub kv_heads: u32,
    /// Values in one head; need not be `hidden / heads`.
    pub head_dim: u32,
    /// Width within the feed-forward layers.
    pub intermediate: u32,
    /// Rows of the embedding; may be more than the tokenizer has tokens.
    pub vocab: u32,
    /// Longest context that the model tells apart, after rope scaling.
    pub context_length: Tokens,
    /// How most weights are stored: `float32`, `bfloat16`, `float16`, or a quantised type such as `Q4_1`.
    pub stored_dtype: String,
    /// Values in all weights, a shared matrix counted once.
    pub parameters: u64,
    /// Added to the mean square in every norm.
    pub rms_epsilon: f32,
    /// Gate function of the feed-forward layers.
    pub activation: Activation,
    /// Whether the output matrix is the embedding.
    pub tied_output: bool,
    /// Multiplies attention scores.
    pub attention_scale: f32,
    /// Which projections have a bias.
    pub biases: Biases,
    /// Whether norm weights are stored as the difference from one.
    pub zero_centred_norms: bool,
    /// Sliding window of each layer; full attention where absent.
    pub windows: Vec<Option<u32>>,
    /// Rotary embedding of layers with full attention, and of all layers when there is no local one.
    pub rope: RopeConfig,
    /// Rotary embedding of layers with a window, where the family has two.
    pub local_rope: Option<RopeConfig>,
    /// Which values of a head form a rotary pair in this checkpoint.
    pub pairing: RopePairing,
}

/// Which projections have a bias.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Biases {
    /// Query, key and value.
    pub qkv: bool,
    /// Attention output.
    pub attention_output: bool,
    /// Feed-forward gate, up and down.
    pub feed_forward: bool,
}

/// Defaults and rules of a family, for what its checkpoints may leave out. The values are those of the
/// transformers library's configuration classes; GGUF files state most of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// Dimensions to assume when `config.json` is silent; absent ones must be stated.
    pub(crate) hidden: Option<u32>,
    pub(crate) intermediate: Option<u32>,
    pub(crate) layers: Option<u32>,
    pub(crate) heads: Option<u32>,
    pub(crate) vocab: Option<u32>,
    /// Absent: as many as query heads.
    pub(crate) kv_heads: Option<u32>,
    /// Absent: `hidden / heads`.
    pub(crate) head_dim: Option<u32>,
    pub(crate) max_position: u32,
    pub(crate) rms_epsilon: f64,
    pub(crate) activation: Activation,
    pub(crate) tied_output: bool,
    pub(crate) rope_theta: f64,
    /// Base of the second rotary embedding, where the family has one.
    pub(crate) local_rope_theta: Option<f64>,
    pub(crate) windows: WindowRule,
    pub(crate) biases: BiasRule,
    /// Norm weights are stored as the difference from one (in Hugging Face folders).
    pub(crate) zero_centred_norms: bool,
    /// Attention scores are scaled by this to the power of -1/2 when `query_pre_attn_scalar` is silent; absent: by
    /// the head's width, and the key is not read.
    pub(crate) query_scalar: Option<f64>,
    /// Whether the maximum position already includes the rope scaling.
    pub(crate) max_position_is_scaled: bool,
}

/// Which layers have a sliding window.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WindowRule {
    /// None.
    Never,
    /// All, unless `sliding_window` is null. The default counts when the key is missing.
    Everywhere { default: u32 },
    /// Those from `max_window_layers` on, if `use_sliding_window` is set.
    UpperLayers,
    /// All but every n-th (`sliding_window_pattern`).
    AllButEvery { layers: u32, default: u32 },
}

/// Where biases are.
#[derive(Clone, Copy, Debug)]
pub(crate) enum BiasRule {
    /// Nowhere.
    Never,
    /// On query, key and value.
    AlwaysQkv,
    /// `attention_bias` puts them on the four attention projections, `mlp_bias` on the feed-forward ones.
    ByKey,
}

impl Rules {
    /// What most families share; they override the rest.
    pub(crate) const COMMON: Self = Self {
        hidden: None,
        intermediate: None,
        layers: None,
        heads: None,
        vocab: None,
        kv_heads: None,
        head_dim: None,
        max_position: 2048,
        rms_epsilon: 1e-6,
        activation: Activation::Silu,
        tied_output: false,
        rope_theta: 10_000.0,
        local_rope_theta: None,
        windows: WindowRule::Never,
        biases: BiasRule::Never,
        zero_centred_norms: false,
        query_scalar: None,
        max_position_is_scaled: false,
    };
}

impl ModelConfig {
    /// Width of all query heads.
    #[must_use]
    pub fn query_width(&self) -> u32 {
        self.heads * self.head_dim
    }

    /// Width of all key heads, and of all value heads.
    #[must_use]
    pub fn kv_width(&self) -> u32 {
        self.kv_heads * self.head_dim
    }

    /// Lets the configuration through if its dimensions fit together.
    pub(crate) fn checked(self, file: &Path) -> Result<Self, CheckpointError> {
        let bad = |key: &str, found: String, expected: &str| {
            Err(CheckpointError::BadValue {
                file: file.to_owned(),
                key: key.to_owned(),
                found,
                expected: expected.to_owned(),
            })
        };
        let ranges = [
            ("hidden size", self.hidden, MAX_WIDTH),
            ("intermediate size", self.intermediate, MAX_WIDTH),
            ("number of layers", self.layers, MAX_LAYERS),
            ("number of attention heads", self.heads, MAX_WIDTH),
            ("number of key-value heads", self.kv_heads, MAX_WIDTH),
            ("head width", self.head_dim, MAX_WIDTH),
            ("vocabulary size", self.vocab, MAX_VOCABULARY),
            ("context length", self.context_length.0, u32::MAX),
        ];
        for (key, value, most) in ranges {
            if value == 0 || value > most {
                return bad(key, value.to_string(), &format!("between 1 and {most}"));
            }
        }
        let query_width = u64::from(self.heads) * u64::from(self.head_dim);
        if query_width > u64::from(MAX_WIDTH) {
            return bad("heads times head width", query_width.to_string(), &format!("at most {MAX_WIDTH}"));
        }
        if !self.heads.is_multiple_of(self.kv_heads) {
            let expected = format!("a multiple of the {} key-value heads", self.kv_heads);
            return bad("number of attention heads", self.heads.to_string(), &expected);
        }
        if !self.head_dim.is_multiple_of(2) {
            return bad("head width", self.head_dim.to_string(), "even, so that its values form pairs");
        }
        if !(self.rms_epsilon.is_finite() && self.rms_epsilon >= 0.0) {
            return bad("norm epsilon", self.rms_epsilon.to_string(), "a small number, not below 0");
        }
        if !(self.attention_scale.is_finite() && self.attention_scale > 0.0) {
            return bad("attention scale", self.attention_scale.to_string(), "above 0");
        }
        if self.windows.contains(&Some(0)) {
            return bad("sliding window", "0".to_owned(), "at least 1, or null");
        }
        for rope in std::iter::once(&self.rope).chain(&self.local_rope) {
            check_rope(file, rope, self.head_dim)?;
        }
        Ok(self)
    }
}

fn check_rope(file: &Path, rope: &RopeConfig, head_dim: u32) -> Result<(), CheckpointError> {
    let bad = |key: &str, found: String, expected: String| {
        Err(CheckpointError::BadValue { file: file.to_owned(), key: key.to_owned(), found, expected })
    };
    if !(rope.theta.is_finite() && rope.theta > 1.0) {
        return bad("rope theta", rope.theta.to_string(), "above 1".to_owned());
    }
    if rope.rotated == 0 || rope.rotated > head_dim || !rope.rotated.is_multiple_of(2) {
        let expected = format!("even and at most the head width, {head_dim}");
        return bad("number of rotated values", rope.rotated.to_string(), expected);
    }
    let table = rope.table(1, RopePairing::Halves);
    if table.factor.is_finite() && table.inverse_frequencies.iter().all(|frequency| frequency.is_finite()) {
        return Ok(());
    }
    bad("rope scaling", format!("{:?}", rope.scaling), "such that all frequencies are finite".to_owned())
}

//! Metadata of a GGUF file to a [`ModelConfig`].
//!
//! Keys begin with the architecture (`llama.block_count`). Files of the Llama family have their query and key rows
//! reordered so that rotary pairs are neighbours; Gemma files have the one already added to their norm weights.

use std::path::Path;

use updraft_core::units::Tokens;

use super::{Biases, ModelConfig, WindowRule};
use crate::error::CheckpointError;
use crate::families::{self, Family};
use crate::gguf::{Array, Metadata, Value};
use crate::rope::{RopeConfig, RopeScaling, Yarn};
use crate::tensors::TensorStore;

/// Divisors of the rotary frequencies, in files whose model has them.
const ROPE_FACTORS: &str = "rope_freqs.weight";
/// The embedding, whose rows are the vocabulary.
const EMBEDDING: &str = "token_embd.weight";

/// Every how many layers one has no window; or for each layer whether it has one.
const WINDOW_PATTERN: &str = "attention.sliding_window_pattern";

/// Understands the metadata of a file.
pub(crate) fn read(
    file: &Path,
    metadata: &Metadata,
    store: &TensorStore,
) -> Result<(ModelConfig, &'static Family), CheckpointError> {
    let Some(architecture) = metadata.string("general.architecture") else {
        return Err(missing(file, "general.architecture"));
    };
    let Some(family) = families::by_gguf_architecture(architecture) else {
        return Err(CheckpointError::UnknownArchitecture {
            file: file.to_owned(),
            found: architecture.to_owned(),
            known: families::known_gguf_architectures(),
        });
    };
    let reader = Reader { file, metadata, store, architecture, family };
    Ok((reader.config()?.checked(file)?, family))
}

fn missing(file: &Path, key: &str) -> CheckpointError {
    CheckpointError::MissingKey {
        file: file.to_owned(),
        key: key.to_owned(),
        help: "the model cannot be built without it; convert the model again".to_owned(),
    }
}

struct Reader<'a> {
    file: &'a Path,
    metadata: &'a Metadata,
    store: &'a TensorStore,
    architecture: &'a str,
    family: &'static Family,
}

impl Reader<'_> {
    fn config(&self) -> Result<ModelConfig, CheckpointError> {
        self.refuse_unbuilt()?;
        let rules = &self.family.rules;
        let hidden = self.required("embedding_length")?;
        let layers = self.required("block_count")?;
        let heads = self.required("attention.head_count")?;
        let head_dim = match self.optional("attention.key_length")? {
            Some(head_dim) => head_dim,
            None => hidden.checked_div(heads).unwrap_or(0),
        };
        if let Some(value_length) = self.optional("attention.value_length")?
            && value_length != head_dim
        {
            let expected = format!("{head_dim}, the length of keys");
            return Err(self.bad("attention.value_length", value_length.to_string(), expected));
        }
        let trained = self.required("context_length")?;
        let windows = self.windows(layers)?;
        let rope = self.rope(head_dim, trained)?;
        let context = match &rope.scaling {
            RopeScaling::Yarn(yarn) => trained.max((f64::from(yarn.original) * yarn.factor).round() as u32),
            _ => trained,
        };
        let local_rope =
            rules.local_rope_theta.filter(|_| windows.iter().any(Option::is_some)).map(|default| {
                let theta = self.float("rope.freq_base_swa").unwrap_or(default);
                RopeConfig { theta, rotated: rope.rotated, scaling: RopeScaling::None }
            });
        Ok(ModelConfig {
            architecture: self.architecture.to_owned(),
            family: self.family.name,
            hidden,
            layers,
            heads,
            kv_heads: self.optional("attention.head_count_kv")?.unwrap_or(heads),
            head_dim,
            intermediate: self.required("feed_forward_length")?,
            vocab: self.vocabulary()?,
            context_length: Tokens(context),
            stored_dtype: String::new(),
            parameters: 0,
            rms_epsilon: self.float("attention.layer_norm_rms_epsilon").unwrap_or(rules.rms_epsilon) as f32,
            activation: rules.activation,
            tied_output: !self.store.contains("output.weight"),
            attention_scale: self.attention_scale(hidden, heads, head_dim),
            biases: self.biases(),
            zero_centred_norms: false,
            windows,
            rope,
            local_rope,
            pairing: self.family.gguf_pairing,
        })
    }

    /// Gemma 3 with 27 billion parameters divides scores by the root of `hidden / heads`, its smaller sisters by that
    /// of the head's width. The files do not say so: llama.cpp goes by the number of layers, too.
    fn attention_scale(&self, hidden: u32, heads: u32, head_dim: u32) -> f32 {
        const LAYERS_OF_27B: u64 = 62;
        let layers = self.metadata.integer(&self.key("block_count"));
        if self.family.rules.query_scalar.is_some() && layers == Some(LAYERS_OF_27B) {
            return (f64::from(hidden) / f64::from(heads.max(1))).powf(-0.5) as f32;
        }
        f64::from(head_dim).powf(-0.5) as f32
    }

    fn vocabulary(&self) -> Result<u32, CheckpointError> {
        let embedding = self.store.get(EMBEDDING).ok_or_else(|| CheckpointError::MissingTensor {
            file: self.file.to_owned(),
            tensor: EMBEDDING.to_owned(),
            expected: Vec::new(),
            help: "it is the embedding; convert the model again".to_owned(),
        })?;
        Ok(embedding.shape.first().copied().and_then(|rows| u32::try_from(rows).ok()).unwrap_or(0))
    }

    /// The format has no key for biases: they are where their tensors are.
    fn biases(&self) -> Biases {
        let has = |part: &str| self.store.contains(&format!("blk.0.{part}.bias"));
        Biases {
            qkv: has("attn_q")
                || has("attn_k")
                || has("attn_v")
                || matches!(self.family.rules.biases, super::BiasRule::AlwaysQkv),
            attention_output: has("attn_output"),
            feed_forward: has("ffn_gate") || has("ffn_up") || has("ffn_down"),
        }
    }

    fn windows(&self, layers: u32) -> Result<Vec<Option<u32>>, CheckpointError> {
        let count = layers.min(super::MAX_LAYERS);
        let window = self.optional("attention.sliding_window")?.filter(|&window| window > 0);
        let WindowRule::AllButEvery { layers: every, .. } = self.family.rules.windows else {
            return Ok(vec![None; count as usize]);
        };
        let every = match self.metadata.get(&self.key(WINDOW_PATTERN)) {
            Some(Value::Array(Array::Bools(sliding))) => {
                let layer = |at: u32| sliding.get(at as usize).copied().unwrap_or(false);
                return Ok((0..count).map(|at| window.filter(|_| layer(at))).collect());
            }
            _ => self.optional(WINDOW_PATTERN)?.unwrap_or(every),
        };
        if every == 0 {
            return Err(self.bad(WINDOW_PATTERN, "0".to_owned(), "at least 1".to_owned()));
        }
        Ok((1..=count).map(|layer| window.filter(|_| !layer.is_multiple_of(every))).collect())
    }

    fn rope(&self, head_dim: u32, trained: u32) -> Result<RopeConfig, CheckpointError> {
        let rotated = self.optional("rope.dimension_count")?.unwrap_or(head_dim);
        let theta = self.float("rope.freq_base").unwrap_or(self.family.rules.rope_theta);
        let scaling = match self.rope_factors(rotated)? {
            Some(factors) => RopeScaling::Factors(factors),
            None => self.scaling(trained)?,
        };
        Ok(RopeConfig { theta, rotated, scaling })
    }

    fn scaling(&self, trained: u32) -> Result<RopeScaling, CheckpointError> {
        let factor = self.float("rope.scaling.factor").or(self.float("rope.scale_linear")).unwrap_or(1.0);
        // Files from before the key existed scale linearly.
        let kind = self.metadata.string(&self.key("rope.scaling.type")).unwrap_or("linear");
        if !(factor.is_finite() && factor > 0.0) {
            return Err(self.bad("rope.scaling.factor", factor.to_string(), "a number above 0".to_owned()));
        }
        #[allow(clippy::float_cmp, reason = "exactly one means that nothing is scaled")]
        match kind {
            _ if factor == 1.0 => Ok(RopeScaling::None),
            "none" => Ok(RopeScaling::None),
            "linear" => Ok(RopeScaling::Linear { factor }),
            "yarn" => {
                let original = self.optional("rope.scaling.original_context_length")?.unwrap_or(trained);
                let stated =
                    self.float("rope.scaling.attn_factor").or(self.float("rope.scaling.yarn_attn_factor"));
                Ok(RopeScaling::Yarn(Yarn {
                    factor,
                    original: original.max(1),
                    beta_fast: self.float("rope.scaling.yarn_beta_fast").unwrap_or(32.0),
                    beta_slow: self.float("rope.scaling.yarn_beta_slow").unwrap_or(1.0),
                    // What the file states multiplies the factor that follows from the stretch.
                    attention_factor: stated.unwrap_or(1.0)
                        * Yarn::default_attention_factor(factor, None, None),
                    truncate: true,
                }))
            }
            other => Err(CheckpointError::Unsupported {
                file: self.file.to_owned(),
                what: format!("the rope scaling `{other}`"),
                help: "known are none, linear and yarn, and a tensor of factors".to_owned(),
            }),
        }
    }

    fn rope_factors(&self, rotated: u32) -> Result<Option<Vec<f32>>, CheckpointError> {
        let Some(stored) = self.store.get(ROPE_FACTORS) else {
            return Ok(None);
        };
        let bad = |reason: String| CheckpointError::BadTensor {
            file: self.file.to_owned(),
            tensor: ROPE_FACTORS.to_owned(),
            reason,
        };
        if stored.shape != [rotated as usize / 2] {
            return Err(bad(format!(
                "has shape {:?}, but {rotated} values are rotated in pairs",
                stored.shape
            )));
        }
        let view = self.store.view(ROPE_FACTORS).ok_or_else(|| bad("is not stored as numbers".to_owned()))?;
        let factors = view.to_f32().map_err(|error| bad(format!("cannot be read: {error}")))?;
        if factors.iter().all(|factor| factor.is_finite() && *factor > 0.0) {
            return Ok(Some(factors));
        }
        Err(bad("has a factor that is not above 0".to_owned()))
    }

    fn refuse_unbuilt(&self) -> Result<(), CheckpointError> {
        let unsupported = |what: &str| {
            Err(CheckpointError::Unsupported {
                file: self.file.to_owned(),
                what: what.to_owned(),
                help: format!("the family {} is built without", self.family.name),
            })
        };
        if self.optional("expert_count")?.is_some_and(|experts| experts > 0) {
            return unsupported("a mixture of experts");
        }
        let caps = ["final_logit_softcapping", "attn_logit_softcapping"];
        if caps.iter().any(|key| self.float(key).is_some_and(|cap| cap != 0.0)) {
            return unsupported("soft caps on logits");
        }
        Ok(())
    }

    fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.architecture)
    }

    fn float(&self, name: &str) -> Option<f64> {
        self.metadata.float(&self.key(name))
    }

    fn required(&self, name: &str) -> Result<u32, CheckpointError> {
        self.optional(name)?.ok_or_else(|| missing(self.file, &self.key(name)))
    }

    /// A whole number, or a list of the same one for each layer.
    fn optional(&self, name: &str) -> Result<Option<u32>, CheckpointError> {
        let whole = |value: i128| u32::try_from(value).ok();
        let key = self.key(name);
        let number = match self.metadata.get(&key) {
            None => return Ok(None),
            Some(Value::Integer(value)) => whole(*value),
            Some(Value::Array(Array::Integers(values))) => match values.split_first() {
                Some((first, rest)) if rest.iter().all(|value| value == first) => whole((*first).into()),
                _ => {
                    let found = "a list of different numbers".to_owned();
                    return Err(self.bad(name, found, "the same number for every layer".to_owned()));
                }
            },
            Some(_) => None,
        };
        match number {
            Some(number) => Ok(Some(number)),
            None => Err(self.bad(name, "something else".to_owned(), "a whole number of 32 bits".to_owned())),
        }
    }

    fn bad(&self, name: &str, found: String, expected: String) -> CheckpointError {
        CheckpointError::BadValue { file: self.file.to_owned(), key: self.key(name), found, expected }
    }
}

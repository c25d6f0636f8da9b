//! `config.json` of a Hugging Face folder to a [`ModelConfig`].
//!
//! Vision-language models keep the language model's keys under `text_config`; what is common stays outside.

use std::path::Path;

use serde_json::{Map, Value};
use updraft_core::program::{Activation, RopePairing};
use updraft_core::units::Tokens;

use super::{BiasRule, Biases, ModelConfig, Rules, WindowRule, rope_keys};
use crate::error::CheckpointError;
use crate::families::{self, Family};
use crate::fields::{Fields, read_object};
use crate::rope::{RopeConfig, RopeScaling};

/// Name of the file.
pub(crate) const CONFIG_FILE: &str = "config.json";

/// A parsed `config.json`.
pub(crate) struct HfConfig {
    pub(crate) config: ModelConfig,
    pub(crate) family: &'static Family,
    /// End-of-sequence ids that it names.
    pub(crate) eos_token_ids: Vec<u32>,
}

/// Reads a folder's `config.json`.
pub(crate) fn read(folder: &Path) -> Result<HfConfig, CheckpointError> {
    let file = folder.join(CONFIG_FILE);
    let Some(object) = read_object(&file)? else {
        return Err(CheckpointError::MissingFile {
            file,
            help: "a checkpoint folder has config.json, tokenizer.json and safetensors files".to_owned(),
        });
    };
    parse(&file, &object)
}

/// Understands the content of a `config.json`.
pub(crate) fn parse(file: &Path, object: &Map<String, Value>) -> Result<HfConfig, CheckpointError> {
    let outer = Fields { file, map: object };
    let inner = outer.object("text_config")?.unwrap_or(outer);
    refuse_quantised(outer)?;
    let (architecture, family) = find_family(outer, inner)?;
    let mut eos_token_ids = inner.ids("eos_token_id")?;
    if eos_token_ids.is_empty() {
        eos_token_ids = outer.ids("eos_token_id")?;
    }
    let config =
        Reader { fields: inner, outer, rules: &family.rules }.config(architecture, family)?.checked(file)?;
    Ok(HfConfig { config, family, eos_token_ids })
}

fn find_family<'a>(
    outer: Fields<'a>,
    inner: Fields<'a>,
) -> Result<(String, &'static Family), CheckpointError> {
    let mut named = outer.strings("architectures")?.unwrap_or_default();
    if named.is_empty() {
        named = inner.strings("architectures")?.unwrap_or_default();
    }
    for architecture in &named {
        if let Some(family) = families::by_architecture(architecture) {
            return Ok(((*architecture).to_owned(), family));
        }
    }
    let model_type = inner.string("model_type")?;
    if named.is_empty()
        && let Some(model_type) = model_type
        && let Some(family) = families::by_model_type(model_type)
    {
        return Ok((family.canonical_architecture().to_owned(), family));
    }
    let found = match (named.first(), model_type) {
        (Some(architecture), _) => (*architecture).to_owned(),
        (None, Some(model_type)) => format!("of model_type {model_type}"),
        (None, None) => {
            return Err(CheckpointError::MissingKey {
                file: outer.file.to_owned(),
                key: "architectures".to_owned(),
                help: format!("it names the kind of model; known are {}", families::known_architectures()),
            });
        }
    };
    Err(CheckpointError::UnknownArchitecture {
        file: outer.file.to_owned(),
        found,
        known: families::known_architectures(),
    })
}

fn refuse_quantised(outer: Fields<'_>) -> Result<(), CheckpointError> {
    let Some(quantization) = outer.object("quantization_config")? else {
        return Ok(());
    };
    let method = quantization.string("quant_method")?.unwrap_or("an unnamed method");
    Err(outer.unsupported(
        format!("weights quantised by {method}"),
        "give the unquantised checkpoint, or a GGUF file with quantised weights",
    ))
}

struct Reader<'a> {
    fields: Fields<'a>,
    outer: Fields<'a>,
    rules: &'a Rules,
}

impl Reader<'_> {
    fn config(&self, architecture: String, family: &Family) -> Result<ModelConfig, CheckpointError> {
        let (fields, rules) = (self.fields, self.rules);
        let hidden = fields.integer_or("hidden_size", rules.hidden)?;
        let layers = fields.integer_or("num_hidden_layers", rules.layers)?;
        let heads = fields.integer_or("num_attention_heads", rules.heads)?;
        let kv_heads = fields.integer("num_key_value_heads")?.or(rules.kv_heads).unwrap_or(heads);
        let head_dim = match fields.integer("head_dim")?.or(rules.head_dim) {
            Some(head_dim) => head_dim,
            None => hidden.checked_div(heads).unwrap_or(0),
        };
        self.refuse_softcaps()?;
        let max_position = fields.integer("max_position_embeddings")?.unwrap_or(rules.max_position);
        let windows = self.windows(layers)?;
        let has_windows = windows.iter().any(Option::is_some);
        let ropes = rope_keys::read(fields, rules, head_dim, max_position, has_windows)?;
        let attention_scalar = match rules.query_scalar {
            Some(default) => fields.number("query_pre_attn_scalar")?.unwrap_or(default),
            None => f64::from(head_dim),
        };
        Ok(ModelConfig {
            architecture,
            family: family.name,
            hidden,
            layers,
            heads,
            kv_heads,
            head_dim,
            intermediate: fields.integer_or("intermediate_size", rules.intermediate)?,
            vocab: fields.integer_or("vocab_size", rules.vocab)?,
            context_length: context_length(&ropes.full, max_position, rules),
            stored_dtype: String::new(),
            parameters: 0,
            rms_epsilon: fields.number("rms_norm_eps")?.unwrap_or(rules.rms_epsilon) as f32,
            activation: self.activation()?,
            tied_output: match fields.bool("tie_word_embeddings")? {
                Some(tied) => tied,
                None => self.outer.bool("tie_word_embeddings")?.unwrap_or(rules.tied_output),
            },
            attention_scale: attention_scalar.powf(-0.5) as f32,
            biases: self.biases()?,
            zero_centred_norms: rules.zero_centred_norms,
            windows,
            rope: ropes.full,
            local_rope: ropes.local,
            pairing: RopePairing::Halves,
        })
    }

    fn activation(&self) -> Result<Activation, CheckpointError> {
        let key =
            if self.fields.get("hidden_activation").is_some() { "hidden_activation" } else { "hidden_act" };
        match self.fields.string(key)? {
            None => Ok(self.rules.activation),
            Some("silu" | "swish") => Ok(Activation::Silu),
            Some("gelu_pytorch_tanh" | "gelu_new") => Ok(Activation::GeluTanh),
            Some(_) => Err(self
                .fields
                .bad(key, "`silu` or `gelu_pytorch_tanh`; other gate functions are unknown here")),
        }
    }

    fn biases(&self) -> Result<Biases, CheckpointError> {
        Ok(match self.rules.biases {
            BiasRule::Never => Biases::default(),
            BiasRule::AlwaysQkv => Biases { qkv: true, ..Biases::default() },
            BiasRule::ByKey => {
                let attention = self.fields.bool("attention_bias")?.unwrap_or(false);
                let feed_forward = self.fields.bool("mlp_bias")?.unwrap_or(false);
                Biases { qkv: attention, attention_output: attention, feed_forward }
            }
        })
    }

    fn windows(&self, layers: u32) -> Result<Vec<Option<u32>>, CheckpointError> {
        let (fields, count) = (self.fields, layers as usize);
        let stated = fields.integer("sliding_window")?;
        let window = match self.rules.windows {
            WindowRule::Never => None,
            WindowRule::Everywhere { default } | WindowRule::AllButEvery { default, .. } => {
                if fields.has("sliding_window") { stated } else { Some(default) }
            }
            WindowRule::UpperLayers => {
                let used = fields.bool("use_sliding_window")?.unwrap_or(false);
                stated.filter(|_| used)
            }
        };
        let reads_layer_types =
            matches!(self.rules.windows, WindowRule::UpperLayers | WindowRule::AllButEvery { .. });
        if reads_layer_types && let Some(types) = fields.strings("layer_types")? {
            return self.windows_by_type(&types, count, window);
        }
        // A count of layers beyond the bound is refused later; it must not reserve memory here.
        let count = count.min(super::MAX_LAYERS as usize) as u32;
        Ok(match self.rules.windows {
            WindowRule::Never => vec![None; count as usize],
            WindowRule::Everywhere { .. } => vec![window; count as usize],
            WindowRule::UpperLayers => {
                let first = fields.integer("max_window_layers")?.unwrap_or(28);
                (0..count).map(|layer| window.filter(|_| layer >= first)).collect()
            }
            WindowRule::AllButEvery { layers: every, .. } => {
                let every = fields.integer("sliding_window_pattern")?.unwrap_or(every);
                if every == 0 {
                    return Err(fields.bad("sliding_window_pattern", "at least 1"));
                }
                (1..=count).map(|layer| window.filter(|_| !layer.is_multiple_of(every))).collect()
            }
        })
    }

    fn windows_by_type(
        &self,
        types: &[&str],
        layers: usize,
        window: Option<u32>,
    ) -> Result<Vec<Option<u32>>, CheckpointError> {
        if types.len() != layers {
            return Err(self.fields.bad("layer_types", format!("a list of {layers} entries, one a layer")));
        }
        types
            .iter()
            .map(|&kind| match (kind, window) {
                ("full_attention", _) => Ok(None),
                ("sliding_attention", Some(window)) => Ok(Some(window)),
                ("sliding_attention", None) => Err(self
                    .fields
                    .bad("sliding_window", "a number, because `layer_types` has sliding layers")),
                _ => Err(self.fields.bad("layer_types", "made of `full_attention` and `sliding_attention`")),
            })
            .collect()
    }

    fn refuse_softcaps(&self) -> Result<(), CheckpointError> {
        for key in ["attn_logit_softcapping", "final_logit_softcapping"] {
            if self.fields.get(key).is_some() {
                return Err(self.fields.unsupported(format!("`{key}`"), "no known family here needs it"));
            }
        }
        if self.fields.bool("use_bidirectional_attention")? == Some(true) {
            return Err(self
                .fields
                .unsupported("`use_bidirectional_attention`", "only causal models are served"));
        }
        Ok(())
    }
}

/// The longest context: scalings that stretch the trained one multiply it, as vLLM counts.
fn context_length(rope: &RopeConfig, max_position: u32, rules: &Rules) -> Tokens {
    let stretched = |original: u32, factor: f64| (f64::from(original) * factor).round() as u32;
    Tokens(match &rope.scaling {
        _ if rules.max_position_is_scaled => max_position,
        RopeScaling::Linear { factor } => stretched(max_position, *factor),
        RopeScaling::Dynamic { factor, original } => stretched(*original, *factor),
        RopeScaling::Yarn(yarn) => stretched(yarn.original, yarn.factor),
        RopeScaling::None | RopeScaling::Llama3 { .. } | RopeScaling::Factors(_) => max_position,
    })
}

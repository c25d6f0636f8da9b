//! The ways in which `config.json` files describe the rotary embedding.
//!
//! Older files have `rope_theta` beside `rope_scaling` (whose kind is under `type` or `rope_type`); newer ones put all
//! of it into `rope_parameters`, one object or one for each layer type. Gemma 3's older files name the base of the
//! sliding layers `rope_local_base_freq`.

use crate::error::CheckpointError;
use crate::rope::{RopeConfig, RopeScaling, Yarn};

use super::Rules;
use crate::fields::Fields;

/// The scalings that are known, for messages.
const KNOWN: &str = "default, linear, dynamic, yarn and llama3";

/// The rotary embeddings of a model.
pub(super) struct Ropes {
    pub(super) full: RopeConfig,
    /// For layers with a window, where the file or the family has another one for them.
    pub(super) local: Option<RopeConfig>,
}

/// Reads them. `has_windows` says whether any layer has a window.
pub(super) fn read(
    fields: Fields<'_>,
    rules: &Rules,
    head_dim: u32,
    max_position: u32,
    has_windows: bool,
) -> Result<Ropes, CheckpointError> {
    let context = Context { fields, head_dim, max_position };
    let parameters = match fields.object("rope_parameters")? {
        Some(parameters) => Some(parameters),
        None => fields.object("rope_scaling")?,
    };
    let nested = |key: &str| parameters.as_ref().map_or(Ok(None), |all| all.object(key));
    let (full, sliding) = (nested("full_attention")?, nested("sliding_attention")?);
    let one_for_all = parameters.filter(|_| full.is_none() && sliding.is_none());

    let theta = fields.number("rope_theta")?.unwrap_or(rules.rope_theta);
    let full = context.rope(full.or(one_for_all), theta)?;
    let local_theta = fields.number("rope_local_base_freq")?.or(rules.local_rope_theta);
    let local = match (sliding, local_theta) {
        (Some(sliding), local_theta) => Some(context.rope(Some(sliding), local_theta.unwrap_or(theta))?),
        (None, Some(local_theta)) => Some(context.rope(None, local_theta)?),
        (None, None) => None,
    };
    Ok(Ropes { full, local: local.filter(|_| has_windows) })
}

struct Context<'a> {
    fields: Fields<'a>,
    head_dim: u32,
    max_position: u32,
}

impl Context<'_> {
    fn rope(&self, parameters: Option<Fields<'_>>, theta: f64) -> Result<RopeConfig, CheckpointError> {
        let within = |key: &str| parameters.as_ref().map_or(Ok(None), |parameters| parameters.number(key));
        let theta = within("rope_theta")?.unwrap_or(theta);
        let partial = match within("partial_rotary_factor")? {
            Some(partial) => partial,
            None => self.fields.number("partial_rotary_factor")?.unwrap_or(1.0),
        };
        let rotated = (f64::from(self.head_dim) * partial.clamp(0.0, 1.0)) as u32;
        let scaling = match parameters {
            Some(parameters) => self.scaling(parameters)?,
            None => RopeScaling::None,
        };
        Ok(RopeConfig { theta, rotated, scaling })
    }

    fn scaling(&self, parameters: Fields<'_>) -> Result<RopeScaling, CheckpointError> {
        let kind = match parameters.string("rope_type")? {
            Some(kind) => kind,
            None => parameters.string("type")?.unwrap_or("default"),
        };
        Ok(match kind {
            // `mrope` is how multimodal models say that positions may have several axes; with text they are equal.
            "default" | "mrope" => RopeScaling::None,
            "linear" => RopeScaling::Linear { factor: factor(parameters)? },
            "dynamic" => RopeScaling::Dynamic { factor: factor(parameters)?, original: self.max_position },
            "yarn" => RopeScaling::Yarn(self.yarn(parameters)?),
            "llama3" => {
                let low_frequency_factor = positive(parameters, "low_freq_factor", None)?;
                let high_frequency_factor = positive(parameters, "high_freq_factor", None)?;
                if high_frequency_factor <= low_frequency_factor {
                    return Err(parameters.bad("high_freq_factor", "above `low_freq_factor`"));
                }
                RopeScaling::Llama3 {
                    factor: factor(parameters)?,
                    low_frequency_factor,
                    high_frequency_factor,
                    original: self.original(parameters)?,
                }
            }
            other => {
                return Err(parameters
                    .unsupported(format!("the rope scaling `{other}`"), format!("known are {KNOWN}")));
            }
        })
    }

    fn yarn(&self, parameters: Fields<'_>) -> Result<Yarn, CheckpointError> {
        let original = self.original(parameters)?;
        let stretch = f64::from(self.max_position) / f64::from(original.max(1));
        let factor = positive(parameters, "factor", Some(stretch))?;
        let attention_factor = match parameters.number("attention_factor")? {
            Some(stated) => stated,
            None => Yarn::default_attention_factor(
                factor,
                parameters.number("mscale")?,
                parameters.number("mscale_all_dim")?,
            ),
        };
        Ok(Yarn {
            factor,
            original,
            beta_fast: positive(parameters, "beta_fast", Some(32.0))?,
            beta_slow: positive(parameters, "beta_slow", Some(1.0))?,
            attention_factor,
            truncate: parameters.bool("truncate")?.unwrap_or(true),
        })
    }

    /// The context length of the training: beside the scaling, within it, or the maximum position.
    fn original(&self, parameters: Fields<'_>) -> Result<u32, CheckpointError> {
        const KEY: &str = "original_max_position_embeddings";
        let original = match self.fields.integer(KEY)? {
            Some(original) => original,
            None => parameters.integer(KEY)?.unwrap_or(self.max_position),
        };
        if original == 0 { Err(parameters.bad(KEY, "at least 1")) } else { Ok(original) }
    }
}

fn factor(parameters: Fields<'_>) -> Result<f64, CheckpointError> {
    positive(parameters, "factor", None)
}

fn positive(parameters: Fields<'_>, key: &str, default: Option<f64>) -> Result<f64, CheckpointError> {
    match parameters.number(key)?.or(default) {
        Some(value) if value > 0.0 => Ok(value),
        _ => Err(parameters.bad(key, "a number above 0")),
    }
}

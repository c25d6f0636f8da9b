//! Sampling values for requests that bring none, from the model, a folder, and the operator.

use std::path::Path;

use anyhow::{Context as _, Result};
use serde_json::{Map, Value};
use updraft_models::GenerationDefaults;
use updraft_protocol::SamplingDefaults;

use crate::config::generation::GenerationOptions;

const FILE: &str = "generation_config.json";

/// The values in force: the operator's win over those of the model or folder.
pub(super) fn sampling(options: &GenerationOptions, model: &GenerationDefaults) -> Result<SamplingDefaults> {
    let base = match options.generation_config.as_str() {
        "auto" => SamplingDefaults {
            temperature: model.temperature,
            top_p: model.top_p,
            top_k: model.top_k,
            min_p: model.min_p,
            repetition_penalty: model.repetition_penalty,
            max_tokens: model.max_tokens,
        },
        "vllm" => SamplingDefaults::default(),
        folder => read(Path::new(folder)).context("--generation-config")?,
    };
    let own = options.override_generation_config.as_ref().map(from_object).unwrap_or_default();
    Ok(own.or(base))
}

fn read(folder: &Path) -> Result<SamplingDefaults> {
    let file = if folder.is_dir() { folder.join(FILE) } else { folder.to_owned() };
    let text = std::fs::read_to_string(&file).with_context(|| {
        format!("{} cannot be read; give auto, vllm, or a folder with {FILE}", file.display())
    })?;
    let object: Map<String, Value> =
        serde_json::from_str(&text).with_context(|| format!("{} is no JSON object", file.display()))?;
    Ok(from_object(&object))
}

/// Numbers of the wrong kind count as not set, as they do for the model's own file.
fn from_object(object: &Map<String, Value>) -> SamplingDefaults {
    let float = |key: &str| object.get(key).and_then(Value::as_f64).map(|value| value as f32);
    let whole =
        |key: &str| object.get(key).and_then(Value::as_u64).and_then(|value| u32::try_from(value).ok());
    SamplingDefaults {
        temperature: float("temperature"),
        top_p: float("top_p"),
        top_k: whole("top_k"),
        min_p: float("min_p"),
        repetition_penalty: float("repetition_penalty"),
        max_tokens: whole("max_new_tokens").or_else(|| whole("max_tokens")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(config: &str, own: Option<Value>) -> GenerationOptions {
        GenerationOptions {
            chat_template: None,
            generation_config: config.to_owned(),
            override_generation_config: own.and_then(|value| value.as_object().cloned()),
            max_logprobs: crate::config::values::LogprobsLimit::Count(20),
        }
    }

    #[test]
    fn the_operator_wins_over_the_model() {
        let model = GenerationDefaults { temperature: Some(0.7), top_k: Some(20), ..Default::default() };
        let own = serde_json::json!({"temperature": 0.2, "max_new_tokens": 64});
        let both = sampling(&options("auto", Some(own)), &model).unwrap();
        assert_eq!((both.temperature, both.top_k, both.max_tokens), (Some(0.2), Some(20), Some(64)));
        assert_eq!(sampling(&options("vllm", None), &model).unwrap(), SamplingDefaults::default());
        let error = sampling(&options("/no/such/folder", None), &model).unwrap_err();
        assert!(format!("{error:#}").contains("auto, vllm, or a folder"), "{error:#}");
    }
}

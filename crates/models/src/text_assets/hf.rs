//! Text assets of a Hugging Face folder.

use std::path::Path;

use serde_json::Value;

use super::{GenerationDefaults, TextAssets, TokenizerAsset, tidy_ids};
use crate::error::CheckpointError;
use crate::fields::{Fields, read_object};

/// The tokenizer in the format of the `tokenizers` library.
pub(crate) const TOKENIZER_FILE: &str = "tokenizer.json";
const TOKENIZER_CONFIG_FILE: &str = "tokenizer_config.json";
const GENERATION_CONFIG_FILE: &str = "generation_config.json";
const SPECIAL_TOKENS_FILE: &str = "special_tokens_map.json";
const TEMPLATE_FILE: &str = "chat_template.jinja";
const OLD_TEMPLATE_FILE: &str = "chat_template.json";

/// Collects them. `eos_token_ids` are those that `config.json` names.
pub(crate) fn read(
    folder: &Path,
    eos_token_ids: Vec<u32>,
    vocab: u32,
) -> Result<TextAssets, CheckpointError> {
    let tokenizer = folder.join(TOKENIZER_FILE);
    if !tokenizer.exists() {
        return Err(CheckpointError::MissingFile { file: tokenizer, help: missing_tokenizer_help(folder) });
    }
    let (generation, generation_eos) = generation(folder)?;
    let special = SpecialTokens::read(folder)?;
    let mut eos: Vec<u32> = eos_token_ids;
    eos.extend(generation_eos);
    Ok(TextAssets {
        tokenizer: TokenizerAsset::HfJson(tokenizer),
        chat_template: special.chat_template,
        bos_token: special.bos,
        eos_token: special.eos,
        eos_token_ids: tidy_ids(eos, vocab),
        generation,
    })
}

fn missing_tokenizer_help(folder: &Path) -> String {
    let other =
        ["tokenizer.model", "vocab.json", "tekken.json"].into_iter().find(|name| folder.join(name).exists());
    match other {
        Some(other) => format!(
            "the folder has `{other}` only; save the tokenizer with the transformers library, which writes \
             {TOKENIZER_FILE}"
        ),
        None => "without it no text can become tokens; fetch it from where the weights came from".to_owned(),
    }
}

fn generation(folder: &Path) -> Result<(GenerationDefaults, Vec<u32>), CheckpointError> {
    let file = folder.join(GENERATION_CONFIG_FILE);
    let Some(map) = read_object(&file)? else {
        return Ok((GenerationDefaults::default(), Vec::new()));
    };
    let fields = Fields { file: &file, map: &map };
    let number = |key: &str| fields.number(key).map(|number| number.map(|number| number as f32));
    let defaults = GenerationDefaults {
        temperature: number("temperature")?,
        top_p: number("top_p")?,
        top_k: fields.integer("top_k")?,
        min_p: number("min_p")?,
        repetition_penalty: number("repetition_penalty")?,
        max_tokens: fields.integer("max_new_tokens")?,
    };
    Ok((defaults, fields.ids("eos_token_id")?))
}

/// What `tokenizer_config.json` and the files around it say.
struct SpecialTokens {
    bos: Option<String>,
    eos: Option<String>,
    chat_template: Option<String>,
}

impl SpecialTokens {
    fn read(folder: &Path) -> Result<Self, CheckpointError> {
        let config_file = folder.join(TOKENIZER_CONFIG_FILE);
        let config = read_object(&config_file)?.unwrap_or_default();
        let config = Fields { file: &config_file, map: &config };
        let older_file = folder.join(SPECIAL_TOKENS_FILE);
        let older = read_object(&older_file)?.unwrap_or_default();
        let older = Fields { file: &older_file, map: &older };
        let token = |key: &str| match token_text(config, key)? {
            Some(text) => Ok(Some(text)),
            None => token_text(older, key),
        };
        Ok(Self {
            bos: token("bos_token")?,
            eos: token("eos_token")?,
            chat_template: template(folder, config)?,
        })
    }
}

/// A special token: its text, or an object that holds it.
fn token_text(fields: Fields<'_>, key: &str) -> Result<Option<String>, CheckpointError> {
    let text = match fields.get(key) {
        None => return Ok(None),
        Some(Value::String(text)) => Some(text.clone()),
        Some(Value::Object(object)) => match object.get("content") {
            Some(Value::String(text)) => Some(text.clone()),
            _ => None,
        },
        Some(_) => None,
    };
    text.map(Some).ok_or_else(|| fields.bad(key, "a string, or an object with a string as `content`"))
}

/// The template in a file of its own wins over the one in the tokenizer's configuration, as in the
/// transformers library.
fn template(folder: &Path, config: Fields<'_>) -> Result<Option<String>, CheckpointError> {
    let file = folder.join(TEMPLATE_FILE);
    match std::fs::read_to_string(&file) {
        Ok(text) => return Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(source) => return Err(CheckpointError::Read { file, source }),
    }
    if let Some(template) = template_value(config)? {
        return Ok(Some(template));
    }
    let file = folder.join(OLD_TEMPLATE_FILE);
    match read_object(&file)? {
        Some(map) => template_value(Fields { file: &file, map: &map }),
        None => Ok(None),
    }
}

/// One template, or a list of named ones of which `default` counts, else the first.
fn template_value(fields: Fields<'_>) -> Result<Option<String>, CheckpointError> {
    const KEY: &str = "chat_template";
    let bad = || fields.bad(KEY, "a string, or a list of objects with `name` and `template`");
    match fields.get(KEY) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(Value::Array(list)) => {
            let named = |entry: &Value| {
                let text = |key: &str| entry.get(key).and_then(Value::as_str).map(str::to_owned);
                Some((text("name")?, text("template")?))
            };
            let mut all = list.iter().map(named).collect::<Option<Vec<_>>>().ok_or_else(bad)?;
            let at = all.iter().position(|(name, _)| name == "default").unwrap_or(0);
            Ok((at < all.len()).then(|| all.swap_remove(at).1))
        }
        Some(_) => Err(bad()),
    }
}

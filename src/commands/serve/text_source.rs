//! From what a checkpoint says about text to what the text side is made of, with the operator's replacements.

use std::path::Path;

use anyhow::{Context as _, Result, bail};
use updraft_models::{TextAssets, TokenizerAsset};
use updraft_text::{GgufVocabulary, TextSource, TokenizerSource};

use crate::config::Config;

const TOKENIZER_FILE: &str = "tokenizer.json";

/// What the text side is made of.
pub(super) fn text_source(config: &Config, assets: &TextAssets) -> Result<TextSource> {
    let tokenizer = match &config.model.tokenizer {
        Some(path) => own_tokenizer(Path::new(path)).context("--tokenizer")?,
        None => tokenizer(&assets.tokenizer),
    };
    let chat_template = match &config.generation.chat_template {
        Some(given) => Some(template(given).context("--chat-template")?),
        None => assets.chat_template.clone(),
    };
    Ok(TextSource {
        tokenizer,
        chat_template,
        bos_token: assets.bos_token.clone(),
        eos_token: assets.eos_token.clone(),
    })
}

fn tokenizer(asset: &TokenizerAsset) -> TokenizerSource {
    match asset {
        TokenizerAsset::HfJson(path) => TokenizerSource::HuggingFace { path: path.clone() },
        TokenizerAsset::Gguf(found) => TokenizerSource::Vocabulary(GgufVocabulary {
            model: found.model.clone(),
            tokens: found.tokens.clone(),
            scores: found.scores.clone(),
            types: found.types.clone(),
            merges: found.merges.clone(),
            pre: found.pre.clone(),
            bos: found.bos,
            eos: found.eos,
            unknown: found.unknown,
            add_bos: found.add_bos,
            add_eos: found.add_eos,
            add_space_prefix: found.add_space_prefix,
        }),
    }
}

fn own_tokenizer(path: &Path) -> Result<TokenizerSource> {
    let file = if path.is_dir() { path.join(TOKENIZER_FILE) } else { path.to_owned() };
    if !file.is_file() {
        bail!("{} does not exist; give a {TOKENIZER_FILE} or a folder that holds one", file.display());
    }
    Ok(TokenizerSource::HuggingFace { path: file })
}

/// A file's content, or the text itself when it is written like a template.
fn template(given: &str) -> Result<String> {
    let path = Path::new(given);
    if path.is_file() {
        return std::fs::read_to_string(path).with_context(|| format!("{given} cannot be read"));
    }
    if given.contains("{{") || given.contains("{%") {
        return Ok(given.to_owned());
    }
    bail!("{given:?} is neither a file nor a template (which has {{{{ }}}} or {{% %}} in it)")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_is_a_file_or_a_text() {
        let text = "{% for m in messages %}{{ m.content }}{% endfor %}";
        assert_eq!(template(text).unwrap(), text);
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        assert!(template(file).unwrap().contains("[workspace]"));
        assert!(template("no-such.jinja").unwrap_err().to_string().contains("no-such.jinja"));
    }
}

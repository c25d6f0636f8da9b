//! Text assets in the metadata of a GGUF file.

use std::path::Path;

use super::{GenerationDefaults, GgufTokenizer, TextAssets, TokenizerAsset, tidy_ids};
use crate::error::CheckpointError;
use crate::gguf::{Array, Metadata, Value};

/// Texts of tokens that end a turn or a document. Most files name a single end token, although the model was trained
/// to use another one at the end of its turn; llama.cpp looks for these texts, too.
const END_TEXTS: [&str; 8] = [
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<end_of_turn>",
    "<|end|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<EOT>",
];
const MODEL: &str = "tokenizer.ggml.model";
const TOKENS: &str = "tokenizer.ggml.tokens";
/// Types of tokens that are not plain text.
const CONTROL: i32 = 3;
const USER_DEFINED: i32 = 4;

/// Takes them out of the metadata.
pub(crate) fn take(file: &Path, metadata: &mut Metadata, vocab: u32) -> Result<TextAssets, CheckpointError> {
    let tokenizer = tokenizer(file, metadata)?;
    let text_of = |id: Option<u32>| id.and_then(|id| tokenizer.tokens.get(id as usize)).cloned();
    let chat_template = metadata.string("tokenizer.chat_template").map(str::to_owned);
    Ok(TextAssets {
        chat_template,
        bos_token: text_of(tokenizer.bos),
        eos_token: text_of(tokenizer.eos),
        eos_token_ids: tidy_ids(end_tokens(metadata, &tokenizer), vocab),
        generation: GenerationDefaults::default(),
        tokenizer: TokenizerAsset::Gguf(tokenizer),
    })
}

fn tokenizer(file: &Path, metadata: &mut Metadata) -> Result<GgufTokenizer, CheckpointError> {
    let missing = |key: &str| CheckpointError::MissingKey {
        file: file.to_owned(),
        key: key.to_owned(),
        help: "without it no text can become tokens; convert the model again".to_owned(),
    };
    let model = metadata.string(MODEL).ok_or_else(|| missing(MODEL))?.to_owned();
    let Some(Value::Array(Array::Strings(tokens))) = metadata.take(TOKENS) else {
        return Err(missing(TOKENS));
    };
    let scores = match metadata.take("tokenizer.ggml.scores") {
        Some(Value::Array(Array::Floats(scores))) => scores,
        _ => Vec::new(),
    };
    let types: Vec<i32> = match metadata.take("tokenizer.ggml.token_type") {
        Some(Value::Array(Array::Integers(types))) => {
            types.into_iter().map(|kind| i32::try_from(kind).unwrap_or(0)).collect()
        }
        _ => Vec::new(),
    };
    let merges = match metadata.take("tokenizer.ggml.merges") {
        Some(Value::Array(Array::Strings(merges))) => merges,
        _ => Vec::new(),
    };
    for (key, len) in [("scores", scores.len()), ("token_type", types.len())] {
        if len != 0 && len != tokens.len() {
            return Err(CheckpointError::BadValue {
                file: file.to_owned(),
                key: format!("tokenizer.ggml.{key}"),
                found: format!("a list of {len}"),
                expected: format!("a list of {}, one for each token", tokens.len()),
            });
        }
    }
    let id = |name: &str| {
        metadata.integer(&format!("tokenizer.ggml.{name}_token_id")).and_then(|id| u32::try_from(id).ok())
    };
    Ok(GgufTokenizer {
        model,
        pre: metadata.string("tokenizer.ggml.pre").map(str::to_owned),
        bos: id("bos"),
        eos: id("eos"),
        unknown: id("unknown"),
        padding: id("padding"),
        add_bos: metadata.bool("tokenizer.ggml.add_bos_token"),
        add_eos: metadata.bool("tokenizer.ggml.add_eos_token"),
        add_space_prefix: metadata.bool("tokenizer.ggml.add_space_prefix"),
        tokens,
        scores,
        types,
        merges,
    })
}

fn end_tokens(metadata: &Metadata, tokenizer: &GgufTokenizer) -> Vec<u32> {
    let named = ["eos", "eot", "eom"]
        .into_iter()
        .filter_map(|name| metadata.integer(&format!("tokenizer.ggml.{name}_token_id")))
        .filter_map(|id| u32::try_from(id).ok());
    let by_text =
        tokenizer.tokens.iter().zip(&tokenizer.types).enumerate().filter_map(|(id, (text, kind))| {
            let special = matches!(*kind, CONTROL | USER_DEFINED);
            (special && END_TEXTS.contains(&text.as_str())).then_some(id as u32)
        });
    named.chain(by_text).collect()
}

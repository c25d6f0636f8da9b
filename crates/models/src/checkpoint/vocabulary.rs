//! Checks that every token of the tokenizer has a row in the embedding.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::Checkpoint;
use crate::error::CheckpointError;
use crate::families::Family;
use crate::text_assets::TokenizerAsset;

/// Refuses a tokenizer with tokens beyond the embedding. Fewer tokens than rows are usual: rows are padded.
pub(super) fn check(checkpoint: &Checkpoint, family: &Family) -> Result<(), CheckpointError> {
    let (tokenizer, highest) = match &checkpoint.text.tokenizer {
        TokenizerAsset::HfJson(path) => (path.clone(), highest_of_file(path, family.tokens_of_sisters)?),
        TokenizerAsset::Gguf(lists) => {
            let last = lists
                .tokens
                .last()
                .map(|token| Token { content: token.clone(), id: lists.tokens.len() as u64 - 1 });
            (checkpoint.path.clone(), last)
        }
    };
    let rows = checkpoint.config.vocab;
    match highest {
        Some(token) if token.id >= u64::from(rows) => Err(too_large(checkpoint, tokenizer, &token, rows)),
        _ => Ok(()),
    }
}

fn too_large(checkpoint: &Checkpoint, tokenizer: PathBuf, token: &Token, rows: u32) -> CheckpointError {
    let tensor = checkpoint.program.weights.first().map_or_else(String::new, |weight| weight.name.clone());
    CheckpointError::VocabularyTooLarge {
        tokenizer,
        token: format!("{:?}", token.content),
        id: token.id,
        file: checkpoint.store.file_of(&tensor).to_owned(),
        tensor,
        rows,
    }
}

/// The token of a `tokenizer.json` with the largest id, apart from those named. The file is read without keeping its
/// vocabulary, which may have hundreds of thousands of entries.
fn highest_of_file(path: &Path, apart_from: &[&str]) -> Result<Option<Token>, CheckpointError> {
    let text =
        std::fs::read(path).map_err(|source| CheckpointError::Read { file: path.to_owned(), source })?;
    let file: TokenizerFile = serde_json::from_slice(&text)
        .map_err(|error| CheckpointError::BadJson { file: path.to_owned(), reason: error.to_string() })?;
    let added = file.added_tokens.into_iter().filter(|token| !apart_from.contains(&token.content.as_str()));
    Ok(file.model.vocab.and_then(|highest| highest.0).into_iter().chain(added).max_by_key(|token| token.id))
}

#[derive(Deserialize)]
struct TokenizerFile {
    model: Model,
    #[serde(default)]
    added_tokens: Vec<Token>,
}

#[derive(Deserialize)]
struct Model {
    vocab: Option<Highest>,
}

#[derive(Deserialize)]
struct Token {
    id: u64,
    content: String,
}

/// The entry with the largest id of a vocabulary: an object of ids by text, or a list of texts with scores.
struct Highest(Option<Token>);

impl<'de> Deserialize<'de> for Highest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(HighestVisitor)
    }
}

struct HighestVisitor;

impl<'de> Visitor<'de> for HighestVisitor {
    type Value = Highest;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of token ids, or a list of tokens")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Highest, A::Error> {
        let mut highest: Option<Token> = None;
        while let Some((content, id)) = map.next_entry::<String, u64>()? {
            if highest.as_ref().is_none_or(|token| id > token.id) {
                highest = Some(Token { id, content });
            }
        }
        Ok(Highest(highest))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Highest, A::Error> {
        let mut count = 0_u64;
        while list.next_element::<IgnoredAny>()?.is_some() {
            count += 1;
        }
        Ok(Highest(count.checked_sub(1).map(|id| Token { id, content: "the last of its list".to_owned() })))
    }
}

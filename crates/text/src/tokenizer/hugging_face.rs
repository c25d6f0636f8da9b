//! A `tokenizer.json`: the `tokenizers` crate encodes, its decoder is compiled to a table of pieces.

use std::path::Path;

use serde::Deserialize;
use tokenizers::Tokenizer;

use super::alphabet::push_bytes;
use super::gguf::spelled_byte;
use super::pieces::{Pieces, Table, TokenKind};
use crate::error::TextError;

/// No vocabulary has ids beyond this; a file that claims so would only cost memory.
const LARGEST_ID: u32 = 1 << 24;

/// Encoder of a `tokenizer.json`.
pub(super) struct HuggingFace {
    tokenizer: Tokenizer,
}

impl HuggingFace {
    pub(super) fn load(path: &Path) -> Result<(Self, Pieces), TextError> {
        let failed = |reason: String| TextError::TokenizerFile { path: path.to_owned(), reason };
        let mut tokenizer = Tokenizer::from_file(path).map_err(|error| failed(error.to_string()))?;
        // Both belong to training; a server neither cuts nor pads what it is sent.
        tokenizer.with_truncation(None).map_err(|error| failed(error.to_string()))?;
        tokenizer.with_padding(None);
        let decoder =
            serde_json::to_value(tokenizer.get_decoder()).map_err(|error| failed(error.to_string()))?;
        let plan = Plan::read(&decoder)?;
        let pieces = compile(&tokens_by_id(&tokenizer, path)?, &plan);
        Ok((Self { tokenizer }, pieces))
    }

    pub(super) fn encode(&self, text: &str, add_special: bool) -> Result<Vec<u32>, TextError> {
        let encoding = self.tokenizer.encode_fast(text, add_special);
        let encoding = encoding.map_err(|error| TextError::Encode { reason: error.to_string() })?;
        Ok(encoding.get_ids().to_vec())
    }

    pub(super) fn token_id(&self, text: &str) -> Option<u32> {
        self.tokenizer.token_to_id(text)
    }
}

struct Token {
    text: String,
    kind: TokenKind,
}

fn tokens_by_id(tokenizer: &Tokenizer, path: &Path) -> Result<Vec<Option<Token>>, TextError> {
    let added = tokenizer.get_added_tokens_decoder();
    let plain = tokenizer.get_vocab(false).into_iter().map(|(text, id)| (id, text, TokenKind::Text));
    // Added tokens come last: they take the place of others with their id.
    let added = added.into_iter().map(|(id, token)| {
        let kind = if token.special { TokenKind::Special } else { TokenKind::Added };
        (id, token.content, kind)
    });
    let mut tokens = Vec::new();
    for (id, text, kind) in plain.chain(added) {
        if id > LARGEST_ID {
            let reason = format!("token {text:?} has the id {id}, beyond {LARGEST_ID}");
            return Err(TextError::TokenizerFile { path: path.to_owned(), reason });
        }
        if tokens.len() <= id as usize {
            tokens.resize_with(id as usize + 1, || None);
        }
        if let Some(slot) = tokens.get_mut(id as usize) {
            *slot = Some(Token { text, kind });
        }
    }
    Ok(tokens)
}

/// One step of a decoder, as the file spells it.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "type")]
enum Step {
    ByteLevel,
    ByteFallback,
    Fuse,
    Replace { pattern: Pattern, content: String },
    Strip { content: char, start: usize, stop: usize },
    Metaspace { replacement: char, prepend_scheme: String },
    WordPiece { prefix: String, cleanup: bool },
    Sequence { decoders: Vec<serde_json::Value> },
}

#[derive(Clone, Debug, Deserialize)]
enum Pattern {
    String(String),
    Regex(serde::de::IgnoredAny),
}

/// What a decoder does to each token, and to the text as a whole.
#[derive(Debug, Default)]
struct Plan {
    /// Applied to each token in order.
    steps: Vec<Step>,
    /// Tokens like `<0xE4>` are bytes.
    byte_fallback: bool,
    /// Without any decoder, tokens are separated by spaces.
    joins_with_spaces: bool,
    lead: Option<(char, usize)>,
}

impl Plan {
    fn read(decoder: &serde_json::Value) -> Result<Self, TextError> {
        let mut plan = Self::default();
        if decoder.is_null() {
            plan.joins_with_spaces = true;
            return Ok(plan);
        }
        let unsupported =
            |what: &serde_json::Value| TextError::Unsupported { feature: format!("decoder {what}") };
        let parse = |value: &serde_json::Value| Step::deserialize(value).map_err(|_| unsupported(value));
        let steps = match parse(decoder)? {
            Step::Sequence { decoders } => decoders.iter().map(parse).collect::<Result<_, _>>()?,
            single => vec![single],
        };
        let mut fused = false;
        for step in steps {
            match step {
                Step::Fuse => fused = true,
                Step::ByteFallback => plan.byte_fallback = true,
                Step::Strip { content, start, stop: 0 } if fused => plan.lead = Some((content, start)),
                Step::Sequence { .. } | Step::Replace { pattern: Pattern::Regex(_), .. } => {
                    return Err(unsupported(decoder));
                }
                Step::Strip { .. } | Step::Metaspace { .. } | Step::WordPiece { .. } if fused => {
                    return Err(unsupported(decoder));
                }
                each => plan.steps.push(each),
            }
        }
        Ok(plan)
    }

    /// Whether a token stands for something else at the start of a text.
    fn depends_on_place(&self) -> bool {
        self.joins_with_spaces
            || self.steps.iter().any(|step| matches!(step, Step::Metaspace { .. } | Step::WordPiece { .. }))
    }

    /// The bytes of a token; `first` says that it starts the text.
    fn bytes(&self, token: &str, first: bool) -> Vec<u8> {
        let mut text = token.to_owned();
        for step in &self.steps {
            match step {
                Step::ByteLevel => {
                    let mut bytes = Vec::with_capacity(text.len());
                    push_bytes(&text, &mut bytes);
                    return bytes;
                }
                Step::Replace { pattern: Pattern::String(pattern), content } => {
                    text = text.replace(pattern.as_str(), content);
                }
                Step::Strip { content, start, stop } => {
                    let stripped = strip(&text, *content, *start, *stop).to_owned();
                    text = stripped;
                }
                Step::Metaspace { replacement, prepend_scheme } => {
                    let drops = first && prepend_scheme != "never";
                    text = text.replace(*replacement, if drops { "" } else { " " });
                }
                Step::WordPiece { prefix, cleanup } => text = word_piece(&text, prefix, *cleanup, first),
                _ => {}
            }
        }
        if self.joins_with_spaces && !first {
            text.insert(0, ' ');
        }
        text.into_bytes()
    }
}

fn strip(text: &str, content: char, start: usize, stop: usize) -> &str {
    let mut text = text;
    for _ in 0..start {
        text = text.strip_prefix(content).unwrap_or(text);
    }
    for _ in 0..stop {
        text = text.strip_suffix(content).unwrap_or(text);
    }
    text
}

fn word_piece(token: &str, prefix: &str, cleanup: bool, first: bool) -> String {
    let text = match token.strip_prefix(prefix) {
        _ if first => token.to_owned(),
        Some(rest) => rest.to_owned(),
        None => format!(" {token}"),
    };
    if cleanup { tokenizers::decoders::wordpiece::cleanup(&text) } else { text }
}

fn compile(tokens: &[Option<Token>], plan: &Plan) -> Pieces {
    let mut table = Table::with_capacity(tokens.len());
    let mut first = plan.depends_on_place().then(|| Table::with_capacity(tokens.len()));
    let mut kinds = Vec::with_capacity(tokens.len());
    for token in tokens {
        let (kind, within, starting) = match token {
            None => (TokenKind::Missing, Vec::new(), Vec::new()),
            Some(Token { text, kind }) => match spelled_byte(text).filter(|_| plan.byte_fallback) {
                Some(byte) if *kind == TokenKind::Text => (TokenKind::Byte, vec![byte], vec![byte]),
                Some(byte) => (*kind, vec![byte], vec![byte]),
                None if first.is_none() => (*kind, plan.bytes(text, false), Vec::new()),
                None => (*kind, plan.bytes(text, false), plan.bytes(text, true)),
            },
        };
        kinds.push(kind);
        table.push(&within);
        if let Some(first) = &mut first {
            first.push(&starting);
        }
    }
    Pieces::new(table, kinds).with_first(first).with_lead(plan.lead)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn decoders_that_cannot_be_compiled_are_refused_by_name() {
        for decoder in [
            json!({"type": "CTC", "pad_token": "<pad>", "word_delimiter_token": "|", "cleanup": true}),
            json!({"type": "Replace", "pattern": {"Regex": " +"}, "content": " "}),
            json!({"type": "Sequence", "decoders": [{"type": "Fuse"}, {"type": "WordPiece", "prefix": "##", "cleanup": true}]}),
        ] {
            let error = Plan::read(&decoder).unwrap_err().to_string();
            assert!(error.contains("decoder"), "{error}");
        }
    }

    #[test]
    fn steps_apply_to_each_token() {
        let decoder = json!({"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "_"}, "content": " "},
            {"type": "Strip", "content": "x", "start": 2, "stop": 1},
            {"type": "ByteFallback"},
            {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0},
        ]});
        let plan = Plan::read(&decoder).unwrap();
        assert!(plan.byte_fallback && !plan.depends_on_place());
        assert_eq!(plan.lead, Some((' ', 1)));
        assert_eq!(plan.bytes("xx_axx", false), b" ax");
        let none = Plan::read(&json!(null)).unwrap();
        assert_eq!((none.bytes("a", true), none.bytes("a", false)), (b"a".to_vec(), b" a".to_vec()));
    }
}

//! Everything a model needs to speak text, behind one type.

use crate::chat::{ChatInput, ChatTemplate, ContentFormat};
use crate::decoder::{IncrementalDecoder, StreamStart};
use crate::error::TextError;
use crate::source::TextSource;
use crate::tokenizer::{TokenKind, Tokenizer};

/// A text may have at most so many bytes for each token of the longest piece before it is refused unread. Composing
/// characters can shrink a text to a third; nothing shrinks it more.
const SHRINKING: usize = 4;

/// Tokenizer and chat template of a model. Immutable; shared between threads behind an `Arc`.
pub struct TextModel {
    tokenizer: Tokenizer,
    template: Option<ChatTemplate>,
}

impl TextModel {
    /// Loads and compiles everything.
    ///
    /// # Errors
    /// When a file cannot be read, the vocabulary is unsound, or the template does not parse.
    pub fn new(source: TextSource) -> Result<Self, TextError> {
        let TextSource { tokenizer, chat_template, bos_token, eos_token } = source;
        let template =
            chat_template.map(|text| ChatTemplate::new(&text, bos_token, eos_token)).transpose()?;
        Ok(Self { tokenizer: Tokenizer::new(&tokenizer)?, template })
    }

    /// What an operator should know about how the files were read, for the log at start-up.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        self.tokenizer.notes()
    }

    /// The tokens of a text. Control tokens that are spelled out in it become what they spell; with `add_special`, the
    /// beginning and end of sequence are added as the model wants them.
    ///
    /// Time and memory grow with the length of the text (`n log n`), which is not limited here: see
    /// [`TextModel::encode_within`].
    ///
    /// # Errors
    /// When the tokenizer cannot express the text.
    pub fn encode(&self, text: &str, add_special: bool) -> Result<Vec<u32>, TextError> {
        self.tokenizer.encode(text, add_special)
    }

    /// As [`TextModel::encode`], for text that must not have more than `limit` tokens. A text that is far too long is
    /// refused without being read.
    ///
    /// # Errors
    /// [`TextError::TooLong`] and [`TextError::TooManyTokens`], and those of [`TextModel::encode`].
    pub fn encode_within(&self, text: &str, add_special: bool, limit: usize) -> Result<Vec<u32>, TextError> {
        let longest = self.tokenizer.pieces().longest().max(1);
        let bytes = text.len();
        if bytes > limit.saturating_add(1).saturating_mul(longest).saturating_mul(SHRINKING) {
            return Err(TextError::TooLong { bytes, limit });
        }
        let ids = self.encode(text, add_special)?;
        if ids.len() > limit {
            return Err(TextError::TooManyTokens { tokens: ids.len(), limit });
        }
        Ok(ids)
    }

    /// The token sequences that a bad word stands for: the word as it stands at a line's start, and behind a space
    /// where that makes other tokens (of the same number; else the first sequence covers it).
    ///
    /// # Errors
    /// Those of [`TextModel::encode`].
    pub fn bad_word_ids(&self, word: &str) -> Result<Vec<Vec<u32>>, TextError> {
        let bare = self.encode(word.trim_start(), false)?;
        let spaced = self.encode(&format!(" {}", word.trim_start()), false)?;
        let adds_another = bare.first() != spaced.first() && bare.len() == spaced.len();
        let mut words = vec![bare];
        words.extend(adds_another.then_some(spaced));
        words.retain(|ids| !ids.is_empty());
        Ok(words)
    }

    /// The text of these tokens, with or without control tokens.
    ///
    /// # Errors
    /// When an id stands for no token.
    pub fn decode(&self, ids: &[u32], skip_special: bool) -> Result<String, TextError> {
        let pieces = self.tokenizer.pieces();
        if let Some(&id) = ids.iter().find(|&&id| pieces.kind(id) == TokenKind::Missing) {
            return Err(TextError::UnknownToken { id, vocab: pieces.len() });
        }
        let mut decoder = self.decoder(skip_special, StreamStart::Text);
        let mut text = String::new();
        for &id in ids {
            text.push_str(decoder.push(id));
        }
        text.push_str(decoder.flush());
        Ok(text)
    }

    /// A decoder for tokens that come one by one.
    #[must_use]
    pub fn decoder(&self, skip_special: bool, start: StreamStart) -> IncrementalDecoder {
        IncrementalDecoder::new(self.tokenizer.pieces().clone(), skip_special, start)
    }

    /// The exact bytes that a token stands for within a text; part of a character for many tokens. Empty for an id
    /// without token.
    #[must_use]
    pub fn token_bytes(&self, id: u32) -> Vec<u8> {
        self.tokenizer.pieces().bytes(id).to_vec()
    }

    /// A token as text, with U+FFFD for parts of characters.
    #[must_use]
    pub fn token_text(&self, id: u32) -> Option<String> {
        let pieces = self.tokenizer.pieces();
        let is_known = pieces.kind(id) != TokenKind::Missing;
        is_known.then(|| String::from_utf8_lossy(pieces.bytes(id)).into_owned())
    }

    /// The id of a token by its text, such as `<|im_end|>`.
    #[must_use]
    pub fn token_id(&self, text: &str) -> Option<u32> {
        self.tokenizer.token_id(text)
    }

    /// Whether a token is a control token, left out of text on request.
    #[must_use]
    pub fn is_special(&self, id: u32) -> bool {
        self.tokenizer.pieces().kind(id) == TokenKind::Special
    }

    /// Whether an id stands for a token.
    #[must_use]
    pub fn has_token(&self, id: u32) -> bool {
        self.tokenizer.pieces().kind(id) != TokenKind::Missing
    }

    /// One more than the largest id. May be less than the width of the model's logits.
    #[must_use]
    pub fn vocab_size(&self) -> usize {
        self.tokenizer.pieces().len()
    }

    /// Whether conversations can be rendered.
    #[must_use]
    pub fn has_chat_template(&self) -> bool {
        self.template.is_some()
    }

    /// What the chat template takes as content; [`ContentFormat::Text`] without one.
    #[must_use]
    pub fn content_format(&self) -> ContentFormat {
        self.template.as_ref().map_or(ContentFormat::Text, ChatTemplate::format)
    }

    /// Renders a conversation. Encode the result without adding special tokens: the template has written them.
    ///
    /// # Errors
    /// When there is no template, the template refuses or fails, or the input contradicts itself.
    pub fn render_chat(&self, input: &ChatInput) -> Result<String, TextError> {
        self.template.as_ref().ok_or(TextError::NoTemplate)?.render(input)
    }
}

//! Everything that can go wrong with text, sorted by whose fault it is.

use std::path::PathBuf;

/// Why a tokenizer, a template or a text was refused.
#[derive(Debug, thiserror::Error)]
pub enum TextError {
    /// The tokenizer file cannot be read or is not one.
    #[error("cannot load the tokenizer {path}: {reason}", path = path.display())]
    TokenizerFile {
        /// The file.
        path: PathBuf,
        /// What the reader said.
        reason: String,
    },
    /// The tokenizer needs something that this program does not have.
    #[error("tokenizer feature not supported: {feature}")]
    Unsupported {
        /// What it needs.
        feature: String,
    },
    /// A vocabulary from a checkpoint contradicts itself.
    #[error("unsound vocabulary: {reason}")]
    Vocabulary {
        /// The contradiction.
        reason: String,
    },
    /// The chat template does not parse: the checkpoint's fault.
    #[error("the chat template does not parse, line {line}: {reason}")]
    TemplateSyntax {
        /// Line of the template, from 1.
        line: usize,
        /// What the parser said.
        reason: String,
    },
    /// The model has no chat template.
    #[error("this model has no chat template; use /v1/completions, or give one with --chat-template")]
    NoTemplate,
    /// The template called `raise_exception`: the request does not suit the model.
    #[error("the model's chat template refuses these messages: {message}")]
    TemplateRefused {
        /// The template's own words.
        message: String,
    },
    /// The template failed on this input without meaning to.
    #[error("the chat template failed, line {line}: {reason}")]
    TemplateFailed {
        /// Line of the template, from 1; 0 when unknown.
        line: usize,
        /// What went wrong.
        reason: String,
    },
    /// Rendering took more work or more memory than any sensible conversation does.
    #[error("the chat template did not finish within {fuel} steps; send fewer or shorter messages")]
    TemplateTooExpensive {
        /// The limit.
        fuel: u64,
    },
    /// The chat request contradicts itself.
    #[error("{reason}")]
    ChatInput {
        /// What to change.
        reason: String,
    },
    /// The text is longer than the caller allows.
    #[error("the text has {bytes} bytes and cannot fit into {limit} tokens; shorten it")]
    TooLong {
        /// Length of the text.
        bytes: usize,
        /// Tokens allowed.
        limit: usize,
    },
    /// The text has more tokens than the caller allows.
    #[error("the text has {tokens} tokens, {limit} are allowed; shorten it")]
    TooManyTokens {
        /// Tokens of the text.
        tokens: usize,
        /// Tokens allowed.
        limit: usize,
    },
    /// The text could not be encoded.
    #[error("the text cannot be tokenised: {reason}")]
    Encode {
        /// What the tokenizer said.
        reason: String,
    },
    /// An id that stands for no token.
    #[error("token id {id} is not in the vocabulary of {vocab} tokens")]
    UnknownToken {
        /// The id.
        id: u32,
        /// One more than the largest id.
        vocab: usize,
    },
}

//! From a checked request to token ids and sampling parameters. Runs on the front threads.

use std::sync::Arc;

use updraft_core::sampling::SamplingParams;
use updraft_protocol::chat::Conversation;
use updraft_protocol::generation::{GenerationSpec, Truncation, TruncationSide};
use updraft_protocol::{PromptInput, RequestError};
use updraft_text::{ChatInput, TextError, TextModel};

use super::errors::text_error;
use super::state::AppState;

/// One prompt, ready to be continued.
#[derive(Clone, Debug)]
pub(super) struct Prompt {
    /// At least one token, and room for at least one more.
    pub(super) tokens: Arc<[u32]>,
    /// Its text, when the answer shows it.
    pub(super) text: Option<String>,
}

/// Cuts and encodes prompts for one request.
pub(super) struct Encoder<'a> {
    pub(super) text: &'a TextModel,
    pub(super) max_model_len: u32,
    /// Tokens the model knows; a tokenizer may know more.
    pub(super) vocab: u32,
    pub(super) truncate: Option<Truncation>,
    /// Whether the answer shows the prompt.
    pub(super) keep_text: bool,
    pub(super) skip_special: bool,
    /// The field that errors name.
    pub(super) field: &'static str,
}

/// The text of a conversation as the model sees it.
pub(super) fn render(text: &TextModel, conversation: &Conversation) -> Result<String, RequestError> {
    let input = ChatInput {
        messages: &conversation.messages,
        tools: conversation.tools.as_ref(),
        documents: conversation.documents.as_ref(),
        add_generation_prompt: conversation.add_generation_prompt,
        continue_final_message: conversation.continue_final_message,
        kwargs: Some(&conversation.kwargs),
    };
    text.render_chat(&input).map_err(|error| {
        if matches!(error, TextError::TemplateSyntax { .. }) {
            tracing::error!(%error, "the chat template cannot be used");
        }
        text_error("messages", &error)
    })
}

impl Encoder<'_> {
    /// The prompt of a conversation.
    pub(super) fn conversation(&self, conversation: &Conversation) -> Result<Prompt, RequestError> {
        let rendered = render(self.text, conversation)?;
        self.string(rendered, conversation.add_special_tokens)
    }

    /// The prompt of a completion.
    pub(super) fn input(&self, input: PromptInput, add_special: bool) -> Result<Prompt, RequestError> {
        match input {
            PromptInput::Text(text) => self.string(text, add_special),
            PromptInput::Tokens(tokens) => self.finish(tokens, None),
        }
    }

    fn string(&self, text: String, add_special: bool) -> Result<Prompt, RequestError> {
        let encoded = match self.truncate {
            Some(_) => self.text.encode(&text, add_special),
            None => self.text.encode_within(&text, add_special, self.longest()),
        };
        let tokens = encoded.map_err(|error| match error {
            TextError::TooManyTokens { tokens, .. } => {
                RequestError::prompt_too_long(tokens, self.max_model_len)
            }
            other => text_error(self.field, &other),
        })?;
        self.finish(tokens, self.keep_text.then_some(text))
    }

    /// Tokens a prompt can have with room for one more.
    fn longest(&self) -> usize {
        self.max_model_len.saturating_sub(1) as usize
    }

    fn finish(&self, tokens: Vec<u32>, text: Option<String>) -> Result<Prompt, RequestError> {
        let whole = tokens.len();
        let tokens = self.cut(tokens);
        if tokens.is_empty() {
            let message = format!("{} has no tokens; send at least one", self.field);
            return Err(RequestError::invalid(self.field, message));
        }
        if tokens.len() > self.longest() {
            return Err(RequestError::prompt_too_long(tokens.len(), self.max_model_len));
        }
        if let Some(token) = tokens.iter().find(|token| **token >= self.vocab) {
            let message = format!(
                "{} contains text that this tokenizer turns into token {token}, which the model does not have \
                 (its vocabulary ends at {}); leave that text out",
                self.field,
                self.vocab - 1
            );
            return Err(RequestError::invalid(self.field, message));
        }
        // What was cut off is not part of what the model sees.
        let text = text.filter(|_| tokens.len() == whole);
        let text = text.or_else(|| self.keep_text.then(|| decode(self.text, &tokens, self.skip_special)));
        Ok(Prompt { tokens: tokens.into(), text })
    }

    fn cut(&self, mut tokens: Vec<u32>) -> Vec<u32> {
        let Some(truncate) = self.truncate else {
            return tokens;
        };
        let kept = truncate.tokens.map_or(self.longest(), |kept| kept as usize);
        match truncate.side {
            TruncationSide::Right => tokens.truncate(kept),
            TruncationSide::Left => {
                let cut = tokens.len().saturating_sub(kept);
                tokens.drain(..cut);
            }
        }
        tokens
    }
}

/// Text of tokens; ids without text give none.
pub(super) fn decode(text: &TextModel, tokens: &[u32], skip_special: bool) -> String {
    let mut decoder = text.decoder(skip_special, updraft_text::StreamStart::Text);
    let mut decoded = String::new();
    for token in tokens {
        decoded.push_str(decoder.push(*token));
    }
    decoded.push_str(decoder.flush());
    decoded
}

/// Sampling parameters for every prompt of a request; the room and the seed of each sequence come later.
pub(super) fn sampling(
    state: &AppState,
    spec: &GenerationSpec,
    prompt_logprobs: Option<u32>,
) -> Result<SamplingParams, RequestError> {
    let wanted = &spec.sampling;
    let bad_words = bad_words(state, &wanted.bad_words)?;
    check_something_is_left(state, spec, &bad_words)?;
    Ok(SamplingParams {
        temperature: wanted.temperature,
        top_p: wanted.top_p,
        top_k: wanted.top_k,
        min_p: wanted.min_p,
        repetition_penalty: wanted.repetition_penalty,
        frequency_penalty: wanted.frequency_penalty,
        presence_penalty: wanted.presence_penalty,
        logit_bias: wanted.logit_bias.clone(),
        allowed_token_ids: wanted.allowed_token_ids.clone(),
        bad_words,
        eos_token_ids: state.eos_token_ids.clone(),
        stop_token_ids: spec.stop.token_ids.clone(),
        ignore_eos: spec.stop.ignore_eos,
        min_tokens: spec.stop.min_tokens,
        max_tokens: spec.stop.max_tokens.unwrap_or(u32::MAX),
        seed: 0,
        logprobs: spec.report.logprobs,
        prompt_logprobs,
    })
}

fn bad_words(state: &AppState, words: &[String]) -> Result<Vec<Vec<u32>>, RequestError> {
    let mut sequences = Vec::new();
    for word in words {
        sequences.extend(state.text.bad_word_ids(word).map_err(|error| text_error("bad_words", &error))?);
    }
    // What the model cannot produce needs no rule.
    sequences.retain(|sequence| sequence.iter().all(|token| *token < state.limits.vocab));
    if sequences.len() > state.limits.max_bad_words {
        let (have, max) = (sequences.len(), state.limits.max_bad_words);
        let message = format!("bad_words are {have} token sequences, at most {max} work; send fewer words");
        return Err(RequestError::invalid("bad_words", message));
    }
    Ok(sequences)
}

/// Rules that can leave no token at all would fail in the middle of the answer; they are refused here.
fn check_something_is_left(
    state: &AppState,
    spec: &GenerationSpec,
    bad_words: &[Vec<u32>],
) -> Result<(), RequestError> {
    let Some(allowed) = &spec.sampling.allowed_token_ids else {
        return Ok(());
    };
    let ends = |id: &u32| {
        let is_eos = !spec.stop.ignore_eos && state.eos_token_ids.contains(id);
        spec.stop.min_tokens > 0 && (is_eos || spec.stop.token_ids.contains(id))
    };
    let is_bad = |id: &u32| bad_words.iter().any(|word| word.last() == Some(id));
    if allowed.iter().any(|id| !ends(id) && !is_bad(id)) {
        return Ok(());
    }
    Err(RequestError::invalid(
        "allowed_token_ids",
        "allowed_token_ids, bad_words and min_tokens together can leave no token to choose; allow more",
    ))
}

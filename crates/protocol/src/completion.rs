//! `POST /v1/completions`: the request, and what is left of it once it is checked.

pub mod response;
#[cfg(test)]
mod tests;

use serde_json::Value;

use crate::error::RequestError;
use crate::fields::{Fields, integer, request_fields};
use crate::generation::check::token_id;
use crate::generation::{GenerationSpec, SamplingFields, Wishes};
use crate::json::describe;
use crate::limits::{RequestLimits, SamplingDefaults};
use crate::{JsonObject, unsupported};

/// Tokens of an answer when the request does not say.
const MAX_TOKENS_DEFAULT: i64 = 16;

request_fields! {
    /// Fields of a completion request beyond those that all generating requests share.
    CompletionFields {
        /// A string, a list of strings, a list of token ids, or a list of such lists.
        #[schema(value_type = Object)]
        prompt: Value,
        /// Puts the prompt before the answer.
        echo: bool,
        /// Reports log-probabilities with this many alternatives.
        logprobs: i64,
        /// Lets the tokenizer add its special tokens (the default).
        add_special_tokens: bool,
        /// Only the value of `n` works.
        best_of: i64,
    }
}

/// A completion request as the client sent it.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, utoipa::ToSchema)]
pub struct CompletionRequest {
    /// The prompt and how to read it.
    #[serde(flatten)]
    pub completion: CompletionFields,
    /// How to answer.
    #[serde(flatten)]
    pub sampling: SamplingFields,
}

/// One prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PromptInput {
    /// Text, to be tokenised.
    Text(String),
    /// Existing token ids, at least one.
    Tokens(Vec<u32>),
}

/// A completion request that can be served.
#[derive(Clone, Debug, PartialEq)]
pub struct CompletionCall {
    /// At least one.
    pub prompts: Vec<PromptInput>,
    /// Whether the tokenizer adds its special tokens.
    pub add_special_tokens: bool,
    /// Whether the prompt is put before the answer.
    pub echo: bool,
    /// Whether only the prompt is wanted: the one token that is computed is not shown.
    pub prompt_only: bool,
    /// How to answer.
    pub generation: GenerationSpec,
}

impl CompletionRequest {
    /// Reads the fields; their types hold afterwards, their values are not checked yet.
    pub fn parse(mut body: JsonObject) -> Result<Self, RequestError> {
        unsupported::refuse(&mut body)?;
        let mut fields = Fields::new(body);
        let request = Self {
            sampling: SamplingFields::read(&mut fields)?,
            completion: CompletionFields::read(&mut fields)?,
        };
        fields.finish()?;
        Ok(request)
    }

    /// The model asked for.
    #[must_use]
    pub fn model(&self) -> Option<&str> {
        self.sampling.model.as_deref()
    }

    /// Checks every value and fills in what the request leaves open.
    pub fn check(
        self,
        limits: &RequestLimits,
        defaults: &SamplingDefaults,
    ) -> Result<CompletionCall, RequestError> {
        let echo = self.completion.echo.unwrap_or(false);
        let wishes = Wishes {
            max_tokens: Some(self.sampling.max_tokens.unwrap_or(MAX_TOKENS_DEFAULT)),
            max_tokens_field: "max_tokens",
            max_tokens_min: i64::from(!echo),
            logprobs: self.completion.logprobs,
            logprobs_field: "logprobs",
        };
        let mut generation = self.sampling.check(&wishes, limits, defaults)?;
        check_best_of(self.completion.best_of, generation.choices)?;
        let prompt_only = generation.stop.max_tokens == Some(0);
        if prompt_only {
            generation.stop.max_tokens = Some(1);
        }
        let prompts = prompts(self.completion.prompt, limits)?;
        let sequences = prompts.len() as u64 * u64::from(generation.choices);
        if sequences > u64::from(limits.max_sequences) {
            let (count, max) = (prompts.len(), limits.max_sequences);
            let message = format!(
                "{count} prompts with n {} are {sequences} answers, at most {max} work in one request",
                generation.choices
            );
            return Err(RequestError::invalid("n", message));
        }
        Ok(CompletionCall {
            prompts,
            add_special_tokens: self.completion.add_special_tokens.unwrap_or(true),
            echo,
            prompt_only,
            generation,
        })
    }
}

fn check_best_of(best_of: Option<i64>, choices: u32) -> Result<(), RequestError> {
    match best_of {
        Some(count) if count != i64::from(choices) => {
            Err(RequestError::unsupported("best_of", "answers are not ranked; use n and choose among them"))
        }
        _ => Ok(()),
    }
}

fn prompts(prompt: Option<Value>, limits: &RequestLimits) -> Result<Vec<PromptInput>, RequestError> {
    let refused = |message: &str| Err(RequestError::invalid("prompt", message));
    let items = match prompt {
        None => return refused("prompt is missing; send a string, a list of strings, or token ids"),
        Some(Value::String(text)) => return Ok(vec![PromptInput::Text(text)]),
        Some(Value::Array(items)) if items.is_empty() => return refused("prompt is an empty list"),
        Some(Value::Array(items)) if items.iter().all(Value::is_number) => {
            return Ok(vec![tokens(&items, limits)?]);
        }
        Some(Value::Array(items)) => items,
        Some(other) => {
            let found = describe(&other);
            return refused(&format!(
                "prompt must be a string, a list of strings, or token ids, not {found}"
            ));
        }
    };
    if items.len() > limits.max_prompts as usize {
        let (have, max) = (items.len(), limits.max_prompts);
        return refused(&format!("prompt has {have} entries, at most {max} work in one request"));
    }
    items
        .into_iter()
        .enumerate()
        .map(|(index, item)| match item {
            Value::String(text) => Ok(PromptInput::Text(text)),
            Value::Array(ids) => tokens(&ids, limits),
            other => {
                let found = describe(&other);
                let message = format!("prompt[{index}] must be a string or a list of token ids, not {found}");
                Err(RequestError::invalid("prompt", message))
            }
        })
        .collect()
}

fn tokens(ids: &[Value], limits: &RequestLimits) -> Result<PromptInput, RequestError> {
    if ids.is_empty() {
        return Err(RequestError::invalid("prompt", "prompt contains an empty list of token ids"));
    }
    let checked = ids.iter().map(|id| match integer(id) {
        Some(id) => token_id("prompt", id, limits),
        None => Err(RequestError::invalid("prompt", format!("prompt: {} is not a token id", describe(id)))),
    });
    checked.collect::<Result<_, _>>().map(PromptInput::Tokens)
}

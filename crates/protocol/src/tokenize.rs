//! `POST /tokenize` and `POST /detokenize`.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::chat::{ChatFields, Conversation};
use crate::error::RequestError;
use crate::fields::{Fields, request_fields};
use crate::generation::check::token_id;
use crate::limits::RequestLimits;
use crate::{JsonObject, unsupported};

request_fields! {
    /// Text or a conversation to be turned into tokens: exactly one of `prompt` and `messages`.
    TokenizeRequest {
        /// Name of the model.
        model: String,
        /// Text.
        prompt: String,
        /// A conversation, rendered with the model's template.
        #[schema(value_type = Option<Vec<Object>>)]
        messages: Vec<Value>,
        /// Functions the template shows to the model.
        #[schema(value_type = Option<Vec<Object>>)]
        tools: Vec<Value>,
        /// Documents the template shows to the model.
        #[schema(value_type = Option<Vec<Object>>)]
        documents: Vec<Value>,
        /// Opens the assistant's turn (the default).
        add_generation_prompt: bool,
        /// Continues the last message instead.
        continue_final_message: bool,
        /// Lets the tokenizer add its special tokens: on for `prompt`, off for `messages`.
        add_special_tokens: bool,
        /// More variables for the template.
        #[schema(value_type = Option<Object>)]
        chat_template_kwargs: JsonObject,
        /// Adds the tokens' texts to the answer.
        return_token_strs: bool,
    }
}

request_fields! {
    /// Tokens to be turned into text.
    DetokenizeRequest {
        /// Name of the model.
        model: String,
        /// The tokens.
        #[schema(value_type = Vec<i64>)]
        tokens: Vec<i64>,
    }
}

/// What is to be turned into tokens.
#[derive(Clone, Debug, PartialEq)]
pub enum TokenizeInput {
    /// Text.
    Text {
        /// The text.
        text: String,
        /// Whether the tokenizer adds its special tokens.
        add_special_tokens: bool,
    },
    /// A conversation.
    Chat(Box<Conversation>),
}

impl TokenizeRequest {
    /// Reads the fields.
    pub fn parse(mut body: JsonObject) -> Result<Self, RequestError> {
        unsupported::refuse(&mut body)?;
        let mut fields = Fields::new(body);
        let request = Self::read(&mut fields)?;
        fields.finish()?;
        Ok(request)
    }

    /// What is to be turned into tokens.
    pub fn check(self) -> Result<TokenizeInput, RequestError> {
        match (self.prompt, self.messages) {
            (Some(_), Some(_)) => Err(RequestError::invalid(
                "prompt",
                "prompt and messages exclude each other; send one of them",
            )),
            (None, None) => {
                Err(RequestError::invalid("prompt", "prompt and messages are missing; send one of them"))
            }
            (Some(text), None) => {
                Ok(TokenizeInput::Text { text, add_special_tokens: self.add_special_tokens.unwrap_or(true) })
            }
            (None, messages) => ChatFields {
                messages,
                tools: self.tools,
                documents: self.documents,
                add_generation_prompt: self.add_generation_prompt,
                continue_final_message: self.continue_final_message,
                add_special_tokens: self.add_special_tokens,
                chat_template_kwargs: self.chat_template_kwargs,
                ..ChatFields::default()
            }
            .conversation()
            .map(|conversation| TokenizeInput::Chat(Box::new(conversation))),
        }
    }
}

impl DetokenizeRequest {
    /// Reads the fields.
    pub fn parse(body: JsonObject) -> Result<Self, RequestError> {
        let mut fields = Fields::new(body);
        let request = Self::read(&mut fields)?;
        fields.finish()?;
        Ok(request)
    }

    /// The tokens, all of which exist.
    pub fn check(&self, limits: &RequestLimits) -> Result<Vec<u32>, RequestError> {
        let Some(tokens) = &self.tokens else {
            return Err(RequestError::invalid("tokens", "tokens is missing; send a list of token ids"));
        };
        tokens.iter().map(|id| token_id("tokens", *id, limits)).collect()
    }
}

/// Tokens of a text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TokenizeResponse {
    /// How many.
    pub count: u32,
    /// Prompt and answer together, in tokens.
    pub max_model_len: u32,
    /// The tokens.
    pub tokens: Vec<u32>,
    /// Their texts, when asked for.
    pub token_strs: Option<Vec<String>>,
}

/// Text of tokens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DetokenizeResponse {
    /// The text.
    pub prompt: String,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parse(value: Value) -> Result<TokenizeInput, RequestError> {
        let Value::Object(body) = value else { panic!("not an object") };
        TokenizeRequest::parse(body)?.check()
    }

    #[test]
    fn text_or_messages_but_not_both() {
        let text = TokenizeInput::Text { text: "a".into(), add_special_tokens: true };
        assert_eq!(parse(json!({"prompt": "a"})), Ok(text));
        let messages = json!([{"role": "user", "content": "a"}]);
        assert!(matches!(parse(json!({"messages": messages})), Ok(TokenizeInput::Chat(_))));
        assert!(parse(json!({"prompt": "a", "messages": messages})).is_err());
        assert!(parse(json!({})).is_err());
        assert_eq!(
            parse(json!({"promt": "a"})).unwrap_err().message,
            "unknown field `promt`: did you mean `prompt`?"
        );
    }

    #[test]
    fn only_existing_tokens_have_text() {
        let limits = RequestLimits::new(10, 100);
        let check = |tokens: Value| {
            let Value::Object(body) = json!({"tokens": tokens}) else { panic!("not an object") };
            DetokenizeRequest::parse(body)?.check(&limits)
        };
        assert_eq!(check(json!([9, 0])), Ok(vec![9, 0]));
        assert!(check(json!([10])).unwrap_err().message.contains("no token 10"));
        assert!(check(json!([-1])).is_err());
        assert!(check(json!(null)).is_err());
    }
}

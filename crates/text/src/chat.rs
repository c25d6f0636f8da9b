//! Chat templates: a conversation to the text a model was trained on.
//!
//! Rendering is that of the transformers library: the same whitespace rules, Python's methods on strings and maps,
//! the same extra functions. A template is compiled once. It is code of the checkpoint and not trusted to end: a
//! budget of steps bounds both its time and its memory. Not bounded is how deep a template nests lists on purpose,
//! which can exhaust the stack; so a template must come from the operator, never from a request.

mod environment;
mod json;
mod parts;
#[cfg(test)]
mod tests;

use minijinja::value::Value;
use minijinja::{Environment, Error, ErrorKind};
use serde_json::Map;

use crate::error::TextError;
use environment::{FUEL, Raised, TEMPLATE, environment};
pub use parts::ContentFormat;
use parts::{content_text, to_value, with_flat_content};

/// A conversation to render.
#[derive(Clone, Copy, Debug, Default)]
pub struct ChatInput<'a> {
    /// Messages as the OpenAI API has them. Arguments of tool calls should be objects, not JSON text: that is what
    /// templates expect.
    pub messages: &'a [serde_json::Value],
    /// List of tool descriptions.
    pub tools: Option<&'a serde_json::Value>,
    /// List of documents to answer from.
    pub documents: Option<&'a serde_json::Value>,
    /// End with the beginning of an assistant's turn.
    pub add_generation_prompt: bool,
    /// End right after the last message's content, so that the model goes on with it.
    pub continue_final_message: bool,
    /// Further variables of the template.
    pub kwargs: Option<&'a Map<String, serde_json::Value>>,
}

/// Variables that a request cannot set through `kwargs`.
const RESERVED: [&str; 7] = [
    "messages",
    "tools",
    "documents",
    "add_generation_prompt",
    "continue_final_message",
    "chat_template",
    "tokenize",
];

/// Put behind the content that is to be continued, to find its end in the rendered text. The space tells whether the
/// template trims.
const CONTINUE_TAG: &str = "CONTINUE_FINAL_MESSAGE_TAG ";

/// A compiled template.
#[derive(Debug)]
pub(crate) struct ChatTemplate {
    environment: Environment<'static>,
    special_tokens: Vec<(&'static str, String)>,
    format: ContentFormat,
}

impl ChatTemplate {
    pub(crate) fn new(source: &str, bos: Option<String>, eos: Option<String>) -> Result<Self, TextError> {
        let environment = environment(source).map_err(|error| TextError::TemplateSyntax {
            line: error.line().unwrap_or(0),
            reason: describe(&error),
        })?;
        let special_tokens = [("bos_token", bos), ("eos_token", eos)];
        let special_tokens =
            special_tokens.into_iter().filter_map(|(name, token)| Some((name, token?))).collect();
        let mut template = Self { environment, special_tokens, format: ContentFormat::Parts };
        template.format =
            parts::detect(|messages| template.run(&ChatInput { messages, ..ChatInput::default() }));
        Ok(template)
    }

    pub(crate) fn format(&self) -> ContentFormat {
        self.format
    }

    pub(crate) fn render(&self, input: &ChatInput) -> Result<String, TextError> {
        if input.add_generation_prompt && input.continue_final_message {
            let reason =
                "add_generation_prompt and continue_final_message exclude each other; set one to false";
            return Err(TextError::ChatInput { reason: reason.to_owned() });
        }
        if let Some(name) =
            input.kwargs.and_then(|kwargs| kwargs.keys().find(|key| RESERVED.contains(&key.as_str())))
        {
            let reason = format!("chat_template_kwargs cannot set {name:?}; use the request's own field");
            return Err(TextError::ChatInput { reason });
        }
        let messages = with_flat_content(input.messages, self.format)?;
        if !input.continue_final_message {
            return self.run(&ChatInput { messages: &messages, ..*input });
        }
        let mut messages = messages.into_owned();
        let content = messages.last_mut().and_then(content_text).ok_or_else(|| TextError::ChatInput {
            reason: "continue_final_message needs a last message with text to continue".to_owned(),
        })?;
        content.push_str(CONTINUE_TAG);
        let rendered = self.run(&ChatInput { messages: &messages, ..*input })?;
        cut_at_tag(&rendered)
    }

    fn run(&self, input: &ChatInput) -> Result<String, TextError> {
        let mut context: Vec<(&str, Value)> = Vec::new();
        context.extend(self.special_tokens.iter().map(|(name, token)| (*name, Value::from(token.as_str()))));
        for (name, value) in input.kwargs.into_iter().flatten() {
            context.push((name, to_value(value)?));
        }
        let messages = input.messages.iter().map(to_value).collect::<Result<Vec<Value>, _>>()?;
        context.push(("messages", Value::from(messages)));
        for (name, list) in [("tools", input.tools), ("documents", input.documents)] {
            context.push((name, list.map_or(Ok(Value::from(())), to_value)?));
        }
        context.push(("add_generation_prompt", Value::from(input.add_generation_prompt)));
        let template = self.environment.get_template(TEMPLATE).map_err(|error| failure(&error))?;
        template.render(Value::from_pairs(context)).map_err(|error| failure(&error))
    }
}

/// The rendered text up to the end of the last message's content.
fn cut_at_tag(rendered: &str) -> Result<String, TextError> {
    let Some((before, after)) = rendered.rsplit_once(CONTINUE_TAG.trim_end()) else {
        let reason = "the chat template leaves out or changes the last message, so it cannot be continued";
        return Err(TextError::ChatInput { reason: reason.to_owned() });
    };
    // Where the template trims the content, it would have trimmed what is before the tag too.
    let keeps_spaces = after.starts_with(' ');
    Ok(if keeps_spaces { before } else { before.trim_end() }.to_owned())
}

/// Sorts what rendering can fail with by whose fault it is.
fn failure(error: &Error) -> TextError {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(current) = cause {
        if let Some(Raised(message)) = current.downcast_ref::<Raised>() {
            return TextError::TemplateRefused { message: message.clone() };
        }
        if current.downcast_ref::<Error>().is_some_and(|error| error.kind() == ErrorKind::OutOfFuel) {
            return TextError::TemplateTooExpensive { fuel: FUEL };
        }
        cause = current.source();
    }
    TextError::TemplateFailed { line: error.line().unwrap_or(0), reason: describe(error) }
}

fn describe(error: &Error) -> String {
    error.detail().map_or_else(|| error.kind().to_string(), str::to_owned)
}

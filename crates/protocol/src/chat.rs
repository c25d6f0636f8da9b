//! `POST /v1/chat/completions`: the request, and what is left of it once it is checked.

pub mod messages;
pub mod response;
#[cfg(test)]
mod tests;

use serde_json::Value;

use crate::error::RequestError;
use crate::fields::{Fields, request_fields};
use crate::generation::{GenerationSpec, SamplingFields, Wishes};
use crate::json::describe;
use crate::limits::{RequestLimits, SamplingDefaults};
use crate::{JsonObject, unsupported};

const REASONING_EFFORTS: [&str; 7] = ["none", "minimal", "low", "medium", "high", "xhigh", "max"];

request_fields! {
    /// Fields of a chat request beyond those that all generating requests share.
    ChatFields {
        /// The conversation so far; at least one message.
        #[schema(value_type = Vec<Object>)]
        messages: Vec<Value>,
        /// Tokens of the answer at most; wins over `max_tokens`.
        max_completion_tokens: i64,
        /// Reports log-probabilities of the answer's tokens.
        logprobs: bool,
        /// Alternatives reported per token; needs `logprobs`.
        top_logprobs: i64,
        /// Functions the template shows to the model.
        #[schema(value_type = Option<Vec<Object>>)]
        tools: Vec<Value>,
        /// `auto` or `none`.
        tool_choice: Value,
        /// Documents the template shows to the model.
        #[schema(value_type = Option<Vec<Object>>)]
        documents: Vec<Value>,
        /// Opens the assistant's turn (the default).
        add_generation_prompt: bool,
        /// Continues the last message instead of opening a turn.
        continue_final_message: bool,
        /// Lets the tokenizer add its special tokens to the rendered template (off by default).
        add_special_tokens: bool,
        /// More variables for the template.
        #[schema(value_type = Option<Object>)]
        chat_template_kwargs: JsonObject,
        /// Given to the template.
        reasoning_effort: String,
        /// Prepending the last message is not supported; only false works.
        echo: bool,
    }
}

/// A chat request as the client sent it.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, utoipa::ToSchema)]
pub struct ChatRequest {
    /// The conversation and how to render it.
    #[serde(flatten)]
    pub chat: ChatFields,
    /// How to answer.
    #[serde(flatten)]
    pub sampling: SamplingFields,
}

/// The part of a chat request that becomes the prompt.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Conversation {
    /// Messages whose content is a string each.
    pub messages: Vec<Value>,
    /// Functions, when the model should see them.
    pub tools: Option<Value>,
    /// Documents for the template.
    pub documents: Option<Value>,
    /// Whether the assistant's turn is opened.
    pub add_generation_prompt: bool,
    /// Whether the last message is continued.
    pub continue_final_message: bool,
    /// Whether the tokenizer adds its special tokens.
    pub add_special_tokens: bool,
    /// More variables for the template.
    pub kwargs: JsonObject,
}

/// A chat request that can be served.
#[derive(Clone, Debug, PartialEq)]
pub struct ChatCall {
    /// Becomes the prompt.
    pub conversation: Conversation,
    /// How to answer.
    pub generation: GenerationSpec,
}

impl ChatRequest {
    /// Reads the fields; their types hold afterwards, their values are not checked yet.
    pub fn parse(mut body: JsonObject) -> Result<Self, RequestError> {
        unsupported::refuse(&mut body)?;
        let mut fields = Fields::new(body);
        let request =
            Self { sampling: SamplingFields::read(&mut fields)?, chat: ChatFields::read(&mut fields)? };
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
    ) -> Result<ChatCall, RequestError> {
        let wishes = Wishes {
            max_tokens: self.chat.max_completion_tokens.or(self.sampling.max_tokens),
            max_tokens_field: match self.chat.max_completion_tokens {
                Some(_) => "max_completion_tokens",
                None => "max_tokens",
            },
            max_tokens_min: 1,
            logprobs: logprobs(&self.chat)?,
            logprobs_field: "top_logprobs",
        };
        let generation = self.sampling.check(&wishes, limits, defaults)?;
        if self.chat.echo == Some(true) {
            return Err(RequestError::unsupported("echo", "it works with /v1/completions only"));
        }
        Ok(ChatCall { conversation: self.chat.conversation()?, generation })
    }
}

impl ChatFields {
    /// Checks what becomes the prompt.
    pub(crate) fn conversation(self) -> Result<Conversation, RequestError> {
        let continue_final_message = self.continue_final_message.unwrap_or(false);
        if continue_final_message && self.add_generation_prompt == Some(true) {
            return Err(RequestError::invalid(
                "continue_final_message",
                "continue_final_message and add_generation_prompt exclude each other; set one of them",
            ));
        }
        let mut kwargs = self.chat_template_kwargs.unwrap_or_default();
        if let Some(effort) = self.reasoning_effort {
            if !REASONING_EFFORTS.contains(&effort.as_str()) {
                let (known, found) = (REASONING_EFFORTS.join(", "), describe(&Value::String(effort)));
                let message = format!("reasoning_effort must be one of {known}, not {found}");
                return Err(RequestError::invalid("reasoning_effort", message));
            }
            kwargs.entry("reasoning_effort").or_insert(Value::String(effort));
        }
        Ok(Conversation {
            tools: tools(self.tools, self.tool_choice.as_ref())?,
            messages: messages::check(self.messages.unwrap_or_default())?,
            documents: self.documents.map(Value::Array),
            add_generation_prompt: !continue_final_message && self.add_generation_prompt.unwrap_or(true),
            continue_final_message,
            add_special_tokens: self.add_special_tokens.unwrap_or(false),
            kwargs,
        })
    }
}

fn logprobs(chat: &ChatFields) -> Result<Option<i64>, RequestError> {
    let alternatives = chat.top_logprobs.unwrap_or(0);
    match chat.logprobs {
        Some(true) => Ok(Some(alternatives)),
        _ if alternatives == 0 => Ok(None),
        _ => {
            Err(RequestError::invalid("top_logprobs", "top_logprobs only works together with logprobs: true"))
        }
    }
}

/// The functions the template gets to see.
fn tools(tools: Option<Vec<Value>>, choice: Option<&Value>) -> Result<Option<Value>, RequestError> {
    let must_call = match choice {
        None => false,
        Some(Value::String(word)) => match word.as_str() {
            "auto" | "none" => false,
            "required" => true,
            _ => return Err(bad_choice(choice)),
        },
        Some(Value::Object(named)) if named.get("type").is_some_and(Value::is_string) => true,
        _ => return Err(bad_choice(choice)),
    };
    let none_wanted = choice.is_some_and(|choice| choice == "none");
    let Some(tools) = tools else {
        return match choice {
            Some(_) if !none_wanted => Err(RequestError::invalid(
                "tool_choice",
                "tool_choice only works together with tools; leave it out or send tools",
            )),
            _ => Ok(None),
        };
    };
    if tools.is_empty() {
        return Err(RequestError::invalid("tools", "tools is an empty list; leave it out"));
    }
    for (index, tool) in tools.iter().enumerate() {
        check_tool(index, tool)?;
    }
    if must_call {
        return Err(RequestError::unsupported(
            "tool_choice",
            "a call cannot be forced yet; use \"auto\" and read the call from the answer's text",
        ));
    }
    Ok((!none_wanted).then_some(Value::Array(tools)))
}

fn bad_choice(choice: Option<&Value>) -> RequestError {
    let found = choice.map_or_else(String::new, |found| format!(", not {}", describe(found)));
    RequestError::invalid("tool_choice", format!("tool_choice must be \"auto\" or \"none\"{found}"))
}

fn check_tool(index: usize, tool: &Value) -> Result<(), RequestError> {
    let field = format!("tools[{index}]");
    let is_function = tool.get("type").is_some_and(|kind| kind == "function");
    let name = tool.get("function").and_then(|function| function.get("name")).and_then(Value::as_str);
    if is_function && name.is_some_and(|name| !name.is_empty()) {
        return Ok(());
    }
    let message =
        format!("{field} must look like {{\"type\": \"function\", \"function\": {{\"name\": ...}}}}");
    Err(RequestError::invalid(field, message))
}

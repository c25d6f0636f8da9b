//! Messages as templates expect them.
//!
//! Templates are written for content that is a string and for tool arguments that are objects; clients also
//! send lists of parts and arguments as JSON text. What goes out of here has one form.

use serde_json::{Value, json};

use crate::JsonObject;
use crate::error::RequestError;
use crate::json::describe;

const ROLES: [&str; 6] = ["system", "developer", "user", "assistant", "tool", "function"];
const MEDIA_PARTS: [&str; 9] = [
    "image_url",
    "input_image",
    "input_audio",
    "audio_url",
    "video_url",
    "file",
    "image_embeds",
    "audio_embeds",
    "image_pil",
];

/// Checks the messages of a request and brings them into one form.
pub fn check(messages: Vec<Value>) -> Result<Vec<Value>, RequestError> {
    if messages.is_empty() {
        return Err(RequestError::invalid("messages", "messages is empty; send at least one message"));
    }
    messages.into_iter().enumerate().map(|(index, message)| one(index, message)).collect()
}

fn one(index: usize, message: Value) -> Result<Value, RequestError> {
    let at = format!("messages[{index}]");
    let Value::Object(mut message) = message else {
        let found = describe(&message);
        return Err(RequestError::invalid(at.clone(), format!("{at} must be an object, not {found}")));
    };
    let role = role(&at, &mut message)?;
    let called = message.get("tool_calls").and_then(Value::as_array).is_some_and(|calls| !calls.is_empty());
    let content = match message.get_mut("content").map(Value::take) {
        Some(Value::String(text)) => text,
        Some(Value::Array(parts)) => join_parts(&at, parts)?,
        // An assistant that only called a function, or said nothing, has an empty turn.
        None | Some(Value::Null) if role == "assistant" || called => String::new(),
        None | Some(Value::Null) => {
            let field = format!("{at}.content");
            let message = format!("{field} is missing; a {role} message needs text");
            return Err(RequestError::invalid(field, message));
        }
        Some(other) => {
            let field = format!("{at}.content");
            let found = describe(&other);
            let message = format!("{field} must be a string or a list of text parts, not {found}");
            return Err(RequestError::invalid(field, message));
        }
    };
    message.insert("content".to_owned(), Value::String(content));
    tool_calls(&at, &mut message)?;
    share_reasoning(&mut message);
    message.retain(|_, value| !value.is_null());
    Ok(Value::Object(message))
}

/// The role; the newer name of the system role is turned into the one that templates know.
fn role(at: &str, message: &mut JsonObject) -> Result<String, RequestError> {
    let field = format!("{at}.role");
    let Some(Value::String(role)) = message.get("role") else {
        let message = format!("{field} must be one of {}", ROLES.join(", "));
        return Err(RequestError::invalid(field, message));
    };
    if !ROLES.contains(&role.as_str()) {
        let found = describe(&Value::String(role.clone()));
        let message = format!("{field} must be one of {}, not {found}", ROLES.join(", "));
        return Err(RequestError::invalid(field, message));
    }
    let role = if role == "developer" { "system".to_owned() } else { role.clone() };
    message.insert("role".to_owned(), Value::String(role.clone()));
    Ok(role)
}

fn join_parts(at: &str, parts: Vec<Value>) -> Result<String, RequestError> {
    let mut texts = Vec::with_capacity(parts.len());
    for (index, part) in parts.into_iter().enumerate() {
        let field = format!("{at}.content[{index}]");
        match part {
            Value::String(text) => texts.push(text),
            Value::Object(mut part) => {
                let kind = part.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
                let key = match kind.as_str() {
                    "text" | "input_text" | "output_text" => "text",
                    "refusal" => "refusal",
                    _ => return Err(bad_part(&field, &kind)),
                };
                let Some(Value::String(text)) = part.get_mut(key).map(Value::take) else {
                    let field = format!("{field}.{key}");
                    return Err(RequestError::invalid(field.clone(), format!("{field} must be a string")));
                };
                texts.push(text);
            }
            other => {
                let found = describe(&other);
                let message = format!("{field} must be an object with a type, not {found}");
                return Err(RequestError::invalid(field, message));
            }
        }
    }
    Ok(texts.join("\n"))
}

fn bad_part(field: &str, kind: &str) -> RequestError {
    let message = if MEDIA_PARTS.contains(&kind) {
        format!("{field} is of type {kind}, but this model reads text only; send parts of type \"text\"")
    } else {
        let found = describe(&Value::String(kind.to_owned()));
        format!("{field}.type must be \"text\", not {found}")
    };
    RequestError::invalid(field, message)
}

/// Turns the arguments of earlier calls from JSON text into objects, which is what templates print.
fn tool_calls(at: &str, message: &mut JsonObject) -> Result<(), RequestError> {
    let Some(calls) = message.get_mut("tool_calls") else {
        return Ok(());
    };
    let field = format!("{at}.tool_calls");
    let calls = match calls {
        Value::Null => return Ok(()),
        Value::Array(calls) => calls,
        other => {
            let found = describe(other);
            return Err(RequestError::invalid(field.clone(), format!("{field} must be a list, not {found}")));
        }
    };
    for (index, call) in calls.iter_mut().enumerate() {
        let field = format!("{field}[{index}].function");
        let Some(Value::Object(function)) = call.get_mut("function") else {
            return Err(RequestError::invalid(field.clone(), format!("{field} must be an object")));
        };
        if !function.get("name").is_some_and(Value::is_string) {
            return Err(RequestError::invalid(field.clone(), format!("{field}.name must be a string")));
        }
        let arguments = match function.get("arguments") {
            None | Some(Value::Null) => json!({}),
            Some(Value::String(text)) if text.trim().is_empty() => json!({}),
            Some(Value::String(text)) => parse_arguments(&field, text)?,
            Some(Value::Object(_)) => continue,
            Some(other) => {
                let message = format!("{field}.arguments must be JSON text, not {}", describe(other));
                return Err(RequestError::invalid(field, message));
            }
        };
        function.insert("arguments".to_owned(), arguments);
    }
    Ok(())
}

fn parse_arguments(field: &str, text: &str) -> Result<Value, RequestError> {
    crate::json::parse_object(text.as_bytes()).map(Value::Object).map_err(|error| {
        RequestError::invalid(
            field,
            format!("{field}.arguments must be a JSON object as text: {}", error.message),
        )
    })
}

/// Earlier thoughts have two names in use; templates read either.
fn share_reasoning(message: &mut JsonObject) {
    const NAMES: [&str; 2] = ["reasoning", "reasoning_content"];
    let known = NAMES.iter().find_map(|name| message.get(*name).filter(|value| value.is_string()).cloned());
    if let Some(reasoning) = known {
        for name in NAMES {
            message.entry(name).or_insert_with(|| reasoning.clone());
        }
    }
}

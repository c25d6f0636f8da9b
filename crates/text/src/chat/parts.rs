//! Message content: as one text or as a list of parts, whichever the template understands.

use std::borrow::Cow;

use minijinja::value::Value;
use serde_json::Value as Json;

use crate::error::TextError;

/// Deeper values than this are refused.
const DEPTH: usize = 200;

/// What a template takes as a message's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentFormat {
    /// Text only. Lists of text parts are joined with line feeds before rendering; other parts are refused.
    Text,
    /// Text or a list of parts, which the template goes through itself.
    Parts,
}

/// Finds out which by rendering a list with one part: a template that goes through it prints the part's text and no
/// trace of the list.
pub(super) fn detect(render: impl Fn(&[Json]) -> Result<String, TextError>) -> ContentFormat {
    const PROBE: &str = "c0ntent-pr0be";
    let message = serde_json::json!({"role": "user", "content": [{"type": "text", "text": PROBE}]});
    match render(&[message]) {
        Ok(text) if text.contains(PROBE) && !text.contains("'type'") && !text.contains("\"type\"") => {
            ContentFormat::Parts
        }
        _ => ContentFormat::Text,
    }
}

/// The messages with content that the template can take.
pub(super) fn with_flat_content(
    messages: &[Json],
    format: ContentFormat,
) -> Result<Cow<'_, [Json]>, TextError> {
    let is_list = |message: &Json| message.get("content").is_some_and(Json::is_array);
    if format == ContentFormat::Parts || !messages.iter().any(is_list) {
        return Ok(Cow::Borrowed(messages));
    }
    let mut flat = messages.to_vec();
    for message in &mut flat {
        if let Some(content) = message.get_mut("content")
            && let Some(parts) = content.as_array()
        {
            let texts = parts.iter().map(part_text).collect::<Result<Vec<&str>, _>>()?;
            *content = Json::String(texts.join("\n"));
        }
    }
    Ok(Cow::Owned(flat))
}

fn part_text(part: &Json) -> Result<&str, TextError> {
    if let Some(text) = part.as_str() {
        return Ok(text);
    }
    let kind = part.get("type").and_then(Json::as_str).unwrap_or("without a type");
    let key = match kind {
        "text" | "input_text" | "output_text" => "text",
        "refusal" => "refusal",
        _ => {
            let reason = format!("this model's chat template takes text only, not a content part {kind:?}");
            return Err(TextError::ChatInput { reason });
        }
    };
    part.get(key).and_then(Json::as_str).ok_or_else(|| TextError::ChatInput {
        reason: format!("a content part of type {kind:?} needs the text in {key:?}"),
    })
}

/// The text of a message that a continuation would be appended to: the last text part of a list.
pub(super) fn content_text(message: &mut Json) -> Option<&mut String> {
    match message.get_mut("content")? {
        Json::String(text) => Some(text),
        Json::Array(parts) => parts.iter_mut().rev().find_map(|part| match part.get_mut("text") {
            Some(Json::String(text)) => Some(text),
            _ => None,
        }),
        _ => None,
    }
}

/// A JSON value as a template sees it.
pub(super) fn to_value(json: &Json) -> Result<Value, TextError> {
    convert(json, 0)
}

fn convert(json: &Json, depth: usize) -> Result<Value, TextError> {
    if depth > DEPTH {
        let reason = format!("the chat request is nested deeper than {DEPTH} levels");
        return Err(TextError::ChatInput { reason });
    }
    Ok(match json {
        Json::Null => Value::from(()),
        Json::Bool(value) => Value::from(*value),
        Json::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(value), _) => Value::from(value),
            (None, Some(value)) => Value::from(value),
            (None, None) => Value::from(number.as_f64().unwrap_or(f64::NAN)),
        },
        Json::String(text) => Value::from(text.as_str()),
        Json::Array(items) => {
            Value::from(items.iter().map(|item| convert(item, depth + 1)).collect::<Result<Vec<Value>, _>>()?)
        }
        Json::Object(entries) => {
            let pairs = entries.iter().map(|(key, value)| Ok((key.as_str(), convert(value, depth + 1)?)));
            Value::from_pairs(pairs.collect::<Result<Vec<(&str, Value)>, TextError>>()?)
        }
    })
}

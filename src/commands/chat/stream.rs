//! One line of an event stream, and what it means for a conversation.

use serde_json::Value;

/// What a line carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// A piece of the answer.
    Text(String),
    /// The server gave up; its message.
    Error(String),
    /// The answer is complete.
    Done,
}

/// Reads a line; `None` when it carries nothing to show (comments, blank lines, role and usage chunks).
pub(super) fn event(line: &str) -> Option<Event> {
    let data = line.strip_prefix("data:")?.trim();
    if data == "[DONE]" {
        return Some(Event::Done);
    }
    let chunk: Value = match serde_json::from_str(data) {
        Ok(chunk) => chunk,
        Err(error) => {
            return Some(Event::Error(format!("the server sent a chunk that is no JSON ({error})")));
        }
    };
    if let Some(message) = error_message(&chunk) {
        return Some(Event::Error(message));
    }
    let text = chunk.pointer("/choices/0/delta/content")?.as_str()?;
    (!text.is_empty()).then(|| Event::Text(text.to_owned()))
}

/// The message of an error object, in the shapes that servers of this kind have.
pub(super) fn error_message(body: &Value) -> Option<String> {
    let error = body.get("error").filter(|error| !error.is_null())?;
    let message = error.get("message").unwrap_or(error);
    Some(message.as_str().map_or_else(|| message.to_string(), str::to_owned))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_told_apart() {
        let text = r#"data: {"choices":[{"index":0,"delta":{"content":"你好"}}]}"#;
        assert_eq!(event(text), Some(Event::Text("你好".to_owned())));
        assert_eq!(event("data: [DONE]"), Some(Event::Done));
        assert_eq!(event("data:[DONE]"), Some(Event::Done));
        let error = r#"data: {"error":{"message":"no room","type":"x","code":400}}"#;
        assert_eq!(event(error), Some(Event::Error("no room".to_owned())));
        for silent in [
            "",
            ": keep-alive",
            "event: message",
            r#"data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}"#,
            r#"data: {"choices":[],"usage":{"prompt_tokens":1}}"#,
            r#"data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#,
        ] {
            assert_eq!(event(silent), None, "{silent}");
        }
        assert!(matches!(event("data: {"), Some(Event::Error(_))));
    }

    #[test]
    fn error_bodies_of_other_servers_are_read_too() {
        let plain = serde_json::json!({"error": "Unauthorized"});
        assert_eq!(error_message(&plain).as_deref(), Some("Unauthorized"));
        assert_eq!(error_message(&serde_json::json!({"ok": 1})), None);
    }
}

//! From bytes to a JSON object, with errors that a person can act on.
//!
//! The nesting is bounded before anything is built from the text, so that a body cannot make a later,
//! recursive reader run out of stack.

use serde_json::Value;

use crate::JsonObject;
use crate::error::RequestError;

/// Objects and lists inside one another at most.
pub const DEPTH_MAX: usize = 64;

/// Reads a request body.
pub fn parse_object(body: &[u8]) -> Result<JsonObject, RequestError> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Err(RequestError::malformed("the body is empty; send a JSON object"));
    }
    if nesting_exceeds(body, DEPTH_MAX) {
        return Err(RequestError::malformed(format!(
            "the body nests lists and objects more than {DEPTH_MAX} deep"
        )));
    }
    match serde_json::from_slice(body) {
        Ok(Value::Object(fields)) => Ok(fields),
        Ok(other) => {
            Err(RequestError::malformed(format!("the body must be a JSON object, not {}", describe(&other))))
        }
        Err(error) => Err(RequestError::malformed(explain(body, &error))),
    }
}

/// A value in a few words, for messages.
#[must_use]
pub fn describe(value: &Value) -> String {
    const SHOWN_MAX: usize = 40;
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::String(text) if text.chars().count() > SHOWN_MAX => {
            format!("{:?}", text.chars().take(SHOWN_MAX).chain("...".chars()).collect::<String>())
        }
        Value::String(text) => format!("{text:?}"),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
    }
}

fn explain(body: &[u8], error: &serde_json::Error) -> String {
    let hint = if std::str::from_utf8(body).is_err() {
        "; the body must be UTF-8"
    } else if word_starts_at(body, error, &["NaN", "Infinity", "-Infinity"]) {
        "; JSON has no NaN or Infinity"
    } else if word_starts_at(body, error, &["True", "False", "None"]) {
        "; JSON writes true, false and null"
    } else {
        ""
    };
    format!("the body is not valid JSON: {error}{hint}")
}

/// Whether one of `words` stands where the parser stopped (which is within or right before the word).
fn word_starts_at(body: &[u8], error: &serde_json::Error, words: &[&str]) -> bool {
    let line = body.split(|byte| *byte == b'\n').nth(error.line().saturating_sub(1)).unwrap_or_default();
    let column = error.column();
    words.iter().any(|word| {
        (column.saturating_sub(word.len() + 1)..=column)
            .any(|at| line.get(at..).is_some_and(|rest| rest.starts_with(word.as_bytes())))
    })
}

fn nesting_exceeds(body: &[u8], max: usize) -> bool {
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    for byte in body {
        if in_string {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => in_string = false,
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => in_string = true,
            b'{' | b'[' => {
                depth += 1;
                if depth > max {
                    return true;
                }
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(body: &str) -> String {
        parse_object(body.as_bytes()).unwrap_err().message
    }

    #[test]
    fn what_is_not_json_is_refused_with_the_reason() {
        for literal in ["NaN", "Infinity", "-Infinity"] {
            let text = message(&format!("{{\"temperature\":{literal}}}"));
            assert!(text.contains("no NaN or Infinity"), "{text}");
        }
        assert!(message("{\"a\":1e999}").contains("out of range"));
        assert!(message("{\"a\":-}").contains("not valid JSON"));
        assert!(message("{\"a\":True}").contains("true, false and null"));
        assert!(message("{\"a\":\"\\ud800\"}").contains("not valid JSON"));
        assert!(message(" \n").contains("empty"));
        assert!(message("[1]").contains("not a list"));
        let broken = parse_object(b"{\"a\":\"\xff\"}").unwrap_err().message;
        assert!(broken.contains("UTF-8"), "{broken}");
    }

    #[test]
    fn nesting_is_bounded_but_brackets_in_strings_are_text() {
        let nested = |depth: usize| format!("{{\"a\":{}{}}}", "[".repeat(depth), "]".repeat(depth));
        assert!(parse_object(nested(DEPTH_MAX - 1).as_bytes()).is_ok());
        assert!(message(&nested(DEPTH_MAX)).contains("64 deep"));
        assert!(message(&"[".repeat(1_000_000)).contains("64 deep"));
        let text = format!("{{\"a\":\"{}\\\"{}\"}}", "[".repeat(500), "{".repeat(500));
        assert!(parse_object(text.as_bytes()).is_ok());
    }

    #[test]
    fn long_strings_are_cut_in_messages() {
        let shown = describe(&Value::String("x".repeat(1000)));
        assert!(shown.len() < 60 && shown.contains("..."), "{shown}");
    }
}

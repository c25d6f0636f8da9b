//! Server-sent events: one `data:` line with JSON and a blank line each, `[DONE]` last.

use serde::Serialize;

/// The last event of every stream.
pub const DONE: &[u8] = b"data: [DONE]\n\n";

/// A comment, which clients skip: it tells proxies that the stream is alive.
pub const KEEP_ALIVE: &[u8] = b": keep-alive\n\n";

/// The bytes of one event. JSON escapes line breaks, so the value always stays on its line.
#[must_use]
pub fn event(value: &impl Serialize) -> Vec<u8> {
    const TYPICAL_LEN: usize = 256;
    let mut bytes = Vec::with_capacity(TYPICAL_LEN);
    bytes.extend_from_slice(b"data: ");
    if serde_json::to_writer(&mut bytes, value).is_err() {
        // Only values with map keys that are no strings cannot be written, and no answer has any.
        bytes.clear();
        bytes.extend_from_slice(b"data: {}");
    }
    bytes.extend_from_slice(b"\n\n");
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_break_in_the_text_does_not_break_the_event() {
        let bytes = event(&serde_json::json!({"text": "a\n\nb\r\u{2028}"}));
        let text = String::from_utf8(bytes).unwrap();
        assert!(text.starts_with("data: {") && text.ends_with("}\n\n"));
        assert_eq!(text.matches('\n').count(), 2);
    }
}

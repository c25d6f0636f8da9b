//! The printable alphabet in which byte-level vocabularies write bytes.
//!
//! Bytes that are printable in Latin-1 stand for themselves; the other 68 are numbered from U+0100 on, in order.

/// The byte that a character of the alphabet stands for.
fn byte_of(character: char) -> Option<u8> {
    match u32::from(character) {
        code @ (0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff) => Some(code as u8),
        code @ 0x100..=0x120 => Some((code - 0x100) as u8),
        code @ 0x121..=0x142 => Some((code - 0x121) as u8 + 0x7f),
        0x143 => Some(0xad),
        _ => None,
    }
}

/// Appends the bytes that `token` stands for: its own when it is not written in the alphabet.
pub(super) fn push_bytes(token: &str, bytes: &mut Vec<u8>) {
    let start = bytes.len();
    for character in token.chars() {
        if let Some(byte) = byte_of(character) {
            bytes.push(byte);
        } else {
            bytes.truncate(start);
            bytes.extend_from_slice(token.as_bytes());
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn covers_every_byte_once() {
        let mut seen = [false; 256];
        for code in 0..0x200 {
            if let Some(byte) = char::from_u32(code).and_then(byte_of) {
                assert!(!seen[byte as usize], "byte {byte} twice");
                seen[byte as usize] = true;
            }
        }
        assert!(seen.iter().all(|&seen| seen));
    }

    #[test]
    fn known_letters_and_foreign_text() {
        let bytes = |token: &str| {
            let mut bytes = Vec::new();
            push_bytes(token, &mut bytes);
            bytes
        };
        assert_eq!(bytes("Ġthe"), b" the");
        assert_eq!(bytes("Ċ"), b"\n");
        assert_eq!(bytes("ä¸Ń"), "中".as_bytes());
        assert_eq!(bytes("<｜User｜>"), "<｜User｜>".as_bytes());
    }
}

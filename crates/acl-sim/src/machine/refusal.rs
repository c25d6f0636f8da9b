//! Why a call is refused, and what a thread can read about it afterwards.
//!
//! Always holds: the text of a thread is bounded, and reading it empties it. Refuses to know: which call
//! failed.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ffi::{CString, c_char};

use super::codes;

/// How many unread messages a thread keeps; older ones go first.
const MESSAGES_KEPT: usize = 16;

/// A call that did not do what it was asked: a code of the ABI and a sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {detail}")]
pub struct Refusal {
    /// The code that the caller gets.
    pub code: i32,
    /// What happened, and what to do about it.
    pub detail: String,
}

/// The answer of everything that can be refused.
pub type Answer<T = ()> = Result<T, Refusal>;

impl Refusal {
    /// A refusal with its sentence.
    pub fn new(code: i32, detail: impl Into<String>) -> Self {
        Self { code, detail: detail.into() }
    }

    /// The same as an answer.
    pub fn answer<T>(code: i32, detail: impl Into<String>) -> Answer<T> {
        Err(Self::new(code, detail))
    }
}

thread_local! {
    static RECENT: RefCell<VecDeque<String>> = const { RefCell::new(VecDeque::new()) };
    static READ: RefCell<CString> = RefCell::new(CString::default());
    static LAST: Cell<i32> = const { Cell::new(0) };
}

/// Adds a message to the calling thread's recent text.
pub fn report(code: i32, detail: &str) {
    let word = codes::word(code);
    let row = codes::row(code).map_or("UNKNOWN", |row| row.name);
    let process = std::process::id();
    let head = if word.ends_with("9999") { "Inner Error!" } else { "The call was refused." };
    let text = format!(
        "{word}: {head}\n{word}: [PID: {process}] {detail}[ret code: {code}, {row}]\n        \
         TraceBack (most recent call last):\n        {row}"
    );
    RECENT.with_borrow_mut(|recent| {
        if recent.len() == MESSAGES_KEPT {
            recent.pop_front();
        }
        recent.push_back(text);
    });
}

/// Notes a refusal as the calling thread's last error and in its text. Returns the code.
pub fn note(refusal: &Refusal) -> i32 {
    LAST.set(refusal.code);
    report(refusal.code, &refusal.detail);
    refusal.code
}

/// Takes the thread's text; null when there is none. The pointer is good until the thread's next call.
pub fn take_text() -> *const c_char {
    let text = RECENT.with_borrow_mut(|recent| recent.drain(..).collect::<Vec<_>>().join("\n"));
    if text.is_empty() {
        return std::ptr::null();
    }
    let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
    READ.with_borrow_mut(|read| {
        *read = text;
        read.as_ptr()
    })
}

/// The thread's last error; `clear` forgets it.
pub fn last_error(clear: bool) -> i32 {
    if clear { LAST.replace(0) } else { LAST.get() }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::expect_used, reason = "tests")]
    use super::*;
    use std::ffi::CStr;

    #[test]
    fn reading_empties_the_text_and_keeps_the_last_error() {
        note(&Refusal::new(codes::CAPTURE_IMPLICIT, "the default stream was used"));
        let text = take_text();
        assert!(!text.is_null());
        // SAFETY: the pointer was just returned and the thread made no further call.
        let text = unsafe { CStr::from_ptr(text) }.to_str().expect("text");
        assert!(text.starts_with("EE1017: "), "{text}");
        assert!(text.contains("107031"));
        assert!(take_text().is_null());
        assert_eq!(last_error(false), codes::CAPTURE_IMPLICIT);
        assert_eq!(last_error(true), codes::CAPTURE_IMPLICIT);
        assert_eq!(last_error(true), 0);
    }

    #[test]
    fn an_unread_text_is_bounded() {
        for _ in 0..100 {
            report(codes::PARAM_INVALID, "once more");
        }
        RECENT.with_borrow(|recent| assert_eq!(recent.len(), MESSAGES_KEPT));
        take_text();
    }
}

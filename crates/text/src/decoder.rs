//! Tokens to text, one at a time.
//!
//! What a decoder has given out never changes: it holds back a character until its last byte is there, and a run of
//! byte tokens until it ends (only then is it known whether the run is text at all; a line feed is given out at once,
//! so that a stop string can see it). After [`IncrementalDecoder::flush`], the deltas add up to the decoding of all
//! tokens at once, whatever the tokens. Each token costs the same, however long the text before it.

use std::sync::Arc;

use crate::tokenizer::{Pieces, TokenKind};

/// What stands before the first token of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamStart {
    /// Nothing: the space that some vocabularies put before the first word is dropped, as when all tokens are
    /// decoded at once.
    Text,
    /// Text that the reader has already, such as an echoed prompt: every space counts.
    Continuation,
}

/// Turns a sequence's tokens into text as they come.
#[derive(Clone, Debug)]
pub struct IncrementalDecoder {
    pieces: Arc<Pieces>,
    skip_special: bool,
    /// No token has been decoded yet.
    at_start: bool,
    /// Characters that may still be dropped at the start of the text.
    lead: Option<(char, usize)>,
    /// Bytes of byte tokens in a row.
    run: Vec<u8>,
    /// Start of a character that is not complete.
    partial: Vec<u8>,
    delta: String,
}

impl IncrementalDecoder {
    pub(crate) fn new(pieces: Arc<Pieces>, skip_special: bool, start: StreamStart) -> Self {
        let at_start = start == StreamStart::Text;
        let lead = pieces.lead().filter(|_| at_start);
        Self {
            pieces,
            skip_special,
            at_start,
            lead,
            run: Vec::new(),
            partial: Vec::new(),
            delta: String::new(),
        }
    }

    /// Takes the next token and gives the text that is certain by now; often none. Ids that stand for nothing (padding
    /// of the vocabulary) give nothing.
    pub fn push(&mut self, id: u32) -> &str {
        self.delta.clear();
        self.take(id);
        &self.delta
    }

    /// Gives what is held back; incomplete characters become U+FFFD. For the end of a sequence.
    pub fn flush(&mut self) -> &str {
        self.delta.clear();
        self.end_run();
        if !self.partial.is_empty() {
            self.partial.clear();
            self.emit("\u{FFFD}");
        }
        &self.delta
    }

    /// Whether some bytes wait for others.
    #[must_use]
    pub fn is_holding(&self) -> bool {
        !self.run.is_empty() || !self.partial.is_empty()
    }

    fn take(&mut self, id: u32) {
        let pieces = self.pieces.clone();
        let kind = pieces.kind(id);
        let piece = match kind {
            TokenKind::Missing => return,
            TokenKind::Special if self.skip_special => return,
            _ if self.at_start => pieces.first_bytes(id),
            _ => pieces.bytes(id),
        };
        self.at_start = false;
        if kind == TokenKind::Byte {
            self.run.extend_from_slice(piece);
            if piece == b"\n" && std::str::from_utf8(&self.run).is_ok() {
                self.end_run();
            }
            return;
        }
        self.end_run();
        if self.partial.is_empty()
            && let Ok(text) = std::str::from_utf8(piece)
        {
            self.emit(text);
            return;
        }
        self.partial.extend_from_slice(piece);
        self.drain_partial();
    }

    /// A run of byte tokens is text as a whole, or one U+FFFD for each of them.
    fn end_run(&mut self) {
        if self.run.is_empty() {
            return;
        }
        let run = std::mem::take(&mut self.run);
        match std::str::from_utf8(&run) {
            Ok(text) => self.emit(text),
            Err(_) => run.iter().for_each(|_| self.emit("\u{FFFD}")),
        }
        self.run = run;
        self.run.clear();
    }

    /// Gives out complete characters and U+FFFD for bytes that no later ones can make a character of.
    fn drain_partial(&mut self) {
        let bytes = std::mem::take(&mut self.partial);
        let mut rest: &[u8] = &bytes;
        loop {
            let error = match std::str::from_utf8(rest) {
                Ok(text) => {
                    self.emit(text);
                    rest = &[];
                    break;
                }
                Err(error) => error,
            };
            let (valid, others) = rest.split_at(error.valid_up_to());
            self.emit(std::str::from_utf8(valid).unwrap_or(""));
            rest = others;
            let Some(length) = error.error_len() else { break };
            self.emit("\u{FFFD}");
            rest = rest.get(length..).unwrap_or(&[]);
        }
        let held = rest.len();
        self.partial = bytes;
        self.partial.drain(..self.partial.len() - held);
    }

    fn emit(&mut self, text: &str) {
        let mut text = text;
        while let Some((dropped, left)) = self.lead.filter(|_| !text.is_empty()) {
            let stripped = text.strip_prefix(dropped).filter(|_| left > 0);
            self.lead = stripped.map(|_| (dropped, left - 1));
            text = stripped.unwrap_or(text);
        }
        self.delta.push_str(text);
    }
}

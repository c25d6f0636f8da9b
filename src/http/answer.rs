//! One answer while it grows: tokens in, pieces of text out, until it ends.
//!
//! A plain state machine. It decides what of a token is shown: nothing of the token that ends the answer,
//! nothing of a stop string, never half a character.

#[cfg(test)]
mod tests;

use updraft_core::TokenId;
use updraft_core::sampling::SamplingParams;
use updraft_core::scheduler::FinishReason as EngineFinish;
use updraft_core::step::TokenLogprobs;
use updraft_protocol::generation::GenerationSpec;
use updraft_protocol::{FinishReason, StopReason};
use updraft_text::{IncrementalDecoder, StopChecker, StreamStart, TextModel};

/// A token with what is known about it.
pub(super) type ReportedToken = (TokenId, Option<Box<TokenLogprobs>>);

/// What became certain with one event.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Piece {
    /// New text; can be empty.
    pub(super) text: String,
    /// Tokens taken since the last piece.
    pub(super) tokens: Vec<ReportedToken>,
    /// Set on the last piece.
    pub(super) end: Option<End>,
}

impl Piece {
    /// Whether a stream shows it; one that reports tokens shows those without text too.
    pub(super) fn says_something(&self, reports_tokens: bool) -> bool {
        !self.text.is_empty() || self.end.is_some() || reports_tokens && !self.tokens.is_empty()
    }
}

/// How an answer ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct End {
    pub(super) reason: FinishReason,
    pub(super) stop_reason: Option<StopReason>,
}

/// The state of one answer.
pub(super) struct Answer {
    decoder: IncrementalDecoder,
    stops: StopChecker,
    /// Tokens that end the answer, sorted.
    ending: Vec<TokenId>,
    show_ending: bool,
    min_tokens: u32,
    taken: u32,
    /// A token that ends the answer unless another one follows.
    held: Option<ReportedToken>,
}

impl Answer {
    pub(super) fn new(text: &TextModel, spec: &GenerationSpec, sampling: &SamplingParams) -> Self {
        let mut ending = sampling.stop_token_ids.clone();
        if !sampling.ignore_eos {
            ending.extend(&sampling.eos_token_ids);
        }
        ending.sort_unstable();
        Self {
            // The reader has the prompt, so a space in front of the first word counts.
            decoder: text.decoder(spec.report.skip_special_tokens, StreamStart::Continuation),
            stops: StopChecker::new(
                spec.stop.strings.iter().map(String::as_str),
                spec.stop.include_in_output,
            ),
            ending,
            show_ending: spec.stop.include_in_output,
            min_tokens: spec.stop.min_tokens,
            taken: 0,
            held: None,
        }
    }

    /// Takes the next token.
    pub(super) fn token(&mut self, token: TokenId, logprobs: Option<Box<TokenLogprobs>>) -> Piece {
        let mut piece = Piece::default();
        if let Some(held) = self.held.take() {
            self.show(held, &mut piece);
        }
        if piece.end.is_none() {
            if self.ending.binary_search(&token).is_ok() {
                self.held = Some((token, logprobs));
            } else {
                self.show((token, logprobs), &mut piece);
            }
        }
        piece
    }

    /// Takes the end.
    pub(super) fn finish(&mut self, reason: EngineFinish) -> Piece {
        let mut piece = Piece::default();
        if let Some(held) = self.held.take() {
            match reason {
                EngineFinish::Stop { .. } if !self.show_ending => piece.tokens.push(held),
                _ => self.show(held, &mut piece),
            }
        }
        if piece.end.is_some() {
            return piece;
        }
        let (reason, stop_reason) = match reason {
            EngineFinish::Stop { stop_token } => (FinishReason::Stop, stop_token.map(StopReason::Token)),
            EngineFinish::Length => (FinishReason::Length, None),
        };
        piece.end = Some(End { reason, stop_reason });
        let rest = self.decoder.flush().to_owned();
        self.watch(&rest, &mut piece);
        piece.text.push_str(self.stops.flush());
        piece
    }

    fn show(&mut self, token: ReportedToken, piece: &mut Piece) {
        self.taken += 1;
        let text = self.decoder.push(token.0).to_owned();
        piece.tokens.push(token);
        self.watch(&text, piece);
    }

    /// Adds text up to a stop string, if one is complete and may count.
    fn watch(&mut self, text: &str, piece: &mut Piece) {
        if self.taken <= self.min_tokens {
            piece.text.push_str(self.stops.pass(text));
            return;
        }
        let emit = self.stops.push(text);
        piece.text.push_str(emit.text);
        if let Some(stop) = emit.stopped {
            let stop_reason = Some(StopReason::Text(stop.to_owned()));
            piece.end = Some(End { reason: FinishReason::Stop, stop_reason });
        }
    }
}

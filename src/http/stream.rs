//! Answers as server-sent events.
//!
//! The status is held back until something is known about the answer, so that a request that fails at once
//! gets a real error. After that an error is an event, and `[DONE]` ends every stream. The stream belongs to
//! the connection: when the client hangs up it is dropped, and with it the sequences.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use futures::stream;
use updraft_protocol::generation::StreamSpec;
use updraft_protocol::{Usage, sse};

use super::errors::Failure;
use super::generate::{Answers, Happening, Update};
use super::state::AppState;

/// How long the status is held back while nothing happens (the request waits or a long prompt is read).
const HOLD_MAX: Duration = Duration::from_secs(2);

/// How one API family writes its chunks. Each function appends whole events.
pub(super) trait Style: Send + 'static {
    /// What comes before any answer.
    fn opening(&mut self, usage: Option<Usage>, out: &mut Vec<u8>);
    /// What happened to an answer.
    fn update(&mut self, index: u32, what: Happening, usage: Option<Usage>, out: &mut Vec<u8>);
    /// Token counts of the whole request.
    fn usage(&mut self, usage: Usage, out: &mut Vec<u8>);
}

enum Stage {
    Opening,
    Running,
    Over,
}

struct Events<S> {
    answers: Answers,
    style: S,
    spec: StreamSpec,
    keep_alive: Option<Duration>,
    /// The update that released the status.
    pending: Option<Update>,
    stage: Stage,
}

/// Starts the answer once its first event is there.
pub(super) async fn respond(
    state: &AppState,
    mut answers: Answers,
    style: impl Style,
    mut spec: StreamSpec,
) -> Result<Response, Failure> {
    let pending = match tokio::time::timeout(HOLD_MAX, answers.next()).await {
        Ok(Some(Update { what: Happening::Failed(error), .. })) => return Err(Failure::from(&error)),
        Ok(first) => first,
        Err(_) => None,
    };
    spec.include_usage |= state.options.force_include_usage;
    let keep_alive = state.options.keep_alive;
    let events = Events { answers, style, spec, keep_alive, pending, stage: Stage::Opening };
    let frames = stream::unfold(events, |mut events| async move {
        let frame = events.next().await?;
        Some((Ok::<_, Infallible>(frame), events))
    });
    let headers = [
        (CONTENT_TYPE.as_str(), "text/event-stream; charset=utf-8"),
        (CACHE_CONTROL.as_str(), "no-cache"),
        // Proxies of the nginx family would otherwise collect the stream before they pass it on.
        ("x-accel-buffering", "no"),
    ];
    Ok((headers, Body::from_stream(frames)).into_response())
}

impl<S: Style> Events<S> {
    async fn next(&mut self) -> Option<Bytes> {
        let mut out = Vec::new();
        loop {
            match self.stage {
                Stage::Opening => {
                    self.stage = Stage::Running;
                    // The update that released the status is counted already, but not shown yet.
                    let usage = self.running_usage();
                    let usage = usage.map(|usage| {
                        Usage::new(usage.prompt_tokens, 0, usage.prompt_tokens_details.cached_tokens)
                    });
                    self.style.opening(usage, &mut out);
                }
                Stage::Running => self.advance(&mut out).await,
                Stage::Over => return None,
            }
            if !out.is_empty() {
                return Some(out.into());
            }
        }
    }

    async fn advance(&mut self, out: &mut Vec<u8>) {
        let next = match (self.pending.take(), self.keep_alive) {
            (Some(update), _) => Ok(Some(update)),
            (None, Some(interval)) => tokio::time::timeout(interval, self.answers.next()).await,
            (None, None) => Ok(self.answers.next().await),
        };
        match next {
            Err(_) => out.extend_from_slice(sse::KEEP_ALIVE),
            Ok(Some(Update { what: Happening::Failed(error), .. })) => {
                out.extend(sse::event(&Failure::from(&error).error.body()));
                self.end(out);
            }
            Ok(Some(update)) => {
                let usage = self.running_usage();
                self.style.update(update.index, update.what, usage, out);
            }
            Ok(None) => {
                if self.spec.include_usage {
                    self.style.usage(self.answers.usage(), out);
                }
                self.end(out);
            }
        }
    }

    fn end(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(sse::DONE);
        self.stage = Stage::Over;
    }

    fn running_usage(&self) -> Option<Usage> {
        self.spec.continuous_usage.then(|| self.answers.usage())
    }
}

//! What a capture forbids: each rule gives its code and breaks the captures it protects.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Capture, Mode, THREAD_MODE, any, with};
use crate::machine::codes;
use crate::machine::context::Context;
use crate::machine::event::Event;
use crate::machine::refusal::{Answer, Refusal};
use crate::machine::stream::Stream;

/// Breaks every capture that `hit` names; the answer is the refusal if there was one.
fn forbid(refusal: impl FnOnce() -> Refusal, hit: impl Fn(&Capture) -> bool) -> Answer {
    if !any() {
        return Ok(());
    }
    with(|captures| {
        let mut broken = captures.active.values_mut().filter(|capture| hit(capture)).peekable();
        if broken.peek().is_none() {
            return Ok(());
        }
        let refusal = refusal();
        for capture in broken {
            capture.break_by(refusal.clone());
        }
        Err(refusal)
    })
}

/// Breaks the capture a stream is in, if it is in one, and passes the refusal on.
pub fn break_stream(stream: &Stream, refusal: Refusal) -> Refusal {
    let id = stream.capture.load(Ordering::Relaxed);
    if id != 0 {
        with(|captures| {
            if let Some(capture) = captures.active.get_mut(&id) {
                capture.break_by(refusal.clone());
            }
        });
    }
    refusal
}

/// Synchronising, querying or destroying a stream that is being captured.
pub fn forbid_stream(stream: &Stream, what: &str) -> Answer {
    let id = stream.capture.load(Ordering::Relaxed);
    if id == 0 {
        return Ok(());
    }
    let refusal = || {
        let detail =
            format!("stream {} is capturing, which allows no {what}; end the capture first", stream.id);
        Refusal::new(codes::STREAM_CAPTURED, detail)
    };
    forbid(refusal, |capture| capture.id == id)
}

/// Synchronising or querying an event of a capture.
pub fn forbid_event(event: &Event, what: &str) -> Answer {
    let id = event.capture.load(Ordering::Relaxed);
    if id == 0 {
        return Ok(());
    }
    let refusal = || {
        let detail =
            format!("event {} is part of a capture, which allows no {what}; end the capture first", event.id);
        Refusal::new(codes::EVENT_CAPTURED, detail)
    };
    forbid(refusal, |capture| capture.id == id)
}

/// Synchronising a device or a context in which something is being captured.
pub fn forbid_context(context: &Context, whole_device: bool) -> Answer {
    let refusal = || {
        Refusal::new(
            codes::STREAM_CAPTURED,
            "a stream of it is capturing; end the capture before you synchronise",
        )
    };
    forbid(refusal, |capture| {
        capture.lanes.iter().any(|lane| {
            let of = &lane.stream.context;
            of.handle == context.handle || (whole_device && of.device.id == context.device.id)
        })
    })
}

/// Whether the calling thread's blocking call is unsafe for a capture.
fn exposed(capture: &Capture) -> bool {
    let mine = capture.thread == std::thread::current().id();
    match THREAD_MODE.get() {
        Mode::Relaxed => false,
        Mode::ThreadLocal => mine && capture.mode != Mode::Relaxed,
        Mode::Global => capture.mode == Mode::Global || (mine && capture.mode == Mode::ThreadLocal),
    }
}

/// Copies and fills that block.
pub fn forbid_blocking(what: &str) -> Answer {
    let refusal = || {
        let detail = format!(
            "{what} is not supported while a stream is captured; use a stream, or capture in relaxed mode"
        );
        Refusal::new(codes::CAPTURE_MODE, detail)
    };
    forbid(refusal, exposed)
}

/// Copies that would block because their host memory is pageable.
pub fn forbid_pageable(stream: &Arc<Stream>) -> Answer {
    if stream.capture.load(Ordering::Relaxed) == 0 {
        return Ok(());
    }
    let detail = "a copy with pageable host memory cannot be captured; allocate it with aclrtMallocHost";
    Err(break_stream(stream, Refusal::new(codes::CAPTURE_MODE, detail)))
}

/// Work on the default stream while its context is being captured.
pub fn forbid_default(stream: &Stream) -> Answer {
    if !any() || !stream.context.is_default(stream) {
        return Ok(());
    }
    let context = stream.context.handle;
    let me = std::thread::current().id();
    let refusal = || {
        let detail =
            "the default stream cannot be used while a stream of its context is captured; use another stream";
        Refusal::new(codes::CAPTURE_IMPLICIT, detail)
    };
    forbid(refusal, |capture| {
        capture.context == context && (capture.thread == me || capture.mode == Mode::Global)
    })
}

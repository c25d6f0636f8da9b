//! Copies and fills, now or on a stream.
//!
//! Always holds: the direction comes from the addresses, never from what the caller says; a copy from or to
//! pageable memory on a stream is over when the call returns.

use std::sync::Arc;

use super::faults::{self, Phase, Site, SiteClass};
use super::memory::{Place, place};
use super::refusal::{Answer, Refusal};
use super::stream::Stream;
use super::task::Class;
use super::{capture, codes, context, submit};
use crate::launch::Launch;

/// A rectangle of bytes; a plain copy is one row.
#[derive(Debug, Clone, Copy)]
pub struct Copy {
    /// Where to.
    pub dst: usize,
    /// From where.
    pub src: usize,
    /// Bytes from one row of the target to the next.
    pub dst_pitch: usize,
    /// The same in the source.
    pub src_pitch: usize,
    /// Bytes of a row.
    pub width: usize,
    /// Rows.
    pub height: usize,
}

impl Copy {
    /// A copy of `bytes` in a row.
    pub fn row(dst: usize, src: usize, bytes: usize) -> Self {
        Self { dst, src, dst_pitch: bytes, src_pitch: bytes, width: bytes, height: 1 }
    }

    fn places(&self) -> Answer<(Place, Place)> {
        let wrong = |detail: &str| Refusal::answer(codes::PARAM_INVALID, detail);
        if self.dst == 0 || self.src == 0 {
            return wrong("a copy needs two addresses that are not null");
        }
        if self.width == 0 || self.height == 0 {
            return wrong("a copy of nothing is refused");
        }
        if self.width > self.dst_pitch || self.width > self.src_pitch {
            return wrong("a row is wider than its pitch");
        }
        let span =
            |pitch: usize| pitch.checked_mul(self.height - 1).and_then(|rows| rows.checked_add(self.width));
        match (span(self.dst_pitch), span(self.src_pitch)) {
            (Some(dst), Some(src)) => Ok((place(self.dst, dst)?, place(self.src, src)?)),
            _ => wrong("the copy is larger than any memory"),
        }
    }

    fn run(&self) {
        for row in 0..self.height {
            let (src, dst) = (self.src + row * self.src_pitch, self.dst + row * self.dst_pitch);
            // SAFETY: ranges in known blocks were checked to lie inside them; for pageable memory the caller
            // of the ABI vouches, as with `memmove`.
            unsafe { std::ptr::copy(src as *const u8, dst as *mut u8, self.width) };
        }
    }

    fn launch(self) -> Launch {
        Launch {
            operator: "memcpy",
            updatable: false,
            outputs: if self.height == 1 { vec![(self.dst, self.width)] } else { Vec::new() },
            work: Arc::new(move || {
                self.run();
                Ok(())
            }),
        }
    }
}

fn site(operator: &'static str, device: i32) -> Site<'static> {
    Site { class: SiteClass::Memcpy, operator, device, stream: None, phase: Phase::Eager }
}

/// Copies before it returns.
pub fn copy_now(copy: Copy) -> Answer {
    copy.places()?;
    let context = context::current()?;
    capture::forbid_blocking("a synchronous copy")?;
    faults::at_call(&site("memcpy", context.device.id))?;
    let context = context::current()?;
    faults::at_call_as_run(&site("memcpy", context.device.id))?;
    copy.run();
    Ok(())
}

/// Copies on a stream.
pub fn copy_on(copy: Copy, stream: &Arc<Stream>) -> Answer {
    let places = copy.places().map_err(|refusal| capture::break_stream(stream, refusal))?;
    match places {
        (Place::Pageable | Place::Pinned, Place::Pageable | Place::Pinned) => {
            let refusal =
                Refusal::new(codes::NOT_SUPPORTED, "a copy from host to host has no place on a stream");
            Err(capture::break_stream(stream, refusal))
        }
        (Place::Pageable, _) | (_, Place::Pageable) => {
            capture::forbid_pageable(stream)?;
            submit::work(stream, Class::Memcpy, copy.launch())?;
            stream.synchronize(None)
        }
        _ => submit::work(stream, Class::Memcpy, copy.launch()),
    }
}

/// Fills before it returns.
pub fn fill_now(dst: usize, value: u8, bytes: usize) -> Answer {
    check_fill(dst, bytes)?;
    let context = context::current()?;
    capture::forbid_blocking("a synchronous fill")?;
    faults::at_call(&site("memset", context.device.id))?;
    faults::at_call_as_run(&site("memset", context.device.id))?;
    fill(dst, value, bytes);
    Ok(())
}

/// Fills on a stream.
pub fn fill_on(dst: usize, value: u8, bytes: usize, stream: &Arc<Stream>) -> Answer {
    check_fill(dst, bytes).map_err(|refusal| capture::break_stream(stream, refusal))?;
    let launch = Launch {
        operator: "memset",
        updatable: false,
        outputs: vec![(dst, bytes)],
        work: Arc::new(move || {
            fill(dst, value, bytes);
            Ok(())
        }),
    };
    submit::work(stream, Class::Memcpy, launch)
}

fn check_fill(dst: usize, bytes: usize) -> Answer {
    if dst == 0 || bytes == 0 {
        return Refusal::answer(codes::PARAM_INVALID, "a fill needs an address and a size");
    }
    place(dst, bytes).map(drop)
}

fn fill(dst: usize, value: u8, bytes: usize) {
    // SAFETY: a range in a known block was checked to lie inside it; for pageable memory the caller vouches.
    unsafe { std::ptr::write_bytes(dst as *mut u8, value, bytes) };
}

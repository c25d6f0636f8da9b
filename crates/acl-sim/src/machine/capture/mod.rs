//! Stream capture: from `CaptureBegin` to `CaptureEnd`.
//!
//! Always holds: one lock guards all captures; whatever is refused inside a capture breaks it, and its end
//! then gives no graph; after the end, well or badly, no stream and no event remembers it. Refuses to know:
//! how graphs run.
//!
//! Whether a side stream has come back is decided by clocks: each lane knows how many nodes of each other
//! lane come before its next node; at the end the first lane must come after everything.

mod record;
mod rules;

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;

pub use record::{add_work, group_begin, group_end, record, reset, wait, wait_notify};
pub use rules::{
    break_stream, forbid_blocking, forbid_context, forbid_default, forbid_event, forbid_pageable,
    forbid_stream,
};

use super::event::Event;
use super::graph::{Graph, Node, Slot, TaskGroup};
use super::refusal::{Answer, Refusal};
use super::stream::Stream;
use super::table::{lock, next_handle};
use super::{codes, machine};

/// What a capture forbids to threads that are not part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Blocking calls of any thread.
    Global,
    /// Blocking calls of the thread that began it.
    ThreadLocal,
    /// Nothing.
    Relaxed,
}

impl Mode {
    /// The mode of a number of the ABI.
    pub fn from_abi(number: i32) -> Answer<Self> {
        match number {
            0 => Ok(Self::Global),
            1 => Ok(Self::ThreadLocal),
            2 => Ok(Self::Relaxed),
            _ => {
                Refusal::answer(codes::PARAM_INVALID, format!("{number} is no capture mode; 0, 1 and 2 are"))
            }
        }
    }

    /// The number of a mode.
    pub fn to_abi(self) -> i32 {
        match self {
            Self::Global => 0,
            Self::ThreadLocal => 1,
            Self::Relaxed => 2,
        }
    }
}

/// How a capture stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// There is none.
    None,
    /// It goes on.
    Active,
    /// It is broken.
    Invalidated,
}

struct Lane {
    stream: Arc<Stream>,
    /// How many nodes of each lane come before the next node of this one.
    clock: Vec<usize>,
    count: usize,
    group: Option<Vec<Arc<Slot>>>,
}

struct Mark {
    event: Arc<Event>,
    node: usize,
    clock: Vec<usize>,
}

struct Capture {
    id: u64,
    mode: Mode,
    thread: ThreadId,
    context: usize,
    handle: usize,
    broken: Option<String>,
    nodes: Vec<Node>,
    lanes: Vec<Lane>,
    marks: HashMap<usize, Mark>,
    groups: Vec<Arc<TaskGroup>>,
}

#[derive(Default)]
struct Captures {
    last: u64,
    active: HashMap<u64, Capture>,
}

static CAPTURES: Mutex<Option<Captures>> = Mutex::new(None);
static ACTIVE: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static THREAD_MODE: Cell<Mode> = const { Cell::new(Mode::Global) };
}

fn with<T>(act: impl FnOnce(&mut Captures) -> T) -> T {
    act(lock(&CAPTURES).get_or_insert_default())
}

/// Whether any capture is open: the quick way out of every rule.
fn any() -> bool {
    ACTIVE.load(Ordering::Relaxed) > 0
}

impl Capture {
    /// Breaks it and passes the reason on.
    fn break_by(&mut self, refusal: Refusal) -> Refusal {
        self.broken.get_or_insert_with(|| refusal.to_string());
        refusal
    }

    /// Whether every lane has come back to the first.
    fn joined(&self) -> bool {
        let Some(first) = self.lanes.first() else { return true };
        self.lanes
            .iter()
            .enumerate()
            .skip(1)
            .all(|(index, lane)| first.clock.get(index).copied().unwrap_or(0) >= lane.count)
    }

    /// Lets go of streams and events; returns what was recorded.
    fn close(mut self, keeps_streams: bool) -> (Vec<Node>, Vec<Arc<TaskGroup>>, usize) {
        for lane in &self.lanes {
            lane.stream.capture.store(0, Ordering::Relaxed);
        }
        for mark in self.marks.values() {
            let _ = mark.event.capture.compare_exchange(self.id, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
        if !keeps_streams && let Some(lane) = self.lanes.first() {
            lane.stream.device().streams.give(self.lanes.len() as u64);
        }
        ACTIVE.fetch_sub(1, Ordering::Relaxed);
        let lanes = self.lanes.len();
        (std::mem::take(&mut self.nodes), std::mem::take(&mut self.groups), lanes)
    }
}

/// Takes a hardware stream for a lane: a graph keeps as many as it was captured with.
fn take_stream(stream: &Stream) -> Answer {
    let device = stream.device();
    if device.streams.take(1) {
        return Ok(());
    }
    let detail = format!(
        "device {} has no stream left of {}, and a graph keeps one for each captured stream; destroy some",
        device.id,
        device.streams.limit()
    );
    Refusal::answer(codes::NO_STREAM, detail)
}

/// Begins a capture on a stream.
pub fn begin(stream: &Arc<Stream>, mode: Mode) -> Answer {
    if stream.context.is_default(stream) {
        return Refusal::answer(
            codes::CAPTURE_IMPLICIT,
            "the default stream cannot be captured; create a stream",
        );
    }
    if stream.updating.load(Ordering::Relaxed) {
        let detail = format!("stream {} is updating a task group; end that first", stream.id);
        return Refusal::answer(codes::GROUP_STATUS, detail);
    }
    stream.device().takes_work()?;
    with(|captures| {
        let present = stream.capture.load(Ordering::Relaxed);
        if present != 0 {
            let detail = format!("stream {} is capturing already", stream.id);
            let refusal = Refusal::new(codes::STREAM_CAPTURED, detail);
            return Err(match captures.active.get_mut(&present) {
                Some(capture) => capture.break_by(refusal),
                None => refusal,
            });
        }
        take_stream(stream)?;
        captures.last += 1;
        let id = captures.last;
        stream.capture.store(id, Ordering::Relaxed);
        let lane = Lane { stream: Arc::clone(stream), clock: vec![0], count: 0, group: None };
        let capture = Capture {
            id,
            mode,
            thread: std::thread::current().id(),
            context: stream.context.handle,
            handle: next_handle(),
            broken: None,
            nodes: Vec::new(),
            lanes: vec![lane],
            marks: HashMap::new(),
            groups: Vec::new(),
        };
        captures.active.insert(id, capture);
        ACTIVE.fetch_add(1, Ordering::Relaxed);
        Ok(())
    })
}

/// How the capture of a stream stands, and the handle its graph will have.
pub fn info(stream: &Stream) -> (Status, usize) {
    let id = stream.capture.load(Ordering::Relaxed);
    if id == 0 {
        return (Status::None, 0);
    }
    with(|captures| match captures.active.get(&id) {
        None => (Status::None, 0),
        Some(capture) if capture.broken.is_some() => (Status::Invalidated, 0),
        Some(capture) => (Status::Active, capture.handle),
    })
}

/// Ends a capture: a graph, or why there is none.
pub fn end(stream: &Arc<Stream>) -> Answer<Arc<Graph>> {
    let id = stream.capture.load(Ordering::Relaxed);
    if stream.context.is_default(stream) {
        return Refusal::answer(codes::CAPTURE_IMPLICIT, "the default stream is never captured");
    }
    with(|captures| {
        let Some(capture) = captures.active.get_mut(&id) else {
            return Refusal::answer(
                codes::STREAM_NOT_CAPTURED,
                format!("stream {} is not capturing", stream.id),
            );
        };
        if capture.lanes.first().is_none_or(|lane| lane.stream.handle != stream.handle) {
            let detail = format!("the capture did not begin on stream {}; end it where it began", stream.id);
            return Err(capture.break_by(Refusal::new(codes::CAPTURE_UNMATCHED, detail)));
        }
        if capture.mode != Mode::Relaxed && capture.thread != std::thread::current().id() {
            let detail = "the capture was begun by another thread; end it there, or capture in relaxed mode";
            return Err(capture.break_by(Refusal::new(codes::CAPTURE_WRONG_THREAD, detail)));
        }
        let verdict = if let Some(cause) = &capture.broken {
            Refusal::answer(
                codes::CAPTURE_INVALIDATED,
                format!("the capture was broken before; cause: {cause}"),
            )
        } else if capture.lanes.iter().any(|lane| lane.group.is_some()) {
            Refusal::answer(
                codes::GROUP_INTERRUPTED,
                "the capture ends inside a task group; end the group first",
            )
        } else if !capture.joined() {
            let detail = "a stream that joined the capture did not come back, or got work after it came back";
            Refusal::answer(codes::STREAM_UNJOINED, detail)
        } else {
            Ok(())
        };
        let Some(capture) = captures.active.remove(&id) else {
            return Refusal::answer(codes::STREAM_NOT_CAPTURED, "the capture is gone");
        };
        let (handle, context) = (capture.handle, capture.context);
        let (nodes, groups, lanes) = capture.close(verdict.is_ok());
        verdict?;
        for group in &groups {
            machine().groups.insert(group.handle, Arc::clone(group));
        }
        let groups = groups.iter().map(|group| group.handle).collect();
        let graph = Arc::new(Graph::new(handle, context, Arc::clone(stream.device()), nodes, lanes, groups));
        machine().graphs.insert(handle, Arc::clone(&graph));
        Ok(graph)
    })
}

/// Gives up the captures of contexts that end.
pub fn abandon(goes: impl Fn(usize) -> bool) {
    if !any() {
        return;
    }
    with(|captures| {
        let gone: Vec<u64> =
            captures.active.values().filter(|capture| goes(capture.context)).map(|c| c.id).collect();
        for capture in gone.iter().filter_map(|id| captures.active.remove(id)) {
            capture.close(false);
        }
    });
}

/// Exchanges the calling thread's mode.
pub fn exchange_mode(mode: Mode) -> Mode {
    THREAD_MODE.replace(mode)
}

//! Events and notifies: points in the work of streams that others wait for.
//!
//! Always holds: a record is a ticket that grows; who waits for a ticket is free when it, or a later one, has
//! been reached. An event made for outside work (`EXTERNAL`) and a notify are a flag instead: raised by a
//! record, waited for, and lowered by a reset. Refuses to know: what captures do with an event.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use super::codes;
use super::context::{self, Context};
use super::device::Device;
use super::machine;
use super::refusal::{Answer, Refusal};
use super::stream::Stream;
use super::table::{lock, next_handle};

/// Flag bits of event creation.
pub mod flags {
    /// May be waited for by streams.
    pub const SYNC: u32 = 1;
    /// Tracks the progress of a stream.
    pub const PROGRESS: u32 = 2;
    /// Keeps time stamps.
    pub const TIME_LINE: u32 = 8;
    /// Is never looked at by the host.
    pub const DEVICE_USE_ONLY: u32 = 0x10;
    /// Connects a graph with outside work.
    pub const EXTERNAL: u32 = 0x20;
    /// Is shared between processes.
    pub const IPC: u32 = 0x40;
    /// All that exist.
    pub const ALL: u32 = SYNC | PROGRESS | TIME_LINE | DEVICE_USE_ONLY | EXTERNAL | IPC;
}

/// How often a waiter looks whether its stream was aborted.
const ABORT_POLL: Duration = Duration::from_millis(2);

/// Which call made the event: the rules differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `aclrtCreateEvent` or `…WithFlag`.
    Plain,
    /// `aclrtCreateEventExWithFlag`.
    Extended,
    /// `aclrtCreateNotify`.
    Notify,
}

#[derive(Default)]
struct State {
    recorded: u64,
    reached: u64,
    reached_at: Option<Instant>,
    raised: bool,
    waiting: u32,
    recorder: Weak<Stream>,
}

/// An event or a notify.
pub struct Event {
    /// What the program holds.
    pub handle: usize,
    /// The number in logs.
    pub id: u32,
    /// How it was made.
    pub kind: Kind,
    /// Its flag bits.
    pub flags: u32,
    /// The context that made it.
    pub context: usize,
    /// The capture that recorded it last, 0 for none.
    pub capture: AtomicU64,
    device: Arc<Device>,
    state: Mutex<State>,
    changed: Condvar,
}

/// How a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waited {
    /// What was waited for happened.
    Reached,
    /// The limit passed first.
    Late,
    /// The waiting stream was aborted.
    Cancelled,
}

impl Event {
    /// Makes an event in the current context.
    pub fn create(context: &Context, kind: Kind, flags: u32) -> Answer<Arc<Self>> {
        static IDS: AtomicU32 = AtomicU32::new(0);
        let device = &context.device;
        let (budget, code, what) = match kind {
            Kind::Notify => (&device.notifies, codes::NO_NOTIFY, "notify"),
            Kind::Plain | Kind::Extended => (&device.events, codes::NO_EVENT, "event"),
        };
        if !budget.take(1) {
            let detail =
                format!("device {} has no {what} left of {}; destroy some", device.id, budget.limit());
            return Refusal::answer(code, detail);
        }
        let event = Arc::new(Self {
            handle: next_handle(),
            id: IDS.fetch_add(1, Ordering::Relaxed),
            kind,
            flags,
            context: context.handle,
            capture: AtomicU64::new(0),
            device: Arc::clone(device),
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let table = if kind == Kind::Notify { &machine().notifies } else { &machine().events };
        table.insert(event.handle, Arc::clone(&event));
        Ok(event)
    }

    /// Whether it is a flag rather than a ticket.
    pub fn is_flag(&self) -> bool {
        self.kind == Kind::Notify || self.flags & flags::EXTERNAL != 0
    }

    /// Draws the ticket of a record that is being submitted on `stream`.
    pub fn draw(&self, stream: &Arc<Stream>) -> u64 {
        let mut state = lock(&self.state);
        state.recorded += 1;
        state.recorder = Arc::downgrade(stream);
        state.recorded
    }

    /// The ticket of the last record, 0 before the first.
    pub fn recorded(&self) -> u64 {
        lock(&self.state).recorded
    }

    /// A stream has come to the record.
    pub fn reach(&self, ticket: u64) {
        let mut state = lock(&self.state);
        if ticket > state.reached {
            state.reached = ticket;
            state.reached_at = Some(Instant::now());
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Raises the flag.
    pub fn raise(&self) {
        let mut state = lock(&self.state);
        state.raised = true;
        state.reached_at = Some(Instant::now());
        drop(state);
        self.changed.notify_all();
    }

    /// Lowers the flag.
    pub fn lower(&self) {
        lock(&self.state).raised = false;
    }

    /// Whether the flag is up; `lower` takes it down at once if so.
    pub fn try_flag(&self, lower: bool) -> bool {
        let mut state = lock(&self.state);
        let raised = state.raised;
        state.raised &= !lower;
        raised
    }

    /// Whether `ticket` was reached.
    pub fn has_reached(&self, ticket: u64) -> bool {
        lock(&self.state).reached >= ticket
    }

    /// Whether all that was recorded was reached: true before the first record.
    pub fn complete(&self) -> bool {
        let state = lock(&self.state);
        if self.is_flag() { state.raised } else { state.reached >= state.recorded }
    }

    /// Waits on a stream's thread for a ticket.
    pub fn wait(&self, ticket: u64, limit: Option<Duration>, cancel: &AtomicBool) -> Waited {
        self.wait_until(limit, cancel, |state| state.reached >= ticket)
    }

    /// Waits on a stream's thread for the flag, and lowers it when asked to.
    pub fn wait_flag(&self, lower: bool, limit: Option<Duration>, cancel: &AtomicBool) -> Waited {
        self.wait_until(limit, cancel, |state| {
            let raised = state.raised;
            state.raised &= !(raised && lower);
            raised
        })
    }

    /// Waits on a program's thread for everything that was recorded.
    pub fn synchronize(&self, limit: Option<Duration>) -> Answer {
        let (ticket, recorder) = {
            let state = lock(&self.state);
            (state.recorded, state.recorder.clone())
        };
        let never = AtomicBool::new(false);
        let flag = self.is_flag();
        let waited =
            self.wait_until(limit, &never, |state| if flag { state.raised } else { state.reached >= ticket });
        if waited == Waited::Late {
            let detail = format!("event {} was not reached in time; its work goes on", self.id);
            return Refusal::answer(codes::EVENT_SYNC_TIMEOUT, detail);
        }
        match recorder.upgrade() {
            Some(stream) => stream.failure(),
            None => Ok(()),
        }
    }

    /// Whether streams wait for it right now.
    pub fn waited_for(&self) -> bool {
        lock(&self.state).waiting > 0
    }

    /// When it was last reached.
    pub fn reached_at(&self) -> Answer<Instant> {
        if self.flags & flags::TIME_LINE == 0 {
            let detail = format!("event {} keeps no time: create it with the time-line flag", self.id);
            return Refusal::answer(codes::EVENT_TIMESTAMP_INVALID, detail);
        }
        let state = lock(&self.state);
        state.reached_at.filter(|_| state.reached >= state.recorded).ok_or_else(|| {
            let detail = format!("event {} was not reached yet; record it and synchronise first", self.id);
            Refusal::new(codes::EVENT_TIMESTAMP_INVALID, detail)
        })
    }

    fn wait_until(
        &self,
        limit: Option<Duration>,
        cancel: &AtomicBool,
        mut reached: impl FnMut(&mut State) -> bool,
    ) -> Waited {
        let end = limit.map(|limit| Instant::now() + limit);
        let mut state = lock(&self.state);
        state.waiting += 1;
        let waited = loop {
            if reached(&mut state) {
                break Waited::Reached;
            }
            if cancel.load(Ordering::Relaxed) {
                break Waited::Cancelled;
            }
            let mut pause = ABORT_POLL;
            if let Some(end) = end {
                let left = end.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    break Waited::Late;
                }
                pause = pause.min(left);
            }
            state = self.changed.wait_timeout(state, pause).unwrap_or_else(PoisonError::into_inner).0;
        };
        state.waiting -= 1;
        waited
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        match self.kind {
            Kind::Notify => self.device.notifies.give(1),
            Kind::Plain | Kind::Extended => self.device.events.give(1),
        }
    }
}

/// Finds an event of the current context.
pub fn find(handle: *mut c_void) -> Answer<Arc<Event>> {
    let context = context::current()?;
    let event = machine()
        .events
        .get(handle)
        .ok_or_else(|| Refusal::new(codes::PARAM_INVALID, "the event handle is null or was destroyed"))?;
    owned(&context, event)
}

/// Finds a notify of the current context.
pub fn find_notify(handle: *mut c_void) -> Answer<Arc<Event>> {
    let context = context::current()?;
    let event = machine()
        .notifies
        .get(handle)
        .ok_or_else(|| Refusal::new(codes::PARAM_INVALID, "the notify handle is null or was destroyed"))?;
    owned(&context, event)
}

fn owned(context: &Context, event: Arc<Event>) -> Answer<Arc<Event>> {
    if event.context != context.handle {
        let detail = format!("event {} belongs to another context; make that context current", event.id);
        return Refusal::answer(codes::STREAM_CONTEXT, detail);
    }
    Ok(event)
}

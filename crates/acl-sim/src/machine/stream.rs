//! Streams: queues of work, each with a thread of its own that starts with the first task.
//!
//! Always holds: tasks run one after another in the order of submission; a failure of one shows at the next
//! synchronisation; what is dropped by an abort counts as ended, so nobody waits for it. Refuses to know:
//! what a task does.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::codes;
use super::context::{self, Context};
use super::device::Device;
use super::machine;
use super::refusal::{Answer, Refusal};
use super::table::{lock, next_handle};
use super::task::Task;
use super::update::Update;
use super::worker;

/// Tasks a stream holds before the submitter has to wait.
pub const QUEUE_DEPTH: usize = 1 << 16;

/// A task that failed.
#[derive(Debug, Clone)]
pub struct Failure {
    /// The code of the synchronisation.
    pub code: i32,
    /// What happened.
    pub text: String,
}

/// What the worker and the program share.
#[derive(Default)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own, and the pairs occur in all combinations"
)]
pub struct State {
    pub(super) queue: VecDeque<Task>,
    pub(super) submitted: u64,
    pub(super) ended: u64,
    pub(super) running: bool,
    pub(super) parked: bool,
    pub(super) started: bool,
    pub(super) closed: bool,
    pub(super) waiters: u32,
    pub(super) failure: Option<Failure>,
    aborts: u64,
    abort_code: i32,
}

/// One stream.
pub struct Stream {
    /// What the program holds.
    pub handle: usize,
    /// The number in logs.
    pub id: i32,
    /// Its context.
    pub context: Arc<Context>,
    /// Flag bits of its creation.
    pub flags: u32,
    /// Priority of its creation.
    pub priority: u32,
    /// The capture it takes part in, 0 for none.
    pub capture: AtomicU64,
    /// Whether `update` holds something: read before the lock is taken.
    pub updating: AtomicBool,
    /// The task update that is open on it.
    pub update: Mutex<Option<Update>>,
    /// Set while the running task should give up.
    pub cancel: AtomicBool,
    /// Whether a failure stops all streams of the context.
    pub stop_on_failure: AtomicBool,
    /// Values of attributes 0..8, and the overflow switch at 2.
    pub attributes: [AtomicU32; 8],
    /// Number of the last task that ran.
    pub task: AtomicU32,
    counted: bool,
    pub(super) state: Mutex<State>,
    pub(super) ready: Condvar,
    pub(super) progress: Condvar,
}

impl Stream {
    /// Makes a stream; `counted` ones were taken from the device's budget and give it back.
    pub fn create(context: &Arc<Context>, priority: u32, flags: u32, counted: bool) -> Arc<Self> {
        static IDS: AtomicI32 = AtomicI32::new(0);
        let stream = Arc::new(Self {
            handle: next_handle(),
            id: IDS.fetch_add(1, Ordering::Relaxed),
            context: Arc::clone(context),
            flags,
            priority,
            capture: AtomicU64::new(0),
            updating: AtomicBool::new(false),
            update: Mutex::default(),
            cancel: AtomicBool::new(false),
            stop_on_failure: AtomicBool::new(false),
            attributes: Default::default(),
            task: AtomicU32::new(0),
            counted,
            state: Mutex::default(),
            ready: Condvar::new(),
            progress: Condvar::new(),
        });
        context.adopt(&stream);
        machine().streams.insert(stream.handle, Arc::clone(&stream));
        stream
    }

    /// The device below.
    pub fn device(&self) -> &Arc<Device> {
        &self.context.device
    }

    /// Puts a task at the end.
    pub fn push(self: &Arc<Self>, task: Task) -> Answer {
        let stopped = self.context.stopped();
        if stopped != 0 {
            let detail = format!("stream {} takes no work: its context stopped on a failure", self.id);
            return Refusal::answer(stopped, detail);
        }
        self.device().takes_work()?;
        let mut state = lock(&self.state);
        while state.queue.len() >= QUEUE_DEPTH && !state.closed {
            state.waiters += 1;
            state = self.progress.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.waiters -= 1;
        }
        if state.closed {
            return Refusal::answer(codes::INVALID_HANDLE, format!("stream {} was destroyed", self.id));
        }
        // A stream with nothing to do needs no thread for what takes no time: nobody can tell who did it.
        if state.queue.is_empty() && !state.running && task.keep_books() {
            state.submitted += 1;
            state.ended += 1;
            return Ok(());
        }
        if !state.started {
            worker::start(self)?;
            state.started = true;
        }
        state.queue.push_back(task);
        state.submitted += 1;
        self.device().pending.fetch_add(1, Ordering::Relaxed);
        let parked = state.parked;
        drop(state);
        if parked {
            self.ready.notify_one();
        }
        Ok(())
    }

    /// Waits until everything submitted so far has ended, and tells its failure.
    pub fn synchronize(&self, limit: Option<Duration>) -> Answer {
        let end = limit.map(|limit| Instant::now() + limit);
        let mut state = lock(&self.state);
        let target = state.submitted;
        let aborts = state.aborts;
        state.waiters += 1;
        let waited = loop {
            if state.aborts != aborts {
                break Refusal::answer(
                    state.abort_code,
                    format!("stream {} was aborted while it was waited for", self.id),
                );
            }
            if state.ended >= target {
                break Ok(());
            }
            state = match end {
                None => self.progress.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(end) => {
                    let left = end.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        let detail = format!("stream {} did not end in time; its work goes on", self.id);
                        break Refusal::answer(codes::STREAM_SYNC_TIMEOUT, detail);
                    }
                    self.progress.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        };
        state.waiters -= 1;
        waited?;
        let failure = state.failure.take();
        drop(state);
        self.device().usable()?;
        match (failure, self.context.stopped()) {
            (Some(failure), _) => Refusal::answer(failure.code, failure.text),
            (None, 0) => Ok(()),
            (None, code) => Refusal::answer(
                code,
                format!("the context of stream {} stopped on a failure; rebuild it", self.id),
            ),
        }
    }

    /// The failure that the next synchronisation will tell.
    pub fn failure(&self) -> Answer {
        match lock(&self.state).failure.clone() {
            Some(failure) => Refusal::answer(failure.code, failure.text),
            None => Ok(()),
        }
    }

    /// Whether nothing is left to do.
    pub fn idle(&self) -> bool {
        let state = lock(&self.state);
        state.ended >= state.submitted
    }

    /// Drops what waits, breaks off what runs; whoever synchronises gets `code`.
    pub fn abort(&self, code: i32) {
        let mut state = lock(&self.state);
        if state.ended < state.submitted {
            state.aborts += 1;
            state.abort_code = code;
        }
        if state.running {
            self.cancel.store(true, Ordering::Relaxed);
        }
        self.drop_waiting(state);
    }

    /// Drops what waits; what runs goes on.
    pub fn drop_queue(&self) {
        self.drop_waiting(lock(&self.state));
    }

    fn drop_waiting(&self, mut state: std::sync::MutexGuard<'_, State>) {
        let dropped = std::mem::take(&mut state.queue);
        state.ended += dropped.len() as u64;
        self.device().pending.fetch_sub(dropped.len() as u64, Ordering::Relaxed);
        drop(state);
        for task in &dropped {
            task.abandon();
        }
        self.progress.notify_all();
    }

    /// Waits until no task runs.
    pub fn quiesce(&self, limit: Duration) -> bool {
        let end = Instant::now() + limit;
        let mut state = lock(&self.state);
        state.waiters += 1;
        while state.running {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = self.progress.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        state.waiters -= 1;
        !state.running
    }

    /// Ends the stream: its worker leaves after the running task.
    pub fn close(&self) {
        let mut state = lock(&self.state);
        if !std::mem::replace(&mut state.closed, true) && self.counted {
            self.device().streams.give(1);
        }
        drop(state);
        self.ready.notify_all();
        self.progress.notify_all();
    }
}

/// Finds a stream of the current context; null is the default stream.
pub fn find(handle: *mut c_void) -> Answer<Arc<Stream>> {
    let context = context::current()?;
    if handle.is_null() {
        return context.default_stream();
    }
    let stream = machine()
        .streams
        .get(handle)
        .ok_or_else(|| Refusal::new(codes::INVALID_HANDLE, "the stream was destroyed, or never was one"))?;
    if stream.context.handle != context.handle {
        let detail = format!("stream {} belongs to another context; make that context current", stream.id);
        return Refusal::answer(codes::STREAM_CONTEXT, detail);
    }
    Ok(stream)
}

/// Takes a stream from the device's budget.
pub fn open(priority: u32, flags: u32) -> Answer<Arc<Stream>> {
    let context = context::current()?;
    if !context.device.streams.take(1) {
        let detail = format!(
            "device {} has no stream left of {}; destroy streams or graphs",
            context.device.id,
            context.device.streams.limit()
        );
        return Refusal::answer(codes::NO_STREAM, detail);
    }
    Ok(Stream::create(&context, priority, flags, true))
}

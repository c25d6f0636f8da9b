//! Contexts: what a thread works in, and whose streams and events it may use.
//!
//! Always holds: a destroyed context is never current for a call; a context that stopped on a failure takes
//! no work.

use std::cell::RefCell;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex, Weak};

use super::codes;
use super::device::Device;
use super::refusal::{Answer, Refusal};
use super::stream::Stream;
use super::table::{lock, next_handle};
use super::{capture, machine};

/// A context of one device.
pub struct Context {
    /// What the program holds.
    pub handle: usize,
    /// Where it lives.
    pub device: Arc<Device>,
    /// Whether `SetDevice` made it.
    pub primary: bool,
    alive: AtomicBool,
    stop: AtomicI32,
    default: Mutex<Option<Arc<Stream>>>,
    streams: Mutex<Vec<Weak<Stream>>>,
}

thread_local! {
    static CURRENT: RefCell<Option<Arc<Context>>> = const { RefCell::new(None) };
}

impl Context {
    /// Makes a context with its default stream.
    pub fn create(device: &Arc<Device>, primary: bool) -> Arc<Self> {
        let context = Arc::new(Self {
            handle: next_handle(),
            device: Arc::clone(device),
            primary,
            alive: AtomicBool::new(true),
            stop: AtomicI32::new(0),
            default: Mutex::new(None),
            streams: Mutex::default(),
        });
        let stream = Stream::create(&context, 0, 0, false);
        *lock(&context.default) = Some(stream);
        machine().contexts.insert(context.handle, Arc::clone(&context));
        context
    }

    /// The default stream.
    pub fn default_stream(&self) -> Answer<Arc<Stream>> {
        let stream = lock(&self.default).clone();
        stream.ok_or_else(|| {
            Refusal::new(codes::CONTEXT_NULL, "the context was destroyed; make another one current")
        })
    }

    /// Whether `stream` is the default stream of its context.
    pub fn is_default(&self, stream: &Stream) -> bool {
        lock(&self.default).as_ref().is_some_and(|default| default.handle == stream.handle)
    }

    /// Remembers a stream, for what concerns all of them.
    pub fn adopt(&self, stream: &Arc<Stream>) {
        let mut streams = lock(&self.streams);
        streams.retain(|stream| stream.strong_count() > 0);
        streams.push(Arc::downgrade(stream));
    }

    /// All living streams.
    pub fn streams(&self) -> Vec<Arc<Stream>> {
        lock(&self.streams).iter().filter_map(Weak::upgrade).collect()
    }

    /// Whether it was not destroyed yet.
    pub fn alive(&self) -> bool {
        self.alive.load(Ordering::Relaxed)
    }

    /// The failure that stopped all its streams, or 0.
    pub fn stopped(&self) -> i32 {
        self.stop.load(Ordering::Relaxed)
    }

    /// Stops all streams after a failure: what waits is dropped.
    pub fn stop(&self, code: i32) {
        self.stop.store(code, Ordering::Relaxed);
        for stream in self.streams() {
            stream.drop_queue();
        }
    }

    /// Forgets a failure, after the device was repaired.
    pub fn resume(&self) {
        self.stop.store(0, Ordering::Relaxed);
    }

    /// Ends the context with everything in it. Its streams' workers end on their own.
    pub fn destroy(&self) {
        self.alive.store(false, Ordering::Relaxed);
        capture::abandon(|owner| owner == self.handle);
        machine().contexts.remove(self.handle);
        for stream in self.streams() {
            machine().streams.remove(stream.handle);
            stream.abort(codes::STREAM_ABORT);
            stream.close();
        }
        *lock(&self.default) = None;
        for graph in machine().graphs.remove_where(|graph| graph.context == self.handle) {
            graph.retire();
        }
        machine().events.remove_where(|event| event.context == self.handle);
        machine().notifies.remove_where(|event| event.context == self.handle);
        drop_current_if(self);
    }

    /// Waits for the work of all streams.
    pub fn synchronize(&self, limit: Option<std::time::Duration>) -> Answer {
        let end = limit.map(|limit| std::time::Instant::now() + limit);
        let mut outcome = Ok(());
        for stream in self.streams() {
            let left = end.map(|end| end.saturating_duration_since(std::time::Instant::now()));
            let one = stream.synchronize(left);
            if outcome.is_ok() {
                outcome = one;
            }
        }
        outcome
    }
}

/// The calling thread's context, or 107002.
pub fn current() -> Answer<Arc<Context>> {
    let context = CURRENT.with_borrow(Clone::clone);
    let context = context.filter(|context| context.alive()).ok_or_else(|| {
        Refusal::new(
            codes::CONTEXT_NULL,
            "this thread has no context; call aclrtSetDevice or aclrtSetCurrentContext",
        )
    })?;
    context.device.usable()?;
    Ok(context)
}

/// Makes a context current for the calling thread.
pub fn set_current(context: &Arc<Context>) {
    CURRENT.with_borrow_mut(|current| *current = Some(Arc::clone(context)));
}

fn drop_current_if(context: &Context) {
    CURRENT.with_borrow_mut(|current| {
        if current.as_ref().is_some_and(|current| current.handle == context.handle) {
            *current = None;
        }
    });
}

/// Finds a context by its handle.
pub fn find(handle: *mut c_void) -> Answer<Arc<Context>> {
    machine()
        .contexts
        .get(handle)
        .ok_or_else(|| Refusal::new(codes::PARAM_INVALID, "the context handle is null or was destroyed"))
}

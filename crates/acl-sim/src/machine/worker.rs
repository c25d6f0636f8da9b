//! The thread of a stream: takes tasks, runs them, notes how they ended.
//!
//! Always holds: a panic in a task is a failure of that task; an aborted task's outcome is forgotten, because
//! whoever synchronised already heard of the abort.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use super::event::Waited;
use super::faults::{self, Effect, Phase, Site};
use super::refusal::{Answer, Refusal};
use super::stream::{Failure, Stream};
use super::table::lock;
use super::task::{Class, Task};
use super::{codes, exception, memory};
use crate::launch::Launch;

/// How often something that hangs looks whether it was aborted.
const HANG_POLL: Duration = Duration::from_millis(1);

/// Tasks that ended since the process began, by kind.
#[derive(Default)]
pub struct Counters {
    /// Launches of operators.
    pub kernels: AtomicU64,
    /// Copies and fills.
    pub copies: AtomicU64,
    /// Graph replays.
    pub replays: AtomicU64,
    /// Tasks that failed.
    pub failures: AtomicU64,
}

/// The counters of this process.
pub static COUNTERS: Counters = Counters {
    kernels: AtomicU64::new(0),
    copies: AtomicU64::new(0),
    replays: AtomicU64::new(0),
    failures: AtomicU64::new(0),
};

thread_local! {
    static STREAM: RefCell<Option<Arc<Stream>>> = const { RefCell::new(None) };
}

/// Whether the task that runs on this thread was aborted. False on threads that are no stream's.
pub fn cancelled() -> bool {
    STREAM.with_borrow(|stream| stream.as_ref().is_some_and(|stream| stream.cancel.load(Ordering::Relaxed)))
}

/// Starts the thread of a stream.
pub fn start(stream: &Arc<Stream>) -> Answer {
    let stream = Arc::clone(stream);
    let builder = std::thread::Builder::new().name(format!("acl-stream-{}", stream.id));
    match builder.spawn(move || work(&stream)) {
        Ok(_) => Ok(()),
        Err(error) => {
            Refusal::answer(codes::NO_STREAM, format!("the host has no thread left for a stream: {error}"))
        }
    }
}

fn work(stream: &Arc<Stream>) {
    STREAM.with_borrow_mut(|current| *current = Some(Arc::clone(stream)));
    let mut state = lock(&stream.state);
    loop {
        let Some(task) = state.queue.pop_front() else {
            if state.closed {
                return;
            }
            state.parked = true;
            state = stream.ready.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.parked = false;
            continue;
        };
        state.running = true;
        drop(state);
        stream.task.fetch_add(1, Ordering::Relaxed);
        let outcome = run(stream, &task);
        drop(task);
        if let Err(failure) = &outcome {
            note_failure(stream, failure);
        }
        stream.device().pending.fetch_sub(1, Ordering::Relaxed);
        state = lock(&stream.state);
        state.running = false;
        state.ended += 1;
        let aborted = stream.cancel.swap(false, Ordering::Relaxed);
        if let Err(failure) = outcome
            && !aborted
        {
            state.failure.get_or_insert(Failure { code: failure.code, text: failure.text });
        }
        if state.waiters > 0 {
            stream.progress.notify_all();
        }
    }
}

/// How a task failed: the code of its own, and the one its stream shows (they differ in a graph).
#[derive(Debug, Clone)]
pub struct TaskFailure {
    /// What the synchronisation gives.
    pub code: i32,
    /// What went wrong on the device.
    pub root: i32,
    /// The whole story.
    pub text: String,
    /// The memory it concerns.
    pub range: Option<(usize, usize)>,
}

impl TaskFailure {
    fn new(stream: &Stream, what: &str, code: i32, range: Option<(usize, usize)>) -> Self {
        let row = codes::row(code);
        let (name, meaning) = row.map_or(("UNKNOWN", "unknown code"), |row| (row.name, row.meaning));
        let text = format!(
            "E{code}: device {}, stream {}, task {} ({what}) failed, code {code} ({name}): {meaning}",
            stream.device().id,
            stream.id,
            stream.task.load(Ordering::Relaxed)
        );
        Self { code, root: code, text, range }
    }
}

fn note_failure(stream: &Arc<Stream>, failure: &TaskFailure) {
    if stream.cancel.load(Ordering::Relaxed) {
        return;
    }
    COUNTERS.failures.fetch_add(1, Ordering::Relaxed);
    stream.device().note_fault(failure.root, failure.range);
    exception::raise(stream, failure.root);
    if stream.stop_on_failure.load(Ordering::Relaxed) || failure.root == codes::DEVICE_MEM_ERROR {
        stream.context.stop(failure.code);
    }
}

fn run(stream: &Arc<Stream>, task: &Task) -> Result<(), TaskFailure> {
    match task {
        Task::Work(class, launch) => execute(stream, *class, launch, Phase::Eager),
        Task::Wait(event, ticket, limit) => waited(stream, event.wait(*ticket, *limit, &stream.cancel)),
        Task::AwaitFlag(event, lower, limit) => {
            waited(stream, event.wait_flag(*lower, *limit, &stream.cancel))
        }
        Task::Record(..) | Task::Raise(_) | Task::Lower(_) | Task::Update(..) => {
            task.keep_books();
            Ok(())
        }
        Task::Replay(replay) => {
            COUNTERS.replays.fetch_add(1, Ordering::Relaxed);
            let site = Site { class: faults::SiteClass::Replay, ..site(stream, "replay", Phase::Replay) };
            let effect = faults::at_run(&site);
            let outcome = suffer(stream, "replay", effect, &[], || Ok(())).and_then(|()| replay.run(stream));
            outcome.map_err(|failure| TaskFailure {
                code: codes::MODEL_EXECUTE,
                text: format!(
                    "graph {} failed on stream {}; root cause: {}",
                    replay.graph().id,
                    stream.id,
                    failure.text
                ),
                ..failure
            })
        }
    }
}

/// What a wait means for the task that made it.
pub fn waited(stream: &Stream, waited: Waited) -> Result<(), TaskFailure> {
    match waited {
        Waited::Reached | Waited::Cancelled => Ok(()),
        Waited::Late => Err(TaskFailure::new(stream, "event wait", codes::WAIT_TIMEOUT, None)),
    }
}

fn site<'a>(stream: &Stream, operator: &'a str, phase: Phase) -> Site<'a> {
    Site {
        class: faults::SiteClass::Operator,
        operator,
        device: stream.device().id,
        stream: Some(stream.id),
        phase,
    }
}

/// Runs one launch, with whatever the fault script has for it.
pub fn execute(stream: &Arc<Stream>, class: Class, launch: &Launch, phase: Phase) -> Result<(), TaskFailure> {
    let counter = if class == Class::Kernel { &COUNTERS.kernels } else { &COUNTERS.copies };
    counter.fetch_add(1, Ordering::Relaxed);
    let effect = if faults::armed() {
        let kind = match class {
            Class::Kernel => faults::SiteClass::Operator,
            Class::Memcpy => faults::SiteClass::Memcpy,
            Class::Other => faults::SiteClass::Other,
        };
        faults::at_run(&Site { class: kind, ..site(stream, launch.operator, phase) })
    } else {
        None
    };
    suffer(stream, launch.operator, effect, &launch.outputs, || {
        if class == Class::Kernel {
            for (address, bytes) in &launch.outputs {
                if *bytes > 0 && !memory::is_device_range(*address, *bytes) {
                    return Err(codes::AICORE_EXCEPTION);
                }
            }
        }
        catch_unwind(AssertUnwindSafe(|| (launch.work)())).unwrap_or(Err(codes::AICORE_EXCEPTION))
    })
}

/// Runs `work` under an effect of the fault script.
fn suffer(
    stream: &Arc<Stream>,
    what: &str,
    effect: Option<Effect>,
    outputs: &[(usize, usize)],
    work: impl FnOnce() -> Result<(), i32>,
) -> Result<(), TaskFailure> {
    let fail = |code| TaskFailure::new(stream, what, code, outputs.first().copied());
    let Some(effect) = effect else { return work().map_err(fail) };
    effect.pass_time(HANG_POLL, || stream.cancel.load(Ordering::Relaxed));
    if stream.cancel.load(Ordering::Relaxed) {
        return Ok(());
    }
    if let Some((code, resets)) = effect.loses_device() {
        stream.device().lose(code, resets);
        return Err(fail(code));
    }
    if let Some(code) = effect.code() {
        return Err(fail(code));
    }
    work().map_err(fail)?;
    if effect.corrupts() {
        for (address, bytes) in outputs {
            memory::flip_bits(*address, *bytes);
        }
    }
    Ok(())
}

//! Functions of the program that run on a thread of the program: subscribe, launch, process.

use std::collections::{HashMap, VecDeque};
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::task::HostFunction;
use super::{call, invalid, limit};
use crate::launch::{Launch, cancelled};
use crate::machine::refusal::{Answer, Refusal};
use crate::machine::table::lock;
use crate::machine::task::Class;
use crate::machine::{capture, codes, stream, submit};

/// Functions that wait for their thread.
const REPORTS_MAX: usize = 4096;
/// How often a stream that waits for its function looks whether it was aborted.
const POLL: Duration = Duration::from_millis(2);

/// One function to be run.
struct Report {
    function: HostFunction,
    argument: usize,
    done: Arc<AtomicBool>,
}

#[derive(Default)]
struct Inbox {
    reports: Mutex<VecDeque<Report>>,
    changed: Condvar,
}

#[derive(Default)]
struct Subscriptions {
    by_stream: HashMap<usize, u64>,
    inboxes: HashMap<u64, Arc<Inbox>>,
}

static SUBSCRIPTIONS: Mutex<Option<Subscriptions>> = Mutex::new(None);

fn with<T>(act: impl FnOnce(&mut Subscriptions) -> T) -> T {
    act(lock(&SUBSCRIPTIONS).get_or_insert_default())
}

/// Lets a thread run the functions of a stream.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtSubscribeReport(thread: u64, handle: *mut c_void) -> i32 {
    call(|| {
        let stream = stream::find(handle)?;
        with(|all| {
            if all.by_stream.contains_key(&stream.handle) {
                return Refusal::answer(
                    codes::STREAM_SUBSCRIBE,
                    format!("stream {} has a subscriber", stream.id),
                );
            }
            all.by_stream.insert(stream.handle, thread);
            all.inboxes.entry(thread).or_default();
            Ok(())
        })
    })
}

/// Ends that.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtUnSubscribeReport(thread: u64, handle: *mut c_void) -> i32 {
    call(|| {
        let stream = stream::find(handle)?;
        with(|all| {
            if all.by_stream.get(&stream.handle) != Some(&thread) {
                let detail = format!("the thread is not subscribed to stream {}", stream.id);
                return Refusal::answer(codes::THREAD_SUBSCRIBE, detail);
            }
            all.by_stream.remove(&stream.handle);
            if !all.by_stream.values().any(|other| *other == thread) {
                all.inboxes.remove(&thread);
            }
            Ok(())
        })
    })
}

/// Runs a function on the subscribed thread; a blocking one holds the stream up until it is done.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtLaunchCallback(
    function: Option<HostFunction>,
    argument: *mut c_void,
    block: i32,
    handle: *mut c_void,
) -> i32 {
    call(|| {
        let Some(function) = function else { return invalid("the function is null") };
        if !(0..=1).contains(&block) {
            return invalid("the kind is 0 (does not block) or 1 (blocks)");
        }
        let stream = stream::find(handle)?;
        capture::forbid_stream(&stream, "callback")?;
        let inbox = with(|all| {
            let thread = all.by_stream.get(&stream.handle)?;
            all.inboxes.get(thread).cloned()
        });
        let Some(inbox) = inbox else {
            let detail = format!("stream {} has no subscriber; call aclrtSubscribeReport first", stream.id);
            return Refusal::answer(codes::STREAM_SUBSCRIBE, detail);
        };
        let argument = argument as usize;
        let work = move || {
            let done = Arc::new(AtomicBool::new(false));
            let mut reports = lock(&inbox.reports);
            while reports.len() >= REPORTS_MAX && !cancelled() {
                reports = inbox.changed.wait_timeout(reports, POLL).unwrap_or_else(PoisonError::into_inner).0;
            }
            reports.push_back(Report { function, argument, done: Arc::clone(&done) });
            inbox.changed.notify_all();
            while block == 1 && !done.load(Ordering::Acquire) && !cancelled() {
                reports = inbox.changed.wait_timeout(reports, POLL).unwrap_or_else(PoisonError::into_inner).0;
            }
            Ok(())
        };
        let launch =
            Launch { operator: "callback", updatable: false, outputs: Vec::new(), work: Arc::new(work) };
        submit::work(&stream, Class::Other, launch)
    })
}

fn process(ms: i32) -> Answer {
    let limit = limit(ms)?;
    // SAFETY: `pthread_self` takes nothing and cannot fail.
    let thread = unsafe { libc::pthread_self() } as u64;
    let Some(inbox) = with(|all| all.inboxes.get(&thread).cloned()) else {
        return Refusal::answer(codes::THREAD_SUBSCRIBE, "this thread is subscribed to no stream");
    };
    let end = limit.map(|limit| Instant::now() + limit);
    let mut reports = lock(&inbox.reports);
    loop {
        if let Some(report) = reports.pop_front() {
            drop(reports);
            (report.function)(report.argument as *mut c_void);
            report.done.store(true, Ordering::Release);
            inbox.changed.notify_all();
            return Ok(());
        }
        let left = end.map(|end| end.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            return Refusal::answer(codes::REPORT_TIMEOUT, format!("no callback came in {ms} ms"));
        }
        let pause = left.unwrap_or(Duration::from_secs(1));
        reports = inbox.changed.wait_timeout(reports, pause).unwrap_or_else(PoisonError::into_inner).0;
    }
}

/// Runs the next function of this thread's streams, waiting for it no longer than `ms`.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtProcessReport(ms: i32) -> i32 {
    call(|| process(ms))
}

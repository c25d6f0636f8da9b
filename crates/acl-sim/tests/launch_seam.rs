//! The seam between operators and the runtime, driven by launches made here: what a program cannot see from
//! C.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot prepare has failed"
)]
#![allow(unsafe_code, reason = "device memory is reached through raw addresses")]

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use acl_sim::abi::{capture, context, copy, device, error, event, memory, stream, update};
use acl_sim::launch::{Launch, cancelled, current_device, submit};

/// Devices belong to the process, so tests take turns.
static TURN: Mutex<()> = Mutex::new(());

/// A stream on device 0, reset at the end.
struct Bench {
    stream: *mut c_void,
    _turn: MutexGuard<'static, ()>,
}

impl Bench {
    fn new() -> Self {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        assert_eq!(device::aclrtSetDevice(0), 0);
        Self { stream: make(|out| stream::aclrtCreateStream(out)), _turn: turn }
    }

    fn wait(&self) -> i32 {
        stream::aclrtSynchronizeStream(self.stream)
    }

    fn capture(&self, act: impl FnOnce()) -> (i32, *mut c_void) {
        assert_eq!(capture::aclmdlRICaptureBegin(self.stream, 2), 0);
        act();
        let mut graph = null_mut();
        (capture::aclmdlRICaptureEnd(self.stream, &raw mut graph), graph)
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        device::aclrtResetDeviceForce(0);
    }
}

fn make(call: impl FnOnce(*mut *mut c_void) -> i32) -> *mut c_void {
    let mut out = null_mut();
    assert_eq!(call(&raw mut out), 0);
    out
}

fn launch(operator: &'static str, work: impl Fn() -> Result<(), i32> + Send + Sync + 'static) -> Launch {
    Launch { operator, updatable: true, outputs: Vec::new(), work: Arc::new(work) }
}

fn counting(counter: &Arc<AtomicUsize>, amount: usize) -> Launch {
    let counter = Arc::clone(counter);
    launch("aclnnCount", move || {
        counter.fetch_add(amount, Ordering::SeqCst);
        Ok(())
    })
}

#[test]
fn failures_show_at_the_synchronisation_and_once() {
    let bench = Bench::new();
    assert_eq!(submit(bench.stream, launch("aclnnBad", || Err(507_035))), 0);
    assert_eq!(submit(bench.stream, launch("aclnnWorse", || panic!("kernels may panic"))), 0);
    assert_eq!(bench.wait(), 507_035);
    assert_eq!(bench.wait(), 0);
    assert_eq!(submit(bench.stream, launch("aclnnWorse", || panic!("kernels may panic"))), 0);
    assert_eq!(bench.wait(), 507_015);
}

#[test]
fn an_output_outside_device_memory_is_an_exception_and_the_kernel_does_not_run() {
    let bench = Bench::new();
    let ran = Arc::new(AtomicUsize::new(0));
    let block = make(|out| memory::aclrtMalloc(out, 64, 0)) as usize;
    let with = |outputs| Launch { outputs, ..counting(&ran, 1) };
    assert_eq!(submit(bench.stream, with(vec![(block, 64)])), 0);
    assert_eq!(bench.wait(), 0);
    assert_eq!(submit(bench.stream, with(vec![(block, 64), (block + 64, 64)])), 0);
    assert_eq!(bench.wait(), 507_015);
    assert_eq!(memory::aclrtFree(block as *mut c_void), 0);
    assert_eq!(submit(bench.stream, with(vec![(block, 64)])), 0);
    assert_eq!(bench.wait(), 507_015, "the block was freed");
    assert_eq!(ran.load(Ordering::SeqCst), 1);
}

#[test]
fn a_freed_block_stays_readable_while_the_device_has_work() {
    let bench = Bench::new();
    let block = make(|out| memory::aclrtMalloc(out, 1 << 20, 0)) as usize;
    assert_eq!(copy::aclrtMemset(block as *mut c_void, 1 << 20, 7, 1 << 20), 0);
    let go = Arc::new(AtomicBool::new(false));
    let (gate, seen) = (Arc::clone(&go), Arc::new(AtomicUsize::new(0)));
    let told = Arc::clone(&seen);
    let work = move || {
        while !gate.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        // SAFETY: freed blocks stay mapped while their device has work, which is what this test is about.
        told.store(usize::from(unsafe { *((block + 4096) as *const u8) }), Ordering::SeqCst);
        Ok(())
    };
    assert_eq!(submit(bench.stream, launch("aclnnLate", work)), 0);
    assert_eq!(memory::aclrtFree(block as *mut c_void), 0);
    go.store(true, Ordering::SeqCst);
    assert_eq!(bench.wait(), 0);
    assert_eq!(seen.load(Ordering::SeqCst), 7);
}

#[test]
fn a_graph_runs_its_launches_again_and_none_at_capture() {
    let bench = Bench::new();
    let ran = Arc::new(AtomicUsize::new(0));
    let (code, graph) = bench.capture(|| {
        for amount in [1, 10] {
            assert_eq!(submit(bench.stream, counting(&ran, amount)), 0);
        }
    });
    assert_eq!(code, 0);
    assert_eq!(ran.load(Ordering::SeqCst), 0);
    for _ in 0..3 {
        assert_eq!(capture::aclmdlRIExecuteAsync(graph, bench.stream), 0);
    }
    assert_eq!(bench.wait(), 0);
    assert_eq!(ran.load(Ordering::SeqCst), 33);
    assert_eq!(capture::aclmdlRIDestroy(graph), 0);
}

#[test]
fn a_failure_in_a_graph_stops_that_replay_and_names_its_cause() {
    let bench = Bench::new();
    let ran = Arc::new(AtomicUsize::new(0));
    let (code, graph) = bench.capture(|| {
        assert_eq!(submit(bench.stream, launch("aclnnBad", || Err(507_015))), 0);
        assert_eq!(submit(bench.stream, counting(&ran, 1)), 0);
    });
    assert_eq!(code, 0);
    while !error::aclGetRecentErrMsg().is_null() {}
    assert_eq!(capture::aclmdlRIExecuteAsync(graph, bench.stream), 0);
    assert_eq!(bench.wait(), 507_011);
    // SAFETY: the text was just returned, and this thread makes no call before it is read.
    let text =
        unsafe { std::ffi::CStr::from_ptr(error::aclGetRecentErrMsg()) }.to_string_lossy().into_owned();
    assert!(text.contains("aclnnBad") && text.contains("code 507015"), "{text}");
    assert_eq!(ran.load(Ordering::SeqCst), 0);
}

#[test]
fn what_cannot_be_updated_is_refused_in_a_group_and_breaks_the_capture() {
    let bench = Bench::new();
    let ran = Arc::new(AtomicUsize::new(0));
    let (code, _) = bench.capture(|| {
        assert_eq!(update::aclmdlRICaptureTaskGrpBegin(bench.stream), 0);
        assert_eq!(submit(bench.stream, Launch { updatable: false, ..counting(&ran, 1) }), 207_019);
        assert_eq!(submit(bench.stream, counting(&ran, 1)), 507_903);
    });
    assert_eq!(code, 507_903);
}

#[test]
fn an_update_wants_the_same_operator() {
    let bench = Bench::new();
    let ran = Arc::new(AtomicUsize::new(0));
    let mut group = null_mut();
    let (code, graph) = bench.capture(|| {
        assert_eq!(update::aclmdlRICaptureTaskGrpBegin(bench.stream), 0);
        assert_eq!(submit(bench.stream, counting(&ran, 1)), 0);
        assert_eq!(update::aclmdlRICaptureTaskGrpEnd(bench.stream, &raw mut group), 0);
    });
    assert_eq!(code, 0);
    assert_eq!(update::aclmdlRICaptureTaskUpdateBegin(bench.stream, group), 0);
    assert_eq!(submit(bench.stream, launch("aclnnOther", || Ok(()))), 507_009);
    assert_eq!(submit(bench.stream, counting(&ran, 100)), 0);
    assert_eq!(submit(bench.stream, counting(&ran, 100)), 107_040, "one more than the group has");
    assert_eq!(update::aclmdlRICaptureTaskUpdateEnd(bench.stream), 0);
    assert_eq!(capture::aclmdlRIExecuteAsync(graph, bench.stream), 0);
    assert_eq!(bench.wait(), 0);
    assert_eq!(ran.load(Ordering::SeqCst), 100);
    assert_eq!(capture::aclmdlRIDestroy(graph), 0);
    assert_eq!(
        update::aclmdlRICaptureTaskUpdateBegin(bench.stream, group),
        107_017,
        "it went with its graph"
    );
}

#[test]
fn a_lane_that_waits_outside_does_not_hold_up_the_others() {
    let bench = Bench::new();
    let side = make(|out| stream::aclrtCreateStream(out));
    let outside = make(|out| stream::aclrtCreateStream(out));
    let [fork, join] = [(); 2].map(|()| make(|out| event::aclrtCreateEventExWithFlag(out, 1)));
    let [asked, answered] = [(); 2].map(|()| make(|out| event::aclrtCreateEventWithFlag(out, 0x20)));
    let ran = Arc::new(AtomicUsize::new(0));
    let (code, graph) = bench.capture(|| {
        assert_eq!(event::aclrtRecordEvent(fork, bench.stream), 0);
        assert_eq!(event::aclrtStreamWaitEvent(side, fork), 0);
        // The first lane waits for an answer; the side lane, captured later, asks the question.
        assert_eq!(event::aclrtStreamWaitEvent(bench.stream, answered), 0);
        assert_eq!(event::aclrtRecordEvent(asked, side), 0);
        assert_eq!(event::aclrtRecordEvent(join, side), 0);
        assert_eq!(event::aclrtStreamWaitEvent(bench.stream, join), 0);
        assert_eq!(submit(bench.stream, counting(&ran, 1)), 0);
    });
    assert_eq!(code, 0);
    assert_eq!(event::aclrtStreamWaitEvent(outside, asked), 0);
    assert_eq!(event::aclrtRecordEvent(answered, outside), 0);
    assert_eq!(capture::aclmdlRIExecuteAsync(graph, bench.stream), 0);
    assert_eq!(bench.wait(), 0);
    assert_eq!(ran.load(Ordering::SeqCst), 1);
}

#[test]
fn an_abort_reaches_a_kernel_that_asks() {
    let bench = Bench::new();
    let started = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&started);
    let waiting = launch("aclnnPeer", move || {
        told.store(true, Ordering::SeqCst);
        while !cancelled() {
            std::thread::yield_now();
        }
        Err(507_048)
    });
    assert_eq!(submit(bench.stream, waiting), 0);
    while !started.load(Ordering::SeqCst) {
        std::thread::yield_now();
    }
    assert_eq!(stream::aclrtStreamAbort(bench.stream), 0);
    assert_eq!(bench.wait(), 0, "what an aborted task ends with is nobody's failure");
    assert!(!cancelled());
}

#[test]
fn the_null_stream_is_the_default_stream_of_the_context() {
    let bench = Bench::new();
    let ran = Arc::new(AtomicUsize::new(0));
    assert_eq!(submit(null_mut(), counting(&ran, 1)), 0);
    assert_eq!(stream::aclrtSynchronizeStream(null_mut()), 0);
    assert_eq!(ran.load(Ordering::SeqCst), 1);
    assert_eq!(current_device(), Ok(0));
    let fresh = std::thread::spawn(current_device).join().unwrap();
    assert_eq!(fresh, Err(107_002));
    let own = make(|out| context::aclrtCreateContext(out, 0));
    assert_eq!(submit(bench.stream, counting(&ran, 1)), 107_003, "a stream of another context");
    assert_eq!(context::aclrtDestroyContext(own), 0);
    assert_eq!(submit(bench.stream, counting(&ran, 1)), 107_002, "the current context was destroyed");
}

#[test]
fn work_of_many_threads_on_one_stream_all_runs() {
    let bench = Bench::new();
    let ran = Arc::new(AtomicUsize::new(0));
    let stream = bench.stream as usize;
    let threads = (0..4).map(|_| {
        let ran = Arc::clone(&ran);
        std::thread::spawn(move || {
            assert_eq!(device::aclrtSetDevice(0), 0);
            for _ in 0..500 {
                assert_eq!(submit(stream as *mut c_void, counting(&ran, 1)), 0);
            }
            assert_eq!(device::aclrtResetDevice(0), 0);
        })
    });
    for thread in threads.collect::<Vec<_>>() {
        thread.join().unwrap();
    }
    assert_eq!(bench.wait(), 0);
    assert_eq!(ran.load(Ordering::SeqCst), 2000);
}

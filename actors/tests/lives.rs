//! Lives that do not come up, do not end, or end again and again: what is waited for, what is tried once
//! more, and what ends the engine with a sentence.
#![allow(clippy::expect_used, clippy::panic, clippy::float_cmp, reason = "a test that cannot go on ends")]

mod common;

use std::time::Duration;

use common::{Setup, collect, expected, metric, start, submission, wait_until, wait_until_exhausted};
use updraft_actors::bus::{FaultRecord, GraphRecord};
use updraft_actors::{Drill, Engine, EnginePhase, GenerationError, GenerationEvent};
use updraft_core::graphs::GraphMode;
use updraft_core::recovery::{Moment, RecoveryClass};
use updraft_core::scheduler::FinishReason;
use updraft_devices::twin::{TwinFault, TwinFaults, TwinTrouble};

const STREAMS: u32 = 16;
const TOKENS: u32 = 20;
const CODE: i32 = 4711;

fn fault(class: RecoveryClass) -> TwinFault {
    TwinFault { code: CODE, class }
}

fn setup(faults: &TwinFaults) -> Setup {
    Setup { faults: faults.clone(), ..Setup::default() }
}

async fn all_streams_are_undisturbed(engine: &Engine) {
    let mut streams = Vec::new();
    for index in 0..STREAMS {
        streams.push(engine.submit(submission(index, TOKENS)).await.expect("there is room"));
    }
    let ended = futures::future::join_all(streams.into_iter().map(collect)).await;
    for (index, (tokens, end)) in ended.into_iter().enumerate() {
        assert_eq!(end, GenerationEvent::Finished(FinishReason::Length), "stream {index}");
        assert_eq!(tokens, expected(&submission(index as u32, TOKENS)), "stream {index}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_that_hangs_while_it_is_opened_is_opened_anew() {
    let faults = TwinFaults::default();
    faults.arm(Moment::Open, 0, 1, TwinTrouble::Hang(Duration::from_secs(6)));
    let engine = start(&Setup { open_deadline: Duration::from_millis(300), ..setup(&faults) }).await;
    let records = engine.bus().faults.subscribe();
    wait_until("it is noticed", async || {
        metric(&engine, "updraft_faults_total{class=\"hang\"}").await == 1.0
    })
    .await;
    let told = records.drain().find_map(|record| match record {
        FaultRecord::Lost(lost) => Some(lost.detail),
        _ => None,
    });
    assert!(told.as_ref().is_some_and(|told| told.contains("still not open after")), "{told:?}");
    wait_until("another life is up", async || engine.status().ready).await;
    all_streams_are_undisturbed(&engine).await;
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fault_that_only_sounds_like_a_deadline_is_not_waited_for() {
    for (moment, mode) in [
        (Moment::Prefill, GraphMode::None),
        (Moment::Decode, GraphMode::None),
        (Moment::Replay, GraphMode::FullDecodeOnly),
    ] {
        for trouble in [TwinTrouble::Refused, TwinTrouble::Fault] {
            let faults = TwinFaults::default();
            faults.arm(moment, 3, 1, trouble(fault(RecoveryClass::WaitMore)));
            let engine = start(&Setup { mode, ..setup(&faults) }).await;
            all_streams_are_undisturbed(&engine).await;
            assert!(!faults.is_armed(), "{moment:?}");
            let recovered = "updraft_device_recoveries_total{action=\"wait_more\"}";
            wait_until("it is told", async || metric(&engine, recovered).await == 1.0).await;
            assert_eq!(metric(&engine, "updraft_executor_epoch").await, 1.0, "the life went on: {moment:?}");
            engine.stop().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_that_a_hung_thread_holds_costs_no_device() {
    let faults = TwinFaults::default();
    faults.make_memory_tight();
    let stall_after = Duration::from_millis(200);
    let engine = start(&Setup { stall_after, ..setup(&faults) }).await;
    wait_until("it is ready", async || engine.status().ready).await;
    // Long enough for more than one try beside the hung thread.
    engine.drills().arm(Drill::Hang(Duration::from_secs(6)));
    all_streams_are_undisturbed(&engine).await;
    assert!(metric(&engine, "updraft_device_faults_total{class=\"memory\"}").await >= 1.0);
    assert_eq!(metric(&engine, "updraft_devices_retired_total").await, 0.0);
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_spare_takes_over_from_a_device_that_a_hung_thread_holds() {
    let faults = TwinFaults::default();
    faults.make_memory_tight();
    let stall_after = Duration::from_millis(200);
    let engine = start(&Setup { stall_after, ordinals: vec![0, 1], ..setup(&faults) }).await;
    wait_until("it is ready", async || engine.status().ready).await;
    engine.drills().arm(Drill::Hang(Duration::from_secs(60)));
    all_streams_are_undisturbed(&engine).await;
    let records = engine.bus().faults.subscribe();
    faults.arm(Moment::Decode, 0, 1, TwinTrouble::Fault(fault(RecoveryClass::Retry)));
    all_streams_are_undisturbed(&engine).await;
    let device = records.drain().find_map(|record| match record {
        FaultRecord::Device(record) => Some(record.fault.device),
        _ => None,
    });
    assert_eq!(device.as_deref(), Some("twin:1"));
    assert_eq!(metric(&engine, "updraft_devices_retired_total").await, 0.0);
    assert_eq!(metric(&engine, "updraft_faults_total{class=\"executor\"}").await, 0.0, "no life was tried");
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_next_life_waits_for_the_thread_of_the_one_before() {
    let faults = TwinFaults::default();
    faults.make_memory_tight();
    let stall_after = Duration::from_millis(200);
    let engine = start(&Setup { stall_after, ..setup(&faults) }).await;
    wait_until("it is ready", async || engine.status().ready).await;
    engine.drills().arm(Drill::Hang(Duration::from_millis(1_200)));
    all_streams_are_undisturbed(&engine).await;
    let page = engine.render_metrics().await;
    assert!(!page.contains("updraft_device_faults_total{class=\"memory\"} 1"), "{page}");
    assert_eq!(metric(&engine, "updraft_faults_total{class=\"hang\"}").await, 1.0);
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_never_could_be_opened_ends_the_engine_with_a_sentence() {
    for class in
        [RecoveryClass::Environment, RecoveryClass::Unsupported, RecoveryClass::Memory, RecoveryClass::Call]
    {
        let faults = TwinFaults::default();
        faults.arm(Moment::Open, 0, 1_000, TwinTrouble::Fault(fault(class)));
        let engine = start(&Setup { ordinals: vec![7, 8], ..setup(&faults) }).await;
        wait_until_exhausted(&engine).await;
        let reason = engine.failed_to_open().expect("it says why");
        assert!(reason.contains("twin:7") && reason.contains("TWIN_TROUBLE"), "{class:?}: {reason}");
        let status = engine.status();
        assert_eq!((status.phase, status.ready), (EnginePhase::Failed, false));
        assert_eq!(status.reason, &*reason);
        engine.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_that_fails_once_while_it_is_opened_is_opened_again() {
    let faults = TwinFaults::default();
    faults.arm(Moment::Open, 0, 1, TwinTrouble::Fault(fault(RecoveryClass::Device)));
    let engine = start(&setup(&faults)).await;
    wait_until("it is ready", async || engine.status().ready).await;
    assert!(engine.failed_to_open().is_none() && !faults.is_armed());
    all_streams_are_undisturbed(&engine).await;
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fault_of_the_installation_in_a_step_spends_no_spare() {
    for class in [RecoveryClass::Environment, RecoveryClass::Unsupported] {
        let faults = TwinFaults::default();
        let engine = start(&Setup { ordinals: vec![0, 1], ..setup(&faults) }).await;
        let records = engine.bus().faults.subscribe();
        faults.arm(Moment::Decode, 2, 1_000, TwinTrouble::Fault(fault(class)));
        let stream = engine.submit(submission(0, 200)).await.expect("there is room");
        let (_, end) = collect(stream).await;
        let GenerationEvent::Failed(GenerationError::OutOfService { reason, .. }) = end else {
            panic!("it ended with {end:?}");
        };
        assert!(reason.contains("twin:0") && reason.contains("installation"), "{reason}");
        let retired: Vec<_> =
            records.drain().filter(|record| matches!(record, FaultRecord::Retired { .. })).collect();
        assert_eq!(retired, [FaultRecord::Retired { ordinal: 0, replaced_by: None }]);
        engine.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_first_capture_that_fails_says_why() {
    let faults = TwinFaults::default();
    // It is opened slowly enough for this test to listen.
    faults.arm(Moment::Open, 0, 1, TwinTrouble::Hang(Duration::from_millis(500)));
    faults.arm(Moment::Capture, 0, 1, TwinTrouble::Fault(fault(RecoveryClass::Graph)));
    let engine = start(&Setup { mode: GraphMode::FullDecodeOnly, ..setup(&faults) }).await;
    let records = engine.bus().graphs.subscribe();
    wait_until("it is ready", async || engine.status().ready).await;
    let detail = records.drain().find_map(|record| match record {
        GraphRecord::CaptureFailed { detail, .. } => Some(detail),
        _ => None,
    });
    assert!(detail.as_ref().is_some_and(|detail| detail.contains("TWIN_TROUBLE")), "{detail:?}");
    engine.stop().await;
}

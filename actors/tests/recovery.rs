//! Faults of a device of every class, at every moment, while 32 streams run: every stream still gets exactly
//! the tokens of an undisturbed run, and what was done about it is on the metrics page.
#![allow(clippy::expect_used, clippy::panic, clippy::float_cmp, reason = "a test that cannot go on ends")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{Setup, collect, expected, metric, start, submission, wait_until};
use updraft_actors::bus::FaultRecord;
use updraft_actors::{
    DeviceFactory, Drill, Engine, EnginePhase, GenerationError, GenerationEvent, Placement, SubmitError,
};
use updraft_core::Blocks;
use updraft_core::fault::{FaultClass, STRIKES_MAX};
use updraft_core::graphs::{GraphKey, GraphMode};
use updraft_core::recovery::{DeviceFault, Moment, RecoveryClass};
use updraft_core::scheduler::FinishReason;
use updraft_core::step::StepInputs;
use updraft_devices::twin::{TwinDevice, TwinFault, TwinFaults, TwinOptions, TwinTrouble};
use updraft_devices::{Device, DeviceError, Graph, GraphCost, MemoryUse, Progress, Properties, Stream};

const STREAMS: u32 = 32;
const TOKENS: u32 = 30;
const CODE: i32 = 4711;

const CLASSES: [RecoveryClass; 14] = [
    RecoveryClass::Call,
    RecoveryClass::Environment,
    RecoveryClass::Unsupported,
    RecoveryClass::Memory,
    RecoveryClass::Retry,
    RecoveryClass::WaitMore,
    RecoveryClass::Graph,
    RecoveryClass::GraphDead,
    RecoveryClass::Stream,
    RecoveryClass::Device,
    RecoveryClass::DeviceMemory,
    RecoveryClass::Remote,
    RecoveryClass::Process,
    RecoveryClass::Unclear,
];

fn trouble(class: RecoveryClass) -> TwinTrouble {
    TwinTrouble::Fault(TwinFault { code: CODE, class })
}

fn setup(faults: &TwinFaults, mode: GraphMode) -> Setup {
    Setup { faults: faults.clone(), mode, ..Setup::default() }
}

/// Runs 32 streams to their ends and compares every token.
async fn all_streams_are_undisturbed(engine: &Engine, what: &str) {
    let mut streams = Vec::new();
    for index in 0..STREAMS {
        streams.push(engine.submit(submission(index, TOKENS)).await.expect("there is room"));
    }
    let ended = futures::future::join_all(streams.into_iter().map(collect)).await;
    for (index, (tokens, end)) in ended.into_iter().enumerate() {
        assert_eq!(end, GenerationEvent::Finished(FinishReason::Length), "stream {index}, {what}");
        assert_eq!(tokens, expected(&submission(index as u32, TOKENS)), "stream {index}, {what}");
    }
}

/// One fault of each class at a moment; each on an engine of its own.
async fn a_fault_of_every_class(moment: Moment, mode: GraphMode) {
    for class in CLASSES {
        let what = format!("{class:?} in {moment:?}");
        let faults = TwinFaults::default();
        faults.arm(moment, 3 * u32::from(moment != Moment::Capture), 1, trouble(class));
        let engine = start(&setup(&faults, mode)).await;
        let records = engine.bus().faults.subscribe();
        all_streams_are_undisturbed(&engine, &what).await;
        assert!(!faults.is_armed(), "the fault never came: {what}");
        let label = format!("updraft_device_faults_total{{class=\"{}\"}}", class.as_str());
        wait_until(&what, async || metric(&engine, &label).await == 1.0).await;
        // A capture before anything was served may have been told before this test listened.
        let device = records.drain().find_map(|record| match record {
            FaultRecord::Device(record) => Some(record),
            _ => None,
        });
        if let Some(record) = device.filter(|_| moment != Moment::Capture) {
            assert_eq!((record.fault.code, record.fault.class, record.moment), (CODE, class, moment));
            assert!(record.recovered_micros.is_some(), "{what}");
        }
        engine.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn faults_in_a_prefill_cost_nobody_a_token() {
    a_fault_of_every_class(Moment::Prefill, GraphMode::None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn faults_in_a_decode_step_cost_nobody_a_token() {
    a_fault_of_every_class(Moment::Decode, GraphMode::None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn faults_in_a_capture_cost_nobody_a_token() {
    a_fault_of_every_class(Moment::Capture, GraphMode::FullDecodeOnly).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn faults_in_a_replay_cost_nobody_a_token() {
    a_fault_of_every_class(Moment::Replay, GraphMode::FullAndPiecewise).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_that_dies_of_every_capture_serves_without_graphs() {
    let faults = TwinFaults::default();
    faults.arm(Moment::Capture, 0, 1_000, trouble(RecoveryClass::Device));
    let engine = start(&setup(&faults, GraphMode::FullDecodeOnly)).await;
    let lost = async || metric(&engine, "updraft_faults_total{class=\"executor\"}").await;
    wait_until("it has died of captures", async || lost().await >= 3.0).await;
    all_streams_are_undisturbed(&engine, "without graphs").await;
    assert_eq!(lost().await, 3.0, "it was not tried again");
    assert_eq!(metric(&engine, "updraft_graph_hits_total").await, 0.0);
    assert!(engine.status().ready);
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_graph_whose_capture_hangs_is_done_without() {
    let faults = TwinFaults::default();
    // The third capture: the first two are made before the device is up.
    faults.arm(Moment::Capture, 2, 1, TwinTrouble::Hang(Duration::from_secs(4)));
    let stall_after = Duration::from_millis(150);
    let engine = start(&Setup { stall_after, ..setup(&faults, GraphMode::FullDecodeOnly) }).await;
    wait_until("the capture hangs", async || {
        metric(&engine, "updraft_faults_total{class=\"hang\"}").await == 1.0
    })
    .await;
    all_streams_are_undisturbed(&engine, "after a capture that hung").await;
    wait_until("the other graphs are captured", async || {
        metric(&engine, "updraft_graph_captures_total{outcome=\"captured\"}").await >= 12.0
    })
    .await;
    assert_eq!(metric(&engine, "updraft_faults_total{class=\"hang\"}").await, 1.0);
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_that_fails_again_and_again_strikes_no_request() {
    let faults = TwinFaults::default();
    for skip in [2, 5, 8] {
        faults.arm(Moment::Prefill, skip, 1, trouble(RecoveryClass::Device));
    }
    let engine = start(&setup(&faults, GraphMode::None)).await;
    all_streams_are_undisturbed(&engine, "three faults of the device").await;
    assert!(!faults.is_armed());
    assert_eq!(metric(&engine, "updraft_device_recoveries_total{action=\"rebuild_group\"}").await, 3.0);
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_that_takes_longer_than_its_deadline_is_waited_for() {
    let faults = TwinFaults::default();
    faults.arm(Moment::Decode, 3, 1, TwinTrouble::Hang(Duration::from_millis(150)));
    let deadline = Duration::from_millis(100);
    let engine = start(&Setup { step_deadline: deadline, ..setup(&faults, GraphMode::None) }).await;
    all_streams_are_undisturbed(&engine, "a slow step").await;
    assert_eq!(metric(&engine, "updraft_device_recoveries_total{action=\"wait_more\"}").await, 1.0);
    assert_eq!(metric(&engine, "updraft_executor_epoch").await, 1.0, "the life went on");
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worn_out_device_is_replaced_by_a_spare() {
    let faults = TwinFaults::default();
    for skip in [3, 10] {
        faults.arm(Moment::Decode, skip, 1, trouble(RecoveryClass::DeviceMemory));
    }
    let engine = start(&Setup { ordinals: vec![0, 1], ..setup(&faults, GraphMode::None) }).await;
    let records = engine.bus().faults.subscribe();
    all_streams_are_undisturbed(&engine, "a worn-out device").await;
    let retired = FaultRecord::Retired { ordinal: 0, replaced_by: Some(1) };
    assert!(records.drain().any(|record| record == retired));
    assert!(engine.status().ready);
    assert_eq!(metric(&engine, "updraft_devices_retired_total").await, 1.0);
    assert_eq!(metric(&engine, "updraft_out_of_service").await, 0.0);
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_spare_the_engine_goes_out_of_service_and_says_why() {
    let faults = TwinFaults::default();
    for skip in [3, 10] {
        faults.arm(Moment::Decode, skip, 1, trouble(RecoveryClass::DeviceMemory));
    }
    let engine = start(&setup(&faults, GraphMode::None)).await;
    let mut streams = Vec::new();
    for index in 0..STREAMS {
        streams.push(engine.submit(submission(index, 900)).await.expect("there is room"));
    }
    for (tokens, end) in futures::future::join_all(streams.into_iter().map(collect)).await {
        assert!(tokens.len() < 900);
        let GenerationEvent::Failed(GenerationError::OutOfService { reason, .. }) = end else {
            panic!("a stream ended with {end:?}");
        };
        assert!(reason.contains("twin:0") && reason.contains("TWIN_TROUBLE"), "{reason}");
    }
    let status = engine.status();
    assert_eq!((status.phase, status.ready), (EnginePhase::Retired, false));
    assert!(status.reason.contains("no spare is left"), "{}", status.reason);
    // The loss of another actor changes nothing about it, and the process stays.
    engine.kill(FaultClass::Scheduler);
    wait_until("it is counted", async || {
        metric(&engine, "updraft_faults_total{class=\"scheduler\"}").await == 1.0
    })
    .await;
    let refused = engine.submit(submission(0, 5)).await.err();
    let Some(SubmitError::OutOfService { reason, retry_after_secs }) = refused else {
        panic!("a submission ended with {refused:?}");
    };
    assert!(reason.contains("twin:0") && retry_after_secs > 0, "{reason}");
    assert_eq!(metric(&engine, "updraft_out_of_service").await, 1.0);
    assert_eq!(engine.load().sequences, 0, "nobody is left inside");
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_canary_finds_a_graph_that_computes_something_else() {
    let faults = TwinFaults::default();
    faults.arm(Moment::Replay, 7, 1, TwinTrouble::WrongResult);
    let engine = start(&Setup { verify_replay: 1, ..setup(&faults, GraphMode::FullDecodeOnly) }).await;
    all_streams_are_undisturbed(&engine, "a wrong replay").await;
    assert!(!faults.is_armed());
    assert_eq!(metric(&engine, "updraft_graph_checks_total{result=\"different\"}").await, 1.0);
    assert!(metric(&engine, "updraft_graph_checks_total{result=\"same\"}").await > 0.0);
    assert_eq!(metric(&engine, "updraft_graph_retirements_total{why=\"mismatch\"}").await, 1.0);
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_canary_a_wrong_replay_shows_in_the_tokens() {
    let faults = TwinFaults::default();
    faults.arm(Moment::Replay, 7, 1, TwinTrouble::WrongResult);
    let engine = start(&setup(&faults, GraphMode::FullDecodeOnly)).await;
    let mut wrong = 0;
    let mut streams = Vec::new();
    for index in 0..STREAMS {
        streams.push(engine.submit(submission(index, TOKENS)).await.expect("there is room"));
    }
    for (index, (tokens, _)) in
        futures::future::join_all(streams.into_iter().map(collect)).await.into_iter().enumerate()
    {
        wrong += u32::from(tokens != expected(&submission(index as u32, TOKENS)));
    }
    assert!(wrong > 0, "the trouble is none, so the canary has nothing to find");
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_of_a_life_that_is_over_are_thrown_away_and_counted() {
    let stall_after = Duration::from_millis(200);
    let engine = start(&Setup { stall_after, ..Setup::default() }).await;
    engine.drills().arm(Drill::Hang(Duration::from_millis(700)));
    all_streams_are_undisturbed(&engine, "a hung thread").await;
    wait_until("the hung thread answers", async || metric(&engine, "updraft_stale_plans_total").await >= 1.0)
        .await;
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn graphs_come_back_after_a_rebuild() {
    for class in [RecoveryClass::Stream, RecoveryClass::Device] {
        let faults = TwinFaults::default();
        let engine = start(&setup(&faults, GraphMode::FullDecodeOnly)).await;
        let captured = async || metric(&engine, "updraft_graph_captures_total{outcome=\"captured\"}").await;
        let held = async || metric(&engine, "updraft_graph_bytes{kind=\"decode\",rows=\"64\"}").await;
        // An idle engine captures all it wants: 1, 2, 4, 8, 16, ... 64.
        wait_until("all graphs are captured", async || captured().await == 11.0).await;
        assert!(held().await > 0.0);
        faults.arm(Moment::Replay, 3, 1, trouble(class));
        all_streams_are_undisturbed(&engine, "a rebuild").await;
        assert!(!faults.is_armed());
        wait_until("all graphs are captured again", async || captured().await == 22.0).await;
        assert!(held().await > 0.0);
        let hits = metric(&engine, "updraft_graph_hits_total").await;
        all_streams_are_undisturbed(&engine, "with the new graphs").await;
        assert!(metric(&engine, "updraft_graph_hits_total").await > hits);
        engine.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_loss_of_the_graphs_actor_disturbs_nothing() {
    let engine = start(&setup(&TwinFaults::default(), GraphMode::FullDecodeOnly)).await;
    wait_until("it is ready", async || engine.status().ready).await;
    for lost in 1..=3_u32 {
        engine.kill(FaultClass::Graphs);
        all_streams_are_undisturbed(&engine, "without the graphs actor").await;
        let label = "updraft_faults_total{class=\"graphs\"}";
        wait_until("it is counted", async || metric(&engine, label).await == f64::from(lost)).await;
        assert!(engine.status().ready);
    }
    assert_eq!(metric(&engine, "updraft_executor_epoch").await, 1.0);
    // The new actor asked what there is: nothing is captured a second time.
    let captured = async || metric(&engine, "updraft_graph_captures_total{outcome=\"captured\"}").await;
    wait_until("all graphs are captured", async || captured().await >= 11.0).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(captured().await, 11.0);
    assert!(metric(&engine, "updraft_graph_hits_total").await > 0.0);
    engine.stop().await;
}

/// A twin that fails when it is given this token several times in a row, as a kernel fails on what it is
/// given. No undisturbed stream produces such a row.
struct Poisoned(TwinDevice);

const POISON: u32 = common::VOCAB - 1;

impl Device for Poisoned {
    fn properties(&self) -> &Properties {
        self.0.properties()
    }
    fn memory(&self) -> MemoryUse {
        self.0.memory()
    }
    fn progress(&self) -> Progress {
        self.0.progress()
    }
    fn stream(&mut self) -> &mut dyn Stream {
        self
    }
    fn logits(&self, row: usize) -> &[f32] {
        self.0.logits(row)
    }
    fn graph_cost(&self, key: GraphKey) -> GraphCost {
        self.0.graph_cost(key)
    }
    fn repair(&mut self) -> Result<(), DeviceError> {
        self.0.repair()
    }
}

impl Stream for Poisoned {
    fn enqueue(&mut self, inputs: &StepInputs) -> Result<(), DeviceError> {
        if inputs.token_ids.windows(4).any(|row| row == [POISON; 4]) {
            return Err(DeviceError::Fault(Box::new(DeviceFault {
                device: self.0.properties().name.clone(),
                code: CODE,
                name: "POISON".into(),
                meaning: "a kernel failed".into(),
                class: RecoveryClass::Stream,
                operator: None,
                text: String::new(),
            })));
        }
        self.0.enqueue(inputs)
    }
    fn capture(&mut self, key: GraphKey) -> Result<Graph, DeviceError> {
        self.0.capture(key)
    }
    fn replay(&mut self, key: GraphKey, inputs: &StepInputs) -> Result<(), DeviceError> {
        self.0.replay(key, inputs)
    }
    fn forget(&mut self, key: GraphKey) {
        self.0.forget(key);
    }
    fn synchronize(&mut self, deadline: Duration) -> Result<(), DeviceError> {
        self.0.synchronize(deadline)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_make_kernels_fail_are_failed_alone_and_cost_no_device() {
    let twin = TwinOptions {
        ordinal: 0,
        vocab: common::VOCAB,
        blocks: Blocks(400),
        block_size: common::BLOCK_SIZE,
        step_time: Duration::from_micros(300),
        faults: TwinFaults::default(),
    };
    let factory: DeviceFactory = Arc::new(move |_| Ok(Box::new(Poisoned(TwinDevice::new(twin.clone())?))));
    let placement = Some(Placement::Thread(factory));
    let engine =
        start(&Setup { placement, ..setup(&TwinFaults::default(), GraphMode::FullDecodeOnly) }).await;
    let mut bad = Vec::new();
    for index in [3, 11, 20] {
        let mut poisoned = submission(index, TOKENS);
        poisoned.prompt = poisoned.prompt.iter().copied().chain([POISON; 20]).collect();
        bad.push(engine.submit(poisoned).await.expect("there is room"));
    }
    let bad = futures::future::join_all(bad.into_iter().map(collect));
    let (bad, ()) = futures::join!(bad, all_streams_are_undisturbed(&engine, "beside poison"));
    for (_, end) in bad {
        assert_eq!(end, GenerationEvent::Failed(GenerationError::Quarantined { strikes: STRIKES_MAX }));
    }
    assert_eq!(metric(&engine, "updraft_devices_retired_total").await, 0.0);
    all_streams_are_undisturbed(&engine, "after poison").await;
    engine.stop().await;
}

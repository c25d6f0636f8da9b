//! Fault drills: any actor, or the device thread, ends while 32 streams run; every stream still gets exactly
//! the tokens of an undisturbed run.
#![allow(clippy::expect_used, clippy::panic, reason = "a test that cannot go on ends")]

mod common;

use std::time::Duration;

use common::{Setup, collect, expected, start, submission};
use updraft_actors::{Drill, Engine, GenerationError, GenerationEvent};
use updraft_core::Millis;
use updraft_core::fault::{FaultClass, STRIKES_MAX};
use updraft_core::scheduler::FinishReason;
use updraft_core::step::Phase;

const STREAMS: u32 = 32;
const TOKENS: u32 = 40;

/// When the fault happens.
#[derive(Clone, Copy, Debug)]
enum Moment {
    /// Before anything was sent.
    Idle,
    /// As soon as all streams were submitted.
    Prefill,
    /// When some stream has this many tokens.
    Decode,
}

/// Runs 32 streams, lets `fault` happen at `moment`, and compares every token.
async fn drill(engine: &Engine, moment: Moment, fault: impl Fn(&Engine)) {
    if matches!(moment, Moment::Idle) {
        fault(engine);
    }
    let mut streams = Vec::new();
    for index in 0..STREAMS {
        streams.push(engine.submit(submission(index, TOKENS)).await.expect("there is room"));
    }
    if matches!(moment, Moment::Prefill) {
        fault(engine);
    }
    let mut last = streams.pop().expect("there are streams");
    let mut head = Vec::new();
    if matches!(moment, Moment::Decode) {
        while head.len() < 5 {
            match last.next().await.expect("the stream goes on") {
                GenerationEvent::Token { token, .. } => head.push(token),
                other => panic!("{other:?} before the fault"),
            }
        }
        fault(engine);
    }
    let rest = futures::future::join_all(streams.into_iter().map(collect)).await;
    for (index, (tokens, end)) in rest.into_iter().enumerate() {
        assert_eq!(end, GenerationEvent::Finished(FinishReason::Length), "stream {index}");
        assert_eq!(tokens, expected(&submission(index as u32, TOKENS)), "stream {index} at {moment:?}");
    }
    let (tail, _) = collect(last).await;
    head.extend(tail);
    assert_eq!(head, expected(&submission(STREAMS - 1, TOKENS)), "the last stream at {moment:?}");
}

async fn wait_until_ready(engine: &Engine) {
    for _ in 0..2_000 {
        if engine.status().ready {
            return;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    panic!("not ready again: {:?}", engine.status());
}

const MOMENTS: [Moment; 3] = [Moment::Idle, Moment::Prefill, Moment::Decode];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_actor_may_end_at_any_moment() {
    let engine = start(&Setup::default()).await;
    for class in [
        FaultClass::Executor,
        FaultClass::KvBlocks,
        FaultClass::Scheduler,
        FaultClass::Intake,
        FaultClass::Metrics,
        FaultClass::Supervisor,
    ] {
        for moment in MOMENTS {
            drill(&engine, moment, |engine| engine.kill(class)).await;
            wait_until_ready(&engine).await;
        }
    }
    let page = engine.render_metrics().await;
    for class in ["executor", "kv_blocks", "scheduler", "intake", "metrics", "supervisor"] {
        let line = format!("updraft_faults_total{{class=\"{class}\"}} 3");
        assert!(page.contains(&line), "{line} is not in\n{page}");
    }
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_device_thread_may_panic_in_any_phase() {
    let engine = start(&Setup::default()).await;
    for (moment, phase) in [
        (Moment::Idle, Phase::Prefill),
        (Moment::Prefill, Phase::Prefill),
        (Moment::Prefill, Phase::Decode),
        (Moment::Decode, Phase::Decode),
    ] {
        drill(&engine, moment, |engine| engine.drills().arm(Drill::PanicAt(phase))).await;
        assert!(!engine.drills().is_armed(), "the drill went off");
        wait_until_ready(&engine).await;
    }
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hung_device_is_replaced() {
    let engine = start(&Setup { stall_after: Duration::from_millis(200), ..Setup::default() }).await;
    let hang = Drill::Hang(Duration::from_secs(2));
    drill(&engine, Moment::Decode, |engine| engine.drills().arm(hang)).await;
    let page = engine.render_metrics().await;
    assert!(page.contains("updraft_faults_total{class=\"hang\"} 1"), "{page}");
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ready_tells_the_truth_while_parts_are_missing() {
    let engine = start(&Setup { restart_delay: Millis(200), ..Setup::default() }).await;
    wait_until_ready(&engine).await;
    engine.kill(FaultClass::Scheduler);
    let mut seen_unready = false;
    for _ in 0..2_000 {
        seen_unready |= !engine.status().ready;
        if seen_unready {
            break;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(seen_unready, "the loss never showed");
    wait_until_ready(&engine).await;
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_kills_the_device_is_failed_alone() {
    let engine = start(&Setup::default()).await;
    let poison = common::VOCAB - 1;
    engine.drills().arm(Drill::PanicOnToken(poison));
    let mut bad = submission(5, TOKENS);
    bad.prompt = bad.prompt.iter().copied().chain([poison]).collect();
    let bad = engine.submit(bad).await.expect("there is room");
    let others = drill(&engine, Moment::Idle, |_| {});
    let (bad, ()) = futures::join!(collect(bad), others);
    assert_eq!(bad.1, GenerationEvent::Failed(GenerationError::Quarantined { strikes: STRIKES_MAX }));
    engine.drills().disarm();
    drill(&engine, Moment::Idle, |_| {}).await;
    engine.stop().await;
}

//! What the host costs a step: how long the device waits for its next plan while 64 sequences run.
//!
//! Not a test of time, so it is ignored unless asked for; it prints a table:
//! `cargo test --release -p updraft-actors --test overhead -- --ignored --nocapture`
#![allow(clippy::expect_used, clippy::panic, reason = "a test that cannot go on ends")]

mod common;

use std::time::Duration;

use common::{Setup, collect, start, submission};

const SEQUENCES: u32 = 64;
const TOKENS: u32 = 400;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "prints a measurement"]
async fn the_device_hardly_waits() {
    let setup = Setup { step_time: Duration::from_millis(2), blocks: 4_000, ..Setup::default() };
    let engine = start(&setup).await;
    let steps = engine.bus().steps.subscribe();
    let mut streams = Vec::new();
    for index in 0..SEQUENCES {
        streams.push(engine.submit(submission(index, TOKENS)).await.expect("there is room"));
    }
    futures::future::join_all(streams.into_iter().map(collect)).await;
    let full = steps.drain().filter(|step| step.generated_tokens == SEQUENCES);
    let mut gaps: Vec<u64> = full.filter_map(|step| step.host_micros).collect();
    gaps.sort_unstable();
    assert!(!gaps.is_empty(), "no step had all sequences in it");
    let at = |percent: usize| gaps[(gaps.len() - 1) * percent / 100];
    let mean = gaps.iter().sum::<u64>() / gaps.len() as u64;
    println!("host microseconds a step at {SEQUENCES} running sequences, {} steps", gaps.len());
    println!("mean {mean}, p50 {}, p90 {}, p99 {}, most {}", at(50), at(90), at(99), at(100));
    engine.stop().await;
}

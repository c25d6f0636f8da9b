//! The same request gives the same tokens: alone, among 64, from the prefix cache, in chunks of any size, after a
//! preemption, after a lost executor, with one thread or three; greedy and seeded.
#![allow(clippy::expect_used, clippy::panic, reason = "a test that cannot go on ends")]

mod common;

use std::sync::Arc;

use common::{Setup, collect, load, start, submission};
use updraft_actors::{Drill, Engine, Submission};
use updraft_core::TokenId;
use updraft_core::fault::FaultClass;
use updraft_core::sampling::SamplingParams;
use updraft_core::step::Phase;
use updraft_devices::cpu::CpuModel;
use updraft_kernels::kv_cache::KvType;
use updraft_kernels::matrix::Precision;

const REQUESTS: u32 = 64;
const TOKENS: u32 = 24;

/// Requests of many lengths; every second one seeded, some with penalties.
fn requests(vocab: u32) -> Vec<Submission> {
    (0..REQUESTS)
        .map(|index| {
            let length = 1 + (index * 29) % 190;
            let prompt: Vec<TokenId> = (0..length).map(|at| (at * at * 7 + index * 31 + 3) % vocab).collect();
            let seeded = index % 2 == 1;
            let sampling = SamplingParams {
                temperature: if seeded { 0.8 } else { 0.0 },
                top_p: if seeded { 0.95 } else { 1.0 },
                top_k: if index % 4 == 1 { 40 } else { 0 },
                repetition_penalty: if index % 8 < 2 { 1.1 } else { 1.0 },
                seed: u64::from(index) * 977,
                max_tokens: TOKENS,
                ignore_eos: true,
                ..SamplingParams::default()
            };
            submission(&prompt, sampling)
        })
        .collect()
}

async fn one_by_one(engine: &Engine, requests: &[Submission]) -> Vec<Vec<TokenId>> {
    let mut all = Vec::new();
    for request in requests {
        all.push(collect(engine.submit(request.clone()).await.expect("there is room")).await.tokens);
    }
    all
}

/// All at once; `during` is called when the first stream has its fourth token.
async fn together(engine: &Engine, requests: &[Submission], during: impl FnOnce()) -> Vec<Vec<TokenId>> {
    let mut streams = Vec::new();
    for request in requests {
        streams.push(engine.submit(request.clone()).await.expect("there is room"));
    }
    while streams[0].output().len() < 4 {
        streams[0].next().await.expect("the stream goes on");
    }
    during();
    let head = streams[0].output().to_vec();
    let collected = futures::future::join_all(streams.into_iter().map(collect)).await;
    let mut all: Vec<_> = collected.into_iter().map(|stream| stream.tokens).collect();
    all[0].splice(0..0, head);
    all
}

fn compare(what: &str, expected: &[Vec<TokenId>], found: &[Vec<TokenId>]) {
    for (index, (expected, found)) in expected.iter().zip(found).enumerate() {
        assert_eq!(expected, found, "request {index}: {what} against alone");
    }
}

async fn matrix(model: &Arc<CpuModel>, kv: KvType) {
    let requests = requests(model.vocab() as u32);
    let base = Setup { kv, ..Setup::default() };
    let engine = start(model, &base).await;
    let alone = one_by_one(&engine, &requests).await;
    compare("in a batch of 64", &alone, &together(&engine, &requests, || {}).await);
    let kill = || engine.kill(FaultClass::Executor);
    compare("over a lost executor", &alone, &together(&engine, &requests, kill).await);
    let panic = || engine.drills().arm(Drill::PanicAt(Phase::Decode));
    compare("over a panic", &alone, &together(&engine, &requests, panic).await);
    engine.stop().await;

    for step_budget in [16, 64, 512] {
        let engine = start(model, &Setup { step_budget, ..base.clone() }).await;
        let found = together(&engine, &requests[..32], || {}).await;
        compare(&format!("in chunks of {step_budget}"), &alone[..32], &found);
        engine.stop().await;
    }
    for threads in [1, 3] {
        let engine = start(model, &Setup { threads, ..base.clone() }).await;
        compare(&format!("with {threads} threads"), &alone, &together(&engine, &requests, || {}).await);
        engine.stop().await;
    }

    let engine = start(model, &Setup { prefix_caching: true, ..base.clone() }).await;
    one_by_one(&engine, &requests).await;
    let mut hits = 0;
    for (index, request) in requests.iter().enumerate() {
        let again = collect(engine.submit(request.clone()).await.expect("there is room")).await;
        hits += again.cached;
        assert_eq!(again.tokens, alone[index], "request {index}: from the prefix cache against alone");
    }
    assert!(hits > 1_000, "only {hits} tokens came from the prefix cache");
    engine.stop().await;

    let engine = start(model, &Setup { blocks: 60, ..base }).await;
    compare("after preemptions", &alone, &together(&engine, &requests, || {}).await);
    let page = engine.render_metrics().await;
    let line = page.lines().find(|line| line.starts_with("vllm:num_preemptions_total")).expect("is there");
    assert!(!line.ends_with(" 0"), "the pool is too large for a preemption");
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn float32_with_a_sliding_window() {
    matrix(&load("mistral-swa", Precision::Float32), KvType::F32).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bfloat16_with_grouped_heads() {
    matrix(&load("qwen3-bf16", Precision::Auto), KvType::Bf16).await;
}

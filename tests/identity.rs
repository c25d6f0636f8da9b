//! The same request gives the same tokens: alone, among 64, from the prefix cache, in chunks of any size, after a
//! preemption, after a lost executor, with one thread or three, with drafts or without; greedy and seeded; with every
//! instruction set that this machine has.
#![allow(clippy::expect_used, clippy::panic, reason = "a test that cannot go on ends")]

mod common;

use std::sync::Arc;

use common::{Collected, Setup, collect, load, start, submission};
use updraft_actors::{Drill, Engine, Submission};
use updraft_core::fault::FaultClass;
use updraft_core::graphs::GraphMode;
use updraft_core::sampling::SamplingParams;
use updraft_core::scheduler::{LatencyBound, TokenLatency};
use updraft_core::speculation::{Method, NgramLengths, SpeculationConfig};
use updraft_core::step::Phase;
use updraft_core::{Millis, TokenId, Tokens};
use updraft_devices::cpu::CpuModel;
use updraft_kernels::cpu_features::Isa;
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
    // The length of a chunk then depends on how long steps take, which is never the same twice.
    let hurried = TokenLatency { bound: LatencyBound::At(Millis(1)), least: Tokens(1) };
    let engine = start(model, &Setup { token_latency: Some(hurried), ..base.clone() }).await;
    let found = together(&engine, &requests[..32], || {}).await;
    compare("in chunks that take a millisecond", &alone[..32], &found);
    engine.stop().await;
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn integers_in_the_cache_and_a_sliding_window() {
    matrix(&load("mistral-swa", Precision::Auto), KvType::Int8).await;
}

/// The same requests; every second pair of them is answered in a few tokens only, so that drafts are often right,
/// and some want log-probabilities.
fn requests_that_repeat(vocab: u32) -> Vec<Submission> {
    let repeat = |(index, request): (usize, Submission)| {
        let few = (index % 4 < 2).then(|| vec![5, 9, 17, vocab / 2]);
        let logprobs = (index % 3 == 0).then_some(2);
        let sampling = SamplingParams { allowed_token_ids: few, logprobs, ..(*request.sampling).clone() };
        Submission { sampling: Arc::new(sampling), ..request }
    };
    requests(vocab).into_iter().enumerate().map(repeat).collect()
}

async fn collect_all(engine: &Engine, requests: &[Submission], at_once: usize) -> Vec<Collected> {
    let mut all = Vec::new();
    for group in requests.chunks(at_once) {
        let streams = futures::future::join_all(group.iter().map(|each| engine.submit(each.clone()))).await;
        let streams = streams.into_iter().map(|stream| collect(stream.expect("there is room")));
        all.extend(futures::future::join_all(streams).await);
    }
    all
}

/// With drafts and without: tokens, log-probabilities and ends, bit for bit.
async fn drafts(model: &Arc<CpuModel>, kv: KvType) {
    let requests = requests_that_repeat(model.vocab() as u32);
    let base = Setup { kv, ..Setup::default() };
    let engine = start(model, &base).await;
    let alone = collect_all(&engine, &requests, 1).await;
    engine.stop().await;
    let speculation = SpeculationConfig {
        method: Method::Ngram(NgramLengths { min: 1, max: 3 }),
        drafts: Tokens(5),
        rows: Tokens(64),
    };
    let drafting = Setup { speculation: Some(speculation), ..base };
    let scarce = Setup { blocks: 60, ..drafting.clone() };
    let cached = Setup { prefix_caching: true, graphs: GraphMode::FullDecodeOnly, ..drafting.clone() };
    let chunked = Setup { step_budget: 24, ..drafting.clone() };
    let threads = Setup { threads: 3, ..drafting.clone() };
    for (what, setup, at_once, rounds) in [
        ("by itself", drafting.clone(), 1, 1),
        ("in a batch of 64", drafting, 64, 1),
        ("in a scarce pool", scarce, 64, 1),
        ("in chunks of 24", chunked, 16, 1),
        ("with 3 threads", threads, 7, 1),
        ("from the prefix cache", cached, 8, 2),
    ] {
        let engine = start(model, &setup).await;
        let mut hits = 0;
        for _ in 0..rounds {
            let found = collect_all(&engine, &requests, at_once).await;
            for (index, (expected, found)) in alone.iter().zip(found).enumerate() {
                hits += found.cached;
                let found = Collected { cached: expected.cached, ..found };
                assert_eq!(expected, &found, "request {index}: with drafts, {what}, against without");
            }
        }
        assert_eq!(hits > 1_000, rounds > 1, "{hits} tokens from the prefix cache");
        let page = engine.render_metrics().await;
        let (drafted, accepted) = (count(&page, "num_draft_tokens"), count(&page, "num_accepted_tokens"));
        assert!(accepted > 20 && drafted > accepted + 100, "{what}: {accepted} of {drafted}");
        engine.stop().await;
    }
}

/// A counter of drafts on the metrics page.
fn count(page: &str, name: &str) -> u64 {
    let name = format!("vllm:spec_decode_{name}_total{{");
    let line = page.lines().find(|line| line.starts_with(&name)).expect("is there");
    line.rsplit(' ').next().and_then(|number| number.parse().ok()).expect("is a number")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drafts_in_float32_with_a_sliding_window() {
    drafts(&load("mistral-swa", Precision::Float32), KvType::F32).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drafts_in_bfloat16_with_grouped_heads() {
    drafts(&load("qwen3-bf16", Precision::Auto), KvType::Bf16).await;
}

#[test]
fn with_every_other_instruction_set() {
    // All of it would take too long without vector instructions.
    let part = |isa| -> &'static [&'static str] { if isa == Isa::Portable { &["float32"] } else { &[] } };
    common::kernel_paths::run_again_on_each("with_every_other_instruction_set", part);
}

//! Drafts cost nobody a token: with them, every stream gets the tokens of an undisturbed run without them,
//! whatever is lost meanwhile.
#![allow(clippy::expect_used, clippy::panic, clippy::float_cmp, reason = "a test that cannot go on ends")]

mod common;

use std::sync::Arc;

use common::{Setup, collect, expected, metric, repetitive, speculation, start, submission, wait_until};
use updraft_actors::{Drill, Engine, GenerationEvent, Submission};
use updraft_core::fault::FaultClass;
use updraft_core::graphs::GraphMode;
use updraft_core::sampling::SamplingParams;
use updraft_core::scheduler::FinishReason;
use updraft_core::step::Phase;

const STREAMS: u32 = 24;
const TOKENS: u32 = 60;

fn drafting() -> Setup {
    Setup { speculation: Some(speculation()), ..Setup::default() }
}

/// Half of them repeat themselves.
fn requests() -> Vec<Submission> {
    (0..STREAMS)
        .map(|index| if index < STREAMS / 2 { repetitive(index, TOKENS) } else { submission(index, TOKENS) })
        .collect()
}

/// Runs all at once; `during` is called when the first stream has its fourth token.
async fn run(engine: &Engine, during: impl FnOnce(&Engine)) {
    let requests = requests();
    let mut streams = Vec::new();
    for request in &requests {
        streams.push(engine.submit(request.clone()).await.expect("there is room"));
    }
    while streams[0].output().len() < 4 {
        streams[0].next().await.expect("the stream goes on");
    }
    during(engine);
    let mut found = vec![streams[0].output().to_vec()];
    found.resize(requests.len(), Vec::new());
    for ((stream, found), request) in streams.into_iter().zip(found).zip(&requests) {
        let (rest, end) = collect(stream).await;
        assert_eq!(end, GenerationEvent::Finished(FinishReason::Length));
        assert_eq!([found, rest].concat(), expected(request));
    }
}

async fn count(engine: &Engine, name: &str) -> f64 {
    metric(engine, &format!("vllm:spec_decode_{name}_total{{model_name=\"twin\",engine=\"0\"}}")).await
}

async fn accepted_at(engine: &Engine, position: u32) -> f64 {
    let labels = format!("{{model_name=\"twin\",engine=\"0\",position=\"{position}\"}}");
    metric(engine, &format!("vllm:spec_decode_num_accepted_tokens_per_pos_total{labels}")).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drafts_change_no_token_and_are_counted() {
    let engine = start(&Setup { mode: GraphMode::FullDecodeOnly, ..drafting() }).await;
    assert_eq!(count(&engine, "num_drafts").await, 0.0);
    run(&engine, |_| {}).await;
    let (drafts, drafted) = (count(&engine, "num_drafts").await, count(&engine, "num_draft_tokens").await);
    let accepted = count(&engine, "num_accepted_tokens").await;
    assert!(drafts > 50.0 && drafted > drafts && drafted <= 4.0 * drafts, "{drafts}, {drafted}");
    assert!(accepted > 50.0 && accepted < drafted, "{accepted} of {drafted}");
    let mut places = Vec::new();
    for position in 0..4 {
        places.push(accepted_at(&engine, position).await);
    }
    assert_eq!(places.iter().sum::<f64>(), accepted);
    assert!(places.is_sorted_by(|first, second| first >= second) && places[3] > 0.0, "{places:?}");
    // Tokens that come together are one gap, however many they are.
    let gaps =
        metric(&engine, "vllm:inter_token_latency_seconds_count{model_name=\"twin\",engine=\"0\"}").await;
    let tokens = f64::from(STREAMS * (TOKENS - 1));
    assert!(
        gaps >= tokens - accepted && gaps < tokens,
        "{gaps} gaps, {accepted} of {tokens} tokens were drafts"
    );
    // Steps with drafts are no decode steps.
    assert!(metric(&engine, "updraft_graph_eager_steps_total{reason=\"verify\"}").await > 0.0);
    engine.stop().await;
    let plain = start(&Setup::default()).await;
    assert!(!plain.render_metrics().await.contains("spec_decode"));
    plain.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_is_lost_while_there_are_drafts() {
    let engine = start(&drafting()).await;
    for class in [FaultClass::Executor, FaultClass::KvBlocks, FaultClass::Scheduler] {
        run(&engine, |engine| engine.kill(class)).await;
        wait_until("all is there again", async || engine.status().ready).await;
    }
    run(&engine, |engine| engine.drills().arm(Drill::PanicAt(Phase::Verify))).await;
    assert!(!engine.drills().is_armed(), "the drill went off");
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blocks_that_are_scarce_make_no_difference() {
    let engine = start(&Setup { blocks: 60, ..drafting() }).await;
    run(&engine, |_| {}).await;
    let preemptions = "vllm:num_preemptions_total{model_name=\"twin\",engine=\"0\"}";
    assert!(metric(&engine, preemptions).await > 0.0, "the pool is too large for a preemption");
    assert!(count(&engine, "num_accepted_tokens").await > 0.0);
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_token_among_the_drafts_ends_the_sequence_there() {
    let engine = start(&drafting()).await;
    let mut in_the_middle = 0;
    for index in 0..40 {
        let plain = repetitive(index, TOKENS);
        let sampling = SamplingParams {
            allowed_token_ids: Some(vec![3, 4, 5]),
            stop_token_ids: vec![4],
            min_tokens: 10 + index % 7,
            ..(*plain.sampling).clone()
        };
        // In which the stop token has followed all the others already, so that drafts have it.
        let prompt = (0..80_u32).map(|at| 3 + (at * at + at / 3 + index) % 3).collect();
        let request = Submission { prompt, sampling: Arc::new(sampling), ..plain };
        let undisturbed = expected(&request);
        let end = undisturbed.iter().position(|token| *token == 4).map_or(undisturbed.len(), |at| at + 1);
        let (tokens, _) = collect(engine.submit(request).await.expect("there is room")).await;
        assert_eq!(tokens, undisturbed[..end]);
        in_the_middle += u32::from(end < undisturbed.len());
    }
    assert!(in_the_middle > 20, "{in_the_middle}");
    engine.stop().await;
}

//! What happens at the edges of the house: full queues, clients that leave, requests that cannot fit, and the
//! same tokens under preemption.
#![allow(clippy::expect_used, clippy::panic, reason = "a test that cannot go on ends")]

mod common;

use std::time::Duration;

use common::{Setup, collect, expected, start, submission};
use updraft_actors::{Engine, GenerationEvent, SubmitError};
use updraft_core::admission::Refusal;
use updraft_core::scheduler::FinishReason;

async fn wait_until_empty(engine: &Engine) {
    for _ in 0..2_000 {
        let page = engine.render_metrics().await;
        let is_zero = |name: &str| page.lines().any(|line| line.starts_with(name) && line.ends_with(" 0"));
        if is_zero("vllm:num_requests_running") && is_zero("vllm:kv_cache_usage_perc") {
            return;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    panic!("blocks are still held:\n{}", engine.render_metrics().await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_too_small_for_all_preempts_and_changes_no_token() {
    let engine = start(&Setup { blocks: 40, ..Setup::default() }).await;
    let mut streams = Vec::new();
    for index in 0..24 {
        streams.push(engine.submit(submission(index, 60)).await.expect("there is room"));
    }
    let ended = futures::future::join_all(streams.into_iter().map(collect)).await;
    for (index, (tokens, end)) in ended.into_iter().enumerate() {
        assert_eq!(end, GenerationEvent::Finished(FinishReason::Length));
        assert_eq!(tokens, expected(&submission(index as u32, 60)), "stream {index}");
    }
    let page = engine.render_metrics().await;
    let preempted =
        page.lines().find(|line| line.starts_with("vllm:num_preemptions_total")).expect("is there");
    assert!(!preempted.ends_with(" 0"), "nothing was preempted, the pool is too large for this test");
    wait_until_empty(&engine).await;
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_leaves_frees_its_blocks_and_spares_the_others() {
    let engine = start(&Setup::default()).await;
    let mut leaving = engine.submit(submission(1, 900)).await.expect("there is room");
    let staying = engine.submit(submission(2, 30)).await.expect("there is room");
    assert!(leaving.next().await.is_some());
    drop(leaving);
    let (tokens, _) = collect(staying).await;
    assert_eq!(tokens, expected(&submission(2, 30)));
    wait_until_empty(&engine).await;
    assert_eq!(engine.load().sequences, 0);
    let page = engine.render_metrics().await;
    assert!(page.contains("finished_reason=\"abort\"} 1"), "{page}");
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_is_complete_counts_as_stopped() {
    let engine = start(&Setup::default()).await;
    let mut generation = engine.submit(submission(1, 900)).await.expect("there is room");
    assert!(generation.next().await.is_some());
    generation.finish_here();
    wait_until_empty(&engine).await;
    let page = engine.render_metrics().await;
    assert!(page.contains("finished_reason=\"stop\"} 1"), "{page}");
    assert!(page.contains("finished_reason=\"abort\"} 0"), "{page}");
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_queue_refuses_and_recovers() {
    let setup = Setup { max_sequences: 2, max_waiting: 2, ..Setup::default() };
    let engine = start(&setup).await;
    let mut inside = Vec::new();
    for index in 0..4 {
        inside.push(engine.submit(submission(index, 50)).await.expect("there is room"));
    }
    let refused = engine.submit(submission(9, 5)).await.err().expect("the queue is full");
    assert!(matches!(refused, SubmitError::Refused(Refusal::QueueFull { .. })), "{refused}");
    for (index, (tokens, _)) in
        futures::future::join_all(inside.into_iter().map(collect)).await.into_iter().enumerate()
    {
        assert_eq!(tokens, expected(&submission(index as u32, 50)));
    }
    let admitted = engine.submit(submission(9, 5)).await.expect("there is room again");
    assert_eq!(collect(admitted).await.0, expected(&submission(9, 5)));
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_prefix_cache_answers_with_the_same_tokens_and_says_so() {
    let engine = start(&Setup::default()).await;
    let request = submission(3, 20);
    let mut cached = Vec::new();
    for _ in 0..2 {
        let mut generation = engine.submit(request.clone()).await.expect("there is room");
        let mut tokens = Vec::new();
        while let Some(event) = generation.next().await {
            if let GenerationEvent::Token { token, .. } = event {
                tokens.push(token);
            }
        }
        assert_eq!(tokens, expected(&request));
        cached.push(generation.cached_tokens().0);
    }
    assert_eq!(cached[0], 0);
    assert!(cached[1] >= 96 && cached[1] < request.prompt.len() as u32, "{cached:?}");
    let mut salted = request.clone();
    salted.salt = Some("another owner".into());
    let mut generation = engine.submit(salted).await.expect("there is room");
    while generation.next().await.is_some() {}
    assert_eq!(generation.cached_tokens().0, 0, "a salt keeps owners apart");
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn draining_refuses_new_requests_and_finishes_the_others() {
    let engine = start(&Setup::default()).await;
    let running = engine.submit(submission(4, 50)).await.expect("there is room");
    engine.begin_drain();
    assert_eq!(engine.submit(submission(5, 5)).await.err(), Some(SubmitError::ShuttingDown));
    assert_eq!(collect(running).await.0, expected(&submission(4, 50)));
    assert!(!engine.status().ready);
    engine.stop().await;
}

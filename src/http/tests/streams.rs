//! The grammar of streams.

use std::collections::BTreeSet;
use std::time::Duration;

use updraft_actors::generation::{GenerationError, SubmitError};

use super::*;

/// Joins one choice's text.
fn text_of(events: &[Value], index: u64) -> String {
    let choices = events.iter().flat_map(|event| event["choices"].as_array().unwrap());
    let own = choices.filter(|choice| choice["index"] == index);
    own.filter_map(|choice| choice["delta"]["content"].as_str().or(choice["text"].as_str())).collect()
}

/// The finish reasons of one choice.
fn ends(events: &[Value], index: u64) -> Vec<&Value> {
    let choices = events.iter().flat_map(|event| event["choices"].as_array().unwrap());
    choices
        .filter(|choice| choice["index"] == index)
        .map(|choice| &choice["finish_reason"])
        .filter(|end| !end.is_null())
        .collect()
}

#[tokio::test]
async fn a_chat_stream_keeps_the_grammar() {
    let answer = Bench::talking().chat(json!({"stream": true})).await;
    assert_eq!(answer.headers["content-type"], "text/event-stream; charset=utf-8");
    assert_eq!(
        (&answer.headers["cache-control"], &answer.headers["x-accel-buffering"]),
        (&"no-cache".parse().unwrap(), &"no".parse().unwrap())
    );
    let events = answer.events();
    assert_eq!(answer.text.matches("[DONE]").count(), 1);
    assert_eq!(events[0]["choices"][0]["delta"], json!({"role": "assistant", "content": ""}));
    for key in ["id", "model", "created", "object"] {
        assert_eq!(
            events.iter().map(|event| event[key].to_string()).collect::<BTreeSet<_>>().len(),
            1,
            "{key}"
        );
    }
    assert_eq!(events[0]["object"], "chat.completion.chunk");
    for event in &events {
        assert!(event["choices"][0].get("finish_reason").is_some());
        assert!(event.get("usage").is_none());
    }
    assert_eq!(events.iter().filter(|event| event["choices"][0]["delta"].get("role").is_some()).count(), 1);
    assert_eq!((text_of(&events, 0).as_str(), ends(&events, 0)), (SAID, vec![&json!("stop")]));
}

#[tokio::test]
async fn a_stream_says_what_the_whole_answer_says() {
    let bench = Bench::talking();
    for more in [
        json!({}),
        json!({"max_tokens": 2}),
        json!({"stop": ["y tok"]}),
        json!({"stop": "s", "include_stop_str_in_output": true}),
    ] {
        let whole = bench.chat(more.clone()).await.json();
        let events = bench.chat(merged(more.clone(), json!({"stream": true}))).await.events();
        assert_eq!(
            text_of(&events, 0),
            whole["choices"][0]["message"]["content"].as_str().unwrap(),
            "{more}"
        );
        assert_eq!(ends(&events, 0), [&whole["choices"][0]["finish_reason"]], "{more}");
        let whole = bench.complete(more.clone()).await.json();
        let events = bench.complete(merged(more.clone(), json!({"stream": true}))).await.events();
        assert_eq!(text_of(&events, 0), whole["choices"][0]["text"].as_str().unwrap(), "{more}");
    }
}

#[tokio::test]
async fn choices_are_interleaved_and_each_ends_once() {
    let asked = json!({"n": 3, "max_tokens": 4, "stream": true, "stream_options": {"include_usage": true}});
    let events = Bench::talking().chat(asked).await.events();
    let (last, chunks) = events.split_last().unwrap();
    assert_eq!(last["choices"], json!([]));
    assert_eq!(last["usage"]["completion_tokens"], 12);
    assert_eq!(last["usage"]["prompt_tokens_details"]["cached_tokens"], 1);
    assert!(chunks.iter().all(|chunk| chunk.get("usage").is_none()));
    let order: Vec<u64> = chunks.iter().map(|chunk| chunk["choices"][0]["index"].as_u64().unwrap()).collect();
    assert_eq!(order[..3], [0, 1, 2], "a role chunk for each");
    assert!(!order.is_sorted_by_key(|index| *index), "answers wait for one another: {order:?}");
    for index in 0..3 {
        assert_eq!(ends(chunks, index), [&json!("length")]);
    }
}

#[tokio::test]
async fn usage_can_stand_in_every_chunk() {
    let options = json!({"continuous_usage_stats": true, "include_usage": true});
    let events = Bench::talking().chat(json!({"stream": true, "stream_options": options})).await.events();
    let counts: Vec<u64> =
        events.iter().map(|event| event["usage"]["completion_tokens"].as_u64().unwrap()).collect();
    assert!(counts.is_sorted() && counts[0] == 0);
    let forced = HttpOptions { force_include_usage: true, ..HttpOptions::default() };
    let bench = Bench::with(FakeEngine::new(|submission| Ok(says(submission, SAID))), forced);
    let events = bench.chat(json!({"stream": true})).await.events();
    assert!(events.last().unwrap()["usage"].is_object());
}

#[tokio::test]
async fn a_completion_stream_has_no_roles_and_can_echo() {
    let bench = Bench::talking();
    let asked = json!({"stream": true, "echo": true, "logprobs": 0, "return_token_ids": true, "prompt": ["many", "so"]});
    let events = bench.complete(asked).await.events();
    assert!(
        events
            .iter()
            .all(|event| event["object"] == "text_completion" && event["choices"][0].get("delta").is_none())
    );
    assert_eq!(text_of(&events, 0), format!("many{SAID}"));
    assert_eq!(text_of(&events, 1), format!("so{SAID}"));
    let with_prompt: Vec<&Value> =
        events.iter().filter(|event| event["choices"][0].get("prompt_token_ids").is_some()).collect();
    assert_eq!(with_prompt.len(), 2);
    let lists = |index: u64| {
        let own =
            events.iter().map(|event| &event["choices"][0]).filter(move |choice| choice["index"] == index);
        own.flat_map(|choice| choice["logprobs"]["tokens"].as_array().unwrap().clone()).count()
    };
    assert_eq!(lists(0), ids("many").len() + ids(SAID).len() + 1);
}

#[tokio::test]
async fn a_request_that_fails_at_once_has_a_status_and_one_that_fails_later_an_event() {
    let failure = || Step::Event(GenerationEvent::Failed(GenerationError::Quarantined { strikes: 3 }));
    let at_once = Bench::new(FakeEngine::new(move |_| Ok(vec![failure()])));
    at_once.chat(json!({"stream": true})).await.refusal(500);
    let later = Bench::new(FakeEngine::new(move |submission| {
        let mut steps = says(submission, SAID);
        steps.truncate(3);
        steps.push(failure());
        Ok(steps)
    }));
    let events = later.chat(json!({"stream": true})).await.events();
    let (last, chunks) = events.split_last().unwrap();
    assert_eq!(last["error"]["type"], "server_error");
    assert!(!text_of(chunks, 0).is_empty() && ends(chunks, 0).is_empty());
    let refused = Bench::new(FakeEngine::new(|_| Err(SubmitError::ShuttingDown)));
    refused.chat(json!({"stream": true})).await.refusal(503);
}

#[tokio::test]
async fn an_idle_stream_says_that_it_lives() {
    let options = HttpOptions { keep_alive: Some(Duration::from_millis(20)), ..HttpOptions::default() };
    let engine = FakeEngine::new(|submission| {
        let mut steps = says(submission, SAID);
        steps.insert(1, Step::Wait(Duration::from_millis(100)));
        Ok(steps)
    });
    let answer = Bench::with(engine, options).chat(json!({"stream": true})).await;
    assert!(answer.text.matches(": keep-alive\n\n").count() >= 2, "{}", answer.text);
    assert_eq!(text_of(&answer.events(), 0), SAID);
}

#[tokio::test]
async fn dropping_the_answer_cancels_the_sequences() {
    let bench = Bench::new(FakeEngine::new(|submission| {
        let mut steps = says(submission, SAID);
        steps.truncate(2);
        steps.push(Step::Hang);
        Ok(steps)
    }));
    let request = post("/v1/chat/completions", &chat_body(json!({"stream": true, "n": 2})));
    let response = router(Arc::clone(&bench.state)).oneshot(request).await.unwrap();
    let mut body = response.into_body();
    body.frame().await.unwrap().unwrap();
    assert_eq!(bench.engine.open(), 2);
    drop(body);
    assert_eq!(bench.engine.open(), 0);
}

#[tokio::test]
async fn a_server_that_stops_says_so_in_its_streams() {
    let bench = Bench::new(FakeEngine::new(|submission| {
        let mut steps = says(submission, SAID);
        steps.truncate(2);
        steps.push(Step::Hang);
        Ok(steps)
    }));
    let request = post("/v1/chat/completions", &chat_body(json!({"stream": true})));
    let response = router(Arc::clone(&bench.state)).oneshot(request).await.unwrap();
    bench.state.stopping.cancel();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    assert!(text.contains("shutting down") && text.ends_with("data: [DONE]\n\n"), "{text}");
    assert_eq!(bench.engine.open(), 0);
}

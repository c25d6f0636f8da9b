//! Whole answers, and what is refused before any.

use updraft_actors::generation::{GenerationError, SubmitError};
use updraft_actors::supervisor::EnginePhase;
use updraft_core::admission::Refusal;
use updraft_core::{Millis, Tokens};

use super::*;

#[tokio::test]
async fn a_chat_answer_is_complete() {
    let bench = Bench::talking();
    let answer = bench.chat(json!({})).await;
    let body = answer.json();
    assert_eq!(answer.headers["content-type"], "application/json");
    assert!(body["id"].as_str().unwrap().starts_with("chatcmpl-"));
    assert_eq!((&body["object"], &body["model"]), (&json!("chat.completion"), &json!("tiny")));
    let choice = &body["choices"][0];
    assert_eq!(choice["message"]["content"], SAID);
    assert_eq!(choice["message"]["role"], "assistant");
    assert_eq!((&choice["finish_reason"], &choice["stop_reason"]), (&json!("stop"), &Value::Null));
    assert!(choice["message"].get("refusal").is_some_and(Value::is_null));
    let said = ids(SAID).len() as u64 + 1;
    let prompt = body["usage"]["prompt_tokens"].as_u64().unwrap();
    assert_eq!(body["usage"]["completion_tokens"], said);
    assert_eq!(body["usage"]["total_tokens"], said + prompt);
    assert_eq!(body["usage"]["prompt_tokens_details"]["cached_tokens"], 1);
    assert_eq!(bench.engine.open(), 0);
}

#[tokio::test]
async fn length_and_stop_strings_end_an_answer() {
    let bench = Bench::talking();
    let short = bench.chat(json!({"max_tokens": 2})).await.json();
    assert_eq!(short["choices"][0]["finish_reason"], "length");
    assert_eq!(short["usage"]["completion_tokens"], 2);
    let stopped = bench.chat(json!({"stop": "y tok"})).await.json();
    assert_eq!(stopped["choices"][0]["message"]["content"], "so man");
    assert_eq!(stopped["choices"][0]["stop_reason"], "y tok");
    assert_eq!(bench.engine.open(), 0, "a stop string cancels the sequence");
}

#[tokio::test]
async fn several_prompts_and_choices_are_numbered() {
    let bench = Bench::talking();
    let body =
        bench.complete(json!({"prompt": ["many", "morning", [1, 2]], "n": 2, "max_tokens": 3})).await.json();
    let indexes: Vec<_> = body["choices"].as_array().unwrap().iter().map(|choice| &choice["index"]).collect();
    assert_eq!(json!(indexes), json!([0, 1, 2, 3, 4, 5]));
    let prompts = ids("many").len() + ids("morning").len() + 2;
    assert_eq!(body["usage"]["prompt_tokens"], prompts);
    assert_eq!(body["usage"]["completion_tokens"], 18);
    assert_eq!(body["usage"]["prompt_tokens_details"]["cached_tokens"], 3);
}

#[tokio::test]
async fn the_room_bounds_the_answer() {
    let seen = Arc::new(std::sync::Mutex::new(0));
    let noted = Arc::clone(&seen);
    let bench = Bench::new(FakeEngine::new(move |submission| {
        *noted.lock().unwrap() = submission.sampling.max_tokens;
        Ok(says(submission, SAID))
    }));
    bench.complete(json!({"prompt": vec![1; 190], "max_tokens": 150})).await.json();
    assert_eq!(*seen.lock().unwrap(), 10);
    let too_long = bench.complete(json!({"prompt": vec![1; 200]})).await;
    let message = too_long.refusal(400);
    assert!(message.contains("200 tokens"), "{message}");
    assert_eq!(too_long.json()["error"]["code"], "context_length_exceeded");
    let cut = bench.complete(json!({"prompt": vec![1; 500], "truncate_prompt_tokens": 7})).await.json();
    assert_eq!(cut["usage"]["prompt_tokens"], 7);
    bench.complete(json!({"prompt": "lorem ipsum ".repeat(100_000)})).await.refusal(400);
}

#[tokio::test]
async fn log_probabilities_are_finite_and_have_their_forms() {
    let bench = Bench::talking();
    let chat = bench.chat(json!({"logprobs": true, "top_logprobs": 2, "max_tokens": 2})).await.json();
    let content = chat["choices"][0]["logprobs"]["content"].as_array().unwrap();
    assert_eq!(content.len(), 2);
    assert_eq!(content[0]["logprob"], -1.5);
    assert_eq!(content[0]["top_logprobs"][1]["logprob"], -9999.0);
    assert_eq!(content[0]["bytes"], json!(text_model().token_bytes(ids(SAID)[0])));
    let completion =
        bench.complete(json!({"logprobs": 1, "echo": true, "prompt": "many morning"})).await.json();
    let choice = &completion["choices"][0];
    assert_eq!(choice["text"], format!("many morning{SAID}"));
    let lists = &choice["logprobs"];
    let total = ids("many morning").len() + ids(SAID).len() + 1;
    for list in ["text_offset", "token_logprobs", "tokens", "top_logprobs"] {
        assert_eq!(lists[list].as_array().unwrap().len(), total, "{list}");
    }
    assert!(lists["token_logprobs"][0].is_null() && lists["token_logprobs"][1].is_number());
    let offset = lists["text_offset"][1].as_u64().unwrap() as usize;
    assert!("many morning"[offset..].starts_with(lists["tokens"][1].as_str().unwrap()));
    let prompt = bench.chat(json!({"prompt_logprobs": 1})).await.json();
    assert!(prompt["prompt_logprobs"][0].is_null() && prompt["prompt_logprobs"][1].is_object());
}

#[tokio::test]
async fn tokens_and_prompt_are_shown_on_request() {
    let bench = Bench::talking();
    let chat = bench.chat(json!({"return_token_ids": true, "return_prompt_text": true})).await.json();
    assert_eq!(chat["choices"][0]["token_ids"], json!([ids(SAID), vec![502]].concat()));
    let prompt = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n";
    assert_eq!((&chat["prompt_text"], &chat["prompt_token_ids"]), (&json!(prompt), &json!(ids(prompt))));
    let named = json!({"logprobs": true, "return_tokens_as_token_ids": true});
    let chat = bench.chat(named).await.json();
    assert_eq!(chat["choices"][0]["logprobs"]["content"][0]["token"], format!("token_id:{}", ids(SAID)[0]));
    let only = bench.complete(json!({"echo": true, "max_tokens": 0, "prompt": [0, 1]})).await.json();
    assert_eq!(only["choices"][0]["text"], "!\"");
    assert_eq!(only["usage"]["completion_tokens"], 0);
}

#[tokio::test]
async fn bad_input_is_a_4xx_that_helps() {
    let bench = Bench::talking();
    for (more, word) in [
        (json!({"messages": []}), "at least one message"),
        (json!({"temperature": 3}), "from 0 to 2"),
        (json!({"guided_json": {}}), "guided_json"),
        (json!({"logit_bias": {"99999999": 5}}), "no token 99999999"),
        (json!({"allowed_token_ids": [502], "min_tokens": 1}), "no token to choose"),
        (json!({"bad_words": ["!"], "allowed_token_ids": [0]}), "no token to choose"),
    ] {
        let message = bench.chat(more).await.refusal(400);
        assert!(message.contains(word), "{message}");
    }
    let unknown = bench.chat(json!({"model": "no-such-model"})).await;
    assert!(unknown.refusal(404).contains("no-such-model") && unknown.text.contains("tiny, other"));
    assert_eq!(unknown.json()["error"]["code"], "model_not_found");
    let broken = Request::post("/v1/chat/completions").body(Body::from("{\"a\":NaN}")).unwrap();
    assert!(bench.send(broken).await.refusal(400).contains("NaN"));
    let form =
        Request::post("/v1/chat/completions").header("content-type", "application/x-www-form-urlencoded");
    let form = bench.send(form.body(Body::from("{}")).unwrap()).await;
    assert!(form.refusal(415).contains("application/json"));
    let packed = Request::post("/v1/chat/completions").header("content-encoding", "gzip");
    bench.send(packed.body(Body::from("x")).unwrap()).await.refusal(415);
    let typed = Request::post("/v1/completions").header("content-type", "application/json; charset=utf-8");
    let typed = typed.body(Body::from("{\"prompt\":\"a\"}")).unwrap();
    assert_eq!(bench.send(typed).await.status, 200);
}

#[tokio::test]
async fn a_large_body_is_read_and_a_larger_one_refused() {
    let options = HttpOptions { max_body_bytes: 4 << 20, ..HttpOptions::default() };
    let bench = Bench::with(FakeEngine::new(|submission| Ok(says(submission, SAID))), options);
    let text = |len: usize| json!({"messages": [{"role": "user", "content": "x".repeat(len)}]});
    bench.chat(text(3 << 20)).await.refusal(400);
    assert!(bench.chat(text(5 << 20)).await.refusal(413).contains("4194304 bytes"));
}

#[tokio::test]
async fn the_engines_no_has_the_right_status() {
    let refusing = |error: SubmitError| Bench::new(FakeEngine::new(move |_| Err(error.clone())));
    let full = Refusal::QueueFull { waiting: 5, limit: 5, retry_after: Millis(2500) };
    let answer = refusing(full.into()).chat(json!({})).await;
    answer.refusal(429);
    assert_eq!(answer.headers["retry-after"], "3");
    let never = Refusal::PromptExceedsPool { prompt: Tokens(9), capacity: Tokens(8) };
    refusing(never.into()).chat(json!({})).await.refusal(400);
    let stopping = refusing(SubmitError::ShuttingDown).chat(json!({"stream": true})).await;
    stopping.refusal(503);
    assert!(stopping.headers.contains_key("retry-after"));
    refusing(SubmitError::Unavailable { retry_after_secs: 5 }).chat(json!({})).await.refusal(503);
    let failing = |error: GenerationError| {
        let event = GenerationEvent::Failed(error);
        Bench::new(FakeEngine::new(move |_| Ok(vec![Step::Event(event.clone())])))
    };
    let quarantined = failing(GenerationError::Quarantined { strikes: 3 });
    assert!(quarantined.chat(json!({})).await.refusal(500).contains("3 engine failures"));
    failing(GenerationError::EngineLost { waited_secs: 60 }).chat(json!({})).await.refusal(503);
}

#[tokio::test]
async fn an_engine_out_of_service_says_which_device_and_when_to_come_back() {
    let reason: std::sync::Arc<str> = "ascend:0 is out of service: memory error".into();
    let refused = SubmitError::OutOfService { reason: reason.clone(), retry_after_secs: 60 };
    let bench = Bench::new(FakeEngine::new(move |_| Err(refused.clone())).in_phase(EnginePhase::Retired));
    for body in [json!({}), json!({"stream": true})] {
        let answer = bench.chat(body).await;
        assert!(answer.refusal(503).contains("ascend:0 is out of service"));
        assert_eq!(answer.headers["retry-after"], "60");
    }
    // Answers that were running when it happened.
    let event = GenerationEvent::Failed(GenerationError::OutOfService { reason, retry_after_secs: 60 });
    let running = Bench::new(FakeEngine::new(move |_| Ok(vec![Step::Event(event.clone())])));
    let answer = running.chat(json!({})).await;
    assert!(answer.refusal(503).contains("memory error"));
    assert_eq!(answer.headers["retry-after"], "60");
}

#[tokio::test]
async fn one_refused_choice_refuses_the_request_and_cancels_the_others() {
    let calls = std::sync::atomic::AtomicU32::new(0);
    let bench =
        Bench::new(FakeEngine::new(move |_| match calls.fetch_add(1, std::sync::atomic::Ordering::SeqCst) {
            2 => Err(SubmitError::ShuttingDown),
            _ => Ok(vec![Step::Hang]),
        }));
    bench.chat(json!({"n": 4})).await.refusal(503);
    assert_eq!(bench.engine.open(), 0);
}

#[tokio::test]
async fn tokens_and_text_turn_into_each_other() {
    let bench = Bench::talking();
    let tokens =
        bench.post("/tokenize", &json!({"prompt": "many tokens", "return_token_strs": true})).await.json();
    assert_eq!(
        (&tokens["tokens"], &tokens["max_model_len"]),
        (&json!(ids("many tokens")), &json!(MAX_MODEL_LEN))
    );
    assert_eq!(tokens["count"], tokens["token_strs"].as_array().unwrap().len());
    let text = bench.post("/detokenize", &json!({"tokens": tokens["tokens"]})).await.json();
    assert_eq!(text["prompt"], "many tokens");
    let chat =
        bench.post("/tokenize", &json!({"messages": [{"role": "user", "content": "hi"}]})).await.json();
    assert_eq!(chat["tokens"], json!(ids("<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n")));
    bench.post("/detokenize", &json!({"tokens": [99999]})).await.refusal(400);
}

#[tokio::test]
async fn readiness_tells_the_truth() {
    for (phase, health, ready) in [
        (EnginePhase::Serving, 200, 200),
        (EnginePhase::Restarting, 200, 503),
        (EnginePhase::Draining, 200, 503),
        (EnginePhase::Retired, 200, 503),
        (EnginePhase::Failed, 503, 503),
    ] {
        let bench = Bench::new(FakeEngine::new(|_| Ok(Vec::new())).in_phase(phase));
        assert_eq!(bench.get("/health").await.status, health, "{phase:?}");
        let answer = bench.get("/ready").await;
        assert_eq!(answer.status, ready, "{phase:?}");
        assert_eq!(answer.json()["phase"], phase.as_str());
        assert_eq!(answer.headers.contains_key("retry-after"), ready == 503, "{phase:?}");
    }
}

#[tokio::test]
async fn text_beyond_the_models_vocabulary_is_refused() {
    let engine = FakeEngine::new(|submission| Ok(says(submission, SAID)));
    let bench = Bench::of(engine, HttpOptions::default(), 500);
    // Special tokens of this tokenizer have the highest ids.
    let refusal = bench.chat(json!({})).await.refusal(400);
    assert!(refusal.contains("which the model does not have"), "{refusal}");
    assert!(refusal.contains("ends at 499"), "{refusal}");
}

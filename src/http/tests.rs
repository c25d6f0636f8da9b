//! The HTTP side over a scripted engine: routes, errors, keys, streams, shutdown.

mod access;
mod answers;
mod connections;
mod streams;

use std::path::Path;
use std::sync::Arc;

use axum::body::Body;
use axum::http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tower::ServiceExt as _;
use updraft_actors::generation::{GenerationEvent, Submission};
use updraft_core::scheduler::FinishReason;
use updraft_core::step::TokenLogprobs;
use updraft_protocol::{RequestLimits, SamplingDefaults};
use updraft_text::{TextModel, TextSource, TokenizerSource};

use super::fake::{FakeEngine, Step};
use super::*;

const TEMPLATE: &str = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}\
                        {% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
/// What the usual script says.
const SAID: &str = "so many tokens";
const MAX_MODEL_LEN: u32 = 200;

pub(super) fn text_model() -> TextModel {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tokenizers/bl512.json");
    TextModel::new(TextSource {
        tokenizer: TokenizerSource::HuggingFace { path },
        chat_template: Some(TEMPLATE.to_owned()),
        bos_token: None,
        eos_token: Some("<|im_end|>".to_owned()),
    })
    .unwrap()
}

fn ids(text: &str) -> Vec<u32> {
    text_model().encode(text, false).unwrap()
}

/// A server over this engine.
struct Bench {
    state: Arc<AppState>,
    engine: FakeEngine,
}

/// What came back.
#[derive(Debug)]
struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    text: String,
}

impl Answer {
    #[track_caller]
    fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    /// The error's message, once its shape is checked.
    #[track_caller]
    fn refusal(&self, status: u16) -> String {
        assert_eq!(self.status, status, "{}", self.text);
        let error = &self.json()["error"];
        assert!(error["type"].is_string() && error.get("param").is_some() && error.get("code").is_some());
        error["message"].as_str().unwrap().to_owned()
    }

    /// The events of a stream; the last is `[DONE]`, which is left out.
    #[track_caller]
    fn events(&self) -> Vec<Value> {
        assert_eq!(self.status, 200, "{}", self.text);
        assert!(self.text.ends_with("data: [DONE]\n\n"), "{}", self.text);
        let events: Vec<&str> = self.text.split_terminator("\n\n").collect();
        let (_, chunks) = events.split_last().unwrap();
        let chunks = chunks.iter().filter(|event| !event.starts_with(':'));
        chunks.map(|event| serde_json::from_str(event.strip_prefix("data: ").unwrap()).unwrap()).collect()
    }
}

impl Bench {
    fn new(engine: FakeEngine) -> Self {
        Self::with(engine, HttpOptions::default())
    }

    fn with(engine: FakeEngine, options: HttpOptions) -> Self {
        Self::of(engine, options, 512)
    }

    /// A model that knows this many tokens of the tokenizer's 512.
    fn of(engine: FakeEngine, options: HttpOptions, vocab: u32) -> Self {
        let state = AppState::new(AppParts {
            backend: Backend::Fake(engine.clone()),
            text: Arc::new(text_model()),
            model_names: vec!["tiny".to_owned(), "other".to_owned()],
            model_root: "/models/tiny".to_owned(),
            limits: RequestLimits::new(vocab, MAX_MODEL_LEN),
            defaults: SamplingDefaults::default(),
            eos_token_ids: vec![502],
            options,
        });
        Self { state, engine }
    }

    /// Says [`SAID`] to everything.
    fn talking() -> Self {
        Self::new(FakeEngine::new(|submission| Ok(says(submission, SAID))))
    }

    async fn send(&self, request: Request<Body>) -> Answer {
        let response = router(Arc::clone(&self.state)).oneshot(request).await.unwrap();
        let (head, body) = response.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        Answer {
            status: head.status,
            headers: head.headers,
            text: String::from_utf8(bytes.to_vec()).unwrap(),
        }
    }

    async fn get(&self, path: &str) -> Answer {
        self.send(Request::get(path).body(Body::empty()).unwrap()).await
    }

    async fn post(&self, path: &str, body: &Value) -> Answer {
        self.send(post(path, body)).await
    }

    async fn chat(&self, more: Value) -> Answer {
        self.post("/v1/chat/completions", &chat_body(more)).await
    }

    async fn complete(&self, more: Value) -> Answer {
        self.post("/v1/completions", &merged(json!({"model": "tiny", "prompt": "many"}), more)).await
    }
}

fn chat_body(more: Value) -> Value {
    merged(json!({"model": "tiny", "messages": [{"role": "user", "content": "hi"}]}), more)
}

fn merged(mut body: Value, more: Value) -> Value {
    let Value::Object(more) = more else { panic!("not an object") };
    body.as_object_mut().unwrap().extend(more);
    body
}

fn post(path: &str, body: &Value) -> Request<Body> {
    let request = Request::post(path).header("content-type", "application/json");
    request.body(Body::from(body.to_string())).unwrap()
}

/// Events that say a text as far as `max_tokens` allows, with the reports that were asked for.
fn says(submission: &Submission, text: &str) -> Vec<Step> {
    let sampling = &submission.sampling;
    let mut events = Vec::new();
    if let Some(top) = sampling.prompt_logprobs {
        let entries = submission.prompt.iter().zip(0..).skip(1);
        let entries = entries.map(|(token, at)| (updraft_core::Tokens(at), report(*token, top)));
        events.push(GenerationEvent::PromptLogprobs(entries.collect()));
    }
    let tokens = ids(text);
    let shown = tokens.len().min(sampling.max_tokens as usize);
    let token = |token: u32| {
        let logprobs = sampling.logprobs.map(|top| Box::new(report(token, top)));
        GenerationEvent::Token { token, logprobs }
    };
    events.extend(tokens[..shown].iter().copied().map(token));
    if shown < sampling.max_tokens as usize {
        events.push(token(502));
        events.push(GenerationEvent::Finished(FinishReason::Stop { stop_token: None }));
    } else {
        events.push(GenerationEvent::Finished(FinishReason::Length));
    }
    events.into_iter().map(Step::Event).collect()
}

fn report(token: u32, top: u32) -> TokenLogprobs {
    let top = (0..top).map(|at| (at, if at == 0 { -0.25 } else { f32::NEG_INFINITY })).collect();
    TokenLogprobs { token, logprob: -1.5, rank: 2, top }
}

//! `POST /v1/chat/completions`.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use updraft_protocol::chat::response::{
    ChatChoice, ChatChunk, ChatChunkChoice, ChatDelta, ChatMessage, ChatResponse,
};
use updraft_protocol::generation::ReportSpec;
use updraft_protocol::{ChatRequest, RequestError, Usage, json, sse};

use super::body::Received;
use super::errors::Failure;
use super::generate::{self, Answers, Grown, Happening, Work};
use super::head::{Envelope, Head};
use super::logprobs::Speller;
use super::prepare::{self, Encoder, Prompt};
use super::state::AppState;
use super::stream::{self, Style};
use super::{body, head};

const ROLE: &str = "assistant";

pub(super) async fn create(
    State(state): State<Arc<AppState>>,
    request: Request,
) -> Result<Response, Failure> {
    let envelope = Envelope::open(&request)?;
    let received = body::read(&state, request).await?;
    let work = {
        let state = Arc::clone(&state);
        state.clone().backend.front().run(move || prepare(&state, &received)).await??
    };
    let head = Head::new(&state, head::CHAT_PREFIX, &envelope, &work.spec);
    let answers = generate::submit(&state, &work, envelope.priority(&work.spec)).await?;
    let Work { mut prompts, spec, .. } = work;
    let prompt = prompts.swap_remove(0);
    match spec.stream {
        Some(stream) => {
            let style = ChatStyle {
                state: Arc::clone(&state),
                head,
                choices: spec.choices,
                report: spec.report,
                prompt: Some(prompt),
            };
            stream::respond(&state, answers, style, stream).await
        }
        None => whole(&state, head, answers, &spec.report, prompt, spec.choices).await,
    }
}

/// From the body's bytes to tokens.
fn prepare(state: &AppState, received: &Received) -> Result<Work, RequestError> {
    let request = ChatRequest::parse(json::parse_object(&received.bytes)?)?;
    state.check_model(request.model())?;
    let call = request.check(&state.limits, &state.defaults)?;
    let spec = call.generation;
    let encoder = Encoder {
        text: &state.text,
        max_model_len: state.limits.max_model_len,
        vocab: state.limits.vocab,
        truncate: spec.truncate,
        keep_text: spec.report.prompt_text,
        skip_special: false,
        field: "messages",
    };
    let prompt = encoder.conversation(&call.conversation)?;
    let sampling = prepare::sampling(state, &spec, spec.report.prompt_logprobs)?;
    Ok(Work { prompts: vec![prompt], spec, sampling, prompt_only: false })
}

async fn whole(
    state: &AppState,
    head: Head,
    mut answers: Answers,
    report: &ReportSpec,
    prompt: Prompt,
    choices: u32,
) -> Result<Response, Failure> {
    let grown = generate::collect(&mut answers, choices as usize).await?;
    let speller = Speller::new(&state.text, report);
    let prompt_logprobs = report
        .prompt_logprobs
        .and_then(|_| grown.first())
        .map(|first| speller.prompt(&prompt.tokens, &first.prompt));
    let choices = grown.into_iter().zip(0..).map(|(answer, index)| choice(speller, report, index, answer));
    let response = ChatResponse {
        choices: choices.collect(),
        id: head.id,
        object: "chat.completion".to_owned(),
        created: head.created,
        model: head.model,
        service_tier: None,
        system_fingerprint: Some(head.fingerprint),
        usage: answers.usage(),
        prompt_logprobs,
        prompt_token_ids: report.token_ids.then(|| prompt.tokens.to_vec()),
        prompt_text: prompt.text.filter(|_| report.prompt_text),
    };
    Ok(Json(response).into_response())
}

fn choice(speller: Speller<'_>, report: &ReportSpec, index: u32, answer: Grown) -> ChatChoice {
    let end = answer.end;
    ChatChoice {
        index,
        logprobs: report.logprobs.map(|_| speller.chat(&answer.tokens)),
        token_ids: report.token_ids.then(|| answer.tokens.iter().map(|(id, _)| *id).collect()),
        message: ChatMessage { role: ROLE.to_owned(), content: Some(answer.text), ..ChatMessage::default() },
        finish_reason: end.as_ref().map(|end| end.reason),
        stop_reason: end.and_then(|end| end.stop_reason),
    }
}

struct ChatStyle {
    state: Arc<AppState>,
    head: Head,
    choices: u32,
    report: ReportSpec,
    /// Taken by the first chunk.
    prompt: Option<Prompt>,
}

impl ChatStyle {
    fn chunk(&self, choices: Vec<ChatChunkChoice>, usage: Option<Usage>) -> ChatChunk {
        ChatChunk {
            id: Arc::clone(&self.head.id),
            object: "chat.completion.chunk".to_owned(),
            created: self.head.created,
            model: Arc::clone(&self.head.model),
            choices,
            system_fingerprint: None,
            usage,
            prompt_token_ids: None,
            prompt_text: None,
        }
    }
}

impl Style for ChatStyle {
    fn opening(&mut self, usage: Option<Usage>, out: &mut Vec<u8>) {
        for index in 0..self.choices {
            let delta = ChatDelta { role: Some(ROLE.to_owned()), content: Some(String::new()) };
            let choice = ChatChunkChoice {
                index,
                delta,
                logprobs: None,
                finish_reason: None,
                stop_reason: None,
                token_ids: None,
            };
            let mut chunk = self.chunk(vec![choice], usage);
            if let Some(prompt) = self.prompt.take() {
                chunk.system_fingerprint = Some(Arc::clone(&self.head.fingerprint));
                chunk.prompt_token_ids = self.report.token_ids.then(|| prompt.tokens.to_vec());
                chunk.prompt_text = prompt.text.filter(|_| self.report.prompt_text);
            }
            out.extend(sse::event(&chunk));
        }
    }

    fn update(&mut self, index: u32, what: Happening, usage: Option<Usage>, out: &mut Vec<u8>) {
        let Happening::Piece(piece) = what else { return };
        let reports = self.report.logprobs.is_some() || self.report.token_ids;
        if !piece.says_something(reports) {
            return;
        }
        let speller = Speller::new(&self.state.text, &self.report);
        let choice = ChatChunkChoice {
            index,
            logprobs: self.report.logprobs.map(|_| speller.chat(&piece.tokens)),
            token_ids: self.report.token_ids.then(|| piece.tokens.iter().map(|(id, _)| *id).collect()),
            delta: ChatDelta { role: None, content: Some(piece.text) },
            finish_reason: piece.end.as_ref().map(|end| end.reason),
            stop_reason: piece.end.and_then(|end| end.stop_reason),
        };
        out.extend(sse::event(&self.chunk(vec![choice], usage)));
    }

    fn usage(&mut self, usage: Usage, out: &mut Vec<u8>) {
        out.extend(sse::event(&self.chunk(Vec::new(), Some(usage))));
    }
}

//! `POST /v1/completions`.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use updraft_core::Tokens;
use updraft_core::step::TokenLogprobs;
use updraft_protocol::completion::response::{
    CompletionChoice, CompletionChunk, CompletionChunkChoice, CompletionResponse,
};
use updraft_protocol::generation::ReportSpec;
use updraft_protocol::{CompletionRequest, RequestError, Usage, json, sse};

use super::answer::Piece;
use super::body::Received;
use super::errors::Failure;
use super::generate::{self, Answers, Grown, Happening, Work};
use super::head::{Envelope, Head};
use super::logprobs::{CompletionReport, Speller, append};
use super::prepare::{self, Encoder, Prompt};
use super::state::AppState;
use super::stream::{self, Style};
use super::{body, head};

/// What the answers of a request show besides their text.
struct Showing {
    state: Arc<AppState>,
    head: Head,
    prompts: Vec<Prompt>,
    choices: u32,
    report: ReportSpec,
    echo: bool,
}

pub(super) async fn create(
    State(state): State<Arc<AppState>>,
    request: Request,
) -> Result<Response, Failure> {
    let envelope = Envelope::open(&request)?;
    let received = body::read(&state, request).await?;
    let (work, echo) = {
        let state = Arc::clone(&state);
        state.clone().backend.front().run(move || prepare(&state, &received)).await??
    };
    let head = Head::new(&state, head::COMPLETION_PREFIX, &envelope, &work.spec);
    let answers = generate::submit(&state, &work, envelope.priority(&work.spec)).await?;
    let Work { prompts, spec, .. } = work;
    let showing = Showing {
        state: Arc::clone(&state),
        head,
        prompts,
        choices: spec.choices,
        report: spec.report,
        echo,
    };
    match spec.stream {
        Some(stream) => {
            let count = showing.prompts.len() * showing.choices as usize;
            let started = (0..count).map(|_| Started::default()).collect();
            stream::respond(&state, answers, CompletionStyle { showing, started }, stream).await
        }
        None => showing.whole(answers).await,
    }
}

/// From the body's bytes to tokens, and whether the prompt is echoed.
fn prepare(state: &AppState, received: &Received) -> Result<(Work, bool), RequestError> {
    let request = CompletionRequest::parse(json::parse_object(&received.bytes)?)?;
    state.check_model(request.model())?;
    let call = request.check(&state.limits, &state.defaults)?;
    let spec = call.generation;
    let encoder = Encoder {
        text: &state.text,
        max_model_len: state.limits.max_model_len,
        vocab: state.limits.vocab,
        truncate: spec.truncate,
        keep_text: call.echo || spec.report.prompt_text,
        skip_special: spec.report.skip_special_tokens,
        field: "prompt",
    };
    let prompts = call.prompts.into_iter().map(|input| encoder.input(input, call.add_special_tokens));
    let prompts = prompts.collect::<Result<Vec<_>, _>>()?;
    // An echoed prompt is reported like the answer.
    let echoed = spec.report.logprobs.filter(|_| call.echo);
    let sampling = prepare::sampling(state, &spec, spec.report.prompt_logprobs.max(echoed))?;
    Ok((Work { prompts, spec, sampling, prompt_only: call.prompt_only }, call.echo))
}

impl Showing {
    async fn whole(self, mut answers: Answers) -> Result<Response, Failure> {
        let count = self.prompts.len() * self.choices as usize;
        let grown = generate::collect(&mut answers, count).await?;
        let choices = grown.into_iter().zip(0..).map(|(answer, index)| self.choice(index, answer));
        let response = CompletionResponse {
            choices: choices.collect(),
            id: self.head.id,
            object: "text_completion".to_owned(),
            created: self.head.created,
            model: self.head.model,
            service_tier: None,
            system_fingerprint: Some(self.head.fingerprint),
            usage: answers.usage(),
        };
        Ok(Json(response).into_response())
    }

    fn choice(&self, index: u32, answer: Grown) -> CompletionChoice {
        let prompt = self.prompt(index);
        let speller = Speller::new(&self.state.text, &self.report);
        let mut started = Started { entries: answer.prompt, ..Started::default() };
        let piece = Piece { text: answer.text, tokens: answer.tokens, end: answer.end };
        let prompt_logprobs = self.report.prompt_logprobs.zip(prompt);
        let prompt_logprobs =
            prompt_logprobs.map(|(_, prompt)| speller.prompt(&prompt.tokens, &started.entries));
        let chunk = self.chunk_choice(index, piece, &mut started);
        CompletionChoice {
            index,
            text: chunk.text,
            logprobs: chunk.logprobs,
            finish_reason: chunk.finish_reason,
            stop_reason: chunk.stop_reason,
            token_ids: chunk.token_ids,
            prompt_logprobs,
            prompt_token_ids: chunk.prompt_token_ids,
            prompt_text: chunk.prompt_text,
        }
    }

    fn prompt(&self, index: u32) -> Option<&Prompt> {
        self.prompts.get((index / self.choices.max(1)) as usize)
    }

    /// A piece as clients see it; the first one of an answer begins with what was asked of the prompt.
    fn chunk_choice(&self, index: u32, piece: Piece, started: &mut Started) -> CompletionChunkChoice {
        let speller = Speller::new(&self.state.text, &self.report);
        let first_of = self.prompt(index).filter(|_| !std::mem::replace(&mut started.is_open, true));
        let mut chunk = CompletionChunkChoice {
            index,
            text: piece.text,
            logprobs: None,
            finish_reason: piece.end.as_ref().map(|end| end.reason),
            stop_reason: piece.end.and_then(|end| end.stop_reason),
            token_ids: self.report.token_ids.then(|| piece.tokens.iter().map(|(id, _)| *id).collect()),
            prompt_token_ids: None,
            prompt_text: None,
        };
        let mut lists = None;
        if let Some(prompt) = first_of {
            if self.echo {
                chunk.text.insert_str(0, prompt.text.as_deref().unwrap_or_default());
                let entries = std::mem::take(&mut started.entries);
                lists = Some(started.report.prompt(speller, &prompt.tokens, &entries));
            }
            chunk.prompt_token_ids = self.report.token_ids.then(|| prompt.tokens.to_vec());
            chunk.prompt_text = prompt.text.clone().filter(|_| self.report.prompt_text);
        }
        chunk.logprobs = self.report.logprobs.map(|_| {
            let mut lists = lists.unwrap_or_default();
            append(&mut lists, started.report.answer(speller, &piece.tokens));
            lists
        });
        chunk
    }
}

/// What has been shown of an answer.
#[derive(Default)]
struct Started {
    is_open: bool,
    report: CompletionReport,
    /// Log-probabilities of the prompt.
    entries: Vec<(Tokens, TokenLogprobs)>,
}

struct CompletionStyle {
    showing: Showing,
    /// By answer.
    started: Vec<Started>,
}

impl CompletionStyle {
    fn chunk(&self, choices: Vec<CompletionChunkChoice>, usage: Option<Usage>) -> CompletionChunk {
        let head = &self.showing.head;
        CompletionChunk {
            id: Arc::clone(&head.id),
            object: "text_completion".to_owned(),
            created: head.created,
            model: Arc::clone(&head.model),
            choices,
            system_fingerprint: None,
            usage,
        }
    }
}

impl Style for CompletionStyle {
    fn opening(&mut self, _: Option<Usage>, _: &mut Vec<u8>) {}

    fn update(&mut self, index: u32, what: Happening, usage: Option<Usage>, out: &mut Vec<u8>) {
        let report = &self.showing.report;
        let reports = report.logprobs.is_some() || report.token_ids;
        let Some(started) = self.started.get_mut(index as usize) else {
            return;
        };
        let piece = match what {
            Happening::Piece(piece) => piece,
            Happening::Prompt(entries) => return started.entries.extend(entries),
            Happening::Failed(_) => return,
        };
        // The first piece of an echoing answer shows the prompt even when nothing else is certain yet.
        let opens = self.showing.echo && !started.is_open;
        if opens || piece.says_something(reports) {
            let choice = self.showing.chunk_choice(index, piece, started);
            out.extend(sse::event(&self.chunk(vec![choice], usage)));
        }
    }

    fn usage(&mut self, usage: Usage, out: &mut Vec<u8>) {
        out.extend(sse::event(&self.chunk(Vec::new(), Some(usage))));
    }
}

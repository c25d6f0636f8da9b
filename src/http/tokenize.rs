//! `POST /tokenize` and `POST /detokenize`.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use updraft_protocol::tokenize::{
    DetokenizeRequest, DetokenizeResponse, TokenizeInput, TokenizeRequest, TokenizeResponse,
};
use updraft_protocol::{RequestError, json};

use super::body::{self, Received};
use super::errors::{Failure, text_error};
use super::prepare;
use super::state::AppState;

pub(super) async fn tokenize(
    State(state): State<Arc<AppState>>,
    request: Request,
) -> Result<Json<TokenizeResponse>, Failure> {
    on_front(&state, request, tokens_of).await
}

pub(super) async fn detokenize(
    State(state): State<Arc<AppState>>,
    request: Request,
) -> Result<Json<DetokenizeResponse>, Failure> {
    on_front(&state, request, text_of).await
}

/// Reads the body and hands it to `work` on a front thread.
async fn on_front<T: Send + 'static>(
    state: &Arc<AppState>,
    request: Request,
    work: fn(&AppState, &Received) -> Result<T, RequestError>,
) -> Result<Json<T>, Failure> {
    let received = body::read(state, request).await?;
    let shared = Arc::clone(state);
    let answer = state.backend.front().run(move || work(&shared, &received)).await??;
    Ok(Json(answer))
}

fn tokens_of(state: &AppState, received: &Received) -> Result<TokenizeResponse, RequestError> {
    let request = TokenizeRequest::parse(json::parse_object(&received.bytes)?)?;
    state.check_model(request.model.as_deref())?;
    let with_texts = request.return_token_strs.unwrap_or(false);
    let (field, text, add_special) = match request.check()? {
        TokenizeInput::Text { text, add_special_tokens } => ("prompt", text, add_special_tokens),
        TokenizeInput::Chat(conversation) => {
            let text = prepare::render(&state.text, &conversation)?;
            ("messages", text, conversation.add_special_tokens)
        }
    };
    let tokens = state.text.encode(&text, add_special).map_err(|error| text_error(field, &error))?;
    let texts = tokens.iter().map(|id| state.text.token_text(*id).unwrap_or_default());
    Ok(TokenizeResponse {
        count: tokens.len() as u32,
        max_model_len: state.limits.max_model_len,
        token_strs: with_texts.then(|| texts.collect()),
        tokens,
    })
}

fn text_of(state: &AppState, received: &Received) -> Result<DetokenizeResponse, RequestError> {
    let request = DetokenizeRequest::parse(json::parse_object(&received.bytes)?)?;
    state.check_model(request.model.as_deref())?;
    let tokens = request.check(&state.limits)?;
    let prompt = state.text.decode(&tokens, false).map_err(|error| text_error("tokens", &error))?;
    Ok(DetokenizeResponse { prompt })
}

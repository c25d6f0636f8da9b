//! `/v1/models`: the names this server answers to.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use updraft_protocol::RequestError;
use updraft_protocol::models::{ModelCard, ModelList};

use super::errors::Failure;
use super::state::AppState;

pub(super) async fn list(State(state): State<Arc<AppState>>) -> Json<ModelList> {
    let data = state.model_names.iter().map(|name| card(&state, name)).collect();
    Json(ModelList { object: "list".to_owned(), data })
}

pub(super) async fn describe(
    State(state): State<Arc<AppState>>,
    Path(asked): Path<String>,
) -> Result<Json<ModelCard>, Failure> {
    match state.model_names.iter().find(|name| **name == asked) {
        Some(name) => Ok(Json(card(&state, name))),
        None => Err(RequestError::unknown_model(&asked, &state.model_names).into()),
    }
}

fn card(state: &AppState, name: &str) -> ModelCard {
    ModelCard::new(name, &state.model_root, state.started, state.limits.max_model_len)
}

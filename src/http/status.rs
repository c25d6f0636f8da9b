//! Whether the server lives, serves, and how much it has to do.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::response::{IntoResponse as _, Response};
use serde_json::json;
use updraft_actors::supervisor::EnginePhase;

use super::state::AppState;

const METRICS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";
const RETRY_AFTER_SECS: &str = "2";

/// 200 as long as the process can serve or will again; 503 once the engine has given up.
pub(super) async fn health(State(state): State<Arc<AppState>>) -> StatusCode {
    match state.backend.status().phase {
        EnginePhase::Failed => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::OK,
    }
}

/// Whether a request sent now would be served.
pub(super) async fn ready(State(state): State<Arc<AppState>>) -> Response {
    let status = state.backend.status();
    let page = Json(json!({
        "ready": status.ready,
        "phase": status.phase.as_str(),
        "reason": status.reason,
    }));
    if status.ready {
        page.into_response()
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, [(RETRY_AFTER, RETRY_AFTER_SECS)], page).into_response()
    }
}

pub(super) async fn version() -> Json<serde_json::Value> {
    Json(json!({ "version": env!("CARGO_PKG_VERSION") }))
}

/// Sequences inside, running or waiting.
pub(super) async fn load(State(state): State<Arc<AppState>>) -> Json<serde_json::Value> {
    Json(json!({ "server_load": state.backend.sequences() }))
}

pub(super) async fn metrics(State(state): State<Arc<AppState>>) -> Response {
    ([(CONTENT_TYPE, METRICS_TYPE)], state.backend.metrics().await).into_response()
}

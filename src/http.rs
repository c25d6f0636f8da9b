//! The HTTP side: OpenAI-compatible routes over the engine, one file an API family.
//!
//! Always holds: every answer carries a request id; every error has the shape OpenAI clients read; bad input
//! is a 4xx whose message says what to change; without a valid key only the four routes that say nothing but
//! "alive" answer. Dropping an answer, whoever drops it, cancels the sequences behind it.
//!
//! Refuses to know: how tokens are made. It hands token ids to a [`Backend`] and gets token ids back.

mod answer;
mod auth;
mod backend;
mod body;
mod chat;
mod completions;
mod docs;
mod errors;
#[cfg(test)]
mod fake;
mod generate;
mod head;
mod logprobs;
mod models;
mod prepare;
mod request_id;
mod server;
mod state;
mod status;
mod stream;
#[cfg(test)]
pub(crate) mod tests;
mod tokenize;

use std::sync::Arc;

use axum::Router;
use axum::http::{HeaderName, HeaderValue};
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::{get, post};
use tower_http::cors::{AllowHeaders, AllowMethods, AllowOrigin, CorsLayer};

pub use backend::Backend;
pub use server::serve;
pub use state::{AppParts, AppState, HttpOptions};

/// All routes with everything that stands before them.
pub fn router(state: Arc<AppState>) -> Router {
    let mut routes = Router::new()
        .route("/v1/chat/completions", post(chat::create))
        .route("/v1/completions", post(completions::create))
        .route("/v1/models", get(models::list))
        .route("/v1/models/{*model}", get(models::describe))
        .route("/tokenize", post(tokenize::tokenize))
        .route("/detokenize", post(tokenize::detokenize))
        .route("/health", get(status::health))
        .route("/ready", get(status::ready))
        .route("/ping", get(status::health).post(status::health))
        .route("/version", get(status::version))
        .route("/load", get(status::load))
        .route("/metrics", get(status::metrics));
    if state.options.docs {
        routes = routes.route("/openapi.json", get(docs::openapi)).route("/docs", get(docs::page));
    }
    let origins = cors(&state.options.allowed_origins);
    // The layer added last is the first to see a request. These stand before the fallbacks too, so that no
    // spelling of a path gets around the key.
    let mut guarded = routes
        .fallback(errors::no_such_route)
        .method_not_allowed_fallback(errors::wrong_method)
        .layer(from_fn_with_state(Arc::clone(&state), auth::guard));
    if let Some(origins) = origins {
        guarded = guarded.layer(origins);
    }
    guarded.layer(from_fn(request_id::attach)).with_state(state)
}

/// What browsers of other origins may do; nothing unless the operator lists origins.
fn cors(origins: &[String]) -> Option<CorsLayer> {
    if origins.is_empty() {
        return None;
    }
    let allowed = if origins.iter().any(|origin| origin == "*") {
        AllowOrigin::any()
    } else {
        AllowOrigin::list(origins.iter().filter_map(|origin| HeaderValue::from_str(origin).ok()))
    };
    Some(
        CorsLayer::new()
            .allow_origin(allowed)
            .allow_methods(AllowMethods::any())
            .allow_headers(AllowHeaders::mirror_request())
            .expose_headers([HeaderName::from_static(request_id::HEADER)]),
    )
}

//! The description of the API: for tools as JSON, for people as a page that needs nothing from elsewhere.

use axum::Json;
use axum::http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::response::{IntoResponse as _, Response};
use utoipa::openapi::OpenApi;

const PAGE: &str = include_str!("docs.html");
const POLICY: &str = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; base-uri 'none'";

pub(super) async fn openapi() -> Json<OpenApi> {
    Json(updraft_protocol::openapi::openapi(env!("CARGO_PKG_VERSION")))
}

pub(super) async fn page() -> Response {
    ([(CONTENT_TYPE, "text/html; charset=utf-8"), (CONTENT_SECURITY_POLICY, POLICY)], PAGE).into_response()
}

//! A name for every request, in its answer, its log lines and the id of what it generates.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Instant;

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use futures::FutureExt as _;

use super::errors::Failure;

/// The header that carries the name both ways.
pub(super) const HEADER: &str = "x-request-id";
const LEN_MAX: usize = 128;

/// The name of a request.
#[derive(Clone, Debug)]
pub(super) struct RequestId {
    /// The name.
    pub(super) name: Arc<str>,
    /// Whether the client chose it.
    pub(super) is_given: bool,
}

/// Names the request, and answers for a handler that panics.
pub(super) async fn attach(mut request: Request, next: Next) -> Response {
    let id = RequestId::of(request.headers());
    let begun = Instant::now();
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    request.extensions_mut().insert(id.clone());
    let mut response = match AssertUnwindSafe(next.run(request)).catch_unwind().await {
        Ok(response) => response,
        Err(_) => Failure::internal("answering the request failed inside the server").into_response(),
    };
    if let Ok(value) = HeaderValue::from_str(&id.name) {
        response.headers_mut().insert(HEADER, value);
    }
    let (status, millis) = (response.status().as_u16(), begun.elapsed().as_millis());
    tracing::debug!(%method, path, status, millis, request_id = %id.name, "answered");
    response
}

impl RequestId {
    /// The name the client gave, when it is one that can be repeated safely; otherwise a new one.
    fn of(headers: &HeaderMap) -> Self {
        let given = headers.get(HEADER).and_then(|value| value.to_str().ok()).filter(|name| is_sound(name));
        match given {
            Some(name) => Self { name: name.into(), is_given: true },
            None => Self { name: fresh(), is_given: false },
        }
    }

    /// The name that goes into an answer's id.
    pub(super) fn or_given(&self, in_body: Option<&str>) -> Arc<str> {
        match in_body.filter(|name| !self.is_given && is_sound(name)) {
            Some(name) => name.into(),
            None => Arc::clone(&self.name),
        }
    }
}

fn is_sound(name: &str) -> bool {
    !name.is_empty() && name.len() <= LEN_MAX && name.bytes().all(|byte| byte.is_ascii_graphic())
}

fn fresh() -> Arc<str> {
    uuid::Uuid::new_v4().simple().to_string().into()
}

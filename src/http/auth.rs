//! The API key: which requests bring one, and whether it is right.
//!
//! Stands before every route and before the answer for unknown ones. Only the exact paths that the route
//! table marks as open pass without a key.

use std::hint::black_box;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderValue};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use updraft_protocol::{ErrorKind, RequestError, routes};

use super::errors::Failure;
use super::state::AppState;

const KEY_HEADER: &str = "x-api-key";
const BEARER: &str = "bearer";

/// The keys that open the guarded routes.
pub(super) struct ApiKeys(Vec<Vec<u8>>);

impl ApiKeys {
    pub(super) fn new(keys: &[String]) -> Self {
        Self(keys.iter().filter(|key| !key.is_empty()).map(|key| key.clone().into_bytes()).collect())
    }

    /// Whether a request with these headers may enter.
    fn admit(&self, headers: &HeaderMap) -> bool {
        self.0.is_empty() || offered(headers).any(|offer| self.holds(offer))
    }

    /// Compares with every key, always to the end.
    fn holds(&self, offer: &[u8]) -> bool {
        self.0.iter().fold(false, |found, key| found | same(key, offer))
    }
}

/// Lets requests with a key through, and all requests to open routes.
pub(super) async fn guard(State(state): State<Arc<AppState>>, request: Request, next: Next) -> Response {
    if routes::is_open(request.uri().path()) || state.keys.admit(request.headers()) {
        return next.run(request).await;
    }
    let brought = offered(request.headers()).next().is_some();
    let problem = if brought { "the API key is not valid" } else { "this route needs an API key" };
    let error = RequestError {
        status: 401,
        kind: ErrorKind::InvalidRequest,
        param: None,
        code: Some("invalid_api_key"),
        message: format!("{problem}; send it in the header `Authorization: Bearer KEY` or `x-api-key: KEY`"),
    };
    let mut response = Failure::from(error).into_response();
    response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    response
}

/// The keys a request brings.
fn offered(headers: &HeaderMap) -> impl Iterator<Item = &[u8]> {
    let bearer = headers.get_all(AUTHORIZATION).iter().filter_map(|value| {
        let value = value.as_bytes().trim_ascii();
        let (scheme, rest) = value.split_at_checked(BEARER.len())?;
        let is_bearer = scheme.eq_ignore_ascii_case(BEARER.as_bytes());
        (is_bearer && rest.first().is_some_and(u8::is_ascii_whitespace)).then(|| rest.trim_ascii())
    });
    bearer.chain(headers.get_all(KEY_HEADER).iter().map(|value| value.as_bytes().trim_ascii()))
}

/// Equality that takes as long for a key that is wrong at its end as for one wrong at its start.
fn same(key: &[u8], offer: &[u8]) -> bool {
    let mut difference = key.len() ^ offer.len();
    for (index, byte) in offer.iter().enumerate() {
        let wanted = key.get(index % key.len().max(1)).copied().unwrap_or_default();
        difference |= usize::from(black_box(byte ^ wanted));
    }
    black_box(difference) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admits(name: &'static str, value: &str) -> bool {
        let keys = ApiKeys::new(&["secret".to_owned(), "other".to_owned()]);
        let mut headers = HeaderMap::new();
        headers.insert(name, HeaderValue::from_str(value).unwrap());
        keys.admit(&headers)
    }

    #[test]
    fn a_key_has_several_spellings() {
        for value in ["Bearer secret", "bearer secret", "BEARER other", "Bearer   secret  "] {
            assert!(admits("authorization", value), "{value}");
        }
        assert!(admits("x-api-key", "secret"));
    }

    #[test]
    fn what_is_almost_a_key_is_none() {
        for value in [
            "secret",
            "Bearersecret",
            "Bearer ",
            "Bearer",
            "Bearer secretsecret",
            "Bearer secre",
            "Basic secret",
            "",
        ] {
            assert!(!admits("authorization", value), "{value}");
        }
        for value in ["", "Secret", "secret2", "Bearer secret"] {
            assert!(!admits("x-api-key", value), "{value}");
        }
        assert!(!ApiKeys::new(&["k".to_owned()]).admit(&HeaderMap::new()));
        assert!(ApiKeys::new(&[String::new()]).admit(&HeaderMap::new()));
    }
}

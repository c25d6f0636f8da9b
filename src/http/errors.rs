//! Errors as answers: status, headers and the body that OpenAI clients read.

use axum::extract::Request;
use axum::http::header::{ALLOW, CONNECTION, RETRY_AFTER};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use updraft_actors::front::FrontError;
use updraft_actors::generation::{GenerationError, SubmitError};
use updraft_core::admission::Refusal;
use updraft_protocol::{ErrorKind, RequestError, routes};
use updraft_text::TextError;

/// When a client is told to come back to a server that stops or restarts.
const RETRY_AFTER_SECS: u64 = 5;
/// When a client is told to come back to a server whose front threads are busy.
const RETRY_SOON_SECS: u64 = 1;

/// An error with what its answer needs besides the body.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    pub(super) error: RequestError,
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl Failure {
    pub(super) fn new(status: u16, kind: ErrorKind, message: impl Into<String>) -> Self {
        let message = message.into();
        RequestError { status, kind, param: None, code: None, message }.into()
    }

    /// 500: our fault.
    pub(super) fn internal(message: &str) -> Self {
        Self::new(500, ErrorKind::Server, message)
    }

    /// Ends the connection after the answer: the rest of the request was not read.
    pub(super) fn closing(self) -> Self {
        self.with(CONNECTION, HeaderValue::from_static("close"))
    }

    fn unavailable(message: impl Into<String>, retry_after_secs: u64) -> Self {
        Self::new(503, ErrorKind::Unavailable, message).with(RETRY_AFTER, HeaderValue::from(retry_after_secs))
    }

    pub(super) fn busy(message: impl Into<String>, retry_after_secs: u64) -> Self {
        let mut failure = Self::new(429, ErrorKind::RateLimit, message);
        failure.error.code = Some("rate_limit_exceeded");
        failure.with(RETRY_AFTER, HeaderValue::from(retry_after_secs))
    }

    fn with(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.error.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, axum::Json(self.error.body())).into_response();
        response.headers_mut().extend(self.headers);
        response
    }
}

impl From<RequestError> for Failure {
    fn from(error: RequestError) -> Self {
        Self { error, headers: Vec::new() }
    }
}

impl From<SubmitError> for Failure {
    fn from(error: SubmitError) -> Self {
        let message = error.to_string();
        match error {
            SubmitError::ShuttingDown => Self::unavailable(message, RETRY_AFTER_SECS),
            SubmitError::Unavailable { retry_after_secs }
            | SubmitError::OutOfService { retry_after_secs, .. } => {
                Self::unavailable(message, retry_after_secs)
            }
            SubmitError::Refused(refusal) => match refusal.retry_after() {
                Some(wait) => Self::busy(message, wait.0.div_ceil(1000).max(1)),
                None => refused(&refusal, message).into(),
            },
        }
    }
}

fn refused(refusal: &Refusal, message: String) -> RequestError {
    match refusal {
        Refusal::PromptTooLong { prompt, max_model_len } => {
            RequestError::prompt_too_long(prompt.0 as usize, max_model_len.0)
        }
        Refusal::PromptExceedsPool { .. } => RequestError {
            code: Some("context_length_exceeded"),
            ..RequestError::invalid("input_tokens", message)
        },
        Refusal::EmptyPrompt => RequestError::invalid("prompt", message),
        _ => RequestError::malformed(message),
    }
}

impl From<FrontError> for Failure {
    fn from(error: FrontError) -> Self {
        match error {
            FrontError::Full => Self::busy(error.to_string(), RETRY_SOON_SECS),
            FrontError::Panicked => Self::internal(&error.to_string()),
        }
    }
}

impl From<&GenerationError> for Failure {
    fn from(error: &GenerationError) -> Self {
        let message = error.to_string();
        match error {
            GenerationError::ShuttingDown | GenerationError::EngineLost { .. } => {
                Self::unavailable(message, RETRY_AFTER_SECS)
            }
            GenerationError::OutOfService { retry_after_secs, .. } => {
                Self::unavailable(message, *retry_after_secs)
            }
            _ => Self::internal(&message),
        }
    }
}

/// What a text that cannot be worked with means for the field it came from.
pub(super) fn text_error(field: &'static str, error: &TextError) -> RequestError {
    let message = error.to_string();
    match error {
        TextError::TokenizerFile { .. }
        | TextError::Unsupported { .. }
        | TextError::Vocabulary { .. }
        | TextError::TemplateSyntax { .. } => RequestError {
            status: 500,
            kind: ErrorKind::Server,
            param: None,
            code: None,
            message: "the model's tokenizer or chat template cannot be used; the server's log says why"
                .into(),
        },
        TextError::TooLong { .. } | TextError::TooManyTokens { .. } => RequestError {
            code: Some("context_length_exceeded"),
            ..RequestError::invalid("input_tokens", message)
        },
        _ => RequestError::invalid(field, message),
    }
}

/// 404 with what there is.
pub(super) async fn no_such_route(request: Request) -> Failure {
    let (method, path) = (request.method(), request.uri().path());
    let shown: String = path.chars().take(100).collect();
    let advice = match routes::nearest(path) {
        Some(route) => format!("did you mean {} {}?", route.method, route.path),
        None => format!("there are: {}", routes::listed()),
    };
    RequestError {
        status: 404,
        code: Some("not_found"),
        ..RequestError::malformed(format!("there is no {method} {shown}; {advice}"))
    }
    .into()
}

/// 405 with the methods that work.
pub(super) async fn wrong_method(request: Request) -> Failure {
    let path = request.uri().path();
    let is_here =
        |known: &str| known == path || known == "/v1/models/{model}" && path.starts_with("/v1/models/");
    let methods: Vec<&str> =
        routes::ROUTES.iter().filter(|route| is_here(route.path)).map(|route| route.method).collect();
    let allowed = methods.join(", ");
    let message = format!("{path} answers {allowed}, not {}", request.method());
    let failure = Failure::new(405, ErrorKind::InvalidRequest, message);
    match HeaderValue::from_str(&allowed) {
        Ok(value) => failure.with(ALLOW, value),
        Err(_) => failure,
    }
}

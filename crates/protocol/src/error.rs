//! What a client hears when a request cannot be served.
//!
//! One shape for all: `{"error": {"message", "type", "param", "code"}}`, as the OpenAI clients expect it. The
//! message is written for the person who has to change the request.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The class of an error, as clients see it in `type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The request has to be changed (4xx).
    InvalidRequest,
    /// The server has as much work as it takes; the same request later is fine (429).
    RateLimit,
    /// The server cannot answer now: it starts, restarts or stops (503).
    Unavailable,
    /// The server failed (500).
    Server,
}

impl ErrorKind {
    /// The word that stands in `type`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::InvalidRequest => "invalid_request_error",
            Self::RateLimit => "rate_limit_error",
            Self::Unavailable => "service_unavailable_error",
            Self::Server => "server_error",
        }
    }
}

/// Why a request is not served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct RequestError {
    /// HTTP status.
    pub status: u16,
    /// Class of the error.
    pub kind: ErrorKind,
    /// The field at fault, when one is.
    pub param: Option<String>,
    /// A word that programs can match, when there is a usual one.
    pub code: Option<&'static str>,
    /// What is wrong and what to do.
    pub message: String,
}

impl RequestError {
    /// 400: a field has a value that cannot be used.
    #[must_use]
    pub fn invalid(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self { param: Some(param.into()), ..Self::malformed(message) }
    }

    /// 400: the request as a whole cannot be read.
    #[must_use]
    pub fn malformed(message: impl Into<String>) -> Self {
        Self {
            status: 400,
            kind: ErrorKind::InvalidRequest,
            param: None,
            code: None,
            message: message.into(),
        }
    }

    /// 400: a field that would change the answer and that this server cannot honour.
    #[must_use]
    pub fn unsupported(param: &str, what_works: &str) -> Self {
        Self {
            code: Some("unsupported_parameter"),
            ..Self::invalid(param, format!("{param} is not supported by this server: {what_works}"))
        }
    }

    /// 404: a model that is not served here.
    #[must_use]
    pub fn unknown_model(asked: &str, served: &[String]) -> Self {
        Self {
            status: 404,
            code: Some("model_not_found"),
            ..Self::invalid(
                "model",
                format!("the model `{asked}` does not exist here; this server serves: {}", served.join(", ")),
            )
        }
    }

    /// 400: the prompt leaves no room for an answer.
    #[must_use]
    pub fn prompt_too_long(prompt_tokens: usize, max_model_len: u32) -> Self {
        Self {
            code: Some("context_length_exceeded"),
            ..Self::invalid(
                "input_tokens",
                format!(
                    "this server's maximum context length is {max_model_len} tokens, but the prompt has \
                     {prompt_tokens} tokens and the answer needs at least one; shorten the prompt"
                ),
            )
        }
    }

    /// The body that carries this error.
    #[must_use]
    pub fn body(&self) -> ErrorBody {
        ErrorBody {
            error: ErrorDetail {
                message: self.message.clone(),
                kind: self.kind.name().to_owned(),
                param: self.param.clone(),
                code: self.code.map(str::to_owned),
            },
        }
    }
}

/// An error as it stands in an answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorBody {
    /// The error.
    pub error: ErrorDetail,
}

/// The inside of an [`ErrorBody`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorDetail {
    /// What is wrong and what to do.
    pub message: String,
    /// Class of the error, such as `invalid_request_error`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The field at fault.
    pub param: Option<String>,
    /// A word that programs can match, such as `model_not_found`.
    pub code: Option<String>,
}

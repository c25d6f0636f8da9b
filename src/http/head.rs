//! What stands at the head of every answer, and what a request says outside its body.

use std::sync::Arc;

use axum::extract::Request;
use updraft_protocol::RequestError;
use updraft_protocol::generation::GenerationSpec;

use super::request_id::RequestId;
use super::state::{AppState, unix_time};

/// Starts the id of a chat answer.
pub(super) const CHAT_PREFIX: &str = "chatcmpl-";
/// Starts the id of a completion.
pub(super) const COMPLETION_PREFIX: &str = "cmpl-";

const PRIORITY_HEADER: &str = "x-vllm-priority";

/// What a request says outside its body.
pub(super) struct Envelope {
    id: Option<RequestId>,
    priority: Option<i32>,
}

/// What stands at the head of an answer and of each of its chunks.
#[derive(Clone)]
pub(super) struct Head {
    pub(super) id: Arc<str>,
    pub(super) created: u64,
    pub(super) model: Arc<str>,
    pub(super) fingerprint: Arc<str>,
}

impl Envelope {
    pub(super) fn open(request: &Request) -> Result<Self, RequestError> {
        let priority = match request.headers().get(PRIORITY_HEADER) {
            None => None,
            Some(value) => {
                let parsed = value.to_str().unwrap_or_default().trim().parse();
                Some(parsed.map_err(|_| {
                    let message = format!("the header {PRIORITY_HEADER} must be a whole number of 32 bits");
                    RequestError::invalid(PRIORITY_HEADER, message)
                })?)
            }
        };
        Ok(Self { id: request.extensions().get().cloned(), priority })
    }

    /// The body's priority wins over the header's.
    pub(super) fn priority(&self, spec: &GenerationSpec) -> i32 {
        spec.priority.or(self.priority).unwrap_or(0)
    }
}

impl Head {
    pub(super) fn new(state: &AppState, prefix: &str, envelope: &Envelope, spec: &GenerationSpec) -> Self {
        let name = envelope.id.as_ref().map(|id| id.or_given(spec.request_id.as_deref()));
        Self {
            id: format!("{prefix}{}", name.as_deref().unwrap_or_default()).into(),
            created: unix_time(),
            model: Arc::clone(&state.model),
            fingerprint: Arc::clone(&state.fingerprint),
        }
    }
}

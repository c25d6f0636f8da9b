//! What every handler shares: the backend, the words of the model, and the operator's wishes.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use updraft_protocol::{RequestError, RequestLimits, SamplingDefaults};
use updraft_text::TextModel;

use super::auth::ApiKeys;
use super::backend::Backend;

/// Large bodies held in memory at once; more wait with reading.
const LARGE_BODIES_MAX: usize = 8;

/// What the operator decides about the HTTP side.
#[derive(Clone, Debug)]
pub struct HttpOptions {
    /// Keys, any of which opens the guarded routes; none opens them for everybody.
    pub api_keys: Vec<String>,
    /// Origins whose browsers may call; `*` is all.
    pub allowed_origins: Vec<String>,
    /// Largest request body, in bytes.
    pub max_body_bytes: usize,
    /// Whether the description of the API and its page are there.
    pub docs: bool,
    /// Whether every stream ends with a usage chunk.
    pub force_include_usage: bool,
    /// How often an idle stream says that it lives; none never.
    pub keep_alive: Option<Duration>,
    /// Connections at once; more wait to be accepted.
    pub max_connections: usize,
}

impl Default for HttpOptions {
    fn default() -> Self {
        Self {
            api_keys: Vec::new(),
            allowed_origins: Vec::new(),
            max_body_bytes: 32 << 20,
            docs: true,
            force_include_usage: false,
            keep_alive: Some(Duration::from_secs(15)),
            max_connections: 4096,
        }
    }
}

/// What the state is made of.
pub struct AppParts {
    /// Makes the tokens.
    pub backend: Backend,
    /// Text to tokens and back.
    pub text: Arc<TextModel>,
    /// Names the model answers to, at least one; the first stands in answers.
    pub model_names: Vec<String>,
    /// Where the weights come from, for the model card.
    pub model_root: String,
    /// What requests are checked against.
    pub limits: RequestLimits,
    /// What holds when a request does not say.
    pub defaults: SamplingDefaults,
    /// The model's end-of-sequence tokens.
    pub eos_token_ids: Vec<u32>,
    /// The operator's wishes.
    pub options: HttpOptions,
}

/// What every handler shares.
pub struct AppState {
    pub(super) backend: Backend,
    pub(super) text: Arc<TextModel>,
    pub(super) model_names: Vec<String>,
    pub(super) model: Arc<str>,
    pub(super) model_root: String,
    pub(super) limits: RequestLimits,
    pub(super) defaults: SamplingDefaults,
    pub(super) eos_token_ids: Vec<u32>,
    pub(super) options: HttpOptions,
    pub(super) keys: ApiKeys,
    /// Unix time of the start.
    pub(super) started: u64,
    pub(super) fingerprint: Arc<str>,
    pub(super) large_bodies: Arc<Semaphore>,
    /// Cancelled when running answers have to end now.
    pub(super) stopping: CancellationToken,
}

impl AppState {
    /// Puts the parts together.
    #[must_use]
    pub fn new(parts: AppParts) -> Arc<Self> {
        let mut eos_token_ids = parts.eos_token_ids;
        eos_token_ids.sort_unstable();
        eos_token_ids.dedup();
        Arc::new(Self {
            backend: parts.backend,
            text: parts.text,
            model: parts.model_names.first().map_or("model", String::as_str).into(),
            model_names: parts.model_names,
            model_root: parts.model_root,
            limits: parts.limits,
            defaults: parts.defaults,
            eos_token_ids,
            keys: ApiKeys::new(&parts.options.api_keys),
            options: parts.options,
            started: unix_time(),
            fingerprint: concat!("updraft-", env!("CARGO_PKG_VERSION")).into(),
            large_bodies: Arc::new(Semaphore::new(LARGE_BODIES_MAX)),
            stopping: CancellationToken::new(),
        })
    }

    /// Refuses requests for models that are not served here.
    pub(super) fn check_model(&self, asked: Option<&str>) -> Result<(), RequestError> {
        match asked {
            None | Some("") => Ok(()),
            Some(name) if self.model_names.iter().any(|served| served == name) => Ok(()),
            Some(name) => Err(RequestError::unknown_model(name, &self.model_names)),
        }
    }
}

/// Seconds since 1970.
pub(super) fn unix_time() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

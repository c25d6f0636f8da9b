//! The HTTP side of a conversation.

use std::io::{BufRead as _, BufReader};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use serde::Serialize;
use serde_json::{Value, json};
use ureq::http::Response;
use ureq::{Agent, Body};

use super::ChatOptions;
use super::stream::{Event, error_message, event};

/// How long a server may take to accept a connection.
const CONNECT_WAIT_MAX: Duration = Duration::from_secs(5);
/// Variables in which a key may stand, the first one found counts.
const KEY_VARIABLES: [&str; 3] = ["UPDRAFT_API_KEY", "VLLM_API_KEY", "OPENAI_API_KEY"];

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Message {
    role: &'static str,
    content: String,
}

impl Message {
    pub(super) fn system(text: &str) -> Self {
        Self { role: "system", content: text.to_owned() }
    }

    pub(super) fn user(text: &str) -> Self {
        Self { role: "user", content: text.to_owned() }
    }

    pub(super) fn assistant(text: &str) -> Self {
        Self { role: "assistant", content: text.to_owned() }
    }
}

/// A server and the model to ask there.
pub(super) struct Client {
    agent: Agent,
    base: String,
    key: Option<String>,
    model: String,
    max_tokens: Option<u32>,
    temperature: Option<f32>,
}

impl Client {
    /// Finds the model; fails when there is no server.
    pub(super) fn connect(options: &ChatOptions) -> Result<Self> {
        let base = options.url.trim_end_matches('/').trim_end_matches("/v1").to_owned();
        if !base.starts_with("http://") {
            bail!("{:?} is no address that chat can talk to; it must begin with http://", options.url);
        }
        // No limit on the whole: an answer may take minutes. No proxy: the server is near.
        let agent = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_connect(Some(CONNECT_WAIT_MAX))
            .proxy(None)
            .build()
            .new_agent();
        let mut client = Self {
            agent,
            base,
            key: options.api_key.clone().or_else(key_of_environment),
            model: String::new(),
            max_tokens: options.max_tokens,
            temperature: options.temperature,
        };
        client.model = match &options.model {
            Some(model) => model.clone(),
            None => client.first_model()?,
        };
        Ok(client)
    }

    pub(super) fn model(&self) -> &str {
        &self.model
    }

    /// The answer to a conversation; `show` is called with each piece.
    pub(super) fn answer(
        &self,
        messages: &[Message],
        mut show: impl FnMut(&str) -> std::io::Result<()>,
    ) -> Result<String> {
        let mut body = json!({"model": self.model, "messages": messages, "stream": true});
        if let Some(tokens) = self.max_tokens {
            body["max_completion_tokens"] = json!(tokens);
        }
        if let Some(temperature) = self.temperature {
            body["temperature"] = json!(temperature);
        }
        let request = self.agent.post(format!("{}/v1/chat/completions", self.base));
        let request = self.signed(request).header("content-type", "application/json");
        let response = self.checked(request.send(body.to_string()))?;

        let mut answer = String::new();
        for line in BufReader::new(response.into_body().into_reader()).lines() {
            match event(&line.context("the connection broke in the middle of the answer")?) {
                Some(Event::Text(piece)) => {
                    show(&piece)?;
                    answer.push_str(&piece);
                }
                Some(Event::Error(message)) => bail!(message),
                Some(Event::Done) => return Ok(answer),
                None => {}
            }
        }
        bail!("the server ended the answer in the middle")
    }

    fn first_model(&self) -> Result<String> {
        let request = self.signed(self.agent.get(format!("{}/v1/models", self.base)));
        let text = self.checked(request.call())?.into_body().read_to_string()?;
        let models: Value = serde_json::from_str(&text).context("the list of models is no JSON")?;
        let first = models.pointer("/data/0/id").and_then(Value::as_str);
        first.map(str::to_owned).ok_or_else(|| anyhow!("the server at {} lists no model", self.base))
    }

    fn signed<B>(&self, request: ureq::RequestBuilder<B>) -> ureq::RequestBuilder<B> {
        match &self.key {
            Some(key) => request.header("authorization", format!("Bearer {key}")),
            None => request,
        }
    }

    /// Turns failures and error answers into a sentence.
    fn checked(&self, response: Result<Response<Body>, ureq::Error>) -> Result<Response<Body>> {
        let response = response.with_context(|| {
            format!(
                "no server answers at {} (start one with `updraft serve MODEL`, or give --url)",
                self.base
            )
        })?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let text = response.into_body().read_to_string().unwrap_or_default();
        let message = serde_json::from_str(&text).ok().and_then(|body| error_message(&body));
        let message = message.unwrap_or_else(|| text.chars().take(200).collect());
        bail!("the server answered {status}: {message}")
    }
}

fn key_of_environment() -> Option<String> {
    let value =
        KEY_VARIABLES.iter().find_map(|name| std::env::var(name).ok().filter(|key| !key.is_empty()))?;
    // The server's variable may hold several keys; any of them is good.
    value.split(',').map(str::trim).find(|key| !key.is_empty()).map(str::to_owned)
}

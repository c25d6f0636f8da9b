//! Options about the HTTP side: address, keys, limits, shutdown.

use std::time::Duration;

use clap::{ArgAction, Args};

use super::values::{self, Listing, Secret};

/// The HTTP side.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Server")]
pub struct ServerOptions {
    /// Address to listen on. `127.0.0.1` keeps the server to this machine.
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0")]
    pub host: String,

    /// Port to listen on; 0 takes any free one and prints it.
    #[arg(long, value_name = "PORT", default_value = "8000", value_parser = values::port)]
    pub port: u16,

    /// Key that requests must bring (`Authorization: Bearer KEY` or `x-api-key: KEY`). Can be given several
    /// times; any of them is good. Guards every route but /health, /ready, /ping and /version. Default: none,
    /// everybody may ask. Also read from `VLLM_API_KEY`.
    #[arg(long, value_name = "KEY", action = ArgAction::Append, value_parser = values::secret)]
    pub api_key: Vec<Secret>,

    /// Web origins that browsers may call from: a list `a,b`, a JSON list, or `*`. Default: none.
    #[arg(long, value_name = "LIST", default_value = "", value_parser = values::listing, hide_default_value = true)]
    pub allowed_origins: Listing,

    /// Largest request body.
    #[arg(long, value_name = "BYTES", default_value = "32MiB", value_parser = values::bytes)]
    pub max_body_size: u64,

    /// Connections open at once; more wait to be accepted.
    #[arg(long, value_name = "N", default_value = "4096", value_parser = values::count)]
    pub max_connections: u32,

    /// Seconds after which a stream that has nothing to say sends a comment, so that proxies keep it open;
    /// 0 never.
    #[arg(long, value_name = "SECONDS", default_value = "15", value_parser = values::seconds)]
    pub sse_keep_alive_interval: Duration,

    /// Leave out the API description: /openapi.json and /docs.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value = "false",
          default_missing_value = "true", action = ArgAction::Set, value_parser = values::switch)]
    pub disable_fastapi_docs: bool,

    /// End every stream with a usage chunk, also when the request does not ask for one.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value = "false",
          default_missing_value = "true", action = ArgAction::Set, value_parser = values::switch)]
    pub enable_force_include_usage: bool,

    /// Seconds that running requests get to finish after SIGTERM or Ctrl-C; 0 ends them at once. A second
    /// signal always does.
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = values::seconds)]
    pub shutdown_timeout: Duration,
}

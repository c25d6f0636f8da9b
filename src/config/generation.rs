//! Options about what requests get that do not say: template, sampling defaults, limits.

use clap::Args;

use super::values::{self, JsonObject, LogprobsLimit};

/// What requests get that do not say.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Generation")]
pub struct GenerationOptions {
    /// Chat template: a file, or the template itself. Default: the model's own.
    #[arg(long, value_name = "FILE|TEXT")]
    pub chat_template: Option<String>,

    /// Where sampling defaults come from: `auto` the model's `generation_config.json`, `vllm` none, or a folder
    /// that holds such a file.
    #[arg(long, value_name = "auto|vllm|DIR", default_value = "auto")]
    pub generation_config: String,

    /// Sampling defaults that win over the model's, such as `{"temperature": 0.7, "top_p": 0.9}`.
    #[arg(long, value_name = "JSON", value_parser = values::generation_overrides)]
    pub override_generation_config: Option<JsonObject>,

    /// Log-probabilities a request may ask for at each position; -1: as many as the vocabulary has.
    #[arg(long, value_name = "N", default_value = "20", allow_negative_numbers = true,
          value_parser = values::logprobs_limit)]
    pub max_logprobs: LogprobsLimit,
}

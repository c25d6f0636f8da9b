//! Options about which sequences run when, and how many may wait.

use clap::{ArgAction, Args, ValueEnum};
use updraft_core::scheduler::{LatencyBound, TokenLatency};
use updraft_core::speculation::SpeculationConfig;
use updraft_core::{Millis, Tokens};

use super::device::Target;
use super::error::ConfigError;
use super::speculation::speculation;
use super::values::{self, InterTokenLatency};

/// Tokens a step computes at most when nothing is said: on a CPU a step of this size stays short enough that
/// running streams do not stutter while a long prompt is read.
pub const BATCHED_TOKENS_DEFAULT: u32 = 512;

/// The same on an NPU, which computes large steps much faster.
pub const BATCHED_TOKENS_NPU: u32 = 2048;

/// Prompt tokens that a step computes whatever the bound on its time: with fewer rows, matrix kernels leave a part of
/// each tile empty.
const PROMPT_TOKENS_LEAST: Tokens = Tokens(16);

/// Which sequences run when.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Scheduling")]
pub struct SchedulingOptions {
    /// Sequences that run at the same time, at most.
    #[arg(long, value_name = "N", default_value = "256", value_parser = values::count)]
    pub max_num_seqs: u32,

    /// Tokens computed in one step, at most; long prompts are cut into chunks of this size. Default: 512 on
    /// the CPU and 2048 on an NPU, or `--max-num-seqs` when that is more.
    #[arg(long, value_name = "TOKENS", value_parser = values::count)]
    pub max_num_batched_tokens: Option<u32>,

    /// Requests that may wait; one more is answered with 429 and a `Retry-After` header.
    #[arg(long, value_name = "N", default_value = "1024", value_parser = values::count)]
    pub max_num_queued_reqs: u32,

    /// Prompt tokens that may wait in all. Default: no limit of its own.
    #[arg(long, value_name = "TOKENS", value_parser = values::count)]
    pub max_num_queued_tokens: Option<u32>,

    /// Order of waiting requests: as they came, or by their `priority` field (lower first) with ageing.
    #[arg(long, value_name = "POLICY", value_enum, default_value = "fcfs")]
    pub scheduling_policy: SchedulingPolicy,

    /// Cut long prompts into chunks that share a step with running sequences. Off: steps are made large
    /// enough for the longest prompt.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value = "true",
          default_missing_value = "true", action = ArgAction::Set, value_parser = values::switch)]
    pub enable_chunked_prefill: bool,

    /// Longest chunk of one prompt in a step that others share; 0 sets no limit of its own.
    #[arg(long, value_name = "TOKENS", default_value = "0", value_parser = values::count_or_zero)]
    pub long_prefill_token_threshold: u32,

    /// Milliseconds that a step with running streams may take because of prompts that are read beside them: as much of
    /// a prompt is taken into it as fits, by what earlier steps have cost. `auto`: four times as long as without a
    /// prompt, and at least 50. `none`: no bound, `--max-num-batched-tokens` is always used up;
    /// so too without chunked prefill.
    #[arg(long, value_name = "MS", default_value = "auto", value_parser = values::inter_token_latency)]
    pub max_inter_token_latency: InterTokenLatency,

    /// Guess tokens ahead and check several of them in one step, such as
    /// `{"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 4, "prompt_lookup_min": 2}`.
    ///
    /// Answers are the same with and without it. The only method is `ngram`: what followed the last tokens of a
    /// sequence where they stood before in it, `prompt_lookup_max` of them at most and `prompt_lookup_min` at least
    /// (each as the other when it is left out, 5 when both are). `num_speculative_tokens` is 1 to 16. Pays where
    /// answers repeat what the request says; while it is on, the next step is planned when the last one has ended,
    /// and steps with guesses do not replay decode graphs.
    #[arg(long, value_name = "JSON", value_parser = speculation)]
    pub speculative_config: Option<SpeculationConfig>,
}

/// Order of waiting requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SchedulingPolicy {
    /// First come, first served.
    Fcfs,
    /// By the request's priority, with ageing.
    Priority,
}

impl SchedulingOptions {
    /// Tokens a step computes at most on such a device.
    #[must_use]
    pub fn batched_tokens(&self, target: Target) -> u32 {
        let default = match target {
            Target::Cpu => BATCHED_TOKENS_DEFAULT,
            Target::Ascend => BATCHED_TOKENS_NPU,
        };
        self.max_num_batched_tokens.unwrap_or_else(|| default.max(self.max_num_seqs))
    }

    /// The bound on a step with streams and prompts.
    #[must_use]
    pub fn token_latency(&self) -> Option<TokenLatency> {
        // Whoever wants prompts in one piece does not want them cut for this.
        if !self.enable_chunked_prefill {
            return None;
        }
        let bound = match self.max_inter_token_latency {
            InterTokenLatency::Unbounded => return None,
            InterTokenLatency::Auto => LatencyBound::Auto,
            InterTokenLatency::Millis(time) => LatencyBound::At(Millis(time.into())),
        };
        Some(TokenLatency { bound, least: PROMPT_TOKENS_LEAST })
    }

    /// Drafts in one step at most; each takes a row of logits.
    #[must_use]
    pub fn draft_rows(&self) -> Tokens {
        self.speculative_config.as_ref().map_or(Tokens::ZERO, |speculation| speculation.rows)
    }

    /// Checks that span several options of this group.
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        // Defaults are never too small.
        if let Some(tokens) = self.max_num_batched_tokens.filter(|&tokens| tokens < self.max_num_seqs) {
            return Err(ConfigError::Conflict(format!(
                "--max-num-batched-tokens {tokens} is less than --max-num-seqs {}: every running sequence needs one \
                 token a step, so raise the first to {} or more",
                self.max_num_seqs, self.max_num_seqs,
            )));
        }
        Ok(())
    }
}

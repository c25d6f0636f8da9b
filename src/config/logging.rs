//! Options about what is logged.

use clap::{ArgAction, Args};

use super::values;

/// What is logged. The level is set by the environment variable `UPDRAFT_LOG`.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Logging")]
pub struct LoggingOptions {
    /// Log one line for each request: its id, sizes and sampling parameters, never its text.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value = "false",
          default_missing_value = "true", action = ArgAction::Set, value_parser = values::switch)]
    pub enable_log_requests: bool,

    /// Leave out the summary line that is logged every ten seconds.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value = "false",
          default_missing_value = "true", action = ArgAction::Set, value_parser = values::switch)]
    pub disable_log_stats: bool,
}

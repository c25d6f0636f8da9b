//! Where log lines go: standard error, at the level that `UPDRAFT_LOG` says.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;

use crate::config::environment;

const DEFAULT_FILTER: &str = "info";

/// Starts logging. A filter that cannot be read is said so and replaced by the default.
pub(in crate::commands) fn start() {
    let wanted = std::env::var(environment::LOG).ok().filter(|filter| !filter.is_empty());
    let (filter, problem) = match wanted.as_deref().map(EnvFilter::try_new) {
        None => (EnvFilter::new(DEFAULT_FILTER), None),
        Some(Ok(filter)) => (filter, None),
        Some(Err(error)) => (EnvFilter::new(DEFAULT_FILTER), Some(error)),
    };
    // A second start (in tests) keeps the first one's settings.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false)
        .try_init();
    if let Some(error) = problem {
        tracing::warn!("{} is not understood ({error}); logging at {DEFAULT_FILTER}", environment::LOG);
    }
}

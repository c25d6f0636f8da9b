//! Names of environment variables, and a snapshot of the environment to read them from.
//!
//! An option `--max-model-len` has the variable `UPDRAFT_MAX_MODEL_LEN`: one rule, so no list can be out of
//! date. The constants are the variables that are no options.

use std::collections::BTreeMap;

/// What the name of every variable begins with.
pub const PREFIX: &str = "UPDRAFT_";
/// Path of a configuration file, as `--config`.
pub const CONFIG: &str = "UPDRAFT_CONFIG";
/// What is logged, as a `tracing` filter: `warn`, `info`, `updraft=debug`.
pub const LOG: &str = "UPDRAFT_LOG";
/// Folder for fetched demo models.
pub const CACHE: &str = "UPDRAFT_CACHE";
/// Server that `updraft chat` talks to.
pub const URL: &str = "UPDRAFT_URL";
/// The binary that the end-to-end tests run.
pub const BIN: &str = "UPDRAFT_BIN";
/// API key under the name that vLLM reads; `UPDRAFT_API_KEY` wins over it.
pub const VLLM_API_KEY: &str = "VLLM_API_KEY";

/// Variables with our prefix that are no options of `updraft serve`.
pub const OTHERS: [&str; 5] = [CONFIG, LOG, CACHE, URL, BIN];

/// Variables at one moment.
#[derive(Clone, Debug, Default)]
pub struct Environment(BTreeMap<String, String>);

impl Environment {
    /// Those of this process. Variables that are not UTF-8 are left out.
    #[must_use]
    pub fn of_process() -> Self {
        Self(
            std::env::vars_os()
                .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
                .collect(),
        )
    }

    /// The value of a variable; an empty one counts as not set.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// All names with our prefix.
    pub fn own_names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str).filter(|name| name.starts_with(PREFIX))
    }
}

impl<const N: usize> From<[(&str, &str); N]> for Environment {
    fn from(variables: [(&str, &str); N]) -> Self {
        Self(variables.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }
}

/// The variable of an option: `max-model-len` is `UPDRAFT_MAX_MODEL_LEN`.
#[must_use]
pub fn variable(option: &str) -> String {
    format!("{PREFIX}{}", option.replace('-', "_").to_ascii_uppercase())
}

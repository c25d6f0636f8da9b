//! What can be wrong with a configuration, each as one sentence that says what would be right.

use std::error::Error as _;
use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::settings::Settings;

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// No error: help was asked for. Print it and leave with success.
    #[error("{0}")]
    Help(clap::Error),
    /// No model was named.
    #[error("no model given; say `updraft serve MODEL`, where MODEL is a folder, a .gguf file or a hub id")]
    NoModel,
    /// Two different models were named.
    #[error(
        "two models given, {first:?} and --model {second:?}; one server serves one model, so leave one out"
    )]
    TwoModels {
        /// The positional one.
        first: String,
        /// The one of `--model` or of the file.
        second: String,
    },
    /// An option that neither we nor vLLM have.
    #[error("{place} is not known{}", suggestion(nearest.as_ref()))]
    Unknown {
        /// The option or key, and where it stands.
        place: String,
        /// What was probably meant.
        nearest: Option<String>,
    },
    /// An option of vLLM that this server cannot honour.
    #[error("{place} is an option of vLLM that Updraft does not have: {answer}")]
    Foreign {
        /// The option or key, and where it stands.
        place: String,
        /// What to do instead.
        answer: &'static str,
    },
    /// A value that cannot be.
    #[error("{place}: {problem}")]
    Value {
        /// The option, variable or key.
        place: String,
        /// What is wrong and what would be right.
        problem: String,
    },
    /// Options that do not go together.
    #[error("{0}")]
    Conflict(String),
    /// A configuration file that cannot be read.
    #[error("configuration file {}: {problem}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// Anything else about the command line.
    #[error("{0}")]
    Usage(String),
}

impl ConfigError {
    /// Turns clap's answer into one sentence that names where the value came from.
    pub(super) fn from_clap(error: clap::Error, settings: &Settings) -> Self {
        if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
            return Self::Help(error);
        }
        let text = |kind| match error.get(kind) {
            Some(ContextValue::String(text)) => Some(text.as_str()),
            _ => None,
        };
        let value = text(ContextKind::InvalidValue).unwrap_or_default();
        let option = text(ContextKind::InvalidArg).map(|arg| {
            let end = arg.find([' ', '[', '=']).unwrap_or(arg.len());
            arg[..end].to_owned()
        });
        let Some(option) = option else {
            return Self::Usage(first_line(&error));
        };
        let place = settings.place_of(&option);
        let problem = match error.kind() {
            ErrorKind::InvalidValue if value.is_empty() => "a value is missing".to_owned(),
            ErrorKind::InvalidValue => {
                let choices = match error.get(ContextKind::ValidValue) {
                    Some(ContextValue::Strings(choices)) => choices.join(", "),
                    _ => String::new(),
                };
                format!("{value:?} is not possible; expected one of {choices}")
            }
            ErrorKind::ValueValidation => {
                let reason = error.source().map(ToString::to_string).unwrap_or_default();
                if option == "--api-key" { reason } else { format!("{value:?} is not possible; {reason}") }
            }
            ErrorKind::UnknownArgument if option.starts_with('-') => {
                return Self::Unknown { place: option, nearest: None };
            }
            ErrorKind::UnknownArgument => {
                return Self::Usage(format!(
                    "unexpected argument {option:?}; one server serves one model, and a value with spaces needs quotes"
                ));
            }
            _ => first_line(&error),
        };
        Self::Value { place, problem }
    }
}

fn suggestion(nearest: Option<&String>) -> String {
    nearest.map_or_else(
        || "; `updraft serve --help` lists what is".to_owned(),
        |nearest| format!("; did you mean {nearest}?"),
    )
}

fn first_line(error: &clap::Error) -> String {
    let text = error.to_string();
    text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned()
}

//! Options of `vllm serve` that do not exist here, and what is said to those who give them.
//!
//! The rule: an option that only tunes speed or describes what is the case anyway is answered with one line
//! and the server starts; one that would change what clients get is refused, so that nobody finds out later.

use super::error::ConfigError;
use super::notices::Notice;
use super::options::dashed;

mod table;

pub use table::{FOREIGN, OPTIMIZATION_LEVEL};

/// An option of vLLM without a counterpart.
#[derive(Clone, Copy, Debug)]
pub struct Foreign {
    /// Long name, with dashes.
    pub name: &'static str,
    /// How many values follow it.
    pub takes: Takes,
    /// What is done.
    pub outcome: Outcome,
    /// What is said.
    pub text: &'static str,
}

/// How many values follow an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// It is a switch.
    Nothing,
    /// One.
    One,
    /// One or more.
    Many,
}

/// What is done about an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It asks for what is the case anyway.
    Given,
    /// It changes nothing that a client would notice.
    Ignored,
    /// The server does not start.
    Refused,
}

impl Foreign {
    /// Whether the server does not start with it.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        self.outcome == Outcome::Refused
    }

    /// The line about it, or the refusal.
    pub fn answer(&self, place: &str) -> Result<Option<Notice>, ConfigError> {
        match self.outcome {
            Outcome::Given => Ok(Some(Notice::note(format!("{place} is not needed: {}", self.text)))),
            Outcome::Ignored => Ok(Some(Notice::warning(format!("{place} is ignored: {}", self.text)))),
            Outcome::Refused => Err(ConfigError::Foreign { place: place.to_owned(), answer: self.text }),
        }
    }
}

/// The entry of this name (dashes or underscores).
#[must_use]
pub fn find(name: &str) -> Option<&'static Foreign> {
    let name = dashed(name);
    FOREIGN.iter().find(|known| known.name == name)
}

/// All names.
pub fn names() -> impl Iterator<Item = &'static str> {
    FOREIGN.iter().map(|known| known.name)
}

//! Model families: how the layers of each architecture are put together.
//!
//! A family is one file with one constant: the names under which checkpoints ask for it, its defaults, and a
//! function that writes the step program. To add the next one, write such a file and name it in [`FAMILIES`]; the
//! parts that dense decoders share are in [`decoder`].

mod decoder;
mod gemma3;
mod llama;
mod mistral;
mod naming;
mod qwen2;
mod qwen3;
#[cfg(test)]
mod tests;

use updraft_core::program::{Program, RopePairing};

use crate::config::{ModelConfig, Rules};

pub(crate) use naming::{Kind, Naming, Part};

/// Every family that can be built.
static FAMILIES: [&Family; 5] =
    [&llama::FAMILY, &mistral::FAMILY, &qwen2::FAMILY, &qwen3::FAMILY, &gemma3::FAMILY];

/// One family of architectures.
#[derive(Debug)]
pub(crate) struct Family {
    /// Its name, for people.
    pub(crate) name: &'static str,
    /// Entries of `architectures` in `config.json`; the first is the usual one.
    architectures: &'static [&'static str],
    /// `model_type` in `config.json`, for files without `architectures`.
    model_types: &'static [&'static str],
    /// `general.architecture` in GGUF files.
    gguf_architectures: &'static [&'static str],
    /// Which values form a rotary pair in its GGUF files.
    pub(crate) gguf_pairing: RopePairing,
    /// Defaults, and rules for what configurations leave out.
    pub(crate) rules: Rules,
    /// Tokens that its tokenizers have beyond the embedding, because they belong to larger sister models.
    pub(crate) tokens_of_sisters: &'static [&'static str],
    build: fn(&ModelConfig, &Naming, u32) -> Program,
}

impl Family {
    /// The step program of a model, with rotary tables for `positions` tokens.
    pub(crate) fn program(&self, config: &ModelConfig, naming: &Naming, positions: u32) -> Program {
        (self.build)(config, naming, positions)
    }

    /// The architecture to show when a checkpoint names none.
    pub(crate) fn canonical_architecture(&self) -> &'static str {
        self.architectures.first().copied().unwrap_or(self.name)
    }
}

/// The family of an entry of `architectures`.
pub(crate) fn by_architecture(name: &str) -> Option<&'static Family> {
    FAMILIES.into_iter().find(|family| family.architectures.contains(&name))
}

/// The family of a `model_type`.
pub(crate) fn by_model_type(name: &str) -> Option<&'static Family> {
    FAMILIES.into_iter().find(|family| family.model_types.contains(&name))
}

/// The family of a `general.architecture`.
pub(crate) fn by_gguf_architecture(name: &str) -> Option<&'static Family> {
    FAMILIES.into_iter().find(|family| family.gguf_architectures.contains(&name))
}

/// Architectures that `config.json` may name, separated by commas.
#[must_use]
pub fn known_architectures() -> String {
    list(|family| family.architectures)
}

/// Architectures that GGUF files may name, separated by commas.
pub(crate) fn known_gguf_architectures() -> String {
    list(|family| family.gguf_architectures)
}

fn list(names: impl Fn(&Family) -> &'static [&'static str]) -> String {
    FAMILIES.into_iter().flat_map(names).copied().collect::<Vec<_>>().join(", ")
}

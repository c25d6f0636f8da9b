//! Guessing the next tokens of a sequence, so that one step can check several of them.
//!
//! A [`Proposer`] reads a sequence's own tokens and drafts what may follow. The device computes the last token
//! and the drafts behind it in one step, and the sampler draws each position's token exactly as it would have
//! without drafts: a draft that equals the token drawn has saved a step, the first that differs ends the row,
//! and the token drawn there is kept. So a draft can cost time, but it can never change a token.
//!
//! Promises: a proposer is a function of the tokens it was given; a sequence that starts again drafts the same.
//!
//! Refuses to know: logits, blocks, whether a draft turned out right.

mod ngram;

use serde::{Deserialize, Serialize};

use crate::ids::TokenId;
use crate::units::Tokens;

pub use ngram::{CANDIDATES_MAX, Ngram, NgramLengths};

/// Drafts behind one token at most.
pub const DRAFTS_MAX: usize = 16;

/// How drafts are made and how many of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpeculationConfig {
    /// Who makes them.
    pub method: Method,
    /// Drafts behind one token at most; 1 to [`DRAFTS_MAX`].
    pub drafts: Tokens,
    /// Drafts in one step at most, over all sequences: each takes a row of logits of the whole vocabulary.
    pub rows: Tokens,
}

/// Who makes drafts. A model that drafts would be one more line here and in [`Proposer`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Method {
    /// What followed the last tokens where they stood before, in the sequence itself.
    Ngram(NgramLengths),
}

/// Drafts the tokens of one sequence.
#[derive(Clone, Debug)]
pub enum Proposer {
    /// See [`Method::Ngram`].
    Ngram(Ngram),
}

/// Drafts of a step or of several, and what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DraftCounts {
    /// Sequences that had drafts, in each step.
    pub sequences: u32,
    /// Drafts of all of them.
    pub drafted: u32,
    /// Drafts that were right, by place: the first behind the known token, the second, and so on.
    pub accepted: [u32; DRAFTS_MAX],
}

impl SpeculationConfig {
    /// Keeps the counts within what the rest relies on.
    pub(crate) fn checked(mut self) -> Self {
        self.drafts = self.drafts.clamp(Tokens(1), Tokens(DRAFTS_MAX as u32));
        self.rows = self.rows.max(Tokens(1));
        self
    }
}

impl Proposer {
    /// One that has seen no token yet.
    #[must_use]
    pub fn new(method: &Method) -> Self {
        match method {
            Method::Ngram(lengths) => Self::Ngram(Ngram::new(*lengths)),
        }
    }

    /// Tokens it has seen.
    #[must_use]
    pub fn seen(&self) -> usize {
        match self {
            Self::Ngram(ngram) => ngram.seen(),
        }
    }

    /// Takes in the tokens that follow those it has seen.
    pub fn extend(&mut self, tokens: impl IntoIterator<Item = TokenId>) {
        match self {
            Self::Ngram(ngram) => ngram.extend(tokens),
        }
    }

    /// Drafts what follows, at most `most` tokens; none when it has no idea.
    #[must_use]
    pub fn propose(&self, most: Tokens) -> Vec<TokenId> {
        match self {
            Self::Ngram(ngram) => ngram.propose(most.0 as usize),
        }
    }
}

impl DraftCounts {
    /// Counts one sequence's drafts as planned.
    pub fn plan(&mut self, drafts: usize) {
        if drafts > 0 {
            self.sequences += 1;
            self.drafted += drafts as u32;
        }
    }

    /// Counts one sequence's drafts as right: so many, from the first on.
    pub fn accept(&mut self, accepted: usize) {
        self.accepted.iter_mut().take(accepted).for_each(|place| *place += 1);
    }

    /// Adds those of another step.
    pub fn add(&mut self, other: &Self) {
        self.sequences += other.sequences;
        self.drafted += other.drafted;
        for (place, more) in self.accepted.iter_mut().zip(other.accepted) {
            *place += more;
        }
    }

    /// Drafts that were right.
    #[must_use]
    pub fn accepted_in_all(&self) -> u32 {
        self.accepted.iter().sum()
    }
}

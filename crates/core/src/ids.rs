//! Names of things: newtypes, so that a step can never be mistaken for a block.
//!
//! Ids are opaque outside the machine that hands them out; only equality and order mean something.

use serde::{Deserialize, Serialize};

/// Index of a token in the model's vocabulary. An alias: tokenizers, samplers and wire formats all speak
/// plain `u32`, and no other integer is ever used in its place.
pub type TokenId = u32;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id!(
    /// One sampled continuation of a request; unique for the life of the process.
    SequenceId(u64)
);
id!(
    /// One forward pass of an executor group, counted from the start of its epoch.
    StepId(u64)
);
id!(
    /// Life number of an executor group. Rises with every loss; messages of an older epoch are void.
    Epoch(u64)
);
id!(
    /// One fixed-size block of the paged KV cache.
    BlockId(u32)
);
id!(
    /// Place of one token in the KV cache: `block * block_size + offset`.
    SlotId(u32)
);
id!(
    /// One decoder layer, counted from zero.
    LayerId(u32)
);
id!(
    /// Position of a device within its group.
    Rank(u32)
);

impl Epoch {
    /// The epoch after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl StepId {
    /// The step after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

//! What the manager tells the outside about its prefix cache, for routers that place requests by it.

use serde::{Deserialize, Serialize};

use super::hash::BlockHash;
use crate::ids::TokenId;

/// One change of what the prefix cache holds, in the order in which it happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum KvEvent {
    /// Neighbouring blocks of one chain can be found from now on.
    Stored {
        /// Their hashes, in chain order.
        hashes: Vec<BlockHash>,
        /// Hash of the block before the first one; none at the start of a sequence.
        parent: Option<BlockHash>,
        /// Their tokens, one block behind the other.
        tokens: Vec<TokenId>,
    },
    /// A block was given to other tokens.
    Removed {
        /// The hash it had.
        hash: BlockHash,
    },
    /// Nothing can be found any more.
    Cleared,
}
